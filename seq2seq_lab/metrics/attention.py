"""Measures of attention under teacher forcing: how sharp it is, what it leaves out, and where it moves.

α_t are the weights of target token t over the S source positions, with `<sos>` and `<eos>`; there are T target tokens, with
`<eos>`. The pieces of a word are joined before: their columns are summed and their rows averaged. In row t are the weights
with which token t was predicted.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import entr

from seq2seq_lab.data.words import words
from seq2seq_lab.metrics.alignment import Span
from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.significance import ratio

Indices = npt.NDArray[np.int64]

COLUMNS = (
    *("tokens", "entropy", "relative_entropy", "effective_words", "sharpness"),
    *("unused", "source_words", "coverage_error", "forward", "steps", "tau", "tau_defined"),
    *("sos", "eos", "punctuation"),
)


@dataclass(frozen=True, slots=True)
class Units:
    """The units of the tokens of one text: words and punctuation marks, with those of its frame.

    Attributes:
        of_token: the index of the unit of each token.
        is_word: whether each unit contains a letter or a digit; false for the frame.
    """

    of_token: Indices
    is_word: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, line: str, spans: Sequence[Span], before: int, by_token: bool = False) -> "Units":
        """Return the units of a text with tokens of these spans, `before` tokens (0, or 1: `<sos>`), and `<eos>` after it.

        A token continues the unit of the one before it if both are in one word (`data.words.words`), nothing is between
        them, and they meet at letters or digits: "l'" and "homme" are two units. The bytes of one letter, which have its
        span, are in one unit, and a token without a character is in the unit of the next one.

        Args:
            by_token: no token continues the unit of the one before it because they are in one word.
        """
        starts = {start for start, _ in words(line)}
        first = [True] * bool(spans) + [
            before[0] < before[1] <= span[0]
            and (by_token or span[0] in starts or not _continues(line, before, span))
            for before, span in pairwise(spans)
        ]
        inner = np.cumsum(first, dtype=np.int64) - 1 + before
        last = int(inner[-1]) + 1 if len(spans) else before
        of_token = np.concatenate([np.arange(before), inner, [last]])
        is_word = np.zeros(last + 1, np.bool_)
        for unit, (start, end) in zip(inner, spans, strict=True):
            is_word[unit] |= any(map(str.isalnum, line[start:end]))
        return cls(of_token, is_word)


def _continues(line: str, before: Span, span: Span) -> bool:
    meets = before[1] == span[0] > before[0] and span[1] > span[0]
    return meets and in_word(line[span[0] - 1]) and in_word(line[span[0]])


def in_word(character: str) -> bool:
    """Return whether it is a letter, a mark of one, a digit, or a joiner of letters."""
    return unicodedata.category(character)[0] in "LMN" or unicodedata.category(character) == "Cf"


def measures(
    weights_BTS: npt.NDArray[np.floating[Any]], sources: Sequence[Units], targets: Sequence[Units]
) -> Array:
    """Return the sums of `COLUMNS` for each example of a batch: [B, len(COLUMNS)].

    Args:
        weights_BTS: padded.
    """
    weights_BTS, real_BT, real_BS = joined(weights_BTS, sources, targets)
    word_BS = np.zeros_like(real_BS)
    end_B = real_BS.sum(1) - 1
    for row, source in enumerate(sources):
        word_BS[row, : len(source.is_word)] = source.is_word
    weights_BTS = weights_BTS * (real_BT[:, :, None] & real_BS[:, None, :])
    entropy_BT = entr(row_shares(weights_BTS)).sum(2)
    best_BT = np.where(real_BT, weights_BTS.argmax(2), -1)
    index_B = np.arange(len(weights_BTS))
    tokens_B = real_BT.sum(1)
    words_B = word_BS.sum(1)
    marks_BS = real_BS & ~word_BS
    marks_BS[:, 0] = marks_BS[index_B, end_B] = False  # <sos> and <eos>
    tau_B, defined_B = kendall_tau(best_BT, real_BT)
    found = {
        "tokens": tokens_B,
        "entropy": entropy_BT.sum(1),
        "relative_entropy": entropy_BT.sum(1) / np.log(end_B + 1),
        "effective_words": (np.exp(entropy_BT) * real_BT).sum(1),
        "sharpness": weights_BTS.max(2).sum(1),
        "unused": words_B - _used(weights_BTS, word_BS, tokens_B),
        "source_words": words_B,
        "coverage_error": (abs(1 - weights_BTS.sum(1)) * word_BS).sum(1),
        "forward": ((best_BT[:, 1:] >= best_BT[:, :-1]) & real_BT[:, 1:]).sum(1),
        "steps": tokens_B - 1,
        "tau": tau_B,
        "tau_defined": defined_B,
        "sos": weights_BTS[:, :, 0].sum(1),
        "eos": weights_BTS[index_B, :, end_B].sum(1),
        "punctuation": (weights_BTS.sum(1) * marks_BS).sum(1),
    }
    return np.column_stack([found[name] for name in COLUMNS]).astype(np.float64)


def _used(
    weights_BTS: npt.NDArray[np.floating[Any]], word_BS: npt.NDArray[np.bool_], tokens_B: Indices
) -> Indices:
    """Return the number of source words that are the arg max, among the words, of a target token other than `<eos>`."""
    best_BT = np.where(word_BS[:, None], weights_BTS, -1).argmax(2)
    used_BS = np.zeros_like(word_BS)
    row_BT, step_BT = np.nonzero(np.arange(best_BT.shape[1]) < tokens_B[:, None] - 1)
    used_BS[row_BT, best_BT[row_BT, step_BT]] = True
    used: Indices = (used_BS & word_BS).sum(1)
    return used


def row_shares(weights_BTS: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return weights divided by the sum of their row; a row of zeros stays."""
    total_BT1 = weights_BTS.sum(2, keepdims=True)
    return np.divide(weights_BTS, total_BT1, out=np.zeros_like(weights_BTS), where=total_BT1 > 0)


