"""chrF."""

from seq2seq_lab.metrics import sacrebleu_adapter
from seq2seq_lab.metrics.base import Array
from seq2seq_lab.metrics.sacrebleu_adapter import CHRF
from seq2seq_lab.metrics.texts import References, TextMetric


class Chrf(TextMetric):
    """sacreBLEU's chrF2 (Popović 2015).

    It ignores white space. Lowercased Moses tokens therefore differ from lowercased text only in escaped characters and
    normalized punctuation.
    """

    name, label, higher_is_better, limits = "chrf", "chrF", True, (0.0, 100.0)
    variants_shown = False

    def scorer(self, references: References) -> CHRF:
        """See `TextMetric.scorer`."""
        return CHRF(lowercase=self.lowercased_tokenised)

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return sacrebleu_adapter.score(_SCORER, totals_K)


_SCORER = CHRF()
