"""Questions about texts: what the generated ones look like, and how files of SQuAD are read."""

import json
import unicodedata
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from seq2seq_lab.data.corpus import load_corpus
from seq2seq_lab.data.grammar.facts import RELATIONS, draw_question
from seq2seq_lab.data.labelled import LabelledCorpus
from seq2seq_lab.data.questions import Answer, Questions, answers_of, context_of, read_questions
from seq2seq_lab.errors import UserError

CONTEXT = "The\tcat saw\nthe cafe\u0301 near the café."
SQUAD: dict[str, Any] = {
    "version": "v2.0",
    "data": [
        {
            "title": "cats",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {
                            "id": "1",
                            "question": " What did it see?",
                            "answers": [
                                {"text": "the cafe\u0301", "answer_start": 12},
                                {"text": "café", "answer_start": 31},
                            ],
                            "is_impossible": False,
                        },
                        {
                            "id": "2",
                            "question": "Who slept?",
                            "answers": [],
                            "plausible_answers": [{"text": "The", "answer_start": 0}],
                            "is_impossible": True,
                        },
                        {"id": "3", "question": "  ", "answers": []},
                    ],
                }
            ],
        }
    ],
}


def questions(**changes: Any) -> Questions:
    settings = {
        **dict.fromkeys(("train", "validation", "test", "encoding")),
        **{"language": "en", "questions": 300, "no_answer_share": 0.3},
        **{"validation_share": 0.2, "test_share": 0.2, "seed": 1},
    }
    return Questions(**settings | changes)


def read(path: Path, content: object) -> tuple[list[tuple[str, list[Answer]]], Counter[str]]:
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    counts = Counter[str]()
    return [*read_questions(path, None, counts)], counts


def facts_of(words: list[str]) -> dict[tuple[str, str], str]:
    """Return the values of a generated text by person and relation, read from the words without the clauses in commas."""
    facts = {}
    for sentence in " ".join(words).split(" ."):
        if sentence.split():
            person, *rest = sentence.split(" , ")[0].split() + sentence.split(" , ")[-1].split()
            rest = rest if " , " in sentence else sentence.split()[1:]
            for relation in RELATIONS:
                before, after = relation.fact.removesuffix(" .").split("VALUE")
                text = " ".join(rest) + " "
                if text.startswith(before) and text.strip().endswith(after.strip()):
                    value = text.strip().removeprefix(before).removesuffix(after.strip()).strip()
                    facts[person, relation.of_person] = value
    return facts


def test_generated_answers_follow_from_the_text() -> None:
    random, missing, by_value = Random(3), 0, 0
    for _ in range(300):
        drawn = draw_question(random, 0.3)
        words = drawn.text.split()
        right = set()
        for (person, question), value in facts_of(words).items():
            relation = next(one for one in RELATIONS if one.of_person == question)
            if drawn.question == question.replace("PERSON", person):
                right.add(value)
            if drawn.question == relation.of_value.replace("VALUE", value):
                right.add(person)
        if drawn.answer is None:
            missing += 1
            assert not right, drawn
            continue
        first, last = drawn.answer
        assert {" ".join(words[first : last + 1])} == right, drawn
        assert drawn.given is not None
        assert words[drawn.given] in drawn.question.split()
        by_value += first == last and drawn.given > first
    assert 60 < missing < 120
    assert by_value > 50


def test_a_generated_corpus_has_the_places_of_answers() -> None:
    corpus = questions().load()
    assert corpus == questions().load()
    for split in corpus.splits.values():
        for line, label in zip(split.texts, split.labels, strict=True):
            for answer in answers_of(label):
                assert context_of(line)[answer.start :].startswith(f"{answer.text} ")
    contexts = [{context_of(line) for line in split.texts} for split in corpus.splits.values()]
    assert not contexts[0] & contexts[2]


def test_squad(tmp_path: Path) -> None:
    found, counts = read(tmp_path / "train-v2.0.json", SQUAD)
    text = "The cat saw the café near the café."
    assert found == [
        (f" What did it see?\t{text}", [Answer("the café", 12), Answer("café", 30)]),
        (f"Who slept?\t{text}", []),
    ]
    assert (counts["questions_without_text"], counts["questions_without_answer"]) == (1, 1)
    assert counts["answers_moved"] == 0


def test_rows_of_parquet_or_json_lines(tmp_path: Path) -> None:
    row = {"question": "Who?", "context": "Ann saw Bob", "answers": {"text": ["Bob"], "answer_start": [8]}}
    found, _ = read(tmp_path / "a.jsonl", row)
    assert found == [("Who?\tAnn saw Bob", [Answer("Bob", 8)])]


@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize(
    "letter", ["\u095c", "u\u0302"]
)  # NFC makes two characters of the first, one of the second
def test_places_of_answers_count_the_characters_of_the_file(
    letter: str, escaped: bool, tmp_path: Path
) -> None:
    context = f"{letter * 12} 5 and 6, then 5 of 9"
    answers = {"text": ["5"], "answer_start": [context.rindex("5")]}
    row = {"question": "?", "context": context, "answers": answers}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row, ensure_ascii=escaped), "utf-8")
    counts = Counter[str]()
    ((line, found),) = read_questions(path, None, counts)
    composed = unicodedata.normalize("NFC", context)
    assert line == f"?\t{composed}"
    assert found == [Answer("5", composed.rindex("5"))]
    assert counts["answers_moved"] == 0


def damaged(*keys: Any, value: Any) -> Any:
    """Return a copy of SQUAD with another value at a place."""
    copy = json.loads(json.dumps(SQUAD))
    place: Any = copy
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return copy


ARTICLE = ("data", 0, "paragraphs", 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (damaged(*ARTICLE, "qas", 0, "answers", 0, "text", value="dog"), "question 1: .*'dog'"),
        (damaged(*ARTICLE, "qas", 0, "answers", 0, "answer_start", value=None), "question 1: .*None"),
        (damaged(*ARTICLE, "qas", 0, "answers", value=["dog"]), "question 1: answers"),
        (damaged(*ARTICLE, "qas", 0, "question", value=3), "question 1: question=3"),
        (damaged(*ARTICLE, "context", value=None), "question 1: context=None"),
        (damaged(*ARTICLE, "qas", value={}), "element 1: qas={}"),
        (damaged(*ARTICLE[:3], value="cats"), "element 1: paragraphs='cats'"),
        ({"question": "Who?", "context": "Ann", "answers": ["Ann"]}, "line 1: answers="),
        ({"question": "Who?", "context": "", "answers": {}}, "line 1: context=''"),
        ([1], "not a JSON object"),
    ],
)
def test_a_damaged_file_is_refused_by_question(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a.json", content)


def test_questions_about_one_text_stay_together(tmp_path: Path) -> None:
    rows = [
        {"question": f"q{k}", "context": f"text {i}", "answers": {"text": ["text"], "answer_start": [0]}}
        for i in range(60)
        for k in range(3)
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    corpus = questions(train=str(path)).load()
    contexts = [{context_of(line) for line in split.texts} for split in corpus.splits.values()]
    assert sum(map(len, contexts)) == 60
    assert all(contexts)


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match=r"dataset\.train"):
        questions(test="dev-v1.1.json")
    with pytest.raises(UserError, match="QuestionCorpus"):
        load_corpus(questions(questions=30), LabelledCorpus, "classification")
