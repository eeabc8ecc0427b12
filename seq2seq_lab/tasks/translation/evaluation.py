"""Scoring a translation model on a split."""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import numpy.typing as npt
import torch

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.batching import BatchMaker, plan_evaluation
from seq2seq_lab.data.corpus import UNKNOWN, ParallelText
from seq2seq_lab.data.near_duplicates import SIMILARITIES
from seq2seq_lab.data.text import one_line
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import TokenizerPair
from seq2seq_lab.data.words import words
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.accuracy import ExactMatch
from seq2seq_lab.metrics.alignment import (
    AlignmentErrorRate,
    Counts,
    Link,
    WordLinks,
    diagonal_links,
    head_links,
    link_counts,
    oracle_links,
    replace_unknown,
    word_spans,
)
from seq2seq_lab.metrics.base import Array, Grouping, Metric, measure
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.metrics.degeneration import DecodedOutputs
from seq2seq_lab.metrics.loss import MeanLoss, Perplexity
from seq2seq_lab.metrics.registry import (
    ALIGNMENT_METRICS,
    DECODING_METRICS,
    TEXT_METRICS,
    UNKNOWN_REPLACED,
)
from seq2seq_lab.metrics.segmentation import SPACED, Segmentation
from seq2seq_lab.metrics.texts import References, TextOutputs, length_groups
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.seq2seq import EncodedModel, Seq2Seq
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.search.base import Hypothesis, Search
from seq2seq_lab.tasks import base
from seq2seq_lab.tasks.decoded import (
    Ending,
    WorstOutput,
    attend_again,
    ending,
    endings,
    repeats_of,
    worst_outputs,
)
from seq2seq_lab.tasks.translation import loss

log = logging.getLogger(__name__)

LOSSES = ("teacher_forced", "free_running")


