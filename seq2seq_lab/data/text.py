"""Read pairs of sentences, one sentence per line, with strict UTF-8 and an error if lines cannot be paired."""

import hashlib
import logging
import math
import reprlib
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal, TypeVar, get_args

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.lines import LinesBuilder
from seq2seq_lab.data.local_files import compose, read_lines
from seq2seq_lab.data.words import words
from seq2seq_lab.errors import UserError

logger = logging.getLogger(__name__)

OnBadPair = Literal["error", "drop"]
SplitName = Literal["train", "validation", "test"]
Item = TypeVar("Item")
SPLITS: tuple[SplitName, ...] = get_args(SplitName)

EMPTY = "the sentence is empty"
EMPTY_LINE = "the line is empty"
FEW_EXAMPLES = 50
"""A held-out split with fewer examples is too small for scores."""
_DROPS_IN_DETAIL = 3  # bad pairs that the console shows
_DROPS_IN_LOG = 1_000  # bad pairs that run.log contains


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


def count_dropped(counts: Mapping[str, int]) -> int:
    """Return the number of pairs that were read, or could not be, and were left out."""
    return counts["dropped_pairs"] + counts["pairs_over_max_tokens"]


def describe_counts(counts: Mapping[str, int]) -> str:
    """Return the counts that are not 0 as text, without those of one split or class (`NAME/OF`); empty if there are none."""
    return ", ".join(
        f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count and "/" not in name
    )


