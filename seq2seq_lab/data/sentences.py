"""The result of a data set for language models: sentences of one language in splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Contrast(NamedTuple):
    """The ungrammatical form of a sentence, as plain text, and the phenomenon that it violates."""

    phenomenon: str
    ungrammatical: str


@dataclass(frozen=True, slots=True)
class Sentences:
    """The sentences of one split, in the order of the text.

    `contrasts` has an ungrammatical form of each sentence that has one, if the data set has such forms.
    """

    lines: Sequence[str]
    contrasts: Sequence[Contrast | None] | None = None

    def __post_init__(self) -> None:
        assert self.contrasts is None or len(self.contrasts) == len(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def first(self, count: int) -> "Sentences":
        """Return the first sentences."""
        contrasts = None if self.contrasts is None else self.contrasts[:count]
        return Sentences(self.lines[:count], contrasts)


@dataclass(frozen=True, slots=True)
class SentenceCorpus:
    """Sentences of one language in splits. `counts` are numbers of special lines, by name."""

    language: str
    train: Sentences
    validation: Sentences
    test: Sentences
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def splits(self) -> Mapping[str, Sentences]:
        """The splits by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}
