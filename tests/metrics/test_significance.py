"""The p-values of a comparison: vectorized BLEU, levels and power of the tests, and the correction."""

import itertools
import math
import random
import statistics
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from benchmarks.simulated_groups import (
    Scenario,
    equal_groups,
    equal_rate,
    familywise_rate,
    highest_rate,
    simulate,
)
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.metrics.significance import (
    LEAST_P,
    SEED,
    Differences,
    compare_means,
    holm,
    paired_bootstrap,
    two_sided_p,
)
from seq2seq_lab.metrics.texts import References, TextOutputs


def bleu_rows(hypotheses: list[str], references: list[str]) -> Any:
    return Bleu().rows(TextOutputs(hypotheses, References(references)))


def bootstrap(
    baseline: list[str],
    systems: list[list[str]],
    references: list[str],
    samples: int,
    sources: list[str] | None = None,
) -> list[float]:
    every = [bleu_rows(hypotheses, references) for hypotheses in (baseline, *systems)]
    clusters = References(references, sources).clusters
    pairs = [(0, number) for number in range(1, len(every))]
    return paired_bootstrap(Bleu().values, every, pairs, clusters, samples)


def sentences(seed: int, words: int, count: int = 40) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice("abcdefgh") for _ in range(draw.randint(1, words))) for _ in range(count)]


@pytest.mark.parametrize("words", [2, 3, 12])
def test_bleu_of_many_sums_is_sacrebleus(words: int) -> None:
    for seed in range(20):
        hypotheses, references = sentences(seed, words, 1 + seed), sentences(seed + 100, words, 1 + seed)
        totals = bleu_rows(hypotheses, references).sum(0)
        assert Bleu().values(totals[None]) == pytest.approx([Bleu().value(totals)])
    assert Bleu().values(bleu_rows([""], ["a b c d e"])) == [0]


def test_the_test_of_one_difference_keeps_its_level() -> None:
    draw = np.random.default_rng(1)
    observed = draw.standard_normal(4000)
    resampled = observed + draw.standard_normal((1000, 4000))
    rejected = np.mean(np.array(two_sided_p(resampled, observed)) <= 0.05)
    assert 0.04 < rejected < 0.06  # 0.11 with sacreBLEU's absolute values before centring


def normal_p(first: float, second: float) -> float:
    return math.erfc(abs(first - second) / 2)


@pytest.mark.parametrize("groups", [6, 15])
def test_the_corrected_test_keeps_its_level_where_the_best_is_the_baseline(groups: int) -> None:
    """Groups without any difference: how often is one significantly worse than the best of them?"""
    scores = np.random.default_rng(2).standard_normal((1000, groups))
    errors = {"all pairs": 0.0, "the best": 0.0}
    for row in scores:
        every = [normal_p(a, b) for a, b in itertools.combinations(row, 2)]
        with_best = [normal_p(row.max(), other) for other in row if other != row.max()]
        errors["all pairs"] += min(holm(every)) <= 0.05
        errors["the best"] += min(holm(with_best)) <= 0.05
    assert errors["all pairs"] / len(scores) <= 0.06
    # The correction for a baseline that is named beforehand is too weak for one that is chosen by score.
    assert errors["the best"] / len(scores) > 0.08


def test_a_baseline_that_was_named_needs_one_comparison_for_each_other_group() -> None:
    scores = np.random.default_rng(3).standard_normal((4000, 6))
    p = [[normal_p(row[0], other) for other in row[1:]] for row in scores]
    assert np.mean([min(holm(values)) <= 0.05 for values in p]) <= 0.05


