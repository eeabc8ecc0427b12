"""The metrics of a run as one JSON object per line, in the run folder."""

import contextlib
import errno
import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from seq2seq_lab.errors import UserError
from seq2seq_lab.files import (
    checked_line,
    damaged_line_error,
    parse_checked_line,
    read_lines,
    set_file_aside,
    write_atomically,
)
from seq2seq_lab.tracking.base import Tracker

log = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"


class FileTracker(Tracker):
    """Writes `metrics.jsonl` in the run folder: each row has "step", "time" (Unix time in seconds), metrics and a checksum.

    JSON has no NaN and no infinity: they are written as the strings "NaN", "Infinity" and "-Infinity", which
    `read_metrics` converts back.

    Args:
        folder: the run folder.
        resume_step: the optimizer step from which a run is resumed. Rows of later steps, and a last line that a
            crash cut off, are removed. A file with damaged lines is set aside; its other rows are kept. None starts an
            empty file.
        computed_again: the beginnings of the names of metrics that the resumed run computes at `resume_step` again. Their
            rows are removed.
    """

    def __init__(self, folder: Path, resume_step: int | None, computed_again: Sequence[str] = ()) -> None:
        self._path = folder / METRICS_FILE
        kept = [] if resume_step is None else _rows_before(self._path, resume_step, computed_again)
        write_atomically(self._path, "".join(map(_line, kept)))
        self._file = self._open()

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """Append one row; it is flushed before this returns. The file is opened again if NFS has lost it (ESTALE)."""
        assert not {"step", "time"} & values.keys()
        line = _line({"step": step, "time": round(time.time(), 3), **values})
        try:
            self._write(line)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = self._open()
            self._write(line)

    def _open(self) -> TextIO:
        return self._path.open("a", encoding="utf-8", newline="\n")

    def _write(self, line: str) -> None:
        self._file.write(line)
        self._file.flush()

    def finish(self, exit_code: int) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Return the rows of a `metrics.jsonl`, without a last line that a crash cut off.

    Raises:
        UserError: the file is missing or a line is not a row.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist. Check that {path.parent} is a run folder.")
    rows, damaged = _read(path)
    if damaged:
        raise damaged_line_error(path, damaged[0], str(read_lines(path)[damaged[0] - 1]))
    return rows


def read_sound_metrics(path: Path) -> list[dict[str, float]]:
    """Return the rows of a `metrics.jsonl` without damaged lines, which are logged."""
    rows, damaged = _read(path)
    if damaged:
        log.warning("%s is damaged: lines %s are not used.", path, ", ".join(map(str, damaged)))
    return rows


def _rows_before(path: Path, resume_step: int, computed_again: Sequence[str]) -> list[dict[str, float]]:
    """Return the rows that a resumed run keeps; see `FileTracker`."""
    if not path.is_file():
        log.warning("%s is missing: the metrics up to step %s are lost.", path, resume_step)
        return []
    rows, damaged = _read(path)
    if damaged:
        set_file_aside(path, f"is damaged (lines {', '.join(map(str, damaged))})")

    def is_kept(row: Mapping[str, float]) -> bool:
        again = any(name.startswith(one) for name in row for one in computed_again)
        return row["step"] < resume_step or (row["step"] == resume_step and not again)

    return [row for row in rows if is_kept(row)]


def _read(path: Path) -> tuple[list[dict[str, float]], list[int]]:
    """Return the rows and the damaged line numbers of a `metrics.jsonl`, without a last line that was cut off."""
    lines = read_lines(path)
    rows: list[dict[str, float]] = []
    damaged = []
    for line_number, line in enumerate(lines, start=1):
        try:
            row = parse_checked_line(line)
            numbers = {name: v if isinstance(v, int) else float(v) for name, v in row.items()}
        except (ValueError, TypeError):
            damaged.append(line_number)
            continue
        if isinstance(numbers.get("step"), int):
            rows.append(numbers)
        else:
            damaged.append(line_number)
    if damaged and damaged[-1] == len(lines) and not path.read_bytes().endswith(b"\n"):
        try:
            parse_checked_line(lines[-1][:-1])  # only the end of the line is damaged: it was not cut off
        except ValueError:
            damaged.pop()
    return rows, damaged


def _line(row: Mapping[str, float]) -> str:
    return checked_line({name: _json_number(value) for name, value in row.items()})


def _json_number(value: float) -> float | str:
    if isinstance(value, int):
        return value
    number = float(value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
