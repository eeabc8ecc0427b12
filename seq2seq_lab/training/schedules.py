"""Learning-rate schedules: a factor on the optimizer's rate, as a function of the update.

A schedule keeps no state: plateau reads the history of the monitored figure, which the trainer keeps.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence


class Schedule(ABC):
    """The factor on the learning rate at an update."""

    @abstractmethod
    def factor(self, update: int, total: int, history: Sequence[float]) -> float:
        """Return the factor.

        Args:
            update: optimizer updates done so far.
            total: updates of the whole run.
            history: the monitored figure at each validation so far, oriented so that greater is better.
        """

    def momentum(self, update: int, total: int) -> float | None:
        """Return what replaces SGD's momentum or Adam's first beta; None leaves the optimizer's own."""
        return None


class Constant(Schedule):
    """The full rate throughout."""

    def factor(self, update: int, total: int, history: Sequence[float]) -> float:
        return 1.0


class Warmup(Schedule):
    """Linear up to the full rate over `warmup_steps` updates, then constant."""

    def __init__(self, warmup_steps: int) -> None:
        if warmup_steps < 0:
            raise ValueError(f"schedule.warmup_steps={warmup_steps} must be at least 0.")
        self.warmup_steps = warmup_steps

    def factor(self, update: int, total: int, history: Sequence[float]) -> float:
        return min(1.0, (update + 1) / (self.warmup_steps + 1))


class InverseSquareRoot(Schedule):
    """Linear warm-up, then ∝ 1/√update (Vaswani 2017, eq. 3); the full rate is reached at `warmup_steps`."""

    def __init__(self, warmup_steps: int) -> None:
        if warmup_steps < 1:
            raise ValueError(f"schedule.warmup_steps={warmup_steps} must be at least 1.")
        self.warmup_steps = warmup_steps

    def factor(self, update: int, total: int, history: Sequence[float]) -> float:
        return min((update + 1) / self.warmup_steps, math.sqrt(self.warmup_steps / (update + 1)))


class Cosine(Schedule):
    """Linear warm-up over a share of the run, then half a cosine down to `final_factor` (Loshchilov 2017)."""

    def __init__(self, warmup_share: float, final_factor: float) -> None:
        self.warmup_share = _share("schedule.warmup_share", warmup_share)
        self.final_factor = final_factor

    def factor(self, update: int, total: int, history: Sequence[float]) -> float:
        warmup = self.warmup_share * total
        if update < warmup:
            return (update + 1) / (warmup + 1)
        return _cosine(1.0, self.final_factor, (update - warmup) / max(1.0, total - 1 - warmup))


class OneCycle(Schedule):
    """Half a cosine up and half a cosine down (Smith 2018), with the defaults of torch's `OneCycleLR`.

    Args:
        warmup_share: the share of the run that goes up.
        momentum: (at the highest rate, at the lowest rate), cycled against the rate; None leaves it alone.
    """

    def __init__(
        self,
        warmup_share: float,
        initial_factor: float,
        final_factor: float,
        momentum: Sequence[float] | None,
    ) -> None:
        self.warmup_share = _share("schedule.warmup_share", warmup_share)
        self.initial_factor = initial_factor
        self.final_factor = final_factor
        self.momentum_bounds = None if momentum is None else (momentum[0], momentum[1])

    def factor(self, update: int, total: int, history: Sequence[float]) -> float:
        return self._cycle(update, total, self.initial_factor, 1.0, self.final_factor)

    def momentum(self, update: int, total: int) -> float | None:
        if self.momentum_bounds is None:
            return None
        low, high = self.momentum_bounds
        return self._cycle(update, total, high, low, high)

    def _cycle(self, update: int, total: int, start: float, top: float, end: float) -> float:
        peak = self.warmup_share * total - 1
        if update < peak:
            return _cosine(start, top, update / peak)
        return _cosine(top, end, (update - peak) / max(1.0, total - 1 - peak))


class Plateau(Schedule):
    """Times `factor` for each time the monitored figure did not improve for more than `patience` validations."""

    def __init__(self, factor: float, patience: int) -> None:
        self.reduction = factor
        self.patience = patience

    def factor(self, update: int, total: int, history: Sequence[float]) -> float:
        best, waited, factor = float("-inf"), 0, 1.0
        for value in history:
            waited = 0 if value > best else waited + 1
            best = max(best, value)
            if waited > self.patience:
                factor, waited = factor * self.reduction, 0
        return factor


def _share(key: str, value: float) -> float:
    if not 0 <= value < 1:
        raise ValueError(f"{key}={value} is no share of a run. Allowed: 0 up to, not including, 1.")
    return value


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * min(1.0, share))) / 2