def test_holm_over_all_pairs_finds_what_an_upper_bound_does_not() -> None:
    """Each step of Holm's procedure corrects for the comparisons that are left."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.006, *[1e-5] * 40]) == pytest.approx([0.006, *[41e-5] * 40])


def test_the_paired_bootstrap_of_alike_and_of_other_systems() -> None:
    references = sentences(1, 12)
    draw = random.Random(0)
    worse, other = (
        [" ".join(word if draw.random() < share else "x" for word in line.split()) for line in references]
        for share in (0.5, 0.9)
    )
    same, far = bootstrap(other, [other, worse], references, 999)
    assert same == 1
    assert far == pytest.approx(0.001)


SOURCES = ["un", "deux", "trois", "quatre", "cinq"]
REFERENCES = [f"{word} cats sat on the mat and slept" for word in ("the", "two", "big", "red", "old")]
HYPOTHESES = [
    "the cats sat on the mat and slept",
    "two dogs sat on the mat and slept",
    "big cats ran to the mat and slept",
    "a red cat sat on a mat",
    "old cats sat on the mat",
]
OTHERS = [
    "the cat sat on the mat and slept",
    "two cats sat on the mat and slept",
    "big cats ran to a mat and slept",
    "red cats sat on a mat and slept",
    "old dogs sat on the mat",
]


def test_paired_bootstrap_is_the_two_sided_test_of_sacrebleus_samples() -> None:
    third = [*HYPOTHESES[:4], "old cats lay on the mat"]
    metric = BLEU(references=[REFERENCES])
    draws = np.random.default_rng(SEED).choice(len(SOURCES), size=(500, len(SOURCES)))

    def scores(hypotheses: list[str]) -> Any:
        counts: Any = np.array(metric._extract_corpus_statistics(hypotheses, None))
        of_samples = [metric._compute_score_from_stats(list(counts[rows].sum(0))).score for rows in draws]
        return metric._compute_score_from_stats(list(counts.sum(0))).score, np.array(of_samples)

    score, resampled = scores(HYPOTHESES)
    expected = []
    for hypotheses in (OTHERS, third):
        other, others = scores(hypotheses)
        differences = others - resampled
        greater = np.abs(differences - differences.mean()) >= abs(other - score)
        expected.append((greater.sum() + 1) / 501)
    assert 0.05 < min(expected) < max(expected) < 0.9
    for sources in (None, SOURCES):
        assert bootstrap(HYPOTHESES, [OTHERS, third], REFERENCES, 500, sources) == pytest.approx(expected)


def test_paired_bootstrap_resamples_source_sentences() -> None:
    once = bootstrap(HYPOTHESES, [OTHERS], REFERENCES, 500)
    many = (HYPOTHESES * 8, [OTHERS * 8], REFERENCES * 8, 500)
    assert bootstrap(*many, SOURCES * 8) == once
    assert bootstrap(*many) < once


def mean(totals_SK: Any) -> Any:
    return totals_SK[:, 0] / totals_SK[:, 1]


def runs(draw: np.random.Generator, easy: Any, count: int, better: float, spread: float) -> list[Any]:
    """Return the statistics of runs: scores of examples with common difficulties, of runs that vary by `spread`."""
    noise = draw.standard_normal((count, len(easy))) + spread * draw.standard_normal((count, 1)) + better
    return [np.stack([easy + row, np.ones(len(easy))], axis=1) for row in noise]


def rejected(counts: tuple[int, int], better: float, spread: float, trials: int = 300) -> tuple[float, float]:
    """Return how often the test of means and the paired test of single runs find a difference at the 5% level."""
    draw, clusters = np.random.default_rng(4), np.arange(60)
    found = np.zeros(2)
    for _ in range(trials):
        easy = 2 * draw.standard_normal(len(clusters))
        one, other = (
            runs(draw, easy, count, gain, spread) for count, gain in zip(counts, (0, better), strict=True)
        )
        of_means = compare_means(mean, [one, other], clusters, 400).p_values()[0]
        (single,) = paired_bootstrap(mean, [one[0], other[0]], [(0, 1)], clusters, 400)
        found += [of_means <= 0.05, single <= 0.05]
    return tuple(found / trials)


@pytest.mark.parametrize("counts", [(3, 3), (5, 3)])
@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_the_test_of_means_keeps_its_level_where_runs_vary(counts: tuple[int, int], spread: float) -> None:
    of_means, single = rejected(counts, 0.0, spread)
    assert of_means <= 0.065
    assert single > (0.5 if spread == 0.5 else 0.08)


def test_the_test_of_means_finds_differences_that_are_larger_than_the_variation_of_runs() -> None:
    assert rejected((3, 3), 2.0, 0.5)[0] > 0.75


def test_runs_that_vary_only_by_their_errors_on_the_examples_are_tested_at_the_level() -> None:
    """The interaction is in the deviations of the runs; with the resampled examples as well, the level is 0.005."""
    level, _ = rejected((3, 3), 0.0, 0.0, trials=600)
    assert 0.015 < level < 0.06


@pytest.mark.parametrize(
    ("counts", "deviations"), [((3, 3), (2.1, 0.13)), ((2, 10), (1.0, 0.2)), ((3, 12), (1.5, 0.2))]
)
def test_unequal_groups_keep_the_level(counts: tuple[int, int], deviations: tuple[float, float]) -> None:
    """With the chi-square distribution of pooled degrees of freedom the levels are 0.11, 0.21 and 0.14."""
    for examples in (0.0, 0.3):
        scenario = Scenario(counts, deviations, examples=examples)
        assert familywise_rate(scenario, 4000, np.random.default_rng(1)) <= 0.085


@pytest.mark.parametrize("size", [2, 6, 15])
@pytest.mark.parametrize("runs_each", [3, 12])
def test_familywise_level_of_equal_groups(size: int, runs_each: int) -> None:
    """A small version of `python -m benchmarks.significance`; its limits are 0.06 and 0.075."""
    counts = (runs_each,) * size
    noise = 3 * math.sqrt(0.06 * 0.94 / 1000)
    for ratio, limit in ((3, 0.06), (10, 0.075)):
        scenarios = [one for one in equal_groups(counts, ratio, [100]) if one.examples < 2]
        assert highest_rate(scenarios[::3], 1000) <= limit + noise


@pytest.mark.parametrize("counts", [(3,) * 3 + (12,) * 3, (3,) * 14 + (12,)])
def test_familywise_level_of_groups_of_unequal_sizes(counts: tuple[int, ...]) -> None:
    small = tuple(1.0 if count == 3 else 0.5 for count in counts)
    rate = familywise_rate(Scenario(counts, small), 3000, np.random.default_rng(2))
    assert rate <= 0.1  # 0.13 to 0.2 with the degrees of freedom of Welch and Satterthwaite


def test_power_at_a_difference_of_2_bleu() -> None:
    """Three seeds against three with a deviation of 0.5, where the examples cause a standard error of 0.5."""
    draw = np.random.default_rng(3)
    assert familywise_rate(Scenario((3, 3), (0.5, 0.5), 1000, 0.5, better=2.0), 4000, draw) >= 0.75


def test_the_simulation_is_that_of_the_test_of_simulated_runs() -> None:
    """The parts of the variance and the rates, with run effects, examples that suit a configuration, and interaction."""
    draw, count, trials = np.random.default_rng(9), 80, 400
    scenario = Scenario((3, 5), (0.4, 0.8), count, examples=0.5, interaction=0.6)
    parts, found = [], 0
    for _ in range(trials):
        easy = 3 * draw.standard_normal(count)
        groups = []
        for number, deviation in zip(scenario.counts, scenario.deviations, strict=True):
            suits = scenario.examples / math.sqrt(2) * math.sqrt(count) * draw.standard_normal(count)
            own = scenario.interaction * math.sqrt(count) * draw.standard_normal((number, count))
            shift = deviation * draw.standard_normal((number, 1))
            groups.append([np.stack([row, np.ones(count)], 1) for row in easy + suits + own + shift])
        compared = compare_means(mean, groups, np.arange(count), 200)
        parts.append(compared.variances_P3[0])
        found += compared.p_values()[0] <= 0.05
    simulated = np.concatenate(
        [one.variances_P3[:, 0] for one in simulate(scenario, 8000, np.random.default_rng(1))]
    )
    expected = [(0.4**2 + 0.6**2) / 3, (0.8**2 + 0.6**2) / 5, 0.5**2]
    assert simulated.mean(0) == pytest.approx(expected, rel=0.04)
    assert np.mean(parts, axis=0) == pytest.approx(expected, rel=0.15)
    rate = familywise_rate(scenario, 8000, np.random.default_rng(1))
    assert found / trials == pytest.approx(rate, abs=0.03)


def slow_critical_value(variances: Any, freedom: Any, level: float) -> float:
    """The quantiles by bisection of the integrated densities, and Welch's sum term by term."""

    def tail(x: float, degrees: float) -> float:
        log_scale = (
            math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
        )
        # t = tan(a) makes the range finite.
        angles = np.linspace(math.atan(x), math.pi / 2, 20_001)[:-1]
        density = np.exp(log_scale) * (1 + np.tan(angles) ** 2 / degrees) ** (-(degrees + 1) / 2)
        return float(np.trapezoid(density / np.cos(angles) ** 2, angles))

    def quantile(degrees: float) -> float:
        low, high = 0.0, 1000.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if tail(middle, degrees) > level / 2 else (low, middle)
        return low

    normal = math.sqrt(2) * max(x for x in np.linspace(0, 6, 60_001) if math.erfc(x) >= level)
    total = sum(variances)
    return normal + sum(
        (part / total) ** 2 * (quantile(degrees) - normal)
        for part, degrees in zip(variances, freedom, strict=True)
    )


