"""Who may use the studio: hosts, origins, the token of the address and the cookie that replaces it."""

import secrets
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
TOKEN_BYTES = 16
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# The page asks for itself again, now with the cookie, which a browser would not send after a redirect from another site.
EXCHANGED = (
    '<!DOCTYPE html><html lang="en"><meta http-equiv="refresh" content="0; url=./"><link rel="icon" href="data:,">'
    "<title>studio</title></html>"
)
NO_COOKIE = "Open the address that the studio printed in its terminal."


class Reply(NamedTuple):
    """The answer to a request that the studio itself does not see."""

    status: int
    text: str
    media_type: str = "text/plain"
    cookie: str | None = None


class Gate:
    """Decides about a request before it is read.

    Args:
        port: that the server listens on; a part of the name of the cookie, because browsers send a cookie to all ports.
        hosts: names besides those of the loopback interface that the page may have in the browser.
        announce: is called with each new token.

    Attributes:
        token: opens the studio once, in one browser; then there is a new one. 128 random bits.
    """

    def __init__(
        self, port: int, hosts: Collection[str] = (), announce: Callable[[str], None] = lambda token: None
    ) -> None:
        self.token = secrets.token_hex(TOKEN_BYTES)
        self._announce = announce
        self._session = secrets.token_hex(TOKEN_BYTES)
        self._cookie = f"seq2seq_lab_studio_{port}"
        self._hosts = frozenset(host.lower() for host in hosts)

    def reply(self, query: str, headers: Mapping[str, str]) -> Reply | None:
        """Return the reply to a request that may not pass, or that exchanges the token; None if it may pass.

        Args:
            query: of the address.
            headers: by name in lower case.
        """
        host = headers.get("host", "")
        if name_of(host) not in LOOPBACK | self._hosts:
            return Reply(
                403, f"Host={host[:80]!r} is not allowed. Start the studio with --allow-host NAME.\n"
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin, host):
            return Reply(403, f"Origin={origin[:80]!r} is not the address of this page.\n")
        if has_token(query, self.token):
            # Other users of the machine can see the old one, which is on the command line of the browser.
            self.token = secrets.token_hex(TOKEN_BYTES)
            self._announce(self.token)
            # Without a path, the cookie is of the path of the page, whatever prefix a proxy gives it.
            cookie = f"{self._cookie}={self._session}; HttpOnly; SameSite=Strict"
            return Reply(200, EXCHANGED, "text/html", cookie)
        if not self._has_cookie(headers.get("cookie", "")):
            return Reply(403, f"{NO_COOKIE}\n")
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
            return parts.netloc.lower() == host.lower() or parts.hostname in self._hosts
        except ValueError:
            return False

    def _has_cookie(self, header: str) -> bool:
        # Programs on other ports of the host set cookies of their own, also malformed ones, which end `http.cookies`.
        pairs = (pair.strip().partition("=") for pair in header.split(";"))
        return any(name == self._cookie and matches(value, self._session) for name, _, value in pairs)


def has_token(query: str, token: str) -> bool:
    """Return whether the query of an address has the token."""
    try:
        given = parse_qs(query, max_num_fields=10).get("token", [""])[0]
    except ValueError:
        return False
    return matches(given, token)


def matches(given: str, secret: str) -> bool:
    """Return whether two texts are equal, in a time that does not depend on where they differ."""
    return secrets.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())


def name_of(host: str) -> str | None:
    """Return the name of a header `Host` without its port; None if it is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    return None if parts.path or parts.query or parts.fragment or "@" in host else parts.hostname
