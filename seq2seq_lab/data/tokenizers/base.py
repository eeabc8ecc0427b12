"""The interface of tokenizers, how a pair of them is fitted to a corpus, and how it is saved."""

import inspect
import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import tokenizers

from seq2seq_lab.config.type_checks import fits
from seq2seq_lab.data.corpus import UNKNOWN, ParallelText
from seq2seq_lab.data.languages import CASES, language_code
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.words import is_letter, words
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.files import read_bounded, read_json_object

# The threads of the library do not survive the fork of a loader's worker: it would warn, or hang.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

UNK, PAD, SOS, EOS = 0, 1, 2, 3
SPECIALS = ("<unk>", "<pad>", "<sos>", "<eos>")
MAX_VOCABULARY_BYTES = 2**28  # some 9 million words; reading a vocabulary takes about 20 times as much memory

logger = logging.getLogger(__name__)


class Tokenizer(ABC):
    """Converts lines of text to ids and back. Ids 0 to 3 are `SPECIALS` in every vocabulary.

    The name of a special token in the text is text: no line is encoded to `<pad>`, `<sos>` or `<eos>`. `<unk>` is the
    unknown type if it is a token of a `VocabularyTokenizer`. The `tokenizers` library stores the vocabulary. A subclass
    keeps each argument of its constructor in an attribute of the same name, sets `joint`, and passes the vocabulary of
    `train` to `use_backend`.
    """

    joint: bool
    """One vocabulary for both languages; read by `fit_tokenizers`."""

    rules: int = 3
    """How text is cut: 3 as `data.words` describes letters, with flags as one symbol; 2 and 1 as earlier versions did.

    2 cuts flags, and at word joiners and Mongolian vowel separators; 1 cuts before each mark. With 2 and 1, characters are
    lowercased one by one, also Σ at the end of a word.
    """

    reads_source: bool = False
    """Whether the ids of an output depend on its source; see `for_source`."""

    _backend: tokenizers.Tokenizer
    _labels: tuple[str, ...] = ()

    def options(self) -> dict[str, object]:
        """Return the constructor's arguments, as plain values."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def use_languages(self, *labels: str) -> None:
        """Set the language labels of the corpus before training: one, or those of both sides if the tokenizer is joint.

        A subclass with rules for a language overrides this. The labels are saved with the vocabulary.
        """
        self._labels = labels
        if getattr(self, "lowercase", False) and len({CASES.get(language_code(one)) for one in labels}) > 1:
            if self.rules == 1:
                return
            raise UserError(
                f"tokenizer.lowercase=true tokenizer.joint=true: {' and '.join(labels)} have different rules for lower case "
                f"(Turkish and Azerbaijani: I is ı). Set tokenizer.joint=false, or tokenizer.lowercase=false."
            )

    def of_source(self) -> "Tokenizer | None":
        """Return the untrained tokenizer of the source of pairs, if it is of another class than that of the target."""
        return None

    @property
    def case(self) -> str:
        """The language whose rules for lower case are used; empty: those of most languages."""
        return language_code(self._labels[0]) if self._labels and self.rules > 1 else ""

    @abstractmethod
    def train(self, lines: Iterable[str]) -> None:
        """Learn the vocabulary. The same lines give the same vocabulary."""

    def add_words(self, words: Iterable[str]) -> None:
        """Add words to the trained vocabulary, after the others. It may be called without words before the training.

        Raises:
            UserError: the vocabulary is not one of words.
        """
        raise UserError(
            f"tokenizer._target_={name_of(type(self))} has no vocabulary of words, which task.vector_words needs. Choose "
            f"tokenizer=word or whitespace, or set task.vector_words=null."
        )

    @abstractmethod
    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, without `<sos>` and `<eos>`."""

    def encode_outputs(self, lines: Sequence[str], sources: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, the output of the source with the same index."""
        return self.encode(lines)

    def for_source(self, line: str) -> "Tokenizer":
        """Return the tokenizer of a source and its outputs: itself, unless their ids depend on the source."""
        return self

    @abstractmethod
    def spans(self, line: str) -> list[tuple[int, int]]:
        """Return the characters of `line`, as (start, end), of each id of `encode`.

        Spaces around a word are in no span.
        """

    def units(self, line: str) -> list[tuple[int, int]]:
        """Return the (start, end) of what a picture of attention may join tokens to: the words; see `words`."""
        return words(line, self.spans(line))

    def unknown_spans(self, line: str) -> list[tuple[int, int]]:
        """Return the (start, end) of the text of `line` that the vocabulary lacks: of each run of `<unk>` in a word."""
        (ids,) = self.encode([line])
        runs: list[tuple[int, int]] = []
        for (start, end), token in zip(self.spans(line), ids, strict=True):
            if token == UNK and runs and runs[-1][1] == start:
                runs[-1] = runs[-1][0], end
            elif token == UNK:
                runs.append((start, end))
        return runs

    def unknown_words(self, line: str) -> list[str]:
        """Return the texts of `unknown_spans`, each once."""
        return [*dict.fromkeys(line[start:end] for start, end in self.unknown_spans(line))]

    def marked_texts(self, line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
        """Return the text of each span of `line`, with `UNKNOWN` after each text that the vocabulary lacks: `zebra⁇`."""
        ends = [end for _, end in self.unknown_spans(line)]
        texts = []
        for start, end in spans:
            cuts = [start, *(cut for cut in ends if start < cut <= end), end]
            texts.append(UNKNOWN.join(line[first:last] for first, last in pairwise(cuts)))
        return texts

    @abstractmethod
    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of `decode`, and the (start, end) in it of each id; empty if an id adds no text."""

    @abstractmethod
    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return a printable form of each id, for plots and tables."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return plain text without `<pad>`, `<sos>` and `<eos>`; an unknown token becomes `UNKNOWN`."""
        return self.decode_spans(ids)[0]

    @property
    def stochastic(self) -> bool:
        """Whether `sample` returns other ids than `encode`."""
        return False

    def sample(self, lines: Sequence[str], rng: np.random.Generator) -> list[list[int]]:
        """Return the ids of each line for training, drawn with `rng` if the tokenizer is stochastic."""
        return self.encode(lines)

    @property
    def of_one_text(self) -> "Tokenizer":
        """The tokenizer that splits a single text if lines can contain several; otherwise this one."""
        return self

    @property
    def size(self) -> int:
        """The number of types, including the special tokens."""
        return self._backend.get_vocab_size()

    def serialized(self) -> bytes:
        """Return the vocabulary in the format of the library.

        Raises:
            UserError: it is too large for `load_tokenizer`.
        """
        data = self._backend.to_str(pretty=True).encode()
        if len(data) > MAX_VOCABULARY_BYTES:
            raise UserError(
                f"The vocabulary of {self._backend.get_vocab_size():,} types takes {len(data):,} bytes, but at most "
                f"{MAX_VOCABULARY_BYTES:,} can be read again. Set tokenizer.max_size=N (of subwords: "
                f"tokenizer.vocab_size=N) or tokenizer.min_frequency=N, and task.vector_words=N if it is set."
            )
        return data

    def save(self, folder: Path, name: str) -> None:
        """Write `name.json` (see `serialized`) and `name.options.json` (class, options, languages)."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_bytes(self.serialized())
        description: dict[str, object] = {
            "class": name_of(type(self)),
            "options": self.options(),
            "languages": list(self._labels),
        }
        if self.rules != 1:  # the files of earlier versions do not have it
            description["rules"] = self.rules
        (folder / f"{name}.options.json").write_text(json.dumps(description, indent=2), encoding="utf-8")

    def check_saved(self, saved: "Tokenizer", folder: Path) -> None:
        """Check that the tokenizer saved by a run has the class and the options of this tokenizer.

        Args:
            folder: the folder that it was read from.

        Raises:
            UserError: its class or options differ.
        """
        if type(saved) is not type(self) or saved.options() != self.options():
            raise UserError(
                f"{folder} has another tokenizer or other settings than tokenizer={self.options()}."
            )

    def use_backend(self, backend: tokenizers.Tokenizer) -> None:
        """Set the vocabulary; `train` and `load_tokenizer` call it. A subclass derives its tables from it here."""
        self._backend = backend
        vocabulary = backend.get_vocab(with_added_tokens=False)
        # In the order of the ids, without the special tokens.
        self._names = sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIALS) :]


def load_tokenizer(folder: Path, name: str) -> Tokenizer:
    """Read a tokenizer that `Tokenizer.save` wrote.

    The class must be an imported subclass of `Tokenizer`: a file cannot import other code. Raises `UserError` for missing
    files, an unknown class, and options that do not match it.
    """
    path = folder / f"{name}.options.json"
    for missing in (path, folder / f"{name}.json"):
        if not missing.is_file():
            raise UserError(
                f"Tokenizer {name!r} not found in {folder}: {missing.name} is missing. Give the folder `tokenizer` of a run "
                f"that has started to train."
            )
    description = read_json_object(path)
    vocabulary = read_bounded(folder / f"{name}.json", MAX_VOCABULARY_BYTES)
    kind, options = description.get("class"), description.get("options")
    languages, rules = description.get("languages"), description.get("rules", 1)
    if not (isinstance(kind, str) and isinstance(options, dict) and fits(rules, int)) or not fits(
        languages, list[str] | None
    ):
        raise UserError(
            f"{path} is damaged: its class, options, languages or rules are not those of a tokenizer."
        )
    if not 1 <= rules <= Tokenizer.rules:
        raise UserError(
            f"{path}: rules={rules} is not supported; this version supports 1 to {Tokenizer.rules}. Use the version of "
            f"seq2seq_lab that wrote the tokenizer."
        )
    try:
        tokenizer = tokenizer_class(kind)(**options)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except TypeError as error:
        raise UserError(
            f"{path} does not match class={kind}: {error}. Use the version of the class that the run was trained with."
        ) from error
    tokenizer.rules = rules
    if languages:
        tokenizer.use_languages(*languages)
    try:
        backend = tokenizers.Tokenizer.from_buffer(vocabulary)
    except Exception as error:  # the library raises no other class
        raise UserError(
            f"{folder / name}.json is not a vocabulary: {error}. Restore it from a copy."
        ) from error
    tokenizer.use_backend(backend)
    return tokenizer


def tokenizer_class(name: str) -> Callable[..., Tokenizer]:
    """Return the imported subclass of `Tokenizer` with this name, as `name_of` returns it.

    Raises:
        UserError: there is none.
    """
    # If a file was imported again, the last class of a name is the current one.
    known = {name_of(kind): kind for kind in _subclasses(Tokenizer) if not inspect.isabstract(kind)}
    if name not in known:
        raise UserError(
            f"class={name!r} is not a known tokenizer.{did_you_mean(name, known)} Values: {', '.join(sorted(known))}. "
            "Import the module that defines the class first."
        )
    return known[name]


def name_of(kind: type) -> str:
    """Return the module and the name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _subclasses(kind: type[Any]) -> Iterator[type[Tokenizer]]:
    """Yield all direct and indirect subclasses."""
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


@dataclass(frozen=True, slots=True)
class TokenizerPair:
    """The tokenizers of both sides: the same object if they share one vocabulary."""

    source: Tokenizer
    target: Tokenizer

    def __post_init__(self) -> None:
        assert (self.source is self.target) == self.source.joint == self.target.joint

    @property
    def joint(self) -> bool:
        """Whether both sides share one vocabulary."""
        return self.source.joint

    @property
    def languages(self) -> tuple[str, str] | None:
        """The labels of source and target that the tokenizers were fitted with, or None if they are not known."""
        labels = self.source._labels if self.joint else self.source._labels + self.target._labels
        return (labels[0], labels[1]) if len(labels) == 2 else None

    def for_source(self, line: str) -> "TokenizerPair":
        """Return the tokenizers of a source and its outputs; see `Tokenizer.for_source`."""
        if not self.target.reads_source:
            return self
        both = self.target.for_source(line)
        return TokenizerPair(both, both)

    def save(self, folder: Path) -> None:
        """Write the tokenizers `source` and `target`, or only `source` if they are the same."""
        self.source.save(folder, "source")
        if not self.joint:
            self.target.save(folder, "target")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a pair that `save` wrote. Raises `UserError` if files are missing."""
        source = load_tokenizer(folder, "source")
        return cls(source, source if source.joint else load_tokenizer(folder, "target"))


def fit_tokenizers(
    make: Callable[[], Tokenizer],
    train: ParallelText,
    languages: tuple[str, str],
    source: Tokenizer | None = None,
    trained: Mapping[str, Tokenizer] | None = None,
) -> TokenizerPair:
    """Train one joint tokenizer, or one per side, on the training split.

    `languages` are the corpus's labels of source and target; `source` is the tokenizer of the source if it is not one of
    `make`; `trained` has tokenizers that are not trained again, by side, `source` or `target`. Raises `UserError` if the
    tokenizer has no rules for the languages.
    """
    trained = trained or {}
    shared = next(iter(trained.values()), None) or source or make()
    if shared.joint:
        if not trained:
            shared.use_languages(*languages)
            lines = progress(chain(train.source, train.target), "Learning the vocabulary", 2 * len(train))
            shared.train(lines)
        pair = TokenizerPair(shared, shared)
    else:
        pair = TokenizerPair(trained.get("source") or source or make(), trained.get("target") or make())
        for side, language in zip(("source", "target"), languages, strict=True):
            if side not in trained:
                getattr(pair, side).use_languages(language)
                lines = progress(getattr(train, side), f"Learning the {side} vocabulary", len(train))
                getattr(pair, side).train(lines)
    logger.info("Vocabulary: %d source types, %d target types", pair.source.size, pair.target.size)
    return pair


def visible(text: str) -> str:
    """Return `text` with each character that is not printable as its code point, for example <U+202F>.

    Joiners and soft hyphens stay as they are after the letter that they belong to.
    """
    return "".join(
        letter if letter.isprintable() or (before and is_letter(letter)) else f"<U+{ord(letter):04X}>"
        for before, letter in zip(("", *text), text, strict=False)
    )