@pytest.mark.parametrize("level", [0.05, 0.01])
def test_critical_values_and_p_values_are_those_of_the_definition(level: float) -> None:
    variances, freedom = [0.3, 0.1, 0.2], [2.0, 4.0, 99.0]
    expected = slow_critical_value(variances, freedom, level)
    error = math.sqrt(sum(variances))
    one = Differences(np.array([expected * error]), np.array([variances]), np.array([freedom]), np.zeros(1))
    assert one.critical_values(level) == pytest.approx([expected], rel=1e-3)
    assert one.p_values() == pytest.approx([level], rel=5e-3)
    assert one.half_widths() == pytest.approx(
        [slow_critical_value(variances, freedom, 0.05) * error], rel=1e-3
    )
    half = Differences(one.values_P, one.variances_P3, one.freedom_P3, np.array([0.5]))
    assert half.p_values() == pytest.approx([0.5 + 0.5 * level], rel=5e-3)


def test_one_part_has_students_critical_value() -> None:
    one = Differences(np.zeros(1), np.array([[1.0, 0, 0]]), np.array([[2.0, 5.0, 99.0]]), np.zeros(1))
    assert one.critical_values(0.05) == pytest.approx([4.3027], abs=1e-4)


@pytest.mark.parametrize("value", [0.4, -0.4])
def test_a_difference_is_within_a_margin_if_its_90_percent_interval_is(value: float) -> None:
    variances, freedom = [0.03, 0.01, 0.02], [2.0, 4.0, 99.0]
    half = slow_critical_value(variances, freedom, 0.1) * math.sqrt(sum(variances))
    one = Differences(np.array([value]), np.array([variances]), np.array([freedom]), np.zeros(1))
    assert one.within(0.4 + 1.002 * half).all()
    assert not one.within(0.4 + 0.998 * half).any()
    undefined = Differences(one.values_P, one.variances_P3, one.freedom_P3, np.array([0.1]))
    assert not undefined.within(10.0).any()


