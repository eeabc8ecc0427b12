"""Training examples in batches of equal length, for tasks whose examples are sequences."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from seq2seq_lab.data.batching import Examples, Index, StepPlan, Unit, plan_epoch
from seq2seq_lab.tasks.base import EpochPlan

MakeBatch = Callable[[Index], Any]


class ExamplePlan(EpochPlan):
    """The steps of an epoch.

    Args:
        units: the number of units of each example.
        make: returns a batch of examples.
    """

    def __init__(self, plan: Sequence[StepPlan], units: Index, make: MakeBatch) -> None:
        super().__init__(plan)
        self.units = units
        self.make = make

    def batch(self, index: Index) -> Any:
        return self.make(index)

    def count(self, step: int) -> int:
        return sum(int(self.units[index].sum()) for index in self.plan[step])


class TrainingExamples:
    """The training examples, in the order of `plan_epoch`.

    Args:
        examples: returns the examples of an epoch.
        batches: returns what makes batches of these examples on a device.
        batch_size: see `plan_epoch`.
        seed: random seed of the order of the examples.
        pad_to: see `plan_epoch`.
    """

    def __init__(
        self,
        examples: Callable[[int], Any],
        batches: Callable[[Any, torch.device], MakeBatch],
        batch_size: int,
        unit: Unit,
        seed: int,
        pad_to: int = 1,
    ) -> None:
        self.examples = examples
        self.batches = batches
        self.batch_size = batch_size
        self.unit: Unit = unit
        self.seed = seed
        self.pad_to = pad_to
        self._on_device: tuple[Examples, torch.device, MakeBatch] | None = None

    def epoch(self, number: int, device: torch.device) -> ExamplePlan:
        """Return the plan of an epoch, counted from 0."""
        examples: Examples = self.examples(number)
        if self._on_device is None or self._on_device[0] is not examples or self._on_device[1] != device:
            self._on_device = None  # the examples of one epoch at a time are on the device
            self._on_device = examples, device, self.batches(examples, device)
        plan = plan_epoch(examples, self.batch_size, self.unit, self.seed, number, self.pad_to)
        return ExamplePlan(plan, examples.units.numpy(), self._on_device[2])
