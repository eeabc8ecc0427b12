"""Generated parts of the pages in docs/: Markdown tables and paragraphs, and where they go."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seq2seq_lab.errors import UserError
from seq2seq_lab.files import write_atomically

WIDTH = 120
NOT_RECORDED = "No run of this table is recorded."


def with_parts(text: str, parts: Mapping[str, Sequence[str]]) -> str:
    """Replace the parts of a page, each between `<!-- NAME: … -->` and `<!-- end of NAME -->`.

    Raises:
        UserError: the page does not have one of the parts.
    """
    for name, lines in parts.items():
        pattern = rf"(<!-- {re.escape(name)}: [^\n]* -->\n).*?(<!-- end of {re.escape(name)} -->)"
        found = re.search(pattern, text, re.DOTALL)
        if found is None:
            raise UserError(
                f"No <!-- {name}: … --> followed by <!-- end of {name} --> in the page. Add both lines where the tables "
                f"belong."
            )
        middle = "\n".join(["", *lines, "", ""])
        text = text[: found.end(1)] + middle + text[found.start(2) :]
    return text


def update(pages: Mapping[Path, Mapping[str, Sequence[str]]]) -> None:
    """Write the generated parts into the pages."""
    for page, parts in pages.items():
        write_atomically(page, with_parts(page.read_text("utf-8"), parts))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], names: int) -> list[str]:
    """Return a Markdown table whose first `names` columns are left-aligned, the others right-aligned."""
    rule = ["---" if column < names else "---:" for column in range(len(heads))]
    return [f"| {' | '.join(heads)} |", f"|{'|'.join(rule)}|", *(f"| {' | '.join(row)} |" for row in rows)]


def filled(paragraph: str, indent: str = "") -> list[str]:
    """Wrap a paragraph; further lines are indented."""
    return textwrap.wrap(
        paragraph, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
