"""Reading pairs of lines: strict UTF-8, one sentence a line, never a line shifted."""

import codecs
import gzip
import hashlib
import logging
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.lines import LinesBuilder
from seq2seq_lab.data.progress import progress
from seq2seq_lab.errors import UserError

logger = logging.getLogger(__name__)

OnBadPair = Literal["error", "drop"]
SplitName = Literal["train", "validation", "test"]

_DROPS_IN_DETAIL = 3
ROUND_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4)


def new_counts() -> Counter[str]:
    """Return the counts of what reading does to a corpus, each at 0.

    `byte_order_marks` and `carriage_returns` were removed, from the start of a file and the end of a line;
    `dropped_pairs` could not be read, `pairs_over_max_tokens` were left out for their length. Kept, unless
    the data set says otherwise: `duplicate_pairs` repeat an earlier pair of their split; `leaked_pairs` of
    validation and test are training pairs, and of `leaked_sources` the source side at least is one's (see
    `count_repeats`).
    """
    names = (
        "byte_order_marks",
        "carriage_returns",
        "dropped_pairs",
        "pairs_over_max_tokens",
        "duplicate_pairs",
        "leaked_pairs",
        "leaked_sources",
    )
    return Counter(dict.fromkeys(names, 0))


def read_lines(path: Path, counts: Counter[str], show: bool = True) -> Iterator[tuple[str, str]]:
    r"""Yield (text, "") for each line of a plain or gzipped file, ("", problem) for one that is not UTF-8.

    Only "\n" ends a line: U+2028, U+0085, a lone "\r" and their like stay inside it. A byte order mark at the
    start of the file and the "\r" of a "\r\n" are removed and counted. Raises `UserError` for a file that
    cannot be read, a truncated archive for one. A bar says how far it is, unless `show` is false.
    """
    try:
        with path.open("rb") as file, gzip.open(file) if path.suffix == ".gz" else file as stream:
            size = path.stat().st_size
            raw_lines = progress(stream, f"Reading {path.name}", size, file.tell) if show else stream
            yield from decode_lines(raw_lines, counts)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read to its end: {error}. Replace it by a whole copy.") from error


def decode_lines(raw_lines: Iterable[bytes], counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield what `read_lines` does for the lines of a binary file that is open."""
    # Binary lines end at b"\n" alone; text mode would leave that to the newline argument and could not say
    # which line a wrong byte is in.
    for number, raw in enumerate(raw_lines, start=1):
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
    sources, targets = read_lines(source, counts), read_lines(target, counts, show=False)
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
            for path, (text, wrong) in ((source, left), (target, right))
            if (problem := wrong or empty(text))
        ]
        yield left[0], right[0], "; ".join(problems)


def empty(text: str) -> str:
    """Return what is wrong with a sentence of nothing but white space, or an empty string."""
    return "" if text.strip() else "the sentence is empty"


def fault(value: object) -> str:
    """Return what is wrong with a value that is to be a sentence, or an empty string."""
    if not isinstance(value, str):
        return f"{value!r} is no text"
    if "\n" in value:
        return "the sentence holds a line break"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return f"character {error.start + 1} is half a surrogate pair"
    return empty(value)


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
        logger.warning("dropped pair: %s", problem, extra={"console": dropped <= _DROPS_IN_DETAIL})
    if dropped:
        logger.warning("%s: %d of %d pairs dropped (dataset.on_bad_pair=drop)", name, dropped, total)


def collect(pairs: Iterable[tuple[str, str]], limit: int | None) -> ParallelText:
    """Return the first `limit` pairs (null: all), having read on to the end so that every line is checked."""
    return divide(pairs, lambda _: "train", limit)["train"]


def divide(
    pairs: Iterable[tuple[str, str]], split_of: Callable[[str], SplitName], limit: int | None
) -> dict[SplitName, ParallelText]:
    """Return the pairs of each split, `split_of(source)` saying which; `limit` keeps the first of train."""
    builders: dict[SplitName, tuple[LinesBuilder, LinesBuilder]] = {
        "train": (LinesBuilder(), LinesBuilder()),
        "validation": (LinesBuilder(), LinesBuilder()),
        "test": (LinesBuilder(), LinesBuilder()),
    }
    for left, right in pairs:
        split = split_of(left)
        source, target = builders[split]
        if split != "train" or limit is None or len(source) < limit:
            source.append(left)
            target.append(right)
    return {
        split: ParallelText(source.build(), target.build()) for split, (source, target) in builders.items()
    }


def split_by_hash(text: str, validation_share: float, test_share: float) -> SplitName:
    """Return the split of a sentence: a function of its text alone, so that it never changes sides."""
    place = place_of(text)
    if place < validation_share:
        return "validation"
    return "test" if place < validation_share + test_share else "train"


def place_of(text: str) -> float:
    """Return a number in [0, 1) that is a hash of the sentence's text."""
    # 48 bits divide exactly in a float, so that the place is always below 1.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def shares_that_fill(sources: Iterable[str]) -> tuple[float, float] | None:
    """Return shares for validation and test with which `split_by_hash` gives each split some of these sources.

    They are the smallest round shares that give each about 20 sources, or a twentieth of a small corpus. If the corpus is
    too small for round shares, validation and test get one source each. None for fewer than three sources.
    """
    places = sorted({place_of(text) for text in sources})
    wanted = max(1, min(20, len(places) // 20))
    for share in ROUND_SHARES:
        held_out = [sum(low <= place < low + share for place in places) for low in (0, share)]
        if min(held_out) >= wanted and sum(held_out) < len(places):
            return share, share
    if len(places) < 3:
        return None
    validation = _between(places[0], places[1])
    return validation, _between(places[1] - validation, places[2] - validation)


def _between(low: float, high: float) -> float:
    """Return the number with the fewest decimals strictly between two numbers."""
    rounded = (round((low + high) / 2, decimals) for decimals in range(1, 16))
    return next(number for number in rounded if low < number < high)


def empty_split(empty: str, texts: Iterable[ParallelText], remedy: str) -> UserError:
    """Return the error of a split that its share leaves empty.

    Args:
        texts: of all the splits, `source` being the side whose hash decides.
        remedy: what the user can do besides other shares.
    """
    texts = list(texts)
    count = sum(map(len, texts))
    shares = shares_that_fill(line for text in texts for line in text.source)
    if shares is None:
        return UserError(
            f"No pairs for {empty}: {count:,} pairs are too few for three splits. Please {remedy}"
        )
    return UserError(
        f"No pairs for {empty}: of {count:,} pairs none is in its share, which is selected by a hash of the sentence. Set "
        f"dataset.validation_share={shares[0]} dataset.test_share={shares[1]}, or {remedy}"
    )


def check_shares(validation_share: float, test_share: float) -> None:
    """Raise `UserError` for shares that leave validation, test or train without any place."""
    if not (validation_share > 0 and test_share > 0 and validation_share + test_share < 1):
        raise UserError(
            f"dataset.validation_share={validation_share}, dataset.test_share={test_share}: "
            "both have to be above 0, and together below 1."
        )


def within(
    pairs: Iterable[tuple[str, str]], max_tokens: int | None, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of at most `max_tokens` (null: any number of) tokens a side, counting the others.

    Tokens stand between white space; no-break spaces are white space.
    """
    for source, target in pairs:
        if max_tokens is not None and max(len(source.split()), len(target.split())) > max_tokens:
            counts["pairs_over_max_tokens"] += 1
        else:
            yield source, target


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
