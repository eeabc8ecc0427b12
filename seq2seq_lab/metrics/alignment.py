"""Word alignments from attention weights, and the alignment error rate."""

import hashlib
import json
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from seq2seq_lab.data.corpus import Gold, ParallelText
from seq2seq_lab.data.words import words
from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.significance import ratio

if TYPE_CHECKING:
    from seq2seq_lab.data.tokenizers import TokenizerPair

Span: TypeAlias = tuple[int, int]
Link: TypeAlias = tuple[int, int]
Counts: TypeAlias = tuple[int, int, int, int]


def group_tokens(token_spans: Sequence[Span], words: Sequence[Span]) -> list[list[int]]:
    """Return for each word, given by its character span, the positions of the tokens that belong to it.

    A token belongs to the word with which it shares most characters, the first such word if there are several. A token
    that shares no character with any word, such as a space, belongs to none. The words are in the order of the text and
    do not overlap.
    """
    groups: list[list[int]] = [[] for _ in words]
    starts, ends = [start for start, _ in words], [end for _, end in words]
    for token, (start, end) in enumerate(token_spans):
        first, last = bisect_right(ends, start), bisect_left(starts, end)
        overlaps = [min(end, word_end) - max(start, word_start) for word_start, word_end in words[first:last]]
        best = max(overlaps, default=0)
        if best > 0:
            groups[first + overlaps.index(best)].append(token)
    return groups


def join_subwords(
    weights_TS: npt.NDArray[np.floating[Any]],
    source_groups: Sequence[Sequence[int]],
    target_groups: Sequence[Sequence[int]],
) -> npt.NDArray[np.floating[Any]]:
    """Return attention weights (target words, source words) from weights (target tokens, source tokens).

    A group holds the token positions of one word. The columns of a group are summed (attention given to any
    part is given to the word) and its rows averaged, so a row still sums to 1 where the groups leave out no
    column. A word without tokens gets zeros.
    """
    target_WT, source_WS = (
        _shares(target_groups, len(weights_TS)),
        _shares(source_groups, weights_TS.shape[1]),
    )
    return _mean_rows(target_WT) @ weights_TS @ source_WS.T


def _shares(groups: Sequence[Sequence[int]], tokens: int) -> npt.NDArray[np.float32]:
    """Return one row per word, with 1 at each of its tokens."""
    share_WT = np.zeros((len(groups), tokens), np.float32)
    for word, group in enumerate(groups):
        share_WT[word, list(group)] = 1
    return share_WT


