"""Tables of texts that fit the width of the terminal."""

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from seq2seq_lab.errors import visible_line
from seq2seq_lab.runtime.console import Cell, console, literal, wide_console

EDGE, BORDER = 1, 3  # columns of the left edge of a table, and of a cell's margins and right border
LONGEST_PIECE = 24  # columns of a piece of a word that is not broken if columns of the table can be left out
READABLE = 16  # columns of a text that is wrapped, before columns of the table are left out
_SPACES = re.compile(r"(?<!±) (?!±)")  # where a text may be wrapped
_PIECES = re.compile(r"\S+?[/=,:_.-]+(?=\w)|\S+")  # of a word that is wider than its column


@dataclass(frozen=True)
class FittedTable:
    """A table that is as wide as its texts, and not wider than the console.

    Texts are wrapped between words, and a word that is wider than its column after punctuation. If the table is still too
    wide, columns of `optional` are omitted, in this order, and named below it. Then the columns of numbers are divided into
    blocks, one below the other, each with the columns of texts.

    Attributes:
        title: shown above it.
        heads: the names of the columns.
        sections: rows of texts, with a line between two sections.
        numeric: number of columns, counted from the right, that are right-aligned and whose texts are not wrapped.
        optional: heads of columns to leave out.
        rest: where the user finds these columns.
    """

    title: str
    heads: Sequence[str]
    sections: Sequence[Sequence[Sequence[str]]]
    numeric: int
    optional: Sequence[str] = ()
    rest: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table | Text]:
        shown, omitted = [*range(len(self.heads))], []
        for head in self.optional:
            if self._least_width(shown) > options.max_width:
                shown.remove(self.heads.index(head))
                omitted.append(head)
        for index, block in enumerate(self._blocks(shown, options.max_width)):
            yield self._table(block, options.max_width, self.title if index == 0 else None)
        if omitted:
            yield Text(f"Not shown: {', '.join(omitted)}. {self.rest}")

    @property
    def natural_width(self) -> int:
        """The width of the table if nothing is wrapped."""
        return _total(map(self._natural, range(len(self.heads))))

    def _texts(self, column: int) -> list[str]:
        return [visible_line(row[column]) for rows in self.sections for row in rows]

    def _is_number(self, column: int) -> bool:
        return column >= len(self.heads) - self.numeric

    def _natural(self, column: int) -> int:
        return max(map(cell_len, (visible_line(self.heads[column]), *self._texts(column))))

    def _least(self, column: int) -> int:
        """Return the width at which a column is still readable: words of its head, and its numbers, stay whole."""
        words = _SPACES.split(visible_line(self.heads[column]))
        if self._is_number(column):
            return max(map(cell_len, ("", *words, *self._texts(column))))
        pieces = [piece for text in (*words, *self._texts(column)) for piece in _PIECES.findall(text)]
        longest = min(LONGEST_PIECE, max(map(cell_len, ("", *pieces))))
        return min(self._natural(column), max(READABLE, longest))

    def _least_width(self, columns: Iterable[int]) -> int:
        return _total(map(self._least, columns))

    def _blocks(self, columns: Sequence[int], width: int) -> Iterator[list[int]]:
        """Yield the columns of each block: the columns of texts, and one or more columns of numbers."""
        texts = [column for column in columns if not self._is_number(column)]
        block = [*texts]
        for column in columns[len(texts) :]:
            if len(block) > len(texts) and self._least_width([*block, column]) > width:
                yield block
                block = [*texts]
            block.append(column)
        yield block

    def _table(self, columns: Sequence[int], width: int, title: str | None) -> Table:
        widths = self._widths(columns, width)
        table = Table(title=title, title_justify="left")
        for column, own in zip(columns, widths, strict=True):
            justify: Literal["left", "right"] = "right" if self._is_number(column) else "left"
            table.add_column(_cell(self.heads[column], own), justify=justify, overflow="fold", width=own)
        for rows in self.sections:
            for row in rows:
                table.add_row(*(_cell(row[column], own) for column, own in zip(columns, widths, strict=True)))
            table.add_section()
        return table

    def _widths(self, columns: Sequence[int], width: int) -> list[int]:
        """Return the widths of columns in a table that fits: texts are narrowed before numbers, the widest first."""
        widths = [self._natural(column) for column in columns]
        least = [self._least(column) for column in columns]
        numbers = [own if self._is_number(column) else 1 for column, own in zip(columns, least, strict=True)]
        for limits in (least, numbers, [1] * len(columns)):
            wide = [index for index, limit in enumerate(limits) if widths[index] > limit]
            while wide and _total(widths) > width:
                widths[max(wide, key=widths.__getitem__)] -= 1
                wide = [index for index in wide if widths[index] > limits[index]]
        return widths


