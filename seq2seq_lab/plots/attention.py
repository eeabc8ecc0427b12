"""Pictures of attention."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any
from unicodedata import category

import numpy as np
import numpy.typing as npt

from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.errors import visible_line
from seq2seq_lab.metrics.alignment import Link
from seq2seq_lab.plots.fonts import Font, font_for, missing_glyphs_as_boxes
from seq2seq_lab.plots.labels import GAP, LONGEST_LABEL, TITLE_LINES, fitted_labels, label_cells, text_style
from seq2seq_lab.runtime.direction import Direction, direction_of_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

ATTENTION = "attention weight"  # the usual scale
LONGEST_SIDE = 24.0  # inches; limits the picture of a character-level sentence
TITLE_SIZE = 11.0  # points
NOTE_SIZE = 9.0  # points
NOTE_LINE = 0.18  # inches
RIGHT = 0.95  # inches for the color bar and its labels
OVERLAY_SIZE = 1.3  # inches; the width of the picture of one word
OVERLAYS_IN_A_ROW = 8
LABEL_WIDTH = 8.4  # maximum width of an output token in a picture of fixed size, in font sizes


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
    scale: str = ATTENTION,
    axes: "Axes | None" = None,
) -> "Figure":
    """Draw an attention matrix, source tokens along the top and output tokens down the side, on a scale from 0 to 1.

    The shares of the attention on `<sos>`, `<eos>` and punctuation are below the picture; see `column_shares`.

    Args:
        weights_TS: one row per target token, one column per source token.
        title: above the picture; None for no title.
        gold_links: (source, target) positions to outline.
        room: number of rows of a picture of fixed size; None for one row per output token. The size then depends only
            on the source tokens, the title and `room`, so pictures of one sentence can be shown as an animation. Of a
            longer output only the first tokens are drawn.
        note: a short text below the picture, for example the number of steps.
        light: draw high weights dark on white, for print.
        scale: what the weights are, beside the color bar.
        axes: draw here, without a color bar and notes; None for a figure of fitting size.

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
    shares = column_shares(weights_TS, source_tokens) if scale == ATTENTION else ""
    columns, column_font = fitted_labels(source_tokens, font_size, LONGEST_LABEL, title or "")
    labels, row_font = fitted_labels(target_tokens, font_size, LONGEST_LABEL if room is None else fixed)
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
    set_columns(drawn, len(columns), direction_of_words(source_tokens))
    drawn.set_ylim(rows - 0.5, -0.5)
    label_cells(drawn, columns, labels, column_font, row_font)
    drawn.spines[:].set_visible(False)
    outline(drawn, [link for link in gold_links if link[1] < len(weights_TS)], cell)
    if axes is not None:
        axes.set_title(visible_line(title or ""), **text_style(font_for([title or ""], TITLE_SIZE)))
        own = axes.get_figure(root=True)
        assert own is not None  # axes that are not part of a figure cannot be drawn
        return own
    left = fixed if room is not None else max(map(row_font.width, labels))
    top = max(map(column_font.width, columns))
    lettering = Font(column_font.families, TITLE_SIZE)
    note = "; ".join(filter(None, (note, shares and f"attention on {shares}"))) or None
    _arrange(
        figure,
        image,
        left=left + 2 * GAP,
        top=top + 2 * GAP,
        cell=cell,
        title=title,
        font=lettering,
        note=note,
        scale=scale,
    )
    return figure


def column_shares(weights_TS: npt.NDArray[np.floating[Any]], tokens: Sequence[str]) -> str:
    """Return the shares of the magnitudes on `<sos>`, `<eos>` and punctuation as text, where there are any."""
    size_S = abs(weights_TS).sum(0)
    total = size_S.sum() or 1.0
    columns = {name: [i for i, token in enumerate(tokens) if token == name] for name in ("<sos>", "<eos>")}
    columns["punctuation"] = [i for i, token in enumerate(tokens) if _is_punctuation(token)]
    return ", ".join(f"{name} {size_S[own].sum() / total:.0%}" for name, own in columns.items() if own)


