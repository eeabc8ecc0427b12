"""Metrics of tags: accuracy of words, and F1 of the entities that BIO tags mark."""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from seq2seq_lab.metrics.base import Array, Metric, Share
from seq2seq_lab.metrics.significance import ratio

Words = Literal["all", "ambiguous", "unseen"]
PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}
"""The position of a word in an entity, by the first letter of its tag: beginning, inside, end or single; L, U: BILOU."""


class Tags(Protocol):
    """The tags of the words of N sentences, as indices of `classes`, and by sentence which words are of a kind."""

    @property
    def classes(self) -> Sequence[str]: ...

    @property
    def labels(self) -> Sequence[npt.NDArray[np.int64]]: ...

    @property
    def predicted(self) -> Sequence[npt.NDArray[np.int64]]: ...

    @property
    def ambiguous(self) -> Sequence[npt.NDArray[np.bool_]]:
        """The words that have several tags in the training split."""
        ...

    @property
    def unseen(self) -> Sequence[npt.NDArray[np.bool_]]:
        """The words that are not in the training split."""
        ...


class TokenAccuracy(Share):
    """The share of words with the right tag.

    Args:
        words: which words count; `ambiguous` and `unseen` see `Tags`.
    """

    def __init__(self, words: Words = "all") -> None:
        self.words = words
        self.name = "token_accuracy" if words == "all" else f"{words}_accuracy"
        self.label = "token accuracy" if words == "all" else f"accuracy of {words} words"

    def unavailable(self, outputs: Tags) -> str | None:
        """See `Metric.unavailable`."""
        if self.words == "all" or any(mask.any() for mask in self._chosen(outputs)):
            return None
        return f"there are no {self.words} words"

    def rows(self, outputs: Tags) -> Array:
        """See `Metric.rows`."""
        rows = zip(outputs.labels, outputs.predicted, self._chosen(outputs), strict=True)
        return np.array(
            [[(true == found)[chosen].sum(), chosen.sum()] for true, found, chosen in rows], np.float64
        )

    def _chosen(self, outputs: Tags) -> Sequence[npt.NDArray[np.bool_]]:
        if self.words == "all":
            return [np.ones(len(row), np.bool_) for row in outputs.labels]
        return outputs.ambiguous if self.words == "ambiguous" else outputs.unseen


class EntityF1(Share):
    """Micro-averaged F1 of entities: a right one has the type, the first and the last word of a gold entity.

    It equals the F1 of conlleval (Tjong Kim Sang and Buchholz 2000) and of seqeval; see `entities`.
    """

    name, label = "entity_f1", "entity F1"

    def unavailable(self, outputs: Tags) -> str | None:
        """See `Metric.unavailable`."""
        return (
            None
            if marks_entities(outputs.classes)
            else "the tags are not those of entities (B-TYPE, I-TYPE, O)"
        )

    def rows(self, outputs: Tags) -> Array:
        """See `Metric.rows`."""
        rows = []
        for true, found in zip(outputs.labels, outputs.predicted, strict=True):
            gold, predicted = (entities([outputs.classes[i] for i in tags]) for tags in (true, found))
            rows.append([len(gold & predicted), len(gold) + len(predicted)])
        return np.array(rows, np.float64)

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return 2 * ratio(totals_K)

    def signature(self, outputs: Tags) -> str:
        """See `Metric.signature`."""
        return "average:micro|chunks:conlleval"


def marks_entities(classes: Sequence[str]) -> bool:
    """Return whether all tags are `O` or a letter of `PREFIXES` with a hyphen and a type; they cannot all be `O`."""
    inside = [name for name in classes if name != "O"]
    return bool(inside) and all(name[0] in PREFIXES and name[1:2] == "-" for name in inside)


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return (type, first word, last word) of the entities of a sentence, as conlleval divides it.

    An entity begins at B and S, after O, E and S, and where the type changes; so `I-PER` after `O` begins one.
    """
    found, start, before, type_before = set(), 0, "O", ""
    for i, tag in enumerate([*tags, "O"]):
        letter, kind = ("O", "") if tag == "O" else (PREFIXES[tag[0]], tag[2:])
        changes = kind != type_before
        if before != "O" and (before in "ES" or letter in "BSO" or changes):
            found.add((type_before, start, i - 1))
        if letter != "O" and (letter in "BS" or before in "OES" or changes):
            start = i
        before, type_before = letter, kind
    return found


TAGGING_METRICS: tuple[Metric, ...] = (
    TokenAccuracy(),
    TokenAccuracy("ambiguous"),
    TokenAccuracy("unseen"),
    EntityF1(),
)
