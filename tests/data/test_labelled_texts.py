"""Files of texts with any labels."""

import json
from pathlib import Path
from typing import Any

import command_line
import pytest

from seq2seq_lab.data.labelled import PairCorpus
from seq2seq_lab.data.labelled_texts import LabelledTexts
from seq2seq_lab.errors import UserError

PAIR = ("sentence1", "sentence2", "label")
MRPC = (
    "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    '1\t10\t11\tAmrozi called him " the witness " .\tCalling him " the witness " , he left .\n'
    "0\t12\t13\tThey sold it .\tIt was bought .\n"
)
SNLI = (
    {"gold_label": "neutral", "sentence1": "A man sleeps.", "sentence2": "A man\tdreams.", "captionID": "1"},
    {"gold_label": "-", "sentence1": "A dog runs.", "sentence2": "A cat runs.", "captionID": "2"},
)


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


def test_white_space_at_the_ends_of_a_label_is_removed(tmp_path: Path) -> None:
    content = "text,label\n a film ,neg\nb,neg \nc, neg\n"
    assert rows_of(tmp_path, "a.csv", content) == [(" a film ", "neg"), ("b", "neg"), ("c", "neg")]
    pairs = "sentence1,sentence2,label\na,b,x\nc,d,- \n"
    assert rows_of(tmp_path, "b.csv", pairs, columns=PAIR) == [("a\tb", "x")]


def test_swapped_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{'pos' if i % 2 else 'neg'},film {i}\n" for i in range(40)))
    assert len(texts(train=str(path), columns=(2, 1)).load().classes) == 2
    with pytest.raises(UserError, match=r"dataset\.columns=\[1,2\] .* Set dataset\.columns=\[2,1\]"):
        texts(train=str(path), columns=(1, 2)).load()


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
    corpus = texts(train=str(path), columns=PAIR, group="picture").load()
    found = [{pair.partition("\t")[0] for pair in split.texts} for split in corpus.splits.values()]
    assert sum(map(len, found)) == len(set.union(*found)) == 60


def test_pairs_of_a_table_with_names_like_mrpc(tmp_path: Path) -> None:
    columns = ("#1 String", "#2 String", "Quality")
    assert rows_of(tmp_path, "msr.txt", MRPC, columns=columns) == [
        ('Amrozi called him " the witness " .\tCalling him " the witness " , he left .', "1"),
        ("They sold it .\tIt was bought .", "0"),
    ]


def test_pairs_of_json_lines_like_snli(tmp_path: Path) -> None:
    columns = ("sentence1", "sentence2", "gold_label")
    content = "".join(f"{json.dumps(row)}\n" for row in SNLI)
    assert rows_of(tmp_path, "snli.jsonl", content, columns=columns) == [
        ("A man sleeps.\tA man dreams.", "neutral")
    ]
    files = dict.fromkeys(("train", "validation", "test"), str(tmp_path / "snli.jsonl"))
    corpus = texts(**files, columns=columns).load()
    assert isinstance(corpus, PairCorpus)
    assert corpus.counts["examples_without_label"] == 3
    single = texts(**files, columns=columns[1:]).load()
    assert not isinstance(single, PairCorpus)
    assert [*single.train.labels] == ["neutral", "-"]  # a label like any other


def test_pairs_by_numbers_of_columns_and_with_whole_numbers_as_labels(tmp_path: Path) -> None:
    assert rows_of(tmp_path, "a.csv", 'x,"a, b",c\ny,d,e\n', columns=(2, 3, 1)) == [
        ("a, b\tc", "x"),
        ("d\te", "y"),
    ]
    content = '{"sentence1": "a", "sentence2": "b", "label": 0}\n'
    assert rows_of(tmp_path, "a.jsonl", content, columns=PAIR) == [("a\tb", "0")]


