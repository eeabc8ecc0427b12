"""Read pairs of sentences, one sentence per line, with strict UTF-8 and an error if lines cannot be paired."""

import codecs
import gzip
import hashlib
import logging
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal, get_args

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.lines import LinesBuilder
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.words import words
from seq2seq_lab.errors import UserError, did_you_mean, require

logger = logging.getLogger(__name__)

OnBadPair = Literal["error", "drop"]
SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)

EMPTY = "the sentence is empty"
_DROPS_IN_DETAIL = 3


def new_counts() -> Counter[str]:
    """Return counters, set to 0, of what reading a corpus changes or finds.

    - `byte_order_marks`, `carriage_returns`: removed from the start of a file and from the end of a line
    - `composed_lines`: converted to Unicode NFC, in which a letter and its accent are one character
    - `dropped_pairs`: could not be read
    - `pairs_over_max_tokens`: excluded because of their length
    - `duplicate_pairs`, `leaked_pairs`, `leaked_sources`: see `count_repeats`
    """
    changed = ("byte_order_marks", "carriage_returns", "composed_lines")
    removed = ("dropped_pairs", "pairs_over_max_tokens")
    return Counter(
        dict.fromkeys((*changed, *removed, "duplicate_pairs", "leaked_pairs", "leaked_sources"), 0)
    )


def describe_counts(counts: Mapping[str, int]) -> str:
    """Return the counts that are not 0 as text, without those of one split or class (`NAME/OF`); empty if there are none."""
    return ", ".join(
        f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count and "/" not in name
    )


def read_lines(path: Path, counts: Counter[str], show: bool = True) -> Iterator[tuple[str, str]]:
    r"""Yield (text, "") for each line of a plain or gzipped file, ("", problem) for a line that is not UTF-8.

    Only "\n" ends a line: U+2028, U+0085 and a lone "\r" are part of it. A byte order mark at the start of the file and
    the "\r" of "\r\n" are removed and counted; a line that is not in NFC is converted and counted. Shows a progress
    bar unless `show` is false. Raises `UserError` for a file that cannot be read, such as a truncated archive.
    """
    try:
        with path.open("rb") as file, gzip.open(file) if path.suffix == ".gz" else file as stream:
            size = path.stat().st_size
            raw_lines = progress(stream, f"Reading {path.name}", size, file.tell) if show else stream
            yield from decode_lines(raw_lines, counts)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(
            f"{path} cannot be read to its end: {error}. Replace the file with a complete copy."
        ) from error


