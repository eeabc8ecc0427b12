"""Scoring a captioning model on a split."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from seq2seq_lab import plots
from seq2seq_lab.data.batching import plan_evaluation
from seq2seq_lab.data.captions import Box, rgb
from seq2seq_lab.data.text import one_line
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.data.words import words
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.accuracy import ExactMatch
from seq2seq_lab.metrics.alignment import group_tokens, join_subwords
from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.degeneration import DecodedOutputs
from seq2seq_lab.metrics.loss import MeanLoss, Perplexity
from seq2seq_lab.metrics.pointing import pointing_counts
from seq2seq_lab.metrics.registry import DECODING_METRICS, POINTING_METRICS, TEXT_METRICS
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.search.base import Hypothesis
from seq2seq_lab.tasks.captions.data import CaptionBatch, CaptionBatches, CaptionSplit, region_shares
from seq2seq_lab.tasks.decoded import Decoded, DecodingEvaluator
from seq2seq_lab.tasks.loaded import Prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


@dataclass(frozen=True, kw_only=True)
class Caption(Prediction):
    """A caption of an image by a model; `score` is the value that the search ranks by.

    Attributes:
        log_prob: natural logarithm of its probability, including `<eos>`.
        words: the words of the caption.
        attention_WYX: the attention weights of each word on a grid over the image; None without attention.
        image_HWC: the RGB values that the model read, uint8; for features see `rgb`.
    """

    log_prob: float
    words: list[str] = field(repr=False)
    attention_WYX: Array | None = field(repr=False)
    image_HWC: npt.NDArray[np.uint8] = field(repr=False)

    def columns(self) -> list[str]:
        """Return the file of the image and the caption."""
        return [self.source, self.text]

    def figure(self, light: bool = False, ax: "Axes | None" = None) -> "Figure | None":
        """Return the attention of each word over the image; see `Prediction.figure`.

        Raises:
            UserError: the model has no attention, or `ax` is given: the figure has axes for each word.
        """
        if ax is not None:
            raise UserError("ax: the attention of a caption needs axes for each word. Leave ax out.")
        return self.overlays({}) if self.words or self.attention_WYX is None else None

    def overlays(self, boxes: Mapping[int, Box]) -> "Figure":
        """Return the attention of each word, drawn over the image.

        Args:
            boxes: the region to outline, by the index of the word.
        """
        if self.attention_WYX is None:
            raise UserError("The model has no attention. Train one that has, for example attention=additive.")
        words = zip(self.words, self.attention_WYX, strict=True)
        return plots.draw_overlays(
            self.image_HWC,
            [(word, weights_YX, boxes.get(index)) for index, (word, weights_YX) in enumerate(words)],
        )


class CaptionEvaluator(DecodingEvaluator):
    """Scores a model on a split.

    Args:
        language: the code of the language of the captions.
        grid: the number of rows and columns of the feature map.
        multi_reference: score each image once, against all its captions; see `References`.
        settings: see `DecodingEvaluator`.
    """

    split: CaptionSplit

    def __init__(
        self,
        model: Seq2Seq | Ensemble,
        split: CaptionSplit,
        tokenizer: Tokenizer,
        compute: Compute,
        *,
        grid: tuple[int, int],
        batch_size: int,
        multi_reference: bool,
        **settings: Any,
    ) -> None:
        super().__init__(
            model,
            split,
            compute,
            plan=plan_evaluation(split.tokens, batch_size),
            tokenizer=tokenizer,
            batches=CaptionBatches(split.tokens, compute.device),
            targets=split.tokens.captions,
            references=split.references(multi_reference),
            reads_weights=split.text.regions is not None,
            **settings,
        )
        self.grid = grid

    def count(
        self, index: Sequence[int], batch: CaptionBatch, weights_BTS: Tensor | None, final: bool
    ) -> dict[str, list[tuple[float, ...]]]:
        """Return the `pointing_counts` of the attention under teacher forcing."""
        text = self.split.text
        if text.regions is None or weights_BTS is None:
            return {}
        counts: list[tuple[float, ...]] = []
        for i, weights_TS in zip(index, to_host(weights_BTS.float()), strict=True):
            attention = word_attention(weights_TS, self.tokenizer, text.captions[i])
            counts.append(pointing_counts(attention, region_shares(text, i, self.grid)))
        return {"pointing": counts}

    def outputs(self, results: Sequence[Decoded]) -> CaptionOutputs:
        """See `SplitEvaluator.outputs`."""
        return CaptionOutputs(
            **self.decoded(results),
            language=self.split.language,
            pointing=self.counts(results).get("pointing"),
        )


def caption_of(
    hypothesis: Hypothesis, tokenizer: Tokenizer, image_CHW: npt.NDArray[Any], grid: tuple[int, int]
) -> Caption:
    """Convert a hypothesis to a caption.

    Args:
        image_CHW: what the model read, an image or features.
        grid: the number of rows and columns of the feature map.
    """
    decoded, token_spans = tokenizer.decode_spans(hypothesis.tokens)
    text, attention_WYX = one_line(decoded), None
    spans = words(text, token_spans)
    if hypothesis.weights_TS is not None:
        positions = [[position] for position in range(math.prod(grid))]
        weights_WS = join_subwords(hypothesis.weights_TS, positions, group_tokens(token_spans, spans))
        attention_WYX = weights_WS.reshape(-1, *grid)
    names = [text[start:end] for start, end in spans]
    return Caption(
        source="",
        text=text,
        score=hypothesis.score,
        log_prob=hypothesis.log_prob,
        words=names,
        attention_WYX=attention_WYX,
        image_HWC=rgb(image_CHW),
    )


def word_attention(weights_TS: Array, tokenizer: Tokenizer, caption: str) -> dict[int, Array]:
    """Return the mean attention of the tokens of each word of a caption, by the index of the word.

    Args:
        weights_TS: a row for each token of the caption.
    """
    groups = group_tokens(tokenizer.spans(caption), words(caption))
    return {word: weights_TS[tokens].mean(0) for word, tokens in enumerate(groups) if tokens}
