"""Confidence intervals by bootstrap, and tests of differences between systems."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
Clusters = npt.NDArray[np.int64]

SEED = 12345  # of sacreBLEU's command line
SAMPLES_PER_CHUNK = 256
# Bounds the memory of a bootstrap: a sample of N clusters has N draws, a draw takes about 30 bytes.
DRAWS_PER_CHUNK = 2**22
EXAMPLE_SAMPLES = 1000  # of the hierarchical bootstrap


def confidence_interval(
    value: Callable[[Array], float], rows: Array, clusters: Clusters, samples: int
) -> float:
    """Return half the width of the 95% confidence interval of a metric (bootstrap, Koehn 2004).

    Args:
        value: returns the metric from a sum of rows.
        rows: the statistics [N, K] of N examples.
        clusters: the number of each example's cluster; clusters are resampled.
        samples: the number of bootstrap samples.
    """
    generator = np.random.default_rng(SEED)
    totals_CK = cluster_totals(rows, clusters)
    count = len(totals_CK)
    values = np.sort([value(totals_CK[generator.choice(count, size=count)].sum(0)) for _ in range(samples)])
    lower = samples // 40
    return float(0.5 * (values[samples - lower - 1] - values[lower]))


def cluster_totals(rows: Array, clusters: Clusters) -> npt.NDArray[np.float32]:
    """Return the sum of the rows of each cluster, in the order of the clusters' numbers.

    float32 keeps the samples in memory; counts up to 2^24 are exact.
    """
    numbers, index = np.unique(clusters, return_inverse=True)
    totals = np.zeros((len(numbers), rows.shape[1]), dtype=np.float32)
    np.add.at(totals, index, rows.astype(np.float32))
    return totals


def paired_bootstrap(
    values: Callable[[Array], Array],
    baseline: Array,
    systems: Sequence[Array],
    clusters: Clusters,
    samples: int,
) -> list[float]:
    """Return the two-sided p-value of each system's difference from a baseline (paired bootstrap, Koehn 2004).

    The p-value is the share of samples whose difference is as far from the mean of all samples as the observed
    difference is from 0. sacreBLEU's `PairedTest` takes absolute values before it subtracts the mean; its test is in effect
    one-sided, and rejects about twice as often as its level says.

    Args:
        values: returns the metric for each of S sums of rows [S, K].
        baseline: the statistics [N, K] of the baseline's N examples.
        systems: those of each system, for the same examples.
        clusters: the number of each example's cluster; clusters are resampled.
        samples: the number of bootstrap samples.
    """
    observed, resampled = _resampled(values, [baseline, *systems], clusters, samples)
    return two_sided_p(resampled[:, 1:] - resampled[:, :1], observed[1:] - observed[0])


def hierarchical_bootstrap(
    values: Callable[[Array], Array],
    baseline: Sequence[Array],
    groups: Sequence[Sequence[Array]],
    clusters: Clusters,
    samples: int,
) -> list[float]:
    """Return the two-sided p-value of the difference between the mean of each group of runs and that of a baseline group.

    The runs of a group differ only in the seed. A sample draws examples, the same for all runs, and runs within each group,
    both with replacement. The deviation of the drawn runs from the mean of their group is multiplied by the square roots of
    n / (n − 1), since few runs vary less than their population, and of d / X², where X² has the chi-square distribution of
    d = n_1 + n_2 − 2 degrees of freedom, since few runs do not determine their variance (as in Student's test). Without
    these factors, tests of three runs with three find differences between equal configurations too often:
    `python -m benchmarks.significance` counts how often. Unequal variances in groups of unequal sizes raise the level
    of the test to about 0.1, if the small group varies more.

    Args:
        values: returns the metric for each of S sums of rows [S, K].
        baseline: the statistics [N, K] of the N examples for each run of the baseline, two or more.
        groups: those of each group, two or more runs, for the same examples.
        clusters: the number of each example's cluster; clusters are resampled.
        samples: the number of bootstrap samples. They share `EXAMPLE_SAMPLES` samples of the examples.
    """
    every = [baseline, *groups]
    assert all(len(group) > 1 for group in every)
    runs = [rows for group in every for rows in group]
    observed, resampled = _resampled(values, runs, clusters, min(samples, EXAMPLE_SAMPLES))
    ends = np.cumsum([len(group) for group in every])[:-1]
    base, *others = np.split(observed, ends)
    means_SG = np.stack([part.mean(1) for part in np.split(resampled, ends, axis=1)], axis=1)
    means_SG = np.resize(means_SG, (samples, len(every)))
    generator = np.random.default_rng(SEED)
    p_values = []
    for index, other in enumerate(others, start=1):
        freedom = len(base) + len(other) - 2
        scale = np.sqrt(freedom / generator.chisquare(freedom, samples))
        drawn = scale * (
            _drawn_deviation(other, samples, generator) - _drawn_deviation(base, samples, generator)
        )
        differences = means_SG[:, index] - means_SG[:, 0] + drawn
        p_values += two_sided_p(differences[:, None], np.array([other.mean() - base.mean()]))
    return p_values


def _drawn_deviation(observed: Array, samples: int, generator: np.random.Generator) -> Array:
    """Return the mean deviation of n runs drawn with replacement from the n runs of a group, for each sample."""
    count = len(observed)
    deviations = (observed - observed.mean()) * np.sqrt(count / (count - 1))
    return deviations[generator.integers(count, size=(samples, count))].mean(1)


def _resampled(
    values: Callable[[Array], Array], systems: Sequence[Array], clusters: Clusters, samples: int
) -> tuple[Array, Array]:
    """Return the metric of each system, and that of each sample of the clusters and system [samples, systems]."""
    observed = np.concatenate([values(rows.sum(0, keepdims=True)) for rows in systems])
    totals = [cluster_totals(rows, clusters) for rows in systems]
    generator = np.random.default_rng(SEED)
    count, parts = len(totals[0]), []
    chunk = max(1, min(SAMPLES_PER_CHUNK, DRAWS_PER_CHUNK // count))  # the draws do not depend on it
    for start in range(0, samples, chunk):
        size = min(chunk, samples - start)
        drawn = generator.integers(count, size=(size, count)) + count * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count).astype(np.float32)
        parts.append(np.stack([values(times @ one) for one in totals], axis=1))
    return observed, np.concatenate(parts)


def two_sided_p(resampled: Array, observed: Array) -> list[float]:
    """Return the p-value of each observed difference; `resampled` has a row per sample and a column per difference.

    A sample whose difference is not defined counts as at least as great as the observed one.
    """
    defined = np.isfinite(resampled)
    means = np.where(defined, resampled, 0).sum(0) / defined.sum(0).clip(min=1)
    smaller = (defined & (np.abs(resampled - means) < np.abs(observed))).sum(0)
    return [float(p) for p in (len(resampled) - smaller + 1) / (len(resampled) + 1)]


def holm(values: Sequence[float], comparisons: int) -> list[float]:
    """Return corrected p-values (Holm 1979), in the order of `values`.

    Args:
        comparisons: the total number of comparisons, at least that of the values. With more, the result is an upper bound
            of Holm's p-values over all of them.
    """
    corrected, least = [0.0] * len(values), 0.0
    for rank, i in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        least = max(least, min(1.0, values[i] * (comparisons - rank)))
        corrected[i] = least
    return corrected
