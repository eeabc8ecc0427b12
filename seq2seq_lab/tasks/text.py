"""Shared by tasks of texts: the vocabulary of one side, the tokens of each split, and the record of a corpus."""

import json
import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.config.type_checks import fits
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.token_cache import cached_tokens, text_key
from seq2seq_lab.data.tokenizers import Tokenizer, load_tokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import parse_json, read_bounded, write_atomically
from seq2seq_lab.metrics.base import digest
from seq2seq_lab.tasks.base import Parts, Task
from seq2seq_lab.tasks.vectors import load_vectors

CLASSES = "classes.json"
MOST_LISTED = 20  # classes in an error message
MOSTLY = 0.5  # a greater share of unknown tokens in training is probably a mistake
log = logging.getLogger(__name__)


def warn_if_mostly_unknown(share: float, text: str) -> None:
    """Log a warning if more than a share `MOSTLY` of the tokens of a text is not in the vocabulary."""
    if share > MOSTLY:
        log.warning(
            "%s of the tokens of the %s are not in the vocabulary: the model reads all of them as <unk>. With init_from, "
            "give texts in the language of that run; otherwise decrease tokenizer.min_frequency or set tokenizer=bpe.",
            f"{share:.0%}",
            text,
        )


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer, and the names of the classes of a classifier.

    Attributes:
        name: of the tokenizer's files.
        classes: empty if the task has no classes.
    """

    tokenizer: Tokenizer
    name: str
    classes: list[str] = field(default_factory=list)

    @classmethod
    def fitted(
        cls,
        tokenizer: Tokenizer,
        name: str,
        language: str,
        lines: Sequence[str],
        classes: Sequence[str] = (),
    ) -> Self:
        """Return the vocabulary of a tokenizer that is fitted on lines of a language."""
        tokenizer.use_languages(language)
        tokenizer.train(progress(lines, "Learning the vocabulary", len(lines)))
        return cls(tokenizer, name, [*classes])

    def save(self, folder: Path) -> None:
        """Write it to a folder."""
        self.tokenizer.save(folder, self.name)
        if self.classes:
            write_atomically(folder / CLASSES, json.dumps(self.classes, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: Path, name: str, with_classes: bool = False) -> Self:
        """Read the files that `save` wrote.

        Raises:
            UserError: files are missing or damaged.
        """
        return cls(
            load_tokenizer(folder, name), name, _read_classes(folder / CLASSES) if with_classes else []
        )

    def class_indices(self, labels: Iterable[str], split: str) -> Tensor:
        """Return the index of the class of each label: int64, N.

        Raises:
            UserError: a label is not a class.
        """
        indices = {label: index for index, label in enumerate(self.classes)}

        def index_of(label: str) -> int:
            if label not in indices:
                more = len(self.classes) - MOST_LISTED
                raise UserError(
                    f"label={label!r} of the split {split} is not a class of the model. Classes: "
                    f"{', '.join(map(repr, self.classes[:MOST_LISTED]))}{f' and {more:,} more' if more > 0 else ''}. "
                    f"Remove these texts, or add some to the training split. If these are not the classes, choose "
                    f"another column of the data."
                )
            return indices[label]

        return torch.from_numpy(np.fromiter(map(index_of, labels), np.int64))


def _read_classes(path: Path) -> list[str]:
    if not path.is_file():
        raise UserError(f"{path} is missing. Give the folder `tokenizer` of a run that has started to train.")
    try:
        classes = parse_json(read_bounded(path))
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}. Restore it from a copy.") from error
    if not fits(classes, list[str]):
        raise UserError(f"{path} is damaged: it is not a list of texts. Restore it from a copy.")
    found: list[str] = classes
    return found


class CorpusSplits(Protocol):
    """The examples of a data set in splits, as texts or with texts.

    Attributes:
        splits: the examples by the name of the split.
        counts: counts of special examples, by name.
    """

    @property
    def splits(self) -> Mapping[str, Any]: ...

    @property
    def counts(self) -> Mapping[str, int]: ...


def corpus_record(
    corpus: CorpusSplits, hashes: Mapping[str, str], tests: Mapping[str, str], fingerprint: str | None = None
) -> dict[str, Any]:
    """Return the entries of `run.json` for a corpus; see `Task.data_record`.

    Args:
        hashes: a hash of each split.
        tests: a hash of each test set.
        fingerprint: a hash of all examples; None: that of `hashes`.
    """
    return {
        "fingerprint": fingerprint or digest(hashes.items()),
        "sizes": {name: len(split) for name, split in corpus.splits.items()},
        "tests": dict(tests),
        "counts": dict(corpus.counts),
    }


class TextTask(Task):
    """A task of texts of one language with one vocabulary.

    Attributes:
        side: the side of the vocabulary, which is that of the embedding: `source` or `target`.
        tokenizer_name: of the tokenizer's files.
        framed: whether each text has `<sos>` and `<eos>` around it.
        has_classes: whether the labels of the texts are classes, which are part of the vocabulary.
        tokens: the tokens of each split, by name.
    """

    side: ClassVar[str] = "source"
    tokenizer_name: ClassVar[str] = "source"
    framed: ClassVar[bool] = False
    has_classes: ClassVar[bool] = False
    files: tuple[str, ...] = ("tokenizer",)
    parts: Parts

    vocabulary: Vocabulary
    tokens: dict[str, Ragged]

    @property
    @abstractmethod
    def corpus(self) -> Any:
        """The texts, with the code of their language."""

    def adapted(self, tokenizer: Tokenizer) -> Tokenizer:
        """Return the tokenizer of another run as this task uses it."""
        return tokenizer

    def new_tokenizer(self) -> Tokenizer:
        """Return a new tokenizer of the texts."""
        return self.parts.source_tokenizer(True) or self.parts.tokenizer()

    def fit(self, lines: Sequence[str], classes: Sequence[str]) -> Vocabulary:
        """Return the vocabulary of the training texts."""
        tokenizer = self.new_tokenizer()
        return Vocabulary.fitted(tokenizer, self.tokenizer_name, self.corpus.language, lines, classes)

    def tokenize(
        self,
        texts: Mapping[str, Sequence[str]],
        about: object,
        cache: Path,
        saved: Path | None,
        classes: Sequence[str] = (),
    ) -> str:
        """Set the vocabulary and the tokens. Return the key of both in the cache.

        Args:
            texts: those of each split, by name.
            about: see `text_key`.
            cache, saved: see `Task.load`.
            classes: those of a new vocabulary.
        """
        fitted = None if saved is None else self._read(saved / "tokenizer")
        if (initial := self.initial_tokenizers.get(self.side)) is not None:
            fitted = Vocabulary(self.adapted(initial), self.tokenizer_name, [*classes])
        if self.saves_vocabulary:
            fitted = fitted or self.fit(texts["train"], classes)
        own = self.parts.source_tokenizer(True)
        key = text_key(texts, about, self.parts.tokenizer.settings if own is None else own.options(), fitted)

        def build() -> tuple[Vocabulary, list[Ragged]]:
            vocabulary = fitted or self.fit(texts["train"], classes)
            encode, encoded = vocabulary.tokenizer.encode, Ragged.encoded if self.framed else Ragged.unframed
            return vocabulary, [encoded(encode, lines, f"Tokenizing {name}") for name, lines in texts.items()]

        entry = cached_tokens(key, [*texts], cache, build=build, load=self._read)
        self.vocabulary, self.tokens = entry.tokenizers, entry.ids
        return key

    def _read(self, folder: Path) -> Vocabulary:
        """Read the vocabulary of a run; see `Vocabulary.load`."""
        return Vocabulary.load(folder, self.tokenizer_name, self.has_classes)

    def open(self, folder: Path) -> None:
        self.vocabulary = self._read(folder / "tokenizer")
        self.new_tokenizer().check_saved(self.vocabulary.tokenizer, folder / "tokenizer")

    def save(self, folder: Path) -> None:
        self.vocabulary.save(folder / "tokenizer")

    def load_pretrained(self, model: Any) -> None:
        load_vectors(
            self.parts,
            self.side,
            getattr(model, f"{self.side}_embedding"),
            scale=model.dropout.scale,
            tokenizer=self.vocabulary.tokenizer,
            tokens=self.tokens["train"].tokens,
        )
