"""Pictures of attention, of metrics by group of examples, and of training curves.

Figures are drawn without pyplot: no window system is needed and no state is kept between calls. Matplotlib is
imported on first use, because the import is slow.
"""

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seq2seq_lab.errors import UserError, visible_line
from seq2seq_lab.files import temporary_path
from seq2seq_lab.fonts import SANS_SERIF, Font, font_for, missing_glyphs_as_boxes, set_fonts
from seq2seq_lab.metrics.alignment import Link
from seq2seq_lab.metrics.base import GroupingDeclaration, GroupValue
from seq2seq_lab.runtime.console import ShadedText
from seq2seq_lab.runtime.direction import Direction, direction_of_words, visual_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from matplotlib.text import Text

Point = tuple[float, float]

LONGEST_SIDE = 24.0  # inches; limits the picture of a character-level sentence
LONGEST_LABEL = 4.0  # inches; of the name of a row or a column
TITLE_SIZE = 11.0  # points
TITLE_LINES = 8
GAP = 0.08  # inches between a label and the labelled part
RIGHT = 0.95  # inches for the color bar and its labels
OVERLAY_SIZE = 1.3  # inches; the width of the picture of one word
OVERLAYS_IN_A_ROW = 8
LABEL_WIDTH = 8.4  # maximum width of an output token in a picture of fixed size, in font sizes
SHADED_WIDTH = 7.5  # inches; of a line of a shaded text
FORMATS = ("png", "pdf", "svg")
COLORS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#666666")
MARKED_POINTS = 40  # a curve with more points has no markers
SERIES_LABEL = 5.0  # inches; of a line of the legend of `draw_series`
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P")


def draw_attention(
    weights_TS: npt.NDArray[np.floating[Any]],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str | None,
    gold_links: Collection[Link] = (),
    *,
    room: int | None = None,
    note: str | None = None,
    light: bool = False,
    axes: "Axes | None" = None,
) -> "Figure":
    """Draw an attention matrix, source tokens along the top and output tokens down the side, on a scale from 0 to 1.

    Args:
        weights_TS: one row per target token, one column per source token.
        title: above the picture; None for no title.
        gold_links: (source, target) positions to outline.
        room: number of rows of a picture of fixed size; None for one row per output token. The size then depends only
            on the source tokens, the title and `room`, so pictures of one sentence can be shown as an animation. Of a
            longer output only the first tokens are drawn.
        note: a short text below the picture, for example the number of steps.
        light: draw high weights dark on white, for print.
        axes: draw here, without a color bar; None for a figure of fitting size.

    Returns:
        The figure that contains the heatmap.
    """
    from matplotlib.figure import Figure

    assert weights_TS.shape == (len(target_tokens), len(source_tokens)), weights_TS.shape
    rows = room or len(target_tokens)
    longest = max(len(source_tokens), rows)
    cell = min(max(0.5 - 0.007 * longest, 0.2), LONGEST_SIDE / longest)  # inches
    font_size = min(11.0, 0.6 * cell * 72)
    fixed = LABEL_WIDTH * font_size / 72
    columns, column_font = _labels(source_tokens, font_size, LONGEST_LABEL, title or "")
    labels, row_font = _labels(target_tokens, font_size, LONGEST_LABEL if room is None else fixed)
    if len(labels) > rows:
        labels = [*labels[: rows - 1], f"… {len(labels) - rows + 1} more"]
        weights_TS = weights_TS[: rows - 1]
    figure = Figure()
    image = (axes or figure.add_subplot()).imshow(
        weights_TS,
        cmap="Blues" if light else "viridis",
        vmin=0.0,
        vmax=1.0,
        interpolation="nearest",
        aspect="auto",
    )
    drawn = image.axes
    _set_columns(drawn, len(columns), direction_of_words(source_tokens))
    drawn.set_ylim(rows - 0.5, -0.5)
    drawn.xaxis.tick_top()
    drawn.set_xticks(range(len(columns)), columns, rotation=90, **_style(column_font))
    drawn.set_yticks(range(len(labels)), labels, **_style(row_font))
    drawn.tick_params(length=0)
    drawn.spines[:].set_visible(False)
    _outline(drawn, [link for link in gold_links if link[1] < len(weights_TS)], cell)
    if axes is not None:
        axes.set_title(visible_line(title or ""), **_style(font_for([title or ""], TITLE_SIZE)))
        own = axes.get_figure(root=True)
        assert own is not None  # axes that are not part of a figure cannot be drawn
        return own
    left = fixed if room is not None else max(map(row_font.width, labels))
    top = max(map(column_font.width, columns))
    lettering = Font(column_font.families, TITLE_SIZE)
    _arrange(figure, image, left + 2 * GAP, top + 2 * GAP, cell, title, lettering, note)
    return figure


