"""Weights as shades of text, for terminals."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.text import Text

from seq2seq_lab.errors import visible_line
from seq2seq_lab.runtime.console import console
from seq2seq_lab.runtime.direction import (
    direction_of_words,
    isolate,
    visual_order,
)

SHADES = ((0.8, "█"), (0.5, "▓"), (0.25, "▒"), (0.05, "░"), (0.0, "·"))  # by the smallest weight of a shade
LONGEST_WORD = 30  # columns
LAST = 3  # characters of a long word that stay at its end, which may be a mark of an unknown word
LEGEND = (0.0, 0.25, 0.5, 0.75, 1.0)  # the weights whose shades pictures and pages explain


@dataclass(frozen=True, slots=True)
class ShadedText:
    """A text with weights from 0 to 1.

    Attributes:
        words: its words or other tokens.
        weights: a weight per word.
        caption: a short text about it, for example the predicted class.
        marked: the numbers of words to mark.
    """

    words: Sequence[str]
    weights: Sequence[float]
    caption: str
    marked: Sequence[int]


def shade(weight: float, word: str) -> str:
    """Return the shade of a weight in the width of a word; a higher weight is darker, and NaN is a question mark."""
    return next((shade for least, shade in SHADES if weight >= least), "?") * cell_len(word)


def shown_word(word: str) -> str:
    """Return a word with control characters as escapes; of a long one the middle is cut out."""
    text = visible_line(word)
    if cell_len(text) <= LONGEST_WORD:
        return text
    last = text[-LAST:]
    return f"{set_cell_size(text, LONGEST_WORD - 1 - cell_len(last))}…{last}"


def legend(scale: str) -> str:
    """Return a line that explains the shades: `scale` is what the weights are."""
    least = ", ".join(f"{shade} from {least:g}" for least, shade in reversed(SHADES))
    return f"  {scale}: {least}"


def shade_texts(texts: Sequence[ShadedText]) -> list[str]:
    """Return lines of texts with the shade of each word below it, and their captions.

    The words of a text from right to left are placed from the right.
    """
    lines: list[str] = []
    for text in texts:
        lines += [*shade_words(text.words, text.weights), f"  → {isolate(visible_line(text.caption))}"]
    return lines


def shade_words(words: Sequence[str], weights: Sequence[float]) -> list[str]:
    """Return lines of words that fit the terminal, each with a line of their shades below it."""
    of_text, lines = direction_of_words(words), []
    words = [shown_word(word) for word in words]
    for line in _lines_of(words):
        placed = [line[i] for i in visual_order([words[i] for i in line], of_text)]
        row = " ".join(isolate(words[i]) for i in placed)
        margin = " " * (console().width - cell_len(row)) if of_text == "rtl" else ""
        lines += [margin + row, margin + " ".join(shade(weights[i], words[i]) for i in placed)]
    return lines


def _lines_of(words: Sequence[str]) -> list[list[int]]:
    """Return the indices of words in lines of at most the width of the terminal, or of one word."""
    lines: list[list[int]] = [[]]
    width = 0
    for index, word in enumerate(words):
        if lines[-1] and width + cell_len(word) > console().width:
            lines.append([])
            width = 0
        lines[-1].append(index)
        width += cell_len(word) + 1
    return lines


def text_lines(lines: Sequence[str]) -> Group:
    """Return lines of text, in which nothing is markup and whose parts have been made `visible`."""
    return Group(*map(Text, lines))


def shade_matrix(
    columns: Sequence[str],
    rows: Sequence[str],
    weights: Iterable[Iterable[float]],
    marked: Collection[tuple[int, int]] = (),
) -> list[str]:
    """Return the lines of a matrix of weights from 0 to 1, as shades as wide as the words above them.

    A matrix that is wider than the terminal is shown in blocks of columns, one below the other. The first column is at
    the right if the columns are a text from right to left.

    Args:
        weights: a row of weights per word of `rows`.
        marked: the (column, row) cells to put in brackets.
    """
    heads, names = [shown_word(word) for word in columns], [shown_word(word) for word in rows]
    order = slice(None, None, -1 if direction_of_words(columns) == "rtl" else 1)
    left, lines = max(map(cell_len, names), default=0), []
    weights_RC = [[*row] for row in weights]
    for block in _blocks([cell_len(word) + 2 for word in heads], console().width - left):
        lines.append(" " * left + "".join([f" {isolate(heads[column])} " for column in block][order]))
        for row, (name, weights_C) in enumerate(zip(names, weights_RC, strict=True)):
            cells = []
            for column in block:
                before, after = "[]" if (column, row) in marked else "  "
                cells.append(f"{before}{shade(weights_C[column], heads[column])}{after}")
            lines.append(" " * (left - cell_len(name)) + isolate(name) + "".join(cells[order]))
    return [line.rstrip() for line in lines]


def _blocks(widths: Sequence[int], width: int) -> Iterator[range]:
    """Yield consecutive columns that fit into a width together, or one column."""
    start = used = 0
    for column, own in enumerate(widths):
        if column > start and used + own > width:
            yield range(start, column)
            start, used = column, 0
        used += own
    if widths:
        yield range(start, len(widths))
