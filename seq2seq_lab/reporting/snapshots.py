"""The attention of some validation examples over the training, from before the first step."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2seq_lab.files import write_json_lines
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.tasks.base import Task

FIRST_STEPS = (1, 3)  # and ten times, a hundred times these


class Snapshots:
    """Writes `attention/step_NUMBER.jsonl` at step 0, at steps in equal ratios, and at each validation.

    Each row has a "note" with the metrics at this step on the same examples. A model without attention has no snapshots.

    Args:
        split: the validation split; the task chooses the examples.
        folder: the run folder.
    """

    def __init__(self, task: Task, split: Any, model: Any, compute: Compute, folder: Path) -> None:
        self.task, self.folder, self.is_main = task, folder, compute.ranks.main
        self.split = task.snapshot(split, model)
        self.names = (task.primary, *task.snapshot_metrics)
        self.written = -1  # the step of the last snapshot
        if self.split is not None:
            self.evaluate = task.evaluator(self.split, model, compute, also=self.names)
            self.declared = Declarations.of(self.evaluate.metrics, (), task.primary).metrics
            # No others: the first loss waits for the snapshot of step 0, and their libraries take time to import.
            self.evaluate.metrics = [one for one in self.evaluate.metrics if one.name in self.names]

    def __call__(self, step: int, always: bool) -> None:
        """Write the snapshot of a step, if it is due or `always`, and not written yet. All ranks call it together."""
        if self.split is None or step == self.written or not (always or is_due(step)):
            return
        self.written = step
        evaluation = self.evaluate()
        if not self.is_main:
            return
        rows = self.task.snapshot_heatmaps(self.split, evaluation).records
        if rows:  # empty outputs have no weights
            path = self.folder / f"attention/step_{step:08d}.jsonl"
            path.parent.mkdir(exist_ok=True)
            note = self.note(step, evaluation.values, self.split)
            write_json_lines(path, [{**row, "note": note} for row in rows])

    def note(self, step: int, values: Mapping[str, float], split: Any) -> str:
        """Return the step and the metrics as text."""
        scores = [
            f"{one.label} {one.text(values[f'{split.prefix}/{name}'])}"
            for name, one in self.declared.items()
            if name in self.names and f"{split.prefix}/{name}" in values
        ]
        return f"step {step:,}: {', '.join(scores)} ({len(split.text)} validation examples)"


def is_due(step: int) -> bool:
    """Return whether a step is 0, 1, 3, 10, 30, 100 and so on."""
    while step >= 10 and step % 10 == 0:
        step //= 10
    return step in (0, *FIRST_STEPS)