@dataclass(frozen=True, slots=True)
class TranslationSplit:
    """A split to score.

    Attributes:
        prefix: prefix of its metrics: `val`, `test` or `test/NAME`.
        target_language: the code of the target language; None if it is not known.
        segmentation: how the references are cut into words.
    """

    prefix: str
    text: ParallelText
    tokens: TokenizedText
    target_language: str | None = None
    segmentation: Segmentation = SPACED

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
    """

    text: ParallelText
    losses: Mapping[str, Array]
    alignments: Mapping[str, Array]


PRIMARY = "bleu"
METRICS: tuple[Metric, ...] = (
    *TEXT_METRICS,
    *DECODING_METRICS,
    *ALIGNMENT_METRICS,
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
        lengths = source_lengths_in_words(outputs.text)
        return length_groups([lengths[pair] for pair in outputs.references.pairs], length_bounds)

    return (
        Grouping("length", "source length in words", Bleu(), by_length),
        BY_PHENOMENON,
        BY_SIMILARITY,
    )


def _by_phenomenon(outputs: TranslationOutputs) -> Mapping[str, Sequence[int]] | None:
    if outputs.text.phenomena is None:
        return None
    groups: dict[str, list[int]] = {}
    for number, pair in enumerate(outputs.references.pairs):
        for name in outputs.text.phenomena[pair]:
            groups.setdefault(name, []).append(number)
    return dict(sorted(groups.items()))


def _by_similarity(outputs: TranslationOutputs) -> Mapping[str, Sequence[int]] | None:
    labels = outputs.text.similarity
    if labels is None:
        return None
    groups: dict[str, list[int]] = {label: [] for label in SIMILARITIES}
    for number, pair in enumerate(outputs.references.pairs):
        groups[labels[pair]].append(number)
    groups = {label: numbers for label, numbers in groups.items() if numbers}
    return groups if len(groups) > 1 else None


BY_SIMILARITY = Grouping(
    "similarity", "similarity of the source to those in training", Bleu(), _by_similarity, ordered=False
)
BY_PHENOMENON = Grouping("phenomenon", "phenomenon", ExactMatch(), _by_phenomenon, ordered=False)


@dataclass(frozen=True)
class Evaluation(base.Evaluation):
    """The result of scoring a split.

    Attributes:
        translations: plain text in the order of the split.
        samples: the numbers of the sentences that the report of a validation shows.
        hypotheses: the hypotheses of the sentences whose attention is kept, among them the samples.
        scored_lines: in the final evaluation the hypotheses and references of each kind of score; see `TextOutputs.lines`.
        worst: in the final evaluation the worst outputs, the worst first; their hypotheses are kept.
    """

    translations: list[str]
    samples: Sequence[int] = ()
    hypotheses: dict[int, Hypothesis] = field(default_factory=dict)
    scored_lines: dict[str, list[list[str]]] = field(default_factory=dict)
    worst: Sequence[WorstOutput] = ()


@dataclass(slots=True)
class _Share:
    """The results of one rank: summed losses, and results of sentences by their numbers in the split.

    `links` has the `link_counts` by the kind of links, `endings` how the search ended each translation.
    """

    losses: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LOSSES, 0.0))
    tokens: int = 0
    translations: dict[int, str] = field(default_factory=dict)
    endings: dict[int, Ending] = field(default_factory=dict)
    replaced: dict[int, str] = field(default_factory=dict)
    kept: dict[int, Hypothesis] = field(default_factory=dict)
    links: dict[str, dict[int, Counts]] = field(default_factory=lambda: defaultdict(dict))


class TranslationEvaluator:
    """Scores a model on a split.

    Each rank translates its share of the batches; all ranks return the same evaluation.

    Args:
        replace_unknown: score the translations a second time, under other names, with each unknown word (`UNKNOWN`)
            replaced by the source token of highest attention weight.
        groupings: the metrics by group of sentences.
        multi_reference: score each source sentence once, against the references of all its pairs; see `References`.
        metrics: see `METRICS`.
        also: names of metrics of the final evaluation to compute at each validation.
        samples: the numbers of the sentences to show, whose hypotheses are kept with their attention weights.
        kept_at_end: the numbers of further sentences whose hypotheses are kept in the final evaluation.
    """

    def __init__(
        self,
        model: Seq2Seq | Ensemble,
        split: TranslationSplit,
        tokenizers: TokenizerPair,
        search: Search,
        *,
        batch_size: int,
        groupings: Sequence[Grouping],
        compute: Compute,
        replace_unknown: bool = False,
        multi_reference: bool = False,
        metrics: Sequence[Metric] = METRICS,
        also: Collection[str] = (),
        samples: Sequence[int] = (),
        kept_at_end: Collection[int] = (),
    ) -> None:
        self.model = model
        self.samples = samples
        self.kept_at_end = {*samples, *kept_at_end}
        self.replace_unknown = replace_unknown
        self.split = split
        self.tokenizers = tokenizers
        self.search = search
        self.compute = compute
        layers, heads = model.decoder.heads if isinstance(model, Seq2Seq) and split.text.gold else (0, 0)
        self._heads = [*product(range(layers), range(heads))]
        self.metrics = (
            *metrics,
            *(UNKNOWN_REPLACED if replace_unknown else ()),
            *(AlignmentErrorRate(head_links(*head)) for head in self._heads),
        )
        self.groupings = groupings
        self.also = also
        text, ranks = split.text, compute.ranks
        self._plan = plan_evaluation(split.tokens, batch_size)[ranks.rank :: ranks.size]
        self.make_batch = BatchMaker(split.tokens, compute.device)
        self._batches = [*map(self.make_batch, self._plan)]
        self._gold = _GoldAlignments(text, tokenizers) if text.gold else None
        self._references = split.references(multi_reference)
        self._reference_repeats = repeats_of(split.tokens.target)
        ambiguous = sum(UNKNOWN in line for line in text.target)
        if ambiguous and ranks.main:
            log.warning(
                "%s references of %s contain %s, which marks an unknown word in translations. Such a word may count as "
                "correct there; a tokenizer without unknown words (tokenizer=bpe) avoids this.",
                ambiguous,
                split.prefix,
                UNKNOWN,
            )

    @torch.no_grad()  # not inference_mode, under which autocast casts every weight again at every step
    def __call__(self, final: bool = False, counted: base.Counted | None = None) -> Evaluation:
        """Score the split.

        Args:
            final: add what `measure` adds to the final evaluation.
            counted: called after each batch with the number of finished batches and of all batches of this rank.

        Raises:
            UserError: unknown words are to be replaced, and the model has no attention.
        """
        self.model.eval()
        share, kept = _Share(), self.kept_at_end if final else self.samples
        for number, (batch, index_B) in enumerate(zip(self._batches, self._plan, strict=True), start=1):
            self._score(batch, index_B.tolist(), kept, share)
            if final and self._heads:
                self._score_heads(batch, index_B.tolist(), share)
            if counted is not None:
                counted(number, len(self._batches))
        shares = self.compute.ranks.gather(share)
        return self.compute.ranks.broadcast(lambda: self._evaluation(shares, final))

    def _score(self, batch: Batch, index: Sequence[int], kept: Collection[int], share: _Share) -> None:
        """Translate a batch and add its results to a rank's share."""
        with evaluation_context(batch, self.compute.precision, self.compute.device):
            model = EncodedModel(self.model, batch)
            teacher_forced, weights_BTS = loss.teacher_forced(model, batch, self._gold is not None)
            free_running = loss.free_running(model, batch)
            attention = self.replace_unknown or not set(index).isdisjoint(kept)
            hypotheses = self.search(model, batch, attention)
        # Read after the search, which waits for the device anyway.
        share.losses["teacher_forced"] += float(to_host(teacher_forced))
        share.losses["free_running"] += float(to_host(free_running))
        share.tokens += batch.target_tokens
        for i, (hypothesis, *_) in zip(index, hypotheses, strict=True):
            share.translations[i] = self.text_of(hypothesis)
            share.endings[i] = ending(hypothesis)
            if self.replace_unknown:
                share.replaced[i] = replaced(hypothesis, self.tokenizers, self.split.text.source[i])
            if i in kept:
                share.kept[i] = hypothesis
        if self._gold is not None and weights_BTS is not None:
            share.links["attention"] |= self._gold.counts(index, to_host(weights_BTS.float()))

    def _score_heads(self, batch: Batch, index: Sequence[int], share: _Share) -> None:
        """Add the links from the attention of each head, under teacher forcing, to a rank's share."""
        assert isinstance(self.model, Seq2Seq)
        assert self._gold is not None
        with evaluation_context(batch, self.compute.precision, self.compute.device):
            maps_BLATS = self.model.attention_maps(batch, batch.inputs_BT)["cross"]
        maps = to_host(maps_BLATS.float())
        for layer, head in self._heads:
            share.links[head_links(layer, head)] |= self._gold.counts(index, maps[:, layer, head])

    def _evaluation(self, shares: Sequence[_Share], final: bool) -> Evaluation:
        """Merge the ranks' shares and compute the metrics."""
        outputs = self._outputs(shares)
        hypotheses = {i: hypothesis for share in shares for i, hypothesis in share.kept.items()}
        worst = worst_outputs(outputs) if final else []
        hypotheses |= attend_again(self, worst, outputs.hypotheses)
        measurement = measure(
            self.metrics,
            outputs,
            clusters=self._references.clusters,
            examples=self._references.examples,
            groupings=self.groupings,
            final=final,
            also=self.also,
        )
        return Evaluation(
            values={f"{self.split.prefix}/{name}": value for name, value in measurement.values.items()},
            measurement=measurement,
            translations=[*outputs.hypotheses],
            samples=self.samples,
            hypotheses=hypotheses,
            scored_lines=scored_lines(outputs) if final else {},
            worst=worst,
        )

    def text_of(self, hypothesis: Hypothesis) -> str:
        """Return a translation in plain text."""
        return one_line(self.tokenizers.target.decode(hypothesis.tokens))

    def _outputs(self, shares: Sequence[_Share]) -> TranslationOutputs:
        text, references, language = self.split.text, self._references, self.split.target_language
        numbers = range(len(text))
        translated = {i: line for share in shares for i, line in share.translations.items()}
        unknown_replaced = None
        if self.replace_unknown:
            lines = {i: line for share in shares for i, line in share.replaced.items()}
            unknown_replaced = TextOutputs([lines[i] for i in numbers], references, language)
        alignments: dict[str, Array] = {}
        kinds = {kind: [share.links[kind] for share in shares] for kind in shares[0].links}
        links = {kind: {i: one for part in parts for i, one in part.items()} for kind, parts in kinds.items()}
        if text.gold is not None and any(
            predicted for _, _, predicted, _ in links.get("attention", {}).values()
        ):
            rows = {
                **{kind: [counts[i] for i in numbers] for kind, counts in links.items()},
                "oracle": [link_counts(oracle_links(gold), gold.links) for gold in text.gold],
                "diagonal": [link_counts(diagonal_links(gold), gold.links) for gold in text.gold],
            }
            alignments = {kind: references.sum_of_scored(np.array(counts)) for kind, counts in rows.items()}
        return TranslationOutputs(
            hypotheses=[translated[i] for i in numbers],
            references=references,
            language=language,
            unknown_replaced=unknown_replaced,
            endings=endings((share.endings for share in shares), self._reference_repeats),
            text=text,
            losses={
                kind: np.array([[share.losses[kind], share.tokens] for share in shares]) for kind in LOSSES
            },
            alignments=alignments,
        )


