"""Counts how often the tests of the comparison find a difference, on real runs.

    python -m benchmarks.significance FOLDER… --plot docs/images/significance.png

The folders contain finished runs, many for each configuration, such as a study over twelve seeds. Random groups of runs of
one configuration must not differ: a test at the 5% level may find a difference in at most 5% of the pairs of groups. Groups
of two configurations show the power of the tests. The intervals are jackknife intervals over the runs, because the groups
share runs.
"""

import argparse
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.cli import positive
from benchmarks.page import table
from seq2seq_lab.data.progress import progress
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Array
from seq2seq_lab.metrics.registry import BUILT_IN
from seq2seq_lab.metrics.significance import Clusters, hierarchical_bootstrap, paired_bootstrap
from seq2seq_lab.reporting.runs import Group, find_runs, group_runs
from seq2seq_lab.reporting.score_tables import CLUSTERS

LEVEL = 0.05
SAMPLES = 1000
SECTION = re.compile(r"\b[a-z_.]+\.(?=\w+=)")  # of a key
NORMAL = 1.96  # half of the width of a 95% interval in standard errors
TESTS = ("runs of median score, over examples", "means, over seeds and examples")


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
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--metric", default="bleu", choices=sorted(BUILT_IN))
    parser.add_argument("--size", type=positive, default=3, help="runs in a group (default: 3)")
    parser.add_argument("--pairs", type=positive, default=400, help="random pairs of groups (default: 400)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the table")
    options = parser.parse_args(arguments)
    try:
        groups = group_runs(find_runs(options.folders)[0])
        rates = measure(groups, options.metric, options.size, options.pairs)
    except UserError as error:
        sys.exit(f"error: {error}")
    rows = [[name, *map(str, of_tests)] for name, of_tests in rates.items()]
    print("\n".join(table([f"groups of {options.size} runs", *TESTS], rows, 1)))
    if options.plot:
        draw(rates, options.plot)


def measure(groups: Sequence[Group], metric: str, size: int, pairs: int) -> dict[str, list[Rate]]:
    """Return the rates of both tests for each configuration, and for each pair of configurations.

    Raises:
        UserError: a configuration has too few runs for two groups, or the runs have other test sets.
    """
    if size < 2:
        raise UserError(f"--size={size}: the test over seeds needs groups of two or more runs.")
    for group in groups:
        if len(group.runs) < 2 * size:
            raise UserError(
                f"{group.label} has {len(group.runs)} runs. Two groups need {2 * size}: add runs, or set --size lower."
            )
    if len({run.test_set for group in groups for run in group.runs}) > 1:
        raise UserError("The runs have different test sets. Give a folder whose runs have the same one.")
    clusters = groups[0].runs[0].statistics[CLUSTERS].astype(int)
    rates = {}
    for one, other in itertools.combinations_with_replacement(groups, 2):
        first, second = (SECTION.sub("", group.label) for group in (one, other))
        name = f"two groups with {first}" if one is other else f"{first} and {second}"
        rates[name] = rates_of(one, other, metric, clusters, size, pairs)
    return rates


def rates_of(one: Group, other: Group, metric: str, clusters: Clusters, size: int, pairs: int) -> list[Rate]:
    """Return the rates of both tests on pairs of random groups of the runs of two configurations, or of one."""
    scores = [[run.result[f"test/{metric}"] for run in group.runs] for group in (one, other)]
    rows = [[run.statistics[metric] for run in group.runs] for group in (one, other)]
    drawn, found = [], []
    for picks in progress(
        random_picks(len(one.runs), len(other.runs), one is other, size, pairs), "Pairs", pairs
    ):
        first, second = ([rows[side][i] for i in picked] for side, picked in enumerate(picks))
        medians = [
            rows[side][sorted(picked, key=lambda i, side=side: scores[side][i])[(size - 1) // 2]]  # type: ignore[misc]
            for side, picked in enumerate(picks)
        ]
        found.append(rejections(metric, first, second, medians, clusters))
        offset = 0 if one is other else len(one.runs)
        drawn.append({*picks[0], *(offset + i for i in picks[1])})
    return [jackknife([both[test] for both in found], drawn) for test in range(len(TESTS))]


def rejections(
    metric: str, first: Sequence[Array], second: Sequence[Array], medians: Sequence[Array], clusters: Clusters
) -> tuple[bool, bool]:
    """Return whether each test finds a difference between two groups of runs."""
    values = BUILT_IN[metric].values
    (of_medians,) = paired_bootstrap(values, medians[0], medians[1:], clusters, SAMPLES)
    (of_means,) = hierarchical_bootstrap(values, first, [second], clusters, SAMPLES)
    return of_medians <= LEVEL, of_means <= LEVEL


def random_picks(
    first: int, second: int, same: bool, size: int, pairs: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the numbers of the runs of random pairs of groups; groups of one configuration share no run."""
    generator = np.random.default_rng(1)
    for _ in range(pairs):
        if same:
            picked = generator.permutation(first)[: 2 * size].tolist()
            yield picked[:size], picked[size:]
        else:
            yield (
                generator.permutation(first)[:size].tolist(),
                generator.permutation(second)[:size].tolist(),
            )


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
    places = np.arange(len(rates))[::-1]
    for test, (label, offset) in enumerate(zip(TESTS, (0.1, -0.15), strict=True)):
        of_test = [both[test] for both in rates.values()]
        shares = np.array([rate.share for rate in of_test])
        ends = np.array([[rate.share - rate.lowest, rate.highest - rate.share] for rate in of_test]).T
        axes.errorbar(shares, places + offset, xerr=ends, fmt="os"[test], capsize=3, label=label)
    for place, name in zip(places, rates, strict=True):
        axes.text(0, place + 0.27, name, fontsize=8, in_layout=False)
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
