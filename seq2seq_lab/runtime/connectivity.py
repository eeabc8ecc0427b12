"""Whether a service can be reached, told at once."""

import queue
import socket
import threading
import urllib.request
from urllib.parse import urlsplit

PROBE_SECONDS = 3.0


def find_connection_problem(url: str) -> str | None:
    """Return why the server of `url`, or the proxy in front of it, takes no connection; None if it does.

    It answers within `PROBE_SECONDS`, whatever the name service does and however many addresses there are.
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

    # The socket's own time-out holds for each address of a host anew and not at all for looking its name up.
    threading.Thread(target=connect, daemon=True).start()
    try:
        problem = outcome.get(timeout=PROBE_SECONDS)
    except queue.Empty:
        problem = TimeoutError(f"no answer within {PROBE_SECONDS:g} s")
    return None if problem is None else f"{address[0]}:{address[1]} cannot be reached ({problem})"
