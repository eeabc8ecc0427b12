"""Repeated pairs: the result equals that of comparing all pairs, in little memory."""

import random
import tracemalloc
import unicodedata
from collections import Counter

import pytest

from seq2seq_lab.data import progress
from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.deduplication import count_repeats
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.text import new_counts


def text(pairs):
    pairs = list(pairs)
    return ParallelText(*(Lines.of(pair[side] for pair in pairs) for side in (0, 1)))


def found(train, *held_out):
    counts = new_counts()
    result = count_repeats(text(train), [text(pairs) for pairs in held_out], counts)
    return +counts, [mask.tolist() for mask in result.duplicates], result.leaks.tolist()


def test_duplicates_are_exact_and_leaks_normalized():
    train = [("a", "b"), ("a", "b"), ("a", "c"), ("caf\u00e9", "coffee"), ("x", "y")]
    validation = [("Cafe\u0301", "coffee "), ("a", "d"), ("z", "z")]
    test = [("x", "y"), ("z", "z")]
    counts, duplicates, leaks = found(train, validation, test)
    assert counts == Counter(duplicate_pairs=1, leaked_pairs=2, leaked_sources=3)
    assert duplicates == [[False, True, False, False, False], [False] * 3, [False] * 2]
    assert leaks == [True, True, True, True, True]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "bc"), ("ab", "c")),
        (("a\n", "b"), ("a", "\nb")),
        (("", "ab"), ("ab", "")),
        (("1 a", "b"), ("1", " ab")),
        (("a", "b"), ("b", "a")),
        (("a", "b"), ("A", "b")),
        (("e\u0301", "b"), ("\u00e9", "b")),
    ],
)
def test_pairs_with_equal_concatenation_are_not_duplicates(first, second):
    assert found([first, second], [])[0] == Counter()
    assert found([first, second, first], [])[0] == Counter(duplicate_pairs=1)


def test_where_a_source_ends_matters_to_leaks_too():
    assert found([("ab", "c")], [("a", "bc")])[0] == Counter()
    assert found([("a b", "c")], [("a", "b c")])[0] == Counter()
    assert found([("a\nb", "c")], [("a", "b\nc")])[0] == Counter()


def normalized(side):
    return " ".join(unicodedata.normalize("NFC", side).casefold().split())


def test_the_result_equals_that_of_comparing_all_pairs():
    rng = random.Random(1)
    sides = ["a", "A", " a", "b", "\u00e9", "e\u0301", "c", "d", "e"]
    train, validation, test = (
        [(rng.choice(sides), rng.choice(sides)) for _ in range(count)] for count in (40, 20, 20)
    )
    train = [pair for pair in train if normalized(pair[0]) not in ("b", "c")]
    counts, duplicates, leaks = found(train, validation, test)
    splits, held_out = (train, validation, test), validation + test
    assert duplicates == [[pair in pairs[:n] for n, pair in enumerate(pairs)] for pairs in splits]
    assert leaks == [normalized(left) in {normalized(source) for source, _ in held_out} for left, _ in train]
    known = [tuple(map(normalized, pair)) for pair in train]
    assert counts == Counter(
        duplicate_pairs=sum(len(pairs) - len(set(pairs)) for pairs in splits),
        leaked_pairs=sum(tuple(map(normalized, pair)) in known for pair in held_out),
        leaked_sources=sum(normalized(left) in [source for source, _ in known] for left, _ in held_out),
    )
    assert 0 < counts["leaked_pairs"] < counts["leaked_sources"] < len(held_out)


@pytest.mark.parametrize(("language", "leaks"), [("tr", 2), ("az_Latn", 2), ("en", 0)])
def test_case_is_folded_by_the_rules_of_the_language(language, leaks):
    train = text([("ıssız ada", "a"), ("istanbul", "b")])
    counts = new_counts()
    count_repeats(train, [text([("ISSIZ ADA", "c"), ("İstanbul", "d")])], counts, (language, "en"))
    assert counts["leaked_sources"] == leaks


def test_memory_is_less_than_64_bytes_a_pair(monkeypatch):
    monkeypatch.setattr(progress, "AFTER_SECONDS", 1e9)  # a bar would import rich
    count = 30_000
    train = text((f"source sentence {n}", f"target sentence {n}") for n in range(count))
    held_out = text((f"other sentence {n}", "same") for n in range(100))
    tracemalloc.start()
    try:
        count_repeats(train, [held_out], new_counts())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * count, f"{peak / count:.0f} bytes a pair"
