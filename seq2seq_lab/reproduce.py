"""`python -m seq2seq_lab.reproduce RUN_FOLDER`: train a run again and compare every number that it recorded."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path

from seq2seq_lab.errors import Parser, UserError, print_visible, report_errors
from seq2seq_lab.files import make_numbered_folder, read_finished_result, read_record, sha256
from seq2seq_lab.tracking.files import METRICS_FILE, read_metrics

MEASURED = ("time", "seconds", "_per_second", "_mib")  # ends of the names of measurements of the machine


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `parser`."""
    with report_errors():
        sys.exit(reproduce(parser().parse_intermixed_args(arguments)))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.reproduce",
        description="Train a finished run again from its recorded configuration, without a logger, and compare every "
        "recorded metric and the weights of the best checkpoint bit for bit. Speed, time and memory are not compared. The "
        "exit status is 0 if the runs are identical, 1 if they differ.",
        epilog="Example: python -m seq2seq_lab.reproduce outputs/DATE/TIME",
    )
    arguments.add_argument("folder", type=Path, metavar="FOLDER", help="a run folder (outputs/DATE/TIME)")
    arguments.add_argument(
        "changes",
        nargs="*",
        metavar="KEY=FILE",
        help="files that replace those of the run, such as dataset.path=FOLDER; required for the run of someone else",
    )
    arguments.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="write the new run to this folder (default: reproductions/NUMBER in the run folder)",
    )
    arguments.add_argument(
        "--config-dir",
        type=Path,
        metavar="FOLDER",
        help="the folder of the custom components of the run; its Python files are executed",
    )
    return arguments


def reproduce(options: argparse.Namespace) -> int:
    """Train a run again, print the first difference, and return the exit status.

    Raises:
        UserError: the run has not finished, its data have changed, its metrics or its best checkpoint are missing or
            damaged, or the new folder exists.
    """
    from seq2seq_lab.config import extensions
    from seq2seq_lab.launching.start import repeat_run

    folder: Path = options.folder
    read_record(folder)  # refuses a folder without a run
    recorded = read_finished_result(folder)
    if recorded is None:
        raise UserError(f"{folder}: the run has not finished. Resume it first with resume={folder}.")
    if options.output is not None and options.output.exists():
        raise UserError(f"--output={options.output} already exists. Choose another folder.")
    rows, weights = read_metrics(folder / METRICS_FILE), best_weights(folder, recorded)
    target = (options.output or make_numbered_folder(folder / "reproductions")).absolute()
    try:
        with extensions.using(options.config_dir):
            now = repeat_run(folder, target, options.changes)
    except UserError:
        if options.output is None:
            with suppress(OSError):  # a refused run leaves no empty folders
                target.rmdir()
                target.parent.rmdir()
        raise
    difference = first_difference(rows, read_metrics(target / METRICS_FILE))
    new_weights = best_weights(target, now)
    if difference is None and weights != new_weights:
        difference = f"weights of the best checkpoint: SHA-256 {weights}, now {new_weights}"
    if difference is not None:
        print_visible(f"different: {difference}. The new run is in {target}.")
        return 1
    count = sum(len(compared(row)) for row in rows)
    best = recorded["best_checkpoint"]
    print_visible(
        f"identical: {count:,} values in {len(rows):,} rows of {METRICS_FILE}, and the weights of {best}."
    )
    return 0


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


if __name__ == "__main__":
    main()
