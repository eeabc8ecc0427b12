"""The pictures of a question: PNG and PDF files, and one HTML page with the tables, which needs no network."""

import argparse
import html
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq_lab.errors import output_file, output_folder, print_visible
from seq2seq_lab.runtime.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SIZE = 1_000_000  # bytes of a page: it has as many pictures as fit


@dataclass(frozen=True)
class Drawing:
    """A picture.

    Attributes:
        name: of its file, without suffix.
        title: shown above it on the page.
        figure: the picture.
    """

    name: str
    title: str
    figure: "Figure"


def add_pictures(arguments: argparse.ArgumentParser, what: str) -> None:
    """Add the options for pictures."""
    arguments.add_argument(
        "--pictures", type=output_folder, metavar="FOLDER", help=f"draw {what} in this folder, as PNG and PDF"
    )
    arguments.add_argument(
        "--html",
        type=output_file,
        metavar="FILE",
        help="write a page with the tables and as many of the pictures as fit in 1 MB",
    )


def write_pictures(
    options: argparse.Namespace,
    note: str,
    tables: Sequence[TextTable],
    drawings: Callable[[], Iterable[Drawing]],
) -> None:
    """Write the files of the options of `add_pictures`, if they are given.

    Args:
        note: explains the tables and the pictures.
        drawings: returns the pictures; it is called once for the folder and once for the page.
    """
    from seq2seq_lab.files import write_atomically
    from seq2seq_lab.plots import save_for_print

    if options.pictures is not None:
        for one in drawings():
            save_for_print(one.figure, options.pictures / one.name)
    if options.html is not None:
        options.html.parent.mkdir(parents=True, exist_ok=True)
        title = f"{options.question}: {Path(options.folder).name}"
        write_atomically(options.html, page(title, options.command, note, tables, drawings()))
        print_visible(f"written: {options.html}", sys.stderr)


def page(
    title: str, command: str, note: str, tables: Sequence[TextTable], drawings: Iterable[Drawing]
) -> str:
    """Return a page with the command, the tables, and as many of the first pictures as fit."""
    from seq2seq_lab.reporting.run_page import escaped, figure, report, titled

    def whole(pictures: Sequence[str], left_out: str) -> str:
        sections = {"Tables": "".join(map(titled, tables)), "Pictures": "".join(pictures) + left_out}
        about = f'<pre>{html.escape(command)}</pre><p class="note">{escaped(note)}</p>'
        return report(title, about, sections, ("parts.js", "run_page.js"))

    more = '<p class="note">More pictures do not fit the page: --pictures FOLDER draws all.</p>'
    room = MAX_SIZE - len(whole([], more).encode())
    shown: list[str] = []
    for one in drawings:
        picture = f"<h3>{escaped(one.title)}</h3>{figure(one.figure, one.name)}"
        room -= len(picture.encode())
        if room < 0:
            return whole(shown, more)
        shown.append(picture)
    return whole(shown, "")
