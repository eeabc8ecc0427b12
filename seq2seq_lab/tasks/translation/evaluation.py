"""Scoring a translation model on a split."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from seq2seq_lab.analysis.extraction import soft_link_counts
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.batching import BatchMaker, plan_evaluation
from seq2seq_lab.data.corpus import UNKNOWN, Gold, ParallelText, word_spans
from seq2seq_lab.data.near_duplicates import SIMILARITIES
from seq2seq_lab.data.text import one_line
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import TokenizerPair
from seq2seq_lab.data.words import words
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.accuracy import ExactMatch
from seq2seq_lab.metrics.alignment import (
    AER_SOFT,
    AlignmentErrorRate,
    Counts,
    Link,
    Span,
    WordLinks,
    copied_counts,
    diagonal_links,
    head_links,
    link_counts,
    oracle_links,
    read,
    replace_unknown,
)
from seq2seq_lab.metrics.attention import ATTENTION_MEASURES, Units, measures
from seq2seq_lab.metrics.base import Array, Grouping, Metric
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.metrics.degeneration import DecodedOutputs
from seq2seq_lab.metrics.loss import MeanLoss, Perplexity
from seq2seq_lab.metrics.registry import (
    ALIGNMENT_METRICS,
    DECODING_METRICS,
    TEXT_METRICS,
    UNKNOWN_REPLACED,
)
from seq2seq_lab.metrics.texts import References, TextOutputs, length_groups, named_groups
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.search.base import Hypothesis
from seq2seq_lab.tasks.decoded import Decoded, DecodingEvaluator
from seq2seq_lab.tasks.splits import TextSplit

log = logging.getLogger(__name__)

KEPT_SPANS, KEPT_UNITS = 2**10, 2**15  # sentences: several batches, and a usual validation split
MEASURES = "measures"  # the kind of the sums of `metrics.attention.measures`


@dataclass(frozen=True)
class TranslationSplit(TextSplit[ParallelText, TokenizedText]):
    """A split of sentence pairs.

    Attributes:
        samples: the indices of the examples shown at a validation; None for those that the task chooses.
    """

    samples: Sequence[int] | None = None

    def references(self, multiple: bool) -> References:
        """Return the references.

        Args:
            multiple: score each source sentence once; see `References`.
        """
        text = self.text
        return References(text.target, text.source, multiple, text.clusters, self.segmentation)


@dataclass(frozen=True, kw_only=True)
class TranslationOutputs(DecodedOutputs):
    """The outputs from which the metrics of translation are computed.

    Attributes:
        text: the plain text of the split, with gold alignments and phenomena if the data set has them.
        losses: see `Losses`.
        alignments: see `Alignments`.
        measures: see `MeasuredAttention`.
    """

    text: ParallelText
    losses: Mapping[str, Array]
    alignments: Mapping[str, Array]
    measures: Array | None = None


PRIMARY = "bleu"
METRICS: tuple[Metric, ...] = (
    *TEXT_METRICS,
    *DECODING_METRICS,
    *ALIGNMENT_METRICS,
    *ATTENTION_MEASURES,
    MeanLoss("teacher_forced", "teacher-forced loss"),
    MeanLoss("free_running", "free-running loss"),
    Perplexity("teacher_forced", "teacher-forced perplexity"),
    Perplexity("free_running", "free-running perplexity"),
)


def groupings(length_bounds: Sequence[int]) -> tuple[Grouping, ...]:
    """Return the metrics by group of sentences.

    Args:
        length_bounds: see `length_groups`, in words of the source.
    """

    def by_length(outputs: TranslationOutputs) -> Mapping[str, Sequence[int]]:
        lengths = [source_length_in_words(outputs.text, pair) for pair in outputs.references.pairs]
        return length_groups(lengths, length_bounds)

    return (
        Grouping("length", "source length in words", Bleu(), by_length),
        BY_PHENOMENON,
        BY_SIMILARITY,
        *BY_EXACT_LENGTH,
    )


def _by_phenomenon(outputs: TranslationOutputs) -> Mapping[str, Sequence[int]] | None:
    phenomena = outputs.text.phenomena
    return None if phenomena is None else named_groups(phenomena[pair] for pair in outputs.references.pairs)


def _by_exact_length(outputs: TranslationOutputs, side: int) -> Mapping[str, Sequence[int]] | None:
    if outputs.text.lengths is None:
        return None
    groups: dict[int, list[int]] = {}
    for index, pair in enumerate(outputs.references.pairs):
        groups.setdefault(outputs.text.lengths[pair][side], []).append(index)
    return {str(length): groups[length] for length in sorted(groups)}


def _by_similarity(outputs: TranslationOutputs) -> Mapping[str, Sequence[int]] | None:
    labels = outputs.text.similarity
    if labels is None:
        return None
    groups: dict[str, list[int]] = {label: [] for label in SIMILARITIES}
    for index, pair in enumerate(outputs.references.pairs):
        groups[labels[pair]].append(index)
    groups = {label: indices for label, indices in groups.items() if indices}
    return groups if len(groups) > 1 else None


BY_SIMILARITY = Grouping(
    "similarity", "similarity of the source to those in training", Bleu(), _by_similarity, ordered=False
)
BY_EXACT_LENGTH = tuple(
    Grouping(
        f"{side}_length", f"{side} length in tokens", ExactMatch(), partial(_by_exact_length, side=number)
    )
    for number, side in enumerate(("source", "target"))
)
BY_PHENOMENON = Grouping("phenomenon", "phenomenon", ExactMatch(), _by_phenomenon, ordered=False)


class TranslationEvaluator(DecodingEvaluator):
    """Scores a model on a split.

    Args:
        replace_unknown: score the translations a second time, under other names, with each unknown word (`UNKNOWN`)
            replaced by the source token of highest attention weight.
        multi_reference: score each source sentence once, against the references of all its pairs; see `References`.
        metrics: see `METRICS`.
        settings: see `DecodingEvaluator`.

    Raises:
        UserError: when it is called: unknown words are to be replaced, and the model has no attention.
    """

    split: TranslationSplit

    def __init__(
        self,
        model: Seq2Seq | Ensemble,
        split: TranslationSplit,
        tokenizers: TokenizerPair,
        compute: Compute,
        *,
        batch_size: int,
        replace_unknown: bool = False,
        multi_reference: bool = False,
        metrics: Sequence[Metric] = METRICS,
        **settings: Any,
    ) -> None:
        text = split.text
        layers, heads = model.decoder.heads if isinstance(model, Seq2Seq) and text.gold else (0, 0)
        self._heads = [*product(range(layers), (None, *range(heads)))]
        super().__init__(
            model,
            split,
            compute,
            plan=plan_evaluation(split.tokens, batch_size),
            tokenizer=tokenizers.target,
            batches=BatchMaker(split.tokens, compute.device),
            targets=split.tokens.target,
            references=split.references(multi_reference),
            reads_weights=model.attends,
            searches_with_weights=replace_unknown,
            metrics=(
                *metrics,
                *(UNKNOWN_REPLACED if replace_unknown else ()),
                *(
                    AlignmentErrorRate(head_links(*head, reading))
                    for head in self._heads
                    for reading in ("", "read")
                ),
            ),
            **settings,
        )
        self.tokenizers, self.replace_unknown = tokenizers, replace_unknown
        spans = _SplitSpans(text, tokenizers)
        self._gold = _GoldAlignments(text, spans) if text.gold else None
        self._units = _SplitUnits(text, spans)
        ambiguous = sum(UNKNOWN in line for line in text.target)
        if ambiguous and compute.ranks.main:
            log.warning(
                "%s references of %s contain %s, which marks an unknown word in translations. Such a word may count as "
                "correct there; a tokenizer without unknown words (tokenizer=bpe) avoids this.",
                ambiguous,
                split.prefix,
                UNKNOWN,
            )

    def count(
        self, index: Sequence[int], batch: Batch, weights_BTS: Tensor | None, final: bool
    ) -> dict[str, Sequence[tuple[float, ...]]]:
        """Return the measures and the `link_counts` of the attention under teacher forcing, finally those of each head."""
        if weights_BTS is None or weights_BTS.shape[2] != max(batch.source_lengths):
            return {}  # no attention, or attention to the turns of a dialogue
        weights = to_host(weights_BTS.float())
        counts: dict[str, Sequence[tuple[float, ...]]] = {MEASURES: self._units.measures(index, weights)}
        if self._gold is None:
            return counts
        counts |= {
            "attention": self._gold.counts(index, weights),
            "read": self._gold.counts(index, read(weights)),
            "copied": self._gold.copied_counts(index, weights),
        }
        if final or AER_SOFT.name in self.also:
            counts["soft"] = self._gold.soft_counts(index, weights)
        if final and self._heads:
            with evaluation_context(batch, self.compute.precision, self.compute.device):
                maps_BLATS = self.model.attention_maps(batch, batch.inputs_BT)["cross"]
            maps = to_host(maps_BLATS.float())
            for layer, head in self._heads:
                weights = maps[:, layer].mean(1) if head is None else maps[:, layer, head]
                counts[head_links(layer, head)] = self._gold.counts(index, weights)
                counts[head_links(layer, head, "read")] = self._gold.counts(index, read(weights))
        return counts

    def text_of(self, i: int, hypothesis: Hypothesis) -> str:
        """See `DecodingEvaluator.text_of`."""
        tokenizer = self.tokenizers.for_source(self.split.text.source[i]).target
        return one_line(tokenizer.decode(hypothesis.tokens))

    def replaced(self, i: int, hypothesis: Hypothesis) -> str | None:
        """See `DecodingEvaluator.replaced`."""
        return (
            replaced(hypothesis, self.tokenizers, self.split.text.source[i]) if self.replace_unknown else None
        )

    def outputs(self, results: Sequence[Decoded]) -> TranslationOutputs:
        """See `SplitEvaluator.outputs`."""
        text, references, language = self.split.text, self.references, self.split.language
        alignments = self.counts(results)
        measured = alignments.pop(MEASURES, None)
        if text.gold is not None and "attention" in alignments and alignments["attention"][:, 2].any():
            for kind, links in (("oracle", oracle_links), ("diagonal", diagonal_links)):
                rows = np.array([link_counts(links(gold), gold) for gold in text.gold])
                alignments[kind] = references.sum_of_scored(rows)
        else:
            alignments = {}
        unknown_replaced = None
        if self.replace_unknown:
            lines = [one.replaced or "" for one in results]
            unknown_replaced = TextOutputs(lines, references, language)
        return TranslationOutputs(
            **self.decoded(results),
            language=language,
            unknown_replaced=unknown_replaced,
            text=text,
            alignments=alignments,
            measures=measured,
        )


class _SplitSpans:
    """The characters of the tokens of a split; those of the last batches are kept."""

    def __init__(self, text: ParallelText, tokenizers: TokenizerPair) -> None:
        self._text, self._tokenizers = text, tokenizers
        self._kept = lru_cache(KEPT_SPANS)(self._spans)

    def __getitem__(self, i: int) -> tuple[list[Span], list[Span]]:
        return self._kept(i)

    def _spans(self, i: int) -> tuple[list[Span], list[Span]]:
        source, target = self._tokenizers.source, self._tokenizers.target
        return source.spans(self._text.source[i]), target.spans(self._text.target[i])


class _SplitUnits:
    """The units of the tokens of a split; see `metrics.attention`."""

    def __init__(self, text: ParallelText, spans: _SplitSpans) -> None:
        self._text, self._spans = text, spans
        self._kept = lru_cache(KEPT_UNITS)(self._units)  # for the next validation

    def _units(self, i: int) -> tuple[Units, Units]:
        source, target = self._spans[i]
        return Units.of(self._text.source[i], source, 1), Units.of(self._text.target[i], target, 0)

    def measures(self, index: Sequence[int], weights_BTS: npt.NDArray[np.float32]) -> list[tuple[float, ...]]:
        """Return the `measures` of the sentences of a batch."""
        sources, targets = zip(*map(self._kept, index), strict=True)
        return [tuple(row) for row in measures(weights_BTS, sources, targets).tolist()]


class _GoldAlignments:
    """The gold links of a split, and the settings to read links from the model's attention."""

    def __init__(self, text: ParallelText, spans: _SplitSpans) -> None:
        assert text.gold is not None
        self._gold, self._spans = text.gold, spans
        self._words = [  # before training, because it checks them
            (word_spans(source, gold.source_words), word_spans(target, gold.target_words))
            for source, target, gold in zip(text.source, text.target, text.gold, strict=True)
        ]
        self._found: dict[int, WordLinks] = {}

    def _links(self, i: int) -> WordLinks:
        if i not in self._found:
            self._found[i] = WordLinks(*self._spans[i], *self._words[i])
        return self._found[i]

    def soft_counts(
        self, index: Sequence[int], weights_BTS: npt.NDArray[np.float32]
    ) -> list[tuple[float, ...]]:
        """Return the `soft_link_counts` of the sentences of a batch."""
        counts: list[tuple[float, ...]] = []
        for i, weights_TS in zip(index, weights_BTS, strict=True):
            links = self._links(i)
            rows, columns = links.shape
            counts.append(soft_link_counts(links.join(weights_TS[:rows, :columns]), self._gold[i]))
        return counts

    def counts(self, index: Sequence[int], weights_BTS: npt.NDArray[np.float32]) -> list[Counts]:
        """Return the `link_counts` of the sentences of a batch, for its attention under teacher forcing."""
        return [link_counts(*one) for one in self._predicted(index, weights_BTS)]

    def copied_counts(
        self, index: Sequence[int], weights_BTS: npt.NDArray[np.float32]
    ) -> list[tuple[int, int]]:
        """Return the `copied_counts` of the sentences of a batch, for its attention under teacher forcing."""
        return [copied_counts(*one) for one in self._predicted(index, weights_BTS)]

    def _predicted(
        self, index: Sequence[int], weights_BTS: npt.NDArray[np.float32]
    ) -> Iterator[tuple[set[Link], Gold]]:
        """Yield the predicted and the gold links of each sentence of a batch."""
        for i, weights_TS in zip(index, weights_BTS, strict=True):
            links = self._links(i)
            rows, columns = links.shape
            yield links.predict(weights_TS[:rows, :columns]), self._gold[i]


