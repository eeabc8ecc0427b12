"""Train a run again and compare every number that it recorded."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path

from seq2seq_lab.config.run_folder import read_finished_result, read_record
from seq2seq_lab.config.run_folders import is_demo
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import make_numbered_folder, remove_folder, sha256
from seq2seq_lab.launching.evaluation import check_output
from seq2seq_lab.launching.start import repeat_run
from seq2seq_lab.tracking.files import METRICS_FILE, read_metrics

MEASURED = ("time", "seconds", "_per_second", "_mib")  # ends of the names of measurements of the machine


def reproduce(folder: Path, output: Path | None = None, changes: Sequence[str] = ()) -> tuple[bool, str]:
    """Train a run again, without a logger, and compare its metrics and the weights of its best checkpoint bit for bit.

    Args:
        output: the folder of the new run; None for reproductions/NUMBER in the run folder.
        changes: files that replace those of the run, `KEY=FILE`.

    Returns:
        Whether the runs are identical, and the first difference or what was compared.

    Raises:
        UserError: the run has not finished, its data have changed, its metrics or its best checkpoint are missing or
            damaged, or the new folder exists.
    """
    read_record(folder)  # refuses a folder without a run
    if is_demo(folder):
        raise UserError(
            "demo cannot be reproduced: its weights are rounded to half precision. To train such a model: "
            "python -m seq2seq_lab"
        )
    recorded = read_finished_result(folder)
    if recorded is None:
        raise UserError(f"{folder}: the run has not finished. Resume it first with resume={folder}.")
    check_output(output)
    rows, weights = read_metrics(folder / METRICS_FILE), best_weights(folder, recorded)
    target = (output or make_numbered_folder(folder / "reproductions")).absolute()
    try:
        now = repeat_run(folder, target, changes)
    except UserError:
        if output is None:
            remove_folder(target)
            with suppress(OSError):  # there are other reproductions
                target.parent.rmdir()
        raise
    difference = first_difference(rows, read_metrics(target / METRICS_FILE))
    new_weights = best_weights(target, now)
    if difference is None and weights != new_weights:
        difference = f"weights of the best checkpoint: SHA-256 {weights}, now {new_weights}"
    if difference is not None:
        steps = " and ".join(f"{one['step']:,}" for one in read_record(folder).get("extended", ()))
        why = f" The run changed its length at step {steps}, and with it its learning rates." if steps else ""
        return False, f"different: {difference}.{why} The new run is in {target}."
    count = sum(len(compared(row)) for row in rows)
    best = recorded["best_checkpoint"]
    return (
        True,
        f"identical: {count:,} values in {len(rows):,} rows of {METRICS_FILE}, and the weights of {best}.",
    )


def first_difference(
    recorded: Sequence[Mapping[str, float]], now: Sequence[Mapping[str, float]]
) -> str | None:
    """Return the first value in which the rows of two runs differ, as text, or None if there is none."""
    nothing: Mapping[str, float] = {}
    for row, new_row in zip_longest(recorded, now, fillvalue=nothing):
        before, after = compared(row), compared(new_row)
        for name in dict.fromkeys((*before, *after)):
            one, other = before.get(name), after.get(name)
            if one != other and not (one != one and other != other):  # NaN is not equal to itself
                step = {**after, **before}["step"]
                return f"{name} at step {step:,}: recorded {_shown(one)}, now {_shown(other)}"
    return None


def compared(row: Mapping[str, float]) -> dict[str, float]:
    """Return the values of a row that depend on the configuration only, not on the speed and memory of the machine."""
    return {name: value for name, value in row.items() if not name.endswith(MEASURED)}


def best_weights(folder: Path, result: Mapping[str, str]) -> str:
    """Return the SHA-256 of the weights of the best checkpoint.

    Raises:
        UserError: the file does not exist.
    """
    name = result["best_checkpoint"]
    path = folder / "checkpoints" / name / "model.safetensors"
    if not path.is_file():
        raise UserError(
            f"best_checkpoint={name}: {path} does not exist, so the weights cannot be compared. Restore it from a copy."
        )
    return sha256(path)


def _shown(value: float | None) -> str:
    return "nothing" if value is None else repr(value)
