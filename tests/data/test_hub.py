"""Data sets that a server on this machine offers as the hub does: broken connections and damaged copies."""

import errno
import http.server
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from seq2seq_lab.data import hub
from seq2seq_lab.data.hub import read_hub
from seq2seq_lab.data.tables import Reader
from seq2seq_lab.data.text import new_counts
from seq2seq_lab.errors import UserError

COMMIT = "a" * 40
ROWS = b"".join(b'{"en": "en %d", "fr": "fr %d"}\n' % (n, n) for n in range(50))


class Hub(http.server.BaseHTTPRequestHandler):
    """The part of the hub's interface that a data set of one file needs; `content` is None for a server that hangs up."""

    content: bytes | None = ROWS

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.content is None:
            return
        entry = {"type": "file", "path": "train.jsonl", "size": len(self.content), "oid": "b" * 40}
        if self.path.endswith("/train.jsonl"):
            self.answer(self.content)
        elif "/tree/" in self.path or "paths-info" in self.path:
            self.answer(json.dumps([entry]).encode())
        elif "/api/datasets/" in self.path:
            self.answer(json.dumps({"id": "me/set", "sha": COMMIT, "siblings": []}).encode())
        else:
            self.answer(b"", 404)

    do_HEAD = do_POST = do_GET

    def answer(self, body: bytes, status: int = 200) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(status)
        names = {"Content-Length": str(len(body)), "ETag": '"b"', "X-Repo-Commit": COMMIT}
        names |= {"X-Error-Code": "EntryNotFound"} if status == 404 else {}
        for name, value in names.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """The caches of downloaded files and of tables, both empty, of a server in the place of the hub."""
    import datasets
    from huggingface_hub import constants

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(Hub, "content", ROWS)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as running:
        address = f"http://127.0.0.1:{running.server_port}"
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "files"))
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", address)
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "tables")
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield tmp_path / "files" / "datasets--me--set", tmp_path / "tables" / "me___set"
        running.shutdown()
        thread.join()


def sources() -> list[str]:
    """The column en of the data set; the remedy of the caller is REMEDY."""
    columns = ("en", "fr")
    splits = read_hub(
        "me/set", None, columns, on_bad_pair="error", counts=new_counts(), remedy="REMEDY", reader=Reader()
    )
    return [source for source, _ in splits["train"]]


def test_a_dropped_connection_is_an_error_with_a_remedy(
    caches: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hub, "content", None)
    with pytest.raises(
        UserError, match=r"dataset\.hub=me/set .*connection broke \(.*run the command again.*=FOLDER\.$"
    ):
        sources()
    monkeypatch.setattr(Hub, "content", ROWS)
    assert len(sources()) == 50


def test_a_damaged_file_of_the_cache_is_an_error_with_its_reason_and_folder(
    caches: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, _ = caches
    for content in (b"x" * len(ROWS), ROWS):  # the copy in the cache is used
        monkeypatch.setattr(Hub, "content", content)
        with pytest.raises(UserError, match=r"dataset\.hub=me/set .*JSON parse error") as refused:
            sources()
        assert f"delete {files} " in str(refused.value)
        assert "REMEDY" not in str(refused.value)
    shutil.rmtree(files)
    assert len(sources()) == 50


@pytest.mark.parametrize("damaged", ["*.arrow", "dataset_info.json"])
@pytest.mark.parametrize("kept", [0, 0.5])
def test_a_damaged_table_of_the_cache_is_an_error_with_its_folder(
    caches: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, damaged: str, kept: float
) -> None:
    _, tables = caches
    assert len(sources()) == 50
    (file,) = tables.rglob(damaged)
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * kept)])
    monkeypatch.setattr(Hub, "content", None)  # the network is not tried
    with pytest.raises(UserError, match=r"dataset\.hub=me/set .*damaged") as refused:
        sources()
    assert f"{tables} and run the command again" in str(refused.value)
    shutil.rmtree(tables)
    monkeypatch.setattr(Hub, "content", ROWS)
    assert len(sources()) == 50


def test_a_missing_data_set_is_an_error_with_the_remedy_of_the_caller(
    caches: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hub, "do_GET", lambda self: self.answer(b"", 404))
    monkeypatch.setattr(Hub, "do_HEAD", lambda self: self.answer(b"", 404))
    with pytest.raises(UserError, match="REMEDY") as refused:
        sources()
    assert ".." not in str(refused.value)


def test_a_full_disk_is_not_taken_for_a_damaged_copy(
    caches: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    caches[0].mkdir(parents=True)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    table = datasets.exceptions.DatasetGenerationError("An error occurred")
    table.__cause__ = full
    for error in (full, table):

        def load(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(hub, "_load", load)
        with pytest.raises(UserError, match=r"No space left on device\. Free some disk space") as refused:
            sources()
        assert "delete" not in str(refused.value)
