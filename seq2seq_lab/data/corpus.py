"""The result of a data set: pairs of plain text in splits, with gold word alignments if they are known."""

import inspect
from collections.abc import Mapping, Sequence, Set, Sized
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from seq2seq_lab.config.schema import file_keys, origin, values_with
from seq2seq_lab.config.slots import imported
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.errors import UserError

Kind = TypeVar("Kind")
Split = TypeVar("Split", bound="Columns")

# An unknown token in decoded text (SentencePiece's convention). BLEU, chrF and TER count it as one wrong token;
# "<unk>" would be three wrong tokens under sacreBLEU's tokenization.
UNKNOWN = "\N{DOUBLE QUESTION MARK}"


# Of the parts of speech of Universal Dependencies, those of content words; the others, except PUNCT, are function words.
CONTENT_CLASSES = frozenset(("ADJ", "ADV", "NOUN", "NUM", "PROPN", "VERB"))


@dataclass(frozen=True, slots=True)
class Gold:
    """The gold word alignment of one sentence pair.

    Attributes:
        source_words, target_words: the words. Each is a substring of the plain sentence, in this order.
        links: the sure links, pairs (source word, target word) counted from 0: S in the terms of Och and Ney 2003.
        possible: further links that are possible but not sure: P without S.
        target_classes: the part of speech of each target word, by the tags of Universal Dependencies; words that ask a
            question, such as "où", are PRON and those of negation PART. None if it is not known.
        target_agreement: the gender (m, f) and number (sg, pl) with which each target word agrees, such as `f.pl`; finite
            verbs and pronouns have a number only, and words that agree with nothing an empty text. None if not known.
        source_subjects, target_subjects: the positions of each finite verb and of the head of its subject. None if not
            known.
    """

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    links: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]] = frozenset()
    target_classes: tuple[str, ...] | None = None
    target_agreement: tuple[str, ...] | None = None
    source_subjects: tuple[tuple[int, int], ...] | None = None
    target_subjects: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        for column in (self.target_classes, self.target_agreement):
            if column is not None and len(column) != len(self.target_words):
                raise UserError(
                    f"Gold: {column=} has {len(column)} values for the {len(self.target_words)} words of "
                    f"target_words={self.target_words}. Give each target word one value."
                )


