"""BLEU."""

from functools import cache

import numpy as np

from seq2seq_lab.metrics import sacrebleu_adapter
from seq2seq_lab.metrics.base import Array
from seq2seq_lab.metrics.sacrebleu_adapter import BLEU, tokenizer
from seq2seq_lab.metrics.texts import References, TextMetric, TextOutputs

# Beside tables of outputs.
SENTENCE_BLEU_NOTE = "Sentence BLEU is between 0 and 100; its mean is not the BLEU of the test set."
COUNTS = 10  # sacreBLEU's: both lengths, matched and all n-grams of 1 to 4


class Bleu(TextMetric):
    """sacreBLEU's BLEU (Papineni et al. 2002, Post 2018).

    BLEU counts up to 4-grams, so if every reference has fewer than 4 tokens, even perfect output would score 0. Such a split
    is scored with effective order (only the n-grams that exist), and the signature contains `eff:yes`: the score is not
    comparable with the usual `eff:no`. The choice depends on the references alone, so all systems on one test set are scored
    alike.

    Two columns follow sacreBLEU's counts: whether any reference of the split has 4 tokens, in every row, and whether one of
    this example has. A group without such a reference has no value: with `eff:no` a perfect translation would score 0,
    and with `eff:yes` the value would not be comparable with other groups.
    """

    name, label, higher_is_better, limits = "bleu", "BLEU", True, (0.0, 100.0)

    def scorer(self, references: References) -> BLEU:
        """See `TextMetric.scorer`."""
        effective_order = not self._long(references).any()
        if not self.lowercased_tokenised:
            tokenizer = references.segmentation.bleu
            return BLEU(tokenize=tokenizer, force=tokenizer == "none", effective_order=effective_order)
        # `force` only turns off the warning about tokenized input, which is intended here.
        return BLEU(lowercase=True, tokenize="none", force=True, effective_order=effective_order)

    def _long(self, references: References) -> Array:
        tokenize = str if self.lowercased_tokenised else tokenizer(references.segmentation.bleu)
        return references.long(tokenize).astype(np.float64)

    def rows(self, outputs: TextOutputs) -> Array:
        """See `Metric.rows`."""
        long_N = self._long(self.texts(outputs).references)
        any_long_N = np.full(len(long_N), long_N.any())
        return np.column_stack([super().rows(outputs), any_long_N, long_N])

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return sacrebleu_adapter.score(_scorer(effective_order=not totals_K[COUNTS]), totals_K[:COUNTS])

    def values(self, totals_SK: Array) -> Array:
        """Return what `value` returns for each row: sacreBLEU's formula with its default smoothing."""
        hypothesis, reference, *_ = totals_SK.astype(np.float64).T
        matched, total = totals_SK[:, 2:6].astype(np.float64), totals_SK[:, 6:10].astype(np.float64)
        exists = total > 0
        halvings = np.cumsum((matched == 0) & exists, axis=1)
        kept = np.where(matched == 0, 0.5**halvings, matched)
        orders = np.where(totals_SK[:, COUNTS] > 0, 4, exists.sum(1))
        with np.errstate(divide="ignore"):
            logs = np.log(np.where(exists, kept, 0)) - np.log(np.where(exists, total, 1))
            brevity = np.minimum(0, 1 - reference / np.where(hypothesis > 0, hypothesis, np.nan))
        counted = np.where(np.arange(4) < orders[:, None], logs, 0)
        scores = 100 * np.exp(brevity + counted.sum(1) / np.maximum(orders, 1))
        return np.where(matched.any(1), scores, 0.0)

    def is_defined(self, totals_K: Array) -> bool:
        """See `Metric.is_defined`."""
        return bool(totals_K[COUNTS + 1])


@cache
def _scorer(effective_order: bool, tokenizer: str = "13a") -> BLEU:
    return BLEU(tokenize=tokenizer, force=True, effective_order=effective_order)


def sentence_bleu(hypothesis: str, *references: str, tokenizer: str) -> float:
    """Return BLEU of one sentence from 0 to 100, smoothed, with effective order.

    For tables and for sorting; a mean of it is not the BLEU of the corpus.

    Args:
        tokenizer: that of the corpus; see `Segmentation.bleu`.
    """
    return _scorer(effective_order=True, tokenizer=tokenizer).sentence_score(hypothesis, references).score
