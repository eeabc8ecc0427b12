"""Metrics of answers: exact match and F1 of SQuAD (Rajpurkar 2016, arXiv:1606.05250, §6.1; 2018, arXiv:1806.03822)."""

import re
import string
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from seq2seq_lab.data.words import is_unspaced, words
from seq2seq_lab.metrics.base import Array, Metric, Share

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


class Answered(Protocol):
    """The answers to N questions as texts; an empty text, or no gold answer, is that the text has no answer."""

    @property
    def answers(self) -> Sequence[str]: ...

    @property
    def gold(self) -> Sequence[Sequence[str]]:
        """The gold answers of each question; any of them is right."""
        ...


def normalize(text: str) -> str:
    """Return the lower-cased words of an answer without ASCII punctuation and English articles, separated by spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(answer: str, gold: str) -> float:
    """Return 1 if the normalized texts are equal, else 0."""
    return float(normalize(answer) == normalize(gold))


def word_f1(answer: str, gold: str) -> float:
    """Return the F1 of the normalized words, as multisets; if one text has none, whether both have none.

    In scripts without a space between words, each letter is a word, as in MLQA (Lewis 2020, arXiv:1910.07475).
    """
    found, true = ([text[start:end] for start, end in words(text)] for text in map(normalize, (answer, gold)))
    if not found or not true:
        return float(found == true)
    return 2 * (Counter(found) & Counter(true)).total() / (len(found) + len(true))


class AnswerMetric(Share):
    """The mean over the questions of the best score of the answer with one of the gold answers.

    It equals the official evaluation of SQuAD 2.0, divided by 100. For SQuAD 1.1 the official evaluation differs only for
    answers that consist of punctuation and articles.
    """

    @staticmethod
    @abstractmethod
    def score(answer: str, gold: str) -> float:
        """Return the score with one gold answer."""

    def rows(self, outputs: Answered) -> Array:
        """See `Metric.rows`."""
        rows = []
        for answer, answers in zip(outputs.answers, outputs.gold, strict=True):
            gold = [one for one in answers if normalize(one)] or [""]
            rows.append([max(self.score(answer, one) for one in gold), 1.0])
        return np.array(rows, np.float64)

    def signature(self, outputs: Answered) -> str:
        """See `Metric.signature`."""
        letters = "|words:letters" if any(map(is_unspaced, outputs.gold)) else ""
        return f"normalization:SQuAD|questions:all{letters}"


class AnswerExactMatch(AnswerMetric):
    """The share of answers that are equal to a gold answer; see `exact_match`."""

    name, label, score = "answer_exact_match", "exact match", staticmethod(exact_match)


class AnswerF1(AnswerMetric):
    """The mean F1 of the words of the answers; see `word_f1`."""

    name, label, score = "answer_f1", "F1 of words", staticmethod(word_f1)


ANSWER_METRICS: tuple[Metric, ...] = (AnswerExactMatch(), AnswerF1())
