"""Word alignments from attention weights, and the alignment error rate of the weights themselves."""

import math
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from seq2seq_lab.data.corpus import Gold
from seq2seq_lab.errors import UserError, require
from seq2seq_lab.metrics.alignment import AlignmentErrorRate, Link, WordLinks, read
from seq2seq_lab.metrics.base import Array

Weights = npt.NDArray[np.floating[Any]]

Null = Literal["drop", "allow"]
Reading = Literal["emit", "read"]

RULES: dict[Null, str] = {
    "drop": "The columns of <sos> and <eos> are dropped, and every word is linked.",
    "allow": "A word whose largest weight is on <sos> or <eos> has no link.",
}


def word_weights(words: WordLinks, weights_TS: Weights, reading: Reading = "emit") -> Weights:
    """Return the weights between words, with those of `<sos>` and `<eos>`: [target words, source words + 2].

    Args:
        words: the words of the sentence pair and their tokens.
        weights_TS: weights between tokens; `<sos>` and `<eos>` are the first and the last column, `<eos>` the last row.
        reading: `emit`: row t computed output t. `read`: the row of output t is row t + 1, the step that reads it.
    """
    require(reading in get_args(Reading), "reading", reading, "emit, read")
    return words.join(read(weights_TS) if reading == "read" else weights_TS)


def argmax_links(weights_WS: Weights, null: Null = "drop") -> set[Link]:
    """Return the (source word, target word) link of each target word to the source word of highest weight.

    Args:
        weights_WS: see `word_weights`. A row of zeros, that of a word without tokens, has no link. Of equal weights, the
            first word has the link.
        null: `drop`: the columns of `<sos>` and `<eos>` are dropped. `allow`: a word has no link if one of them has its
            largest weight.
    """
    inner_WS = weights_WS[:, 1:-1]
    if inner_WS.shape[1] == 0:
        return set()
    best_W = inner_WS.argmax(axis=1)
    return {(int(best_W[word]), int(word)) for word in np.flatnonzero(_linked(weights_WS, null))}


def threshold_links(
    weights_WS: Weights, threshold: float, null: Null = "drop", largest: float = 1.0
) -> set[Link]:
    """Return the (source word, target word) links with a weight of at least `threshold`.

    Args:
        weights_WS, null: see `argmax_links`.
        threshold: above 0 and at most `largest`.
        largest: that of any weight; infinity for scores without a limit.

    Raises:
        UserError: the threshold is out of range.
    """
    check_threshold(threshold, largest)
    links_WS = (weights_WS[:, 1:-1] >= threshold) & _linked(weights_WS, null)[:, None]
    return {(int(source), int(target)) for target, source in np.argwhere(links_WS)}


def check_threshold(threshold: float, largest: float) -> None:
    """Refuse a threshold that is out of range; see `threshold_links`."""
    if not 0 < threshold <= largest:
        limit = "" if math.isinf(largest) else f" and at most {largest:g}"
        raise UserError(f"threshold={threshold}: give a number above 0{limit}.")


def _linked(weights_WS: Weights, null: Null) -> npt.NDArray[np.bool_]:
    """Return which target words may have links."""
    require(null in get_args(Null), "null", null, "drop, allow")
    linked_W: npt.NDArray[np.bool_] = (weights_WS != 0).any(axis=1)
    if null == "allow":
        linked_W &= weights_WS[:, 1:-1].max(axis=1, initial=0) >= weights_WS[:, [0, -1]].max(axis=1)
    return linked_W


def soft_link_counts(weights_WS: Weights, gold: Gold) -> tuple[float, float, float, int]:
    """Return Σ α·S, Σ α·P, Σ α and |S| of one sentence pair, for sure gold links S and possible ones P ⊇ S.

    The arguments are as for `argmax_links`; the columns of `<sos>` and `<eos>` are dropped. The sums over sentences are the
    argument of `soft_alignment_error_rate`.
    """
    inner_WS = weights_WS[:, 1:-1].astype(np.float64)
    size = (len(gold.target_words), len(gold.source_words))
    assert inner_WS.shape == size, f"weights {inner_WS.shape}, gold {size}"
    sure, more = (
        sum(float(inner_WS[target, source]) for source, target in links)
        for links in (gold.links, gold.possible - gold.links)
    )
    return sure, sure + more, float(inner_WS.sum()), len(gold.links)


def soft_alignment_error_rate(totals_K: Array) -> float:
    """Return 1 − (Σ α·S + Σ α·P) / (Σ α + |S|): Tu et al. 2016 (arXiv:1601.04811), section 5.3; see `soft_link_counts`."""
    return AlignmentErrorRate().value(totals_K)
