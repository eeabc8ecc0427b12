"""TER."""

from seq2seq_lab.metrics import sacrebleu_adapter
from seq2seq_lab.metrics.base import Array
from seq2seq_lab.metrics.sacrebleu_adapter import TER
from seq2seq_lab.metrics.texts import References, TextMetric


class Ter(TextMetric):
    """sacreBLEU's translation edit rate (Snover et al. 2006), from 0 (best) without an upper limit."""

    name, label, higher_is_better, when, compared = "ter", "TER", False, "final", False
    variants_shown = False

    def scorer(self, references: References) -> TER:
        """See `TextMetric.scorer`."""
        return TER()

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return sacrebleu_adapter.score(_SCORER, totals_K)


_SCORER = TER()
