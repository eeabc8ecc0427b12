"""Pictures of attributions: several methods for one sentence side by side, and their agreement."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seq2seq_lab.errors import visible_line
from seq2seq_lab.metrics.alignment import Link
from seq2seq_lab.plots.attention import LONGEST_SIDE, outline, set_columns
from seq2seq_lab.plots.fonts import font_for
from seq2seq_lab.plots.labels import GAP, LONGEST_LABEL, TITLE_LINES, fitted_labels, label_cells, text_style
from seq2seq_lab.runtime.direction import direction_of_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTION_SIZE = 9.0  # points
CAPTION_LINES = 4
LINE = 0.17  # inches
LEAST_WIDTH = 1.6  # inches of a panel: short sentences have room for the caption
TITLE_SIZE = 11.0


@dataclass(frozen=True)
class Panel:
    """The scores of one method.

    Attributes:
        name: of the method.
        scores_TS: a row per target token, a column per source word.
        note: a text below the panel, such as the masses of some columns.
    """

    name: str
    scores_TS: npt.NDArray[np.floating[Any]]
    note: str = ""


def draw_attributions(
    panels: Sequence[Panel],
    columns: Sequence[str],
    rows: Sequence[str],
    title: str,
    gold_links: Collection[Link] = (),
) -> "Figure":
    """Draw the scores of several methods for one sentence pair.

    Each row of a panel is divided by its largest magnitude: blue is evidence for the token, red evidence against it.

    Args:
        gold_links: (column, row) positions to outline.
    """
    from matplotlib.figure import Figure

    longest = max(len(columns), len(rows))
    cell = min(max(0.34 - 0.004 * longest, 0.16), LONGEST_SIDE / longest)  # inches
    size = min(9.0, 0.75 * cell * 72)
    (across, column_font), (down, row_font) = (
        fitted_labels(one, size, LONGEST_LABEL, title) for one in (columns, rows)
    )
    top, left = max(map(column_font.width, across)), max(map(row_font.width, down))
    wide, high = max(cell * len(across), LEAST_WIDTH), cell * len(down)
    in_a_row = max(1, min(len(panels), int((LONGEST_SIDE - left) / (wide + 4 * GAP))))
    lines = -(-len(panels) // in_a_row)
    caption = font_for([panel.name + panel.note for panel in panels], CAPTION_SIZE)
    captions = [caption_lines(panel, caption, wide) for panel in panels]
    below = LINE * max(map(len, captions)) + 2 * GAP
    width = left + 4 * GAP + in_a_row * (wide + 4 * GAP)
    heading = font_for([title], TITLE_SIZE)
    titles = heading.wrap(visible_line(title), width - 2 * GAP, TITLE_LINES)
    above = 0.22 * len(titles) + 2 * GAP
    height = above + lines * (top + 2 * GAP + high + below)
    figure = Figure(figsize=(width, height))
    figure.text(0.5, 1 - GAP / height, "\n".join(titles), ha="center", va="top", **text_style(heading))
    for index, (panel, own) in enumerate(zip(panels, captions, strict=True)):
        line, column = divmod(index, in_a_row)
        x = left + 2 * GAP + column * (wide + 4 * GAP)
        y = height - above - line * (top + 2 * GAP + high + below) - top - GAP - high
        axes = figure.add_axes((x / width, y / height, cell * len(across) / width, high / height))
        largest_T1 = abs(panel.scores_TS).max(1, keepdims=True, initial=0)
        shares_TS = np.divide(
            panel.scores_TS, largest_T1, out=np.zeros_like(panel.scores_TS), where=largest_T1 > 0
        )
        axes.imshow(shares_TS, cmap="RdBu", vmin=-1, vmax=1, interpolation="nearest", aspect="auto")
        set_columns(axes, len(across), direction_of_words(columns))
        labels = down if column == 0 else [""] * len(down)
        label_cells(axes, across, labels, column_font, row_font)
        outline(axes, gold_links, cell)
        figure.text(x / width, (y - GAP) / height, "\n".join(own), va="top", **text_style(caption))
    return figure


def caption_lines(panel: Panel, font: Any, wide: float) -> list[str]:
    """Return the lines below a panel."""
    lines: list[str] = font.wrap(panel.name, wide, 2)
    return [*lines, *(font.wrap(panel.note, wide, CAPTION_LINES) if panel.note else [])]


def draw_agreement(names: Sequence[str], tau_MM: npt.NDArray[np.floating[Any]], title: str) -> "Figure":
    """Draw the rank correlations of methods as a matrix with numbers; NaN: not defined."""
    from matplotlib.figure import Figure

    labels, font = fitted_labels(names, 9.0, LONGEST_LABEL, title)
    longest = max(map(font.width, labels))
    side = 0.55 * len(labels)
    width, height = longest + side + 4 * GAP, longest + side + 4 * GAP + 0.35
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes(((longest + 2 * GAP) / width, 2 * GAP / height, side / width, side / height))
    axes.imshow(tau_MM, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    label_cells(axes, labels, labels, font, font)
    for row, column in np.ndindex(tau_MM.shape):
        value = tau_MM[row, column]
        text = "–" if np.isnan(value) else f"{value:.2f}"
        color = "white" if abs(value) > 0.7 else "#222222"  # black would be the color of the page
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color=color)
    figure.text(0.5, 1 - GAP / height, title, ha="center", va="top", **text_style(font))
    return figure
