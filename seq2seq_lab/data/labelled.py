"""The result of a data set for classification: texts with labels, in splits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.text import SPLITS, SplitName
from seq2seq_lab.errors import UserError


@dataclass(frozen=True, slots=True)
class LabelledText:
    """The texts of one split: `labels[i]` is the class of `texts[i]`.

    `deciding` are the indices of the words (separated by white space) that decide the class of each text, if
    the data set provides them.
    """

    texts: Sequence[str]
    labels: Sequence[str]
    deciding: Sequence[frozenset[int]] | None = None

    def __post_init__(self) -> None:
        assert len(self.texts) == len(self.labels)
        assert self.deciding is None or len(self.deciding) == len(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def first(self, count: int) -> "LabelledText":
        """Return the first texts."""
        deciding = None if self.deciding is None else self.deciding[:count]
        return LabelledText(self.texts[:count], self.labels[:count], deciding)


@dataclass(frozen=True, slots=True)
class LabelledCorpus:
    """Texts with labels in splits.

    Attributes:
        language: the code of the language; "und" if the texts are in several languages.
        counts: numbers of special texts, by name; `NAME/CLASS` is the number of one class.
    """

    language: str
    train: LabelledText
    validation: LabelledText
    test: LabelledText
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def splits(self) -> Mapping[str, LabelledText]:
        """The splits by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def classes(self) -> list[str]:
        """The labels of the training split, in alphabetical order."""
        return sorted(set(self.train.labels))


Example = tuple[str, str, frozenset[int] | None]
"""A text, its label and the indices of its deciding words."""


def collect_labelled(
    language: str, examples: Iterable[tuple[SplitName, Example]], counts: Mapping[str, int] | None = None
) -> LabelledCorpus:
    """Return the corpus of examples, given with the names of their splits.

    Args:
        counts: see `LabelledCorpus`; complete when the examples have been read.

    Raises:
        UserError: a split has no example.
    """
    parts: dict[SplitName, list[Example]] = {split: [] for split in SPLITS}
    for split, example in examples:
        parts[split].append(example)
    if empty := [split for split, part in parts.items() if not part]:
        raise UserError(
            f"No texts for {', '.join(empty)}. Give the data set more texts, or increase the shares, for example "
            f"dataset.validation_share=0.2 dataset.test_share=0.2."
        )
    train, validation, test = (_labelled(parts[split]) for split in SPLITS)
    return LabelledCorpus(language, train, validation, test, dict(counts or {}))


def _labelled(examples: Sequence[Example]) -> LabelledText:
    deciding = [words for _, _, words in examples if words is not None]
    return LabelledText(
        Lines.of(text for text, _, _ in examples),
        Lines.of(label for _, label, _ in examples),
        deciding or None,
    )
