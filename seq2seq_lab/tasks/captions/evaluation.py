"""Scoring a captioning model on a split."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from seq2seq_lab.data.batching import plan_evaluation
from seq2seq_lab.data.text import one_line
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.data.words import words
from seq2seq_lab.metrics.accuracy import ExactMatch
from seq2seq_lab.metrics.alignment import group_tokens, join_subwords
from seq2seq_lab.metrics.base import Array, Metric, measure
from seq2seq_lab.metrics.degeneration import DecodedOutputs
from seq2seq_lab.metrics.loss import MeanLoss, Perplexity
from seq2seq_lab.metrics.pointing import pointing_counts
from seq2seq_lab.metrics.registry import DECODING_METRICS, POINTING_METRICS, TEXT_METRICS
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.seq2seq import EncodedModel, Seq2Seq
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.search.base import Hypothesis, Search
from seq2seq_lab.tasks import base
from seq2seq_lab.tasks.captions.data import CaptionBatch, CaptionBatches, CaptionSplit, region_shares
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

LOSSES = ("teacher_forced", "free_running")
PRIMARY = "bleu"
METRICS: tuple[Metric, ...] = (
    *(metric for metric in TEXT_METRICS if not metric.lowercased_tokenised),
    ExactMatch(),
    *DECODING_METRICS,
    *POINTING_METRICS,
    MeanLoss("teacher_forced", "teacher-forced loss"),
    MeanLoss("free_running", "free-running loss"),
    Perplexity("teacher_forced", "teacher-forced perplexity"),
)


@dataclass(frozen=True, kw_only=True)
class CaptionOutputs(DecodedOutputs):
    """The outputs from which the metrics are computed.

    Attributes:
        losses: see `metrics.loss.Losses`.
        pointing: see `metrics.pointing.Pointing`.
    """

    losses: dict[str, Array]
    pointing: Array | None


@dataclass(frozen=True)
class Caption:
    """A caption of an image by a model.

    Attributes:
        text: the caption.
        log_prob: natural logarithm of its probability, including `<eos>`.
        words: the words of the caption.
        attention_WYX: the attention weights of each word on a grid over the image; None without attention.
        image_HWC: the RGB values that the model read, uint8.
    """

    text: str
    log_prob: float
    words: list[str] = field(repr=False)
    attention_WYX: Array | None = field(repr=False)
    image_HWC: npt.NDArray[np.uint8] = field(repr=False)


@dataclass(frozen=True)
class Evaluation(base.Evaluation):
    """The result of scoring a split.

    Attributes:
        captions: plain text in the order of the split.
        samples: the numbers of the pairs that the report of a validation shows.
        hypotheses: the hypotheses of the samples and of the worst captions, with their attention weights.
        worst: in the final evaluation the worst captions, the worst first.
    """

    captions: list[str]
    samples: Sequence[int]
    hypotheses: dict[int, Hypothesis]
    worst: Sequence[WorstOutput]


@dataclass(slots=True)
class _Share:
    """The results of one rank: summed losses, and results of pairs by their numbers in the split."""

    losses: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LOSSES, 0.0))
    tokens: int = 0
    captions: dict[int, str] = field(default_factory=dict)
    endings: dict[int, Ending] = field(default_factory=dict)
    kept: dict[int, Hypothesis] = field(default_factory=dict)
    pointing: dict[int, tuple[float, float, float, int]] = field(default_factory=dict)


class CaptionEvaluator:
    """Scores a model on a split.

    Each rank captions its share of the batches; all ranks return the same evaluation.

    Args:
        samples: the numbers of the pairs to show, whose hypotheses are kept with their attention weights.
        multi_reference: score each image once, against all its captions; see `References`.
        also: names of metrics of the final evaluation to compute at each validation.
    """

    def __init__(
        self,
        model: Seq2Seq | Ensemble,
        split: CaptionSplit,
        tokenizer: Tokenizer,
        search: Search,
        *,
        language: str,
        batch_size: int,
        compute: Compute,
        samples: Sequence[int],
        multi_reference: bool,
        metrics: Sequence[Metric],
        also: Collection[str],
    ) -> None:
        self.model, self.split, self.tokenizer, self.search = model, split, tokenizer, search
        self.language, self.compute, self.samples = language, compute, samples
        self.metrics, self.also = metrics, also
        ranks = compute.ranks
        self._plan = plan_evaluation(split.examples, batch_size)[ranks.rank :: ranks.size]
        self.make_batch = CaptionBatches(split.examples, compute.device)
        self._references = split.references(multi_reference)
        self._reference_repeats = repeats_of(split.examples.captions)

    @torch.no_grad()
    def __call__(self, final: bool = False, counted: base.Counted | None = None) -> Evaluation:
        """Score the split; see `tasks.base.Evaluator`."""
        self.model.eval()
        share = _Share()
        for number, index in enumerate(self._plan, start=1):
            self._score(self.make_batch(index), index.tolist(), share)
            if counted is not None:
                counted(number, len(self._plan))
        shares = self.compute.ranks.gather(share)
        return self.compute.ranks.broadcast(lambda: self._evaluation(shares, final))

    def _score(self, batch: CaptionBatch, index: Sequence[int], share: _Share) -> None:
        """Caption the images of a batch and add the results to a rank's share."""
        with evaluation_context(batch, self.compute.precision, self.compute.device):
            model = EncodedModel(self.model, batch)
            teacher_forced, weights_BTS = loss.teacher_forced(model, batch)
            free_running = loss.free_running(model, batch)
            hypotheses = self.search(model, batch, not set(self.samples).isdisjoint(index))
        share.losses["teacher_forced"] += float(to_host(teacher_forced))
        share.losses["free_running"] += float(to_host(free_running))
        share.tokens += batch.target_tokens
        for i, (hypothesis, *_) in zip(index, hypotheses, strict=True):
            share.captions[i] = self.text_of(hypothesis)
            share.endings[i] = ending(hypothesis)
            if i in self.samples:
                share.kept[i] = hypothesis
        if self.split.pairs.regions is not None and weights_BTS is not None:
            for i, weights_TS in zip(index, to_host(weights_BTS.float()), strict=True):
                attention = word_attention(weights_TS, self.tokenizer, self.split.pairs.captions[i])
                shares = region_shares(self.split.pairs, i, self.split.grid)
                share.pointing[i] = pointing_counts(attention, shares)

    def _evaluation(self, shares: Sequence[_Share], final: bool) -> Evaluation:
        """Merge the ranks' shares and compute the metrics."""
        numbers = range(len(self.split.pairs))
        captions = {i: line for share in shares for i, line in share.captions.items()}
        counts = {i: row for share in shares for i, row in share.pointing.items()}
        pointing = np.array([counts[i] for i in numbers], np.float64) if counts else None
        outputs = CaptionOutputs(
            hypotheses=[captions[i] for i in numbers],
            references=self._references,
            language=self.language,
            endings=endings((share.endings for share in shares), self._reference_repeats),
            losses={
                kind: np.array([[share.losses[kind], share.tokens] for share in shares]) for kind in LOSSES
            },
            pointing=None if pointing is None else self._references.sum_of_scored(pointing),
        )
        hypotheses = {i: hypothesis for share in shares for i, hypothesis in share.kept.items()}
        worst = worst_outputs(outputs) if final else []
        hypotheses |= attend_again(self, worst, outputs.hypotheses)
        measurement = measure(
            self.metrics,
            outputs,
            clusters=self._references.clusters,
            examples=self._references.examples,
            final=final,
            also=self.also,
        )
        return Evaluation(
            values={f"{self.split.prefix}/{name}": value for name, value in measurement.values.items()},
            measurement=measurement,
            captions=[*outputs.hypotheses],
            samples=self.samples,
            hypotheses=hypotheses,
            worst=worst,
        )

    def text_of(self, hypothesis: Hypothesis) -> str:
        """Return the text of a hypothesis, on one line."""
        return text_of(self.tokenizer, hypothesis)


