"""Metrics of tags against hand-made values, a slow reference, and seqeval."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seq2seq_lab.metrics.base import Metric
from seq2seq_lab.metrics.measurement import measure
from seq2seq_lab.metrics.registry import BUILT_IN
from seq2seq_lab.metrics.significance import compare_means
from seq2seq_lab.metrics.tagging import TAGGING_METRICS, EntityF1, TokenAccuracy, entities, marks_entities

CLASSES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "E-LOC", "S-PER", "I-MISC"]


def outputs_of(true: Sequence[Sequence[str]], found: Sequence[Sequence[str]], classes: Sequence[str]) -> Any:
    def indices(rows: Sequence[Sequence[str]]) -> list[Any]:
        return [np.array([classes.index(tag) for tag in row]) for row in rows]

    masks = [np.arange(len(row)) % 2 == 0 for row in true]
    return SimpleNamespace(
        classes=classes,
        labels=indices(true),
        predicted=indices(found),
        ambiguous=masks,
        unseen=[np.zeros(len(row), np.bool_) for row in true],
    )


def random_tags(seed: int, sentences: int) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [[str(tag) for tag in rng.choice(CLASSES, size)] for size in rng.integers(1, 12, sentences)]


def value(metric: Metric, outputs: Any) -> float:
    return metric.value(metric.rows(outputs).sum(0))


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-PER I-PER O", {("PER", 1, 2)}),
        ("B-PER B-PER", {("PER", 0, 0), ("PER", 1, 1)}),
        ("I-PER I-PER I-LOC", {("PER", 0, 1), ("LOC", 2, 2)}),  # IOB1: the type changes
        ("B-PER I-LOC", {("PER", 0, 0), ("LOC", 1, 1)}),
        ("S-PER I-PER", {("PER", 0, 0), ("PER", 1, 1)}),
        ("B-LOC E-LOC I-LOC", {("LOC", 0, 1), ("LOC", 2, 2)}),
        ("B-LOC L-LOC U-PER", {("LOC", 0, 1), ("PER", 2, 2)}),  # BILOU
        ("O O", set()),
    ],
)
def test_the_entities_of_tags(tags: str, expected: set[tuple[str, int, int]]) -> None:
    assert entities(tags.split()) == expected


def test_entity_f1_by_hand() -> None:
    true = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
    found = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "B-LOC"]]  # 2 right ones of 3 gold, of 4 predicted
    outputs = outputs_of(true, found, CLASSES)
    assert value(EntityF1(), outputs) == pytest.approx(2 * 2 / (3 + 4))


@pytest.mark.parametrize("seed", range(5))
def test_entity_f1_is_that_of_seqeval(seed: int) -> None:
    seqeval = pytest.importorskip(
        "seqeval.metrics.sequence_labeling", reason="seqeval is not installed (pip install seqeval)"
    )
    true = random_tags(seed, 40)
    found = [
        [tag if np.random.default_rng([seed, i, j]).random() < 0.7 else other for j, (tag, other) in enumerate(rows)]
        for i, rows in enumerate(
            zip(one, two * len(one), strict=False)
            for one, two in zip(true, random_tags(seed + 100, 40), strict=True)
        )
    ]  # fmt: skip
    outputs = outputs_of(true, found, CLASSES)
    assert value(EntityF1(), outputs) == pytest.approx(seqeval.f1_score(true, found))
    assert all(entities(row) == {*seqeval.get_entities(row)} for row in true)


def test_accuracy_is_that_of_a_loop() -> None:
    true, found = random_tags(1, 20), random_tags(1, 20)
    found[3][0] = found[7][-1] = "I-MISC"
    outputs = outputs_of(true, found, CLASSES)
    pairs = [
        (i, tag == other)
        for row, others in zip(true, found, strict=True)
        for i, (tag, other) in enumerate(zip(row, others, strict=True))
    ]
    assert value(TokenAccuracy(), outputs) == pytest.approx(np.mean([right for _, right in pairs]))
    assert value(TokenAccuracy("ambiguous"), outputs) == pytest.approx(
        np.mean([right for i, right in pairs if i % 2 == 0])
    )


@pytest.mark.usefixtures("with_full_reports")
def test_a_sample_without_entities_or_unseen_words_has_no_score() -> None:
    rare = [["O", "B-PER" if i in (5, 50, 120) else "O"] for i in range(200)]
    outputs = outputs_of(rare, rare, CLASSES)
    outputs.unseen = [np.array([False, "B-PER" in tags]) for tags in rare]
    clusters = np.arange(len(rare))
    for metric in (EntityF1(), TokenAccuracy("unseen")):
        found = measure([metric], outputs, clusters=clusters, examples="", final=True)
        assert found.values == {metric.name: 1.0}  # 5% of the samples have none of the three: no interval
    all_right = metric.rows(outputs)
    two_right = all_right.copy()
    two_right[120, 0] = 0
    other_two = all_right.copy()
    other_two[5, 0] = 0
    groups = [[all_right] * 3, [two_right, two_right, other_two]]
    compared = compare_means(metric.values, groups, clusters)
    assert compared.undefined_P[0] == pytest.approx(np.exp(-3), abs=0.02)
    assert compared.p_values()[0] > 0.03


def test_metrics_that_the_data_do_not_have() -> None:
    outputs = outputs_of([["A", "B"]], [["A", "A"]], ["A", "B"])
    assert EntityF1().unavailable(outputs) is not None
    assert TokenAccuracy("unseen").unavailable(outputs) is not None
    assert TokenAccuracy("ambiguous").unavailable(outputs) is None
    assert marks_entities(["O", "B-PER", "I-PER"])
    assert not marks_entities(["O"])
    assert not marks_entities(["O", "BIG", "ADJ"])
    assert not marks_entities(["O", "B-PER", "NOUN"])


def test_the_comparison_knows_every_metric() -> None:
    assert {metric.name for metric in TAGGING_METRICS} <= BUILT_IN.keys()
