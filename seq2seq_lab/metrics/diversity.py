"""How varied the texts of a split are."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.sacrebleu_adapter import tokenizer
from seq2seq_lab.metrics.texts import TextOutputs, ngrams


class _Diversity(Metric):
    """A function of how often each n-gram occurs in the outputs of a split, in the tokens of BLEU.

    Its rows are n-grams, not examples, so it has no interval and no groups: it depends on the number of texts, and a
    bootstrap sample, which repeats texts, has fewer different n-grams than the split.

    Args:
        order: the number n of tokens of an n-gram.
        of_references: measure the references, to compare the outputs with; the first one of each output.
    """

    higher_is_better, when, per_example = True, "final", False

    def __init__(self, order: int, of_references: bool = False) -> None:
        self.order, self.of_references = order, of_references
        self.name, self.label = f"{self.name}_{order}", self.label.format(order)
        if of_references:
            self.name, self.label = f"{self.name}_references", f"{self.label}, references"
            self.shown = self.compared = False
        else:
            self.bounds = (f"{self.name}_references",)

    def rows(self, outputs: TextOutputs) -> Array:
        """Return the row (1, count, count · ln count) of each different n-gram."""
        counts = np.array([*Counter(self._ngrams(outputs)).values()], np.float64)
        return np.column_stack([np.ones(len(counts)), counts, counts * np.log(counts)])

    def _ngrams(self, outputs: TextOutputs) -> Iterator[tuple[str, ...]]:
        tokenize = tokenizer(outputs.references.segmentation.bleu)
        for line in outputs.references.streams[0] if self.of_references else outputs.scored:
            yield from ngrams(tokenize(line).split(), self.order)

    def signature(self, outputs: TextOutputs) -> str:
        """Return what the tokens depend on, as in sacreBLEU's signatures."""
        return f"case:mixed|tok:{outputs.references.segmentation.bleu}"


class Distinct(_Diversity):
    """The number of different n-grams divided by the number of n-grams (Li et al. 2016, arXiv:1510.03055); 0 without one.

    More texts have a lower value, so compare systems on the same split only.
    """

    name, label, format, limits = "distinct", "distinct-{}", ".3f", (0.0, 1.0)

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return float(totals_K[0] / max(totals_K[1], 1))


class NgramEntropy(_Diversity):
    """The entropy of the distribution of n-grams in nats, Ent-n of Zhang et al. 2018 (arXiv:1809.05972); 0 without one.

    Where F(w) is the number of times that the n-gram w occurs and N = Σ_w F(w), it is −1/N Σ_w F(w) ln(F(w) / N), or
    ln N − 1/N Σ_w F(w) ln F(w).
    """

    name, label = "entropy", "entropy of {}-grams"

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        number = max(totals_K[1], 1)
        return float(np.log(number) - totals_K[2] / number)


DIVERSITY_METRICS: tuple[Metric, ...] = tuple(
    kind(order, of_references)
    for of_references in (False, True)
    for kind, order in ((Distinct, 1), (Distinct, 2), (NgramEntropy, 4))
)
