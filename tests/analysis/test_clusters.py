"""Intervals of the analyses: pairs of one source sentence are not independent."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from demo_models import SOURCES, TARGETS, demo, demo_with

from seq2seq_lab.analysis.adversary import adversarial_attention
from seq2seq_lab.analysis.comparison import Mean, explain, means
from seq2seq_lab.analysis.controls import alignment_errors
from seq2seq_lab.analysis.distances import measure_distances
from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.analysis.head_measures import measures_of_heads
from seq2seq_lab.analysis.interventions import effects, intervene
from seq2seq_lab.analysis.questions import ask
from seq2seq_lab.data.corpus import Gold
from seq2seq_lab.metrics.significance import clusters_of

Intervals = Iterator[float | None]


def test_examples_of_one_source_are_a_cluster_and_those_without_a_source_are_independent() -> None:
    assert clusters_of(["a", "b", "a", "", "", "b"]).tolist() == [0, 1, 0, 2, 3, 1]


def of_interventions(forced: Forced) -> Intervals:
    yield from effects(intervene(demo().model, forced, ["uniform"], ["step"]))[0].confidence.values()


def of_the_adversary(forced: Forced) -> Intervals:
    yield adversarial_attention(demo().model, forced, limit=0.5, steps=1)[0].confidence


def of_means(found: Any) -> Intervals:
    yield from (mean.confidence for mean in found if isinstance(mean, Mean))


def of_head_measures(forced: Forced) -> Intervals:
    (found,) = measures_of_heads(demo().model, forced)
    yield from of_means(found.values.values())


def of_alignment_errors(forced: Forced) -> Intervals:
    words = [
        (tuple(one.split()), tuple(other.split()))
        for one, other in zip(forced.sources, forced.targets, strict=True)
    ]
    gold = [Gold(*both, frozenset((i, i) for i in range(min(map(len, both))))) for both in words]
    yield from (one.confidence for one in alignment_errors(demo().model, [], forced, gold=gold))


def of_attributions(forced: Forced) -> Intervals:
    questions = [ask(demo().model, forced, i) for i in range(len(forced.targets))]
    yield from of_means([means([*explain(questions, ["attention"])])["attention"]["area"]])


def of_distances(forced: Forced) -> Intervals:
    runs = [demo(), demo_with("luong", "additive")]
    found = measure_distances(runs, {"pair": [(0, 1)]}, forced.sources, forced.targets)["pair"]
    yield from of_means([found.attention, found.predictions])


COMPARED = [of_interventions, of_head_measures, of_alignment_errors, of_attributions, of_distances]


@pytest.mark.parametrize("intervals", COMPARED)
def test_a_second_copy_of_each_pair_does_not_make_an_interval_narrower(
    intervals: Callable[[Forced], Intervals],
) -> None:
    once = [*intervals(demo().forced(SOURCES, TARGETS))]
    twice = [*intervals(demo().forced([*np.repeat(SOURCES, 2)], [*np.repeat(TARGETS, 2)]))]
    assert any(once)
    known = [i for i, half in enumerate(once) if half is not None]
    assert [i for i, half in enumerate(twice) if half is not None] == known
    assert [twice[i] for i in known] == pytest.approx([once[i] for i in known], rel=1e-4)


def test_attributions_resample_the_clusters_of_the_test_set() -> None:
    forced = demo().forced(SOURCES, TARGETS)
    explained = [*explain([ask(demo().model, forced, i) for i in range(4)], ["attention"])]
    own, of_two, of_one = (
        means(explained, clusters)["attention"]["area"] for clusters in (None, [7, 7, 9, 9], [7] * 4)
    )
    assert own.value == of_two.value
    assert own.confidence != of_two.confidence is not None
    assert of_one.confidence is None
    part = means(explained[2:], [0, 0, 1, 1])["attention"]["area"]
    assert part.confidence is None  # one cluster


def test_the_adversary_resamples_sources() -> None:
    forced = demo().forced([*np.repeat(SOURCES, 2)], [*np.repeat(TARGETS, 2)])
    (own,), (independent,) = map(of_the_adversary, (forced, replace(forced, clusters=range(8))))
    assert own is not None
    assert independent is not None
    assert own > 1.1 * independent