def word_spans(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Return the (start, end) character spans of `words`, found in `text` from left to right.

    Each word is the first occurrence after the previous word, so `words` should omit only punctuation: "a" would be
    found inside an omitted name.

    Raises:
        ValueError: a word is not in the rest of `text`.
    """
    spans = []
    end = 0
    for word in words:
        start = text.find(word, end)
        if start < 0:
            raise ValueError(f"the word {word!r} is not in {text!r} after character {end}")
        end = start + len(word)
        spans.append((start, end))
    return spans


@dataclass(frozen=True, slots=True)
class Columns:
    """The examples of one split: columns of equal length; None for a column that the data set does not provide.

    Attributes:
        text_columns: the names of the columns whose values are texts.

    Raises:
        UserError: the columns have no length, or different ones.
    """

    text_columns: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        kind, columns = type(self).__name__, self._columns()
        for name, column in columns.items():
            needed = column is not None or name in self.text_columns
            if needed and not hasattr(column, "__len__"):
                raise UserError(
                    f"{kind}: {name} is of type {type(column).__name__}. Give a sequence, such as a list."
                )
        check_lengths(kind, {name: column for name, column in columns.items() if column is not None})

    def __len__(self) -> int:
        return next(len(column) for column in self._columns().values() if column is not None)

    def first(self, count: int) -> Self:
        """Return the first examples."""
        return replace(self, **{name: column and column[:count] for name, column in self._columns().items()})

    def select(self, indices: Sequence[int]) -> Self:
        """Return the examples at these indices."""
        columns = self._columns().items()
        return replace(self, **{name: column and [column[i] for i in indices] for name, column in columns})

    def _columns(self) -> dict[str, Sequence[Any] | None]:
        return {column.name: getattr(self, column.name) for column in fields(self)}


def check_lengths(kind: str, columns: Mapping[str, Sized]) -> None:
    """Refuse columns of different lengths.

    Args:
        kind: the name of the type that has them.
    """
    lengths = {name: len(column) for name, column in columns.items()}
    if len({*lengths.values()}) != 1:
        sizes = ", ".join(f"{name}: {length:,}" for name, length in lengths.items())
        raise UserError(
            f"{kind}: the columns have different lengths ({sizes}). Give each column a value per example."
        )


@dataclass(frozen=True, slots=True)
class ParallelText(Columns):
    """Sentence pairs of one split: `source[i]` corresponds to `target[i]`, and to `gold[i]` and so on if they are known.

    `phenomena` are the names of the phenomena in a pair, such as "negation", if the data set has them. Scores are also
    reported for each phenomenon. `similarity` says how similar the source of a held-out pair is to the training sources; see
    `near_duplicates`. Pairs with the same id in `clusters`, such as those of one dialogue, are not independent; None:
    pairs of one source sentence are a cluster. Confidence intervals and tests resample clusters. `lengths` are the numbers
    of source and target tokens, for the data sets whose accuracy is also reported by length.
    """

    text_columns = ("source", "target")

    source: Sequence[str]
    target: Sequence[str]
    gold: Sequence[Gold] | None = None
    phenomena: Sequence[frozenset[str]] | None = None
    similarity: Sequence[str] | None = None
    clusters: Sequence[int] | None = None
    lengths: Sequence[tuple[int, int]] | None = None


def exact_pairs(
    pairs: Sequence[tuple[str, str]], phenomena: Sequence[frozenset[str]] | None = None
) -> ParallelText:
    """Return pairs of tokens separated by spaces, whose accuracy is also reported by length."""
    source, target = [source for source, _ in pairs], [target for _, target in pairs]
    lengths = [(len(source.split()), len(target.split())) for source, target in pairs]
    return ParallelText(source, target, phenomena=phenomena, lengths=lengths)


@dataclass(frozen=True, slots=True)
class Corpus:
    """A parallel corpus in splits. `counts` are those of `new_counts` and `with_near_duplicates`."""

    source_language: str
    target_language: str
    train: ParallelText
    validation: ParallelText
    tests: Mapping[str, ParallelText]
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def splits(self) -> Mapping[str, ParallelText]:
        """The splits by name."""
        return {"train": self.train, "validation": self.validation, **self.tests}


@dataclass(frozen=True, slots=True)
class OneTestCorpus(Generic[Split]):
    """Examples in three splits.

    Attributes:
        language: the code of the language; "und" if the texts are in several languages.
        counts: numbers of special examples, by name; `NAME/CLASS` is the number of one class.
    """

    language: str
    train: Split
    validation: Split
    test: Split
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def splits(self) -> Mapping[str, Split]:
        """The splits by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    def problem_of(self, split: Split, index: int) -> str | None:
        """Return what is wrong with an example of a custom data set, whose text columns are texts; None: nothing is."""
        return None


class Dataset(Protocol):
    """A source of a corpus; each `conf/dataset/*.yaml` names one."""

    def load(self) -> Any:
        """Read or generate the corpus, of a type that the task uses: `Corpus` for translation.

        Raises `UserError` for errors that the user can correct.
        """
        ...


def load_corpus(dataset: Dataset, kind: type[Kind], task: str) -> Kind:
    """Return the corpus of a data set.

    Args:
        kind: the type of corpus that the task uses.
        task: the value of the group `task`, for the message.

    Raises:
        UserError: the data set has another type of corpus or cannot be read, or a custom one has an invalid example.
    """
    corpus = dataset.load()
    if not isinstance(corpus, kind):
        raise _other_corpus(dataset, type(corpus), kind, task)
    if type(dataset).__module__.startswith("seq2seq_lab."):  # checked where they are read, and by tests
        return corpus
    where = f"The data set {type(dataset).__name__}"
    if isinstance(corpus, Corpus):
        _check_tests(corpus.tests, where)
    if isinstance(corpus, Corpus | OneTestCorpus):
        for name, split in corpus.splits.items():
            _check_split(split, f"{where}, {name}")
            if isinstance(corpus, OneTestCorpus):
                for index in range(len(split)):
                    if (problem := corpus.problem_of(split, index)) is not None:
                        raise UserError(f"{where}, {name}[{index}]: {problem} Correct or remove the example.")
    return corpus


def _check_tests(tests: object, where: str) -> None:
    """Refuse test sets that are not named, or that have the name of another split."""
    if not isinstance(tests, Mapping):
        raise UserError(
            f'{where}: tests is of type {type(tests).__name__}. Give the test sets by name: {{"test": ParallelText(…)}}.'
        )
    for name in tests:
        if not isinstance(name, str) or name in ("train", "validation"):
            raise UserError(
                f"{where}: {name!r} is not allowed as the name of a test set. Use another text, such as 'test'."
            )


def _check_split(split: object, where: str) -> None:
    """Refuse a split with an example that is not what its columns hold."""
    if not isinstance(split, Columns):
        raise UserError(
            f"{where} is of type {type(split).__name__}. Give the examples of a split, such as a ParallelText."
        )
    for column in split.text_columns:
        texts = getattr(split, column)
        if isinstance(texts, Lines):
            continue
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise UserError(
                    f"{where}, {column}[{index}]={text!r:.80} is of type {type(text).__name__}. Give a text; the tokenizer "
                    f"splits it into tokens."
                )
    if isinstance(split, ParallelText) and split.gold is not None:
        for index, (gold, source, target) in enumerate(
            zip(split.gold, split.source, split.target, strict=True)
        ):
            if (problem := _gold_problem(gold, source, target)) is not None:
                raise UserError(f"{where}, gold[{index}]: {problem} Correct the gold alignment of this pair.")


def _gold_problem(gold: object, source: str, target: str) -> str | None:
    """Return what is wrong with the gold alignment of a pair, or None."""
    if not isinstance(gold, Gold):
        return f"{gold!r:.80} is not a Gold."
    links: tuple[Any, ...] = gold.links, gold.possible
    if not all(isinstance(found, Set) for found in links):
        return f"links={gold.links}, possible={gold.possible} are not two sets of pairs."
    for side, text, words in (("source", source, gold.source_words), ("target", target, gold.target_words)):
        try:
            word_spans(text, words)
        except ValueError as error:
            return f"{side}_words={words}: {error}."
    sizes = len(gold.source_words), len(gold.target_words)
    pairs = {
        "links": (gold.links, sizes),
        "possible": (gold.possible, sizes),
        "source_subjects": (gold.source_subjects or (), (sizes[0], sizes[0])),
        "target_subjects": (gold.target_subjects or (), (sizes[1], sizes[1])),
    }
    for name, (found, (first, second)) in pairs.items():
        for i, k in found:
            if not (0 <= i < first and 0 <= k < second):
                return f"{name} has the pair ({i}, {k}), but there are {sizes[0]} source and {sizes[1]} target words."
    return None


def check_corpus(dataset: Dataset, kind: type, task: str) -> None:
    """Refuse a data set with another type of corpus, if that is known without reading it; see `load_corpus`."""
    if (found := corpus_type(dataset)) is not None and not issubclass(found, kind):
        raise _other_corpus(dataset, found, kind, task)


def corpus_type(dataset: Dataset) -> type | None:
    """Return the type of the corpus of a data set: its `corpus_type` or the annotation of `load`; None without them."""
    found = getattr(dataset, "corpus_type", _loaded_type(type(dataset)))
    return found if isinstance(found, type) else None


def _loaded_type(dataset: type[Dataset]) -> Any:
    return inspect.get_annotations(dataset.load).get("return")


def _other_corpus(dataset: Dataset, found: type, kind: type, task: str) -> UserError:
    known = ", ".join(f"dataset={name}" for name in data_sets_of(kind))
    return UserError(
        f"The data set {type(dataset).__name__} has a corpus of type {found.__name__}, but task={task} uses a "
        f"{kind.__name__} ({kind.__module__}). Choose another task, or another data set{known and f': {known}'}."
    )


def data_sets_of(kind: type) -> list[str]:
    """Return the values of `dataset` in conf/ with a corpus of this type, without those that include another value."""
    names = [name for name in values_with("dataset", "_target_") if origin("dataset", name) == name]
    loaded = {
        name: _loaded_type(imported("dataset", file_keys("dataset", name)["_target_"])) for name in names
    }
    return [name for name, found in loaded.items() if isinstance(found, type) and issubclass(found, kind)]
