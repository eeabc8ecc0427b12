"""Metrics of copying against hand-made values."""

from types import SimpleNamespace
from typing import Any

import pytest

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.metrics.copying import CopiedWords, NovelNgrams
from seq2seq_lab.metrics.texts import References

SOURCES = ["Zoe met the cat today .", "Bob left ."]
TARGETS = ["Zoe meets cat", "Bob leaves"]


def outputs(*lines: str) -> Any:
    return SimpleNamespace(
        scored=[*lines], references=References(TARGETS, SOURCES), text=ParallelText(SOURCES, TARGETS)
    )


@pytest.mark.parametrize(
    ("order", "of_references", "rows"),
    [(1, False, [[1, 4], [0, 0]]), (2, False, [[1, 3], [0, 0]]), (1, True, [[1, 3], [1, 2]]), (3, True, [[1, 1], [0, 0]])],
)  # fmt: skip
def test_novel_ngrams(order: int, of_references: bool, rows: list[list[int]]) -> None:
    metric = NovelNgrams(order, of_references)
    assert metric.rows(outputs("met the cat yesterday", "")).tolist() == rows
    totals = metric.rows(outputs("met the cat yesterday", "")).sum(0)
    assert metric.value(totals) == pytest.approx(totals[0] / totals[1])


def test_words_to_copy() -> None:
    metric = CopiedWords()
    assert metric.rows(outputs("cat Bob cat", "Bob Bob")).tolist() == [[1, 2], [1, 1]]
    assert metric.value(metric.rows(outputs("cat", "")).sum(0)) == pytest.approx(1 / 3)
    assert not metric.is_defined(metric.rows(outputs("", "")).sum(0) * 0)
