"""Files that cannot be written: what the user sees, and what is left."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import command_line
import pytest

from seq2seq_lab.config.run_folder import read_result
from seq2seq_lab.errors import UserError, storage_errors
from seq2seq_lab.files import write_atomically
from seq2seq_lab.training import checkpoint

SETTINGS = [
    *("dataset.train=48", "dataset.validation=8", "dataset.test=8", "dataset.test_compositional=0"),
    # The weights are the largest file: the limits of the tests refuse it, and not the log.
    *("model.embedding_size=32", "model.hidden_size=32", "model.encoder_hidden_size=16", "logger=none"),
    *("trainer.device=cpu", "trainer.precision=fp32", "task.samples=0", "trainer.log_every_steps=1"),
]


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let the operating system refuse larger files, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*") if path.name != ".lock"]


def test_a_full_disk_ends_a_run_and_the_run_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with file_size_limit(1024):
        assert command_line.run(*SETTINGS, "trainer.max_epochs=1", f"hydra.run.dir={folder}") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert str(folder) in error
    assert "ulimit -f" in error
    assert leftovers(folder) == []

    other = tmp_path / "other"
    assert command_line.run(*SETTINGS, "trainer.max_epochs=1", f"hydra.run.dir={other}") == 0
    newest = checkpoint.newest(other / "checkpoints")
    size = (newest / "model.safetensors").stat().st_size
    capsys.readouterr()
    with file_size_limit(size - 1):
        assert command_line.run(f"resume={other}", "trainer.max_epochs=2") == 2
    assert "error: " in capsys.readouterr().err
    assert leftovers(other) == []
    assert checkpoint.newest(other / "checkpoints") == newest
    assert read_result(other)["status"] == "failed"
    assert command_line.run(f"resume={other}", "trainer.max_epochs=2") == 0
    assert read_result(other)["status"] == "finished"


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with file_size_limit(1024), pytest.raises(OSError):  # noqa: PT011  (any)
        write_atomically(path, "x" * 2048)
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EMFILE])
def test_the_path_and_the_remedy_are_named(number: int, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^x/y\.txt: .*\. [A-Z]"), storage_errors(tmp_path):
        raise OSError(number, os.strerror(number), "x/y.txt")
    with pytest.raises(UserError, match=f"^{tmp_path}: "), storage_errors(tmp_path):
        raise OSError(number, os.strerror(number))


def test_other_errors_of_the_system_are_not_changed(tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError), storage_errors(tmp_path):
        raise ConnectionResetError(errno.ECONNRESET, "reset")