def _labels(texts: Sequence[str], size: float, most: float, *others: str) -> tuple[list[str], Font]:
    """Return labels of at most `most` inches and the font for them and for other texts."""
    shown = [visible_line(text) for text in texts]
    font = font_for([*shown, *others], size)
    return [font.shorten(text, most) for text in shown], font


def _style(font: Font) -> dict[str, Any]:
    """Return the arguments of a text; a dollar sign starts no formula."""
    return {"fontsize": font.size, "fontfamily": list(font.families), "parse_math": False}


def _set_columns(axes: "Axes", count: int, direction: Direction) -> None:
    """Show the columns of a heatmap in the direction of their text."""
    limits = (-0.5, count - 0.5)
    axes.set_xlim(limits if direction == "ltr" else limits[::-1])


def draw_attention_maps(
    weights_LATS: npt.NDArray[np.floating[Any]],
    columns: Sequence[str],
    rows: Sequence[str],
    title: str | None,
) -> "Figure":
    """Draw the attention of every layer (down) and head (across), and the mean over the heads of each layer.

    Args:
        weights_LATS: one matrix per layer and head, on a scale from 0 to 1.
        columns: the S tokens that are attended to.
        rows: the T tokens that attend.
        title: above the picture; None for no title.
    """
    from matplotlib.figure import Figure

    maps_LXTS = np.concatenate([weights_LATS, weights_LATS.mean(1, keepdims=True)], axis=1)
    layers, across, down, wide = maps_LXTS.shape
    cell = min(0.17, LONGEST_SIDE / (across * wide), LONGEST_SIDE / (layers * down))  # inches
    size = 0.75 * cell * 72
    (columns, column_font), (rows, row_font) = (_labels(one, size, LONGEST_LABEL) for one in (columns, rows))
    top, left = max(map(column_font.width, columns)), max(map(row_font.width, rows))
    direction = direction_of_words(columns)
    figure = Figure(
        figsize=(across * (cell * wide + 0.15) + 1.2 + left, layers * (cell * down + 0.3) + 1.0 + top),
        layout="constrained",
    )
    grid = figure.subplots(layers, across, squeeze=False)
    for (layer, number), axes in np.ndenumerate(grid):
        image = axes.imshow(
            maps_LXTS[layer, number],
            cmap="viridis",
            vmin=0.0,
            vmax=1.0,
            interpolation="nearest",
            aspect="auto",
        )
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        _set_columns(axes, wide, direction)
        axes.set_xticks(
            range(wide), columns if layer == 0 else [""] * wide, rotation=90, **_style(column_font)
        )
        axes.set_yticks(range(down), rows if number == 0 else [""] * down, **_style(row_font))
        head = "mean" if number == across - 1 else f"head {number + 1}"
        axes.set_xlabel(f"layer {layer + 1}, {head}", fontsize=8)
    figure.colorbar(image, ax=grid, label="attention weight", ticks=[0, 0.5, 1], fraction=0.02)
    if title is not None:
        font = font_for([title], 10)
        lines = font.wrap(visible_line(title), figure.get_figwidth() - 2 * GAP, TITLE_LINES)
        figure.suptitle("\n".join(lines), **_style(font))
    return figure


