"""The figures of a comparison for print: metrics by group of examples, and curves with means over the runs of a line."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq_lab.metrics.base import Declarations, GroupingDeclaration
from seq2seq_lab.plots import Point, Series, draw_curves, draw_series, save_figure
from seq2seq_lab.reporting.comparison import Table
from seq2seq_lab.reporting.runs import Group, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAINING_LOSS = "train/loss"


def save_figures(table: Table, folder: Path) -> list[Path]:
    """Write the figures of a comparison as PDF and return their paths, in the order of the page."""
    paths = []
    for key, label in curve_labels(table).items():
        series = [one for group in table.groups for one in curve_series(group, key)]
        if series:
            paths.append(folder / f"{key.replace('/', '_')}.pdf")
            title = "means of the runs of a line, bands: ± one standard deviation"
            save_figure(draw_series(series, "step", label, title), paths[-1])
    groupings: dict[str, GroupingDeclaration] = {}
    for group in table.groups:
        groupings = group.runs[0].declared.groupings | groupings
    for key, grouping in groupings.items():
        if any(run.result.get(f"test/{key}") for group in table.groups for run in group.runs):
            paths.append(folder / f"{table.split.replace('/', '_')}_{key}.pdf")
            save_figure(draw_grouping(table, key, grouping), paths[-1])
    return paths


def training_curves(rows: Sequence[Mapping[str, float]], declared: Declarations, unit: str) -> "Figure":
    """Draw the losses of a run and its primary metric on the validation split.

    Args:
        rows: of its `metrics.jsonl`.
        unit: of the losses, in plural, as in `train/UNIT_per_second`.
    """

    def curve(name: str) -> list[Point]:
        return [(row["step"], row[name]) for row in rows if name in row]

    losses = {"training loss": curve(TRAINING_LOSS)}
    losses |= {
        f"validation, {one.label}": curve(f"val/{name}")
        for name, one in declared.metrics.items()
        if one.is_loss
    }
    scores = {declared.metrics[declared.primary].label: curve(f"val/{declared.primary}")}
    return draw_curves(losses, scores, unit.removesuffix("s").replace("_", " "))


def curve_labels(table: Table) -> dict[str, str]:
    """Return the label of each curve by its key in `metrics.jsonl`; the metric of the comparison comes first."""
    labels = {f"val/{name}": f"validation {one.label}" for name, one in table.metrics.items()}
    first = f"val/{table.metric}"
    return {first: labels[first], **labels, TRAINING_LOSS: "training loss"}


def curve_points(run: Run, key: str) -> list[tuple[float, float]]:
    """Return the steps and the finite values of a curve."""
    return [(row["step"], row[key]) for row in run.metrics if math.isfinite(row.get(key, math.nan))]


def curve_series(group: Group, key: str) -> list[Series]:
    """Return the mean of a curve over the runs of a line, at the steps that all runs with the curve have.

    Without common steps, each run is a series.
    """
    curves = [dict(points) for run in group.runs if (points := curve_points(run, key))]
    steps = [step for step in curves[0] if all(step in one for one in curves)] if curves else []
    if not steps:
        return [Series(group.label, [*one], [*one.values()], [0.0] * len(one)) for one in curves]
    values = [[one[step] for one in curves] for step in steps]
    return [Series(group.label, steps, [*map(statistics.mean, values)], [*map(_deviation, values)])]


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def draw_grouping(table: Table, key: str, grouping: GroupingDeclaration) -> "Figure":
    """Draw a metric by group of examples, with one series for each line.

    If each line has several runs, it shows means and standard deviations over the runs; otherwise the run of median score
    of each line, with its 95% intervals.
    """
    several = all(len(group.runs) > 1 for group in table.groups)
    rows_of = {}
    for group in table.groups:
        median = group.median(table.score)
        runs = group.runs if several else () if median is None else (median,)
        rows_of[group.label] = [row for run in runs for row in run.result.get(f"test/{key}", ())]
    counts: dict[str, set[int]] = {}
    for row in (row for rows in rows_of.values() for row in rows):
        counts.setdefault(row["group"], set()).add(row["count"])
    metric = grouping.declaration
    return draw_series(
        [grouping_series(label, rows, list(counts)) for label, rows in rows_of.items()],
        f"{grouping.label} (n: number of examples)",
        f"{table.split} {metric.label}",
        "means of the runs of a line, with standard deviations"
        if several
        else f"runs of median {table.label}, with 95% intervals over the examples",
        ticks=[f"{name}\nn = {one.pop():,}" if len(one) == 1 else name for name, one in counts.items()],
        ordered=grouping.ordered,
        limits=metric.limits,
    )


def grouping_series(label: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Series:
    """Return the values by group of examples: means and deviations over the runs, or the values and intervals of one run.

    Args:
        rows: of each run, one for each group of examples.
        names: the groups of examples at the positions 0, 1, …
    """
    found = [[row for row in rows if row["group"] == name and row["value"] is not None] for name in names]
    positions = [index for index, of_group in enumerate(found) if of_group]
    values = [[row["value"] for row in found[index]] for index in positions]
    intervals = [found[index][0].get("confidence") or 0.0 for index in positions]
    errors = [
        _deviation(one) if len(one) > 1 else interval for one, interval in zip(values, intervals, strict=True)
    ]
    return Series(label, positions, [*map(statistics.mean, values)], errors)
