"""Metrics of classification, and of how well the weights of words select the words that decide."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from seq2seq_lab.metrics.base import Array, Metric, Share

BINS = 15  # of the calibration error


class Classes(Protocol):
    """Outputs of a classifier: the indices of the N true classes and the probabilities of the C classes, NC."""

    @property
    def labels(self) -> npt.NDArray[np.int64]: ...

    @property
    def probabilities(self) -> Array: ...


class WordWeights(Protocol):
    """Weights of the words of N texts, and which of these words decide; None if this is not known."""

    @property
    def weights(self) -> list[Array]: ...

    @property
    def thresholds(self) -> list[float]:
        """By text, the weight above which a word counts as selected."""
        ...

    @property
    def deciding(self) -> list[npt.NDArray[np.bool_]] | None: ...


class Accuracy(Metric):
    """The share of examples whose most probable class is the true class."""

    name, label, higher_is_better, format, limits = "accuracy", "accuracy", True, ".1%", (0.0, 1.0)
    confidence = True

    def rows(self, outputs: Classes) -> Array:
        """See `Metric.rows`."""
        correct_N = outputs.probabilities.argmax(1) == outputs.labels
        return np.column_stack([correct_N, np.ones(len(correct_N))])

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return totals_K[0] / totals_K[1]


class MacroF1(Metric):
    """The mean over the classes of F1; a class that is neither true nor predicted for any example is left out."""

    name, label, higher_is_better, format, limits = "macro_f1", "macro F1", True, ".3f", (0.0, 1.0)
    confidence = True

    def rows(self, outputs: Classes) -> Array:
        """See `Metric.rows`."""
        one_hot_CC = np.eye(outputs.probabilities.shape[1])
        true_NC, predicted_NC = one_hot_CC[outputs.labels], one_hot_CC[outputs.probabilities.argmax(1)]
        return np.hstack([true_NC * predicted_NC, predicted_NC, true_NC])

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        correct_C, predicted_C, true_C = np.split(totals_K, 3)
        occurs = predicted_C + true_C > 0
        return float((2 * correct_C[occurs] / (predicted_C + true_C)[occurs]).mean())


class CalibrationError(Metric):
    """The expected calibration error (Guo 2017, arXiv:1706.04599, eq. 5), with bins of equal width.

    The mean over the examples of |accuracy − mean confidence| of the example's bin; the confidence is the greatest
    probability.
    """

    name, label, higher_is_better, format, limits = "ece", "calibration error", False, ".3f", (0.0, 1.0)

    def rows(self, outputs: Classes) -> Array:
        """See `Metric.rows`."""
        confidence_N = outputs.probabilities.max(1)
        bin_N = np.clip(np.ceil(confidence_N * BINS).astype(np.int64) - 1, 0, BINS - 1)
        correct_N = outputs.probabilities.argmax(1) == outputs.labels
        in_bin_NK = np.eye(BINS)[bin_N]
        return np.hstack([in_bin_NK, in_bin_NK * (correct_N - confidence_N)[:, None]])

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        count_K, gap_K = np.split(totals_K, 2)
        return float(np.abs(gap_K).sum() / count_K.sum())


class WordMetric(Share):
    """A metric of the weights of words against the words that decide; a task without such words does not have it."""

    format = ".3f"

    def unavailable(self, outputs: WordWeights) -> str | None:
        """See `Metric.unavailable`."""
        return "the data set has no deciding words" if outputs.deciding is None else None


class WordPrecision(WordMetric):
    """The share of the selected words that decide."""

    name, label = "word_precision", "precision of selected words"

    def rows(self, outputs: WordWeights) -> Array:
        """See `Metric.rows`."""
        return np.array([[(s & d).sum(), s.sum()] for s, d in _selected(outputs)], np.float64)


class WordRecall(WordMetric):
    """The share of the deciding words that are selected."""

    name, label = "word_recall", "recall of deciding words"

    def rows(self, outputs: WordWeights) -> Array:
        """See `Metric.rows`."""
        return np.array([[(s & d).sum(), d.sum()] for s, d in _selected(outputs)], np.float64)


class WordAuc(WordMetric):
    """The area under the ROC curve of the weights within a text.

    The share of all pairs of a deciding and another word of one text whose deciding word has the greater weight; an equal
    weight counts 1/2.
    """

    name, label = "word_auc", "AUC of word weights"

    def rows(self, outputs: WordWeights) -> Array:
        """See `Metric.rows`."""
        assert outputs.deciding is not None, "see `unavailable`"
        rows = []
        for weights, deciding in zip(outputs.weights, outputs.deciding, strict=True):
            gap = weights[deciding][:, None] - weights[~deciding]
            rows.append([(gap > 0).sum() + (gap == 0).sum() / 2, gap.size])
        return np.array(rows, np.float64)


def _selected(outputs: WordWeights) -> list[tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]]:
    """Return for each text which words are selected and which decide."""
    assert outputs.deciding is not None, "see `unavailable`"
    return [
        (weights > threshold, deciding)
        for weights, threshold, deciding in zip(
            outputs.weights, outputs.thresholds, outputs.deciding, strict=True
        )
    ]


METRICS: tuple[Metric, ...] = (
    *(Accuracy(), MacroF1(), CalibrationError(), WordAuc(), WordPrecision(), WordRecall()),
)
