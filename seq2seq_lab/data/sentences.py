"""The result of a data set for language models: sentences of one language in splits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seq2seq_lab.data.corpus import Columns, OneTestCorpus


class Contrast(NamedTuple):
    """The ungrammatical form of a sentence, as plain text, and the phenomenon that it violates."""

    phenomenon: str
    ungrammatical: str


@dataclass(frozen=True, slots=True)
class Sentences(Columns):
    """The sentences of one split, in the order of the text.

    `contrasts` has an ungrammatical form of each sentence that has one, if the data set has such forms. `distances` has the
    number of words from the subject to the verb that does not agree in this form; None for forms of another kind.
    `documents` has the number of the document of each sentence; the sentences of a document follow each other. `tags` has
    the tags of the words of each sentence, separated by spaces.
    """

    text_columns = ("lines",)

    lines: Sequence[str]
    contrasts: Sequence[Contrast | None] | None = None
    distances: Sequence[int | None] | None = None
    documents: Sequence[int] | None = None
    tags: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class SentenceCorpus(OneTestCorpus[Sentences]):
    """Sentences of one language in splits."""