def scored_lines(outputs: TextOutputs) -> dict[str, list[list[str]]]:
    """Return the lines of each kind of score, by the kind as in the names of files; see `TextOutputs.lines`."""
    kinds = {"": outputs}
    if outputs.unknown_replaced is not None:
        kinds[".unknown_replaced"] = outputs.unknown_replaced
    lines = {kind: texts.lines for kind, texts in kinds.items()}
    if outputs.moses:
        lines |= {f"{kind}.lc.tok": texts.lowercased_tokenised.lines for kind, texts in kinds.items()}
    return lines


class _GoldAlignments:
    """The gold links of a split, and how to read links from the model's attention."""

    def __init__(self, text: ParallelText, tokenizers: TokenizerPair) -> None:
        assert text.gold is not None
        self._gold: list[set[Link]] = []
        self._links: list[WordLinks] = []
        for source, target, gold in zip(text.source, text.target, text.gold, strict=True):
            self._gold.append(set(gold.links))
            self._links.append(
                WordLinks(
                    tokenizers.source.spans(source),
                    tokenizers.target.spans(target),
                    word_spans(source, gold.source_words),
                    word_spans(target, gold.target_words),
                )
            )

    def counts(self, index: Sequence[int], weights_BTS: npt.NDArray[np.float32]) -> dict[int, Counts]:
        """Return the `link_counts` of the sentences of a batch by number, for its attention under teacher forcing."""
        counts = {}
        for i, weights_TS in zip(index, weights_BTS, strict=True):
            rows, columns = self._links[i].shape
            counts[i] = link_counts(self._links[i].predict(weights_TS[:rows, :columns]), self._gold[i])
        return counts


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
    return one_line(replace_unknown(hypothesis.weights_TS, tokenizers, line, hypothesis.tokens))


