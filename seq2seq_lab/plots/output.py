"""Writes figures to files."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq_lab.errors import UserError
from seq2seq_lab.files import temporary_path
from seq2seq_lab.plots.fonts import missing_glyphs_as_boxes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")


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


def render_svg(figure: "Figure") -> str:
    """Return the figure as SVG for a page: without background, and black is the color of the text around it."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "savefig.transparent": True}):
        _draw(figure, buffer, "svg", 150)
    text = buffer.getvalue().decode()
    return text[text.index("<svg") :].replace("#000000", "currentColor")


def _draw(figure: "Figure", target: Path | io.BytesIO, form: str, dots_per_inch: int) -> None:
    from matplotlib import rc_context

    dated = {"pdf": "CreationDate", "svg": "Date"}  # omitted, so that equal pictures are equal files
    metadata = {dated[form]: None} if form in dated else None
    # TrueType fonts: publishers refuse Matplotlib's default, Type 3.
    with missing_glyphs_as_boxes(), rc_context({"pdf.fonttype": 42}):
        figure.savefig(target, format=form, dpi=dots_per_inch, metadata=metadata)
