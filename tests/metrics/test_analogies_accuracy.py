"""The accuracy of analogies, against a slow reference and gensim."""

from pathlib import Path

import numpy as np
import pytest

from seq2seq_lab.data.analogies import Analogy
from seq2seq_lab.metrics import analogies
from seq2seq_lab.metrics.analogies import SectionScore, score_analogies, summaries

WORDS = [f"w{number}" for number in range(12)]
VECTORS_VD = np.random.default_rng(1).normal(size=(12, 3)).astype(np.float32)
QUESTIONS = [
    Analogy(*(WORDS[i] for i in np.random.default_rng(seed).permutation(12)[:4])) for seed in range(300)
]
SECTIONS = {"family": QUESTIONS[:100], "gram1": QUESTIONS[100:]}


def slow_score(questions: list[Analogy]) -> SectionScore:
    """Return the score by one loop over the words for each question."""
    unit = {word: vector / np.linalg.norm(vector) for word, vector in zip(WORDS, VECTORS_VD, strict=True)}
    correct = nearest = 0
    for first, second, third, answer in questions:
        candidates = [word for word in WORDS if word not in (first, second, third)]
        query = unit[second] - unit[first] + unit[third]
        correct += max(candidates, key=lambda word: float(unit[word] @ query)) == answer
        nearest += max(candidates, key=lambda word: float(unit[word] @ unit[third])) == answer
    return SectionScore(len(questions), correct, nearest)


def test_the_slow_reference_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analogies, "SCORES_AT_A_TIME", 84)  # 7 questions
    scores = score_analogies(SECTIONS, WORDS, VECTORS_VD)
    assert scores == {name: slow_score(questions) for name, questions in SECTIONS.items()}
    assert 0 < scores["gram1"].correct < scores["gram1"].asked
    assert summaries(scores) == {
        "semantic": scores["family"],
        "syntactic": scores["gram1"],
        "total": slow_score(QUESTIONS),
    }


def test_gensim_agrees(tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models", reason="gensim is not installed")
    path = tmp_path / "questions.txt"
    path.write_text(
        "".join(
            f": {name}\n" + "".join(f"{' '.join(q)}\n" for q in found) for name, found in SECTIONS.items()
        )
    )
    vectors = models.KeyedVectors(3)
    vectors.add_vectors(WORDS, VECTORS_VD)
    _, sections = vectors.evaluate_word_analogies(str(path), case_insensitive=False)
    scores = score_analogies(SECTIONS, WORDS, VECTORS_VD)
    assert {one["section"]: len(one["correct"]) for one in sections[:-1]} == {
        name: score.correct for name, score in scores.items()
    }


def test_questions_with_unknown_words_are_counted_and_capitals_are_found_in_lower_case() -> None:
    words = ["man", "woman", "king", "queen", "Oslo"]
    vectors_VD = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [0, 0, 0]], np.float32)
    questions = [
        Analogy("Man", "Woman", "KING", "queen"),
        Analogy("man", "woman", "duke", "duchess"),
        Analogy("man", "woman", "oslo", "queen"),
    ]
    assert score_analogies({"a": questions, "b": []}, words, vectors_VD) == {
        "a": SectionScore(asked=1, correct=1, nearest_correct=1, unknown=2),
        "b": SectionScore(),
    }
