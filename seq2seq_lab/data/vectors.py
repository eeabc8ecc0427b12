"""Pretrained word vectors in the text formats of GloVe and fastText."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.data.languages import lowercase
from seq2seq_lab.data.local_files import CONVERT_REMEDY, find_file, read_lines
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS, SPECIALS
from seq2seq_lab.data.tokenizers.vocabulary import ESCAPED_JOINER, JOINER
from seq2seq_lab.data.words import is_letter
from seq2seq_lab.errors import UserError

_SPACE = "▁"  # the space before a word in `Tokenizer.tokens`
# A byte that is not a character, in `Tokenizer.tokens`. A byte-level vocabulary contains all bytes.
_BYTE = "<0xC3>"
_BLOCK = 1024  # vectors that are converted at a time
_DECIMALS = re.compile(r"[0-9.eE+\-]+(?: [0-9.eE+\-]+)*")  # what NumPy and `float` read as the same numbers
_FRACTION = re.compile(r"[-+]?\d*\.\d+([eE][-+]?\d+)?")
log = logging.getLogger(__name__)

_LARGEST = torch.finfo(torch.float32).max
_EXAMPLES = 5
_DIGITS = 18  # of a number in the first line COUNT SIZE

_REMEDY = (
    "Use a text file of GloVe (a word and its numbers per line, separated by single spaces) or fastText (.vec, with a first "
    "line COUNT SIZE), plain or compressed (.gz, .bz2, .xz, .zst). Unpack a .zip, and convert a .bin to text, first."
)


@dataclass(frozen=True, slots=True)
class WordVectors:
    """The vectors of a vocabulary's V types: vectors_VD (float32), zero where found_V (bool) is false."""

    vectors_VD: Tensor
    found_V: Tensor


@dataclass(frozen=True, slots=True)
class Coverage:
    """The share of a vocabulary that has a vector; the four special tokens do not count as types.

    `token_share` is the share of the tokens of the text. Unknown words count; `<sos>`, `<eos>` and `<pad>` do not.
    """

    found: int
    types: int
    token_share: float

    def __str__(self) -> str:
        return (
            f"{self.found:,} of {self.types:,} types ({self.found / max(1, self.types):.1%}), "
            f"{self.token_share:.1%} of the training tokens"
        )


def vector_size(path: Path, key: str) -> int:
    """Return the number of values of a vector, from the first line of a file.

    Raises:
        UserError: the file cannot be read, or contains no word vectors.
    """
    for _, text in _numbered_lines(path, key, show=False):
        size = _header_size(text)
        if size is None:
            # From the right, because a word may contain spaces.
            numbers = takewhile(_is_number, reversed(text.split(" ")[1:]))
            size = sum(1 for _ in numbers)
        if size < 1:
            raise _wrong_line(key, path, 1, f"{_shorten(text)} is not a word and its numbers")
        return size
    raise UserError(f"{key}={path}: the file is empty. {_REMEDY}")


