"""The metrics of a run as one JSON object per line, in the run folder."""

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

from seq2seq_lab.errors import UserError
from seq2seq_lab.files import damaged_line_error, read_json_lines
from seq2seq_lab.tracking.base import Tracker

METRICS_FILE = "metrics.jsonl"


class FileTracker(Tracker):
    """Writes `metrics.jsonl` in the run folder: each row has "step", "time" (Unix time in seconds) and the metrics.

    JSON has no NaN and no infinity: they are written as the strings "NaN", "Infinity" and "-Infinity", which
    `read_metrics` converts back.

    Args:
        folder: the run folder.
        resume_step: the optimizer step from which a run is resumed. Rows of later steps, and a last line that a
            crash cut off, are removed. None starts an empty file.

    Raises:
        UserError: the file of the resumed run is damaged.
    """

    def __init__(self, folder: Path, resume_step: int | None) -> None:
        path = folder / METRICS_FILE
        kept = (
            [] if resume_step is None else [row for row in read_metrics(path) if row["step"] <= resume_step]
        )
        new = path.with_suffix(".new")
        with new.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(map(_line, kept))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        self._file = path.open("a", encoding="utf-8", newline="\n")

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """Append one row; it is flushed before this returns."""
        assert not {"step", "time"} & values.keys()
        self._file.write(_line({"step": step, "time": round(time.time(), 3), **values}))
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
    rows: list[dict[str, float]] = []
    for number, row in enumerate(read_json_lines(path), start=1):
        try:
            rows.append({name: v if isinstance(v, int) else float(v) for name, v in row.items()})
        except (ValueError, TypeError):
            raise damaged_line_error(path, number, str(row)) from None
    return rows


def _line(row: Mapping[str, float]) -> str:
    return json.dumps({name: _json_number(value) for name, value in row.items()}, allow_nan=False) + "\n"


def _json_number(value: float) -> float | str:
    if isinstance(value, int):
        return value
    number = float(value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
