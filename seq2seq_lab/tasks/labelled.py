"""What classification, tagging and answers in a text share: texts with labels, their tokens, and the vocabulary."""

import hashlib
import logging
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from seq2seq_lab.config.slots import Part
from seq2seq_lab.data.corpus import check_corpus, load_corpus
from seq2seq_lab.data.labelled import AnyLabelledCorpus, LabelledText
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.text import describe_counts
from seq2seq_lab.data.tokenizers import UNK, Tokenizer
from seq2seq_lab.data.tokenizers.turns import TurnTokenizer
from seq2seq_lab.errors import UserError, require
from seq2seq_lab.metrics.base import digest
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.tables import sectioned_table
from seq2seq_lab.tasks.base import Parts, TaskData, refuse_dropout
from seq2seq_lab.tasks.examples import MakeBatch, TrainingExamples
from seq2seq_lab.tasks.overlap import count_known
from seq2seq_lab.tasks.settings import ExampleSettings
from seq2seq_lab.tasks.splits import TextSplit, evaluation_splits
from seq2seq_lab.tasks.text import TextTask, Vocabulary, corpus_record, warn_if_mostly_unknown
from seq2seq_lab.tasks.vectors import VectorWords, add_vector_words, check_vector_words

log = logging.getLogger(__name__)

DROPPED = "dropped_duplicates"  # a count of the corpus; see `Names.load`

LabelledSplit = TextSplit[LabelledText, Any]


