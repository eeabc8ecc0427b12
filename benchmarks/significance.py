"""Counts how often the tests of the comparison find a difference, in simulations and on real runs.

    python -m benchmarks.significance                                        # simulations: a few minutes on one core
    python -m benchmarks.significance FOLDER… --plot significance.png

The simulations state the highest level over equal and unequal deviations, errors from the examples and interactions
(`benchmarks.simulated_groups`).

The folders contain finished runs, many for each configuration, such as a study over twelve seeds. Groups of runs of
one configuration must not differ: a test at the 5% level may find a difference in at most 5% of the pairs of groups. Groups
of two configurations show the power of the tests. The intervals are jackknife intervals over the runs, because the groups
share runs.
"""

import argparse
import itertools
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.cli import check_folder
from benchmarks.page import table
from benchmarks.simulated_groups import RATIOS, interval_rows, level_rows, power_rows
from seq2seq_lab.data.progress import progress
from seq2seq_lab.errors import UserError
from seq2seq_lab.evaluate import positive
from seq2seq_lab.metrics.registry import BUILT_IN
from seq2seq_lab.metrics.significance import (
    LEAST_TESTED,
    LEVEL,
    Clusters,
    compare_scores,
    paired_bootstrap,
    resample,
)
from seq2seq_lab.reporting.runs import Group, find_runs, group_runs
from seq2seq_lab.reporting.score_tables import CLUSTERS

SAMPLES = 1000
TRIALS = 10_000
PAIRS = 10_000  # more than two groups of three of 12 runs have: 9240
SECTION = re.compile(r"\b[a-z_.]+\.(?=\w+=)")  # of a key
NORMAL = 1.96  # half of the width of a 95% interval in standard errors
TESTS = ("runs of median score, over examples", "means, over seeds and examples")
Pick = tuple[tuple[int, ...], tuple[int, ...]]  # the numbers of the runs of two groups


