"""A studio on a free port, in a thread of the test, and a client."""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from seq2seq_lab.studio.gate import Gate
from seq2seq_lab.studio.questions import Studio
from seq2seq_lab.studio.server import listen, server


class Reply(NamedTuple):
    status: int
    text: str
    headers: dict[str, str]


class Client:
    """Sends requests to a studio, with the cookie unless a test replaces the headers."""

    def __init__(self, gate: Gate, port: int) -> None:
        self.gate, self.port, self.cookie = gate, port, ""
        self.cookie = self.send("GET", f"/?token={gate.token}").headers["set-cookie"].partition(";")[0]

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        own = {"Cookie": self.cookie, **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection.request(method, path, body, {name: value for name, value in own.items() if value})
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return Reply(reply.status, text, {name.lower(): value for name, value in reply.getheaders()})

    def ask(self, name: str, body: Any) -> Reply:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", f"/api/{name}", content, Content_Type="application/json")


@contextlib.contextmanager
def serving(studio: Studio, *hosts: str, port: int = 0) -> Iterator[Client]:
    """Serve a studio during the block."""
    with listen(port) as listening:
        port = listening.getsockname()[1]
        gate = Gate(port, hosts)
        running = server(studio, gate)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        while not running.started:
            time.sleep(0.01)
        try:
            yield Client(gate, port)
        finally:
            running.should_exit = True
            thread.join()