def draw_overlays(
    image_HWC: npt.NDArray[np.uint8],
    words: Sequence[tuple[str, npt.NDArray[np.floating[Any]], tuple[int, int, int, int] | None]],
) -> "Figure":
    """Draw an image, and beside it once for each word with the word's attention as brightness.

    Args:
        image_HWC: RGB values.
        words: each with its attention weights_YX to the cells of a grid over the image, and the box to outline (left, top,
            right, bottom in pixels), if any. The brightest cell of each picture has the highest weight of the word.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    height, width = image_HWC.shape[:2]
    columns = min(len(words) + 1, OVERLAYS_IN_A_ROW)
    rows = -(-(len(words) + 1) // columns)
    figure = Figure(figsize=(OVERLAY_SIZE * columns, (OVERLAY_SIZE * height / width + 0.35) * rows))
    grid = figure.subplots(rows, columns, squeeze=False)
    names = [word for word, _, _ in words]
    all_axes = (grid if direction_of_words(names) == "ltr" else grid[:, ::-1]).ravel()
    labels, font = _labels(names, 9, OVERLAY_SIZE - GAP)
    for axes in all_axes:
        axes.set_axis_off()
    all_axes[0].imshow(image_HWC)
    for axes, label, (_, weights_YX, box) in zip(all_axes[1:], labels, words, strict=False):
        axes.imshow(image_HWC.mean(2), cmap="gray", vmin=0, vmax=255)
        extent = (-0.5, width - 0.5, height - 0.5, -0.5)
        axes.imshow(weights_YX, cmap="inferno", alpha=0.65, extent=extent, interpolation="nearest", vmin=0)
        if box is not None:
            left, top, right, bottom = box
            corner = (left - 0.5, top - 0.5)
            axes.add_patch(Rectangle(corner, right - left, bottom - top, fill=False, color="white"))
        axes.set_title(label, **_style(font))
    with missing_glyphs_as_boxes():
        figure.tight_layout(pad=0.3)
    return figure


def _outline(axes: "Axes", links: Collection[Link], cell: float) -> None:
    """Outline cells of a heatmap in white and black; `cell` is their width in inches."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    for source, target in links:
        axes.add_patch(
            Rectangle(
                (source - 0.43, target - 0.43),
                0.86,
                0.86,
                fill=False,
                edgecolor="white",
                linewidth=3 * cell,
                path_effects=[withStroke(linewidth=6 * cell, foreground="black")],
            )
        )


