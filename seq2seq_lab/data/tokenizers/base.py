"""What a tokenizer is, how a pair of them is fitted to a corpus, and how they are kept on disk."""

import inspect
import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import tokenizers

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.progress import progress
from seq2seq_lab.errors import UserError, did_you_mean

# The library's threads do not survive the fork of a loader's worker: it would warn, or hang.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

UNK, PAD, SOS, EOS = 0, 1, 2, 3
SPECIALS = ("<unk>", "<pad>", "<sos>", "<eos>")

logger = logging.getLogger(__name__)


class Tokenizer(ABC):
    """Turns lines of text into ids and back. Ids 0 to 3 are `SPECIALS` in every vocabulary.

    A special's name that stands in the text is text: no line encodes to `<pad>`, `<sos>` or `<eos>`.
    The vocabulary is held by the `tokenizers` library. A subclass writes what follows from how it cuts a
    line; its constructor takes exactly what `options` returns.
    """

    joint: bool
    """One vocabulary for both languages; read by `fit_tokenizers`."""

    _backend: tokenizers.Tokenizer
    _labels: tuple[str, ...] = ()

    @abstractmethod
    def options(self) -> dict[str, object]:
        """The constructor's arguments, as plain values."""

    def use_languages(self, *labels: str) -> None:
        """Hear the corpus's language labels before training: one, or those of both sides if joint.

        A subclass with rules of a language looks them up here; the labels are saved with the vocabulary.
        """
        self._labels = labels

    @abstractmethod
    def train(self, lines: Iterable[str]) -> None:
        """Learn the vocabulary. The same lines give the same vocabulary."""

    @abstractmethod
    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line, without `<sos>` and `<eos>`."""

    @abstractmethod
    def spans(self, line: str) -> list[tuple[int, int]]:
        """The characters of `line`, as (start, end), that each id of `encode` stands for.

        Spaces around a word are in no span.
        """

    @abstractmethod
    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """The text of `decode`, and the (start, end) in it of each id; empty where an id adds no text."""

    @abstractmethod
    def tokens(self, ids: Sequence[int]) -> list[str]:
        """A printable form of each id, for plots and tables."""

    def decode(self, ids: Sequence[int]) -> str:
        """Plain text. `<pad>`, `<sos>` and `<eos>` are left out; an unknown token becomes `UNKNOWN`."""
        return self.decode_spans(ids)[0]

    @property
    def stochastic(self) -> bool:
        """Whether `sample` draws other segmentations than `encode` gives."""
        return False

    def sample(self, lines: Sequence[str], rng: np.random.Generator) -> list[list[int]]:
        """The ids of each line as training reads them, drawn with `rng` where the tokenizer is stochastic."""
        return self.encode(lines)

    @property
    def size(self) -> int:
        """The number of types, the specials included."""
        return self._backend.get_vocab_size()

    def save(self, folder: Path, name: str) -> None:
        """Write `name.json` (the library's own format) and `name.options.json` (class, options, languages)."""
        folder.mkdir(parents=True, exist_ok=True)
        self._backend.save(str(folder / f"{name}.json"))
        description = {
            "class": _name(type(self)),
            "options": self.options(),
            "languages": list(self._labels),
        }
        (folder / f"{name}.options.json").write_text(json.dumps(description, indent=2), encoding="utf-8")

    def _use(self, backend: tokenizers.Tokenizer) -> None:
        """Take over a trained vocabulary; subclasses derive their tables from it here."""
        self._backend = backend


def load_tokenizer(folder: Path, name: str) -> Tokenizer:
    """Read what `Tokenizer.save` wrote.

    The class is looked up by name among the subclasses of `Tokenizer` that have been imported, so that a
    file can name no other code. Raises `UserError` where files are missing or the class is not known.
    """
    try:
        description = json.loads((folder / f"{name}.options.json").read_text(encoding="utf-8"))
        vocabulary = (folder / f"{name}.json").read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(
            f"There is no tokenizer {name!r} in {folder}: {Path(error.filename).name} is missing. "
            "Name the folder `tokenizer` of a run that has started to train."
        ) from error
    # Of classes of one name the last was defined last: a file that was imported anew.
    known = {_name(kind): kind for kind in _below(Tokenizer) if not inspect.isabstract(kind)}
    if description["class"] not in known:
        raise UserError(
            f"{folder / name}.options.json: class={description['class']!r} is no tokenizer that is known "
            f"({', '.join(sorted(known))}).{did_you_mean(description['class'], known)} "
            "Import the module that defines it first."
        )
    try:
        tokenizer = known[description["class"]](**description["options"])
    except TypeError as error:
        raise UserError(
            f"{folder / name}.options.json does not fit class={description['class']}: {error}. Use the version "
            "of the class that the run was made with."
        ) from error
    if description["languages"]:
        tokenizer.use_languages(*description["languages"])
    tokenizer._use(tokenizers.Tokenizer.from_str(vocabulary))
    return tokenizer


def _name(kind: type) -> str:
    """The name of a class as a tokenizer's options have it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _below(kind: type[Any]) -> Iterator[type[Tokenizer]]:
    """All subclasses of `kind`, theirs too."""
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _below(subclass)


@dataclass(frozen=True, slots=True)
class TokenizerPair:
    """The tokenizers of both sides: the same object twice where they share one vocabulary."""

    source: Tokenizer
    target: Tokenizer

    def __post_init__(self) -> None:
        assert (self.source is self.target) == self.source.joint == self.target.joint

    @property
    def joint(self) -> bool:
        """Whether one vocabulary serves both sides."""
        return self.source.joint

    @property
    def languages(self) -> tuple[str, str] | None:
        """The corpus's labels of source and target that they were fitted with; None where they have not kept them."""
        labels = self.source._labels if self.joint else self.source._labels + self.target._labels
        return (labels[0], labels[1]) if len(labels) == 2 else None

    def save(self, folder: Path) -> None:
        """Write the tokenizers `source` and `target`; a joint one stands under `source` alone."""
        self.source.save(folder, "source")
        if not self.joint:
            self.target.save(folder, "target")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote. Raises `UserError` where files are missing."""
        source = load_tokenizer(folder, "source")
        return cls(source, source if source.joint else load_tokenizer(folder, "target"))


def fit_tokenizers(
    make: Callable[[], Tokenizer], train: ParallelText, languages: tuple[str, str]
) -> TokenizerPair:
    """Train one joint tokenizer, or one a side, on the training split.

    `languages` are the corpus's labels of source and target. Raises `UserError` where the tokenizer has no
    rules for them.
    """
    source = make()
    if source.joint:
        source.use_languages(*languages)
        lines = chain(train.source, train.target)
        source.train(progress(lines, "Learning the vocabulary", 2 * len(train)))
        pair = TokenizerPair(source, source)
    else:
        target = make()
        source.use_languages(languages[0])
        target.use_languages(languages[1])
        source.train(progress(train.source, "Learning the source vocabulary", len(train)))
        target.train(progress(train.target, "Learning the target vocabulary", len(train)))
        pair = TokenizerPair(source, target)
    logger.info("Vocabulary: %d source types, %d target types", pair.source.size, pair.target.size)
    return pair


def check_min_frequency(value: int, remedy: str) -> None:
    """Raise `UserError` for a smallest frequency below 1; `remedy` says what to set instead."""
    if value < 1:
        raise UserError(f"tokenizer.min_frequency={value} must be 1 or more; {remedy}.")


def visible(text: str) -> str:
    """`text` with each character that would not print written as its code point, for example <U+202F>."""
    return "".join(letter if letter.isprintable() else f"<U+{ord(letter):04X}>" for letter in text)
