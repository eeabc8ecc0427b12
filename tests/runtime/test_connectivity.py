"""Connection checks return in time, even if the name lookup hangs."""

import socket
import time

import pytest

from seq2seq_lab.runtime import connectivity
from seq2seq_lab.runtime.connectivity import find_connection_problem


def test_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        open_address = f"http://127.0.0.1:{port}"
        assert not find_connection_problem(open_address)
        # Behind a proxy only the proxy has to be reachable.
        monkeypatch.setenv("HTTP_PROXY", f"127.0.0.1:{port}")
        assert not find_connection_problem("http://host.invalid/path")
        monkeypatch.setenv("NO_PROXY", "host.invalid")
        assert find_connection_problem("http://host.invalid/path")
    monkeypatch.delenv("HTTP_PROXY")
    assert find_connection_problem(open_address)


def test_reachable_waits_no_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectivity, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(1) or [])
    start = time.monotonic()
    assert find_connection_problem("http://example.invalid")
    assert time.monotonic() - start < 0.9