def _arrange(
    figure: "Figure",
    image: "AxesImage",
    left: float,
    top: float,
    cell: float,
    title: str | None,
    font: Font,
    note: str | None,
) -> None:
    """Set the size of a heatmap's figure and the positions of its parts; `left`, `top` and `cell` are in inches."""
    axes = image.axes
    (x0, x1), (y1, y0) = axes.get_xlim(), axes.get_ylim()
    across, down = cell * abs(x1 - x0), max(cell * (y1 - y0), 1.0)
    width = left + across + RIGHT
    lines = font.wrap(visible_line(title or ""), width - 2 * GAP, TITLE_LINES)
    above = top
    if lines:
        text = figure.text(0.5, 1.0, "\n".join(lines), ha="center", va="top", **_style(font))
        with missing_glyphs_as_boxes():
            above += text.get_window_extent().height / figure.dpi + GAP
    below = 0.35 if note is not None else 2 * GAP
    height = above + down + below
    figure.set_size_inches(width, height)
    axes.set_position((left / width, below / height, across / width, down / height))
    bar_axes = figure.add_axes(((left + across + GAP) / width, below / height, 0.12 / width, down / height))
    figure.colorbar(image, cax=bar_axes, label="attention weight", ticks=[0, 0.25, 0.5, 0.75, 1])
    if lines:
        text.set_y(1 - GAP / height)
    if note is not None:
        figure.text(left / width, GAP / height, note, fontsize=9, color="0.35", parse_math=False)


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
    width = _tick_width(groups, 0.9)
    figure = Figure(
        figsize=(max(6.0, width * len(groups) + 1.5), 4.0 + 0.16 * len(sets)), layout="constrained"
    )
    axes = figure.add_subplot()
    for number, (name, rows) in enumerate(sets.items()):
        color = COLORS[number % len(COLORS)]
        shift = 0.12 * (number - (len(sets) - 1) / 2)  # keeps the error bars of two sets apart
        places = [groups.index(row.group) for row in rows]
        axes.errorbar(
            [place + shift for place in places],
            [np.nan if row.value is None else row.value for row in rows],
            yerr=[row.confidence or 0.0 for row in rows],
            label=name,
            color=color,
            marker=MARKERS[number % len(MARKERS)],
            markersize=5,
            capsize=3,
            linewidth=1.4 if grouping.ordered else 0,
            elinewidth=1.0,
        )
        for place, row in zip(places, rows, strict=True):
            axes.annotate(
                f"n = {row.count:,}",
                (place, 0),
                xycoords=("data", "axes fraction"),
                xytext=(0, -20 - 11 * number),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=8,
                color=color,
            )
    axes.set_xticks(range(len(groups)), groups, parse_math=False)
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
    for text in axes.legend(loc="lower left", frameon=False).get_texts():
        text.set_parse_math(False)
    set_fonts(_texts(figure))
    return figure


def _tick_width(names: Sequence[str], least: float) -> float:
    """Return the room that each name of a place on the x-axis needs, in inches."""
    font = font_for(names, 10)
    return max([least, *(font.width(line) + 2 * GAP for name in names for line in name.split("\n"))])


def _texts(figure: "Figure") -> list["Text"]:
    from matplotlib.text import Text

    return figure.findobj(Text)


