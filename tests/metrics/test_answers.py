"""Exact match and F1 of answers against hand-made values and a slow reference of the evaluation of SQuAD 2.0."""

import string
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seq2seq_lab.metrics.answers import ANSWER_METRICS, AnswerExactMatch, AnswerF1, normalize
from seq2seq_lab.metrics.registry import BUILT_IN

WORDS = [
    "the",
    "The",
    "a",
    "an",
    "cat",
    "Cat.",
    "dog",
    "dog's",
    "-",
    "1,000",
    "Athens",
    "theatre",
    "été",
    "«",
]


def outputs_of(answers: list[str], gold: list[list[str]]) -> Any:
    return SimpleNamespace(answers=answers, gold=gold)


def reference_words(text: str) -> list[str]:
    """Return the words of an answer: in lower case, without punctuation, then without articles."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return [word for word in kept.split() if word not in ("a", "an", "the")]


def reference_f1(found: list[str], true: list[str]) -> float:
    if not found or not true:
        return float(found == true)
    rest, same = [*true], 0
    for word in found:
        if word in rest:
            rest.remove(word)
            same += 1
    if same == 0:
        return 0.0
    precision, recall = same / len(found), same / len(true)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "f1"),
    [
        ("The  cat.", ["a Cat"], 1, 1),
        ("cat", ["dog", "the cat"], 1, 1),
        ("black cat", ["cat"], 0, 2 / 3),
        ("cat cat", ["cat"], 0, 2 / 3),
        ("theatre", ["atre"], 0, 0),
        ("", [], 1, 1),
        ("cat", [], 0, 0),
        ("", ["cat"], 0, 0),
        ("", ["the"], 1, 1),  # a gold answer without words is left out
        ("cat", ["the", "cat"], 1, 1),
        ("北京市", ["北京"], 0, 4 / 5),
        ("in 北京", ["在 北京 2008"], 0, 4 / 7),
        ("วัดโพธิ์", ["วัด"], 0, 4 / 7),
        ("नई दिल्ली", ["दिल्ली"], 0, 2 / 3),
    ],
)
def test_scores_of_one_answer(answer: str, gold: list[str], exact: float, f1: float) -> None:
    outputs = outputs_of([answer], [gold])
    assert AnswerExactMatch().rows(outputs).tolist() == [[exact, 1]]
    assert AnswerF1().rows(outputs).tolist() == [[pytest.approx(f1), 1]]


def test_scores_equal_those_of_a_slow_reference() -> None:
    rng = np.random.default_rng(1)

    def text(least: int) -> str:
        return " ".join(rng.choice(WORDS, rng.integers(least, 5)))

    answers = [text(0) for _ in range(300)]
    gold = [[text(1) for _ in range(rng.integers(0, 4))] for _ in answers]
    exact, f1 = [], []
    for answer, every in zip(answers, gold, strict=True):
        words = [reference_words(one) for one in every]
        words = [one for one in words if one] or [[]]
        exact.append(float(reference_words(answer) in words))
        f1.append(max(reference_f1(reference_words(answer), one) for one in words))
    outputs = outputs_of(answers, gold)
    assert AnswerExactMatch().rows(outputs)[:, 0].tolist() == exact
    assert AnswerF1().rows(outputs)[:, 0].tolist() == pytest.approx(f1)
    assert 0.05 < np.mean(exact) < np.mean(f1) < 0.9
    totals = AnswerF1().rows(outputs).sum(0)
    assert AnswerF1().value(totals) == pytest.approx(np.mean(f1))


def test_the_signature_names_the_words_of_scripts_without_spaces() -> None:
    assert AnswerF1().signature(outputs_of(["a"], [["the cat"], []])) == "normalization:SQuAD|questions:all"
    letters = "normalization:SQuAD|questions:all|words:letters"
    assert AnswerF1().signature(outputs_of(["a"], [["the cat"], ["北京"]])) == letters


def test_an_article_is_a_word_between_boundaries() -> None:
    assert normalize("Été à l'an-the Theatre (a)") == "été à lanthe theatre"


def test_the_comparison_computes_both() -> None:
    assert {metric.name for metric in ANSWER_METRICS} <= BUILT_IN.keys()
