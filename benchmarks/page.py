"""The generated parts of the pages in docs/: where they stand, their tables and paragraphs."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seq2seq_lab.errors import UserError
from seq2seq_lab.files import write_atomically

WIDTH = 120


@dataclass(frozen=True)
class Part:
    """What stands between two lines of a page."""

    page: Path
    first: str
    last: str

    def write(self, lines: Iterable[str]) -> None:
        """Put these lines into the page as the part.

        Raises:
            UserError: the page has no such part.
        """
        write_atomically(self.page, self.replaced(self.page.read_text("utf-8"), lines))

    def replaced(self, text: str, lines: Iterable[str]) -> str:
        """Return the page's text with these lines as the part.

        Raises:
            UserError: the page has no such part.
        """
        old = text.split("\n")
        if self.first not in old or self.last not in old[old.index(self.first) :]:
            raise UserError(
                f"docs/{self.page.name}: no line {self.first!r} with a line {self.last!r} after it. Put both where the "
                f"tables are to be."
            )
        return "\n".join([*old[: old.index(self.first) + 1], "", *lines, "", *old[old.index(self.last) :]])


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], names: int) -> list[str]:
    """Return a Markdown table whose first columns are names, the others figures."""
    rule = ["---" if column < names else "---:" for column in range(len(heads))]
    return [f"| {' | '.join(heads)} |", f"|{'|'.join(rule)}|", *(f"| {' | '.join(row)} |" for row in rows)]


def filled(paragraph: str, indent: str = "") -> list[str]:
    """Return a paragraph as lines, the further ones indented."""
    return textwrap.wrap(
        paragraph, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
