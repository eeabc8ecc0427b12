"""Word alignments of given sentence pairs, from the attention or the attributions of a trained run."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seq2seq_lab.analysis.attributions import Floats, Options, attribute, check_methods
from seq2seq_lab.analysis.extraction import (
    Null,
    Reading,
    argmax_links,
    check_threshold,
    threshold_links,
    word_weights,
)
from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.analysis.questions import ask
from seq2seq_lab.errors import UserError, require
from seq2seq_lab.metrics.alignment import Link
from seq2seq_lab.runtime.device import to_host


@dataclass(frozen=True)
class Extraction:
    """How links are read from scores.

    Attributes:
        method: "attention", or another of `attributions.METHODS`.
        reading, null: see `extraction`; `reading` is for attention.
        threshold: link all words of at least this score; None: link each target word to the source word of highest score.
        layer, head: the cross-attention of this layer and head of a Transformer, from 0; without a head the mean over the
            heads of the layer, without both the weights that `predict` shows.
    """

    method: str = "attention"
    reading: Reading = "emit"
    null: Null = "drop"
    threshold: float | None = None
    layer: int | None = None
    head: int | None = None

    @property
    def largest(self) -> float:
        """The largest possible score."""
        return 1.0 if self.method == "attention" else math.inf

    def links(self, weights_WS: Floats) -> set[Link]:
        """Return the links of a sentence pair; see `extraction.argmax_links`."""
        if self.threshold is None:
            return argmax_links(weights_WS, self.null)
        return threshold_links(weights_WS, self.threshold, self.null, self.largest)


def alignments(model: Any, forced: Forced, extraction: Extraction) -> list[set[Link]]:
    """Return the (source word, target word) links of each pair; words are the text between spaces.

    Raises:
        UserError: the model has no such attention, the method is unknown, or the threshold is out of range.
    """
    check_methods([extraction.method])
    if extraction.threshold is not None:
        check_threshold(extraction.threshold, extraction.largest)
    if forced.source_tokenizer is None:
        raise UserError(
            "align needs a run with text as its source. Give a run of task=translation or task=dialogue."
        )
    if extraction.method != "attention":
        require(extraction.reading == "emit", "--reading", extraction.reading, "emit, except for attention")
        for name in ("layer", "head"):
            value = getattr(extraction, name)
            require(value is None, f"--{name}", value, "left out, except for attention")
        return [_by_attribution(model, forced, i, extraction) for i in range(len(forced.targets))]
    found: dict[int, set[Link]] = {}
    for index, weights_BTS in attention_of_batches(model, forced, extraction):
        for row, i in enumerate(index):
            words = forced.word_links(i, forced.source_tokenizer.spans(forced.sources[i]))
            rows, columns = words.shape
            weights_WS = word_weights(words, weights_BTS[row, :rows, :columns], extraction.reading)
            found[i] = extraction.links(weights_WS)
    return [found[i] for i in range(len(found))]


def attention_of_batches(model: Any, forced: Forced, extraction: Extraction) -> Any:
    """Yield (indices of the pairs, weights_BTS) of each batch."""
    of_head = extraction.layer is not None or extraction.head is not None
    if of_head:
        given = (extraction.layer, extraction.head)
        for name, value, count in zip(("--layer", "--head"), given, model.decoder.heads, strict=True):
            allowed = f"0 to {count - 1}" if count else "none: the model has no heads"
            require(value is None or value in range(count), name, value, allowed)
        require(
            extraction.layer is not None, "--head", extraction.head, "with --layer, the layer of the head"
        )
    for index, batch, _, weights_BTS in forced.readings():
        if weights_BTS is None:
            raise UserError("The model has no attention to words. Give another method: --method occlusion.")
        if of_head:
            maps_BATS = forced.cross_maps(model, batch)[:, extraction.layer]
            weights_BTS = maps_BATS.mean(1) if extraction.head is None else maps_BATS[:, extraction.head]
        yield index, to_host(weights_BTS.float())


def _by_attribution(model: Any, forced: Forced, i: int, extraction: Extraction) -> set[Link]:
    question = ask(model, forced, i)
    scores_TU = attribute(question, [extraction.method], Options())[extraction.method].scores_TU
    words = forced.word_links(i, question.spans)
    return extraction.links(words.join(np.asarray(scores_TU, np.float64)))


Combine = Callable[[set[Link], set[Link]], set[Link]]


def combined(
    forward: Sequence[set[Link]], backward: Sequence[set[Link]], combine: Combine
) -> list[set[Link]]:
    """Return one alignment of each pair from two directions.

    Args:
        backward: the links of a run from the target to the source language, as (target word, source word).
        combine: one of `symmetrization.SYMMETRIZATIONS`.
    """
    turned = [{(source, target) for target, source in links} for links in backward]
    return [combine(one, other) for one, other in zip(forward, turned, strict=True)]
