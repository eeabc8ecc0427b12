"""The settings of a training, its state, and the losses since the last log line."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.training.divergence import LossRecord
from seq2seq_lab.training.schedules import Score


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """How long to train, and when to log, validate, save and stop. Meanings: conf/trainer/default.yaml.

    Attributes:
        by_example: whether the summed loss of a step is divided by its number of examples instead of units.
        validate_by_epoch: whether `validate_every` counts epochs instead of steps.
        monitor: the name of the monitored metric, with the prefix of the validation split.
        higher_is_better: whether a greater value of the monitored metric is better.
        tie_breaker: the name of the validation loss that decides between equal values of the monitored metric; None if the
            task has no other loss.
    """

    max_epochs: int
    max_steps: int | None
    micro_batches: int
    by_example: bool
    clip_norm: float | None
    validate_every: float
    validate_by_epoch: bool
    monitor: str
    higher_is_better: bool
    tie_breaker: str | None
    patience: int | None
    checkpoint_every_steps: int | None
    checkpoint_every_minutes: float | None
    keep_checkpoints: int
    log_every_steps: int
    max_skipped_steps: int
    fast_dev_run: bool
    overfit_batches: int


@dataclass
class TrainState:
    """The state of a training: everything in a checkpoint besides weights, the optimizer's tensors and the task's state.

    Attributes:
        step: optimizer steps completed.
        position: optimizer steps completed in the current epoch.
        history: the monitored metric at each validation, negated if a smaller value is better.
        losses: the loss `TrainerSettings.tie_breaker` at each validation; None if it is unknown or not finite. It is unknown
            for the validations of earlier versions.
        best: the name of the best checkpoint.
        best_value: its entry in `history`.
        best_loss: its entry in `losses`.
        lost: the names of checkpoints that were the best and are missing or damaged.
        regular: the names of the newest `keep_checkpoints` checkpoints of validations and of `checkpoint_every_steps`.
        pending_losses: summed loss of each step since the last log line; None if it is not finite.
        pending_counts: units of each of these steps on all ranks.
        pending_examples: examples of these steps on rank 0.
        counted_seconds: seconds of the steps that the throughput counts.
        counted_units: units of these steps.
        validated: the step of the last validation.
        skipped: steps without an update of the weights, because the loss or the gradient norm was not finite.
        skipped_in_a_row: those since the last update.
        step_losses: the losses by which a divergence is found.
    """

    step: int = 0
    epoch: int = 0
    position: int = 0
    history: list[float] = field(default_factory=list)
    losses: list[float | None] = field(default_factory=list)
    best: str | None = None
    best_value: float | None = None
    best_loss: float | None = None
    lost: list[str] = field(default_factory=list)
    regular: list[str] = field(default_factory=list)
    pending_losses: list[float | None] = field(default_factory=list)
    pending_counts: list[int] = field(default_factory=list)
    pending_examples: int = 0
    seconds: float = 0.0
    validation_seconds: float = 0.0
    counted_seconds: float = 0.0
    counted_units: int = 0
    validated: int | None = None
    skipped: int = 0
    skipped_in_a_row: int = 0
    scaler: dict[str, Any] = field(default_factory=dict)
    step_losses: LossRecord = field(default_factory=LossRecord)

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> "TrainState":
        """Return the state in a checkpoint. Those of earlier versions have no losses of steps."""
        return cls(**{**saved, "step_losses": LossRecord(**saved.get("step_losses", {}))})

    def __post_init__(self) -> None:
        self.losses = [*[None] * (len(self.history) - len(self.losses)), *self.losses]
        # Every step reads them.
        self._scores = [Score.of(value, loss) for value, loss in zip(self.history, self.losses, strict=True)]

    @property
    def scores(self) -> Sequence[Score]:
        """The score of each validation."""
        return self._scores

    @property
    def units_per_second(self) -> float:
        """Units per second of training, without warm-up and validation; 0 during the warm-up."""
        return self.counted_units / self.counted_seconds if self.counted_seconds else 0.0

    @property
    def name(self) -> str:
        """The name of the checkpoint of this step."""
        return f"step_{self.step:08d}"

    def keep_score(self, value: float, loss: float | None) -> None:
        """Add the score of this step, whose checkpoint becomes the best one unless an earlier score is better."""
        best = None if self.best_value is None else Score.of(self.best_value, self.best_loss)
        score = Score.of(value, loss)
        if best is None or score >= best:
            self.best, self.best_value, self.best_loss = self.name, value, loss
        self.history.append(value)
        self.losses.append(loss)
        self._scores.append(score)
        self.validated = self.step

    def out_of_patience(self, patience: int | None) -> bool:
        """Return whether the score has not improved for this number of validations."""
        if patience is None or not self._scores:
            return False
        return len(self._scores) - 1 - self._scores.index(max(self._scores)) >= patience


class StepResult(NamedTuple):
    """What an optimizer step returns; loss and norm are on the device.

    Attributes:
        loss_sum: the loss, summed over the units of all ranks.
        norm: the gradient norm before clipping.
        units: what the task counts, on all ranks.
        examples: examples of this rank.
    """

    loss_sum: Tensor
    norm: Tensor
    units: int
    examples: int


class PendingLosses:
    """Losses and counts of the steps since the last log line; the losses stay on the device until they are read."""

    def __init__(self) -> None:
        self.steps_this_start = 0
        self.clear()

    def clear(self) -> None:
        self.counts: list[int] = []
        self.examples = 0  # of this rank
        self._losses: list[Tensor] = []
        self._norms: list[Tensor] = []  # of the steps of this start
        self._uncounted = 0  # steps that `take_uncounted` has not returned

    def restore(self, state: TrainState, device: torch.device) -> None:
        self.counts = [*state.pending_counts]
        self.examples = state.pending_examples
        losses = state.pending_losses
        self._losses = [torch.tensor(math.nan if loss is None else loss, device=device) for loss in losses]

    def add(self, result: StepResult) -> None:
        self.steps_this_start += 1
        self.counts.append(result.units)
        self.examples += result.examples
        self._losses.append(result.loss_sum)
        self._norms.append(result.norm)
        self._uncounted += 1

    def examples_per_step(self) -> float:
        return self.examples / len(self._losses)

    def take_uncounted(self) -> list[tuple[float, float, int]]:
        """Return loss, gradient norm and units of each step since the last call, read by the host."""
        new = self._uncounted
        self._uncounted = 0
        if not new:
            return []
        losses, norms = (
            to_host(torch.stack(values[-new:])).tolist() for values in (self._losses, self._norms)
        )
        return [*zip(losses, norms, self.counts[-new:], strict=True)]

    def losses(self) -> list[float | None]:
        """Return the loss of each step, read by the host; None for a loss that is not finite."""
        values = to_host(torch.stack(self._losses)).tolist() if self._losses else []
        return [loss if math.isfinite(loss) else None for loss in values]

    def mean_loss(self) -> float:
        """Return the mean loss of the steps with a finite one, read by the host; NaN if there are none."""
        losses = to_host(torch.stack(self._losses))
        finite = np.isfinite(losses)
        count = int(np.array(self.counts)[finite].sum())
        return float(torch.from_numpy(losses[finite]).sum()) / count if count else math.nan

    def last_norm(self) -> float:
        """Return the last gradient norm, read by the host."""
        return float(to_host(self._norms[-1]))
