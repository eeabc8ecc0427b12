"""Accuracy of texts."""

import numpy as np

from seq2seq_lab.metrics.base import Array
from seq2seq_lab.metrics.classification import Accuracy
from seq2seq_lab.metrics.texts import TextOutputs


class ExactMatch(Accuracy):
    """The share of texts that equal one of their references."""

    label = "exact match"

    def rows(self, outputs: TextOutputs) -> Array:  # type: ignore[override]
        """See `Metric.rows`."""
        return np.array(
            [[line in outputs.references.of(i), 1] for i, line in enumerate(outputs.scored)], np.float64
        )