def source_lengths_in_words(text: ParallelText) -> list[int]:
    """Return the lengths of the source sentences in words; with gold alignments, without punctuation marks."""
    if text.gold is not None:
        return [sum(any(map(str.isalnum, word)) for word in gold.source_words) for gold in text.gold]
    return [len(words(line)) for line in text.source]


def choose_samples(text: ParallelText, count: int) -> list[int]:
    """Return the numbers of the sentences whose translation and attention are shown at each validation.

    They have 6 to 14 words. With gold alignments, they are those whose word order differs most from the source's, because
    attention shows reordering; otherwise they are evenly spaced.
    """
    lengths = source_lengths_in_words(text)
    candidates = [i for i, length in enumerate(lengths) if 6 <= length <= 14] or list(range(len(lengths)))
    if text.gold is not None:
        gold = text.gold
        candidates.sort(key=lambda i: -_inversions(gold[i].links) / lengths[i])
        return candidates[:count]
    return candidates[:: max(1, len(candidates) // max(1, count))][:count]


def _inversions(links: frozenset[tuple[int, int]]) -> int:
    """Return the number of pairs of target words whose source words are in the opposite order."""
    linked: dict[int, list[int]] = {}
    for source, target in links:
        linked.setdefault(target, []).append(source)
    positions = [sum(sources) / len(sources) for _, sources in sorted(linked.items())]
    return sum(first > second for n, first in enumerate(positions) for second in positions[n + 1 :])
