"""Generated pairs of sentences, and what they say about their labels."""

from collections import Counter
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from seq2seq_lab.data.sentence_pairs import CELLS, PLACES, UNDECIDED, SentencePairs, draw_pair


def pairs(**changes: Any) -> SentencePairs:
    return SentencePairs(**{"pairs": 60, "validation_share": 0.2, "test_share": 0.2, "seed": 1} | changes)


@pytest.mark.parametrize("side", [0, 1])
def test_the_form_of_one_sentence_is_as_frequent_for_each_label(side: int) -> None:
    shares = []
    for cells in CELLS.values():
        total = sum(Fraction(count).limit_denominator(1000) for count in cells.values())
        counts = Counter[int]()
        for cell, count in cells.items():
            counts[cell[side]] += Fraction(count).limit_denominator(1000) / total
        shares.append(counts)
    assert shares[0] == shares[1] == shares[2]


def meaning(sentence: str) -> tuple[str, str, str, str, bool]:
    """Return (subject, verb, object, modifier, negated) of a generated sentence, from its words."""
    text = sentence.rstrip(" .")
    for place in PLACES:
        text = text.replace(place, "").strip()
    words = text.split()
    if "by" in words:
        subject, thing = words[words.index("by") + 2], words[: words.index("is")]
        verb, negated = words[words.index("is") + 1][:3], words[0] in ("no", "not")
    else:
        subject, negated = words[1], "does" in words or "no" in words
        start = words.index("not") + 2 if "does" in words else 3
        verb, thing = words[start - 1][:3], words[start:]
    modifier = "every" if "every" in thing else " ".join(thing[1:-1])
    return subject, verb, thing[-1], modifier, negated


def label_of(premise: str, hypothesis: str) -> str:
    """Return the label that follows from the meanings, in another way than the tables of the generator."""
    (subject, verb, thing, modifier, negated), (*others, weaker, denied) = (
        meaning(premise),
        meaning(hypothesis),
    )
    if [thing, verb, subject] == others:
        return "contradiction" if not (modifier or weaker or negated or denied) else "neutral"
    if [subject, verb, thing] != others:
        return "neutral"
    # The worlds differ in the numbers of things with and without the modifier; see `true`.
    worlds = [(with_it, without) for with_it in range(3) for without in range(3)]

    def true(world: tuple[int, int], word: str, negation: bool, other: str) -> bool:
        with_it, without = world
        if "every" in (word, other):  # with_it: those that are seen; without: those that are not
            holds = with_it > 0 and (word != "every" or without == 0)
        else:
            holds = (with_it if word else with_it + without) > 0
        return holds != negation

    possible = [world for world in worlds if true(world, modifier, negated, weaker)]
    found = {true(world, weaker, denied, modifier) for world in possible}
    return {(True,): "entailment", (False,): "contradiction"}.get(tuple(found), "neutral")


@pytest.mark.parametrize("label", CELLS)
def test_the_labels_follow_from_the_meanings(label: str) -> None:
    random, kinds = Random(3), Counter[tuple[bool, bool]]()
    for _ in range(400):
        premise, hypothesis = draw_pair(random, label)
        assert label_of(premise, hypothesis) == label, (premise, hypothesis)
        kinds["is" in premise.split(), "is" in hypothesis.split()] += 1
    assert min(kinds.values()) > 60  # active and passive on both sides


def test_no_cell_is_neutral_and_decided() -> None:
    assert not UNDECIDED & (CELLS["entailment"].keys() | CELLS["contradiction"].keys())


def test_generated_pairs_are_the_same_each_time_and_evenly_many() -> None:
    corpus = pairs(pairs=600).load()
    assert corpus == pairs(pairs=600).load()
    labels = Counter(label for split in corpus.splits.values() for label in split.labels)
    assert labels.keys() == CELLS.keys()
    assert min(labels.values()) > 160
    assert all(text.count("\t") == 1 for text in corpus.train.texts)
