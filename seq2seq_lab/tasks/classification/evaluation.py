"""Evaluation of a classifier on a split."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from seq2seq_lab.data.batching import plan_evaluation
from seq2seq_lab.data.labelled import LabelledText
from seq2seq_lab.metrics.base import Array, Grouping, Measurement, Metric, digest, measure
from seq2seq_lab.metrics.classification import METRICS as CLASS_METRICS
from seq2seq_lab.metrics.classification import Accuracy
from seq2seq_lab.metrics.loss import MeanLoss
from seq2seq_lab.models.classifier import Classifier
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.tasks import base
from seq2seq_lab.tasks.classification.data import (
    ClassificationSplit,
    TextBatch,
    TextBatches,
    Vocabulary,
    deciding_tokens,
)

PRIMARY = "accuracy"
METRICS: tuple[Metric, ...] = (
    *CLASS_METRICS,
    MeanLoss("classification", "cross-entropy"),
    MeanLoss("penalized", "cross-entropy + penalty"),
)


@dataclass(frozen=True)
class Prediction:
    """The class of a text.

    Attributes:
        text: the text.
        label: the most probable class.
        probabilities: the probability of each class, the most probable first.
        tokens: the tokens of the text.
        weights: the weight of each token; see `Pooled` and `Classifier.saliency`.
    """

    text: str
    label: str
    probabilities: dict[str, float] = field(repr=False)
    tokens: list[str] = field(repr=False)
    weights: Array = field(repr=False)


@dataclass(frozen=True)
class ClassificationOutputs:
    """What the metrics are computed from; see `metrics.classification`.

    Attributes:
        losses: see `Losses`.
    """

    classes: list[str]
    labels: npt.NDArray[np.int64]
    probabilities: Array
    weights: list[Array]
    deciding: list[npt.NDArray[np.bool_]] | None
    losses: Mapping[str, Array]

    @property
    def thresholds(self) -> list[float]:
        """The weight above which a word of a text is selected: half of the greatest weight."""
        return [float(row.max()) / 2 for row in self.weights]


@dataclass(frozen=True)
class Evaluation(base.Evaluation):
    """The result of evaluating a split, with the outputs in the order of its texts."""

    outputs: ClassificationOutputs


def groups_by_class(outputs: ClassificationOutputs) -> Mapping[str, Sequence[int]]:
    """Return the numbers of the examples of each true class."""
    return {
        name: np.flatnonzero(outputs.labels == number).tolist() for number, name in enumerate(outputs.classes)
    }


GROUPINGS = (Grouping("class", "true class", Accuracy(), groups_by_class, ordered=False),)


class ClassifiedText(NamedTuple):
    """The probabilities of the classes of a text, the weights of its tokens, and the penalty of the pooling."""

    probabilities_C: Array
    weights_S: Array
    penalty: float


@torch.no_grad()
def classify(model: Classifier, batch: TextBatch, compute: Compute) -> list[ClassifiedText]:
    """Classify a batch. A pooling without weights has those of `Classifier.saliency`."""
    with evaluation_context(batch, compute.precision, compute.device):
        logits_BC, weights_BS, penalty_B = model(batch)
        if weights_BS is None:
            weights_BS = model.saliency(batch)
    # Read on the host, where the metrics are computed; MPS does not support float64.
    probabilities_BC = torch.from_numpy(to_host(logits_BC.float())).double().softmax(-1).numpy()
    weights_BS = to_host(weights_BS.float()).astype(np.float64)
    penalties = [0.0] * len(probabilities_BC) if penalty_B is None else to_host(penalty_B.float()).tolist()
    return [
        ClassifiedText(row_C, weights_S[:length], penalty)
        for row_C, weights_S, length, penalty in zip(
            probabilities_BC, weights_BS, batch.source_lengths, penalties, strict=True
        )
    ]


def measure_texts(
    metrics: Sequence[Metric],
    outputs: ClassificationOutputs,
    text: LabelledText,
    final: bool,
    also: Collection[str] = (),
) -> Measurement:
    """Compute the metrics of a split; see `measure`."""
    return measure(
        metrics,
        outputs,
        clusters=np.arange(len(text)),
        examples=digest([*text.texts, *text.labels]),
        groupings=GROUPINGS,
        final=final,
        also=also,
    )


class ClassificationEvaluator:
    """Evaluates a model on a split. Each rank classifies its share of the batches; all return the same evaluation.

    Args:
        metrics: see `METRICS`.
        also: names of metrics of the final evaluation to compute at each validation.
    """

    def __init__(
        self,
        model: Classifier,
        split: ClassificationSplit,
        vocabulary: Vocabulary,
        *,
        batch_size: int,
        compute: Compute,
        metrics: Sequence[Metric],
        also: Collection[str],
    ) -> None:
        self.model = model
        self.split = split
        self.vocabulary = vocabulary
        self.compute = compute
        self.metrics = metrics
        self.also = also
        ranks = compute.ranks
        self._plan = plan_evaluation(split.tokens, batch_size)[ranks.rank :: ranks.size]
        self._batches = TextBatches(split.tokens, compute.device)
        self._deciding = deciding_tokens(split.text, vocabulary.tokenizer)

    def __call__(self, final: bool = False, counted: base.Counted | None = None) -> Evaluation:
        """Evaluate the split; see `tasks.base.Evaluator`."""
        self.model.eval()
        share: dict[int, ClassifiedText] = {}
        for number, index in enumerate(self._plan, start=1):
            classified = classify(self.model, self._batches(index), self.compute)
            share |= dict(zip(index.tolist(), classified, strict=True))
            if counted is not None:
                counted(number, len(self._plan))
        shares = self.compute.ranks.gather(share)
        classified_texts = {i: one for share in shares for i, one in share.items()}
        return self.compute.ranks.broadcast(
            lambda: self._evaluation([classified_texts[i] for i in range(len(self.split.text))], final)
        )

    def _evaluation(self, classified: Sequence[ClassifiedText], final: bool) -> Evaluation:
        text, labels = self.split.text, self.split.tokens.labels
        probabilities = np.array([one.probabilities_C for one in classified])
        log_probs = torch.from_numpy(probabilities).clamp_min(np.finfo(np.float64).tiny).log()
        loss_sum = float(functional.nll_loss(log_probs, labels, reduction="sum"))
        outputs = ClassificationOutputs(
            classes=self.vocabulary.classes,
            labels=labels.numpy(),
            probabilities=probabilities,
            weights=[one.weights_S for one in classified],
            deciding=self._deciding,
            losses={
                "classification": np.array([[loss_sum, len(text)]]),
                "penalized": np.array([[loss_sum + sum(one.penalty for one in classified), len(text)]]),
            },
        )
        measurement = measure_texts(self.metrics, outputs, text, final, self.also)
        values = {f"{self.split.prefix}/{name}": value for name, value in measurement.values.items()}
        return Evaluation(values, measurement, outputs)
