"""Pictures of attention and of BLEU against source length.

Everything is drawn with Matplotlib's `Figure` objects, without pyplot, so no window system and no state
between calls. Matplotlib is imported where it is used: a run without pictures does not pay for it.
"""

import io
import os
import textwrap
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seq2seq_lab.alignment import Link
from seq2seq_lab.alignment import join_subwords as join_subwords
from seq2seq_lab.scores import LengthBin

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST_SIDE = 24.0  # inches; a character-level sentence must not make a picture of a hundred megapixels
TITLE_LETTER = 0.1  # inches; the width of a letter of the title, on the safe side


def attention_heatmap(
    weights_TS: npt.NDArray[np.floating[Any]],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str | None,
    gold_links: Collection[Link] = (),
) -> "Figure":
    """Return the attention matrix as a picture: source along the top, output down the side, colours 0 to 1.

    `weights_TS` has one row a target token and one column a source token; `gold_links` are
    (source, target) positions, outlined in the picture.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    assert weights_TS.shape == (len(target_tokens), len(source_tokens)), weights_TS.shape
    longest = max(len(source_tokens), len(target_tokens))
    cell = min(max(0.5 - 0.007 * longest, 0.2), LONGEST_SIDE / longest)  # inches
    font_size = min(11.0, 0.6 * cell * 72)
    letter = 0.6 * font_size / 72
    margin_left = letter * max(map(len, target_tokens))
    width = max(margin_left + cell * len(source_tokens) + 1.2, 3.0)
    title_lines = textwrap.wrap(title or "", width=int(width / TITLE_LETTER))
    margin_top = letter * max(map(len, source_tokens)) + 0.25 * len(title_lines)
    height = max(margin_top + cell * len(target_tokens) + 0.4, 2.2)
    figure = Figure(figsize=(width, height), layout="compressed")
    axes = figure.add_subplot()
    image = axes.imshow(weights_TS, cmap="viridis", vmin=0.0, vmax=1.0, interpolation="nearest")
    axes.xaxis.tick_top()
    # A dollar sign in a token is a dollar sign, not the start of a formula.
    axes.set_xticks(
        range(len(source_tokens)), source_tokens, rotation=90, fontsize=font_size, parse_math=False
    )
    axes.set_yticks(range(len(target_tokens)), target_tokens, fontsize=font_size, parse_math=False)
    axes.tick_params(length=0)
    for source, target in gold_links:
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
    figure.colorbar(
        image,
        ax=axes,
        label="attention weight",
        ticks=[0, 0.25, 0.5, 0.75, 1],
        fraction=0.2 / width,
        pad=0.1 / width,
        aspect=max(cell * len(target_tokens) / 0.12, 10.0),  # as high as the matrix
    )
    if title_lines:
        axes.set_title("\n".join(title_lines), fontsize=11, parse_math=False)
    return figure


def bleu_by_length_plot(bins: Mapping[str, Sequence[LengthBin]]) -> "Figure":
    """Return BLEU against source length, one line a system; under each range its number of sentences.

    All systems have the same ranges and counts, as bins of one test set do. A bin without a score is a gap.
    """
    from matplotlib.figure import Figure

    first, *others = bins.values()
    ranges = [(bin.low, bin.high, bin.count) for bin in first]
    assert all([(bin.low, bin.high, bin.count) for bin in other] == ranges for other in others)
    figure = Figure(figsize=(max(5.0, 0.9 * len(ranges) + 1.5), 4.0), layout="constrained")
    axes = figure.add_subplot()
    for system in bins.values():
        axes.plot([np.nan if bin.bleu is None else bin.bleu for bin in system], marker="o")
    axes.set_xticks(range(len(first)), [f"{bin.label}\nn={bin.count:,}" for bin in first])
    axes.set_xlim(-0.5, len(first) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("source length in words (n: sentences)")
    axes.set_ylabel("BLEU")
    axes.grid(axis="y", alpha=0.3)
    legend = axes.legend(axes.get_lines(), list(bins))
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def save_figure(figure: "Figure", path: Path) -> None:
    """Write the figure as a PNG file at 150 dots an inch; `path` is either absent or whole at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _draw(figure, temporary, 150)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def png(figure: "Figure", dots_per_inch: int) -> bytes:
    """Return the figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    _draw(figure, buffer, dots_per_inch)
    return buffer.getvalue()


def _draw(figure: "Figure", place: Path | io.BytesIO, dots_per_inch: int) -> None:
    """Draw characters that the font lacks (emoji, Chinese) as boxes, without a warning for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        figure.savefig(place, format="png", dpi=dots_per_inch)
