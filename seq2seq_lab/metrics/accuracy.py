"""Accuracy."""

import numpy as np

from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.texts import TextOutputs


class ExactMatch(Metric):
    """The share of texts that equal one of their references."""

    name, label, higher_is_better, format, limits = "accuracy", "exact match", True, ".1%", (0.0, 1.0)

    def rows(self, outputs: TextOutputs) -> Array:
        """See `Metric.rows`."""
        return np.array(
            [[line in outputs.references.of(i), 1] for i, line in enumerate(outputs.scored)], np.float64
        )

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return totals_K[0] / totals_K[1]
