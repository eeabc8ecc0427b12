"""Loops, outputs at the length limit, and the length ratio."""

import itertools
import math

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from seq2seq_lab.metrics.degeneration import (
    AtLimit,
    BrevityPenalty,
    DecodedOutputs,
    Endings,
    LengthRatio,
    Loops,
    longest_repeat,
)
from seq2seq_lab.metrics.measurement import measure
from seq2seq_lab.metrics.registry import BUILT_IN
from seq2seq_lab.metrics.texts import References


def slow_longest_repeat(tokens: tuple[int, ...]) -> int:
    """Try every segment at every position."""
    most = 0
    for start, end in itertools.combinations(range(len(tokens) + 1), 2):
        segment, times = tokens[start:end], 1
        while tokens[start + times * len(segment) :][: len(segment)] == segment:
            times += 1
        most = max(most, times)
    return most


@pytest.mark.parametrize("length", range(8))
def test_the_longest_repeat_equals_that_of_trying_every_segment(length: int) -> None:
    for tokens in itertools.product(range(3), repeat=length):
        assert longest_repeat(tokens) == slow_longest_repeat(tokens), tokens


def test_the_longest_repeat_of_longer_segments() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        times, before = int(rng.integers(2, 6)), int(rng.integers(0, 5))
        segment = rng.integers(0, 5, rng.integers(1, 8))
        tokens = (*rng.integers(0, 5, before).tolist(), *np.tile(segment, times).tolist(), 9)
        assert longest_repeat(tokens) == slow_longest_repeat(tokens) >= times


def outputs(
    hypotheses: list[list[int]], references: list[list[int]], sources: list[str] | None = None
) -> DecodedOutputs:
    """Return outputs whose words are numbers; an output that ends with 0 ended with `<eos>`."""
    lines, reference_lines = (
        [" ".join(map(str, tokens)) for tokens in side] for side in (hypotheses, references)
    )
    return DecodedOutputs(
        lines,
        References(reference_lines, sources, multiple=sources is not None),
        endings=Endings(
            np.array([longest_repeat(tokens) for tokens in hypotheses]),
            np.array([longest_repeat(tokens) for tokens in references]),
            np.array([tokens[-1] == 0 for tokens in hypotheses]),
        ),
    )


def test_a_loop_repeats_a_segment_three_times_and_more_often_than_its_reference() -> None:
    cases = [
        ([1, 2, 3, 2, 3, 2, 3, 0], [1, 2, 3, 0], True),  # three times a segment of two tokens
        ([1, 2, 3, 2, 3, 0], [1, 2, 3, 0], False),  # twice
        ([5, 5, 5, 0], [5, 5, 5, 0], False),  # as in the reference
        ([5, 5, 5, 5, 0], [5, 5, 5, 0], True),  # more often than there
        ([5, 5, 5, 0], [1, 7, 1, 7, 1, 7, 0], False),  # the reference repeats another segment as often
    ]
    found = outputs([case[0] for case in cases], [case[1] for case in cases])
    assert found.loops_N.tolist() == [case[2] for case in cases]
    assert Loops().value(Loops().rows(found).sum(0)) == 2 / 5


def test_each_reference_of_a_source_excuses_a_repetition() -> None:
    hypotheses = [[5, 5, 5, 0], [5, 5, 5, 0], [5, 5, 5, 0]]
    references = [[5, 6, 0], [5, 5, 5, 0], [5, 6, 0]]
    assert outputs(hypotheses, references).loops_N.tolist() == [True, False, True]
    assert outputs(hypotheses, references, sources=["a", "a", "b"]).loops_N.tolist() == [False, True]


def test_outputs_at_the_limit_are_those_without_eos() -> None:
    found = outputs([[1, 2, 0], [1, 2], [3, 0], [4]], [[1, 2, 0]] * 4)
    assert AtLimit().value(AtLimit().rows(found).sum(0)) == 0.5


@pytest.mark.parametrize("hypotheses", [[[1, 2, 3], [4]], [[1], [2, 3]], [[1, 2, 3, 4, 5], [1, 2, 3, 4]]])
def test_length_ratio_and_brevity_penalty_equal_those_of_sacrebleu(hypotheses: list[list[int]]) -> None:
    references = [[1, 2, 3, 4], [4, 5]]
    found = outputs(hypotheses, references)
    score = BLEU().corpus_score(
        [" ".join(map(str, line)) for line in hypotheses], [[" ".join(map(str, line)) for line in references]]
    )
    values = measure([LengthRatio(), BrevityPenalty()], found, clusters=np.arange(2), examples="", final=True)
    assert values.values["length_ratio"] == score.ratio
    assert values.values["brevity_penalty"] == pytest.approx(score.bp)
    assert values.signatures["length_ratio"].startswith("nrefs:1|")


def test_empty_outputs_have_the_length_ratio_zero() -> None:
    empty = DecodedOutputs(
        ["", ""],
        References(["a b", "c"]),
        endings=Endings(np.zeros(2, int), np.ones(2, int), np.ones(2, bool)),
    )
    assert LengthRatio().value(LengthRatio().rows(empty).sum(0)) == 0
    assert BrevityPenalty().value(BrevityPenalty().rows(empty).sum(0)) == 0
    assert not math.isnan(Loops().value(Loops().rows(empty).sum(0)))


def test_the_comparison_can_compute_these_metrics_from_statistics() -> None:
    rows = np.array([[1.0, 4.0], [3.0, 4.0]])
    for metric in (Loops(), AtLimit(), LengthRatio(), BrevityPenalty()):
        known = BUILT_IN[metric.name]
        assert known.values(rows).tolist() == pytest.approx([known.value(row) for row in rows])
