"""Training examples in batches of equal length, and tasks whose examples are tensors."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import torch
from torch import Tensor

from seq2seq_lab.data.batching import ExampleSizes, Index, StepPlan, Unit, plan_epoch, plan_evaluation
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import digest
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.tasks.base import EpochPlan, Parts, Task, TaskData
from seq2seq_lab.tasks.evaluation import SplitEvaluator
from seq2seq_lab.tasks.settings import BatchSettings

MakeBatch = Callable[[Index], Any]
T = TypeVar("T")


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


class PerEpoch(Generic[T]):
    """A value that is computed from the training examples of an epoch, such as their batches on a device.

    The value of the last epoch is kept; that of the epoch before is released before the next examples are drawn.

    Args:
        examples: the examples, or a function that draws those of an epoch, counted from 0.
        make: returns the value of these examples on a device.
    """

    def __init__(self, examples: Any, make: Callable[[Any, torch.device], T]) -> None:
        self.examples = examples
        self.make = make
        self._kept: tuple[tuple[int, torch.device], T] | None = None

    def __call__(self, index: int, device: torch.device) -> T:
        """Return the value of an epoch, counted from 0."""
        drawn = callable(self.examples)
        key = (index if drawn else 0, device)
        if self._kept is None or self._kept[0] != key:
            self._kept = None
            examples = self.examples(index) if drawn else self.examples
            self._kept = key, self.make(examples, device)
        return self._kept[1]


class TrainingExamples:
    """The training examples, in the order of `plan_epoch`.

    Args:
        examples: see `PerEpoch`.
        batches: returns a function that makes batches of these examples on a device.
        batch_size: see `plan_epoch`.
        seed: random seed of the order of the examples.
        pad_to: see `plan_epoch`.
    """

    def __init__(
        self,
        examples: ExampleSizes | Callable[[int], ExampleSizes],
        batches: Callable[[Any, torch.device], MakeBatch],
        *,
        batch_size: int,
        unit: Unit,
        seed: int,
        pad_to: int = 1,
    ) -> None:
        self.batch_size = batch_size
        self.unit: Unit = unit
        self.seed = seed
        self.pad_to = pad_to
        self._on_device = PerEpoch(examples, lambda examples, device: (examples, batches(examples, device)))

    def epoch(self, index: int, device: torch.device) -> ExamplePlan:
        """Return the plan of an epoch, counted from 0."""
        examples, make = self._on_device(index, device)
        plan = plan_epoch(
            examples, self.batch_size, self.unit, seed=self.seed, epoch=index, pad_to=self.pad_to
        )
        return ExamplePlan(plan, examples.units.numpy(), make)


@dataclass(frozen=True)
class TensorExamples:
    """N examples, a split or a batch: the fields of a subclass that are tensors have a row for each example.

    Attributes:
        prefix: prefix of the metrics of a split.
    """

    prefix: str

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The fields that are tensors, by name."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def __getitem__(self, index: Any) -> Self:
        rows: dict[str, Any] = {name: tensor[index] for name, tensor in self.tensors.items()}
        return replace(self, **rows)

    @property
    def lengths(self) -> Tensor:
        """The length of each example, by which batches are made: int64, N. By default all are equal."""
        return torch.ones(len(self), dtype=torch.int64)

    @property
    def units(self) -> Tensor:
        """The number of units of each example, over which the loss is a mean: int64, N. By default examples count."""
        return torch.ones(len(self), dtype=torch.int64)

    def batches(self, device: torch.device) -> MakeBatch:
        """Return a function that makes batches on a device."""
        moved: dict[str, Any] = {name: tensor.to(device) for name, tensor in self.tensors.items()}
        there = replace(self, **moved)
        return lambda index: there[torch.from_numpy(index)]

    @property
    def hash(self) -> str:
        """Identifies the examples."""
        return digest([tensor.tolist() for tensor in self.tensors.values()])


class TensorTask(Task):
    """A task whose splits are `TensorExamples`. A subclass defines metrics, model, loss and an evaluator.

    Attributes:
        evaluator_type: the evaluator, whose constructor is that of `SplitEvaluator`.

    Args:
        splits: the examples of "train", "val" and "test", by prefix.
        settings: see `BatchSettings`.

    Raises:
        UserError: a split has no examples.
    """

    evaluator_type: ClassVar[type[SplitEvaluator[Any]]]

    def __init__(
        self,
        splits: Mapping[str, TensorExamples],
        *,
        parts: Parts,
        seed: int,
        settings: BatchSettings,
    ) -> None:
        if empty := [name for name, split in splits.items() if not len(split)]:
            raise UserError(
                f"{type(self).__name__}: the split {', '.join(empty)} has no examples. Give each split at least one."
            )
        self.splits, self.parts, self.seed, self.settings = splits, parts, seed, settings
        self.eval_batch_size = settings.eval_batch_size

    def data_record(self) -> dict[str, Any]:
        hashes = {name: split.hash for name, split in self.splits.items()}
        return {
            "fingerprint": digest(hashes.values()),
            "sizes": {name: len(split) for name, split in self.splits.items()},
            "tests": {"test": hashes["test"]},
            "counts": {},
        }

    def load(self, cache: Path, saved: Path | None, limit: int | None) -> TaskData:
        train, record = self.splits["train"], self.data_record()
        return TaskData(
            train=TrainingExamples(
                train,
                TensorExamples.batches,
                batch_size=self.settings.batch_size,
                unit="sentences",
                seed=self.seed,
            ),
            validation=self.splits["val"][:limit],
            tests=[self.splits["test"][:limit]],
            record=record,
            identity={"the data": record["fingerprint"]},
        )

    def evaluator(
        self, split: Any, model: Any, compute: Compute, also: Collection[str] = ()
    ) -> SplitEvaluator[Any]:
        plan = plan_evaluation(split, self.eval_batch_size)
        return self.evaluator_type(
            model, split, compute, plan=plan, examples=split.hash, metrics=self.metrics, also=also
        )
