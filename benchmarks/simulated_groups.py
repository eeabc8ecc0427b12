"""Simulated groups of runs, to count how often the test of means finds a difference where there is none, or one.

The simulation draws what `differences_of` reads, not the runs: for normally distributed effects, the mean, the variance of
the runs, the interaction and the covariances of the examples are independent, with normal, chi-square and Wishart
distributions. `tests/metrics/test_significance.py` compares it with the test of simulated runs.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from seq2seq_lab.metrics.significance import (
    EXAMPLE_SAMPLES,
    LEVEL,
    Array,
    Differences,
    differences_of,
    pairs_of,
)

RATIOS = (1, 3, 10)  # of the largest to the smallest deviation of the runs of a group
EXAMPLES = (100, 1000)
TRIALS_AT_ONCE = 1000


@dataclass(frozen=True)
class Scenario:
    """Groups of runs whose scores vary.

    Attributes:
        counts: the number of runs of each group.
        deviations: the standard deviation over seeds of each group, on infinitely many examples.
        clusters: the number of clusters of examples.
        examples: the standard error of a difference of two groups of infinitely many runs, from the examples.
        interaction: the standard deviation of the score of one run from the interaction of run and example.
        better: what the mean of the first group is higher by.
    """

    counts: tuple[int, ...]
    deviations: tuple[float, ...]
    clusters: int = 1000
    examples: float = 0.0
    interaction: float = 0.0
    better: float = 0.0


def simulate(scenario: Scenario, trials: int, generator: np.random.Generator) -> Iterator[Differences]:
    """Yield the differences of all pairs of groups, with an axis of trials first, in parts of `TRIALS_AT_ONCE`."""
    for start in range(0, trials, TRIALS_AT_ONCE):
        yield _simulated(scenario, min(TRIALS_AT_ONCE, trials - start), generator)


def _simulated(scenario: Scenario, trials: int, generator: np.random.Generator) -> Differences:
    counts, clusters = np.array(scenario.counts), scenario.clusters
    groups = (trials, len(counts))
    of_interaction = scenario.interaction**2
    of_runs = np.square(scenario.deviations) + of_interaction
    of_examples = scenario.examples**2 / 2
    means = generator.standard_normal(groups) * np.sqrt(of_runs / counts + of_examples)
    means[:, 0] += scenario.better
    observed = _covariances(
        generator, np.diag(np.sqrt(of_examples + of_interaction / counts))[None], clusters - 1, trials
    )
    # A bootstrap sample has N − 1 of N parts of the variance; the samples vary too.
    observed *= (clusters - 1) / clusters
    tiny = 1e-12 * np.eye(len(counts))
    resampled = _covariances(generator, np.linalg.cholesky(observed + tiny), EXAMPLE_SAMPLES - 1, trials)
    one, other = pairs_of(len(counts))
    freedom = (counts - 1) * (clusters - 1)
    interactions = of_interaction * generator.chisquare(freedom, groups) / freedom * (clusters - 1) / clusters
    return differences_of(
        means,
        of_runs * generator.chisquare(counts - 1, groups) / (counts - 1),
        interactions,
        bootstrap_variances_P=resampled[:, one, one]
        + resampled[:, other, other]
        - 2 * resampled[:, one, other],
        counts_G=counts,
        clusters=clusters,
    )


def _covariances(generator: np.random.Generator, factors: Array, freedom: int, trials: int) -> Array:
    """Return sample covariance matrices [trials, G, G] of normal vectors (Bartlett's decomposition of Wishart matrices).

    Args:
        factors: the Cholesky factor of the covariance of the vectors, for all trials or for each.
    """
    size = factors.shape[-1]
    drawn = np.tril(generator.standard_normal((trials, size, size)), -1)
    of_diagonal = np.sqrt(generator.chisquare(freedom - np.arange(size), (trials, size)))
    drawn[:, np.arange(size), np.arange(size)] = of_diagonal
    drawn = factors @ drawn
    product: Array = drawn @ drawn.swapaxes(1, 2) / freedom
    return product


def familywise_rate(
    scenario: Scenario, trials: int, generator: np.random.Generator, columns: int = 1
) -> float:
    """Return how often at least one pair of groups differs at the 5% level, Holm-corrected for all pairs.

    Args:
        columns: the number of columns whose pairs the correction counts; the others have no difference.
    """
    return sum(_found(one, columns).sum() for one in simulate(scenario, trials, generator)) / trials


def _found(differences: Differences, columns: int) -> npt.NDArray[np.bool_]:
    # Holm's first step: the smallest p times the number of pairs.
    critical = differences.critical_values(LEVEL / (columns * differences.values_P.shape[-1]))
    found: npt.NDArray[np.bool_] = np.any(
        np.abs(differences.values_P) > critical * differences.errors_P, axis=-1
    )
    return found


def equal_rate(scenario: Scenario, margin: float, trials: int) -> float:
    """Return the share of pairs of groups that are found to be equal within a margin."""
    generator = np.random.default_rng(1)
    return float(np.mean([part.within(margin).mean() for part in simulate(scenario, trials, generator)]))


def equal_groups(
    counts: tuple[int, ...], ratio: float, examples: Sequence[int] = EXAMPLES
) -> Iterator[Scenario]:
    """Yield scenarios of groups without differences whose deviations are up to `ratio` times apart.

    In terms of the largest deviation, the examples cause an error of 0, 0.5 or 2, and the interaction one of 0 or 1.
    """
    size = len(counts)
    indices = np.arange(size)
    patterns = [np.geomspace(1, 1 / ratio, size), np.where(np.array(counts) == min(counts), 1, 1 / ratio)]
    if ratio > 1:
        patterns += [np.where(indices < part, 1, 1 / ratio) for part in {1, size // 2}]
        patterns.append(patterns[0][::-1])
    for pattern in {tuple(map(float, one)): None for one in patterns}:
        for clusters, error, interaction in itertools.product(examples, (0.0, 0.5, 2.0), (0.0, 1.0)):
            yield Scenario(counts, pattern, clusters, error, interaction)


def highest_rate(scenarios: Sequence[Scenario], trials: int) -> float:
    """Return the highest familywise rate of scenarios; each has its own seed."""
    return max(
        familywise_rate(one, trials, np.random.default_rng(index)) for index, one in enumerate(scenarios)
    )


def level_rows(trials: int) -> list[list[str]]:
    """Return the highest familywise levels: a row for the sizes of the groups, a column for the ratio of deviations."""
    sizes = {f"{k} groups of {n} runs": (n,) * k for k in (2, 6, 15) for n in (3, 5, 12)}
    sizes |= {
        "3 and 12 runs": (3, 12),
        "3 groups of 3 and 3 of 12": (3,) * 3 + (12,) * 3,
        "7 groups of 3 and 8 of 12": (3,) * 7 + (12,) * 8,
        "14 groups of 3 and 1 of 12": (3,) * 14 + (12,),
    }
    return [
        [name, *(f"{highest_rate(list(equal_groups(counts, ratio)), trials):.3f}" for ratio in RATIOS)]
        for name, counts in sizes.items()
    ]


def power_rows(trials: int) -> list[list[str]]:
    """Return how often a difference of 2 is found between groups of three runs with a deviation of 0.5.

    A row for the number of groups, a column for the error from 1,000 and from 100 examples: it is √10 times as large.
    """
    rows = []
    for size in (2, 6, 15):
        cells = []
        for clusters, error in ((1000, 0.3), (1000, 0.5), (100, 0.95), (100, 1.58)):
            one = Scenario((3,) * size, (0.5,) * size, clusters, error)
            found = 0.0
            for part in simulate(replace(one, better=2.0), trials, np.random.default_rng(1)):
                critical = part.critical_values(LEVEL / part.values_P.shape[-1])
                found += float((np.abs(part.values_P[:, 0]) > critical[:, 0] * part.errors_P[:, 0]).sum())
            cells.append(f"{found / trials:.2f}")
        rows.append([f"{size} groups of 3 runs", *cells])
    return rows


def interval_rows(trials: int) -> list[list[str]]:
    """Return the lowest share of 95% intervals that contain the difference, for pairs with a group of two runs."""
    rows = []
    for counts in ((2, 2), (2, 3), (2, 12)):
        cells = [f"{1 - highest_rate(list(equal_groups(counts, ratio)), trials):.3f}" for ratio in RATIOS]
        rows.append([f"{counts[0]} and {counts[1]} runs", *cells])
    return rows
