"""A quick check of whether a service can be reached."""

import queue
import socket
import threading
import urllib.request
from urllib.parse import urlsplit

PROBE_SECONDS = 3.0


def find_connection_problem(url: str) -> str | None:
    """Return why the server of `url`, or its proxy, accepts no connection, or None if it accepts one.

    Returns within `PROBE_SECONDS`, even if the name lookup hangs or the host has several addresses.
    """
    server = urlsplit(url)
    proxy = urllib.request.getproxies().get(server.scheme)
    if proxy and not urllib.request.proxy_bypass(server.hostname or ""):
        server = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    address = (server.hostname or "", server.port or (443 if server.scheme == "https" else 80))
    outcome: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()

    def connect() -> None:
        try:
            with socket.create_connection(address, timeout=PROBE_SECONDS):
                outcome.put(None)
        except OSError as error:
            outcome.put(error)

    # The socket's own timeout applies to each address separately and not to the name lookup.
    threading.Thread(target=connect, daemon=True).start()
    try:
        problem = outcome.get(timeout=PROBE_SECONDS)
    except queue.Empty:
        problem = TimeoutError(f"no answer within {PROBE_SECONDS:g} s")
    return None if problem is None else f"{address[0]}:{address[1]} cannot be reached ({problem})"
