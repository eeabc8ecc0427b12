"""Labels of figures: shortened to fit, in a font that has their characters."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seq2seq_lab.errors import visible_line
from seq2seq_lab.plots.fonts import Font, font_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_LABEL = 4.0  # inches; of the name of a row or a column
TITLE_LINES = 8
GAP = 0.08  # inches between a label and the labelled part
COLORS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#666666")


def fitted_labels(texts: Sequence[str], size: float, most: float, *others: str) -> tuple[list[str], Font]:
    """Return labels of at most `most` inches and the font for them and for other texts."""
    shown = [visible_line(text) for text in texts]
    font = font_for([*shown, *others], size)
    return [font.shorten(text, most) for text in shown], font


def text_style(font: Font) -> dict[str, Any]:
    """Return the arguments of a text; a dollar sign starts no formula."""
    return {"fontsize": font.size, "fontfamily": list(font.families), "parse_math": False}


def tick_width(names: Sequence[str], least: float) -> float:
    """Return the width in inches for each tick label of the x-axis: that of the widest, at least `least`."""
    font = font_for(names, 10)
    return max([least, *(font.width(line) + 2 * GAP for name in names for line in name.split("\n"))])


def label_cells(
    axes: "Axes", columns: Sequence[str], rows: Sequence[str], column_font: Font, row_font: Font
) -> None:
    """Label the columns of a heatmap along its top and its rows down its side."""
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(columns)), columns, rotation=90, **text_style(column_font))
    axes.set_yticks(range(len(rows)), rows, **text_style(row_font))
    axes.tick_params(length=0)


def set_plain_texts(figure: "Figure") -> None:
    """Give all texts of a figure the fonts for their characters; a dollar sign starts no formula."""
    from matplotlib.text import Text

    texts = figure.findobj(Text)
    families = font_for((text.get_text() for text in texts), 0).families
    for text in texts:
        text.set_parse_math(False)
        if len(families) > 1:
            text.set_fontfamily(list(families))
