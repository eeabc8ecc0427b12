"""Error rates of pronunciations (Gorman 2020, SIGMORPHON 2020 task 1)."""

import numpy as np

from seq2seq_lab.metrics.accuracy import ExactMatch
from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.edits import edit_distance
from seq2seq_lab.metrics.texts import TextOutputs


class WordErrorRate(ExactMatch):
    """The share of words whose phones do not equal those of a reference."""

    name, label, higher_is_better = "wer", "WER", False

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return 1 - super().value(totals_K)


class PhoneErrorRate(Metric):
    """The insertions, deletions and substitutions of phones, divided by the number of phones of the references.

    Of several references of a word, the one with the fewest errors counts.
    """

    name, label, higher_is_better, format, confidence = "per", "PER", False, ".1%", True

    def rows(self, outputs: TextOutputs) -> Array:
        """See `Metric.rows`."""
        rows = []
        for index, line in enumerate(outputs.scored):
            references = [reference.split() for reference in outputs.references.of(index)]
            errors = [(edit_distance(line.split(), phones), len(phones)) for phones in references]
            rows.append(min(errors, key=lambda one: one[0] / one[1]))
        return np.array(rows, np.float64)

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return float(totals_K[0] / totals_K[1])
