"""Atomic writes, checksums, JSON files and locks of run folders."""

import fcntl
import hashlib
import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from seq2seq_lab.errors import UserError

LOCK = ".lock"
RUN_FORMAT = 2  # of run.json and config.yaml: raise it if a version cannot read the runs of the one before


class FolderInUseError(UserError):
    """Another process uses the run folder."""


@contextmanager
def lock_folder(folder: Path, timeout: float = 2.0) -> Iterator[None]:
    """Lock a run folder for the duration of the block.

    Args:
        timeout: seconds to wait for the lock; a check whether a run is active also holds it for a moment.

    Raises:
        FolderInUseError: another process holds the lock.
    """
    until = time.monotonic() + timeout
    with (folder / LOCK).open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= until:
                    raise FolderInUseError(
                        f"{folder} is in use by another run. Wait until it ends, or choose another folder."
                    ) from error
                time.sleep(0.05)
        yield


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or an empty one if the file does not exist."""
    content: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return content


def read_result(folder: Path) -> dict[str, Any]:
    """Return the content of a run's `result.json`, empty if it does not exist."""
    return read_json_object(folder / "result.json")


def read_record(folder: Path) -> dict[str, Any]:
    """Return the contents of a run's `run.json`: the groups' choices, the logger's run id, precisions, provenance.

    Raises:
        UserError: the run ended before it began to train, or a version with another format wrote it.
    """
    record = read_json_object(folder / "run.json")
    if not record:
        raise UserError(f"{folder}: this run has not begun to train (no run.json). Start it again.")
    if (found := record.get("format")) != RUN_FORMAT:
        version = "0.1" if found is None else "a newer version"
        raise UserError(
            f"{folder}: format={found} of run.json is not supported; this version reads format {RUN_FORMAT}. Use {version} "
            f"of seq2seq_lab to read this run."
        )
    return record


def read_evaluated_run(folder: Path) -> str | None:
    """Return the run that an evaluation folder belongs to, or None for any other folder."""
    run: str | None = read_json_object(folder / "run.json").get("evaluation", {}).get("run")
    return run


def read_finished_result(folder: Path) -> dict[str, Any] | None:
    """Return the result of a finished run, or None if the run has not finished."""
    result = read_result(folder)
    return result if result.get("status") == "finished" else None


def read_lines(path: Path) -> list[bytes]:
    """Return the lines of a file. Only "\\n" ends a line; U+0085, U+2028 and similar characters do not."""
    lines = path.read_bytes().split(b"\n")
    return lines if lines[-1] else lines[:-1]


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON lines file, without a last line that a crash cut off.

    Raises:
        UserError: a line is not a JSON object.
    """
    rows: list[dict[str, Any]] = []
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines) and not path.read_bytes().endswith(b"\n"):
                break
            raise damaged_line_error(path, number, repr(line)) from None
        if not isinstance(row, dict):
            raise damaged_line_error(path, number, repr(line))
        rows.append(row)
    return rows


def damaged_line_error(path: Path, number: int, line: str) -> UserError:
    """Return the error for a damaged line."""
    return UserError(
        f"{path}, line {number} is damaged: {line[:80]}. Delete that line to use the rest of the file."
    )


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")  # parallel jobs share a cache
    temporary.write_text(text, "utf-8")
    flush(temporary)
    temporary.replace(path)


def make_numbered_folder(parent: Path, prefix: str = "") -> Path:
    """Create and return the folder `parent`/`prefix`N with the first N, from 1, that does not exist."""
    for number in itertools.count(1):
        with suppress(FileExistsError):
            (folder := parent / f"{prefix}{number}").mkdir(parents=True)
            break
    return folder


def flush(path: Path) -> None:
    """Write a file or the entries of a folder from the system's cache to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
