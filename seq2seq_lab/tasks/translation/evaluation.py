"""Scoring a translation model on a split."""

import logging
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from seq2seq_lab.config.schema import Precision
from seq2seq_lab.data.batching import BatchMaker, plan_evaluation
from seq2seq_lab.data.corpus import UNKNOWN, ParallelText
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import TokenizerPair
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.alignment import (
    AlignmentCounts,
    Link,
    WordLinks,
    diagonal_aer,
    oracle_aer,
    replace_unknown,
    whitespace_words,
    word_spans,
)
from seq2seq_lab.metrics.scores import (
    Accuracy,
    Bleu,
    LengthBin,
    LowercasedTokenised,
    References,
    Score,
    accuracy_by_phenomenon,
    chrf,
    moses_languages,
    ter,
)
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.seq2seq import Encoded, Seq2Seq
from seq2seq_lab.runtime.device import autocast, to_host
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.search.base import Hypothesis, Search
from seq2seq_lab.tasks.translation import loss

log = logging.getLogger(__name__)

CONFIDENCE_SAMPLES = 1000  # as many as sacreBLEU's command line takes
LINE_BREAKS = str.maketrans("\n\r", "  ")  # a translation is one line, whatever a model of characters makes


@dataclass(frozen=True, slots=True)
class Split:
    """A split to be scored: its plain text, its tokens, and the prefix of its figures, as in `val/bleu`.

    `target_language` is the data set's label of the target side, None where it is not known.
    """

    prefix: str
    text: ParallelText
    tokens: TokenizedText
    target_language: str | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What scoring a split gave.

    Attributes:
        values: figures by name, with the split's prefix.
        signatures: sacreBLEU's signatures by name, as in `test/bleu_signature`.
        by_length: BLEU by source length in words.
        by_phenomenon: exact translations by what the sentences show; empty where the data set does not say.
        translations: plain text in the order of the split.
        hypotheses: the hypotheses of the sentences whose attention was asked for.
        scored_lines: the lines that each kind of score is of: hypotheses, references, and further references of the same
            sentences if there are any.
    """

    values: dict[str, float]
    signatures: dict[str, str]
    by_length: list[LengthBin]
    by_phenomenon: list[Accuracy]
    translations: list[str]
    hypotheses: dict[int, Hypothesis] = field(default_factory=dict)
    scored_lines: dict[str, list[list[str]]] = field(default_factory=dict)


@dataclass(slots=True)
class _Share:
    """What one rank has found of a split, summed losses and what it knows of its sentences."""

    teacher_forced: float = 0.0
    free_running: float = 0.0
    translations: dict[int, str] = field(default_factory=dict)
    replaced: dict[int, str] = field(default_factory=dict)
    kept: dict[int, Hypothesis] = field(default_factory=dict)
    alignments: AlignmentCounts = field(default_factory=AlignmentCounts)


class TranslationEvaluator:
    """Scores a model on a split: both losses, BLEU, chrF, and AER where there are gold and attention.

    If Moses has rules for the target language, it also computes BLEU of lowercased tokens; the final evaluation adds
    TER, chrF and TER of lowercased tokens, and the AER of an oracle and of a diagonal.
    Of several ranks each translates its share of the batches; all return the same evaluation.

    Args:
        replace_unknown: score once more, by names of their own, the translations with the source token of most attention in
            place of each unknown word (`UNKNOWN`).
        multi_reference: score each source sentence once, against the references of all its pairs; see `References`.
    """

    def __init__(
        self,
        model: Seq2Seq | Ensemble,
        split: Split,
        tokenizers: TokenizerPair,
        search: Search,
        batch_size: int,
        length_bounds: Sequence[int],
        device: torch.device,
        precision: Precision,
        ranks: Ranks,
        replace_unknown: bool = False,
        multi_reference: bool = False,
    ) -> None:
        self.model = model
        self.replace_unknown = replace_unknown
        self.split = split
        self.tokenizers = tokenizers
        self.search = search
        self.length_bounds = length_bounds
        self.device = device
        self.precision = precision
        self.ranks = ranks
        self._plan = plan_evaluation(split.tokens, batch_size)[ranks.rank :: ranks.size]
        self._tokens = int((split.tokens.target_lengths - 1).sum())
        self._batches = [*BatchMaker(split.tokens, device).all(self._plan)]
        self._gold = _GoldAlignments(split.text, tokenizers) if split.text.gold else None
        self._lengths = source_lengths_in_words(split.text)
        text = split.text
        self._references = References(text.target, text.source, multi_reference)
        self._lowercased_tokenised = (
            LowercasedTokenised(text.target, split.target_language, text.source, multi_reference)
            if split.target_language in moses_languages()
            else None
        )
        ambiguous = sum(UNKNOWN in line for line in split.text.target)
        if ambiguous and ranks.main:
            log.warning(
                "%s references of %s contain %s, which in translations stands for an unknown word. Such a word may "
                "count as correct there; a tokenizer without unknown words (tokenizer=bpe) avoids this.",
                ambiguous,
                split.prefix,
                UNKNOWN,
            )

    @torch.no_grad()  # not inference_mode: autocast would cast every weight anew at every step
    def __call__(
        self,
        with_attention: Sequence[int],
        final: bool = False,
        counted: Callable[[int, int], None] | None = None,
    ) -> Evaluation:
        """Score the split; keep the attention of the hypotheses of the sentences `with_attention`.

        Args:
            counted: is called after each batch with the number of batches done and that of all (of this rank).
            final: add TER and how sure the scores are, which take their time.

        Raises:
            UserError: unknown words are to be replaced, and the model does not attend.
        """
        self.model.eval()
        share = _Share()
        for number, (batch, index_B) in enumerate(zip(self._batches, self._plan, strict=True), start=1):
            index = index_B.tolist()
            with autocast(self.precision, self.device):
                model = Encoded(self.model, batch.source_BS, batch.source_lengths)
                loss_sum, weights_BTS = loss.teacher_forced(model, batch)
                free_running = loss.free_running(model, batch)
                attention = self.replace_unknown or not set(index).isdisjoint(with_attention)
                found = self.search(model, batch, attention)
            # Results: read once a batch, after the search, which the host has waited for anyway.
            share.teacher_forced += float(to_host(loss_sum))
            share.free_running += float(to_host(free_running))
            for i, (hypothesis, *_) in zip(index, found, strict=True):
                text = self.tokenizers.target.decode(hypothesis.tokens)
                share.translations[i] = text.translate(LINE_BREAKS)
                if self.replace_unknown:
                    share.replaced[i] = replaced(hypothesis, self.tokenizers, self.split.text.source[i])
                if i in with_attention:
                    share.kept[i] = hypothesis
            if self._gold is not None and weights_BTS is not None:
                self._gold.count(share.alignments, index, to_host(weights_BTS.float()))
            if counted is not None:
                counted(number, len(self._batches))
        shares = self.ranks.gather(share)
        return self.ranks.broadcast(lambda: self._evaluation(shares, final))

    def _evaluation(self, shares: Sequence["_Share"], final: bool) -> Evaluation:
        """Put the ranks' shares of the split together and score them."""
        numbers = range(len(self.split.text))
        translated = {i: text for share in shares for i, text in share.translations.items()}
        translations = [translated[i] for i in numbers]
        alignments = AlignmentCounts()
        for share in shares:
            alignments += share.alignments
        values = {
            "loss_teacher_forced": sum(share.teacher_forced for share in shares) / self._tokens,
            "loss_free_running": sum(share.free_running for share in shares) / self._tokens,
        }
        for mode in ("teacher_forced", "free_running"):
            values[f"perplexity_{mode}"] = perplexity(values[f"loss_{mode}"])
        phenomena = self.split.text.phenomena
        bleu = Bleu(translations, self._references)
        scores, lines = self._scores(translations, bleu, final)
        if self.replace_unknown:
            texts = {i: text for share in shares for i, text in share.replaced.items()}
            copied = [texts[i] for i in numbers]
            more, more_lines = self._scores(copied, Bleu(copied, self._references), final)
            scores |= {f"{name}_unknown_replaced": score for name, score in more.items()}
            lines |= {f".unknown_replaced{kind}": sides for kind, sides in more_lines.items()}
        values |= {name: score.value for name, score in scores.items()}
        values |= {
            f"{name}_confidence": score.confidence
            for name, score in scores.items()
            if score.confidence is not None
        }
        if alignments.predicted:
            values |= {
                "aer": alignments.aer(),
                "alignment_precision": alignments.precision(),
                "alignment_recall": alignments.recall(),
            }
            gold = self.split.text.gold
            if final and gold is not None:
                values |= {"aer_oracle": oracle_aer(gold), "aer_diagonal": diagonal_aer(gold)}
        return Evaluation(
            values={f"{self.split.prefix}/{name}": value for name, value in values.items()},
            signatures={f"{self.split.prefix}/{name}_signature": s.signature for name, s in scores.items()},
            by_length=bleu.by_length(self._lengths, self.length_bounds, CONFIDENCE_SAMPLES if final else 0),
            by_phenomenon=[]
            if phenomena is None
            else accuracy_by_phenomenon(translations, self.split.text.target, phenomena),
            translations=translations,
            hypotheses={i: hypothesis for share in shares for i, hypothesis in share.kept.items()},
            scored_lines=lines if final else {},
        )

    def _scores(
        self, translations: Sequence[str], bleu: Bleu, final: bool
    ) -> tuple[dict[str, Score], dict[str, list[list[str]]]]:
        """Return the scores of translations, and the lines that each kind is of, as `Evaluation.scored_lines`."""
        references, samples = self._references, CONFIDENCE_SAMPLES if final else 0
        scores = {"bleu": bleu.score(samples), "chrf": chrf(translations, references, samples)}
        if final:
            scores["ter"] = ter(translations, references, samples)
        lines = {"": [references.scored(translations), *references.padded()]}
        if (papers := self._lowercased_tokenised) is not None:
            tokens = papers.tokens(translations)
            scores["bleu_lowercased_tokenised"] = papers.bleu(tokens, samples)
            if final:
                scores["chrf_lowercased_tokenised"] = papers.chrf(tokens, samples)
                scores["ter_lowercased_tokenised"] = papers.ter(tokens, samples)
            lines[".lc.tok"] = [papers.references.scored(tokens), *papers.references.padded()]
        return scores, lines


