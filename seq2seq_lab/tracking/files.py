"""The run folder's own record of its figures: one JSON object a line, whatever else is logged to."""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from seq2seq_lab.errors import UserError
from seq2seq_lab.files import damaged_line, read_json_lines

FILE_NAME = "metrics.jsonl"


class FileTracker:
    """Writes `metrics.jsonl` in the run folder: "step", "time" (Unix time, seconds) and the figures.

    A line is on its way to the disk when `metrics` returns. JSON has no NaN and no infinity: they are
    written as the strings "NaN", "Infinity" and "-Infinity", which `float` and `read_metrics` understand.

    `resume_step` is the optimizer update that a resumed run goes on from: later rows, and a line cut
    short by a crash, are removed, since they will be written again. None starts an empty file.
    Raises `UserError` where the file to go on with is damaged.
    """

    def __init__(self, folder: Path, resume_step: int | None) -> None:
        path = folder / FILE_NAME
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

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Append one row."""
        assert not {"step", "time"} & values.keys()
        self._file.write(_line({"step": step, "time": round(time.time(), 3), **values}))
        self._file.flush()

    def images(self, name: str, paths: Sequence[Path], captions: Sequence[str], step: int) -> None:
        """Leave the pictures where they lie: in the run folder."""

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], step: int) -> None:
        """Leave the table to whoever made it."""

    def artifact(self, name: str, kind: str, parts: Sequence[Path], metadata: Mapping[str, object]) -> None:
        """Leave them where they lie."""

    def summary(self, values: Mapping[str, object]) -> None:
        """Leave the summary to the run's `result.json`."""

    def finish(self, exit_code: int) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Return the rows of a `metrics.jsonl`, without a last line that a crash cut short.

    Raises `UserError` where the file is missing or a line is not a row.
    """
    if not path.is_file():
        raise UserError(f"{path} is missing: is {path.parent} the folder of a run?")
    rows: list[dict[str, float]] = []
    for number, row in enumerate(read_json_lines(path), start=1):
        try:
            rows.append({name: v if isinstance(v, int) else float(v) for name, v in row.items()})
        except (ValueError, TypeError):
            raise damaged_line(path, number, str(row)) from None
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