def decode_lines(raw_lines: Iterable[bytes], counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield the same as `read_lines` for the lines of an open binary file."""
    # Text mode would not report the line of a wrong byte.
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
            yield compose(text, counts), ""


def compose(text: str, counts: Counter[str]) -> str:
    """Return a text in Unicode NFC, and count it if it was not."""
    if unicodedata.is_normalized("NFC", text):
        return text
    counts["composed_lines"] += 1
    return unicodedata.normalize("NFC", text)


def read_parallel(
    source: Path, target: Path, on_bad_pair: OnBadPair, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yield (source, target) for each line of two files of equal length, in bounded memory.

    A line that is not UTF-8, empty or white space makes a bad pair: see `usable_pairs`. Files of different length raise
    `UserError` when the shorter one ends: pairs yielded before that may be wrong.
    """
    return usable_pairs(_line_pairs(source, target, counts), f"{source} and {target}", on_bad_pair, counts)


def _line_pairs(source: Path, target: Path, counts: Counter[str]) -> Iterator[tuple[str, str, str]]:
    sources, targets = read_lines(source, counts), read_lines(target, counts, show=False)
    for number, (left, right) in enumerate(zip_longest(sources, targets), start=1):
        if left is None or right is None:
            shorter, longer = number - 1, number + sum(1 for _ in (targets if left is None else sources))
            lines = (shorter, longer) if left is None else (longer, shorter)
            raise UserError(
                f"{source} has {lines[0]} lines and {target} has {lines[1]}: the lines cannot "
                "be paired. Use two files of the same release, with the same number of lines."
            )
        problems = [
            f"{path} line {number}: {problem}"
            for path, (text, wrong) in ((source, left), (target, right))
            if (problem := wrong or find_problem(text))
        ]
        yield left[0], right[0], "; ".join(problems)


def one_line(text: str) -> str:
    """Replace the line breaks of a text by spaces. A model with a character tokenizer can generate line breaks."""
    return text.replace("\n", " ").replace("\r", " ")


def find_problem(value: object) -> str:
    """Return why a value cannot be a sentence, or an empty string."""
    if not isinstance(value, str):
        return f"{value!r} is not text"
    for character, name in (("\n", "a line break"), ("\r", "a carriage return"), ("\0", "the character NUL")):
        if character in value:
            return f"the sentence contains {name}"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return f"character {error.start + 1} is half a surrogate pair"
    visible = any(not letter.isspace() and unicodedata.category(letter) != "Cf" for letter in value)
    return "" if visible else EMPTY


def usable_pairs(
    candidates: Iterable[tuple[str, str, str]], name: str, on_bad_pair: OnBadPair, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yield (source, target) of each (source, target, problem) without a problem.

    The first problem raises `UserError`. With `on_bad_pair="drop"` the pair is dropped, counted and logged; the number of
    dropped pairs is logged at the end, under `name`.
    """
    dropped = total = 0
    for source, target, problem in candidates:
        total += 1
        if not problem:
            yield compose(source, counts), compose(target, counts)
            continue
        if on_bad_pair != "drop":
            raise UserError(f"{problem}. Correct the data, or drop such pairs with dataset.on_bad_pair=drop.")
        dropped += 1
        counts["dropped_pairs"] += 1
        # run.log contains all of them; the console shows a few.
        logger.warning("dropped pair: %s", problem, extra={"console": dropped <= _DROPS_IN_DETAIL})
    if dropped:
        logger.warning("%s: %d of %d pairs dropped (dataset.on_bad_pair=drop)", name, dropped, total)


def collect(pairs: Iterable[tuple[str, str]], limit: int | None) -> ParallelText:
    """Return the first `limit` pairs (None: all). All pairs are read, to check every line."""
    return divide(pairs, lambda _: "train", limit)["train"]


def divide(
    pairs: Iterable[tuple[str, str]], split_of: Callable[[str], SplitName], limit: int | None
) -> dict[SplitName, ParallelText]:
    """Return the pairs of each split, as `split_of(source)` chooses; `limit` keeps the first pairs of train."""
    builders = {split: (LinesBuilder(), LinesBuilder()) for split in SPLITS}
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
    """Return the split of a sentence, a function of its text alone."""
    # 48 bits are exact in a float: the number is always below 1.
    place = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48
    if place < validation_share:
        return "validation"
    return "test" if place < validation_share + test_share else "train"


def empty_split_error(empty: str, texts: Iterable[ParallelText], remedy: str) -> UserError:
    """Return the error for a split that no sentence was selected for; `remedy` is an alternative to larger shares."""
    return UserError(
        f"No pairs for {empty}: none of the {sum(map(len, texts)):,} pairs is in its share, which a hash of the sentence "
        "selects. Set larger shares, for example dataset.validation_share=0.1 dataset.test_share=0.1, or "
        f"{remedy}."
    )


def check_shares(validation_share: float, test_share: float) -> None:
    """Raise `UserError` for shares that leave no room for validation, test or train."""
    if not (validation_share > 0 and test_share > 0 and validation_share + test_share < 1):
        raise UserError(
            f"dataset.validation_share={validation_share}, dataset.test_share={test_share}: both must be above 0, and "
            "their sum below 1."
        )


def check_languages(source: str, target: str, allowed: Sequence[str]) -> None:
    """Raise `UserError` unless the languages of the two sides are allowed and differ."""
    for key, language in (("source", source), ("target", target)):
        if language not in allowed:
            raise UserError(
                f"dataset.{key}={language} is not a language of the data set.{did_you_mean(language, allowed)} "
                f"Values: {', '.join(allowed)}."
            )
    if source == target:
        raise UserError(
            f"dataset.source={source} and dataset.target={target} must differ: {', '.join(allowed)}."
        )


def drop_long_pairs(
    pairs: Iterable[tuple[str, str]], max_tokens: int | None, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yield the pairs with at most `max_tokens` tokens per side (None: all), and count the others.

    A token is a word of `words`: text between white space, and in scripts without spaces each letter.
    """
    for source, target in pairs:
        if max_tokens is not None and max(len(words(source)), len(words(target))) > max_tokens:
            counts["pairs_over_max_tokens"] += 1
        else:
            yield source, target


def check_positive(key: str, value: int | None) -> None:
    """Raise `UserError` for a number below 1; None means unbounded."""
    require(value is None or value >= 1, key, value, "1 or more, or null for no bound")


def list_folder(folder: Path) -> str:
    """Return the names of the first files in a folder, for an error message."""
    if not folder.is_dir():
        return f"folder {folder} not found"
    names = sorted(entry.name for entry in folder.iterdir())
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"{folder} contains {', '.join(names[:12]) or 'nothing'}{more}"


def find_file(key: str, value: str) -> Path:
    """Return the path of the file that a configuration key names. Raises `UserError` if it does not exist."""
    path = Path(value).expanduser()
    if not path.is_file():
        folder = path if path.is_dir() else path.parent
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        raise UserError(
            f"{key}={value}: file {path} not found; {list_folder(folder)}.{did_you_mean(path.name, names)} Give the "
            "path of a file, plain or .gz."
        )
    return path
