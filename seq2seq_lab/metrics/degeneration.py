"""Outputs that do not end as they should: loops, outputs that reach the length limit, and the length ratio of a split."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.sacrebleu_adapter import BLEU
from seq2seq_lab.metrics.texts import References, TextMetric, TextOutputs

LEAST_REPEATS = 3


@dataclass(frozen=True)
class Endings:
    """How the outputs of the N pairs of a split ended.

    Attributes:
        repeats_N: `longest_repeat` of the tokens of each output.
        reference_repeats_N: that of each pair's reference, in tokens of the model.
        ended_N: whether the output ended with `<eos>`, and not at the length limit of the search.
    """

    repeats_N: npt.NDArray[np.int64]
    reference_repeats_N: npt.NDArray[np.int64]
    ended_N: npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class DecodedOutputs(TextOutputs):
    """Texts that a search produced.

    Attributes:
        endings: how the search ended each text.
    """

    endings: Endings

    @property
    def loops_N(self) -> npt.NDArray[np.bool_]:
        """Whether each scored text is a loop; see `Loops`."""
        repeats_N = self.endings.repeats_N[[*self.references.pairs]]
        reference_N = self.references.maximum_of_scored(self.endings.reference_repeats_N)
        return (repeats_N >= LEAST_REPEATS) & (repeats_N > reference_N)

    @property
    def at_limit_N(self) -> npt.NDArray[np.bool_]:
        """Whether each scored text reached the length limit."""
        return ~self.endings.ended_N[[*self.references.pairs]]


def longest_repeat(tokens: Sequence[int] | npt.NDArray[np.int32]) -> int:
    """Return the greatest number k for which the tokens contain k occurrences of a segment in a row; 0 without a token.

    `a b c b c b d` contains `b c b c`, so the result is 2. Where a segment of p tokens occurs k times in a row, (k − 1) · p
    tokens in a row equal the token p positions later.
    """
    ids, most = np.asarray(tokens), min(1, len(tokens))
    for period in range(1, len(ids) // 2 + 1):
        if len(ids) // period <= most:
            break
        differs = np.flatnonzero(ids[period:] != ids[:-period])
        stretch = np.diff(differs, prepend=-1, append=len(ids) - period).max() - 1
        most = max(most, int(stretch) // period + 1)
    return most


class _ShareOfOutputs(Metric):
    """The share of the outputs with a defect."""

    higher_is_better, format, quiet_value = False, ".2%", 0.0

    @abstractmethod
    def defects(self, outputs: DecodedOutputs) -> npt.NDArray[np.bool_]:
        """Return whether each scored output has the defect."""

    def rows(self, outputs: DecodedOutputs) -> Array:
        """See `Metric.rows`."""
        defects_N = self.defects(outputs)
        return np.column_stack([defects_N, np.ones(len(defects_N))]).astype(np.float64)

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return float(totals_K[0] / totals_K[1])


class Loops(_ShareOfOutputs):
    """The share of outputs that are loops.

    An output is a loop if its tokens contain a segment, of one or more tokens, at least three times in a row, and more often
    in a row than each of its references contains any segment. Recurrent models produce such outputs after an error, which
    training with teacher forcing never shows them (exposure bias; Wang and Sennrich 2020, arXiv:2005.03642).
    """

    name, label = "loops", "loops"

    def defects(self, outputs: DecodedOutputs) -> npt.NDArray[np.bool_]:
        """See `_ShareOfOutputs.defects`."""
        return outputs.loops_N


class AtLimit(_ShareOfOutputs):
    """The share of outputs that the length limit of the search ended, and not `<eos>`."""

    name, label = "at_limit", "at the length limit"

    def defects(self, outputs: DecodedOutputs) -> npt.NDArray[np.bool_]:
        """See `_ShareOfOutputs.defects`."""
        return outputs.at_limit_N


class LengthRatio(TextMetric):
    """The length of the outputs divided by that of the references, in the tokens of BLEU: sacreBLEU's `ratio`.

    With several references, the one of the closest length counts. The best value is 1, so neither direction is better.
    """

    name, label, format, when, confidence = "length_ratio", "length ratio", ".3f", "final", False
    higher_is_better: bool | None = None

    def scorer(self, references: References) -> BLEU:
        """See `TextMetric.scorer`."""
        return BLEU(tokenize=references.segmentation.bleu, force=True)

    def rows(self, outputs: TextOutputs) -> Array:
        """Return the two lengths of each scored text."""
        return super().rows(outputs)[:, :2]

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return float(self.values(totals_K[None])[0])

    def values(self, totals_SK: Array) -> Array:
        """See `Metric.values`."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return totals_SK[:, 0] / totals_SK[:, 1]

    def is_defined(self, totals_K: Array) -> bool:
        """See `Metric.is_defined`."""
        return bool(totals_K[1])


class BrevityPenalty(LengthRatio):
    """The factor of BLEU for short outputs: e^(1 − 1 / length ratio), at most 1 (Papineni et al. 2002, §2.2.2)."""

    name, label, higher_is_better = "brevity_penalty", "brevity penalty", True
    quiet_value, compared = 1.0, False

    def values(self, totals_SK: Array) -> Array:
        """See `Metric.values`."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.exp(np.minimum(0, 1 - totals_SK[:, 1] / totals_SK[:, 0]))