class _GoldAlignments:
    """The gold links of a split, and what makes links of the model's attention."""

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

    def count(
        self, counts: AlignmentCounts, index: Sequence[int], weights_BTS: npt.NDArray[np.float32]
    ) -> None:
        """Add the links that the attention of a batch makes under teacher forcing."""
        for i, weights_TS in zip(index, weights_BTS, strict=True):
            rows, columns = self._links[i].shape
            counts.add(self._links[i].of(weights_TS[:rows, :columns]), self._gold[i])


def replaced(hypothesis: Hypothesis, tokenizers: TokenizerPair, line: str) -> str:
    """Return a translation in plain text with each unknown word replaced by the source token of highest attention weight.

    Raises:
        UserError: the model does not attend.
    """
    if hypothesis.weights_TS is None:
        raise UserError(
            "Unknown words are replaced by the source word of most attention, and this model does not attend. Leave "
            "replace_unknown (--replace-unknown) out."
        )
    return replace_unknown(hypothesis.weights_TS, tokenizers, line, hypothesis.tokens).translate(LINE_BREAKS)


def perplexity(loss: float) -> float:
    """Return e to the loss in nats; infinite where that is beyond a float."""
    return math.inf if loss > math.log(sys.float_info.max) else math.exp(loss)


def source_lengths_in_words(text: ParallelText) -> list[int]:
    """Return the source sentences' lengths in words, where there is gold without punctuation marks."""
    if text.gold is not None:
        return [sum(any(map(str.isalnum, word)) for word in gold.source_words) for gold in text.gold]
    return [len(whitespace_words(line)) for line in text.source]


def choose_samples(text: ParallelText, count: int) -> list[int]:
    """Return the sentences whose translation and attention are shown at each validation.

    Of the sentences of 6 to 14 words, those whose word order differs most from the source's where there is gold
    (reordering is what attention shows), else some spread evenly over the split.
    """
    lengths = source_lengths_in_words(text)
    candidates = [i for i, length in enumerate(lengths) if 6 <= length <= 14] or list(range(len(lengths)))
    if text.gold is not None:
        gold = text.gold
        candidates.sort(key=lambda i: -_inversions(gold[i].links) / lengths[i])
        return candidates[:count]
    return candidates[:: max(1, len(candidates) // max(1, count))][:count]


def _inversions(links: frozenset[tuple[int, int]]) -> int:
    """Return how many pairs of target words stand in the other order than what they are linked to."""
    linked: dict[int, list[int]] = {}
    for source, target in links:
        linked.setdefault(target, []).append(source)
    positions = [sum(sources) / len(sources) for _, sources in sorted(linked.items())]
    return sum(first > second for n, first in enumerate(positions) for second in positions[n + 1 :])
