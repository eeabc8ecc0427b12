"""Confidence intervals by bootstrap, and tests of differences between systems."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
Clusters = npt.NDArray[np.int64]

SEED = 12345  # of sacreBLEU's command line
SAMPLES_PER_CHUNK = 256  # bounds the memory of the paired bootstrap


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
    every = [baseline, *systems]
    observed = np.concatenate([values(rows.sum(0, keepdims=True)) for rows in every])
    totals = [cluster_totals(rows, clusters) for rows in every]
    generator = np.random.default_rng(SEED)
    count, parts = len(totals[0]), []
    for start in range(0, samples, SAMPLES_PER_CHUNK):
        size = min(SAMPLES_PER_CHUNK, samples - start)
        drawn = generator.integers(count, size=(size, count)) + count * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count).astype(np.float32)
        parts.append(np.stack([values(times @ one) for one in totals], axis=1))
    resampled = np.concatenate(parts)
    return two_sided_p(resampled[:, 1:] - resampled[:, :1], observed[1:] - observed[0])


def two_sided_p(resampled: Array, observed: Array) -> list[float]:
    """Return the p-value of each observed difference; `resampled` has a row per sample and a column per difference."""
    centred = np.abs(resampled - resampled.mean(0))
    greater = (centred >= np.abs(observed)).sum(0)
    return [float(p) for p in (greater + 1) / (len(resampled) + 1)]


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
