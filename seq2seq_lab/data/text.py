"""Reading pairs of lines: strict UTF-8, one sentence a line, never a line shifted."""

import codecs
import gzip
import logging
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Literal

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.errors import UserError

logger = logging.getLogger(__name__)

OnBadPair = Literal["error", "drop"]

_DROPS_IN_DETAIL = 3


def new_counts() -> Counter[str]:
    """Return the counts of what reading does to a corpus, each at 0.

    `byte_order_marks` and `carriage_returns` were removed, from the start of a file and the end of a line;
    `dropped_pairs` could not be read; `duplicate_pairs` repeat an earlier pair of their split, and
    `leaked_pairs` of validation and test are training pairs (see `count_repeats`; both kinds are kept).
    """
    names = ("byte_order_marks", "carriage_returns", "dropped_pairs", "duplicate_pairs", "leaked_pairs")
    return Counter(dict.fromkeys(names, 0))


def read_lines(path: Path, counts: Counter[str]) -> Iterator[tuple[str, str]]:
    r"""Yield (text, "") for each line of a plain or gzipped file, ("", problem) for one that is not UTF-8.

    Only "\n" ends a line: U+2028, U+0085, a lone "\r" and their like stay inside it. A byte order mark at the
    start of the file and the "\r" of a "\r\n" are removed and counted. Raises `UserError` for a file that
    cannot be read, a truncated archive for one.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            # Binary lines end at b"\n" alone; text mode would leave that to the newline argument and could
            # not say which line a wrong byte is in.
            for number, raw in enumerate(stream, start=1):
                if number == 1 and raw.startswith(codecs.BOM_UTF8):
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                    counts["byte_order_marks"] += 1
                if raw.endswith(b"\r\n"):
                    raw = raw[:-2]
                    counts["carriage_returns"] += 1
                try:
                    text = raw.removesuffix(b"\n").decode()
                except UnicodeDecodeError as error:
                    yield "", f"byte {error.start + 1} is not UTF-8 ({error.reason})"
                else:
                    yield text, ""
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read to its end: {error}. Replace it by a whole copy.") from error


def read_parallel(
    source: Path, target: Path, on_bad_pair: OnBadPair, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yield (source, target) for each line of two files of equal length, in bounded memory.

    A line that is not UTF-8, or empty but for white space, makes a bad pair: a `UserError` that names file
    and line, or with `on_bad_pair="drop"` a logged drop, counted once whichever sides are bad. Files of
    different length raise `UserError` when the shorter one ends: pairs yielded before that may be wrong.
    """
    return usable_pairs(_line_pairs(source, target, counts), f"{source} and {target}", on_bad_pair, counts)


def _line_pairs(source: Path, target: Path, counts: Counter[str]) -> Iterator[tuple[str, str, str]]:
    sources, targets = read_lines(source, counts), read_lines(target, counts)
    for number, (left, right) in enumerate(zip_longest(sources, targets), start=1):
        if left is None or right is None:
            shorter, longer = number - 1, number + sum(1 for _ in (targets if left is None else sources))
            lines = (shorter, longer) if left is None else (longer, shorter)
            raise UserError(
                f"{source} has {lines[0]} lines and {target} has {lines[1]}: which lines belong together is "
                "lost. Get both files from the same release, with as many lines each."
            )
        problems = [
            f"{path} line {number}: {problem}"
            for path, (text, fault) in ((source, left), (target, right))
            if (problem := fault or empty(text))
        ]
        yield left[0], right[0], "; ".join(problems)


def read_columns(path: Path, on_bad_pair: OnBadPair, counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield the first two columns of a tab-separated file, in bounded memory; a third column is ignored.

    Quotation marks mean nothing. Lines with any other number of columns are bad pairs, besides those of
    `read_parallel`, and go the same way.
    """
    return usable_pairs(_column_pairs(path, counts), str(path), on_bad_pair, counts)


def _column_pairs(path: Path, counts: Counter[str]) -> Iterator[tuple[str, str, str]]:
    for number, (text, fault) in enumerate(read_lines(path, counts), start=1):
        columns = text.split("\t")
        if fault or not 2 <= len(columns) <= 3:
            problem = fault or empty(text) or f"{len(columns)} tab-separated columns, not 2 or 3"
            yield "", "", f"{path} line {number}: {problem}"
            continue
        problems = [
            f"{path} line {number} column {column}: {problem}"
            for column, side in enumerate(columns[:2], start=1)
            if (problem := empty(side))
        ]
        yield columns[0], columns[1], "; ".join(problems)


def empty(text: str) -> str:
    """Return what is wrong with a sentence of nothing but white space, or an empty string."""
    return "" if text.strip() else "the sentence is empty"


def usable_pairs(
    candidates: Iterable[tuple[str, str, str]], name: str, on_bad_pair: OnBadPair, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yield (source, target) of each (source, target, problem) without a problem.

    The first problem raises `UserError`; with `on_bad_pair="drop"` the pair is dropped and counted, the first
    few are logged in full, and at the end their number, under `name`.
    """
    dropped = total = 0
    for source, target, problem in candidates:
        total += 1
        if not problem:
            yield source, target
            continue
        if on_bad_pair != "drop":
            raise UserError(f"{problem}. Mend the data, or drop such pairs with dataset.on_bad_pair=drop.")
        dropped += 1
        counts["dropped_pairs"] += 1
        # Every one stands in run.log; the console shows a few.
        logger.warning("dropped pair: %s", problem, extra={"on_console": dropped > _DROPS_IN_DETAIL})
    if dropped:
        logger.warning("%s: %d of %d pairs dropped (dataset.on_bad_pair=drop)", name, dropped, total)


def collect(pairs: Iterable[tuple[str, str]], limit: int | None) -> ParallelText:
    """Return the first `limit` pairs (null: all), having read on to the end so that every line is checked."""
    remaining = iter(pairs)
    source, target = [], []
    for left, right in islice(remaining, limit):
        source.append(left)
        target.append(right)
    for _ in remaining:
        pass
    return ParallelText(source, target)


def count_repeats(train: ParallelText, held_out: Iterable[ParallelText], counts: Counter[str]) -> None:
    """Count, and keep, pairs that repeat an earlier pair of their split and held-out pairs seen in training.

    Duplicates are exact. A leak is a pair that equals a training pair after NFC, case folding and the
    collapsing of white space, so exact ones are among them.
    """
    known = {_normalised(pair) for pair in zip(train.source, train.target, strict=True)}
    counts["duplicate_pairs"] += _duplicates(train)
    for split in held_out:
        counts["duplicate_pairs"] += _duplicates(split)
        pairs = zip(split.source, split.target, strict=True)
        counts["leaked_pairs"] += sum(_normalised(pair) in known for pair in pairs)


def _duplicates(split: ParallelText) -> int:
    return len(split) - len(set(zip(split.source, split.target, strict=True)))


def _normalised(pair: tuple[str, str]) -> tuple[str, ...]:
    return tuple(" ".join(unicodedata.normalize("NFC", text).casefold().split()) for text in pair)


def check_positive(key: str, value: int | None) -> None:
    """Raise `UserError` for a number below 1; null stands for no bound."""
    if value is not None and value < 1:
        raise UserError(f"{key}={value}: it has to be at least 1, or null for no bound.")


def listing(folder: Path) -> str:
    """Return the names of the first files of a folder, for a message to the user."""
    if not folder.is_dir():
        return f"there is no folder {folder}"
    names = sorted(entry.name for entry in folder.iterdir())
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"{folder} holds {', '.join(names[:12]) or 'nothing'}{more}"
