"""ROUGE against values by hand."""

import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.registry import BUILT_IN
from seq2seq_lab.metrics.rouge import Rouge, RougeScore
from seq2seq_lab.metrics.texts import References
from seq2seq_lab.tasks.captions import evaluation as captions
from seq2seq_lab.tasks.classification import evaluation as classification
from seq2seq_lab.tasks.span import evaluation as span
from seq2seq_lab.tasks.tagging import evaluation as tagging
from seq2seq_lab.tasks.translation import evaluation as translation

SOURCES = ["a", "a", "b"]
TARGETS = ["The black cat sleeps.", "A cat", "dogs bark"]


def test_it_needs_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(
        UserError, match=r"metric=rouge_l needs rouge-score: pip install 'seq2seq_lab\[rouge\]'"
    ):
        Rouge("rougeL", False)


@pytest.mark.parametrize(
    ("kind", "stemmer", "f1"),
    [
        ("rouge1", False, (2 / 3, 0.5)),
        ("rouge2", False, (0, 0)),
        ("rougeL", False, (2 / 3, 0.5)),
        ("rouge1", True, (2 / 3, 1)),
    ],
)
def test_the_f1_is_that_of_the_best_reference(kind: Any, stemmer: bool, f1: tuple[float, float]) -> None:
    pytest.importorskip(
        "rouge_score", reason="rouge-score is not installed (pip install 'seq2seq_lab[rouge]')"
    )
    references = References(TARGETS, SOURCES, multiple=True)
    metric, outputs = (
        Rouge(kind, stemmer),
        SimpleNamespace(references=references, scored=["the cat", "dog bark"]),
    )
    rows = metric.rows(outputs)  # type: ignore[arg-type]
    assert rows.tolist() == [pytest.approx([value, 1]) for value in f1]
    assert metric.value(rows.sum(0)) == pytest.approx(50 * sum(f1))
    assert f"|stem:{'yes' if stemmer else 'no'}|" in metric.signature(outputs)  # type: ignore[arg-type]


@pytest.mark.parametrize(("reference", "reads"), [("राजा सोता है।", False), ("le roi", True), ("7", True)])
def test_references_without_letters_that_it_reads_have_no_score(reference: str, reads: bool) -> None:
    metric = RougeScore("rougeL", False)
    outputs: Any = SimpleNamespace(references=References([reference], ["x"]), scored=["राजा"])
    assert (metric.unavailable(outputs) is None) == reads


def test_the_comparison_computes_what_the_statistics_mean() -> None:
    """A metric that is not in the registry is computed as the ratio of its two sums."""
    sums = np.array([30.0, 40.0])
    values = {"rouge_1": 75.0, "rouge_2": 75.0, "rouge_l": 75.0, "perplexity_free_running": math.exp(0.75)}
    assert {name: BUILT_IN[name].value(sums) for name in values} == pytest.approx(values)
    for metric in (
        *translation.METRICS,
        *captions.METRICS,
        *classification.METRICS,
        *span.METRICS,
        *tagging.METRICS,
    ):
        if metric.per_example and metric.name not in BUILT_IN:
            assert metric.value(sums) == 0.75, metric.name