def read_vectors(path: Path, key: str, types: Sequence[str], case: str | None = None) -> WordVectors:
    """Read the vectors of a vocabulary's types from a file. Only these are kept in memory.

    The exact type is preferred to the type without joiners, and that to its lowercase form, in any order in the file. Of
    several lines with the same word the first counts. The special tokens, ids 0 to 3, get no vector. A byte-level subword
    that begins with a space is looked up without it, and one that begins with a symbol as it is. A subword that begins with
    a letter or digit is inside a word and gets no vector, because the equal word has a different meaning.

    Args:
        types: the names of all ids, as `Tokenizer.tokens` returns them or with the joiners "￭" of word and spaCy tokens.
        case: the language whose rules for lower case are used; None: those of most languages.

    Raises:
        UserError: the file cannot be read, a line has a different number of values or is not UTF-8, a value is not a finite
            number, or no type has a vector.
    """
    wanted = _wanted(types, case)
    vectors_VD = torch.zeros(len(types), vector_size(path, key))
    rank_of: dict[int, int] = {}
    examples: list[str] = []
    rows: list[list[int]] = []  # the types that use each vector of a block

    def chosen() -> Iterator[tuple[int, str]]:
        for line_number, word, values in _entries(path, key):
            if len(examples) < _EXAMPLES:
                examples.append(word)
            better = [(i, rank) for i, rank in wanted.get(word, ()) if rank < rank_of.get(i, rank + 1)]
            if better:
                rows.append([i for i, _ in better])
                rank_of.update(better)
                yield line_number, values

    for block_ND in _blocks(chosen(), key, path):
        # Of several vectors of a type the last one is kept: its rank is lower.
        vectors_VD.numpy()[[*chain.from_iterable(rows)]] = block_ND.repeat([*map(len, rows)], axis=0)
        rows.clear()
    if not rank_of:
        raise UserError(
            f"{key}={path} has no vector for any of the {len(types) - len(SPECIALS):,} types of the vocabulary. The file "
            f"begins with {_quote(examples)}; the vocabulary with {_quote(types[len(SPECIALS) :][:_EXAMPLES])}. Use a file "
            "in the language of this side, and a tokenizer of words."
        )
    found_V = torch.zeros(len(types), dtype=torch.bool)
    found_V[list(rank_of)] = True
    return WordVectors(vectors_VD, found_V)


def read_all_vectors(path: Path, key: str) -> tuple[list[str], Tensor]:
    """Return the different words of a file in their order, and their vectors of shape VD in float32.

    Raises:
        UserError: see `read_vectors`.
    """
    words: dict[str, None] = {}
    blocks = [*_blocks(_different(path, key, words), key, path)]
    if not words:
        raise UserError(f"{key}={path}: the file has no vectors. {_REMEDY}")
    return [*words], torch.from_numpy(np.concatenate(blocks))


def read_words(path: Path, key: str, count: int | None) -> list[str]:
    """Return the first `count` different words of a file (None: all), in their order.

    Raises:
        UserError: the file cannot be read, or a line has a different number of values or is not UTF-8.
    """
    words: dict[str, None] = {}
    for _ in islice(_different(path, key, words), count):
        pass
    return [*words]


def _different(path: Path, key: str, words: dict[str, None]) -> Iterator[tuple[int, str]]:
    """Yield the line number and the values of each word that is not in `words`, and add it there."""
    for line_number, word, values in _entries(path, key):
        if word not in words:
            words[word] = None
            yield line_number, values


def _blocks(vectors: Iterable[tuple[int, str]], key: str, path: Path) -> Iterator[npt.NDArray[np.float32]]:
    """Yield arrays of some vectors each, ND, from the line number and the values of each.

    Raises:
        UserError: a value is not a finite number.
    """
    vectors = iter(vectors)
    while block := [*islice(vectors, _BLOCK)]:
        numbers = _decimals(" ".join(values for _, values in block))
        if numbers is None:  # line by line: the error names the line
            numbers = np.array([_values(values.split(" "), key, path, line) for line, values in block])
        yield numbers.astype(np.float32).reshape(len(block), -1)


def _decimals(text: str) -> npt.NDArray[np.float64] | None:
    """Return numbers with single spaces between them, or None if one of them is of another form or too large."""
    if not _DECIMALS.fullmatch(text):
        return None
    try:
        numbers = np.fromstring(text, sep=" ")
    except ValueError:
        return None
    return numbers if np.abs(numbers).max() <= _LARGEST else None


