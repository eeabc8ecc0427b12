"""What tests read from the folders of runs, and the checks of runs that are killed or have several ranks."""

import json
from pathlib import Path
from typing import Any

import command_line
from forked_ranks import forked_ranks

from seq2seq_lab.tracking.files import read_metrics


def result_of(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"))
    return result


def losses_of(folder: Path) -> list[float]:
    """Return the training losses in the order of the file."""
    return [row["train/loss"] for row in read_metrics(folder / "metrics.jsonl") if "train/loss" in row]


def losses_by_step(folder: Path) -> dict[int, float]:
    """Return the training loss of each step."""
    rows = read_metrics(folder / "metrics.jsonl")
    return {int(row["step"]): row["train/loss"] for row in rows if "train/loss" in row}


def rows_of(folder: Path, examples: str = "predictions") -> list[dict[str, Any]]:
    """Return the examples of the test split, from `EXAMPLES.test.jsonl`."""
    lines = (folder / f"{examples}.test.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def check_equal(folder: Path, other: Path, examples: str) -> None:
    """Check that two runs have the same losses and the same examples of the test split."""
    assert losses_of(folder) == losses_of(other)
    assert rows_of(folder, examples) == rows_of(other, examples)


def check_resumed(whole: Path, folder: Path, *line: str, examples: str = "predictions") -> None:
    """Check that a run which is killed two steps before its end and resumed is like the run that was not killed.

    Args:
        whole: the run that was not killed.
        folder: of the run to kill.
        line: the settings of both.
    """
    command_line.run_until(len(losses_of(whole)) - 2, *line, f"hydra.run.dir={folder}")
    assert command_line.run(f"resume={folder}") == 0
    check_equal(folder, whole, examples)


def check_ranks(parent: Path, *line: str, examples: str = "predictions") -> None:
    """Check that two ranks compute what one process computes in two parts."""
    two, one = (parent / name for name in ("two", "one"))
    with forked_ranks():
        assert command_line.run(*line, "trainer.devices=2", f"hydra.run.dir={two}") == 0
    assert command_line.run(*line, "trainer.micro_batches=2", f"hydra.run.dir={one}") == 0
    check_equal(two, one, examples)
