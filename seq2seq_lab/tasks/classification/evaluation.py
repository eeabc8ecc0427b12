"""Evaluation of a classifier on a split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from seq2seq_lab import plots
from seq2seq_lab.data.batching import Index, plan_evaluation
from seq2seq_lab.metrics.base import Array, Grouping, Metric
from seq2seq_lab.metrics.classification import METRICS as CLASS_METRICS
from seq2seq_lab.metrics.classification import Accuracy
from seq2seq_lab.metrics.loss import MeanLoss
from seq2seq_lab.models.classifier import Classifier
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.runtime.shades import shade_words
from seq2seq_lab.tasks.classification.data import (
    ClassificationSplit,
    TextBatch,
    TextBatches,
    deciding_tokens,
)
from seq2seq_lab.tasks.evaluation import SplitEvaluator
from seq2seq_lab.tasks.labelled import hash_of
from seq2seq_lab.tasks.loaded import Prediction
from seq2seq_lab.tasks.text import Vocabulary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PRIMARY = "accuracy"
RELATIVE = "weight relative to the greatest one"
GATE = "gate of the word"
METRICS: tuple[Metric, ...] = (
    *CLASS_METRICS,
    MeanLoss("classification", "cross-entropy"),
    MeanLoss("penalized", "cross-entropy + penalty"),
)


@dataclass(frozen=True, kw_only=True)
class ClassPrediction(Prediction):
    """A class of a text; `text` is the class and `score` its probability.

    Attributes:
        probabilities: the probability of each class, the most probable first.
        tokens: the tokens of the text; one that the vocabulary lacks is followed by ⁇.
        weights: the weight of each token; see `Pooled` and `Classifier.saliency`.
        attends: whether the weights are those of the model, and not of `Classifier.saliency`.
        gated: whether the weights are gates; see `shading`.
    """

    probabilities: dict[str, float] = field(repr=False)
    tokens: list[str] = field(repr=False)
    weights: Array = field(repr=False)
    attends: bool = field(default=True, repr=False)
    gated: bool = field(default=False, repr=False)

    def columns(self) -> list[str]:
        """Return the class, its probability and the text."""
        return [self.text, f"{self.score:.4f}", self.source]

    def shades(self) -> list[str]:
        """Return the tokens, and below them their shades; see `shading`."""
        weights, _ = shading(self.weights, self.gated)
        return shade_words(self.tokens, weights.tolist())

    def figure(self, light: bool = False, ax: "Axes | None" = None) -> "Figure":
        """Return the weights as a figure, on the scale of `shading`; see `Prediction.figure`."""
        weights, scale = shading(self.weights, self.gated)
        return plots.draw_attention(
            weights[None], self.tokens, [self.text], self.source, light=light, scale=scale, axes=ax
        )


def shading(weights: Array, gated: bool) -> tuple[Array, str]:
    """Return the shades of the words of a text, from 0 to 1, and what they are.

    A shade is the gate itself, so that it means the same in every text. Other weights depend on the length of the text; they
    are divided by the greatest one of the text.
    """
    if gated:
        return weights.clip(0.0, 1.0), GATE
    return (weights / weights.max() if weights.any() else weights), RELATIVE


@dataclass(frozen=True)
class ClassificationOutputs:
    """The inputs of the metrics; see `metrics.classification`.

    Attributes:
        classes: the names of the C classes.
        labels: the index of the true class of each of N texts.
        probabilities: the probabilities of the classes, NC.
        weights: by text the weight of each token; empty for a baseline.
        deciding: by text whether each token belongs to a word that decides the class; None if it is not known.
        losses: see `Losses`.
        gated: whether the weights are gates.
    """

    classes: list[str]
    labels: npt.NDArray[np.int64]
    probabilities: Array
    weights: list[Array]
    deciding: list[npt.NDArray[np.bool_]] | None
    losses: Mapping[str, Array]
    gated: bool = False

    @property
    def thresholds(self) -> list[float]:
        """The weight above which a word of a text is selected: half of the greatest weight."""
        return [float(row.max()) / 2 for row in self.weights]


def groups_by_class(outputs: ClassificationOutputs) -> Mapping[str, Sequence[int]]:
    """Return the indices of the examples of each true class."""
    return {
        name: np.flatnonzero(outputs.labels == index).tolist() for index, name in enumerate(outputs.classes)
    }


GROUPINGS = (Grouping("class", "true class", Accuracy(), groups_by_class, ordered=False),)


class ClassifiedText(NamedTuple):
    """The probabilities of the classes of a text, the weights of its tokens, and the penalty of the pooling.

    `attends` is whether the weights are those of the model; else they are those of `Classifier.saliency`. `gated` is
    whether they are gates.
    """

    probabilities_C: Array
    weights_S: Array
    penalty: float
    attends: bool
    gated: bool


@torch.no_grad()
def classify(model: Classifier, batch: TextBatch, compute: Compute) -> list[ClassifiedText]:
    """Classify a batch. A pooling without weights has those of `Classifier.saliency`."""
    with evaluation_context(batch, compute.precision, compute.device):
        logits_BC, weights_BS, penalty_B = model(batch)
        attends = weights_BS is not None
        if weights_BS is None:
            weights_BS = model.saliency(batch)
    # Read on the host, where the metrics are computed; MPS does not support float64.
    probabilities_BC = torch.from_numpy(to_host(logits_BC.float())).double().softmax(-1).numpy()
    weights_BS = to_host(weights_BS.float()).astype(np.float64)
    count = len(probabilities_BC)
    penalties = [0.0] * count if penalty_B is None else to_host(penalty_B.float()).tolist()
    rows = [row_S[:length] for row_S, length in zip(weights_BS, batch.source_lengths, strict=True)]
    gated = penalty_B is not None
    return [
        ClassifiedText(probabilities_BC[i], np.concatenate(rows[i::count]), penalties[i], attends, gated)
        for i in range(count)
    ]


class ClassificationEvaluator(SplitEvaluator[ClassifiedText]):
    """Evaluates a model on a split.

    Args:
        batch_size: texts of a batch.
        measured: see `SplitEvaluator`.
    """

    split: ClassificationSplit

    def __init__(
        self,
        model: Classifier,
        split: ClassificationSplit,
        vocabulary: Vocabulary,
        compute: Compute,
        *,
        batch_size: int,
        **measured: Any,
    ) -> None:
        super().__init__(
            model,
            split,
            compute,
            plan=plan_evaluation(split.tokens, batch_size),
            examples=hash_of(split.text),
            groupings=GROUPINGS,
            **measured,
        )
        self.vocabulary = vocabulary
        self._batches = TextBatches(split.tokens, compute.device)
        self._deciding = deciding_tokens(split.text, vocabulary.tokenizer)

    def score(self, index: Index, final: bool) -> list[ClassifiedText]:
        """See `SplitEvaluator.score`."""
        return classify(self.model, self._batches(index), self.compute)

    def outputs(self, results: Sequence[ClassifiedText]) -> ClassificationOutputs:
        """See `SplitEvaluator.outputs`."""
        labels_N = self.split.tokens.labels.numpy()
        probabilities_NC = np.array([one.probabilities_C for one in results])
        of_label_N = probabilities_NC[np.arange(len(labels_N)), labels_N]
        loss_N = -np.log(of_label_N.clip(np.finfo(np.float64).tiny))
        penalty_N = np.array([one.penalty for one in results])
        ones_N = np.ones(len(labels_N))
        return ClassificationOutputs(
            classes=self.vocabulary.classes,
            labels=labels_N,
            probabilities=probabilities_NC,
            weights=[one.weights_S for one in results],
            deciding=self._deciding,
            gated=any(one.gated for one in results),
            losses={
                "classification": np.column_stack([loss_N, ones_N]),
                "penalized": np.column_stack([loss_N + penalty_N, ones_N]),
            },
        )
