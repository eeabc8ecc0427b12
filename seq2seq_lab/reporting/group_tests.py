"""The tests of a comparison: differences between the means of groups of runs, and between runs of median score."""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from seq2seq_lab.metrics.base import Declaration
from seq2seq_lab.metrics.significance import (
    LEAST_TESTED,
    LEVEL,
    Array,
    Clusters,
    compare_means,
    holm,
    paired_bootstrap,
)
from seq2seq_lab.reporting.runs import Group, Run
from seq2seq_lab.reporting.score_tables import CLUSTERS

SAMPLES = 1000  # of the paired bootstrap, at least
SAMPLES_EACH = 200  # for each comparison: a corrected p can be as small as 1 / SAMPLES_EACH
TOLERANCE = 1e-4  # of a metric that is computed from its statistics
Pair = tuple[Group, Group]  # a baseline and another group


@dataclass(frozen=True)
class GroupDifference:
    """The difference between the means of two lines, over seeds and test examples.

    Attributes:
        value: the mean of the line minus that of the baseline.
        half_width: half the width of its 95% confidence interval.
        p: two-sided p-value, Holm-corrected for the comparisons of the table; None if a line has two runs.
        seeds: the number of seeds of both lines that would decide the difference if it is not significant; None if
            `MAX_SEEDS` are too few.
        equal: whether the lines are equal within the margin; None without a margin, or if p is.
    """

    value: float
    half_width: float
    p: float | None
    seeds: int | None
    equal: bool | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval."""
        return self.value - self.half_width, self.value + self.half_width

    @property
    def open(self) -> bool:
        """Whether the difference was tested and is not significant."""
        return self.p is not None and self.p > LEVEL


@dataclass(frozen=True, eq=False)
class Tests:
    """Tests of the differences between groups with the same test set.

    A built-in metric is computed from its statistics by this package's code. Another metric is represented by the mean of
    its values per example: code that a run names is not imported.

    Attributes:
        name: of the metric.
        key: of the metric in `result.json`.
        ordered: the groups, best first; by a metric without a direction, the greatest value first.
        base: the baseline that the user named.
        margin: within which two groups count as equal, in the unit of the metric.
    """

    declared: Declaration
    name: str
    key: str
    ordered: Sequence[Group]
    base: Group | None
    margin: float | None = None

    @functools.cached_property
    def usable(self) -> dict[Group, list[Run]]:
        """The runs of each group whose mean the table shows; none if one of them has no statistics of the metric."""
        return {
            group: list(group.runs)
            if all(self.name in run.statistics and run.result.get(self.key) is not None for run in group.runs)
            else []
            for group in self.ordered
        }

    @functools.cached_property
    def test_sets(self) -> dict[str, list[Group]]:
        """The groups of each test set, best first."""
        found: dict[str, list[Group]] = {}
        for group in self.ordered:
            found.setdefault(group.runs[0].test_set, []).append(group)
        return found

    @property
    def values(self) -> Callable[[Array], Array]:
        """The function that computes the metric from sums of statistics."""
        from seq2seq_lab.metrics.registry import BUILT_IN

        known = self.declared.built_in and self.name in BUILT_IN
        return BUILT_IN[self.name].values if known else _mean_of_examples

    @property
    def warnings(self) -> list[str]:
        """A warning if the tests are of a mean of values per example that is not the metric of the whole test set."""
        different = (
            self.values is _mean_of_examples
            and not math.isclose(
                _mean_of_examples(run.statistics[self.name].sum(0, keepdims=True)).item(),
                run.result[self.key],
                rel_tol=TOLERANCE,
                abs_tol=TOLERANCE,
            )
            for runs in self.usable.values()
            for run in runs
        )
        if not any(different):
            return []
        return [
            f"warning: the differences and tests of {self.declared.label} are of the mean of its values per example, which "
            f"is not its value for the test set"
        ]

    def base_of(self, group: Group) -> Group | None:
        """Return the baseline of a group's test set.

        It is the best of the groups with enough runs for a test, or for an interval, if there are two of them.
        """
        test_set = group.runs[0].test_set
        if self.base is not None:
            return self.base if self.base.runs[0].test_set == test_set else None
        for least in (LEAST_TESTED, 2):
            enough = [one for one in self.test_sets[test_set] if len(self.usable[one]) >= least]
            if len(enough) > 1:
                return enough[0]
        return self.test_sets[test_set][0]

    @functools.cached_property
    def pairs(self) -> dict[Pair, GroupDifference]:
        """The differences of all pairs of groups with two or more runs and one test set; p is not corrected."""
        found: dict[Pair, GroupDifference] = {}
        for groups in self.test_sets.values():
            several = [group for group in groups if len(self.usable[group]) > 1]
            if len(several) < 2:
                continue
            rows = [[run.statistics[self.name] for run in self.usable[group]] for group in several]
            compared = compare_means(self.values, rows, _clusters(several))
            columns = (
                itertools.combinations(several, 2),
                compared.values_P.tolist(),
                compared.half_widths().tolist(),
                compared.p_values().tolist(),
                compared.seeds_to_decide(max(1, self.comparisons)),
                compared.within(math.inf if self.margin is None else self.margin).tolist(),
            )
            for (one, other), value, half_width, p, seeds, within in zip(*columns, strict=True):
                is_tested = min(len(one.runs), len(other.runs)) >= LEAST_TESTED
                equal = within if is_tested and self.margin is not None else None
                found[one, other] = GroupDifference(value, half_width, p if is_tested else None, seeds, equal)
                found[other, one] = replace(found[one, other], value=-value)
        return found

    @property
    def comparisons(self) -> int:
        """The number of tests of means that the p-values are corrected for."""
        counts = {
            test_set: sum(len(self.usable[group]) >= LEAST_TESTED for group in groups)
            for test_set, groups in self.test_sets.items()
        }
        if self.base is None:
            return sum(math.comb(count, 2) for count in counts.values())
        return max(1, counts[self.base.runs[0].test_set] - 1)

    def corrected(self, pairs: Mapping[Pair, GroupDifference]) -> dict[Pair, GroupDifference]:
        """Return the differences with p-values that are corrected for the number of tests."""
        tested = {pair: one.p for pair, one in pairs.items() if one.p is not None}
        p_values = dict(zip(tested, holm(list(tested.values())), strict=True))
        return {pair: replace(one, p=p_values.get(pair)) for pair, one in pairs.items()}

    @functools.cached_property
    def all_corrected(self) -> dict[Pair, GroupDifference]:
        """The differences of all pairs, the better group first, corrected for all of them."""
        positions = {group: position for position, group in enumerate(self.ordered)}
        return self.corrected(
            {pair: one for pair, one in self.pairs.items() if positions[pair[0]] < positions[pair[1]]}
        )

    def differences(self) -> tuple[dict[Pair, GroupDifference], int]:
        """Return the differences from the baselines, and the number of comparisons that they are corrected for."""
        if self.base is None:
            every = self.all_corrected
        else:
            every = self.corrected({pair: one for pair, one in self.pairs.items() if pair[0] is self.base})
        shown = {
            (base, group): every[base, group] for base, group in self._with_base if (base, group) in every
        }
        for base, group in self._with_base:  # a group that is better than its baseline, which has more runs
            if (better := every.get((group, base))) is not None:
                shown[base, group] = replace(better, value=-better.value)
        return shown, sum(one.p is not None for one in every.values())

    @property
    def _with_base(self) -> list[Pair]:
        """The baseline of its test set with each other group."""
        bases = [(self.base_of(group), group) for group in self.ordered]
        return [(base, group) for base, group in bases if base is not None and base is not group]

    def top(self) -> set[Group]:
        """Return the best groups of each test set, and those that are not significantly worse than the best tested one.

        No group is the best by a metric without a direction.
        """
        if self.declared.higher_is_better is None:
            return set()
        best = {
            group
            for groups in self.test_sets.values()
            for group in groups
            if (values := group.values(self.key))
            and statistics.mean(values) == statistics.mean(groups[0].values(self.key))
        }
        leaders = set[Group]()
        for groups in self.test_sets.values():
            tested = [group for group in groups if len(self.usable[group]) >= LEAST_TESTED]
            leaders |= {*tested[:1]} if len(tested) > 1 else set()
        close = {other for (one, other), found in self.all_corrected.items() if one in leaders and found.open}
        return best | leaders | close

    def p_of_median_runs(self) -> tuple[dict[Pair, float], int]:
        """Return the corrected p-values of the runs of median score against that of the baseline, and their number."""
        found: dict[Pair, float] = {}
        for groups in self.test_sets.values():
            medians = {
                group: run
                for group in groups
                if (run := group.median(self.key)) and self.name in run.statistics
            }
            known = list(medians)
            pairs = [
                (one, other)
                for one, other in itertools.permutations(range(len(known)), 2)
                if (one < other if self.base is None else known[one] is self.base)
            ]
            if pairs:
                rows = [run.statistics[self.name] for run in medians.values()]
                samples = max(SAMPLES, SAMPLES_EACH * len(pairs))
                p_values = paired_bootstrap(self.values, rows, pairs, _clusters(known), samples)
                found |= {(known[a], known[b]): p for (a, b), p in zip(pairs, p_values, strict=True)}
        corrected = dict(zip(found, holm(list(found.values())), strict=True))
        shown = [(pair, corrected.get(pair, corrected.get(pair[::-1]))) for pair in self._with_base]
        return {pair: p for pair, p in shown if p is not None}, len(found)


def _clusters(groups: Sequence[Group]) -> Clusters:
    """Return the index of the cluster of each example of groups with the same test set."""
    run = next(run for run in groups[0].runs if run.statistics)
    return run.statistics[CLUSTERS].astype(int)


def _mean_of_examples(totals_SK: Array) -> Array:
    total, count = totals_SK.T
    return total / count.clip(min=1)
