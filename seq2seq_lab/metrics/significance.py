"""Confidence intervals by bootstrap, and tests of differences between systems and between means of runs."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
Clusters = npt.NDArray[np.int64]

SEED = 12345  # of sacreBLEU's command line
KEPT_DRAWS = 2**22  # indices that are drawn once for all metrics of a split: 32 MiB
SAMPLES_PER_CHUNK = 256
# Bounds the memory of a bootstrap: a sample of N clusters has N draws, a draw takes about 30 bytes.
DRAWS_PER_CHUNK = 2**22
EXAMPLE_SAMPLES = 1000  # of a test of means
LEVEL = 0.05
POWER = 0.8  # the probability with which `seeds_to_decide` is to find a difference
MAX_SEEDS = 100
LEAST_TESTED = 3  # runs of a group whose mean is tested: two runs do not determine their variance
ROUNDING = 1e-12  # the relative difference of two means of equal scores
ROUNDING_OF_SUMS = 1e-6  # the relative difference of two values of equal examples, whose sums are float32
LEAST_P = 1e-12  # smaller p-values are not computed
HALVINGS = 50  # of the interval in which a p-value is searched


def clusters_of(sources: Iterable[Hashable]) -> Clusters:
    """Return the id of each example's cluster: the examples of one source. Each example of an empty source is a cluster."""
    ids: dict[Hashable, int] = {}
    keys = (source or index for index, source in enumerate(sources))
    return np.array([ids.setdefault(key, len(ids)) for key in keys], dtype=np.int64)


def confidence_interval(
    value: Callable[[Array], float], rows: Array, clusters: Clusters, samples: int
) -> float | None:
    """Return half the width of the 95% confidence interval of a metric (bootstrap, Koehn 2004).

    It is None if a bound is not finite, and if both bounds are the same, as for a single cluster or outputs that are all
    correct: such samples do not show how uncertain the value is.

    Args:
        value: returns the metric from a sum of rows.
        rows: the statistics [N, K] of N examples.
        clusters: the id of each example's cluster; clusters are resampled.
        samples: the number of bootstrap samples.
    """
    totals_CK = cluster_totals(rows, clusters)
    if len(totals_CK) < 2:
        return None
    values = np.sort(
        [value(totals_CK.take(index_C, 0).sum(0)) for index_C in _draws(len(totals_CK), samples)]
    )
    lower = samples // 40
    low, high = values[lower], values[samples - lower - 1]
    if not np.isfinite([low, high]).all() or math.isclose(low, high, rel_tol=ROUNDING_OF_SUMS):
        return None
    return float(0.5 * (high - low))


def ratio(totals_K: Sequence[float] | npt.NDArray[Any]) -> float:
    """Return the first of two sums divided by the second; NaN if that is 0. With (value, 1) as rows it is the mean."""
    return float(totals_K[0] / totals_K[1]) if totals_K[1] else math.nan


def _draws(count: int, samples: int) -> Iterable[Clusters]:
    """Return the indices of each bootstrap sample of `count` clusters, the same for every metric."""
    if count * samples <= KEPT_DRAWS:
        return _kept_draws(count, samples)
    generator = np.random.default_rng(SEED)
    return (generator.choice(count, size=count) for _ in range(samples))


@lru_cache(maxsize=1)
def _kept_draws(count: int, samples: int) -> list[Clusters]:
    generator = np.random.default_rng(SEED)
    return [generator.choice(count, size=count) for _ in range(samples)]


def cluster_totals(rows: Array, clusters: Clusters) -> npt.NDArray[np.float32]:
    """Return the sum of the rows of each cluster, in the order of the clusters' ids.

    float32 keeps the samples in memory; counts up to 2^24 are exact.
    """
    unique, index = np.unique(clusters, return_inverse=True)
    totals = np.zeros((len(unique), rows.shape[1]), dtype=np.float32)
    np.add.at(totals, index, rows.astype(np.float32))
    return totals