def _entries(path: Path, key: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line number, the word and the values of each vector; a first line COUNT SIZE is checked."""
    size, count, found = vector_size(path, key), None, 0
    for line_number, text in _numbered_lines(path, key, show=True):
        if line_number == 1 and _header_size(text) is not None:
            count = int(text.split(" ")[0])
            continue
        spaces = text.count(" ")
        if spaces < size:
            raise _wrong_line(key, path, line_number, f"{spaces} values instead of {size}")
        word, values = text.split(" ", 1) if spaces == size else _split_right(text, size)
        if spaces > size and _FRACTION.fullmatch(word.rpartition(" ")[2]):
            raise _wrong_line(key, path, line_number, f"more than {size} values")
        found += 1
        yield line_number, word, values
    if count is not None and count != found:
        log.warning(
            "%s=%s: the first line declares %s vectors, and the file has %s.",
            key,
            path,
            f"{count:,}",
            f"{found:,}",
        )


def _split_right(text: str, size: int) -> tuple[str, str]:
    word = text.rsplit(" ", size)[0]
    return word, text[len(word) + 1 :]


def coverage(words: WordVectors, count_V: Tensor) -> Coverage:
    """Return the shares of types and of text that have a vector; count_V is the number of occurrences of each id."""
    assert count_V.shape == words.found_V.shape
    text_V = count_V.clone()
    text_V[[PAD, SOS, EOS]] = 0
    return Coverage(
        found=int(words.found_V.sum()),
        types=len(count_V) - len(SPECIALS),
        token_share=int(text_V[words.found_V].sum()) / max(1, int(text_V.sum())),
    )


def _wanted(types: Sequence[str], case: str | None) -> dict[str, list[tuple[int, int]]]:
    """Return, for each word to look for, the types that may use its vector, with its rank: 0 is the type itself."""
    byte_level = _BYTE in types
    wanted: dict[str, list[tuple[int, int]]] = {}
    for i, name in enumerate(types):
        if i >= len(SPECIALS):
            for rank, form in enumerate(_forms(name, byte_level, case)):
                wanted.setdefault(form, []).append((i, rank))
    return wanted


def _forms(name: str, byte_level: bool, case: str | None) -> list[str]:
    """Return the words whose vector a type may use, the preferred first."""
    if byte_level:
        if name and is_letter(name[0]):
            return []
        bare = name.removeprefix(_SPACE)
    else:
        bare = name.removeprefix(JOINER).removesuffix(JOINER).replace(ESCAPED_JOINER, JOINER)
    return list(dict.fromkeys(form for form in (name, bare, lowercase(bare, case)) if form))


def _numbered_lines(path: Path, key: str, show: bool) -> Iterator[tuple[int, str]]:
    """Yield the line number, from 1, and the text of each line, without the space that fastText writes at its end."""
    find_file(key, str(path))
    lines = enumerate(read_lines(path, Counter(), show, remedy=CONVERT_REMEDY), start=1)
    while True:
        try:
            line_number, (text, problem) = next(lines)
        except StopIteration:
            return
        except UserError as error:
            raise UserError(f"{key}: {error}") from error
        if problem:
            raise _wrong_line(key, path, line_number, problem)
        yield line_number, text.rstrip(" ")


def _header_size(text: str) -> int | None:
    """Return the size in fastText's first line "COUNT SIZE", or None for another line."""
    fields = text.split(" ")
    if len(fields) == 2 and all(field.isascii() and field.isdigit() for field in fields):
        return int(fields[1]) if max(map(len, fields)) <= _DIGITS else 0
    return None


def _values(fields: Sequence[str], key: str, path: Path, line: int) -> list[float]:
    for field in fields:
        if not _is_number(field):
            raise _wrong_line(key, path, line, f"{_shorten(field)} is not a finite number")
    return [float(field) for field in fields]


def _is_number(field: str) -> bool:
    """Return whether the text is a number in the range of float32."""
    try:
        return abs(float(field)) <= _LARGEST
    except ValueError:
        return False


def _wrong_line(key: str, path: Path, line_number: int, problem: str) -> UserError:
    return UserError(f"{key}: {path} line {line_number}: {problem}. {_REMEDY}")


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _quote(names: Sequence[str]) -> str:
    return ", ".join(map(_shorten, names)) or "nothing"
