"""Files of texts with any labels."""

import json
from pathlib import Path
from typing import Any

import pytest

from seq2seq_lab.data.labelled_texts import LabelledTexts
from seq2seq_lab.data.sentence_pairs import SentencePairs
from seq2seq_lab.errors import UserError


def texts(**changes: Any) -> LabelledTexts:
    settings = {
        **dict.fromkeys(("train", "validation", "test", "delimiter", "encoding", "group")),
        **dict.fromkeys(("hub", "hub_config", "hub_splits")),
        **{"format": "auto", "columns": ("text", "label"), "language": "en"},
        **{"validation_share": 0.2, "test_share": 0.2},
    }
    return LabelledTexts(**settings | changes)


def rows_of(tmp_path: Path, name: str, content: str, **changes: Any) -> list[tuple[str, str]]:
    """Return the examples of a file that is all three splits."""
    path = tmp_path / name
    path.write_text(content, "utf-8")
    corpus = texts(**dict.fromkeys(("train", "validation", "test"), str(path)), **changes).load()
    return [*zip(corpus.train.texts, corpus.train.labels, strict=True)]


@pytest.mark.parametrize(
    ("name", "content", "changes"),
    [
        (
            "a.tsv",
            "sentence\tlabel\nwhat is that ?\tENTY\nwho is it ?\tHUM\n",
            {"columns": ("sentence", "label")},
        ),
        ("a.csv", "1,HUM,x\n", {"columns": (3, 2)}),
        (
            "a.jsonl",
            '{"text": "what is that ?", "label": "ENTY"}\n{"text": "who is it ?", "label": "HUM"}\n',
            {},
        ),
        ("trec.label", "ENTY what is that ?\nHUM  who is it ?\n", {"format": "label_first"}),
        ("a.txt", "__label__ENTY what is that ?\n__label__HUM\twho is it ?\r\n", {"format": "label_first"}),
    ],
)
def test_the_formats(name: str, content: str, changes: dict[str, Any], tmp_path: Path) -> None:
    expected = [("x", "HUM")] if name == "a.csv" else [("what is that ?", "ENTY"), ("who is it ?", "HUM")]
    assert rows_of(tmp_path, name, content, **changes) == expected


@pytest.mark.parametrize("named", [True, False])
def test_the_texts_of_a_group_are_in_one_split(named: bool, tmp_path: Path) -> None:
    path = tmp_path / "phrases.tsv"
    rows = [
        f"phrase {part} of {group}\t{part % 2}\tsentence {group}\n"
        for part in range(5)
        for group in range(60)
    ]
    path.write_text(("text\tlabel\tsentence\n" if named else "") + "".join(rows), "utf-8")
    columns, group = (("text", "label"), "sentence") if named else ((1, 2), 3)

    def groups(grouped: bool) -> list[set[str]]:
        corpus = texts(train=str(path), columns=columns, group=group if grouped else None).load()
        return [{text.rpartition(" ")[2] for text in split.texts} for split in corpus.splits.values()]

    train, validation, test = groups(True)
    assert len(train) + len(validation) + len(test) == len(train | validation | test) == 60
    assert min(len(validation), len(test)) > 0
    assert groups(False)[0] & groups(False)[1]


def test_the_pairs_of_a_group_are_in_one_split(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"sentence1": f"picture {group}", "sentence2": f"caption {part}", "label": "x", "picture": group}
        for part in range(3)
        for group in range(60)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    settings = {
        **dict.fromkeys(("validation", "test", "delimiter", "encoding")),
        **{"format": "auto", "columns": ("sentence1", "sentence2", "label"), "language": "en", "pairs": 1},
        **{"validation_share": 0.2, "test_share": 0.2, "seed": 1, "train": str(path), "group": "picture"},
    }
    corpus = SentencePairs(**settings).load()
    found = [{pair.partition("\t")[0] for pair in split.texts} for split in corpus.splits.values()]
    assert sum(map(len, found)) == len(set.union(*found)) == 60


@pytest.mark.parametrize(
    ("name", "content", "changes", "message"),
    [
        ("a.tsv", "text\tlabels\na\tb\n", {}, r"line 1 has no column label.*dataset\.columns"),
        ("a.tsv", "text\tlabel\na\tb\tc\n", {}, "line 2: 3 columns instead of 2"),
        ("a.tsv", "text\tlabel\n \tb\n", {}, "line 2: "),
        ("a.jsonl", '{"text": "a", "label": null}\n', {}, "line 1: label=None"),
        ("a.jsonl", '{"text": "a", "label": "x"}\n', {"group": "id"}, "line 1 has no column id"),
        ("a.txt", "x a\nalone\n", {"format": "label_first"}, "line 2: 'alone'"),
        ("a.txt", "x a\n\n", {"format": "label_first"}, "line 2: "),
        ("a.txt", "__label__x __label__y a\n", {"format": "label_first"}, "line 1: .*several labels"),
    ],
)
def test_a_damaged_file_is_refused_by_line(
    name: str, content: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        rows_of(tmp_path, name, content, **changes)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"train": None}, r"dataset\.train=None, dataset\.hub=None"),
        ({"group": 3}, r"dataset\.group=3"),
        ({"group": "id", "format": "label_first"}, r"dataset\.group=id"),
    ],
)
def test_settings_that_cannot_be_combined_are_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError, match=key):
        texts(**{"train": "a.tsv"} | changes)
