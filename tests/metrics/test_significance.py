"""The p-values of a comparison: vectorised BLEU, the level of the test, and of its correction."""

import math
import random

import numpy as np
import pytest

from seq2seq_lab.metrics.scores import Bleu, paired_bootstrap, two_sided_p
from seq2seq_lab.reporting.comparison import holm, number_of_pairs


def sentences(seed: int, words: int, count: int = 40) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice("abcdefgh") for _ in range(draw.randint(1, words))) for _ in range(count)]


@pytest.mark.parametrize("words", [2, 3, 12])
def test_bleu_of_summed_counts_is_sacrebleus(words: int) -> None:
    for seed in range(20):
        hypotheses, references = sentences(seed, words, 1 + seed), sentences(seed + 100, words, 1 + seed)
        bleu = Bleu(hypotheses, references)
        counts = bleu.counts_by_source().sum(0, keepdims=True)
        assert bleu.of_counts(counts) == pytest.approx([bleu.score().value])
    empty = Bleu([""], ["a b c d e"])
    assert empty.of_counts(empty.counts_by_source()) == [0]


def test_the_test_of_one_difference_keeps_its_level() -> None:
    draw = np.random.default_rng(1)
    observed = draw.standard_normal(4000)
    resampled = observed + draw.standard_normal((1000, 4000))
    rejected = np.mean(np.array(two_sided_p(resampled, observed)) <= 0.05)
    assert 0.04 < rejected < 0.06  # 0.11 with sacreBLEU's absolute values before centring


@pytest.mark.parametrize("groups", [6, 15])
def test_the_corrected_test_keeps_its_level_where_the_best_is_the_baseline(groups: int) -> None:
    """Groups without any difference: how often is one significantly worse than the best of them?"""
    scores = np.random.default_rng(2).standard_normal((4000, groups))
    far = (scores.max(1, keepdims=True) - scores) / math.sqrt(2)
    far.sort(axis=1)

    def error(comparisons: int) -> float:
        least = [[math.erfc(z / math.sqrt(2)) for z in row[1:]] for row in far]
        return float(np.mean([min(holm(values, comparisons)) <= 0.05 for values in least]))

    assert error(number_of_pairs(groups)) <= 0.05
    # The correction for a baseline that is named beforehand is too weak for one that is chosen by score.
    assert error(groups - 1) > 0.09


def test_a_baseline_that_was_named_needs_one_comparison_for_each_other_group() -> None:
    scores = np.random.default_rng(3).standard_normal((4000, 6))
    p = [[math.erfc(abs(row[0] - other) / 2) for other in row[1:]] for row in scores]
    assert np.mean([min(holm(values, 5)) <= 0.05 for values in p]) <= 0.05


def test_the_paired_bootstrap_of_alike_and_of_other_systems() -> None:
    references = sentences(1, 12)
    draw = random.Random(0)
    worse, other = (
        [" ".join(word if draw.random() < share else "x" for word in line.split()) for line in references]
        for share in (0.5, 0.9)
    )
    same, far = paired_bootstrap(other, [other, worse], references, 999)
    assert same == 1
    assert far == pytest.approx(0.001)
