"""Word vectors trained elsewhere, in the text formats of GloVe and fastText."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import torch
from torch import Tensor

from seq2seq_lab.data.text import listing, read_lines
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS, SPECIALS
from seq2seq_lab.data.tokenizers.vocabulary import ESCAPED_JOINER, JOINER, is_word_letter
from seq2seq_lab.errors import UserError

_SPACE = "▁"  # the space before a word, as `Tokenizer.tokens` writes it
# Every byte is a type of a byte-level vocabulary, which `Tokenizer.tokens` writes so if it is no character.
_BYTE = "<0xC3>"
_FRACTION = re.compile(r"[-+]?\d*\.\d+([eE][-+]?\d+)?")
_LARGEST = torch.finfo(torch.float32).max
_EXAMPLES = 5

_REMEDY = (
    "Name a whole text file of GloVe (each line a word and its numbers, with single spaces between) or of "
    "fastText (.vec, with a first line COUNT SIZE), plain or gzipped (.gz); a .zip is to be unpacked and a .bin "
    "turned into text first."
)


@dataclass(frozen=True, slots=True)
class WordVectors:
    """The vectors of a vocabulary's V types: vectors_VD (float32), zero where found_V (bool) is false."""

    vectors_VD: Tensor
    found_V: Tensor


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a vocabulary has a vector; the four specials are not counted among its types.

    `token_share` is the share of the running text, where unknown words count and `<sos>`, `<eos>` and `<pad>`
    do not.
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
    """Return the number of values of a vector, as the first line of a file says or shows.

    Raises:
        UserError: names `key`, the path and the line where the file cannot be read or holds no word vectors.
    """
    for _, text in _numbered_lines(path, key, show=False):
        size = _header_size(text)
        if size is None:
            # From the right, since a word may hold spaces.
            numbers = takewhile(_is_number, reversed(text.split(" ")[1:]))
            size = sum(1 for _ in numbers)
        if size < 1:
            raise _wrong_line(key, path, 1, f"{_shortened(text)} is no word with its numbers")
        return size
    raise UserError(f"{key}={path}: the file is empty. {_REMEDY}")


def read_vectors(path: Path, key: str, types: Sequence[str]) -> WordVectors:
    """Read the vectors of a vocabulary's types from a file of any length, in memory for the vocabulary alone.

    `types` are the names of all ids, as `Tokenizer.tokens` writes them or with the joiners "￭" of word and
    spaCy tokens. The type as it is goes before the type without joiners, and that before its lowercase,
    whatever their order in the file; of lines with the same word the first counts. The four specials, ids 0
    to 3, get none. Of byte-level subwords, those with a space before them are looked up as the word after it
    and those that begin with a symbol as they are; a type that begins with a letter or digit goes on with a
    word and gets none, since the word that reads like it means something else.

    Raises:
        UserError: names `key`, the path and the line: the file cannot be read, a line has another number of
            values or is not UTF-8, a value that is asked for is not a finite number, or no type is found.
    """
    size = vector_size(path, key)
    wanted = _wanted(types)
    vectors_VD = torch.zeros(len(types), size)
    rank_of: dict[int, int] = {}
    examples: list[str] = []
    for number, text in _numbered_lines(path, key, show=True):
        if number == 1 and _header_size(text) is not None:
            continue
        spaces = text.count(" ")
        if spaces < size:
            raise _wrong_line(key, path, number, f"{spaces} values, where a vector has {size}")
        word = text[: text.index(" ")] if spaces == size else text.rsplit(" ", size)[0]
        if spaces > size and _FRACTION.fullmatch(word.rpartition(" ")[2]):
            raise _wrong_line(key, path, number, f"more values than the {size} of a vector")
        if len(examples) < _EXAMPLES:
            examples.append(word)
        better = [(i, rank) for i, rank in wanted.get(word, ()) if rank < rank_of.get(i, rank + 1)]
        if better:
            place = [i for i, _ in better]
            vectors_VD[place] = torch.tensor(_values(text.rsplit(" ", size)[1:], key, path, number))
            rank_of.update(better)
    if not rank_of:
        raise UserError(
            f"{key}={path}: none of the {len(types) - len(SPECIALS):,} types of the vocabulary has a vector "
            f"there. It begins with {_quoted(examples)}; the vocabulary with "
            f"{_quoted(types[len(SPECIALS) :][:_EXAMPLES])}. Most likely it is of another language or of other "
            "tokens: name the file of this side's language, and a tokenizer of words."
        )
    found_V = torch.zeros(len(types), dtype=torch.bool)
    found_V[list(rank_of)] = True
    return WordVectors(vectors_VD, found_V)


def coverage(words: WordVectors, count_V: Tensor) -> Coverage:
    """Return the shares of types and of text that have a vector; count_V says how often each id is there."""
    assert count_V.shape == words.found_V.shape
    text_V = count_V.clone()
    text_V[[PAD, SOS, EOS]] = 0
    return Coverage(
        found=int(words.found_V.sum()),
        types=len(count_V) - len(SPECIALS),
        token_share=int(text_V[words.found_V].sum()) / max(1, int(text_V.sum())),
    )


def _wanted(types: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """The words to look for: for each the types that it may stand for, with its rank, 0 the type itself."""
    byte_level = _BYTE in types
    wanted: dict[str, list[tuple[int, int]]] = {}
    for i, name in enumerate(types):
        if i >= len(SPECIALS):
            for rank, form in enumerate(_forms(name, byte_level)):
                wanted.setdefault(form, []).append((i, rank))
    return wanted


def _forms(name: str, byte_level: bool) -> list[str]:
    """The words that a type may be in a file, the strongest first."""
    if byte_level:
        if is_word_letter(name[:1]):
            return []
        bare = name.removeprefix(_SPACE)
    else:
        bare = name.removeprefix(JOINER).removesuffix(JOINER).replace(ESCAPED_JOINER, JOINER)
    return list(dict.fromkeys(form for form in (name, bare, bare.lower()) if form))


def _numbered_lines(path: Path, key: str, show: bool) -> Iterator[tuple[int, str]]:
    """Each line and its number from 1, without the space at its end that fastText writes."""
    if path.is_dir():
        raise UserError(f"{key}={path} is a folder: {listing(path)}. Name a file of word vectors.")
    if not path.exists():
        raise UserError(f"{key}={path}: there is no such file; {listing(path.parent)}. {_REMEDY}")
    lines = enumerate(read_lines(path, Counter(), show), start=1)
    while True:
        try:
            number, (text, problem) = next(lines)
        except StopIteration:
            return
        except UserError as error:
            raise UserError(f"{key}: {error}") from error
        if problem:
            raise _wrong_line(key, path, number, problem)
        yield number, text.rstrip(" ")


def _header_size(text: str) -> int | None:
    """The size that fastText's first line "COUNT SIZE" says, or None where the line is none."""
    fields = text.split(" ")
    if len(fields) == 2 and all(field.isascii() and field.isdigit() for field in fields):
        return int(fields[1])
    return None


def _values(fields: Sequence[str], key: str, path: Path, line: int) -> list[float]:
    for field in fields:
        if not _is_number(field):
            raise _wrong_line(key, path, line, f"{_shortened(field)} is no finite number")
    return [float(field) for field in fields]


def _is_number(field: str) -> bool:
    """Whether the text is a number that float32 can hold."""
    try:
        return abs(float(field)) <= _LARGEST
    except ValueError:
        return False


def _wrong_line(key: str, path: Path, number: int, problem: str) -> UserError:
    return UserError(f"{key}: {path} line {number}: {problem}. {_REMEDY}")


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(_shortened, names)) or "nothing"