def paired_bootstrap(
    values: Callable[[Array], Array],
    systems: Sequence[Array],
    pairs: Sequence[tuple[int, int]],
    clusters: Clusters,
    samples: int,
) -> list[float]:
    """Return the two-sided p-value of the difference between the systems of each pair (paired bootstrap, Koehn 2004).

    The p-value is the share of samples whose difference is as far from the mean of all samples as the observed
    difference is from 0. sacreBLEU's `PairedTest` takes absolute values before it subtracts the mean; its test is in effect
    one-sided, and rejects about twice as often as its level says. With a single cluster, whose samples are all the same, the
    p-value is 1.

    Args:
        values: returns the metric for each of S sums of rows [S, K].
        systems: the statistics [N, K] of the N examples of each system.
        pairs: the indices of the systems to compare. All pairs share the samples.
        clusters: the id of each example's cluster; clusters are resampled.
        samples: the number of bootstrap samples.
    """
    if len(np.unique(clusters)) < 2:
        return [1.0] * len(pairs)
    observed, resampled = resample(values, systems, clusters, samples)
    return [
        p
        for one, other in pairs
        for p in two_sided_p(resampled[:, [other]] - resampled[:, [one]], observed[[other]] - observed[[one]])
    ]


@dataclass(frozen=True, eq=False)
class Differences:
    """Differences between the means of two groups of runs, for P pairs of groups, and their variances.

    The variance of a difference has three parts: the runs of the first group, those of the second, and the test examples.
    Simulations have an axis of trials before P.

    Attributes:
        values_P: the mean of the second group minus that of the first.
        variances_P3: the estimates of the three parts.
        freedom_P3: the degrees of freedom of each estimate.
        undefined_P: the share of samples of the examples in which the metric of a run is not defined.
    """

    values_P: Array
    variances_P3: Array
    freedom_P3: Array
    undefined_P: Array

    @property
    def errors_P(self) -> Array:
        """The standard error of each difference."""
        return np.sqrt(self.variances_P3.sum(-1))

    def critical_values(self, level: float | Array) -> Array:
        """Return how many standard errors a difference must exceed to be significant at a level, for each pair.

        The value is z + Σ_j w_j² (t_j − z), where z and t_j are the two-sided quantiles of the normal distribution and of
        Student's distribution with the degrees of freedom of part j, and w_j is the share of part j in the variance. It is
        exact if one part is the whole variance. To first order in the reciprocals of the degrees of freedom it equals
        Welch's solution (1947, Biometrika 34) and the quantile at the degrees of freedom of Welch and Satterthwaite
        (1946). Their degrees of freedom vary with the estimated variances; with them, a test of many pairs of groups of
        three runs rejects too often.
        """
        from scipy import special

        half = np.asarray(level)[..., None] / 2
        total = self.variances_P3.sum(-1, keepdims=True)
        shares = np.divide(self.variances_P3, total, out=np.zeros(self.variances_P3.shape), where=total > 0)
        normal = -special.ndtri(half)
        students = -special.stdtrit(self.freedom_P3, half)
        critical: Array = (normal + (shares**2 * (students - normal)).sum(-1, keepdims=True))[..., 0]
        return critical

    def p_values(self) -> Array:
        """Return the two-sided p-value of each difference: the level at which it equals the critical value.

        A sample whose difference is not defined counts as one that is greater than the observed difference. Smaller values
        than `LEAST_P` are returned as `LEAST_P`.
        """
        far = np.abs(self.values_P)
        lower, upper = np.full(far.shape, math.log(LEAST_P)), np.zeros(far.shape)
        for _ in range(HALVINGS):
            middle = (lower + upper) / 2
            significant = far > self.critical_values(np.exp(middle)) * self.errors_P
            lower, upper = np.where(significant, lower, middle), np.where(significant, middle, upper)
        found = np.where(far > 0, np.exp(upper), 1.0)
        defined = np.isfinite(self.values_P) & (self.undefined_P < 1)
        return np.where(defined, self.undefined_P + (1 - self.undefined_P) * found, 1.0)

    def half_widths(self) -> Array:
        """Return half the width of the 95% confidence interval of each difference; not corrected for their number."""
        widths = self.critical_values(LEVEL) * self.errors_P
        return np.where(self.undefined_P < 1, widths, np.nan)

    def within(self, margin: float) -> npt.NDArray[np.bool_]:
        """Return whether two one-sided tests at the level `LEVEL` place each difference within ± a margin.

        Unlike a large p-value, this shows that two groups are equal, up to the margin (Schuirmann 1987, J. Pharmacokinetics
        and Biopharmaceutics 15). The level holds for each pair: it is not corrected for their number.
        """
        inside = np.abs(self.values_P) + self.critical_values(2 * LEVEL) * self.errors_P < margin
        found: npt.NDArray[np.bool_] = inside & (self.undefined_P == 0)
        return found

    def seeds_to_decide(self, comparisons: int) -> list[int | None]:
        """Return the number of runs in each group with which a difference would be found with probability `POWER`.

        It is the least n, from `LEAST_TESTED` to `MAX_SEEDS`, with |D| ≥ √V(n) (c(n) + z_power), and None if there is none
        or D is 0.
        D is the difference and V(n) = (s_1² + s_2²) / n + V_examples its variance with n runs, both as estimated; c(n) is
        the critical value at the level `LEVEL` divided by the number of comparisons. This is the usual sample size for two
        means (Chow, Shao and Wang 2008, Sample Size Calculations in Clinical Research, §3.2), with a part of the variance
        that more runs do not reduce. Card et al. 2020 (arXiv:2010.06595) describe its use for tests in NLP.

        Args:
            comparisons: the number of comparisons among which the differences are tested.
        """
        from scipy import special

        runs = self.variances_P3[..., :2] * (self.freedom_P3[..., :2] + 1)
        counts = np.arange(LEAST_TESTED, MAX_SEEDS + 1)
        enough = []
        for count in counts:
            one = Differences(
                self.values_P,
                np.concatenate([runs / count, self.variances_P3[..., 2:]], axis=-1),
                np.concatenate([np.full(runs.shape, count - 1.0), self.freedom_P3[..., 2:]], axis=-1),
                self.undefined_P,
            )
            needed = one.critical_values(LEVEL / comparisons) + special.ndtri(POWER)
            enough.append((np.abs(self.values_P) >= needed * one.errors_P) & (self.values_P != 0))
        found = np.array(enough)
        return [
            int(counts[row.argmax()]) if row.any() and undefined < 1 else None
            for row, undefined in zip(found.T, self.undefined_P, strict=True)
        ]


