"""The evaluation of a model on a split, which all tasks share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from seq2seq_lab.data.batching import Index
from seq2seq_lab.metrics.base import Grouping, Metric
from seq2seq_lab.metrics.measurement import Measurement, measure
from seq2seq_lab.runtime.compute import Compute

Result = TypeVar("Result")

Counted = Callable[[int, int], None]
"""Called with the number of finished batches and the number of all batches."""


class Split(Protocol):
    """The examples of a validation or test split.

    Attributes:
        prefix: prefix of its metrics: `val`, `test` or `test/NAME`.
    """

    @property
    def prefix(self) -> str: ...


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation of a split.

    Attributes:
        values: metrics by name, with the split's prefix.
        measurement: the metrics with the statistics that they were computed from.
        outputs: the inputs of the metrics; see `SplitEvaluator.outputs`.
    """

    values: dict[str, float]
    measurement: Measurement
    outputs: Any


class SplitEvaluator(ABC, Generic[Result]):
    """Evaluates a model on a split. All ranks call it together; only rank 0 returns more than the values.

    A subclass defines `score` and `outputs`, and `evaluation` if its evaluations contain more.

    Args:
        split: the split; its prefix is that of the metrics.
        plan: the batches of all ranks, as indices of examples; each rank computes its share.
        examples: see `Measurement`.
        metrics: the metrics to compute.
        groupings: the metrics by group of examples.
        also: names of metrics of the final evaluation to compute at each validation.
        clusters: see `Measurement`; None if the examples are independent.
    """

    def __init__(
        self,
        model: Any,
        split: Split,
        compute: Compute,
        *,
        plan: Sequence[Index],
        examples: str,
        metrics: Sequence[Metric],
        groupings: Sequence[Grouping] = (),
        also: Collection[str] = (),
        clusters: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.model, self.split, self.compute = model, split, compute
        self.plan = plan[compute.ranks.rank :: compute.ranks.size]
        self.examples, self.clusters = examples, clusters
        self.metrics, self.groupings, self.also = metrics, groupings, also

    @abstractmethod
    def score(self, index: Index, final: bool) -> Sequence[Result]:
        """Return the result of each example of a batch. Gradients are off.

        Results are sent from rank to rank: values of the host, no tensors of a device.

        Args:
            index: the examples.
            final: whether this is the final evaluation.
        """

    @abstractmethod
    def outputs(self, results: Sequence[Result]) -> Any:
        """Return the inputs of the metrics, from the results of all examples in the order of the split."""

    def evaluation(
        self, results: Sequence[Result], outputs: Any, measurement: Measurement, final: bool
    ) -> Any:
        """Return the evaluation, an `Evaluation`. Only rank 0 calls it."""
        return Evaluation(self.values(measurement), measurement, outputs)

    def values(self, measurement: Measurement) -> dict[str, float]:
        """Return the metrics by name, with the split's prefix."""
        return {f"{self.split.prefix}/{name}": value for name, value in measurement.values.items()}

    @torch.no_grad()  # not inference_mode, under which autocast casts each weight at every step
    def __call__(self, final: bool = False, counted: Counted | None = None) -> Any:
        """Evaluate the model.

        Args:
            final: add what `measure` adds to the final evaluation, and what the task's report needs.
            counted: called after each batch with the number of finished batches and of all batches of this rank, and
                after each metric.
        """
        self.model.eval()
        share: dict[int, Result] = {}
        for count, index in enumerate(self.plan, start=1):
            share |= zip(index.tolist(), self.score(index, final), strict=True)
            if counted is not None:
                counted(count, len(self.plan))
        shares = self.compute.ranks.gather(share)
        whole: list[Any] = []

        def values() -> dict[str, float]:
            whole.append(self._merged(shares, final, counted))
            return whole[0].values

        values_of_all = self.compute.ranks.broadcast(values)
        return whole[0] if whole else Evaluation(values_of_all, Measurement({}), None)

    def _merged(self, shares: Sequence[Mapping[int, Result]], final: bool, counted: Counted | None) -> Any:
        """Return the evaluation from the results of each rank, by example."""
        batches = len(self.plan)
        every = {i: result for share in shares for i, result in share.items()}
        results = [every[i] for i in range(len(every))]
        outputs = self.outputs(results)
        measurement = measure(
            self.metrics,
            outputs,
            clusters=np.arange(len(results)) if self.clusters is None else self.clusters,
            examples=self.examples,
            groupings=self.groupings,
            final=final,
            also=self.also,
            after_metric=None if counted is None else lambda: counted(batches, batches),
        )
        return self.evaluation(results, outputs, measurement, final)