def _is_punctuation(token: str) -> bool:
    characters = token.strip("▁")  # the space of some tokenizers
    return token != UNKNOWN and bool(characters) and all(category(one)[0] in "PS" for one in characters)


def set_columns(axes: "Axes", count: int, direction: Direction) -> None:
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
    (columns, column_font), (rows, row_font) = (
        fitted_labels(one, size, LONGEST_LABEL) for one in (columns, rows)
    )
    top, left = max(map(column_font.width, columns)), max(map(row_font.width, rows))
    direction = direction_of_words(columns)
    figure = Figure(
        figsize=(across * (cell * wide + 0.15) + 1.2 + left, layers * (cell * down + 0.3) + 1.0 + top),
        layout="constrained",
    )
    grid = figure.subplots(layers, across, squeeze=False)
    for (layer, column), axes in np.ndenumerate(grid):
        image = axes.imshow(
            maps_LXTS[layer, column],
            cmap="viridis",
            vmin=0.0,
            vmax=1.0,
            interpolation="nearest",
            aspect="auto",
        )
        set_columns(axes, wide, direction)
        names = columns if layer == 0 else [""] * wide, rows if column == 0 else [""] * down
        label_cells(axes, *names, column_font, row_font)
        head = "mean" if column == across - 1 else f"head {column + 1}"
        axes.set_xlabel(f"layer {layer + 1}, {head}", fontsize=8)
    figure.colorbar(image, ax=grid, label="attention weight", ticks=[0, 0.5, 1], fraction=0.02)
    if title is not None:
        font = font_for([title], 10)
        lines = font.wrap(visible_line(title), figure.get_figwidth() - 2 * GAP, TITLE_LINES)
        figure.suptitle("\n".join(lines), **text_style(font))
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
    labels, font = fitted_labels(names, 9, OVERLAY_SIZE - GAP)
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
        axes.set_title(label, **text_style(font))
    with missing_glyphs_as_boxes():
        figure.tight_layout(pad=0.3)
    return figure


def outline(axes: "Axes", links: Collection[Link], cell: float) -> None:
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
    *,
    left: float,
    top: float,
    cell: float,
    title: str | None,
    font: Font,
    note: str | None,
    scale: str,
) -> None:
    """Set the size of a heatmap's figure and the positions of its parts; `left`, `top` and `cell` are in inches."""
    axes = image.axes
    (x0, x1), (y1, y0) = axes.get_xlim(), axes.get_ylim()
    across, down = cell * abs(x1 - x0), max(cell * (y1 - y0), 1.0)
    width = left + across + RIGHT
    lines = font.wrap(visible_line(title or ""), width - 2 * GAP, TITLE_LINES)
    above = top
    if lines:
        text = figure.text(0.5, 1.0, "\n".join(lines), ha="center", va="top", **text_style(font))
        with missing_glyphs_as_boxes():
            above += text.get_window_extent().height / figure.dpi + GAP
    # Always room for two lines: the pictures of an animation have one size.
    below = 2 * NOTE_LINE + GAP if note is not None else 2 * GAP
    height = above + down + below
    figure.set_size_inches(width, height)
    axes.set_position((left / width, below / height, across / width, down / height))
    bar_axes = figure.add_axes(((left + across + GAP) / width, below / height, 0.12 / width, down / height))
    figure.colorbar(image, cax=bar_axes, label=scale, ticks=[0, 0.25, 0.5, 0.75, 1])
    if lines:
        text.set_y(1 - GAP / height)
    if note is not None:
        small = font_for([note], NOTE_SIZE)
        wrapped = "\n".join(small.wrap(note, width - 2 * GAP, 2))
        figure.text(GAP / width, (below - GAP) / height, wrapped, va="top", color="0.35", **text_style(small))
