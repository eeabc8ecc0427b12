"""Metrics of copying against hand-made values."""

from types import SimpleNamespace
from typing import Any

import pytest

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.metrics.copying import CopiedWords, NovelNgrams
from seq2seq_lab.metrics.segmentation import Segmentation
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
    assert metric.unavailable(outputs("", "")) is None
    texts: Any = SimpleNamespace(references=References(["ab"], ["cd"]), text=ParallelText(["cd"], ["ab"]))
    assert metric.unavailable(texts) == "no reference has a word of its source"


@pytest.mark.parametrize(
    ("tokenizer", "source", "target", "line"),
    [
        ("13a", "Zoe, who met Bob, left.", "Bob left", "Bob, left"),
        ("zh", "今天天气好。", "天气", "气候"),
        ("char", "ไปวัด", "วัด", "วัน"),
    ],
)
def test_words_are_those_of_bleu(tokenizer: str, source: str, target: str, line: str) -> None:
    references = References([target], [source], segmentation=Segmentation(tokenizer))
    text = ParallelText([source], [target])
    texts: Any = SimpleNamespace(scored=[line], references=references, text=text)
    shared = {"13a": 2, "zh": 2, "char": 3}[tokenizer]
    copied = {"13a": 2, "zh": 1, "char": 2}[tokenizer]
    assert CopiedWords().rows(texts).tolist() == [[copied, shared]]
    assert NovelNgrams(1, True).rows(texts).tolist() == [[0, shared]]
    assert CopiedWords().signature(texts) == f"case:mixed|tok:{tokenizer}"
