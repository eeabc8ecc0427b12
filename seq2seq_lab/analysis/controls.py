"""The alignment error rate of a model's attention beside those of controls that know less than the model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seq2seq_lab.analysis.align import Extraction, attention_of_batches
from seq2seq_lab.analysis.extraction import Null, soft_link_counts, word_weights
from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.analysis.ibm1 import Words, train_ibm1
from seq2seq_lab.data.alignment_files import alignment_words
from seq2seq_lab.data.corpus import Gold, ParallelText
from seq2seq_lab.metrics.alignment import (
    AlignmentErrorRate,
    diagonal_links,
    head_links,
    link_counts,
    oracle_links,
)
from seq2seq_lab.metrics.base import Array
from seq2seq_lab.metrics.measurement import CONFIDENCE_SAMPLES
from seq2seq_lab.metrics.significance import Clusters, confidence_interval
from seq2seq_lab.models.attention.base import BaseAttention
from seq2seq_lab.models.decoders.transformer import CrossAttention
from seq2seq_lab.models.seq2seq import EncodedModel

DRAWS = 3  # of random parameters


@dataclass(frozen=True)
class AlignmentError:
    """The AER of one set of weights.

    Attributes:
        weights: "model", "random parameters" (mean of `DRAWS` draws), "uniform", "diagonal", "IBM model 1" or "oracle".
        rows: the kind of links of `metrics.alignment.best_rows`; empty for weights that do not come from a model.
        aer: with half the width of its 95% interval (bootstrap over sentences). Of uniform weights that of random links.
        soft: the AER of the weights instead of links; None for weights that do not come from attention.
    """

    weights: str
    rows: str
    aer: float
    confidence: float | None
    soft: float | None


def alignment_errors(
    model: Any,
    random_models: Sequence[Any],
    forced: Forced,
    *,
    gold: Sequence[Gold],
    train: tuple[Words, Words] | None = None,
    null: Null = "drop",
) -> Iterator[AlignmentError]:
    """Yield the AER of the model's attention, of each layer and both rows, and of the controls.

    Args:
        random_models: the model with random parameters of attention; see `with_random_attention`.
        train: the words of the sources and of the targets from which IBM model 1 is trained; None to leave it out.
        null: of the links of the model and of random parameters; see `extraction.argmax_links`.

    Raises:
        UserError: the model has no attention to words.
    """
    layers, _ = model.decoder.heads
    for name, models in (("model", [model]), ("random parameters", random_models)):
        for layer in range(layers) if layers else (None,):
            for reading in ("emit", "read"):
                extraction = Extraction(layer=layer, reading=reading, null=null)
                counts = [_counts(one, forced, gold, extraction) for one in models]
                if counts:
                    hard, soft = (np.sum(rows, axis=0) for rows in zip(*counts, strict=True))
                    yield _error(name, _rows_of(layer, reading), hard, soft, forced.clusters_N)
    uniform = np.array([soft_link_counts(np.ones(_shape(one)) / len(one.source_words), one) for one in gold])
    yield _error("uniform", "", uniform, uniform, forced.clusters_N)
    baselines = {"diagonal": [*map(diagonal_links, gold)]}
    if train is not None:
        words = [one.source_words for one in gold], [one.target_words for one in gold]
        baselines["IBM model 1"] = train_ibm1(*train).align(*words)
    for name, links in {**baselines, "oracle": [*map(oracle_links, gold)]}.items():
        yield _error(name, "", np.array([*map(link_counts, links, gold)]), None, forced.clusters_N)


def training_words(text: ParallelText) -> tuple[Words, Words]:
    """Return the words of the sources and of the targets: those of the gold alignments, else the text between spaces."""
    if text.gold is not None:
        return [one.source_words for one in text.gold], [one.target_words for one in text.gold]
    return [*map(alignment_words, text.source)], [*map(alignment_words, text.target)]


def with_random_attention(model: Any, initial: Any) -> Any:
    """Return a model with the parameters of another one where its attention weights are computed; None without any.

    Args:
        model: the trained model.
        initial: the same model with random weights; its other parameters are replaced.
    """
    random = {
        f"{name}.{parameter}"
        for name, module in initial.named_modules()
        if isinstance(module, BaseAttention | CrossAttention)
        for parameter, _ in module.named_parameters()
        if not parameter.startswith(("value.", "output.")) or isinstance(module, BaseAttention)
    }
    if not random:
        return None
    own = initial.state_dict()
    initial.load_state_dict({**model.state_dict(), **{name: own[name] for name in random}})
    return initial.eval()


def _counts(model: Any, forced: Forced, gold: Sequence[Gold], extraction: Extraction) -> tuple[Array, Array]:
    """Return the `link_counts` and the `soft_link_counts` of each pair."""
    assert forced.source_tokenizer is not None
    hard, soft = np.zeros((2, len(gold), 4))
    own = replace(forced, read=lambda batch: EncodedModel(model, batch)(batch, batch.inputs_BT))
    for index, weights_BTS in attention_of_batches(model, own, extraction):
        for weights_TS, i in zip(weights_BTS, index, strict=True):
            words = forced.word_links(i, forced.source_tokenizer.spans(forced.sources[i]), gold[i])
            rows, columns = words.shape
            weights_WS = word_weights(words, weights_TS[:rows, :columns], extraction.reading)
            hard[i] = link_counts(extraction.links(weights_WS), gold[i])
            soft[i] = soft_link_counts(weights_WS, gold[i])
    return hard, soft


def _rows_of(layer: int | None, reading: str) -> str:
    if layer is None:
        return "attention" if reading == "emit" else reading
    return head_links(layer, None, "" if reading == "emit" else reading)


def _shape(gold: Gold) -> tuple[int, int]:
    return len(gold.target_words), len(gold.source_words) + 2


def _error(weights: str, rows: str, hard: Array, soft: Array | None, clusters_N: Clusters) -> AlignmentError:
    value = AlignmentErrorRate().value
    half = confidence_interval(value, hard, clusters_N, CONFIDENCE_SAMPLES)
    return AlignmentError(
        weights, rows, value(hard.sum(0)), half, None if soft is None else value(soft.sum(0))
    )
