"""The direction of text in scripts that are written from right to left (Unicode Standard Annex 9, UAX 9).

Terminals, browsers and Matplotlib order the letters of a text. These functions handle what they cannot know: where a text
ends inside a line of a table, and the order of words that are placed one by one.
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["ltr", "rtl"]

_STARTS = {"ltr": "\u2066", "rtl": "\u2067"}  # left-to-right isolate, right-to-left isolate
_END = "\u2069"  # pop directional isolate
_ISOLATE = re.compile("[\u2066-\u2068][^\u2066-\u2069]*\u2069")
_DIRECTIONS: dict[str, Direction] = {"L": "ltr", "R": "rtl", "AL": "rtl"}
_SPECIAL = re.compile(r"<\w+>")  # such as <sos>


def direction(text: str) -> Direction | None:
    """Return the direction of a text: that of its first letter outside isolates (UAX 9, P2, P3); None without a letter."""
    kinds = map(unicodedata.bidirectional, _ISOLATE.sub("", text))
    return next((_DIRECTIONS[kind] for kind in kinds if kind in _DIRECTIONS), None)


def has_right_to_left(text: str) -> bool:
    """Return whether a text has a letter or a digit of a script that is written from right to left."""
    return not text.isascii() and any(unicodedata.bidirectional(one) in ("R", "AL", "AN") for one in text)


def direction_of_words(words: Sequence[str]) -> Direction:
    """Return the direction of most words; special tokens such as `<sos>` are not counted."""
    found = [direction(word) for word in words if not _SPECIAL.fullmatch(word)]
    return "rtl" if found.count("rtl") > found.count("ltr") else "ltr"


def isolate(text: str, of_text: Direction | None = None) -> str:
    """Return a text between controls that keep its order apart from that of its line; a text from left to right as it is.

    Args:
        of_text: its direction; None for that of its first letter.
    """
    if not has_right_to_left(text):
        return text
    return f"{_STARTS[of_text or direction(text) or 'ltr']}{text}{_END}"


def arrow(before: str, after: str) -> str:
    """Return two texts in one line with an arrow to the second, which is at the left if the line is from right to left."""
    symbol = "←" if direction(f"{before} {after}") == "rtl" else "→"
    return f"{before} {symbol} {after}"


def visual_order(words: Sequence[str], of_text: Direction) -> list[int]:
    """Return the indices of the words of a line from left to right.

    A number has the direction of the word before it (UAX 9, W7); a word without letters and digits that of both neighbors if
    they have the same direction, otherwise that of the text (N1, N2).

    Args:
        of_text: the direction of the text that the line is from.
    """
    known: list[Direction | None] = []
    for word in words:
        number = any(map(str.isdigit, word))
        known.append(direction(word) or ((known[-1] if known else None) or of_text if number else None))
    resolved: list[Direction] = []
    for position, one in enumerate(known):
        before = resolved[-1] if resolved else of_text
        after = next(filter(None, known[position:]), of_text)
        resolved.append(one or (before if before == after else of_text))
    runs = [(key, [*run]) for key, run in groupby(range(len(words)), resolved.__getitem__)]
    ordered = [run if key == "ltr" else run[::-1] for key, run in runs]
    return [index for run in (ordered if of_text == "ltr" else ordered[::-1]) for index in run]