def _total(widths: Iterable[int]) -> int:
    return EDGE + sum(BORDER + width for width in widths)


def _cell(text: str, width: int) -> Text:
    """Return the text of a cell, in which words wider than its column are broken after punctuation."""
    lines = [""]
    for word in _SPACES.split(visible_line(text)):
        pieces = [word] if cell_len(word) <= width else _PIECES.findall(word)
        for index, piece in enumerate(pieces):
            space = " " if index == 0 and lines[-1] else ""
            if lines[-1] and cell_len(lines[-1] + space + piece) > width:
                lines.append(piece)
            else:
                lines[-1] += space + piece
    return Cell("\n".join(lines))


@dataclass(frozen=True)
class TextTable:
    """A table of texts, which the terminal and pages show.

    Attributes:
        title: shown above it.
        heads: the names of the columns.
        rows: a text per column.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __rich__(self) -> FittedTable:
        return sectioned_table(self.title, self.heads, [self.rows])


def sectioned_table(
    title: str, heads: Sequence[str], sections: Sequence[Sequence[Sequence[str]]]
) -> FittedTable:
    """Return a table of texts in sections, whose columns but the first are right-aligned."""
    return FittedTable(title, heads, sections, len(heads) - 1)


def parameter_table(rows: Sequence[tuple[str, int, int]]) -> FittedTable:
    """Return a table of (component, parameters, trainable parameters) with a row of totals.

    Count a tensor that two components share in one of them only.
    """
    total = ("total", sum(row[1] for row in rows), sum(row[2] for row in rows))
    sections = [
        [[name, f"{count:,}", f"{trained:,}"] for name, count, trained in part] for part in (rows, [total])
    ]
    return sectioned_table("parameters", ["component", "parameters", "trainable"], sections)


def records_table(title: str, records: Sequence[Mapping[str, str]]) -> Table:
    """Return a table of records, each a section with a row per field: its name and its text."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for record in records:
        for name, text in record.items():
            table.add_row(literal(name), literal(text))
        table.add_section()
    return table


def time_table(title: str, what: str, rows: Sequence[tuple[str, float, float]]) -> FittedTable:
    """Return a table of (name, milliseconds, share from 0 to 1)."""
    texts = [[name, f"{milliseconds:.2f}", f"{share:.1%}"] for name, milliseconds, share in rows]
    return sectioned_table(title, [what, "ms", "share"], [texts])


def print_table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: int,
    *,
    optional: Sequence[str] = (),
    rest: str = "",
) -> None:
    """Print a table that fits the terminal; elsewhere, such as in a pipe, as wide as its texts. See `FittedTable`."""
    table = FittedTable(title, heads, [rows], numeric, optional, rest)
    if console().is_interactive:
        console().print(table)
    else:
        wide_console(table.natural_width).print(table)


def mean_and_deviation(values: Sequence[float], form: str) -> str:
    """Return "mean ± sample standard deviation", or the value alone if all values are equal."""
    if not values:
        return "–"
    if len(set(values)) == 1:
        return f"{values[0]:{form}}"
    return with_interval(statistics.mean(values), statistics.stdev(values), form)


def with_interval(value: float, half: float | None, form: str) -> str:
    """Format a value and half the width of its interval, if it has one."""
    return format(value, form) if half is None else f"{value:{form}} ± {half:{form.removeprefix('+')}}"


def with_spread(head: str, word: str, texts: Sequence[str]) -> str:
    """Return the head of a column; if a text has a "±", with the word for what follows it, such as "BLEU ± std"."""
    return f"{head} ± {word}" if any("±" in text for text in texts) else head
