"""Accuracy of texts."""

import numpy as np

from seq2seq_lab.metrics.base import Array
from seq2seq_lab.metrics.classification import Accuracy
from seq2seq_lab.metrics.texts import TextOutputs


class ExactMatch(Accuracy):
    """The share of texts that equal one of their references, apart from the amount of white space."""

    label = "exact match"

    def rows(self, outputs: TextOutputs) -> Array:  # type: ignore[override]
        """See `Metric.rows`."""
        rows = []
        for i, line in enumerate(outputs.scored):
            references = [one.split() for one in outputs.references.of(i)]
            rows.append([line.split() in references, 1])
        return np.array(rows, np.float64)
