"""TER."""

from collections.abc import Sequence

from seq2seq_lab.data.words import words
from seq2seq_lab.metrics import sacrebleu_adapter
from seq2seq_lab.metrics.base import Array
from seq2seq_lab.metrics.sacrebleu_adapter import TER
from seq2seq_lab.metrics.texts import References, TextMetric, TextOutputs


class Ter(TextMetric):
    """sacreBLEU's translation edit rate (Snover et al. 2006), from 0 (best) without an upper limit.

    The words of languages without spaces are described at `Segmentation`.
    """

    name, label, higher_is_better, when, compared = "ter", "TER", False, "final", False
    variants_shown = False

    def scorer(self, references: References) -> TER:
        """See `TextMetric.scorer`."""
        asian = references.segmentation.ter == "asian"
        return TER(normalized=asian, asian_support=asian)

    def lines(self, texts: TextOutputs) -> tuple[Sequence[str], Sequence[Sequence[str | None]]]:
        """See `TextMetric.lines`."""
        hypotheses, streams = super().lines(texts)
        if texts.references.segmentation.ter != "letters":
            return hypotheses, streams
        return [*map(_apart, hypotheses)], [[line and _apart(line) for line in stream] for stream in streams]

    def signature(self, outputs: TextOutputs) -> str:
        """Return sacreBLEU's signature; `words:letters` if words are not those between spaces."""
        letters = self.texts(outputs).references.segmentation.ter == "letters"
        return super().signature(outputs) + ("|words:letters" if letters else "")

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return sacrebleu_adapter.score(_SCORER, totals_K)


def _apart(line: str) -> str:
    return " ".join(line[start:end] for start, end in words(line))


_SCORER = TER()
