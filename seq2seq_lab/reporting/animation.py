"""The attention of one example over the training, as an animation."""

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seq2seq_lab import plots
from seq2seq_lab.errors import UserError
from seq2seq_lab.reporting.runs import Run, read_finished

if TYPE_CHECKING:
    from PIL.Image import Image

FRAME = 800  # milliseconds of a picture; the last one is shown three times as long
DOTS_PER_INCH = 100
ROOM = 1.5  # rows of a picture, in rows of the last one


def animate(folder: Path, sample: int, path: Path) -> None:
    """Write the attention of a sample of a finished run over the training as a GIF file.

    Raises:
        UserError: the name of the file does not end in .gif, the run has not finished, or it has no such pictures.
    """
    if path.suffix.lower() != ".gif":
        raise UserError(f"--animate={path}: the file has to end in .gif.")
    try:
        run = read_finished(folder, for_page=True)
    except UserError as error:
        raise UserError(f"{folder}: {error}. --animate needs a finished run.") from error
    pictures = [*(_drawn(run, sample) if run.snapshots else _validations(folder, sample))]
    if not pictures:
        raise UserError(
            f"{folder}: no attention of sample {sample} over the training. The run has no attention, or fewer than "
            f"{sample} samples (task.samples)."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *others = pictures
    milliseconds = [FRAME] * len(others) + [3 * FRAME]
    first.save(path, save_all=True, append_images=others, duration=milliseconds, loop=0)


def over_training(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Return the heatmaps of each sample over the training by title: rows of `Run.heatmaps` with "step" and "note"."""
    found: dict[str, list[dict[str, Any]]] = {}
    for _, rows in run.snapshots[-1:]:
        found = {row["title"]: [] for row in rows}
    for step, rows in run.snapshots:
        for row in rows:
            if row["title"] in found and row["rows"]:
                found[row["title"]].append({"note": f"step {step:,}", **row, "step": step})
    return found


def _drawn(run: Run, sample: int) -> Iterator["Image"]:
    from PIL import Image

    samples = [*over_training(run).items()]
    for title, rows in samples[sample - 1 : sample] if sample > 0 else ():
        room = math.ceil(ROOM * len(rows[-1]["rows"])) + 1  # outputs before the training are often loops
        for row in rows:
            figure = plots.draw_attention(
                np.array(row["weights"]),
                row["columns"],
                row["rows"],
                title,
                [(column, output) for column, output in row.get("links") or ()],
                room=room,
                note=row["note"],
            )
            png = io.BytesIO(plots.render_png(figure, DOTS_PER_INCH))
            yield Image.open(png).convert("RGB")


def _validations(folder: Path, sample: int) -> Iterator["Image"]:
    """Yield the pictures of a task whose attention is not a matrix: one for each validation."""
    from PIL import Image

    for path in sorted((folder / "attention").glob(f"sample_{sample}_step_*.png")):
        yield Image.open(path).convert("RGB")