@pytest.mark.parametrize(
    ("name", "content", "changes", "message"),
    [
        ("a.tsv", "text\tlabels\na\tb\n", {}, r"line 1 has no column label.*dataset\.columns"),
        ("a.tsv", "text\tlabel\na\tb\tc\n", {}, "line 2: 3 columns instead of 2"),
        ("a.tsv", "text\tlabel\n \tb\n", {}, "line 2: "),
        ("a.csv", "text,label\na,b\na,b,c\n", {}, "line 3: 3 columns instead of 2"),
        ("a.csv", "text,label\na,b\na\n", {}, "line 3: 1 columns instead of 2"),
        ("a.csv", "text,label\na,b\n\n", {}, "line 3: the line is empty"),
        ("a.csv", "a,b\n \n", {"columns": (1, 2)}, "line 2: the line is empty"),
        ("a.jsonl", '{"text": "a", "label": "x"}\n\n', {}, "line 2: the line is empty"),
        ("a.csv", "text,label\na,b\na,\n", {}, "line 3: the sentence is empty"),
        ("a.csv", 'text,label\na,b\n"a,b\nc,d\n', {}, "line 3: a quoted cell is not closed"),
        ("a.csv", 'text,label\na,b\n"a"b,c\n', {}, r"line 3: not RFC 4180"),
        ("a.tsv", "sentence1\tsentence2\tlabels\na\tb\tc\n", {"columns": PAIR}, "line 1 has no column label"),
        ("a.tsv", "sentence1\tsentence2\tlabel\na\tb\n", {"columns": PAIR}, "line 2: 2 columns instead of 3"),
        ("a.tsv", "sentence1\tsentence2\tlabel\na\t \tx\n", {"columns": PAIR}, "line 2: "),
        (
            "a.jsonl",
            '{"sentence1": "a", "sentence2": "b"}\n',
            {"columns": PAIR},
            "line 1 has no column label",
        ),
        ("a.jsonl", '{"text": "a"\n', {}, "line 1: not JSON"),
        ("a.jsonl", '{"text": null, "label": "x"}\n', {}, "line 1: text=None"),
        ("a.jsonl", '{"text": "a", "label": -1}\n', {}, "line 1: every label of the split is -1"),
        ("a.jsonl", '{"text": "a", "label": null}\n', {}, "line 1: label=None"),
        ("a.jsonl", '{"text": "a", "label": "x"}\n', {"group": "id"}, "line 1 has no column id"),
        ("a.txt", "x a\nalone\n", {"format": "label_first"}, "line 2: 'alone'"),
        ("a.txt", "x a\n\n", {"format": "label_first"}, "line 2: the line is empty"),
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
        ({"columns": (0, 1)}, r"dataset\.columns=.*numbers from 1"),
        ({"columns": (2, 1), "group": -1}, r"dataset\.group=-1 .*numbers from 1"),
        ({"group": "id", "format": "label_first"}, r"dataset\.group=id"),
        ({"columns": PAIR, "format": "label_first"}, r"dataset\.columns=\['sentence1'"),
        ({"delimiter": "tab", "format": "label_first"}, r"dataset\.delimiter=tab"),
    ],
)
def test_settings_that_cannot_be_combined_are_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError, match=key):
        texts(**{"train": "a.tsv"} | changes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("dataset.columns=[a,b]",), "task.pairs=joined: .*dataset.columns=.NAME,NAME,NAME."),
        (("dataset.columns=[a,b,c]", "task.pairs=none"), "task.pairs=none: .*task.pairs=joined"),
        (("dataset.columns=[a,b,c,d]",), "dataset.columns=.*a list of 3"),
    ],
)
def test_columns_that_do_not_fit_the_task_are_refused_before_the_file_is_read(
    settings: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        command_line.check("experiment=entailment", "dataset=labelled", "dataset.train=x.tsv", *settings)


@pytest.mark.parametrize("key", ["train", "hub"])
def test_files_of_generated_pairs_are_refused(key: str) -> None:
    with pytest.raises(UserError, match=rf"dataset\.{key}=x.* is not a setting.*dataset=labelled"):
        command_line.check("experiment=entailment", f"dataset.{key}=x")


@pytest.mark.parametrize("experiment", ["span", "tagging"])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_file_without_one_of_training_is_refused(experiment: str, split: str) -> None:
    """The training split would be generated, and the file left out."""
    with pytest.raises(UserError, match=rf"^dataset\.{split}=x\.tsv needs dataset\.train=FILE"):
        command_line.check(f"experiment={experiment}", f"dataset.{split}=x.tsv")


def test_texts_of_two_files_are_counted_as_leaks(tmp_path: Path) -> None:
    for name, lines in {
        "train": "text,label\nthe cat sleeps,a\nA dog runs,b\nA dog runs,b\n",
        "test": "text,label\na  dog runs,b\nthe cat sleeps,b\nnew,a\n",
    }.items():
        (tmp_path / f"{name}.csv").write_text(lines, "utf-8")
    files = {name: str(tmp_path / f"{name}.csv") for name in ("train", "test")}
    counts = texts(**files, validation=files["test"]).load().counts
    assert {name: counts[name] for name in ("duplicate_pairs", "leaked_pairs", "leaked_sources")} == {
        "duplicate_pairs": 1,
        "leaked_pairs": 2,  # one in each of the two splits
        "leaked_sources": 4,
    }


@pytest.mark.parametrize("content", ["", "text,label\n"])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_file_without_examples_is_named(split: str, content: str, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text(content, "utf-8")
    (tmp_path / "full.csv").write_text("text,label\nthe cat sleeps,a\n", "utf-8")
    files = {"train": str(tmp_path / "full.csv"), split: str(tmp_path / "empty.csv")}
    with pytest.raises(UserError, match=rf"dataset\.{split}=.*empty\.csv has no example"):
        texts(**files).load()


def test_too_few_texts_are_counted_in_the_message(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("text,label\nthe cat sleeps,a\n", "utf-8")
    with pytest.raises(UserError, match=r"No texts for .*: the data set has 1 in all\. Give it more\.$"):
        texts(train=str(tmp_path / "one.csv")).load()
    with pytest.raises(UserError, match=r"for example dataset\.test_share=0\.2\.$"):
        texts(train=str(tmp_path / "one.csv"), test_share=0.1).load()


def test_the_shares_of_given_splits_have_no_effect(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("text,label\nthe cat sleeps,a\n", "utf-8")
    files = dict.fromkeys(("train", "validation", "test"), str(tmp_path / "one.csv"))
    assert len(texts(**files, validation_share=0, test_share=0).load().train) == 1
