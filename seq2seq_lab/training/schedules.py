"""Learning-rate schedules: a factor on the optimizer's rate, as a function of the step.

A schedule has no state: `Plateau` reads the scores of the validations, which the trainer keeps.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, NamedTuple, Self

from seq2seq_lab.config.type_checks import Above, Count, NonNegative, Share, Within


class Score(NamedTuple):
    """The score of a validation. Scores are compared as tuples; the greater one is better.

    Attributes:
        value: the monitored metric, negated if a smaller value is better.
        negative_loss: the task's validation loss, negated, which decides between equal values; −∞ if it is unknown.
    """

    value: float
    negative_loss: float

    @classmethod
    def of(cls, value: float, loss: float | None) -> Self:
        """Return the score of a signed value of the monitored metric and a loss, None if it is unknown."""
        return cls(value, -math.inf if loss is None else -loss)


class Schedule(ABC):
    """The factor on the learning rate at an optimizer step."""

    @abstractmethod
    def factor(self, step: int, total: int, history: Sequence[Score]) -> float:
        """Return the factor.

        Args:
            step: optimizer steps completed.
            total: steps of the whole run.
            history: the score of each validation so far.
        """

    def epoch_factor(self, epoch: int) -> float:
        """Return a further factor for all steps of an epoch, counted from 0."""
        return 1.0

    def momentum(self, step: int, total: int) -> float | None:
        """Return the value of SGD's momentum or Adam's first beta; None keeps the optimizer's own."""
        return None


def differ_before(schedule: Schedule, step: int, totals: tuple[int, int], history: Sequence[Score]) -> bool:
    """Return whether the rates or the momentum before a step differ between runs of two lengths, at up to 1,000 steps."""
    one, other = totals
    return any(
        (schedule.factor(i, one, history), schedule.momentum(i, one))
        != (schedule.factor(i, other, history), schedule.momentum(i, other))
        for i in range(0, step, max(1, step // 1000))
    )


class Constant(Schedule):
    """A constant rate: the factor is 1."""

    def factor(self, step: int, total: int, history: Sequence[Score]) -> float:
        return 1.0


class EpochDecay(Constant):
    """The full rate for `constant_epochs` epochs, then times `factor` at the start of each epoch (Zaremba 2014, §4.1)."""

    def __init__(
        self, constant_epochs: Annotated[int, Within(0)], factor: Annotated[float, Above(0, 1)]
    ) -> None:
        self.constant_epochs = constant_epochs
        self.reduction = factor

    def epoch_factor(self, epoch: int) -> float:
        return self.reduction ** max(0, epoch + 1 - self.constant_epochs)


class Warmup(Schedule):
    """Linear warm-up over `warmup_steps` steps, then constant."""

    def __init__(self, warmup_steps: Annotated[int, Within(0)]) -> None:
        self.warmup_steps = warmup_steps

    def factor(self, step: int, total: int, history: Sequence[Score]) -> float:
        return min(1.0, (step + 1) / (self.warmup_steps + 1))


class InverseSquareRoot(Schedule):
    """Linear warm-up, then ∝ 1/√step (Vaswani 2017, eq. 3); the full rate is reached at `warmup_steps`."""

    def __init__(self, warmup_steps: Count) -> None:
        self.warmup_steps = warmup_steps

    def factor(self, step: int, total: int, history: Sequence[Score]) -> float:
        return min((step + 1) / self.warmup_steps, math.sqrt(self.warmup_steps / (step + 1)))


class Cosine(Schedule):
    """Linear warm-up over a share of the run, then half a cosine down to `final_factor` (Loshchilov 2017)."""

    def __init__(self, warmup_share: Share, final_factor: NonNegative) -> None:
        self.warmup_share = warmup_share
        self.final_factor = final_factor

    def factor(self, step: int, total: int, history: Sequence[Score]) -> float:
        warmup = self.warmup_share * total
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return _cosine(1.0, self.final_factor, (step - warmup) / max(1.0, total - 1 - warmup))


class OneCycle(Schedule):
    """Half a cosine up and half a cosine down (Smith 2018), as torch's `OneCycleLR` if the way down has a step or more.

    Args:
        warmup_share: the share of the run before the highest rate.
        momentum: (at the highest rate, at the lowest rate), opposite to the rate; None keeps the optimizer's.
    """

    def __init__(
        self,
        warmup_share: Share,
        initial_factor: NonNegative,
        final_factor: NonNegative,
        momentum: tuple[Share, Share] | None,
    ) -> None:
        self.warmup_share = warmup_share
        self.initial_factor = initial_factor
        self.final_factor = final_factor
        self.momentum_bounds = momentum

    def factor(self, step: int, total: int, history: Sequence[Score]) -> float:
        return self._cycle(step, total, self.initial_factor, 1.0, self.final_factor)

    def momentum(self, step: int, total: int) -> float | None:
        if self.momentum_bounds is None:
            return None
        low, high = self.momentum_bounds
        return self._cycle(step, total, high, low, high)

    def _cycle(self, step: int, total: int, start: float, top: float, end: float) -> float:
        peak = self.warmup_share * total - 1
        if step < peak:
            return _cosine(start, top, step / peak)
        return _cosine(top, end, (step - peak) / max(1.0, total - 1 - peak))


class Plateau(Schedule):
    """Multiplies by `factor` whenever the score has not improved for more than `patience` validations."""

    def __init__(self, factor: Annotated[float, Above(0, 1)], patience: Annotated[int, Within(0)]) -> None:
        self.reduction = factor
        self.patience = patience

    def factor(self, step: int, total: int, history: Sequence[Score]) -> float:
        best, waited, factor = Score(-math.inf, -math.inf), 0, 1.0
        for score in history:
            waited = 0 if score > best else waited + 1
            best = max(best, score)
            if waited > self.patience:
                factor, waited = factor * self.reduction, 0
        return factor


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * min(1.0, share))) / 2
