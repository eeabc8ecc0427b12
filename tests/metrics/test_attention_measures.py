"""Measures of attention against slow definitions."""

import math
from itertools import pairwise

import numpy as np
import pytest
from demo_models import SOURCES, TARGETS, demo
from scipy.stats import entropy, kendalltau

from seq2seq_lab.metrics.alignment import read
from seq2seq_lab.metrics.attention import ATTENTION_MEASURES, COLUMNS, Units, measures


def units(line: str, spans: list[tuple[int, int]], before: int = 1) -> list[int]:
    return Units.of(line, spans, before).of_token.tolist()


@pytest.mark.parametrize(
    ("line", "pieces", "expected"),
    [
        ("walking slowly.", ["walk", "ing", " slow", "ly", "."], [0, 1, 1, 2, 2, 3, 4]),
        ("l'homme", ["l'", "homme"], [0, 1, 2, 3]),
        ("don't", ["don", "'", "t"], [0, 1, 2, 3, 4]),
        ("中文 ab", ["中", "文", "ab"], [0, 1, 2, 3, 4]),
        ("हिन्दी", ["हि", "न्", "दी"], [0, 1, 1, 1, 2]),
        ("a b", ["a", " ", "b"], [0, 1, 2, 3, 4]),
        ("", [], [0, 1]),
    ],
)
def test_pieces_of_a_word_are_one_unit(line: str, pieces: list[str], expected: list[int]) -> None:
    spans, end = [], 0
    for piece in pieces:
        start = line.index(piece.strip() or piece, end)
        end = start + len(piece.strip() or piece)
        spans.append((start, end))
    assert units(line, spans) == expected


def test_the_bytes_of_a_letter_and_a_token_without_a_character_are_no_units() -> None:
    assert units("naïve", [(0, 2), (2, 3), (2, 3), (3, 5)]) == [0, 1, 1, 1, 1, 2]
    assert units("猫 a", [(0, 1), (0, 1), (0, 1), (2, 3)]) == [0, 1, 1, 1, 2, 3]
    assert units("猫犬", [(0, 0), (0, 1), (1, 2), (1, 2)]) == [0, 1, 1, 2, 2, 3]
    assert Units.of("猫", [(0, 0), (0, 1)], 1).is_word.tolist() == [False, True, False]


def slow(weights_TS: np.ndarray, source: Units, target: Units) -> dict[str, float]:
    """The measures of one sentence, by their definitions."""
    rows = [
        np.mean([weights_TS[t] for t, unit in enumerate(target.of_token) if unit == one], axis=0)
        for one in range(len(target.is_word))
    ]
    alpha = np.array(
        [
            [
                sum(row[s] for s, unit in enumerate(source.of_token) if unit == one)
                for one in range(len(source.is_word))
            ]
            for row in rows
        ]
    )
    entropies = [entropy(row) for row in alpha]
    best = [int(row.argmax()) for row in alpha]
    words = [s for s, is_word in enumerate(source.is_word) if is_word]
    used = {max(words, key=lambda s: (row[s], -s)) for row in alpha[:-1]}
    marks = [s for s in range(1, len(source.is_word) - 1) if not source.is_word[s]]
    return {
        "entropy": np.mean(entropies),
        "entropy_relative": np.mean(entropies) / math.log(alpha.shape[1]),
        "effective_words": np.mean(np.exp(entropies)),
        "sharpness": np.mean(alpha.max(1)),
        "unused": 1 - len(used) / len(words),
        "coverage_error": np.mean([abs(1 - alpha[:, s].sum()) for s in words]),
        "monotonicity": np.mean([b >= a for a, b in pairwise(best)]),
        "tau": kendalltau(range(len(best)), best).statistic,
        "mass_sos": alpha[:, 0].mean(),
        "mass_eos": alpha[:, -1].mean(),
        "mass_punctuation": alpha[:, marks].sum(1).mean(),
    }


