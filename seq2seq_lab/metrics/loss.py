"""The mean loss of a split, and its perplexity."""

import math
import sys
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.metrics.base import Array, Metric


class Losses(Protocol):
    """Outputs with the losses of the examples."""

    @property
    def losses(self) -> Mapping[str, Array]:
        """By kind of loss a row (loss in nats, summed over its units; number of units) for each example."""
        ...


class MeanLoss(Metric):
    """The mean loss in nats.

    Args:
        kind: a key of `Losses.losses`.
        label: the name in tables and pictures.
    """

    prefix = "loss"
    higher_is_better, format, compared, confidence, is_loss = False, ".3f", False, True, True

    def __init__(self, kind: str, label: str) -> None:
        self.kind = kind
        self.name = f"{self.prefix}_{kind}"
        self.label = label

    def rows(self, outputs: Losses) -> Array:
        """See `Metric.rows`."""
        return outputs.losses[self.kind]

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return float(totals_K[0] / totals_K[1])


class Perplexity(MeanLoss):
    """e to the mean loss.

    Args:
        kind: see `MeanLoss`; also `label`.
        shown: see `Metric`.
    """

    prefix, format, is_loss = "perplexity", ".2f", False

    def __init__(self, kind: str, label: str, shown: bool = False) -> None:
        super().__init__(kind, label)
        self.shown = shown

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return perplexity(super().value(totals_K))


def perplexity(loss: float) -> float:
    """Return e to the loss in nats; infinite if it exceeds the largest float."""
    return math.inf if loss > math.log(sys.float_info.max) else math.exp(loss)


class LossOverPadding(MeanLoss):
    """The teacher-forced loss per position of padded batches, where the loss of padding is 0: less than the loss per token.

    Some tutorials report this mean. It depends on the batch size and on the order of the examples; compare it with such
    figures only.

    Args:
        batch_size: the number of consecutive examples that are padded to the longest target among them.
    """

    def __init__(self, batch_size: Count) -> None:
        super().__init__("teacher_forced", "teacher-forced loss, padding included")
        self.name = "loss_over_padding"
        self.batch_size = batch_size

    def unavailable(self, outputs: Losses) -> str | None:
        """See `Metric.unavailable`."""
        references = getattr(outputs, "references", None)
        if references is not None and len(references.pairs) < len(references):
            return "with task.multi_reference=true the losses of several targets are one row"
        return None

    def rows(self, outputs: Losses) -> Array:
        """See `Metric.rows`."""
        losses, tokens = super().rows(outputs).T
        starts = np.arange(0, len(tokens), self.batch_size)
        sizes = np.diff([*starts, len(tokens)])
        return np.stack([losses, np.repeat(np.maximum.reduceat(tokens, starts), sizes)], axis=1)