def joined(
    weights_BTS: npt.NDArray[np.floating[Any]], sources: Sequence[Units], targets: Sequence[Units]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return the weights of units, and which rows and columns are real: columns are summed, rows averaged."""
    units_BTS = weights_BTS.astype(np.float64)
    if any(len(one.of_token) != len(one.is_word) for one in (*sources, *targets)):
        columns_BSU = _members(sources, weights_BTS.shape[2])
        rows_BTU = _members(targets, weights_BTS.shape[1])
        units_BTS = (rows_BTU / np.maximum(rows_BTU.sum(1, keepdims=True), 1)).swapaxes(1, 2) @ units_BTS
        units_BTS = units_BTS @ columns_BSU
    real_BT, real_BS = (
        np.arange(size) < np.array([len(one.is_word) for one in units])[:, None]
        for size, units in zip(units_BTS.shape[1:], (targets, sources), strict=True)
    )
    return units_BTS, real_BT, real_BS


def _members(units: Sequence[Units], width: int) -> npt.NDArray[np.float64]:
    """Return [B, tokens, units] with 1 where a token belongs to a unit."""
    most = max(len(one.is_word) for one in units)
    members_BSU = np.zeros((len(units), width, most))
    for row, one in enumerate(units):
        members_BSU[row, np.arange(len(one.of_token)), one.of_token] = 1
    return members_BSU


def kendall_tau(
    best_BT: npt.NDArray[np.integer[Any]], real_BT: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return τ_b of (t, best_t) of each row, 0 where it is not defined, and where it is (Kendall 1945)."""
    pairs_BTT = np.triu(real_BT[:, :, None] & real_BT[:, None, :], 1)
    signs_BTT = np.sign(best_BT[:, None, :] - best_BT[:, :, None]) * pairs_BTT
    count_B, untied_B = pairs_BTT.sum((1, 2)), abs(signs_BTT).sum((1, 2))
    defined_B = untied_B > 0
    scale_B = np.sqrt(np.maximum(count_B * untied_B, 1), dtype=np.float64)
    return signs_BTT.sum((1, 2)) / scale_B, defined_B


class MeasuredAttention(Protocol):
    """Outputs with the sums of `measures` of each example; None without attention to text."""

    @property
    def measures(self) -> Array | None: ...


class AttentionMeasure(Metric):
    """A ratio of two sums of `COLUMNS`. It describes the attention: neither direction is better.

    Args:
        name: of the metric, after `attention_`.
        label: its name in tables and pictures.
        sums: the names of the two columns.
        largest: the largest value; None if there is none.
    """

    higher_is_better, format, shown, compared, confidence = None, ".3f", False, False, True

    def __init__(self, name: str, label: str, sums: tuple[str, str], largest: float | None = 1) -> None:
        self.name, self.label = f"attention_{name}", label
        self._columns = [COLUMNS.index(one) for one in sums]
        self.limits = None if largest is None else (0.0, largest)

    def rows(self, outputs: MeasuredAttention) -> Array:
        """See `Metric.rows`."""
        assert outputs.measures is not None
        return self.of_sums(outputs.measures)

    def of_sums(self, sums: Array) -> Array:
        """Return its two sums [N, 2] from the `measures` of N examples."""
        return sums[:, self._columns]

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return ratio(totals_K)

    def is_defined(self, totals_K: Array) -> bool:
        """See `Metric.is_defined`."""
        return bool(totals_K[1] > 0)

    def unavailable(self, outputs: MeasuredAttention) -> str | None:
        """See `Metric.unavailable`."""
        if outputs.measures is None:
            return "the model has no attention to words"
        return None if self.is_defined(self.rows(outputs).sum(0)) else "it is not defined for any sentence"


ATTENTION_MEASURES = (
    AttentionMeasure("entropy", "attention entropy", ("entropy", "tokens"), None),
    AttentionMeasure("entropy_relative", "relative attention entropy", ("relative_entropy", "tokens")),
    AttentionMeasure("effective_words", "words attended to", ("effective_words", "tokens"), None),
    AttentionMeasure("sharpness", "largest attention weight", ("sharpness", "tokens")),
    AttentionMeasure("unused", "source words unused by attention", ("unused", "source_words")),
    AttentionMeasure(
        "coverage_error", "coverage error of attention", ("coverage_error", "source_words"), None
    ),
    AttentionMeasure("monotonicity", "monotonicity of attention", ("forward", "steps")),
    AttentionMeasure("tau", "rank correlation of attention", ("tau", "tau_defined"), None),
    AttentionMeasure("mass_sos", "attention to <sos>", ("sos", "tokens")),
    AttentionMeasure("mass_eos", "attention to <eos>", ("eos", "tokens")),
    AttentionMeasure("mass_punctuation", "attention to punctuation", ("punctuation", "tokens")),
)
