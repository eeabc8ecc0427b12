"""Pairs of sentences: what the generated ones say about their labels, and how files are read."""

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import command_line
import pytest

from seq2seq_lab.data.sentence_pairs import CELLS, PLACES, UNDECIDED, SentencePairs, draw_pair
from seq2seq_lab.errors import UserError

MRPC = (
    "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    '1\t10\t11\tAmrozi called him " the witness " .\tCalling him " the witness " , he left .\n'
    "0\t12\t13\tThey sold it .\tIt was bought .\n"
)
SNLI = (
    {"gold_label": "neutral", "sentence1": "A man sleeps.", "sentence2": "A man\tdreams.", "captionID": "1"},
    {"gold_label": "-", "sentence1": "A dog runs.", "sentence2": "A cat runs.", "captionID": "2"},
)


def pairs(**changes: Any) -> SentencePairs:
    settings = {
        **dict.fromkeys(("train", "validation", "test", "delimiter", "encoding", "group")),
        **{"format": "auto", "columns": ("sentence1", "sentence2", "label"), "language": "en", "pairs": 60},
        **{"validation_share": 0.2, "test_share": 0.2, "seed": 1},
    }
    return SentencePairs(**settings | changes)


def rows_of(tmp_path: Path, name: str, text: str, **changes: Any) -> list[tuple[str, str]]:
    """Return the examples of a file that is all three splits."""
    path = tmp_path / name
    path.write_text(text, "utf-8")
    corpus = pairs(**dict.fromkeys(("train", "validation", "test"), str(path)), **changes).load()
    return [*zip(corpus.train.texts, corpus.train.labels, strict=True)]


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


def test_a_table_with_names_like_mrpc(tmp_path: Path) -> None:
    columns = ("#1 String", "#2 String", "Quality")
    assert rows_of(tmp_path, "msr.txt", MRPC, columns=columns) == [
        ('Amrozi called him " the witness " .\tCalling him " the witness " , he left .', "1"),
        ("They sold it .\tIt was bought .", "0"),
    ]


def test_json_lines_like_snli(tmp_path: Path) -> None:
    columns = ("sentence1", "sentence2", "gold_label")
    text = "".join(f"{json.dumps(row)}\n" for row in SNLI)
    assert rows_of(tmp_path, "snli.jsonl", text, columns=columns) == [
        ("A man sleeps.\tA man dreams.", "neutral")
    ]
    corpus = pairs(
        **dict.fromkeys(("train", "validation", "test"), str(tmp_path / "snli.jsonl")), columns=columns
    )
    assert corpus.load().counts["pairs_without_label"] == 3


def test_numbers_of_columns_and_whole_numbers_as_labels(tmp_path: Path) -> None:
    assert rows_of(tmp_path, "a.csv", 'x,"a, b",c\ny,d,e\n', columns=(2, 3, 1)) == [
        ("a, b\tc", "x"),
        ("d\te", "y"),
    ]
    text = '{"sentence1": "a", "sentence2": "b", "label": 0}\n'
    assert rows_of(tmp_path, "a.jsonl", text) == [("a\tb", "0")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "sentence1\tsentence2\tlabels\na\tb\tc\n", r"line 1 has no column label.*dataset\.columns"),
        ("a.tsv", "sentence1\tsentence2\tlabel\na\tb\n", "line 2: 2 columns instead of 3"),
        ("a.tsv", "sentence1\tsentence2\tlabel\na\t \tx\n", "line 2: "),
        ("a.jsonl", '{"sentence1": "a", "sentence2": "b"}\n', "line 1 has no column label"),
        ("a.jsonl", '{"sentence1": "a"\n', "line 1: not JSON"),
        ("a.jsonl", '{"sentence1": "a", "sentence2": null, "label": "x"}\n', "line 1: sentence2=None"),
    ],
)
def test_a_damaged_file_is_refused_by_line(name: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        rows_of(tmp_path, name, text)


@pytest.mark.parametrize("experiment", ["entailment", "span", "tagging"])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_file_without_one_of_training_is_refused(experiment: str, split: str) -> None:
    """The training split would be generated, and the file left out."""
    with pytest.raises(UserError, match=rf"^dataset\.{split}=x\.tsv needs dataset\.train=FILE"):
        command_line.check(f"experiment={experiment}", f"dataset.{split}=x.tsv")