def compare_means(
    values: Callable[[Array], Array],
    groups: Sequence[Sequence[Array]],
    clusters: Clusters,
    samples: int = EXAMPLE_SAMPLES,
) -> Differences:
    """Return the differences between the means of all pairs of groups of runs, in the order of `itertools.combinations`.

    The runs of a group differ only in the seed. Test examples are resampled, the same for all runs.

    Args:
        values: returns the metric for each of S sums of rows [S, K].
        groups: the statistics [N, K] of the N examples for each run of each group, two or more runs.
        clusters: the id of each example's cluster; clusters are resampled.
        samples: the number of bootstrap samples.
    """
    observed, resampled = resample(values, [rows for group in groups for rows in group], clusters, samples)
    ends = np.cumsum([len(group) for group in groups])[:-1]
    count = len(set(clusters.tolist()))
    return compare_scores(np.split(observed, ends), np.split(resampled, ends, axis=1), count)


def compare_scores(observed: Sequence[Array], resampled: Sequence[Array], clusters: int) -> Differences:
    """Return the differences between the means of all pairs of groups of runs.

    Args:
        observed: the scores of the runs of each group, two or more.
        resampled: their scores [samples, runs] on bootstrap samples of the examples, the same samples for all groups.
        clusters: the number of clusters of examples.
    """
    assert all(len(scores) > 1 for scores in observed)
    defined = [np.isfinite(part).all(1) for part in resampled]
    interactions = [interaction_variance(part[known]) for part, known in zip(resampled, defined, strict=True)]
    variances, undefined = [], []
    for one, other in zip(*pairs_of(len(observed)), strict=True):
        known = defined[one] & defined[other]
        variances.append(_variance(resampled[other][known].mean(1) - resampled[one][known].mean(1)))
        undefined.append(1 - known.mean() if known.sum() > 1 and clusters > 1 else 1.0)
    return differences_of(
        np.array([scores.mean() for scores in observed]),
        np.array([scores.var(ddof=1) for scores in observed]),
        np.array(interactions),
        bootstrap_variances_P=np.array(variances),
        counts_G=np.array([len(scores) for scores in observed]),
        clusters=clusters,
        undefined_P=np.array(undefined),
    )


