"""TER."""

from collections.abc import Sequence

import numpy as np

from seq2seq_lab.data.words import words
from seq2seq_lab.metrics import sacrebleu_adapter
from seq2seq_lab.metrics.base import Array
from seq2seq_lab.metrics.edits import edit_distance
from seq2seq_lab.metrics.texts import References, TextMetric, TextOutputs
from seq2seq_lab.runtime.heartbeat import heartbeat


class Ter(TextMetric):
    """sacreBLEU's translation edit rate (Snover et al. 2006), from 0 (best) without an upper limit.

    The words of languages without spaces are described at `Segmentation`.
    """

    name, label, higher_is_better, when, compared = "ter", "TER", False, "final", False
    variants_shown = False

    def scorer(self, references: References) -> sacrebleu_adapter.FastTER:
        """See `TextMetric.scorer`."""
        asian = references.segmentation.ter == "asian"
        return sacrebleu_adapter.FastTER(normalized=asian, asian_support=asian)

    def lines(self, texts: TextOutputs) -> tuple[Sequence[str], Sequence[Sequence[str | None]]]:
        """See `TextMetric.lines`."""
        hypotheses, streams = super().lines(texts)
        if texts.references.segmentation.ter not in _CUT:
            return hypotheses, streams
        return [*map(_apart, hypotheses)], [[line and _apart(line) for line in stream] for stream in streams]

    def rows(self, outputs: TextOutputs) -> Array:
        """See `Metric.rows`. Shifts of letters are not tried: it is slow for sentences of so many units."""
        texts = self.texts(outputs)
        if texts.references.segmentation.ter != "letters":
            return super().rows(outputs)
        hypotheses, streams = self.lines(texts)
        rows = []
        for output, *lines in zip(hypotheses, *streams, strict=True):
            heartbeat.beat("scoring texts")
            # In lower case, as sacreBLEU's TER.
            references = [line.lower().split() for line in lines if line is not None]
            edits = min(edit_distance(output.lower().split(), reference) for reference in references)
            rows.append((edits, sum(map(len, references)) / len(references)))
        return np.array(rows, np.float64)

    def signature(self, outputs: TextOutputs) -> str:
        """Return sacreBLEU's signature, and how words are cut if they are not those between spaces."""
        return super().signature(outputs) + _CUT.get(self.texts(outputs).references.segmentation.ter, "")

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return sacrebleu_adapter.score(_SCORER, totals_K)


def _apart(line: str) -> str:
    return " ".join(line[start:end] for start, end in words(line))


_CUT = {"letters": "|words:letters|shifts:no", "divided": "|words:divided"}
_SCORER = sacrebleu_adapter.FastTER()
