"""File systems of clusters that do not support an operation, or fail once. The errors are simulated."""

import errno
import fcntl
import logging
import os
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2seq_lab.files import FolderInUseError, is_locked, lock_folder, remove_folder
from seq2seq_lab.launching import study
from seq2seq_lab.tracking.files import FileTracker, read_metrics
from seq2seq_lab.training import checkpoint


def fail(number: int) -> Any:
    def failing(*arguments: Any, **named: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return failing


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_folder_that_cannot_be_locked_is_used_with_a_warning(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".lock").touch()
    monkeypatch.setattr(fcntl, "flock", fail(number))
    with caplog.at_level(logging.WARNING), lock_folder(tmp_path):
        assert not is_locked(tmp_path)
    assert "cannot be locked" in caplog.text


def save(folder: Path) -> Path:
    model = torch.nn.Linear(2, 2)
    return checkpoint.save(
        folder, "step_1", model, torch.optim.SGD(model.parameters()), {}, best=None, task_state={}
    )


def test_a_folder_that_cannot_be_synchronized_gets_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", fail(errno.EINVAL))
    assert checkpoint.damage(save(tmp_path)) is None


def test_the_files_of_a_checkpoint_have_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        modes = {path.stat().st_mode & 0o777 for path in save(tmp_path).iterdir()}
    finally:
        os.umask(before)
    assert modes == {0o640}


def test_a_checkpoint_that_cannot_be_removed_is_kept_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shutil, "rmtree", fail(errno.ENOTEMPTY))
    remove_folder(tmp_path)
    assert "cannot be removed" in caplog.text


def test_metrics_are_written_again_after_a_stale_handle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = FileTracker(tmp_path, None)
    write, calls = tracker._write, []

    def stale_once(line: str) -> None:
        calls.append(line)
        if len(calls) == 1:
            raise OSError(errno.ESTALE, "stale")
        write(line)

    monkeypatch.setattr(tracker, "_write", stale_once)
    tracker.log_metrics({"train/loss": 1.0}, 1)
    tracker.log_metrics({"train/loss": 2.0}, 2)
    tracker.finish(0)
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2]


@pytest.mark.parametrize("name", ["rename", "mkdir"])
def test_a_job_that_is_set_aside_is_in_one_folder_after_a_crash(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for file in ("run.json", "config.yaml", "manifest.json", "metrics.jsonl"):
        (job / file).touch()
    operation, calls = getattr(Path, name), []

    def crash_in_second(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return operation(*arguments, **named)

    with lock_folder(job), monkeypatch.context() as patch:
        patch.setattr(Path, name, crash_in_second)
        with pytest.raises(KeyboardInterrupt):
            study.set_aside(job)
    assert not any(job.glob("*"))
    assert len([path for path in (tmp_path / "job.stale-1").glob("[!.]*") if path.is_file()]) == 4


def test_a_job_that_is_set_aside_stays_locked(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    with lock_folder(job):
        study.set_aside(job)
        assert is_locked(job)
    assert not is_locked(job)


@pytest.mark.parametrize("place", range(1, 5))
def test_a_job_that_is_set_aside_is_never_locked_by_two_processes(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process tries to start the job before an operation on folders."""
    job = tmp_path / "job"
    job.mkdir()
    calls, owners = 0, ["first"]
    with ExitStack() as stack:

        def interrupting(operation: Any) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == place:
                    with monkeypatch.context() as patch:
                        patch.setattr(Path, "rename", rename)
                        patch.setattr(Path, "mkdir", mkdir)
                        start_other()
                return operation(*arguments, **named)

            return call

        def start_other() -> None:
            job.mkdir(exist_ok=True)
            with suppress(FolderInUseError):
                stack.enter_context(lock_folder(job, timeout=0))
                owners.append("second")

        rename, mkdir = Path.rename, Path.mkdir
        with lock_folder(job):
            monkeypatch.setattr(Path, "rename", interrupting(rename))
            monkeypatch.setattr(Path, "mkdir", interrupting(mkdir))
            try:
                study.set_aside(job)
            except FolderInUseError:
                owners.remove("first")
            monkeypatch.undo()
            start_other()
            assert calls >= place
            assert len(owners) == 1
            assert is_locked(job)