def differences_of(
    means_G: Array,
    run_variances_G: Array,
    interactions_G: Array,
    *,
    bootstrap_variances_P: Array,
    counts_G: npt.NDArray[np.int64],
    clusters: int,
    undefined_P: Array | float = 0.0,
) -> Differences:
    """Return the differences between the means of all pairs of G groups, with the three parts of their variances.

    The variance of the scores of n runs, s², contains the interaction of run and example: another run has other errors on
    the same examples. So does the variance of the difference over bootstrap samples of the examples, which would count it
    twice (compare Owen 2007, The pigeonhole bootstrap, Annals of Applied Statistics 1). The parts are s_1² / n_1, s_2² / n_2
    and the bootstrap variance less the interactions i_1 / n_1 + i_2 / n_2, at least 0.

    Args:
        means_G: the mean of the observed scores of each group. An axis of trials may be before G and P.
        run_variances_G: their variance s² in each group.
        interactions_G: the variance i of the score of one run that the interaction causes.
        bootstrap_variances_P: the variance over bootstrap samples of the difference of each pair.
        counts_G: the number of runs n of each group.
        clusters: the number of clusters of examples. The bootstrap's variances are multiplied by N / (N − 1).
        undefined_P: see `Differences`.
    """
    one, other = pairs_of(len(counts_G))
    correction = clusters / max(1, clusters - 1)
    runs_G, shared_G = run_variances_G / counts_G, interactions_G / counts_G
    examples_P = correction * (bootstrap_variances_P - shared_G[..., one] - shared_G[..., other])
    parts = [runs_G[..., one], runs_G[..., other], examples_P.clip(min=0)]
    of_examples = np.full(len(one), max(1, clusters - 1))
    freedom_P3 = np.stack([counts_G[one] - 1, counts_G[other] - 1, of_examples], axis=-1).astype(float)
    values_P = means_G[..., other] - means_G[..., one]
    # Means of different numbers of equal scores differ by rounding.
    scale_P = np.maximum(np.abs(means_G[..., other]), np.abs(means_G[..., one]))
    values_P = np.where(np.abs(values_P) <= ROUNDING * scale_P, 0.0, values_P)
    undefined_P = np.broadcast_to(undefined_P, values_P.shape)
    return Differences(values_P, np.stack(parts, axis=-1), freedom_P3, undefined_P)


def pairs_of(count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first and the second members of all pairs of a number of groups."""
    one, other = np.triu_indices(count, 1)
    return one, other


def interaction_variance(resampled: Array) -> float:
    """Return the variance of the score of one run that the interaction of run and example causes.

    Args:
        resampled: the scores [samples, runs] of a group. The deviations from the mean of n runs have n − 1 of n parts of
            the variance.
    """
    count = resampled.shape[1]
    deviations = resampled - resampled.mean(1, keepdims=True)
    return float(np.mean([_variance(column) for column in deviations.T]) * count / (count - 1))


def _variance(values: Array) -> float:
    """Return the sample variance; 0 for fewer than two values."""
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0


def resample(
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


def holm(values: Sequence[float]) -> list[float]:
    """Return the p-values corrected for their number (Holm 1979), in the same order."""
    corrected, least = [0.0] * len(values), 0.0
    for rank, i in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        least = max(least, min(1.0, values[i] * (len(values) - rank)))
        corrected[i] = least
    return corrected
