"""Confusion matrices, shaded texts and maps of words."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seq2seq_lab.errors import visible_line
from seq2seq_lab.plots.fonts import SANS_SERIF, Font, font_for
from seq2seq_lab.plots.labels import COLORS, GAP, LONGEST_LABEL, fitted_labels, text_style
from seq2seq_lab.runtime.direction import direction_of_words, visual_order
from seq2seq_lab.runtime.shades import LEGEND, ShadedText

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHADED_WIDTH = 7.5  # inches; of a line of a shaded text


def draw_confusion(counts_CC: npt.NDArray[np.floating[Any]], classes: Sequence[str]) -> "Figure":
    """Draw a confusion matrix, shaded by the share of each true class (rows), with the counts in the cells."""
    from matplotlib.figure import Figure

    labels, font = fitted_labels(classes, 10, LONGEST_LABEL)
    around = max(map(font.width, labels))
    cell = max(0.45, Font((SANS_SERIF,), 8).width(f"{int(counts_CC.max()):,}") + GAP)
    side = max(3.0, cell * len(classes))
    figure = Figure(figsize=(side + 1.8 + around, side + 1.0 + around), layout="constrained")
    axes = figure.add_subplot()
    shares_CC = counts_CC / np.maximum(1, counts_CC.sum(1, keepdims=True))
    image = axes.imshow(shares_CC, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(range(len(labels)), labels, rotation=90, **text_style(font))
    axes.set_yticks(range(len(labels)), labels, **text_style(font))
    for (row, column), count in np.ndenumerate(counts_CC):
        if count:
            color = "white" if shares_CC[row, column] > 0.5 else "black"
            axes.text(column, row, f"{int(count):,}", ha="center", va="center", fontsize=8, color=color)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    figure.colorbar(image, label="share of the true class")
    return figure


def draw_shaded(texts: Sequence[ShadedText], scale: str) -> "Figure":
    """Draw texts with each word on a background as dark as its weight; marked words are underlined.

    Args:
        scale: what a weight is, beside the legend.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    font = font_for([visible_line(word) for text in texts for word in [*text.words, text.caption]], 10)
    lines = [(text, line) for text in texts for line in _break_lines(text, font)]
    across, down = SHADED_WIDTH + 4 * GAP, 0.27 * (len(lines) + len(texts) + 1) + 0.17
    figure = Figure(figsize=(across, down))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-2 * GAP, across - 2 * GAP)  # inches
    axes.set_ylim(down, 0)
    axes.axis("off")
    style = {**text_style(font), "va": "center"}
    y = 0.27
    small = style | {"color": "0.4", "fontsize": 9}
    axes.text(0.0, y - 0.07, scale, **small)
    for index, weight in enumerate(LEGEND):
        x = SHADED_WIDTH - 0.5 * (len(LEGEND) - index)
        axes.add_patch(Rectangle((x, y - 0.19), 0.45, 0.22, facecolor=COLORS[0], alpha=weight, linewidth=0))
        axes.text(x + 0.225, y - 0.07, f"{weight:g}", **small | {"color": "black", "ha": "center"})
    for index, (text, line) in enumerate(lines):
        y += 0.27
        for position, x, width in line:
            corner, size = (x - 0.6 * GAP, y - 0.12), width + 1.2 * GAP
            weight = text.weights[position]
            axes.add_patch(Rectangle(corner, size, 0.22, facecolor=COLORS[0], alpha=weight, linewidth=0))
            axes.text(x, y, visible_line(text.words[position]), **style)
            if position in text.marked:
                axes.plot([x, x + width], [y + 0.11] * 2, color=COLORS[1], linewidth=1.5)
        if index + 1 == len(lines) or lines[index + 1][0] is not text:
            y += 0.27
            right = direction_of_words(text.words) == "rtl"
            caption = f"{visible_line(text.caption)} ←" if right else f"→ {visible_line(text.caption)}"
            anchor = {"x": SHADED_WIDTH, "ha": "right"} if right else {"x": 0.0}
            axes.text(y=y - 0.03, s=caption, **small | anchor)
    return figure


def _break_lines(text: ShadedText, font: Font) -> list[list[tuple[int, float, float]]]:
    """Return the words of a text in lines of at most `SHADED_WIDTH` inches: index, left end and width in inches.

    The words of a text from right to left begin at the right.
    """
    of_text = direction_of_words(text.words)
    widths = [font.width(visible_line(word)) for word in text.words]
    lines: list[list[int]] = [[]]
    for index, width in enumerate(widths):
        if lines[-1] and sum(widths[i] + GAP for i in lines[-1]) + width > SHADED_WIDTH:
            lines.append([])
        lines[-1].append(index)
    placed: list[list[tuple[int, float, float]]] = []
    for line in lines:
        x = 0.0 if of_text == "ltr" else SHADED_WIDTH + GAP - sum(widths[i] + GAP for i in line)
        placed.append([])
        for i in visual_order([text.words[i] for i in line], of_text):
            placed[-1].append((line[i], x, widths[line[i]]))
            x += widths[line[i]] + GAP
    return placed


def draw_words(vectors_WD: npt.NDArray[np.floating[Any]], words: Sequence[str]) -> "Figure":
    """Draw words at the first two principal components of their vectors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 6.0), layout="constrained")
    _scatter_words(figure.subplots(), vectors_WD, words)
    return figure


def draw_word_pairs(
    sections: Mapping[str, Sequence[tuple[str, str]]], vectors: Mapping[str, npt.NDArray[np.floating[Any]]]
) -> "Figure":
    """Draw the pairs of words of each section in separate axes, with a line between the words of a pair.

    The words are at the first two principal components of the vectors of their section.

    Args:
        sections: the pairs of each section, at least one.
        vectors: the vector of each word.
    """
    from matplotlib.figure import Figure

    columns = min(2, len(sections))
    rows = -(-len(sections) // columns)
    figure = Figure(figsize=(5.5 * columns, 4.5 * rows), layout="constrained")
    all_axes = figure.subplots(rows, columns, squeeze=False).flat
    for axes, (name, pairs) in zip(all_axes, sections.items(), strict=False):
        words = [word for pair in pairs for word in pair]
        points_W2 = _scatter_words(axes, np.stack([vectors[word] for word in words]), words)
        axes.plot(*points_W2.reshape(-1, 2, 2).transpose(2, 1, 0), color=COLORS[1], linewidth=0.8, zorder=0)
        axes.set_title(visible_line(name))
    for axes in figure.axes[len(sections) :]:
        axes.set_visible(False)
    return figure


def _scatter_words(
    axes: "Axes", vectors_WD: npt.NDArray[np.floating[Any]], words: Sequence[str]
) -> npt.NDArray[np.floating[Any]]:
    """Draw words at the first two principal components of their vectors, and return these points of shape W2."""
    centered_WD = vectors_WD - vectors_WD.mean(0)
    _, _, axes_KD = np.linalg.svd(centered_WD, full_matrices=False)
    points_W2 = centered_WD @ axes_KD[:2].T
    axes.scatter(points_W2[:, 0], points_W2[:, 1], s=8, color=COLORS[0])
    labels, font = fitted_labels(words, 8, LONGEST_LABEL)
    for label, point in zip(labels, points_W2, strict=True):
        axes.annotate(label, tuple(point), xytext=(3, 2), textcoords="offset points", **text_style(font))
    axes.set_xlabel("first principal component")
    axes.set_ylabel("second principal component")
    axes.spines[["top", "right"]].set_visible(False)
    return points_W2