def replaced(hypothesis: Hypothesis, tokenizers: TokenizerPair, line: str) -> str:
    """Return a translation in plain text with each unknown word replaced by the source token of highest attention weight.

    Raises:
        UserError: the model has no attention.
    """
    if hypothesis.weights_TS is None:
        raise UserError(
            "replace_unknown (--replace-unknown) needs a model with attention: unknown words are replaced by the source "
            "word of highest attention weight. Leave it out."
        )
    if hypothesis.weights_TS.shape[1] != len(tokenizers.source.spans(line)) + 2:
        raise UserError(
            "replace_unknown (--replace-unknown) needs attention to words, and encoder.outputs=turns has none. Leave it out."
        )
    pair = tokenizers.for_source(line)
    return one_line(replace_unknown(hypothesis.weights_TS, pair, line, hypothesis.tokens))


def source_length_in_words(text: ParallelText, i: int) -> int:
    """Return the length of a source sentence in words; with gold alignments, without punctuation marks."""
    if text.gold is not None:
        return sum(any(map(str.isalnum, word)) for word in text.gold[i].source_words)
    return len(words(text.source[i]))


def choose_samples(text: ParallelText, count: int) -> list[int]:
    """Return the indices of the sentences whose translation and attention are shown at each validation.

    They have 6 to 14 words. With gold alignments, they are those whose word order differs most from the source's, because
    attention shows reordering; otherwise they are evenly spaced.
    """
    lengths = [source_length_in_words(text, i) for i in range(len(text))]
    candidates = [i for i, length in enumerate(lengths) if 6 <= length <= 14] or list(range(len(lengths)))
    if text.gold is not None:
        gold = text.gold
        candidates.sort(key=lambda i: -_inversions(gold[i].links) / max(1, lengths[i]))
        return candidates[:count]
    return candidates[:: max(1, len(candidates) // max(1, count))][:count]


def _inversions(links: frozenset[tuple[int, int]]) -> int:
    """Return the number of pairs of target words whose source words are in the opposite order."""
    linked: dict[int, list[int]] = {}
    for source, target in links:
        linked.setdefault(target, []).append(source)
    positions = [sum(sources) / len(sources) for _, sources in sorted(linked.items())]
    return sum(first > second for n, first in enumerate(positions) for second in positions[n + 1 :])
