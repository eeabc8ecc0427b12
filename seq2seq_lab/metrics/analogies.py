"""Accuracy of analogies of words."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from seq2seq_lab.data.analogies import Analogy

SCORES_AT_A_TIME = 2**24
SYNTACTIC = "gram"


@dataclass(frozen=True)
class SectionScore:
    """The score of the questions of a section.

    Attributes:
        asked: the number of questions whose four words have vectors.
        correct: the number of these that are answered correctly.
        nearest_correct: the number of these whose answer is the word nearest to the third word alone, a trivial baseline
            (Linzen 2016, arXiv:1606.07736).
        unknown: the number of questions with a word that has no vector.
    """

    asked: int = 0
    correct: int = 0
    nearest_correct: int = 0
    unknown: int = 0

    @classmethod
    def total(cls, scores: Iterable[Self]) -> Self:
        """Return the sum of scores."""
        columns = ("asked", "correct", "nearest_correct", "unknown")
        rows = [*scores]
        return cls(*(sum(getattr(one, name) for one in rows) for name in columns))


def score_analogies(
    sections: Mapping[str, Sequence[Analogy]], words: Sequence[str], vectors_VD: npt.NDArray[np.floating[Any]]
) -> dict[str, SectionScore]:
    """Return the score of each section.

    The answer to "A is to B as C is to ?" is the word whose vector has the greatest cosine with b − a + c, where a, b and c
    have length 1. A, B and C are not answers (Mikolov et al. 2013, arXiv:1301.3781; 3CosAdd of Levy and
    Goldberg 2014). A word that has no vector is looked up in lower case.

    Args:
        sections: the questions of each section.
        words: the V words with a vector.
        vectors_VD: their vectors.
    """
    lengths_V1 = np.linalg.norm(vectors_VD, axis=1, keepdims=True)
    unit_VD = vectors_VD / np.where(lengths_V1 > 0, lengths_V1, np.float32(1))
    number_of = {word: number for number, word in enumerate(words)}
    scores = {}
    for name, questions in sections.items():
        rows = [[number_of.get(spelling(word, number_of), -1) for word in one] for one in questions]
        ids_Q4 = np.array(rows, np.int64).reshape(-1, 4)
        known_Q4 = ids_Q4[(ids_Q4 >= 0).all(1)]
        first_Q, second_Q, third_Q, answer_Q = known_Q4.T
        queries_QD = unit_VD[second_Q] - unit_VD[first_Q] + unit_VD[third_Q]
        correct, nearest = (
            int((_nearest(queries, unit_VD, known_Q4[:, :3]) == answer_Q).sum())
            for queries in (queries_QD, unit_VD[third_Q])
        )
        scores[name] = SectionScore(len(known_Q4), correct, nearest, len(ids_Q4) - len(known_Q4))
    return scores


def spelling(word: str, words: Container[str]) -> str:
    """Return a word as it is if it has a vector, else in lower case."""
    return word if word in words else word.lower()


def _nearest(
    queries_QD: npt.NDArray[np.floating[Any]],
    unit_VD: npt.NDArray[np.floating[Any]],
    excluded_QK: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return the word whose vector has the greatest product with each query, without the excluded words."""
    found = []
    size = max(1, SCORES_AT_A_TIME // len(unit_VD))
    for start in range(0, len(queries_QD), size):
        part = slice(start, start + size)
        scores_QV = queries_QD[part] @ unit_VD.T
        np.put_along_axis(scores_QV, excluded_QK[part], -np.inf, axis=1)
        found.append(scores_QV.argmax(1))
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def summaries(scores: Mapping[str, SectionScore]) -> dict[str, SectionScore]:
    """Return the scores of the semantic sections, the syntactic ones (their names begin with "gram"), and all."""
    kinds = {
        "semantic": [one for name, one in scores.items() if not name.startswith(SYNTACTIC)],
        "syntactic": [one for name, one in scores.items() if name.startswith(SYNTACTIC)],
        "total": [*scores.values()],
    }
    return {kind: SectionScore.total(own) for kind, own in kinds.items()}
