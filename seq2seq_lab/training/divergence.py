"""A training that has diverged although its loss stayed finite."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

LAST_STEPS = 20
FACTOR = 2.0


@dataclass
class LossRecord:
    """The training losses per unit that `divergence` compares; a part of the state of a training.

    Attributes:
        first: the loss of the first step, which is that of the initial weights; None if it is unknown or not finite.
        last: the loss of each of the last `LAST_STEPS` steps; None if it is not finite.
    """

    first: float | None = None
    last: list[float | None] = field(default_factory=list)

    def add(self, step: int, losses: Iterable[float]) -> None:
        """Add the losses of steps.

        Args:
            step: the number of steps before them.
        """
        kept = [loss if math.isfinite(loss) else None for loss in losses]
        if step == 0 and kept:
            self.first = kept[0]
        self.last = [*self.last, *kept][-LAST_STEPS:]

    def divergence(self, uniform: float | None) -> str | None:
        """Return how the losses have diverged, or None.

        They have diverged if the median of the last steps is more than `FACTOR` times the greater of two losses: that of the
        first step and that of a uniform guess. A loss that is not finite is greater than all others. The median of many
        steps ignores single batches; the loss of the first step allows for a large initialization.

        Args:
            uniform: see `Task.uniform_loss`.
        """
        known = {"the first step": self.first, "a uniform guess": uniform}
        references = {name: loss for name, loss in known.items() if loss is not None}
        if not references or not self.last:
            return None
        median = statistics.median_high(math.inf if loss is None else loss for loss in self.last)
        name = max(references, key=references.__getitem__)
        if median <= FACTOR * references[name]:
            return None
        return (
            f"the median training loss of the last {len(self.last)} steps is {median:.4g}, more than {FACTOR:g} times that "
            f"of {name} ({references[name]:.4g})"
        )