def draw_confusion(counts_CC: npt.NDArray[np.floating[Any]], classes: Sequence[str]) -> "Figure":
    """Draw a confusion matrix, shaded by the share of each true class (rows), with the counts in the cells."""
    from matplotlib.figure import Figure

    labels, font = _labels(classes, 10, LONGEST_LABEL)
    around = max(map(font.width, labels))
    cell = max(0.45, Font((SANS_SERIF,), 8).width(f"{int(counts_CC.max()):,}") + GAP)
    side = max(3.0, cell * len(classes))
    figure = Figure(figsize=(side + 1.8 + around, side + 1.0 + around), layout="constrained")
    axes = figure.add_subplot()
    shares_CC = counts_CC / np.maximum(1, counts_CC.sum(1, keepdims=True))
    image = axes.imshow(shares_CC, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(range(len(labels)), labels, rotation=90, **_style(font))
    axes.set_yticks(range(len(labels)), labels, **_style(font))
    for (row, column), count in np.ndenumerate(counts_CC):
        if count:
            color = "white" if shares_CC[row, column] > 0.5 else "black"
            axes.text(column, row, f"{int(count):,}", ha="center", va="center", fontsize=8, color=color)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    figure.colorbar(image, label="share of the true class")
    return figure


def draw_shaded(texts: Sequence[ShadedText]) -> "Figure":
    """Draw texts with each word on a background as dark as its weight; marked words are underlined."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    font = font_for([visible_line(word) for text in texts for word in [*text.words, text.caption]], 10)
    lines = [(text, line) for text in texts for line in _break_lines(text, font)]
    across, down = SHADED_WIDTH + 4 * GAP, 0.27 * (len(lines) + len(texts)) + 0.17
    figure = Figure(figsize=(across, down))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-2 * GAP, across - 2 * GAP)  # inches
    axes.set_ylim(down, 0)
    axes.axis("off")
    style = {**_style(font), "va": "center"}
    y = 0.0
    for number, (text, line) in enumerate(lines):
        y += 0.27
        for place, x, width in line:
            corner, size = (x - 0.6 * GAP, y - 0.12), width + 1.2 * GAP
            weight = text.weights[place]
            axes.add_patch(Rectangle(corner, size, 0.22, facecolor=COLORS[0], alpha=weight, linewidth=0))
            axes.text(x, y, visible_line(text.words[place]), **style)
            if place in text.marked:
                axes.plot([x, x + width], [y + 0.11] * 2, color=COLORS[1], linewidth=1.5)
        if number + 1 == len(lines) or lines[number + 1][0] is not text:
            y += 0.27
            right = direction_of_words(text.words) == "rtl"
            caption = f"{visible_line(text.caption)} ←" if right else f"→ {visible_line(text.caption)}"
            place_of = {"x": SHADED_WIDTH, "ha": "right"} if right else {"x": 0.0}
            axes.text(y=y - 0.03, s=caption, **style | place_of | {"color": "0.4", "fontsize": 9})
    return figure


def _break_lines(text: ShadedText, font: Font) -> list[list[tuple[int, float, float]]]:
    """Return the words of a text in lines of at most `SHADED_WIDTH` inches: number, left end and width in inches.

    The words of a text from right to left begin at the right.
    """
    of_text = direction_of_words(text.words)
    widths = [font.width(visible_line(word)) for word in text.words]
    lines: list[list[int]] = [[]]
    for number, width in enumerate(widths):
        if lines[-1] and sum(widths[i] + GAP for i in lines[-1]) + width > SHADED_WIDTH:
            lines.append([])
        lines[-1].append(number)
    placed: list[list[tuple[int, float, float]]] = []
    for line in lines:
        x = 0.0 if of_text == "ltr" else SHADED_WIDTH + GAP - sum(widths[i] + GAP for i in line)
        placed.append([])
        for i in visual_order([text.words[i] for i in line], of_text):
            placed[-1].append((line[i], x, widths[line[i]]))
            x += widths[line[i]] + GAP
    return placed


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
        for number, (name, points) in enumerate(curves.items()):
            axes.plot(
                [step for step, _ in points],
                [value for _, value in points],
                label=name,
                color=COLORS[number % len(COLORS)],
                linewidth=1.4,
                marker=MARKERS[number % len(MARKERS)] if len(points) <= MARKED_POINTS else None,
                markersize=4,
            )
        axes.set_xlabel("step")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        for text in axes.legend(loc="best", frameon=False, fontsize=9).get_texts():
            text.set_parse_math(False)
    left.set_title("loss", fontsize=11)
    left.set_ylabel(f"nats per {unit}")
    right.set_title("score on the validation split", fontsize=11)
    set_fonts(_texts(figure))
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
        ticks: names of the places 0, 1, … on the x-axis; the errors are then error bars, otherwise bands.
        ordered: whether to connect the places.
        limits: the range of possible values, to which errors are cut.
    """
    from matplotlib.figure import Figure

    labels = list(dict.fromkeys(one.label for one in series))
    font = font_for(labels, 9)
    entries = ["\n".join(font.wrap(label, SERIES_LABEL, TITLE_LINES)) for label in labels]
    rows = sum(1 + entry.count("\n") for entry in entries)
    width = 6.0 if ticks is None else max(6.0, _tick_width(ticks, 0.8) * len(ticks) + 1.0)
    figure = Figure(figsize=(width, 3.8 + 0.2 * rows), layout="constrained")
    axes = figure.add_subplot()
    low, high = limits or (-np.inf, np.inf)
    for one in series:
        number = labels.index(one.label)
        x, y, errors = (np.array(values, float) for values in (one.x, one.y, one.errors))
        below, above = np.minimum(errors, y - low), np.minimum(errors, high - y)
        style: dict[str, Any] = {
            "color": COLORS[number % len(COLORS)],
            "marker": MARKERS[number % len(MARKERS)] if len(x) <= MARKED_POINTS else None,
            "markersize": 4,
            "linestyle": STYLES[number // len(COLORS) % len(STYLES)] if ordered else "none",
            "linewidth": 1.4,
            "label": entries[number] if one is next(s for s in series if s.label == one.label) else None,
        }
        if ticks is None:
            axes.plot(x, y, **style)
            axes.fill_between(x, y - below, y + above, color=style["color"], alpha=0.2, linewidth=0)
        else:
            shift = 0.3 * ((number + 0.5) / len(labels) - 0.5)  # keeps the error bars of two lines apart
            axes.errorbar(x + shift, y, yerr=[below, above], capsize=2, elinewidth=1.0, **style)
    if ticks is not None:
        axes.set_xticks(range(len(ticks)), ticks, parse_math=False)
        axes.set_xlim(-0.5, len(ticks) - 0.5)
    axes.set_xlabel(x_label, parse_math=False)
    axes.set_ylabel(y_label, parse_math=False)
    axes.set_title(title, fontsize=9, parse_math=False)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    for text in figure.legend(loc="outside lower left", frameon=False, fontsize=9).get_texts():
        text.set_parse_math(False)
    set_fonts(_texts(figure))
    return figure


def draw_words(vectors_WD: npt.NDArray[np.floating[Any]], words: Sequence[str]) -> "Figure":
    """Draw words at the first two principal components of their vectors."""
    from matplotlib.figure import Figure

    centered_WD = vectors_WD - vectors_WD.mean(0)
    _, _, axes_KD = np.linalg.svd(centered_WD, full_matrices=False)
    x_W, y_W = (centered_WD @ axes_KD[:2].T).T
    figure = Figure(figsize=(8.0, 6.0), layout="constrained")
    axes = figure.subplots()
    axes.scatter(x_W, y_W, s=8, color=COLORS[0])
    labels, font = _labels(words, 8, LONGEST_LABEL)
    for label, x, y in zip(labels, x_W, y_W, strict=True):
        axes.annotate(label, (x, y), xytext=(3, 2), textcoords="offset points", **_style(font))
    axes.set_xlabel("first principal component")
    axes.set_ylabel("second principal component")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def save_for_print(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG and as PDF, next to each other."""
    for suffix in (".png", ".pdf"):
        save_figure(figure, path.with_suffix(suffix))


def picture_format(path: Path) -> str:
    """Return the format given by the suffix of a picture's path.

    Raises:
        UserError: the suffix is not one of `FORMATS`.
    """
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        suffixes = ", ".join(f".{name}" for name in FORMATS)
        raise UserError(f"{path}: this suffix is not supported. Values: {suffixes}.")
    return form


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure atomically, in the format given by the suffix of `path`.

    Raises:
        UserError: the suffix is not one of `FORMATS`.
    """
    form = picture_format(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_path(path) as temporary:
        _draw(figure, temporary, form, 150)


def render_png(figure: "Figure", dots_per_inch: int) -> bytes:
    """Return the figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    _draw(figure, buffer, "png", dots_per_inch)
    return buffer.getvalue()


def _draw(figure: "Figure", place: Path | io.BytesIO, form: str, dots_per_inch: int) -> None:
    from matplotlib import rc_context

    dated = {"pdf": "CreationDate", "svg": "Date"}  # omitted, so that equal pictures are equal files
    metadata = {dated[form]: None} if form in dated else None
    # TrueType fonts: publishers refuse Matplotlib's default, Type 3.
    with missing_glyphs_as_boxes(), rc_context({"pdf.fonttype": 42}):
        figure.savefig(place, format=form, dpi=dots_per_inch, metadata=metadata)
