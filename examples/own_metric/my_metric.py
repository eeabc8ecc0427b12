"""A custom metric of translation."""

from typing import Any

import numpy as np

from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.texts import TextOutputs


class SimilarLength(Metric):
    """The share of translations whose number of words differs from the reference's by at most `tolerance`.

    Of several references, the one of the closest length counts.

    Raises:
        ValueError: `tolerance` is negative.
    """

    name, label, higher_is_better = "similar_length", "similar length", True
    format, limits, confidence = ".1%", (0.0, 1.0), True

    def __init__(self, tolerance: int) -> None:
        if tolerance < 0:
            raise ValueError(f"tolerance={tolerance} must be 0 or more.")
        self.tolerance = tolerance

    def rows(self, outputs: TextOutputs) -> Array:
        """Return (1 if the length is similar, 1) for each translation."""
        rows = []
        for index, translation in enumerate(outputs.scored):
            lengths = [len(line.split()) for line in outputs.references.of(index)]
            distance = min(abs(len(translation.split()) - length) for length in lengths)
            rows.append([distance <= self.tolerance, 1])
        return np.array(rows, float)

    def value(self, totals_K: Any) -> float:
        """Return the share from the sum of rows."""
        return totals_K[0] / totals_K[1]

    def signature(self, outputs: TextOutputs) -> str:
        """Return what the value depends on besides the texts."""
        return f"words:whitespace|tolerance:{self.tolerance}"