@pytest.mark.parametrize("runs_each", [3, 10])
def test_groups_that_differ_by_the_margin_are_rarely_found_equal(runs_each: int) -> None:
    for better, at_least, at_most in ((0.02, 0.0, 0.06), (0.0, 0.8 if runs_each == 10 else 0.0, 1.0)):
        scenario = Scenario((runs_each,) * 2, (0.01,) * 2, 100, 0.002, 0.005, better)
        assert at_least <= equal_rate(scenario, 0.02, 4000) <= at_most


def test_the_parts_of_the_variance_are_those_of_a_slow_loop() -> None:
    draw = np.random.default_rng(5)
    easy = draw.standard_normal(40)
    groups = [runs(draw, easy, 3, 0.0, 0.3), runs(draw, easy, 4, 0.5, 0.3)]
    clusters = np.arange(40) // 2
    numbers = np.random.default_rng(SEED)
    samples = numbers.integers(20, size=(300, 20))
    scores = [[mean(rows.sum(0)[None])[0] for rows in group] for group in groups]
    resampled = [
        [
            [mean(sum(rows[2 * one] + rows[2 * one + 1] for one in sample)[None])[0] for rows in group]
            for sample in samples
        ]
        for group in groups
    ]
    of_runs, interactions = [], []
    for of_group, of_samples in zip(scores, resampled, strict=True):
        count = len(of_group)
        of_runs.append(statistics.variance(of_group) / count)
        deviations = [
            [score - statistics.mean(row) for row in of_samples for score in [row[i]]] for i in range(count)
        ]
        interactions.append(statistics.mean(map(statistics.variance, deviations)) / (count - 1))
    differences = [statistics.mean(b) - statistics.mean(a) for a, b in zip(*resampled, strict=True)]
    of_examples = 20 / 19 * (statistics.variance(differences) - sum(interactions))
    found = compare_means(mean, groups, clusters, 300)
    assert found.variances_P3[0] == pytest.approx([*of_runs, max(0.0, of_examples)], rel=1e-3)
    assert found.freedom_P3.tolist() == [[2, 3, 19]]
    assert found.values_P == pytest.approx(
        [statistics.mean(scores[1]) - statistics.mean(scores[0])], rel=1e-3
    )