class LabelledTask(TextTask):
    """A task of texts with labels.

    Attributes:
        name: the value of the group `task`.
        corpus_type: the type of its corpus.
        training_examples: use only this number of training examples, the first ones; None for all.
        vector_words: add this number of words of the file of pretrained vectors, the first ones, to the vocabulary of the
            training split; "all"; None for none.
        labelled: the tokens with the labels of each split, by name.
    """

    name: ClassVar[str]
    corpus_type: ClassVar[type[AnyLabelledCorpus]]
    has_classes = True
    sources = ("tokens", "subwords")
    seed: int
    settings: ExampleSettings
    training_examples: int | None = None
    vector_words: VectorWords = None

    labelled: dict[str, Any]

    @property
    def saves_vocabulary(self) -> bool:  # type: ignore[override]
        """See `Task`: a resumed run does not need the file of vectors."""
        return self.vector_words is not None

    @cached_property
    def corpus(self) -> AnyLabelledCorpus:
        """The texts and their labels."""
        return self.read_corpus()

    def read_corpus(self) -> Any:
        """Read the data set, with `training_examples` of its training examples.

        Raises:
            UserError: it has fewer, or as `load_corpus`.
        """
        corpus: Any = load_corpus(self.parts.dataset(), self.corpus_type, self.name)
        count, most = self.training_examples, len(corpus.train)
        if count is None:
            return corpus
        require(count <= most, "task.training_examples", count, f"at most {most:,}, those of the data set")
        return replace(corpus, train=corpus.train.first(count))

    @abstractmethod
    def build(self, vocabulary: int, classes: int) -> Any:
        """Return a new model for a vocabulary and a number of classes."""

    @abstractmethod
    def label(self, text: LabelledText, ids: Ragged, split: str) -> Any:
        """Return the tokens of a split with its labels.

        Raises:
            UserError: a text cannot be labelled.
        """

    def training(self) -> Any:
        """Return the training examples."""
        return self.labelled["train"]

    @abstractmethod
    def batches(self, examples: Any, device: torch.device) -> MakeBatch:
        """Return a function that makes batches of examples on a device."""

    def check(self) -> None:
        """Build the model without memory, so that parts that cannot be combined are refused before data is read."""
        check_corpus(self.parts.dataset(), self.corpus_type, self.name)
        refuse_dropout(self.parts.tokenizer(), self.name)
        check_vector_words(self.parts, self.new_tokenizer(), self.vector_words)
        with torch.device("meta"):
            self.build(8, 2)

    def data_record(self) -> dict[str, Any]:
        corpus = self.corpus
        hashes = {
            name: hashlib.sha256(Lines.of(text.texts).digest() + Lines.of(text.labels).digest()).hexdigest()
            for name, text in corpus.splits.items()
        }
        return corpus_record(corpus, hashes, {"test": hashes["test"]})

    def load(self, cache: Path, saved: Path | None, limit: int | None) -> TaskData:
        corpus = self.corpus
        classes = corpus.classes
        if self.has_classes and len(classes) < 2:
            raise UserError(
                f"The training split has {len(classes)} class, and {self.name} needs at least 2. Choose "
                "another column of the data, or use other data."
            )
        texts = {name: split.texts for name, split in corpus.splits.items()}
        key = self.tokenize(texts, [corpus.language, classes], cache, saved, classes)
        for name, ids in self.tokens.items():
            if int(ids.lengths.min()) == 0:
                line = texts[name][int(ids.lengths.argmin())]
                raise UserError(
                    f"{line!r} of the split {name} has no token. Remove it, or use another tokenizer."
                )
        self.labelled = {
            name: self.label(text, self.tokens[name], name) for name, text in corpus.splits.items()
        }
        held_out = {"validation": corpus.validation, "test": corpus.test}
        validation, test = evaluation_splits(LabelledSplit, held_out, self.labelled, limit)
        train = TrainingExamples(
            self.training(),
            self.batches,
            batch_size=self.settings.batch_size,
            unit="sentences",
            seed=self.seed,
        )
        return TaskData(
            train=train,
            validation=validation,
            tests=[test],
            record=self.data_record(),
            identity={"the data or the tokenizer": key},
        )

    def single_texts(self, text: LabelledText) -> Sequence[str]:
        """Return the texts of a split, the two of a pair one by one."""
        return text.texts

    def class_indices(self, text: LabelledText, split: str) -> Tensor:
        """Return the index of the class of each label of a split; see `AnyLabelledCorpus.labels`."""
        return self.vocabulary.class_indices(self.corpus.labels(text), split)

    def fit(self, lines: Sequence[str], classes: Sequence[str]) -> Vocabulary:
        """Return the vocabulary of the training texts, with the words of `vector_words`."""
        fitted = super().fit(lines, classes)
        add_vector_words(self.parts, fitted.tokenizer, self.vector_words)
        return fitted

    def model(self) -> Any:
        model = self.build(self.vocabulary.tokenizer.size, len(self.vocabulary.classes))
        for name, ids in getattr(self, "tokens", {}).items():  # none in a run that is opened
            model.encoder.check_length(int(ids.lengths.max()), f"A text of {name}")
        return model

    def describe(self) -> None:
        """Print counts of each split: labels of each class, dropped duplicates, unknown tokens, texts of the pretraining."""
        splits, corpus_counts = self.corpus.splits, self.corpus.counts
        columns = {name: Counter(self.corpus.labels(text)) for name, text in splits.items()}
        if corpus_counts.get(DROPPED):
            columns[DROPPED.replace("_", " ")] = Counter(
                {name: corpus_counts.get(f"{DROPPED}/{name}", 0) for name in self.vocabulary.classes}
            )
        counts = [
            [name, *(f"{column[name]:,}" for column in columns.values())] for name in self.vocabulary.classes
        ]
        total = ["all", *(f"{column.total():,}" for column in columns.values())]
        unknown = {name: float((ids.tokens == UNK).float().mean()) for name, ids in self.tokens.items()}
        others = [["unknown tokens", *(f"{share:.2%}" for share in unknown.values())]]
        others += self.known_rows()
        rows = [counts, [total, *([*row, *[""] * (len(columns) + 1 - len(row))] for row in others)]]
        console.print_and_log(sectioned_table(f"{self.unit} by class", ["class", *columns], rows))
        if described := describe_counts(corpus_counts):
            log.info("Counted in the corpus: %s.", described)
        warn_if_mostly_unknown(unknown["train"], "training texts")
        warn_of_leaks(corpus_counts)

    def known_rows(self) -> list[list[str]]:
        """Return a row with the number of texts of each split that the pretraining has read; none if it is not known."""
        if (hashes := self.pretraining_texts) is None:
            return []
        known = [count_known(self.single_texts(text), hashes) for text in self.corpus.splits.values()]
        return [["texts that the pretraining has read", *(f"{count:,}" for count in known)]]

    def uniform_loss(self) -> float:
        return math.log(len(self.vocabulary.classes))

    def encode(self, lines: Sequence[str]) -> Ragged:
        """Return the tokens of lines to predict.

        Raises:
            UserError: a line has no tokens.
        """
        tokens = Ragged.unframed(self.vocabulary.tokenizer.encode, lines, "Tokenizing")
        if len(lines) and int(tokens.lengths.min()) == 0:
            empty = int(tokens.lengths.argmin())
            raise UserError(f"line {empty + 1}: {lines[empty]!r} has no token. Remove the line.")
        return tokens


def warn_of_leaks(counts: Mapping[str, int]) -> None:
    """Log a warning if texts of validation or test are also training texts, with the same label."""
    if leaks := counts.get("leaked_pairs", 0):
        log.warning(
            "%s texts of validation and test are also training texts with the same label, which makes their scores too "
            "high. Remove them from the training split.",
            f"{leaks:,}",
        )


def of_pairs(parts: Parts, separated: bool) -> Parts:
    """Return the parts with tokenizers of pairs of texts; see `TurnTokenizer`."""
    tokenizer, own = parts.tokenizer, parts.source_tokenizer

    def source_tokenizer(framed: bool) -> Tokenizer | None:
        found = own(framed)
        return None if found is None else TurnTokenizer.of(found, separated)

    settings = {**tokenizer.settings, "pairs": separated}
    of_pairs = Part("tokenizer", lambda: TurnTokenizer.of(tokenizer(), separated), settings)
    return replace(parts, tokenizer=of_pairs, source_tokenizer=source_tokenizer)


def hash_of(text: LabelledText) -> str:
    """Return the hash of the examples of a split; see `Measurement.examples`."""
    return digest([*text.texts, *text.labels])
