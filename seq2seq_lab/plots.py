"""Pictures of attention, of BLEU against source length, and of training curves.

Everything is drawn with Matplotlib's `Figure` objects, without pyplot, so no window system and no state
between calls. Matplotlib is imported where it is used: a run without pictures does not pay for it.
"""

import io
import os
import textwrap
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.alignment import Link
from seq2seq_lab.metrics.alignment import join_subwords as join_subwords
from seq2seq_lab.metrics.scores import LengthBin

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from matplotlib.text import Text

Point = tuple[float, float]

LONGEST_SIDE = 24.0  # inches; a character-level sentence must not make a picture of a hundred megapixels
TITLE_LETTER = 0.1  # inches; the width of a letter of the title, on the safe side
TITLE_LINE = 0.22  # inches; the height of a line of the title
GAP = 0.08  # inches between text and what it labels
RIGHT = 0.95  # inches for the colour bar and its labels
LABEL_CHARACTERS = 14  # of an output token in a picture of fixed size
FORMATS = ("png", "pdf", "svg")  # of `save_figure`, by the ending of the file's name
COLOURS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#666666")
MARKED_POINTS = 40  # a curve of more points is a plain line
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
) -> "Figure":
    """Return the attention matrix as a picture: source along the top, output down the side, colours 0 to 1.

    The picture is as large as the sentence needs. With `room` its size and the place of every cell depend on the source
    tokens, the title and `room` alone, so that the pictures of one sentence at several moments of the training can be
    shown as an animation: there is room for so many output tokens, and of a longer output the first ones are drawn.

    Args:
        weights_TS: one row a target token, one column a source token.
        title: above the picture; None for none.
        gold_links: (source, target) positions to outline.
        room: number of rows for output tokens; None for one per token.
        note: a few words below the picture, for example the number of updates.
    """
    from matplotlib.figure import Figure

    assert weights_TS.shape == (len(target_tokens), len(source_tokens)), weights_TS.shape
    labels = list(target_tokens)
    if room is not None:
        labels = [shortened(label, LABEL_CHARACTERS) for label in labels]
        if len(labels) > room:
            labels = [*labels[: room - 1], f"… {len(labels) - room + 1} more"]
            weights_TS = weights_TS[: room - 1]
    height_rows = room or len(labels)
    longest = max(len(source_tokens), height_rows)
    cell = min(max(0.5 - 0.007 * longest, 0.2), LONGEST_SIDE / longest)  # inches
    font_size = min(11.0, 0.6 * cell * 72)
    figure = Figure()
    axes = figure.add_subplot()
    image = axes.imshow(
        weights_TS, cmap="viridis", vmin=0.0, vmax=1.0, interpolation="nearest", aspect="auto"
    )
    axes.set_xlim(-0.5, len(source_tokens) - 0.5)
    axes.set_ylim(height_rows - 0.5, -0.5)
    axes.xaxis.tick_top()
    # A dollar sign in a token is a dollar sign, not the start of a formula.
    axes.set_xticks(
        range(len(source_tokens)), source_tokens, rotation=90, fontsize=font_size, parse_math=False
    )
    axes.set_yticks(range(len(labels)), labels, fontsize=font_size, parse_math=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    _outline(axes, [link for link in gold_links if link[1] < len(weights_TS)], cell)
    with _missing_glyphs_as_boxes():
        widths = [label.get_window_extent().width / figure.dpi for label in axes.get_yticklabels()]
        margin_top = max(label.get_window_extent().height for label in axes.get_xticklabels()) / figure.dpi
    margin_left = max(widths)
    if room is not None:
        margin_left = 0.6 * font_size / 72 * LABEL_CHARACTERS
        _shrink(axes.get_yticklabels(), widths, margin_left)
    _place(figure, image, margin_left + 2 * GAP, margin_top + 2 * GAP, cell, title, note)
    return figure


def _shrink(labels: Sequence["Text"], widths: Sequence[float], most: float) -> None:
    """Make the labels that are wider than `most` inches smaller."""
    for label, width in zip(labels, widths, strict=True):
        if width > most:
            label.set_fontsize(float(label.get_fontsize()) * most / width)


def _outline(axes: "Axes", links: Collection[Link], cell: float) -> None:
    """Outline cells of a heatmap, visible on dark and on bright colours; `cell` is their width in inches."""
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


def _place(
    figure: "Figure",
    image: "AxesImage",
    left: float,
    top: float,
    cell: float,
    title: str | None,
    note: str | None,
) -> None:
    """Set the size of a heatmap's figure and the place of its parts; `left`, `top` and `cell` are in inches."""
    axes = image.axes
    (x0, x1), (y1, y0) = axes.get_xlim(), axes.get_ylim()
    across, down = cell * (x1 - x0), max(cell * (y1 - y0), 1.0)
    width = left + across + RIGHT
    lines = textwrap.wrap(title or "", width=max(int(width / TITLE_LETTER), 10))
    above = top + TITLE_LINE * len(lines)
    below = 0.35 if note is not None else 2 * GAP
    height = above + down + below
    figure.set_size_inches(width, height)
    axes.set_position((left / width, below / height, across / width, down / height))
    bar_axes = figure.add_axes(((left + across + GAP) / width, below / height, 0.12 / width, down / height))
    figure.colorbar(image, cax=bar_axes, label="attention weight", ticks=[0, 0.25, 0.5, 0.75, 1])
    if lines:
        figure.text(
            0.5, 1 - GAP / height, "\n".join(lines), ha="center", va="top", fontsize=11, parse_math=False
        )
    if note is not None:
        figure.text(left / width, GAP / height, note, fontsize=9, color="0.35", parse_math=False)


def shortened(text: str, characters: int) -> str:
    """Return a text of at most `characters` characters; … replaces the rest."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def draw_bleu_by_length(bins: Mapping[str, Sequence[LengthBin]]) -> "Figure":
    """Return BLEU against source length, one line a test set, with its numbers of sentences under each range.

    The scale is 0 to 100 in every picture. Error bars are the 95% intervals of the bins that have one. All sets have the
    same ranges. A bin without a score is a gap.
    """
    from matplotlib.figure import Figure

    first, *others = bins.values()
    ranges = [(bin.low, bin.high) for bin in first]
    assert all([(bin.low, bin.high) for bin in other] == ranges for other in others)
    figure = Figure(figsize=(max(6.0, 0.9 * len(ranges) + 1.5), 4.0 + 0.16 * len(bins)), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, row) in enumerate(bins.items()):
        colour = COLOURS[number % len(COLOURS)]
        shift = 0.12 * (
            number - (len(bins) - 1) / 2
        )  # so that the error bars of two sets do not hide each other
        axes.errorbar(
            [place + shift for place in range(len(row))],
            [np.nan if bin.bleu is None else bin.bleu for bin in row],
            yerr=[bin.confidence or 0.0 for bin in row],
            label=name,
            color=colour,
            marker=MARKERS[number % len(MARKERS)],
            markersize=5,
            capsize=3,
            linewidth=1.4,
            elinewidth=1.0,
        )
        for place, bin in enumerate(row):
            axes.annotate(
                f"n = {bin.count:,}",
                (place, 0),
                xycoords=("data", "axes fraction"),
                xytext=(0, -20 - 11 * number),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=8,
                color=colour,
            )
    axes.set_xticks(range(len(ranges)), [bin.label for bin in first])
    axes.set_xlim(-0.5, len(ranges) - 0.5)
    axes.set_ylim(-4, 104)
    axes.set_yticks(range(0, 101, 20))
    axes.set_xlabel("source length in words (n: number of sentences)", labelpad=4 + 11 * len(bins))
    axes.set_ylabel("BLEU")
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("BLEU by source length, with 95% intervals", fontsize=11)
    for text in axes.legend(loc="lower left", frameon=False).get_texts():
        text.set_parse_math(False)
    return figure


def draw_curves(losses: Mapping[str, Sequence[Point]], scores: Mapping[str, Sequence[Point]]) -> "Figure":
    """Return training curves: losses on the left, scores of the validation split on the right.

    Args:
        losses: (update, nats per token) by name.
        scores: (update, score) by name.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    # Losses fall and scores rise: their legends are where the curves are not.
    for axes, curves, place in ((left, losses, "upper right"), (right, scores, "lower right")):
        for number, (name, points) in enumerate(curves.items()):
            axes.plot(
                [update for update, _ in points],
                [value for _, value in points],
                label=name,
                color=COLOURS[number % len(COLOURS)],
                linewidth=1.4,
                marker=MARKERS[number % len(MARKERS)] if len(points) <= MARKED_POINTS else None,
                markersize=4,
            )
        axes.set_xlabel("update")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc=place, frameon=False, fontsize=9)
    left.set_title("loss", fontsize=11)
    left.set_ylabel("nats per token")
    right.set_title("score on the validation split", fontsize=11)
    return figure