def _mean_rows(share_WT: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    mean_WT: npt.NDArray[np.float32] = share_WT / np.maximum(share_WT.sum(axis=1, keepdims=True), 1)
    return mean_WT


class AttentionMap(NamedTuple):
    """The attention weights of one translation with the names of their rows and columns.

    Attributes:
        weights_TS: a row per target token, a column per source token. If the model attends to turns, a column per turn.
        source_tokens: the names of the columns, `<sos>` first and `<eos>` last. Text that the vocabulary lacks is followed
            by `UNKNOWN`.
        target_tokens: the names of the rows, `<eos>` last if it ended the tokens and they are not joined.
        source_spans: the (start, end) characters in the source of the columns between `<sos>` and `<eos>`.
        target_spans: the (start, end) characters in the output of the rows without `<eos>`.
        output: the translation as plain text.
    """

    weights_TS: npt.NDArray[np.floating[Any]]
    source_tokens: list[str]
    target_tokens: list[str]
    source_spans: list[Span]
    target_spans: list[Span]
    output: str


def attention_map(
    weights_TS: npt.NDArray[np.floating[Any]],
    tokenizers: "TokenizerPair",
    line: str,
    tokens: Sequence[int],
    join: bool,
) -> AttentionMap:
    """Return the attention weights of a hypothesis with the names of their rows and columns.

    Args:
        weights_TS: see `Hypothesis`. If the model attends to turns, there is a column per turn (`Tokenizer.units`); columns
            of 0 are added for `<sos>` and `<eos>`.
        line: the source sentence.
        tokens: the target ids without `<eos>`; the weights may have one more row, for `<eos>`.
        join: join the source tokens to units, and the target tokens to words; see `words`.
    """
    from seq2seq_lab.data.tokenizers import UNK  # imports the tokenizers library, which plots do not need

    source, target = tokenizers.source, tokenizers.target
    (ids,) = source.encode([line])
    source_spans, source_tokens = source.spans(line), source.tokens(ids)
    if UNK in ids:
        texts = source.marked_texts(line, source_spans)
        source_tokens = [
            text if token == UNK else name
            for text, token, name in zip(texts, ids, source_tokens, strict=True)
        ]
    output, target_spans = target.decode_spans(tokens)
    target_tokens = target.tokens(tokens) + ["<eos>"] * (len(weights_TS) - len(tokens))
    units = source.units(line)
    names = [text.strip() for text in source.marked_texts(line, units)]
    if weights_TS.shape[1] != len(source_spans) + 2:
        weights_TS = np.pad(weights_TS, ((0, 0), (1, 1)))
        source_spans, source_tokens = units, names
    if join:
        target_words = words(output, target_spans)
        groups = [[token + 1 for token in group] for group in group_tokens(source_spans, units)]
        groups = [[0], *groups, [weights_TS.shape[1] - 1]]
        weights_TS = join_subwords(weights_TS, groups, group_tokens(target_spans, target_words))
        source_spans, source_tokens = units, names
        target_spans, target_tokens = target_words, [output[start:end] for start, end in target_words]
    return AttentionMap(
        weights_TS, ["<sos>", *source_tokens, "<eos>"], target_tokens, source_spans, target_spans, output
    )


def replace_unknown(
    weights_TS: npt.NDArray[np.floating[Any]], tokenizers: "TokenizerPair", line: str, tokens: Sequence[int]
) -> str:
    """Return the text of a hypothesis with each unknown word replaced by the source token of highest attention weight.

    Jean et al. 2015 (arXiv:1412.2007), section 3.3, without a dictionary and without `<sos>` and `<eos>`. The arguments
    are those of `attention_map`.
    """
    from seq2seq_lab.data.tokenizers import UNK

    text, spans = tokenizers.target.decode_spans(tokens)
    source_spans = tokenizers.source.spans(line)
    for position in reversed(range(len(tokens))):
        if tokens[position] == UNK and source_spans:
            start, end = spans[position]
            copied = slice(*source_spans[int(weights_TS[position, 1:-1].argmax())])
            text = text[:start] + line[copied] + text[end:]
    return text


class WordLinks:
    """Predicts (source word, target word) links from the attention of one sentence pair under teacher forcing.

    Token weights are joined to words (`group_tokens`, `join_subwords`). Every target word is linked to the source word of
    highest weight, the first such word if there are several. A target word without tokens, because it shares its token with
    another word, has no link.

    Args:
        source_spans, target_spans: character spans of the tokens without `<sos>` and `<eos>`, as from `Tokenizer.spans`.
        source_words, target_words: character spans of the words.
    """

    def __init__(
        self,
        source_spans: Sequence[Span],
        target_spans: Sequence[Span],
        source_words: Sequence[Span],
        target_words: Sequence[Span],
    ) -> None:
        target_groups = group_tokens(target_spans, target_words)
        self._source_SW = _shares(group_tokens(source_spans, source_words), len(source_spans)).T
        self._target_WT = _mean_rows(_shares(target_groups, len(target_spans)))
        self._linked = [word for word, group in enumerate(target_groups) if group and source_words]

    @property
    def shape(self) -> tuple[int, int]:
        """The rows of the weights, with one for `<eos>`, and their columns, with one for `<sos>` and one for `<eos>`."""
        return self._target_WT.shape[1] + 1, len(self._source_SW) + 2

    def join(self, weights_TS: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
        """Return the weights between words, for weights of this `shape`: [target words, source words + 2].

        The first and the last column are those of `<sos>` and `<eos>`. A word without tokens has zeros.
        """
        inner_WS, rows_TS = self._between_words(weights_TS), weights_TS[:-1]
        sos_W1, eos_W1 = (self._target_WT @ rows_TS[:, [column]] for column in (0, -1))
        return np.concatenate([sos_W1, inner_WS, eos_W1], axis=1)

    def predict(self, weights_TS: npt.NDArray[np.floating[Any]]) -> set[Link]:
        """Return the links for weights of this `shape`, without the rows and columns of `<sos>` and `<eos>`."""
        weights_WS = self._between_words(weights_TS)
        if not self._linked:
            return set()
        chosen_W = weights_WS.argmax(axis=1).tolist()
        return {(chosen_W[word], word) for word in self._linked}

    def _between_words(self, weights_TS: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
        assert weights_TS.shape == self.shape, f"weights {weights_TS.shape}, expected {self.shape}"
        between: npt.NDArray[np.floating[Any]] = self._target_WT @ weights_TS[:-1, 1:-1] @ self._source_SW
        return between


def link_counts(predicted: Set[Link], gold: Gold) -> Counts:
    """Return |A∩S|, |A∩P|, |A| and |S| of one sentence, for predicted links A, sure gold links S and possible ones P ⊇ S."""
    sure = len(predicted & gold.links)
    possible = len(predicted & (gold.possible - gold.links))
    return sure, sure + possible, len(predicted), len(gold.links)


def copied_counts(predicted: Set[Link], gold: Gold) -> tuple[int, int]:
    """Return how many copied words of one sentence have a right predicted link, and the number of copied words.

    A target word is copied if a sure gold link is to the same word of the source; each such link of a word is right.
    """
    copied = {(i, k) for i, k in gold.links if gold.source_words[i] == gold.target_words[k]}
    return len({k for _, k in predicted & copied}), len({k for _, k in copied})


def oracle_links(gold: Gold) -> set[Link]:
    """Return the links of lowest AER with one link per target word.

    Their AER is above 0 if target words have several gold links, or none.
    """
    best = {target: source for source, target in (*gold.possible, *gold.links)}
    return {(best.get(word, 0), word) for word in range(len(gold.target_words))}


def diagonal_links(gold: Gold) -> set[Link]:
    """Return links from each target word to the source word at its position, or to the last one."""
    last = len(gold.source_words) - 1
    return {(min(word, last), word) for word in range(len(gold.target_words))}


def head_links(layer: int, head: int | None, reading: str = "") -> str:
    """Return the kind of the links from the attention of one head, counted from 0: `layer_1_head_1` for the first.

    Args:
        head: None: the mean over the heads of the layer, `layer_1`.
        reading: "read" for `read` rows.
    """
    own = [] if head is None else [f"head_{head + 1}"]
    return "_".join([f"layer_{layer + 1}", *own, *([reading] if reading else [])])


AER_ROWS = "aer_rows"
"""The entry of `result.json` with the kind of links of `best_rows`."""
_LAYER = re.compile(r"val/aer_(layer_(\d+)(?:_read)?)")


def best_rows(values: Mapping[str, Any]) -> str | None:
    """Return the kind of links of the lowest AER on the validation split: of a layer, as the mean over its heads, and a row.

    Args:
        values: metrics by name; of a Transformer those of the final evaluation.

    Returns:
        "attention" or "read" for a model without layers of attention; None without an AER. Of equal ones, the first.
    """
    layers = {match[1]: values[name] for name in values if (match := _LAYER.fullmatch(name))}
    rows = {"attention": values.get("val/aer"), "read": values.get("val/aer_read")}
    known = {
        name: value for name, value in (layers or rows).items() if value is not None and math.isfinite(value)
    }
    return min(known, key=known.__getitem__) if known else None


def describe_rows(links: str) -> str:
    """Return a kind of links of `best_rows` as text."""
    reading = "the step that reads the word" if links.endswith("read") else "the step that predicts the word"
    layer = re.match(r"layer_(\d+)", links)
    return f"{reading}{f', layer {layer[1]} (mean over its heads)' if layer else ''}"


def read(weights: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    """Return weights [..., T, S] whose row t is that of the step which reads output t: row t + 1.

    In a model whose step attends after its state has read a token, the row that predicts y_t (`emit`, the weights as they
    are) aligns y_t; in a Transformer the row that reads it aligns it better (Chen et al. 2020, "Accurate word alignment
    induction from neural machine translation", §3). The last row, that of `<eos>`, is repeated.
    """
    return np.concatenate([weights[..., 1:, :], weights[..., -1:, :]], axis=-2)


class Alignments(Protocol):
    """Outputs with word alignments.

    Attributes:
        text: the examples, with their gold alignments if they are known.
        alignments: the `link_counts` [N, 4] of each example by the kind of links; see `AlignmentErrorRate`. Empty without
            gold alignments or without attention.
    """

    @property
    def text(self) -> ParallelText: ...

    @property
    def alignments(self) -> Mapping[str, Array]: ...


class AlignmentMetric(Metric):
    """A rate of predicted links A, sure gold links S and possible ones P (Och and Ney 2003, section 4.4)."""

    format, limits, links, shown, compared = ".3f", (0.0, 1.0), "attention", False, False

    def rows(self, outputs: Alignments) -> Array:
        """Return the `link_counts` of each example."""
        return outputs.alignments[self.links]

    def signature(self, outputs: Alignments) -> str | None:
        """Return a hash of the gold alignments, which other files can have for the same text."""
        if not self.shown or outputs.text.gold is None:
            return None
        golds = [
            (gold.source_words, gold.target_words, *map(_as_plain_links, (gold.links, gold.possible)))
            for gold in outputs.text.gold
        ]
        return f"links:{self.links}|gold:{hashlib.sha256(json.dumps(golds).encode()).hexdigest()[:7]}"

    def unavailable(self, outputs: Alignments) -> str | None:
        """See `Metric.unavailable`."""
        known = self.links in outputs.alignments
        return None if known else "the data has no gold alignments, or the model has no such attention"


def _as_plain_links(links: Set[Link]) -> list[Link]:
    """Return links in order, without the integers of NumPy that a custom data set can have."""
    return sorted((int(source), int(target)) for source, target in links)


class AlignmentErrorRate(AlignmentMetric):
    """The alignment error rate 1 − (|A∩S| + |A∩P|) / (|A| + |S|), from 0 (best) to 1.

    Args:
        links: the kind of the links: "attention", "oracle" (see `oracle_links`), "diagonal" (see `diagonal_links`), "read"
            (see `read`), "soft" (weights instead of links, see `analysis.extraction`), or those of one head of a Transformer
            decoder (see `head_links`), whose rows the run folder does not keep.
    """

    higher_is_better = False

    def __init__(self, links: str = "attention") -> None:
        self.links = links
        self.name, self.label = "aer", "AER"
        if links == "attention":
            self.shown = self.compared = True
            self.bounds = ("aer_oracle", "aer_diagonal")
        else:
            self.name, self.label, self.when = f"aer_{links}", f"AER, {links.replace('_', ' ')}", "final"
            self.per_example = links in ("oracle", "diagonal", "read", "soft")

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        sure, possible, predicted, gold = totals_K
        return 1 - ratio((sure + possible, predicted + gold))


AER_SOFT = AlignmentErrorRate("soft")


class PointingAccuracy(AlignmentMetric):
    """The share of copied words whose highest attention weight is on the word of the source that they copy.

    A word of the reference is copied if a sure gold link has it on both sides. See `copied_counts`.
    """

    name, label, higher_is_better, links = (
        "pointing_accuracy",
        "pointing accuracy of copied words",
        True,
        "copied",
    )
    format, confidence, shown, compared = ".1%", True, True, True

    def is_defined(self, totals_K: Array) -> bool:
        """See `Metric.is_defined`."""
        return bool(totals_K[1] > 0)

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return ratio(totals_K)


class AlignmentPrecision(AlignmentMetric):
    """|A∩P| / |A|."""

    name, label, higher_is_better = "alignment_precision", "alignment precision", True

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return ratio(totals_K[[1, 2]])


class AlignmentRecall(AlignmentMetric):
    """|A∩S| / |S|."""

    name, label, higher_is_better = "alignment_recall", "alignment recall", True

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return ratio(totals_K[[0, 3]])
