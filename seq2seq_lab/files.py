"""Files that are whole or not there, how to tell that they have not changed, and folders of one process."""

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


class FolderInUseError(UserError):
    """Another process holds a run folder."""


@contextmanager
def lock_folder(folder: Path, timeout: float = 2.0) -> Iterator[None]:
    """Hold a run folder, so that no second process writes into it.

    Args:
        timeout: seconds to try; who only looks whether a run goes on holds a folder for a moment too.

    Raises:
        FolderInUseError: another process holds it.
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
                        f"{folder} is in use: a run is going on there. Wait for it, or choose another folder."
                    ) from error
                time.sleep(0.05)
        yield


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, empty if the file does not exist."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found


def read_result(folder: Path) -> dict[str, Any]:
    """Return what stands in a run's `result.json`; nothing where there is none."""
    return read_json_object(folder / "result.json")


def read_record(folder: Path) -> dict[str, Any]:
    """Return the contents of a run's `run.json`: the groups' choices, the logger's run id, precisions, provenance.

    Raises:
        UserError: the run ended before it began to train.
    """
    record = read_json_object(folder / "run.json")
    if not record:
        raise UserError(f"{folder}: this run has not begun to train (no run.json). Start it again.")
    return record


def read_evaluated_run(folder: Path) -> str | None:
    """Return the run that a folder is an evaluation of; None for any other folder."""
    run: str | None = read_json_object(folder / "run.json").get("evaluation", {}).get("run")
    return run


def read_finished_result(folder: Path) -> dict[str, Any] | None:
    """Return the result of a run that has ended well, else None."""
    result = read_result(folder)
    return result if result.get("status") == "finished" else None


def read_lines(path: Path) -> list[bytes]:
    """Return the lines of a file, without their ends. Only "\\n" ends a line, not U+0085, U+2028 and the like."""
    lines = path.read_bytes().split(b"\n")
    return lines if lines[-1] else lines[:-1]


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file with one JSON object per line, without a last line that a crash cut short.

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
    """Return the error for a line that does not hold what it should."""
    return UserError(
        f"{path}, line {number} is damaged: {line[:80]}. Delete that line to use the rest of the file."
    )


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")  # jobs that run side by side share a cache
    temporary.write_text(text, "utf-8")
    flush(temporary)
    temporary.replace(path)


def make_numbered_folder(parent: Path) -> Path:
    """Make and return the first folder below another, by its number, that is not there."""
    for number in itertools.count(1):
        with suppress(FileExistsError):
            (folder := parent / str(number)).mkdir(parents=True)
            break
    return folder


def flush(path: Path) -> None:
    """Have the system write a file or a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
