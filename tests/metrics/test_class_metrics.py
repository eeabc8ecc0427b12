"""Metrics of classification against slow references."""

from types import SimpleNamespace

import numpy as np
import pytest

from seq2seq_lab.metrics.classification import (
    BINS,
    Accuracy,
    CalibrationError,
    MacroF1,
    WordAuc,
    WordPrecision,
    WordRecall,
)

RNG = np.random.default_rng(3)
LABELS = RNG.integers(0, 4, 60)
PROBABILITIES = RNG.dirichlet(np.full(5, 0.4), 60)  # the class 4 is never true
OUTPUTS = SimpleNamespace(labels=LABELS, probabilities=PROBABILITIES)
PREDICTED = [int(np.argmax(row)) for row in PROBABILITIES]


def test_accuracy() -> None:
    correct = sum(found == label for found, label in zip(PREDICTED, LABELS, strict=True))
    metric = Accuracy()
    assert metric.value(metric.rows(OUTPUTS).sum(0)) == pytest.approx(correct / 60)


def test_macro_f1() -> None:
    scores = []
    for name in {*PREDICTED, *LABELS.tolist()}:
        pairs = list(zip(PREDICTED, LABELS, strict=True))
        right = sum(found == label == name for found, label in pairs)
        precision = right / max(1, sum(found == name for found, _ in pairs))
        recall = right / max(1, sum(label == name for _, label in pairs))
        scores.append(0.0 if right == 0 else 2 * precision * recall / (precision + recall))
    metric = MacroF1()
    assert metric.value(metric.rows(OUTPUTS).sum(0)) == pytest.approx(np.mean(scores))


def test_a_class_that_does_not_occur_has_no_f1() -> None:
    outputs = SimpleNamespace(labels=np.array([0, 1]), probabilities=np.eye(3)[[0, 1]])
    metric = MacroF1()
    assert metric.value(metric.rows(outputs).sum(0)) == 1.0


def test_calibration_error() -> None:
    total = 0.0
    for number in range(BINS):
        members = [
            i for i, row in enumerate(PROBABILITIES) if number / BINS < row.max() <= (number + 1) / BINS
        ]
        if members:
            accuracy = np.mean([PREDICTED[i] == LABELS[i] for i in members])
            total += len(members) * abs(accuracy - np.mean([PROBABILITIES[i].max() for i in members]))
    metric = CalibrationError()
    assert metric.value(metric.rows(OUTPUTS).sum(0)) == pytest.approx(total / 60)


def test_weights_of_words() -> None:
    outputs = SimpleNamespace(
        weights=[np.array([0.9, 0.2, 0.6]), np.array([0.5, 0.5])],
        thresholds=[0.5, 0.4],
        deciding=[np.array([True, False, False]), np.array([False, True])],
    )
    found = {metric.name: metric.value(metric.rows(outputs).sum(0)) for metric in
             (WordPrecision(), WordRecall(), WordAuc())}  # fmt: skip
    # Selected: words 0 and 2 of the first text, both of the second. Pairs: 2 won, 1 tied.
    assert found == {
        "word_precision": 2 / 4,
        "word_recall": 1.0,
        "word_auc": pytest.approx(2.5 / 3),
    }


def test_without_known_words_there_is_no_metric_of_words() -> None:
    assert WordAuc().unavailable(SimpleNamespace(deciding=None))
    assert WordAuc().unavailable(SimpleNamespace(deciding=[])) is None