@dataclass(frozen=True)
class Rate:
    """The share of pairs of groups between which a test finds a difference, with a 95% interval."""

    share: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.share:.1%} ({self.lowest:.1%}–{self.highest:.1%})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and draw it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.significance", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "folders", nargs="*", type=Path, help="of runs (default: simulations instead of runs)"
    )
    parser.add_argument("--metric", default="bleu", choices=sorted(BUILT_IN))
    parser.add_argument("--size", type=positive, default=3, help="runs in a group (default: 3)")
    parser.add_argument(
        "--pairs", type=positive, default=PAIRS, help=f"pairs of groups, at most (default: {PAIRS})"
    )
    parser.add_argument(
        "--trials", type=positive, default=TRIALS, help=f"of each simulation (default: {TRIALS})"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the table")
    options = parser.parse_args(arguments)
    check_folder("--plot", options.plot)
    if not options.folders:
        print_simulations(options.trials)
        return
    try:
        groups = group_runs(find_runs(options.folders)[0])
        rates = measure(groups, options.metric, options.size, options.pairs)
    except UserError as error:
        sys.exit(f"error: {error}")
    rows = [[name, *map(str, of_tests)] for name, of_tests in rates.items()]
    print("\n".join(table([f"groups of {options.size} runs", *TESTS], rows, 1)))
    if options.plot:
        draw(rates, options.plot)


def print_simulations(trials: int) -> None:
    """Print the levels, the power and the coverage of intervals in simulations."""
    apart = ["equal deviations", *(f"up to {ratio} times apart" for ratio in RATIOS[1:])]
    errors = [
        f"{size:,} examples, error {error}"
        for size, error in ((1000, 0.3), (1000, 0.5), (100, 0.95), (100, 1.58))
    ]
    for title, heads, rows in (
        ("Highest familywise level", ["groups without a difference", *apart], level_rows(trials)),
        ("Power at a difference of 2, deviation 0.5", ["groups", *errors], power_rows(trials)),
        ("Lowest coverage of the 95% interval", ["pair of groups", *apart], interval_rows(trials)),
    ):
        print("\n".join([f"{title}, {trials:,} trials", "", *table(heads, rows, 1), ""]), flush=True)


def measure(groups: Sequence[Group], metric: str, size: int, pairs: int) -> dict[str, list[Rate]]:
    """Return the rates of both tests for each configuration, and for each pair of configurations.

    Raises:
        UserError: a configuration has too few runs for two groups, or the runs have other test sets.
    """
    if size < LEAST_TESTED:
        raise UserError(
            f"--size={size}: the test over seeds needs groups of {LEAST_TESTED} or more runs. Set --size={LEAST_TESTED}."
        )
    for group in groups:
        if len(group.runs) < 2 * size:
            raise UserError(
                f"{group.label} has {len(group.runs)} runs. Two groups need {2 * size}: add runs, or set --size lower."
            )
    runs = [run for group in groups for run in group.runs]
    if len({run.test_set for run in runs}) > 1:
        raise UserError("The runs have different test sets. Give a folder whose runs have the same one.")
    for run in runs:
        if metric not in run.statistics:
            raise UserError(
                f"--metric={metric}: {run.folder} has no statistics of it. Choose another metric."
            )
    clusters = runs[0].statistics[CLUSTERS].astype(int)
    rates = {}
    for one, other in itertools.combinations_with_replacement(groups, 2):
        first, second = (SECTION.sub("", group.label) for group in (one, other))
        name = f"two groups with {first}" if one is other else f"{first} and {second}"
        rates[name] = rates_of(one, other, metric, clusters=clusters, size=size, pairs=pairs)
    return rates


def rates_of(
    one: Group, other: Group, metric: str, *, clusters: Clusters, size: int, pairs: int
) -> list[Rate]:
    """Return the rates of both tests on pairs of groups of the runs of two configurations, or of one."""
    values = BUILT_IN[metric].values
    scores = [[run.result[f"test/{metric}"] for run in group.runs] for group in (one, other)]
    rows = [[run.statistics[metric] for run in group.runs] for group in (one, other)]
    chosen = picks(len(one.runs), len(other.runs), one is other, size, pairs)
    medians = [tuple(median_run(part, scores[side]) for side, part in enumerate(pick)) for pick in chosen]
    of_medians: dict[tuple[int, ...], float] = {}
    for first, same_first in itertools.groupby(sorted(set(medians)), lambda pair: pair[0]):
        tested = list(same_first)
        systems = [rows[0][first], *(rows[1][second] for _, second in tested)]
        pairs_tested = [(0, index) for index in range(1, len(systems))]
        p_values = paired_bootstrap(values, systems, pairs_tested, clusters, SAMPLES)
        of_medians |= zip(tested, p_values, strict=True)
    observed, resampled = zip(*(resample(values, part, clusters, SAMPLES) for part in rows), strict=True)
    count = len(np.unique(clusters))
    of_means = []
    for pick in progress(chosen, "Pairs", len(chosen)):
        columns = [list(part) for part in pick]
        scored = [observed[side][part] for side, part in enumerate(columns)]
        samples = [resampled[side][:, part] for side, part in enumerate(columns)]
        of_means.append(compare_scores(scored, samples, count).p_values()[0])
    offset = 0 if one is other else len(one.runs)
    drawn = [{*first, *(offset + i for i in second)} for first, second in chosen]
    return [
        jackknife([p <= LEVEL for p in p_values], drawn)
        for p_values in ([of_medians[pair] for pair in medians], of_means)
    ]


def median_run(runs: Sequence[int], scores: Sequence[float]) -> int:
    """Return the run with the median score, the lower of the two middle ones if their number is even."""
    return sorted(runs, key=lambda i: scores[i])[(len(runs) - 1) // 2]


def picks(first: int, second: int, same: bool, size: int, pairs: int) -> list[Pick]:
    """Return the numbers of the runs of pairs of groups, sorted; groups of one configuration share no run.

    All pairs, if there are at most `pairs`; otherwise random ones. The jackknife multiplies the variance from a random
    choice of pairs by about the number of runs: with 400 pairs of groups of 12 runs, the intervals are up to twice as wide.
    """
    left = math.comb(first - size, size) if same else math.comb(second, size)
    if math.comb(first, size) * left // (1 + same) <= pairs:
        groups = [list(itertools.combinations(range(count), size)) for count in (first, second)]
        return [
            (one, other)
            for one, other in itertools.product(*groups)
            if not same or (one < other and not {*one} & {*other})
        ]
    generator = np.random.default_rng(1)
    drawn: set[Pick] = set()
    while len(drawn) < pairs:
        indices = generator.permutation(first).tolist()
        others = indices[size:] if same else generator.permutation(second).tolist()
        one, other = (tuple(sorted(part[:size])) for part in (indices, others))
        drawn.add((other, one) if same and other < one else (one, other))
    return sorted(drawn)


def jackknife(found: Sequence[bool], drawn: Sequence[set[int]]) -> Rate:
    """Return the share of pairs with a difference, and its interval: the share without the pairs of each run in turn."""
    share = float(np.mean(found))
    runs = sorted(set().union(*drawn))
    without = [
        float(np.mean(left))
        for run in runs
        if (left := [one for one, members in zip(found, drawn, strict=True) if run not in members])
    ]
    count = len(without)
    error = (
        np.sqrt((count - 1) / count * np.square(np.array(without) - np.mean(without)).sum()) if count else 0.0
    )
    return Rate(share, max(0.0, share - NORMAL * float(error)), min(1.0, share + NORMAL * float(error)))


def draw(rates: dict[str, list[Rate]], path: Path) -> None:
    """Draw the rates with their intervals."""
    figure, axes = plt.subplots(figsize=(7, 1.2 + 0.7 * len(rates)), layout="constrained")
    positions = np.arange(len(rates))[::-1]
    for test, (label, offset) in enumerate(zip(TESTS, (0.1, -0.15), strict=True)):
        of_test = [both[test] for both in rates.values()]
        shares = np.array([rate.share for rate in of_test])
        ends = np.array([[rate.share - rate.lowest, rate.highest - rate.share] for rate in of_test]).T
        axes.errorbar(shares, positions + offset, xerr=ends, fmt="os"[test], capsize=3, label=label)
    for position, name in zip(positions, rates, strict=True):
        axes.text(0, position + 0.27, name, fontsize=8, in_layout=False)
    axes.axvline(LEVEL, color="0.5", linestyle=":", label="5%")
    axes.set_yticks([])
    axes.set_ylim(-0.5, len(rates) - 0.3)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of the pairs of groups with p ≤ 0.05")
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
