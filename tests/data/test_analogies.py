"""Files of analogies, and the text whose word vectors answer them."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seq2seq_lab.data.analogies import (
    PLURAL,
    SINGULAR,
    AnalogyText,
    generated_analogies,
    pairs_of,
    read_analogies,
)
from seq2seq_lab.errors import UserError

GOOD = """// a comment
: capital-common-countries
Athens Greece Oslo Norway

Oslo Norway Athens Greece
: gram8-plural
cat cats dog dogs
"""


def text(**settings: Any) -> AnalogyText:
    return AnalogyText(**{"train": 400, "validation": 5, "test": 5, "seed": 1, **settings})


def test_a_file_is_read_by_section(tmp_path: Path) -> None:
    path = tmp_path / "questions-words.txt"
    path.write_text(GOOD, "utf-8")
    sections = read_analogies(path, "--analogies")
    assert {name: [*map(tuple, found)] for name, found in sections.items()} == {
        "capital-common-countries": [
            ("Athens", "Greece", "Oslo", "Norway"),
            ("Oslo", "Norway", "Athens", "Greece"),
        ],
        "gram8-plural": [("cat", "cats", "dog", "dogs")],
    }
    assert pairs_of(sections["capital-common-countries"]) == [("Athens", "Greece"), ("Oslo", "Norway")]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b": a\none two three\n", "line 2"),
        (b": a\none two three four five\n", "line 2"),
        (b"one two three four\n: a\n", "line 1"),
        (b": a\none two three four\n:\n", "line 3"),
        (b": a\none two three \xff\n", "line 2"),
        (b": a\n", "no question"),
        (b"", "no question"),
    ],
)
def test_a_damaged_file_is_refused(content: bytes, place: str, tmp_path: Path) -> None:
    path = tmp_path / "questions.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"--analogies=.*questions\.txt.*{place}"):
        read_analogies(path, "--analogies")


def test_sentences_are_a_function_of_the_seed_and_not_of_other_splits() -> None:
    first, again, other = text().load(), text(train=3).load(), text(seed=2).load()
    assert first.validation == again.validation
    assert first.train.lines[:3] == again.train.lines
    assert first.validation.lines != other.validation.lines


def test_people_agree_with_the_words_around_them() -> None:
    """Determiners and verbs have the number of the people, and pronouns and names their gender."""
    families = generated_analogies()["family"]
    men, women = ({pair[side] for pair in pairs_of(families)} for side in (0, 1))
    plurals = {pair[1] for pair in pairs_of(generated_analogies()["gram8-plural"])}
    counts: Counter[str] = Counter()
    for line in text(train=2000).load().train.lines:
        words = line.split()
        for person in (men | women) & {*words}:
            number, other = (PLURAL, SINGULAR) if person in plurals else (SINGULAR, PLURAL)
            assert {*number.determiners} & {*words}
            assert not {*other.determiners, other.has, other.copula} & {*words}
            wrong = {"his", "him", "adam"} if person in women else {"her", "anna"}
            assert not wrong & {*words}
            counts[person] += 1
    assert counts.keys() == men | women


def test_the_questions_are_all_pairs_of_different_pairs() -> None:
    sections = generated_analogies()
    assert ("man", "woman", "king", "queen") in sections["family"]
    assert ("king", "kings", "queen", "queens") in sections["gram8-plural"]
    assert ("write", "wrote", "eat", "ate") in sections["gram7-past-tense"]
    assert ("eat", "eats", "write", "writes") in sections["gram9-plural-verbs"]
    for questions in sections.values():
        count = len(pairs_of(questions))
        assert len({*questions}) == len(questions) == count * (count - 1)
        assert all(one.answer not in one[:3] for one in questions)