def text_of(tokenizer: Tokenizer, hypothesis: Hypothesis) -> str:
    """Return the text of a hypothesis, on one line."""
    return one_line(tokenizer.decode(hypothesis.tokens))


def caption_of(
    hypothesis: Hypothesis, tokenizer: Tokenizer, image_3HW: npt.NDArray[np.uint8], grid: tuple[int, int]
) -> Caption:
    """Convert a hypothesis to a caption.

    Args:
        grid: the number of rows and columns of the feature map.
    """
    _, token_spans = tokenizer.decode_spans(hypothesis.tokens)
    text, attention_WYX = text_of(tokenizer, hypothesis), None
    spans = words(text, token_spans)
    if hypothesis.weights_TS is not None:
        positions = [[position] for position in range(math.prod(grid))]
        weights_WS = join_subwords(hypothesis.weights_TS, positions, group_tokens(token_spans, spans))
        attention_WYX = weights_WS.reshape(-1, *grid)
    names = [text[start:end] for start, end in spans]
    return Caption(text, hypothesis.log_prob, names, attention_WYX, image_3HW.transpose(1, 2, 0))


def word_attention(weights_TS: Array, tokenizer: Tokenizer, caption: str) -> dict[int, Array]:
    """Return the mean attention of the tokens of each word of a caption, by the number of the word.

    Args:
        weights_TS: a row for each token of the caption.
    """
    groups = group_tokens(tokenizer.spans(caption), words(caption))
    return {word: weights_TS[tokens].mean(0) for word, tokens in enumerate(groups) if tokens}