def test_measures_equal_their_definitions_alone_and_in_a_batch() -> None:
    generator = np.random.default_rng(0)
    source_of = [[0, 1, 1, 2, 3, 4], [0, 1, 2, 3], [0, 1, 2, 2, 2, 3, 4, 5]]
    target_of = [[0, 1, 1, 2, 3], [0, 1, 2, 3, 4, 5], [0, 0, 1, 2]]
    marks = [[0, 3, 4], [0, 3], [0, 1, 5]]
    sources = [
        Units(np.array(one), ~np.isin(np.arange(max(one) + 1), of_mark))
        for one, of_mark in zip(source_of, marks, strict=True)
    ]
    targets = [Units(np.array(one), np.arange(max(one) + 1) < max(one)) for one in target_of]
    weights_BTS = np.full((3, 6, 8), 0.3)  # padding must not count
    for row, (source, target) in enumerate(zip(source_of, target_of, strict=True)):
        weights_BTS[row, : len(target), : len(source)] = generator.dirichlet(
            np.ones(len(source)), len(target)
        )
    found_BK = measures(weights_BTS, sources, targets)
    assert found_BK.shape == (3, len(COLUMNS))
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        weights_TS = weights_BTS[row, : len(target.of_token), : len(source.of_token)]
        np.testing.assert_allclose(measures(weights_TS[None], [source], [target])[0], found_BK[row])
        expected = slow(weights_TS, source, target)
        for metric in ATTENTION_MEASURES:
            value = metric.value(found_BK[row, metric._columns])
            assert value == pytest.approx(expected[metric.name.removeprefix("attention_")]), metric.name


def test_a_constant_arg_max_has_no_rank_correlation() -> None:
    weights_1TS = np.zeros((1, 3, 4))
    weights_1TS[..., 1] = 1
    source = Units(np.arange(4), np.array([False, True, True, False]))
    target = Units(np.arange(3), np.array([True, True, False]))
    found_K = measures(weights_1TS, [source], [target])[0]
    values = {one.name: one.value(found_K[one._columns]) for one in ATTENTION_MEASURES}
    assert math.isnan(values["attention_tau"])
    assert values["attention_unused"] == 0.5
    assert values["attention_monotonicity"] == 1


def test_the_rows_of_a_window_are_normalized_for_the_entropy() -> None:
    weights_1TS = np.array([[[0.0, 0.2, 0.2, 0.0]]])
    source = Units(np.arange(4), np.array([False, True, True, False]))
    found_K = measures(weights_1TS, [source], [Units(np.array([0]), np.array([False]))])[0]
    assert found_K[COLUMNS.index("entropy")] == pytest.approx(math.log(2))


def test_measures_of_a_batch_are_those_of_each_sentence_alone() -> None:
    run = demo()
    scored = run.score(SOURCES, TARGETS)
    pair = run.tokenizers
    rows = [
        measures(
            one.attention[None],
            [Units.of(one.source, pair.source.spans(one.source), 1)],
            [Units.of(one.target, pair.target.spans(one.target), 0)],
        )[0]
        for one in scored
    ]
    forced = run.forced(SOURCES, TARGETS)
    found = {}
    for index, _, _, weights_BTS in forced.readings():
        assert weights_BTS is not None
        sources = [Units.of(SOURCES[i], pair.source.spans(SOURCES[i]), 1) for i in index]
        targets = [Units.of(TARGETS[i], pair.target.spans(TARGETS[i]), 0) for i in index]
        found |= dict(zip(index, measures(weights_BTS.numpy(), sources, targets), strict=True))
    for i, row in enumerate(rows):
        np.testing.assert_allclose(found[i], row, rtol=1e-5, atol=1e-6)


def test_the_next_row_reads_a_token() -> None:
    weights_TS = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(read(weights_TS), weights_TS[[1, 2, 3, 3]])
    np.testing.assert_array_equal(read(weights_TS[None])[0], weights_TS[[1, 2, 3, 3]])
