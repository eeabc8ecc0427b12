"""The result of a data set for classification and tagging: texts with labels, in splits."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from seq2seq_lab.data.corpus import Columns, OneTestCorpus, ParallelText
from seq2seq_lab.data.deduplication import count_repeats
from seq2seq_lab.data.headers import check_columns
from seq2seq_lab.data.lines import LinesBuilder
from seq2seq_lab.data.local_files import check_encoding, find_file
from seq2seq_lab.data.tables import Rows, value_of
from seq2seq_lab.data.text import (
    EMPTY_LINE,
    SPLITS,
    SplitName,
    check_shares,
    larger_shares,
    new_counts,
    split_by_hash,
)
from seq2seq_lab.data.tokenizers.turns import TURN
from seq2seq_lab.errors import UserError


@dataclass(frozen=True, slots=True)
class LabelledText(Columns):
    """The texts of one split: `labels[i]` is the class of `texts[i]`, or the tags of its words, separated by spaces.

    `deciding` are the indices of the words (separated by white space) that decide the class of each text, if
    the data set provides them.
    """

    text_columns = ("texts", "labels")

    texts: Sequence[str]
    labels: Sequence[str]
    deciding: Sequence[frozenset[int]] | None = None


@dataclass(frozen=True, slots=True)
class AnyLabelledCorpus(OneTestCorpus[LabelledText]):
    """Texts with labels in splits."""

    def labels(self, text: LabelledText) -> Iterable[str]:
        """Return the labels of a split, one for each thing that is labelled."""
        return text.labels

    @property
    def classes(self) -> list[str]:
        """The labels of the training split, in alphabetical order."""
        return sorted(set(self.labels(self.train)))

    def problem_of(self, split: LabelledText, index: int) -> str | None:
        """See `OneTestCorpus.problem_of`."""
        deciding, words = split.deciding and split.deciding[index], split.texts[index].split()
        if deciding and not all(0 <= word < len(words) for word in deciding):
            return f"deciding={sorted(deciding)} are not indices of the {len(words)} words of the text."
        return None


@dataclass(frozen=True, slots=True)
class LabelledCorpus(AnyLabelledCorpus):
    """Texts with one label each."""


@dataclass(frozen=True, slots=True)
class PairCorpus(LabelledCorpus):
    """Pairs of texts with one label each; a tab separates the two texts."""

    def problem_of(self, split: LabelledText, index: int) -> str | None:
        """See `OneTestCorpus.problem_of`."""
        if (text := split.texts[index]).count(TURN) != 1:
            return f"{text!r:.80} is not two texts with one tab between them."
        return LabelledCorpus.problem_of(self, split, index)  # super() fails in a dataclass with slots


@dataclass(frozen=True, slots=True)
class TaggedCorpus(AnyLabelledCorpus):
    """Texts with a label for each word. The words of a text are separated by single spaces."""

    def labels(self, text: LabelledText) -> Iterable[str]:
        """Return the tags of all words of a split."""
        return (tag for line in text.labels for tag in line.split())

    @property
    def classes(self) -> list[str]:
        """The tags of all splits, in alphabetical order: a rare tag may be missing in the training split."""
        return sorted({tag for split in self.splits.values() for tag in self.labels(split)})

    def problem_of(self, split: LabelledText, index: int) -> str | None:
        """See `OneTestCorpus.problem_of`."""
        words, tags = split.texts[index].split(), split.labels[index].split()
        if split.texts[index] != " ".join(words):
            return f"the words of {split.texts[index]!r:.80} are not separated by single spaces."
        if len(words) != len(tags):
            return f"{len(words)} words, but {len(tags)} tags: {split.labels[index]!r:.80}."
        return AnyLabelledCorpus.problem_of(self, split, index)


Kind = TypeVar("Kind", bound=AnyLabelledCorpus)
Example = tuple[str, str, frozenset[int] | None]
"""A text, its label and the indices of its deciding words."""


def collect_labelled(
    language: str,
    examples: Iterable[tuple[SplitName, Example]],
    shares: Mapping[str, float],
    counts: Mapping[str, int] | None = None,
    kind: type[Kind] = LabelledCorpus,  # type: ignore[assignment]
) -> Kind:
    """Return the corpus of examples, given with the names of their splits.

    Args:
        shares: of the splits that are taken from the training data, for the error.
        kind: the type of the corpus.
        counts: see `LabelledCorpus`; complete when the examples have been read.

    Raises:
        UserError: a split has no example.
    """
    parts = {split: _SplitBuilder() for split in SPLITS}
    for split, example in examples:
        parts[split].append(example)
    if empty := [split for split, part in parts.items() if not part.texts]:
        texts = sum(len(part.texts) for part in parts.values())
        better = larger_shares({name: share for name, share in shares.items() if name in empty}, 0.2)
        raise UserError(
            f"No texts for {', '.join(empty)}: the data set has {texts:,} in all. Give it more"
            f"{f', or increase the shares, for example {better}' if better else ''}."
        )
    train, validation, test = (parts[split].build() for split in SPLITS)
    return kind(language, train, validation, test, dict(counts or {}))


def collect_counted(
    language: str,
    examples: Iterable[tuple[SplitName, Example]],
    shares: Mapping[str, float],
    counts: Counter[str],
    kind: type[Kind] = LabelledCorpus,  # type: ignore[assignment]
) -> Kind:
    """As `collect_labelled`, with the counts of `count_repeats` for texts and labels."""
    corpus = collect_labelled(language, examples, shares, kind=kind)
    train, *held_out = (ParallelText(split.texts, split.labels) for split in corpus.splits.values())
    count_repeats(train, held_out, counts)
    return replace(corpus, counts=dict(counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledFiles(ABC):
    """A data set of files.

    Args:
        train: the file of the training split, plain or compressed.
        validation: that of the validation split; None to take a share of the training examples.
        test: the same.
        encoding: of the files; see `read_lines`.
        language: the code of the language of the files.
        validation_share: the share of the training examples that is used for validation, by a hash of the group of each.
        test_share: the share that is used for the test.

    Raises:
        UserError: a value is out of range.
    """

    train: str | None
    validation: str | None
    test: str | None
    encoding: str | None
    language: str
    validation_share: float
    test_share: float

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        given = [name for name in SPLITS if getattr(self, name) is not None]
        validation, test = (0.0 if name in given else share for name, share in self.shares.items())
        check_shares(validation, test, given)

    @property
    def shares(self) -> dict[str, float]:
        """The shares of validation and test."""
        return {"validation": self.validation_share, "test": self.test_share}

    @abstractmethod
    def examples(self, source: Any, counts: Counter[str]) -> Iterable[tuple[str, Example]]:
        """Return the examples of a source, each with the text of its group, and count special ones.

        Examples of the same group are in the same split.
        """

    def read(self, kind: type[Kind], others: Mapping[SplitName, object] | None = None) -> Kind:
        """Return the corpus of the files. Its counts include those of `count_repeats` for texts and labels.

        Args:
            kind: the type of the corpus.
            others: the sources of the splits without a file.

        Raises:
            UserError: a file does not exist, a split has no example, or as `examples`.
        """
        counts = new_counts()
        examples = self._split_examples(counts, others or {})
        return collect_counted(self.language, examples, self.shares, counts, kind)

    def _split_examples(
        self, counts: Counter[str], others: Mapping[SplitName, object]
    ) -> Iterator[tuple[SplitName, Example]]:
        """Yield the examples of files, and of other sources, with the names of their splits."""
        files = {name: file for name in SPLITS if (file := getattr(self, name)) is not None}
        sources = {**others, **{name: find_file(f"dataset.{name}", file) for name, file in files.items()}}
        shares = [0.0 if name in sources else share for name, share in self.shares.items()]
        for name in SPLITS:
            if name in sources:
                found = False
                for group, example in self.examples(sources[name], counts):
                    found = True
                    yield (split_by_hash(group, *shares) if name == "train" else name), example
                if name in files and not found:
                    raise UserError(f"dataset.{name}={files[name]} has no example. Give another file.")


def refuse_without_train(dataset: LabelledFiles) -> None:
    """Raise `UserError` for a file of validation or test without one of training, which is generated then."""
    for name, file in (("validation", dataset.validation), ("test", dataset.test)):
        if dataset.train is None and file is not None:
            raise UserError(f"dataset.{name}={file} needs dataset.train=FILE. Set it too.")


def read_columns(rows: Rows, columns: Sequence[str | int], remedy: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the location of each row of a table and its values in these columns; numbers and booleans become texts.

    Args:
        columns: names in the first line of a table, or in the rows of JSON and Parquet; numbers from 1 for a table without a
            line of names.
        remedy: what to do about a missing column, or a missing value.

    Raises:
        UserError: names the line and what is wrong with it.
    """
    wanted, width, checked = [column - 1 for column in columns if isinstance(column, int)], 0, False
    for location, row, problem in rows:
        if problem:
            raise UserError(f"{location}: {problem}. Correct or remove the row.")
        if isinstance(row, dict):
            if not checked:
                check_columns(location, [*map(str, columns)], [*row], remedy)
                checked = True
            values: list[object] = [value_of(row, str(column)) for column in columns]
        else:
            cells = [*row]
            if not width and not wanted:  # the line of names
                check_columns(location, [*map(str, columns)], cells, remedy)
                wanted, width = [cells.index(str(column)) for column in columns], len(cells)
                continue
            if len(cells) == 1 and not cells[0].strip():
                raise UserError(f"{location}: {EMPTY_LINE}. Remove it.")
            width = width or len(cells)
            if len(cells) != width or max(wanted) >= width:
                raise UserError(
                    f"{location}: {len(cells)} columns instead of {max(width, 1 + max(wanted))}. Correct the row. {remedy}"
                )
            values = [cells[i] for i in wanted]
        for column, value in zip(columns, values, strict=True):
            if value is None:
                raise UserError(f"{location}: {column}=None is missing. Correct or remove the row. {remedy}")
            if not isinstance(value, str | int | float):
                raise UserError(
                    f"{location}: {column}={value!r:.80} is neither a text nor a number. Correct or remove the row."
                )
        yield location, [str(value) for value in values]


class _SplitBuilder:
    """Collects the examples of a split, without an object for each."""

    def __init__(self) -> None:
        self.texts, self.labels = LinesBuilder(), LinesBuilder()
        self.deciding: list[frozenset[int]] = []

    def append(self, example: Example) -> None:
        text, label, deciding = example
        self.texts.append(text)
        self.labels.append(label)
        if deciding is not None:
            self.deciding.append(deciding)

    def build(self) -> LabelledText:
        return LabelledText(self.texts.build(), self.labels.build(), self.deciding or None)