def read_parallel(
    source: Path, target: Path, on_bad_pair: OnBadPair, counts: Counter[str], encoding: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (source, target) for each line of two files of equal length, in bounded memory.

    A line that is not UTF-8, empty or white space makes a bad pair: see `usable_pairs`. Files of different length raise
    `UserError` when the shorter one ends: pairs yielded before that may be wrong.
    """
    pairs = _line_pairs(source, target, counts, encoding)
    return usable_pairs(pairs, f"{source} and {target}", on_bad_pair, counts)


def _line_pairs(
    source: Path, target: Path, counts: Counter[str], encoding: str | None
) -> Iterator[tuple[str, str, str]]:
    sources = read_lines(source, counts, encoding=encoding)
    targets = read_lines(target, counts, show=False, encoding=encoding)
    for line_number, (left, right) in enumerate(zip_longest(sources, targets), start=1):
        if left is None or right is None:
            shorter, longer = (
                line_number - 1,
                line_number + sum(1 for _ in (targets if left is None else sources)),
            )
            lines = (shorter, longer) if left is None else (longer, shorter)
            raise UserError(
                f"{source} has {lines[0]} lines and {target} has {lines[1]}: the lines cannot "
                "be paired. Use two files of the same release, with the same number of lines."
            )
        problems = [
            f"{path} line {line_number}: {problem}"
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
        return f"{reprlib.repr(value)} is not text"
    for character, name in (("\n", "a line break"), ("\r", "a carriage return"), ("\0", "the character NUL")):
        if character in value:
            return f"the sentence contains {name}"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return f"character {error.start + 1} is half a surrogate pair"
    visible = any(not letter.isspace() and unicodedata.category(letter) != "Cf" for letter in value)
    return "" if visible else EMPTY


def find_line_problem(line: str) -> str:
    """As `find_problem` for a whole line, which is called empty if it is blank."""
    return find_problem(line) if line.strip() else EMPTY_LINE


def malformed(line: str, form: str) -> str:
    """Return what is wrong with a line that is not in the right form."""
    return f"{line!r:.80} is not {form}" if line.strip() else EMPTY_LINE


def usable_pairs(
    candidates: Iterable[tuple[str, str, str]], name: str, on_bad_pair: OnBadPair, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yield (source, target), in Unicode NFC, of each (source, target, problem) without a problem; see `usable`."""
    pairs = (((source, target), problem) for source, target, problem in candidates)
    for source, target in usable(pairs, name, on_bad_pair, counts):
        yield compose(source, counts), compose(target, counts)


def usable(
    candidates: Iterable[tuple[Item, str]], name: str, on_bad_pair: OnBadPair, counts: Counter[str]
) -> Iterator[Item]:
    """Yield the pair of each (pair, problem) without a problem.

    The first problem raises `UserError`. With `on_bad_pair="drop"` the pair is dropped and counted. The log has the first
    `_DROPS_IN_LOG` of them, and at the end their number, under `name`.
    """
    dropped = total = 0
    for pair, problem in candidates:
        total += 1
        if not problem:
            yield pair
            continue
        if on_bad_pair != "drop":
            raise UserError(f"{problem}. Correct the data, or drop such pairs with dataset.on_bad_pair=drop.")
        dropped += 1
        counts["dropped_pairs"] += 1
        if dropped <= _DROPS_IN_LOG:
            logger.warning("dropped pair: %s", problem, extra={"console": dropped <= _DROPS_IN_DETAIL})
    if dropped > _DROPS_IN_LOG:
        logger.warning("%s: %d more dropped pairs are not listed", name, dropped - _DROPS_IN_LOG)
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


def empty_split_error(
    empty: Sequence[str], texts: Iterable[ParallelText], shares: Mapping[str, float], remedy: str
) -> UserError:
    """Return the error for splits that no sentence was selected for.

    Args:
        empty: the names of the splits.
        shares: of validation and test.
        remedy: an alternative to larger shares.
    """
    better = larger_shares({name: share for name, share in shares.items() if name in empty}, 0.1)
    action = f"set larger shares, for example {better}, or {remedy}" if better else remedy
    return UserError(
        f"No pairs for {' and '.join(empty)}: none of the {sum(map(len, texts)):,} pairs is in its share, which a hash of "
        f"the sentence selects. {action[0].upper()}{action[1:]}."
    )


def larger_shares(shares: Mapping[str, float], better: float) -> str:
    """Return settings that increase these shares of splits; empty if all of them are as large as the better share."""
    return " ".join(f"dataset.{name}_share={better:g}" for name, share in shares.items() if share < better)


def warn_of_small_splits(sizes: Mapping[str, int], total: int, shares: Mapping[str, float]) -> None:
    """Log a warning for splits that were taken from the training data and are too small for scores, with better shares.

    Args:
        sizes: the number of examples of each split that was taken.
        total: the number of examples that they were taken from.
        shares: of validation and test.
    """
    small = {name: size for name, size in sizes.items() if size < FEW_EXAMPLES}
    if not small:
        return
    share = max(0.01, min(0.2, math.ceil(100 * FEW_EXAMPLES / total) / 100))
    better = larger_shares({name: shares[name] for name in small}, share)
    logger.warning(
        "%s of %s examples: scores of so few examples are unreliable%s. %s.",
        ", ".join(f"{name} has {size}" for name, size in small.items()),
        f"{total:,}",
        ", and the best checkpoint is chosen by those of validation" if "validation" in small else "",
        f"Set larger shares, for example {better}, or give more data" if better else "Give more data",
    )


def check_shares(validation_share: float, test_share: float, given: Collection[str] = ()) -> None:
    """Raise `UserError` for shares that leave no room for validation, test or train.

    Args:
        given: the splits that are not taken from the training data, so that their shares may be 0.
    """
    shares = {"validation": validation_share, "test": test_share}
    taken = [name for name in shares if name not in given]
    for name in taken:
        if not shares[name] > 0:
            raise UserError(
                f"dataset.{name}_share={shares[name]} must be above 0, because a {name} set is required. Set for example "
                f"dataset.{name}_share=0.1."
            )
    if taken and not sum(shares.values()) < 1:
        raise UserError(
            f"dataset.validation_share={validation_share}, dataset.test_share={test_share}: their sum must be below 1. Set "
            f"smaller shares."
        )


def check_languages(source: str, target: str) -> None:
    """Raise `UserError` unless the languages of the two sides differ."""
    if source == target:
        raise UserError(f"dataset.source={source} and dataset.target={target} must differ.")


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
