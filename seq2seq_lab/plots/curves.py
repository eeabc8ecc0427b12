"""Curves of metrics over a training, and metrics by group of examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seq2seq_lab.metrics.base import GroupingDeclaration
from seq2seq_lab.metrics.measurement import GroupValue
from seq2seq_lab.plots.fonts import font_for
from seq2seq_lab.plots.labels import COLORS, TITLE_LINES, set_plain_texts, tick_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Point = tuple[float, float]
MARKED_POINTS = 40  # a curve with more points has no markers
SERIES_LABEL = 5.0  # inches; of a line of the legend of `draw_series`
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P")


def draw_groups(sets: Mapping[str, Sequence[GroupValue]], grouping: GroupingDeclaration) -> "Figure":
    """Draw a metric by group of examples, one line per test set, with the number of examples under each group.

    The scale is that of the metric's limits. Error bars are the 95% intervals of the groups that have one. A group
    without a value is a gap.

    Args:
        sets: the values of each test set.
    """
    from matplotlib.figure import Figure

    metric = grouping.declaration
    groups = list(dict.fromkeys(row.group for rows in sets.values() for row in rows))
    width = tick_width(groups, 0.9)
    figure = Figure(
        figsize=(max(6.0, width * len(groups) + 1.5), 4.0 + 0.16 * len(sets)), layout="constrained"
    )
    axes = figure.add_subplot()
    for index, (name, rows) in enumerate(sets.items()):
        color = COLORS[index % len(COLORS)]
        shift = 0.12 * (index - (len(sets) - 1) / 2)  # keeps the error bars of two sets apart
        positions = [groups.index(row.group) for row in rows]
        axes.errorbar(
            [position + shift for position in positions],
            [np.nan if row.value is None else row.value for row in rows],
            yerr=[row.confidence or 0.0 for row in rows],
            label=name,
            color=color,
            marker=MARKERS[index % len(MARKERS)],
            markersize=5,
            capsize=3,
            linewidth=1.4 if grouping.ordered else 0,
            elinewidth=1.0,
        )
        for position, row in zip(positions, rows, strict=True):
            axes.annotate(
                f"n = {row.count:,}",
                (position, 0),
                xycoords=("data", "axes fraction"),
                xytext=(0, -20 - 11 * index),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=8,
                color=color,
            )
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.5, len(groups) - 0.5)
    if metric.limits is not None:
        low, high = metric.limits
        axes.set_ylim(low - 0.04 * (high - low), high + 0.04 * (high - low))
        axes.set_yticks(np.linspace(low, high, 6))
    axes.set_xlabel(f"{grouping.label} (n: number of examples)", labelpad=4 + 11 * len(sets))
    axes.set_ylabel(metric.label)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"{metric.label} by {grouping.label}, with 95% intervals", fontsize=11)
    axes.legend(loc="best", frameon=False)
    set_plain_texts(figure)
    return figure


def draw_curves(
    losses: Mapping[str, Sequence[Point]], scores: Mapping[str, Sequence[Point]], unit: str
) -> "Figure":
    """Draw training curves: losses on the left, scores of the validation split on the right.

    Args:
        losses: points (step, nats per unit) by name.
        scores: points (step, score) by name.
        unit: the unit of the losses, for example "target token".
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, curves in ((left, losses), (right, scores)):
        for index, (name, points) in enumerate(curves.items()):
            axes.plot(
                [step for step, _ in points],
                [value for _, value in points],
                label=name,
                color=COLORS[index % len(COLORS)],
                linewidth=1.4,
                marker=MARKERS[index % len(MARKERS)] if len(points) <= MARKED_POINTS else None,
                markersize=4,
            )
        axes.set_xlabel("step")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="best", frameon=False, fontsize=9)
    left.set_title("loss", fontsize=11)
    left.set_ylabel(f"nats per {unit}")
    right.set_title("score on the validation split", fontsize=11)
    set_plain_texts(figure)
    return figure


@dataclass(frozen=True)
class Series:
    """A line of `draw_series`: its label, and points with the half-widths of their error bars or of the band around them."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    errors: Sequence[float]


def draw_series(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    title: str,
    *,
    ticks: Sequence[str] | None = None,
    ordered: bool = True,
    limits: Sequence[float] | None = None,
) -> "Figure":
    """Draw lines for print, with a legend below. Lines with one label have one color and one entry of the legend.

    Args:
        ticks: names of the positions 0, 1, … on the x-axis; the errors are then error bars, otherwise bands.
        ordered: whether to connect the points.
        limits: the range of possible values, to which errors are cut.
    """
    from matplotlib.figure import Figure

    labels = list(dict.fromkeys(one.label for one in series))
    font = font_for(labels, 9)
    entries = ["\n".join(font.wrap(label, SERIES_LABEL, TITLE_LINES)) for label in labels]
    rows = sum(1 + entry.count("\n") for entry in entries)
    width = 6.0 if ticks is None else max(6.0, tick_width(ticks, 0.8) * len(ticks) + 1.0)
    figure = Figure(figsize=(width, 3.8 + 0.2 * rows), layout="constrained")
    axes = figure.add_subplot()
    low, high = limits or (-np.inf, np.inf)
    for one in series:
        index = labels.index(one.label)
        x, y, errors = (np.array(values, float) for values in (one.x, one.y, one.errors))
        # Rounding can put a value outside: the BLEU of perfect translations is 100.00000000000004.
        below, above = np.minimum(errors, np.maximum(y - low, 0)), np.minimum(errors, np.maximum(high - y, 0))
        style: dict[str, Any] = {
            "color": COLORS[index % len(COLORS)],
            "marker": MARKERS[index % len(MARKERS)] if len(x) <= MARKED_POINTS else None,
            "markersize": 4,
            "linestyle": STYLES[index // len(COLORS) % len(STYLES)] if ordered else "none",
            "linewidth": 1.4,
            "label": entries[index] if one is next(s for s in series if s.label == one.label) else None,
        }
        if ticks is None:
            axes.plot(x, y, **style)
            axes.fill_between(x, y - below, y + above, color=style["color"], alpha=0.2, linewidth=0)
        else:
            shift = 0.3 * ((index + 0.5) / len(labels) - 0.5)  # keeps the error bars of two lines apart
            axes.errorbar(x + shift, y, yerr=[below, above], capsize=2, elinewidth=1.0, **style)
    if ticks is not None:
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_xlim(-0.5, len(ticks) - 0.5)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(title, fontsize=9)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower left", frameon=False, fontsize=9)
    set_plain_texts(figure)
    return figure