def save_figure(figure: "Figure", path: Path) -> None:
    """Write the figure in the format that the ending of `path` names; `path` is either absent or whole at any time.

    Raises:
        UserError: the ending is none of `FORMATS`.
    """
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        endings = ", ".join(f".{name}" for name in FORMATS)
        raise UserError(f"{path}: cannot write a picture with this ending. Allowed: {endings}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _draw(figure, temporary, form, 150)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def png(figure: "Figure", dots_per_inch: int) -> bytes:
    """Return the figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    _draw(figure, buffer, "png", dots_per_inch)
    return buffer.getvalue()


def _draw(figure: "Figure", place: Path | io.BytesIO, form: str, dots_per_inch: int) -> None:
    from matplotlib import rc_context

    dated = {"pdf": "CreationDate", "svg": "Date"}  # left out: the same picture is the same file
    metadata = {dated[form]: None} if form in dated else None
    # Fonts as TrueType: publishers refuse Matplotlib's default, Type 3.
    with _missing_glyphs_as_boxes(), rc_context({"pdf.fonttype": 42}):
        figure.savefig(place, format=form, dpi=dots_per_inch, metadata=metadata)


@contextmanager
def _missing_glyphs_as_boxes() -> Iterator[None]:
    """Draw characters that the font lacks (emoji, Chinese) as boxes, without a warning for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        yield
