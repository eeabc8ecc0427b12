"""Evaluation of a tagger on a split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from seq2seq_lab import plots
from seq2seq_lab.data.batching import Index, plan_evaluation
from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.loss import MeanLoss
from seq2seq_lab.metrics.tagging import TAGGING_METRICS
from seq2seq_lab.models.classifier import Tagger
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.tasks.evaluation import SplitEvaluator
from seq2seq_lab.tasks.labelled import LabelledSplit, hash_of
from seq2seq_lab.tasks.loaded import Prediction
from seq2seq_lab.tasks.tagging.data import TaggedBatches, TaggedTokens, TrainingWords

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PRIMARY = "token_accuracy"
SHOWN = 0.01  # tags that no word has with at least this probability are left out of pictures
PROBABILITY = "probability of the tag"
METRICS: tuple[Metric, ...] = (*TAGGING_METRICS, MeanLoss("tagging", "cross-entropy"))


@dataclass(frozen=True, kw_only=True)
class TagPrediction(Prediction):
    """The tags of a text; `text` are the tags, separated by spaces, and `score` the sum of their log-probabilities.

    Attributes:
        words: the words of the text.
        tags: the tag of each word.
        classes: the names of all tags.
        probabilities_WC: the probability of each tag for each word.
    """

    words: list[str] = field(repr=False)
    tags: list[str] = field(repr=False)
    classes: list[str] = field(repr=False)
    probabilities_WC: Array = field(repr=False)

    def columns(self) -> list[str]:
        """Return the tags and the text."""
        return [self.text, self.source]

    def figure(self, light: bool = False, ax: "Axes | None" = None) -> "Figure":
        """Return the probabilities of the tags of each word as a figure; see `Prediction.figure`."""
        tags, weights = shown_tags(self.probabilities_WC, self.classes)
        return plots.draw_attention(
            weights, self.words, tags, self.source, light=light, scale=PROBABILITY, axes=ax
        )


def shown_tags(probabilities_WC: Array, classes: Sequence[str]) -> tuple[list[str], Array]:
    """Return the tags that some word has with a probability of `SHOWN`, and their probabilities: tags by words."""
    (shown,) = np.nonzero(probabilities_WC.max(0) >= SHOWN)
    return [classes[i] for i in shown.tolist()], probabilities_WC[:, shown].T


@dataclass(frozen=True)
class TaggingOutputs:
    """The inputs of the metrics; see `metrics.tagging`.

    Attributes:
        probabilities: by sentence the probability of each tag for each word, WC; empty for a baseline.
        losses: see `Losses`.
    """

    classes: list[str]
    labels: list[npt.NDArray[np.int64]]
    predicted: list[npt.NDArray[np.int64]]
    ambiguous: list[npt.NDArray[np.bool_]]
    unseen: list[npt.NDArray[np.bool_]]
    probabilities: list[Array]
    losses: Mapping[str, Array]

    @classmethod
    def of(
        cls,
        split: LabelledSplit,
        words: TrainingWords,
        classes: list[str],
        predicted: list[npt.NDArray[np.int64]],
        probabilities: Sequence[Array] = (),
    ) -> "TaggingOutputs":
        """Return the outputs for predicted tags; without probabilities `losses` is empty."""
        labels = [split.tokens.of_words(i)[1] for i in range(len(split.text))]
        nats = [
            [-np.log(row[np.arange(len(label)), label].clip(np.finfo(np.float32).tiny)).sum(), len(label)]
            for row, label in zip(probabilities, labels, strict=bool(probabilities))
        ]
        return cls(
            classes=classes,
            labels=labels,
            predicted=predicted,
            ambiguous=[words.ambiguous(line) for line in split.text.texts],
            unseen=[words.unseen(line) for line in split.text.texts],
            probabilities=[*probabilities],
            losses={"tagging": np.array(nats, np.float64)} if nats else {},
        )


@torch.no_grad()
def tag_texts(
    model: Tagger, texts: TaggedTokens, batches: TaggedBatches, index: Index, compute: Compute
) -> list[Array]:
    """Return probabilities_WC, float32, of the words of some texts."""
    batch = batches(index)
    with evaluation_context(batch, compute.precision, compute.device):
        logits_BSC = model(batch)
    probabilities_BSC = torch.from_numpy(to_host(logits_BSC.float())).softmax(-1).numpy()
    return [row_SC[texts.of_words(i)[0]] for i, row_SC in zip(index.tolist(), probabilities_BSC, strict=True)]


class TaggingEvaluator(SplitEvaluator[Array]):
    """Evaluates a model on a split.

    Args:
        words: the words of the training split.
        classes: the names of the tags.
        batch_size: texts of a batch.
        measured: see `SplitEvaluator`.
    """

    split: LabelledSplit

    def __init__(
        self,
        model: Tagger,
        split: LabelledSplit,
        words: TrainingWords,
        classes: list[str],
        compute: Compute,
        *,
        batch_size: int,
        **measured: Any,
    ) -> None:
        plan = plan_evaluation(split.tokens, batch_size)
        super().__init__(model, split, compute, plan=plan, examples=hash_of(split.text), **measured)
        self.words, self.classes = words, classes
        self._batches = TaggedBatches(split.tokens, compute.device)

    def score(self, index: Index, final: bool) -> list[Array]:
        """See `SplitEvaluator.score`; a result is probabilities_WC."""
        return tag_texts(self.model, self.split.tokens, self._batches, index, self.compute)

    def outputs(self, results: Sequence[Array]) -> TaggingOutputs:
        """See `SplitEvaluator.outputs`."""
        predicted = [row_WC.argmax(1) for row_WC in results]
        return TaggingOutputs.of(self.split, self.words, self.classes, predicted, results)