def test_equal_groups_and_groups_whose_runs_do_not_vary() -> None:
    draw = np.random.default_rng(6)
    group = runs(draw, draw.standard_normal(40), 3, 0.0, 0.5)
    better = [rows + np.array([9.0, 0.0]) for rows in group]
    same, far, _ = compare_means(mean, [group, group, better], np.arange(40)).p_values()
    assert same == 1
    assert far < 0.01
    constant = [np.ones((40, 2))] * 3
    p = compare_means(
        mean, [constant, constant, [2 * rows - [0, 1] for rows in constant]], np.arange(40)
    ).p_values()
    assert p.tolist() == [1, LEAST_P, LEAST_P] or p == pytest.approx([1, LEAST_P, LEAST_P])
    assert compare_means(mean, [group, better], np.zeros(40, int)).p_values() == [1]  # one cluster


def test_the_number_of_seeds_that_would_decide_a_difference_does() -> None:
    one = Differences(
        np.array([1.0, 0.01]),
        np.array([[0.25, 0.25, 0.05]] * 2),
        np.array([[2.0, 2.0, 999.0]] * 2),
        np.zeros(2),
    )
    few, none = one.seeds_to_decide(3)
    assert none is None
    equal = Differences(np.zeros(1), np.zeros((1, 3)), np.array([[2.0, 2.0, 999.0]]), np.zeros(1))
    assert equal.seeds_to_decide(3) == [None]
    assert few is not None
    # The deviations are √(0.25 · 3); a power of 0.8 at the level 0.05 / 3.
    for seeds, enough in ((few, True), (few * 2 // 3, False)):
        scenario = Scenario((seeds, seeds), (0.75**0.5,) * 2, 1000, 0.05**0.5, better=1.0)
        found = np.concatenate(
            [
                np.abs(part.values_P[:, 0]) > part.critical_values(0.05 / 3)[:, 0] * part.errors_P[:, 0]
                for part in simulate(scenario, 4000, np.random.default_rng(7))
            ]
        )
        assert bool(found.mean() > 0.78) is enough
        assert found.mean() < 0.9


def test_samples_of_many_examples_are_drawn_in_small_chunks() -> None:
    draw, count, samples = np.random.default_rng(7), 2**15, 200
    rows = draw.integers(0, 9, size=(count, 2)).astype(float)
    chunks: list[Any] = []

    def values(totals_SK: Any) -> Any:
        chunks.append(totals_SK)
        return mean(totals_SK)

    paired_bootstrap(values, [rows], [], np.arange(count), samples)
    observed, *resampled = chunks
    assert (observed == rows.sum(0)).all()
    assert max(map(len, resampled)) * count <= 2**22
    at_once = np.random.default_rng(SEED).integers(count, size=(samples, count))
    assert (np.concatenate(resampled) == np.stack([rows[one].sum(0) for one in at_once])).all()


def test_samples_in_which_a_metric_is_not_defined_find_no_difference() -> None:
    rows = np.zeros((40, 2))
    rows[:2] = 1  # few samples without one of these two are defined
    with np.errstate(invalid="ignore", divide="ignore"):
        (p,) = paired_bootstrap(
            lambda totals_SK: totals_SK[:, 0] / totals_SK[:, 1], [rows, rows], [(0, 1)], np.arange(40), 200
        )
    assert p == 1
    assert two_sided_p(np.array([[np.nan], [1.0], [-1.0], [0.5]]), np.array([2.0])) == [2 / 5]


def test_a_single_example_decides_nothing() -> None:
    right, wrong = np.array([[1.0, 1.0]]), np.array([[0.0, 1.0]])

    def share(totals_SK: Any) -> Any:
        return totals_SK[:, 0] / totals_SK[:, 1]

    assert paired_bootstrap(share, [right, wrong], [(0, 1)], np.arange(1), 1000) == [1.0]
    assert compare_means(share, [[right] * 3, [wrong] * 3], np.arange(1)).p_values() == [1.0]


def test_means_of_equal_scores_do_not_differ() -> None:
    rows = np.array([[float(i % 20 != 0), 1.0] for i in range(100)])  # 95 of 100 right, in every run
    found = compare_means(
        lambda sums_SK: sums_SK[:, 0] / sums_SK[:, 1], [[rows] * 5, [rows] * 10], np.arange(100)
    )
    assert (found.values_P[0], found.p_values()[0]) == (0, 1)
