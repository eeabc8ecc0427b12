"""The user's pairs: every file format, every fault of the data, given and cut splits, repeats."""

import csv
import gzip
import json
import socket
from collections import Counter
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seq2seq_lab.config.slots import check_slot
from seq2seq_lab.data.find_line import find_line
from seq2seq_lab.data.multi30k import Multi30k
from seq2seq_lab.data.parallel import Parallel
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import KINDS

DEFAULTS = Path(__file__).parents[2] / "conf" / "dataset" / "parallel.yaml"

PAIRS = [("eins", "one"), ("zwei", "two"), ("drei", "three")]


def parallel(**changes):
    """The data set with the defaults of its YAML file, checked as a configuration is."""
    settings = OmegaConf.to_container(OmegaConf.load(DEFAULTS)) | changes
    check_slot("dataset", settings, KINDS)
    assert settings.pop("_target_") == f"{Parallel.__module__}.{Parallel.__name__}"
    return Parallel(**settings)


def pairs_of(split):
    return list(zip(split.source, split.target, strict=True))


def table(pairs, end="\n"):
    return "".join(f"{source}\t{target}{end}" for source, target in pairs)


def write(path, text):
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


@pytest.fixture
def held_out(tmp_path):
    """Validation and test sets that have nothing in common with other pairs."""
    return {
        "validation": write(tmp_path / "validation.tsv", "v\tw\n"),
        "test": write(tmp_path / "test.tsv", "t\tu\n"),
    }


# Each function writes pairs in one format and returns the keys that read it.


def as_tsv(folder, pairs):
    return {"train": write(folder / "train.tsv", table(pairs))}


def as_txt_gz(folder, pairs):
    return {"train": write(folder / "train.txt.gz", table(pairs))}


def as_csv(folder, pairs):
    with (folder / "train.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(pairs)
    return {"train": str(folder / "train.csv")}


def as_named_csv(folder, pairs):
    with (folder / "train.csv").open("w", encoding="utf-8", newline="") as file:
        rows = [("id", "to", "from"), *((n, right, left) for n, (left, right) in enumerate(pairs))]
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    for name in ("validation", "test"):
        write(folder / f"{name}.tsv", f"from\tto\n{name}\t{name}\n")
    return {"train": str(folder / "train.csv"), "columns": ["from", "to"]}


def as_numbered_tsv(folder, pairs):
    rows = "".join(f"{right}\t{n}\t{left}\n" for n, (left, right) in enumerate(pairs))
    for name in ("validation", "test"):
        write(folder / f"{name}.tsv", f"{name}\t\t{name}\n")
    return {"train": write(folder / "train.tsv", rows), "columns": [3, 1]}


def as_json(folder, pairs):
    rows = "".join(json.dumps({"target": right, "n": 1, "source": left}) + "\n" for left, right in pairs)
    return {"train": write(folder / "train.jsonl", rows)}


def as_nested_json(folder, pairs):
    rows = [{"id": 1, "translation": {"de": left, "en": right}} for left, right in pairs]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    for name in ("validation", "test"):
        write(folder / f"{name}.json", '{"translation": {"de": "v", "en": "w"}}')
    held_out = {name: str(folder / f"{name}.json") for name in ("validation", "test")}
    columns = ["translation.de", "translation.en"]
    return {"train": write(folder / "train.json.gz", text), "columns": columns, **held_out}


def as_two_files(folder, pairs):
    return {
        "train": [
            write(folder / f"train.{side}", "".join(f"{pair[number]}\n" for pair in pairs))
            for number, side in enumerate(("de", "en"))
        ]
    }


def as_dotted_json(folder, pairs):
    rows = [{"translation.de": left, "pair": {"en.us": right}} for left, right in pairs]
    for name in ("validation", "test"):
        write(folder / f"{name}.jsonl", '{"translation.de": "v", "pair": {"en.us": "w"}}')
    held_out = {name: str(folder / f"{name}.jsonl") for name in ("validation", "test")}
    train = write(folder / "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return {"train": train, "columns": ["translation.de", "pair.en.us"], **held_out}


FORMS = [
    as_tsv,
    as_txt_gz,
    as_csv,
    as_named_csv,
    as_numbered_tsv,
    as_json,
    as_nested_json,
    as_dotted_json,
    as_two_files,
]

KEPT = {
    "plain": "zwei",
    "unbalanced quote": '5" Rohr',
    "quote at the start": '"a b',
    "quotes": '"a", "b"',
    "commas": "a, b,c",
    "braces": '{"a": 1}',
    "U+2028": "a\u2028b",
    "U+2029": "a\u2029b",
    "U+0085": "a\u0085b",
    "U+001C": "a\u001cb",
    "zero-width space": "a\u200bb",
    "no-break space": "a\u00a0b\u202fc",
    "composed": "\u00e9",
    "byte order mark inside": "a\ufeffb",
    "astral": "\U0001f600",
    "100,000 words": '"word" ' * 99_999 + "word",
    "end mark as text": "<eos>",
    "at signs": "@@",
    "outer spaces": " a ",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_keeps_every_text(tmp_path, held_out, form):
    pairs = [
        PAIRS[0],
        *((text, f"{n} b") for n, text in enumerate(KEPT)),
        *((f"{n} a", text) for n, text in enumerate(KEPT)),
    ]
    corpus = parallel(**held_out | form(tmp_path, pairs)).load()
    assert pairs_of(corpus.train) == pairs
    assert (len(corpus.validation), len(corpus.tests["test"])) == (1, 1)
    assert not any(corpus.counts.values())
    assert (corpus.source_language, corpus.target_language) == ("source", "target")


# name: (file name, its content, the expected problem). It is between the first and third pair of PAIRS.
AROUND = {
    ".tsv": ("eins\tone\n", "drei\tthree\n"),
    ".csv": ("eins,one\n", "drei,three\n"),
    ".jsonl": ('{"source":"eins","target":"one"}\n', '{"source":"drei","target":"three"}\n'),
}
BAD = {
    "empty source": (".tsv", "\tb\n", "line 2 column 1: the sentence is empty"),
    "empty target": (".tsv", "a\t\n", "line 2 column 2: the sentence is empty"),
    "empty both": (".tsv", "\t\n", "line 2 column 1: the sentence is empty; .*column 2: the sentence"),
    "blank line": (".tsv", "\n", "line 2: the line is empty"),
    "spaces": (".tsv", " \t\u00a0\n", "line 2 column 1: the sentence is empty"),
    "invalid UTF-8": (".tsv", b"a\tcaf\xe9\n", "line 2: byte 6 is not UTF-8"),
    "TAB in a sentence": (".tsv", "a\tb\tc\n", "line 2: 3 columns instead of 2"),
    "no TAB": (".tsv", "a b\n", "line 2: 1 columns instead of 2"),
    "lone carriage return": (".tsv", "a\rb\tc\n", "line 2 column 1: .*carriage return"),
    "NUL": (".tsv", "a\tb\0c\n", "line 2 column 2: .*NUL"),
    "lone carriage return in the target": (".tsv", "a\tb\rc\n", "line 2 column 2: .*carriage return"),
    "NUL in the source": (".tsv", "a\0b\tc\n", "line 2 column 1: .*NUL"),
    "zero-width characters in the target": (".tsv", "a\t\u200b\n", "line 2 column 2: the sentence is empty"),
    "zero-width characters": (".tsv", "\u200b \ufeff\tb\n", "line 2 column 1: the sentence is empty"),
    "key given twice": (
        ".jsonl",
        '{"source": "a", "target": "b", "source": "c"}\n',
        "line 2: not JSON .*'source'",
    ),
    "empty cell": (".csv", "a,\n", "line 2 column 2: the sentence is empty"),
    "empty quoted cell": (".csv", 'a,""\n', "line 2 column 2: the sentence is empty"),
    "blank line of a CSV": (".csv", "\n", "line 2: the line is empty"),
    "comma in a sentence": (".csv", "a,b,c\n", "line 2: 3 columns instead of 2"),
    "invalid UTF-8 in a CSV": (".csv", b'"a,\xff",b\n', "line 2: byte 4 is not UTF-8"),
    "line break in a cell": (".csv", '"a\nb",c\n', "lines 2 to 3: a quoted cell contains a line break"),
    "line breaks in cells": (
        ".csv",
        'x,"a\n\n""b"",\n","c\nd"\n',
        "lines 2 to 6: a quoted cell contains a line br",
    ),
    "text after a quoted cell": (".csv", '"a"b,c\n', "line 2: not RFC 4180"),
    "blank line of JSON": (".jsonl", "\n", "line 2: the line is empty"),
    "half an object": (".jsonl", '{"source": "a", "tar\n', "line 2: not JSON"),
    "no object": (".jsonl", '["a", "b"]\n', "line 2: not a JSON object"),
    "nested without end": (".jsonl", "[" * 100_000 + "\n", "line 2: not JSON"),
    "a number": (".jsonl", '{"source": "a", "target": 5}\n', "line 2 target: 5 is not text"),
    "null": (".jsonl", '{"source": null, "target": "b"}\n', "line 2 source: None is not text"),
    "key left out": (".jsonl", '{"source": "a"}\n', "line 2 target: None is not text"),
    "line break in JSON": (
        ".jsonl",
        r'{"source": "a\nb", "target": "c"}' + "\n",
        "line 2 source: .*line break",
    ),
    "half a surrogate": (
        ".jsonl",
        r'{"source": "\ud800", "target": "c"}' + "\n",
        "line 2 source: character 1",
    ),
    "invalid UTF-8 in JSON": (".jsonl", b'{"source": "\xff"}\n', "line 2: byte 13 is not UTF-8"),
}


@pytest.mark.parametrize(("suffix", "content", "wrong"), BAD.values(), ids=BAD)
def test_a_bad_pair_is_refused_with_file_and_line_or_dropped_and_counted_once(
    tmp_path, held_out, suffix, content, wrong
):
    before, after = AROUND[suffix]
    content = content if isinstance(content, bytes) else content.encode()
    files = held_out | {
        "train": write(tmp_path / f"train{suffix}", before.encode() + content + after.encode())
    }
    with pytest.raises(UserError, match=rf"train\{suffix} {wrong}.*dataset\.on_bad_pair=drop"):
        parallel(**files).load()
    corpus = parallel(**files, on_bad_pair="drop").load()
    assert pairs_of(corpus.train) == [PAIRS[0], PAIRS[2]]
    assert +corpus.counts == Counter(dropped_pairs=1)


def test_the_columns_are_those_of_most_of_the_first_rows(tmp_path, held_out):
    files = held_out | {"train": write(tmp_path / "train.tsv", "a\tb\tc\n" + table(PAIRS))}
    with pytest.raises(UserError, match=r"train\.tsv line 1: 3 columns instead of 2"):
        parallel(**files).load()
    assert pairs_of(parallel(**files, on_bad_pair="drop").load().train) == PAIRS


@pytest.mark.parametrize("name", ["train", "validation"])
def test_a_test_set_does_not_have_the_name_of_another_split(tmp_path, held_out, name):
    files = held_out | {"train": write(tmp_path / "train.tsv", table(PAIRS))}
    with pytest.raises(UserError, match=rf"{name} is the name of another split.*on_{name}: FILE"):
        parallel(**files | {"test": {name: files["train"]}}).load()


@pytest.mark.parametrize(
    ("suffix", "content"),
    [(".tsv", table(PAIRS)), (".csv", "".join(f'"{a}",{b}\n' for a, b in PAIRS)), (".jsonl", None)],
)
def test_byte_order_marks_line_ends_of_windows_and_a_missing_last_one(tmp_path, held_out, suffix, content):
    if content is None:
        content = "".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in PAIRS)
    for text, counts in (
        (content.removesuffix("\n"), {}),
        ("\ufeff" + content, {"byte_order_marks": 1}),
        (content.replace("\n", "\r\n"), {"carriage_returns": 3}),
    ):
        corpus = parallel(**held_out, train=write(tmp_path / f"train{suffix}", text)).load()
        assert pairs_of(corpus.train) == PAIRS
        assert +corpus.counts == Counter(counts)


@pytest.mark.parametrize("form", FORMS)
def test_decomposed_letters_are_composed_and_counted_once(tmp_path, held_out, form):
    pairs = [PAIRS[0], ("cafe\u0301", "b"), ("a", "cafe\u0301"), PAIRS[2]]
    corpus = parallel(**held_out | form(tmp_path, pairs)).load()
    assert pairs_of(corpus.train) == [PAIRS[0], ("caf\u00e9", "b"), ("a", "caf\u00e9"), PAIRS[2]]
    assert +corpus.counts == Counter(composed_lines=2)


def test_a_byte_order_mark_is_no_part_of_a_column_name(tmp_path):
    train = write(tmp_path / "a.csv", "\ufeffsource,target\n" + "".join(f"a{n},b\n" for n in range(900)))
    assert len(parallel(train=train, columns=["source", "target"]).load().train) > 800


@pytest.mark.parametrize("on_bad_pair", ["error", "drop"])
def test_files_that_do_not_show_their_pairs_are_always_refused(tmp_path, held_out, on_bad_pair):
    packed = gzip.compress(table(PAIRS * 100).encode())
    for name, data, wrong in (
        ("cut.tsv.gz", packed[: len(packed) // 2], r"cut\.tsv\.gz cannot be read to its end"),
        ("empty.tsv", b"", r"dataset\.train=.*empty\.tsv.*no pairs"),
        ("head.tsv", b"\xff\tb\n", r"(byte 1 is not UTF-8|no pairs)"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UserError, match=wrong):
            parallel(**held_out, train=str(tmp_path / name), on_bad_pair=on_bad_pair).load()


def test_a_cell_that_is_not_closed_is_one_bad_pair_at_the_line_that_opens_it(tmp_path, held_out):
    rows = [[f"a{n}", f"b{n}"] for n in range(400)]
    rows[10][0], rows[200][1], rows[-2][0] = '"a10', 'b200"', '"a398'
    train = write(tmp_path / "train.csv", "".join(f"{a},{b}\n" for a, b in rows))
    with pytest.raises(UserError, match=r"train\.csv line 11: a quoted cell is not closed.*on_bad_pair=drop"):
        parallel(**held_out, train=train).load()
    corpus = parallel(**held_out, train=train, on_bad_pair="drop").load()
    assert pairs_of(corpus.train) == [(a, b) for a, b in rows if not a.startswith('"')]
    assert +corpus.counts == Counter(dropped_pairs=2)


@pytest.mark.parametrize("lines", [2, 100])
def test_a_cell_of_many_lines_is_one_bad_pair(tmp_path, held_out, lines):
    cell = '"' + "a,b\n" * (lines - 1) + '"'
    train = write(tmp_path / "train.csv", f"eins,one\n{cell},x\nzwei,two\n")
    with pytest.raises(UserError, match=rf"lines 2 to {lines + 1}: a quoted cell contains a line break"):
        parallel(**held_out, train=train).load()
    corpus = parallel(**held_out, train=train, on_bad_pair="drop").load()
    assert pairs_of(corpus.train) == PAIRS[:2]
    assert +corpus.counts == Counter(dropped_pairs=1)


def test_wrong_column_names_and_numbers_are_refused(tmp_path, held_out):
    train = write(tmp_path / "train.tsv", "german\tenglish\na\tb\n")
    with pytest.raises(
        UserError,
        match=r"train\.tsv line 1 has no column germn; it has german, english\. Did you mean 'german'\?.*dataset\.columns",
    ):
        parallel(**held_out, train=train, columns=["germn", "english"]).load()
    write(tmp_path / "train.tsv", b"\xff\tenglish\na\tb\n")
    with pytest.raises(UserError, match=r"train\.tsv line 1: byte 1 .*dataset\.columns=\[german,english\]"):
        parallel(**held_out, train=train, columns=["german", "english"]).load()
    for columns, found in (([1, 3], "columns 1 and 3"), ([4, 1], "columns 4 and 1")):
        write(tmp_path / "train.tsv", "a\tb\n")
        with pytest.raises(UserError, match=rf"train\.tsv line 1 has 2 columns, but {found}"):
            parallel(**held_out, train=train, columns=columns).load()
    write(tmp_path / "train.tsv", "a;b\n")
    with pytest.raises(UserError, match=r"line 1 has 1 columns.*dataset\.format"):
        parallel(**held_out, train=train).load()
    rows = write(tmp_path / "train.jsonl", '{"a": {"b": "x", "c": "y"}, "d": 1}\n')
    with pytest.raises(UserError, match=r"has no column source; it has a\.b, a\.c, d\. .*dataset\.source"):
        parallel(**held_out, train=rows).load()
    with pytest.raises(UserError, match=r"has no column a\.bb; it has .* Did you mean 'a\.b'\?"):
        parallel(**held_out, train=rows, columns=["a.bb", "a.c"]).load()


def test_only_test_sets_are_a_corpus_without_training_pairs(tmp_path, held_out):
    corpus = parallel(test=held_out["test"]).load()
    assert (len(corpus.train), len(corpus.validation)) == (0, 0)
    assert {name: pairs_of(text) for name, text in corpus.tests.items()} == {"test": [("t", "u")]}
    named = parallel(**held_out | {"test": {"a": held_out["test"], "b": held_out["validation"]}}).load()
    assert (len(named.train), pairs_of(named.validation)) == (0, [("v", "w")])
    assert {name: pairs_of(text) for name, text in named.tests.items()} == {
        "a": [("t", "u")],
        "b": [("v", "w")],
    }
    twice = write(tmp_path / "twice.tsv", "t\tu\n" * 2)
    kept = parallel(test=twice, on_duplicate="drop").load()
    assert (len(kept.tests["test"]), kept.counts["dropped_duplicates"]) == (1, 1)
    empty = write(tmp_path / "empty.tsv", "")
    with pytest.raises(UserError, match=r"dataset\.test=.*empty\.tsv"):
        parallel(test=empty).load()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, r"dataset\.train=None, dataset\.hub=None: "),
        ({"train": "a.tsv", "hub": "a/b"}, r"dataset\.train=a\.tsv, dataset\.hub=a/b: "),
        ({"train": "a.tsv", "hub_config": "x"}, r"dataset\.hub_config=x .*dataset\.hub="),
        ({"train": "a.xlsx"}, r"dataset\.train=a\.xlsx: .*'\.xlsx'.*\.tsv, .*\.csv, \.jsonl"),
        ({"train": "a.jsonlines.gz"}, r"'\.jsonlines'.*Did you mean '\.jsonl'\?"),
        ({"train": "folder/name"}, r"dataset\.train=folder/name: "),
        ({"train": "a.tsv", "test": {"x": "a.pdf"}}, r"dataset\.test\.x=a\.pdf: "),
        (
            {"train": "a.tsv", "test": {"x/y": "a.tsv"}},
            r"dataset\.test=\{'x/y': 'a\.tsv'\}: give \{NAME: FILE",
        ),
        ({"train": "a.tsv", "test": {"x": ["a", "b", "c"]}}, r"dataset\.test\.x=.*one file "),
        ({"train": "a.tsv", "test": {"x": 5}}, r"dataset\.test\.x=5: "),
        ({"train": "a.tsv", "test": {"x": None}}, r"dataset\.test\.x=None: "),
        ({"train": "a.tsv", "test": {}}, r"dataset\.test=\{\}: "),
        ({"train": ["a", "b", "c"]}, r"dataset\.train=\['a', 'b', 'c'\] is not allowed.*a list of 2"),
        ({"train": "a.tsv", "columns": ["a"]}, "a list of 2"),
        ({"train": "a.tsv", "columns": ["a", 1]}, "a list of 2"),
        ({"train": "a.tsv", "columns": [0, 1]}, r"dataset\.columns=\[0, 1\]: "),
        ({"train": ["a", "b"], "columns": [2, 1]}, r"dataset\.columns=\[2, 1\]: two files"),
        ({"train": ["a", "b"], "delimiter": "tab"}, r"dataset\.delimiter=tab: two files"),
        ({"train": ["a", "b"], "format": "csv"}, r"dataset\.format=csv: two files"),
        ({"train": "a.jsonl", "columns": [1, 2]}, r"dataset\.columns=\[1, 2\]: .*dataset\.train "),
        ({"hub": "a/b", "columns": [1, 2]}, r"dataset\.columns=\[1, 2\]: .*dataset\.hub "),
        ({"train": "a.tsv", "format": "tvs"}, r"dataset\.format=tvs .*Did you mean 'tsv'\?"),
        ({"train": "a.tsv", "on_leak": "error"}, r"dataset\.on_leak=error is not allowed.*keep, drop"),
        ({"train": "a.tsv", "validation_share": 0}, r"dataset\.validation_share=0 must be above 0"),
        ({"train": "a.tsv", "test": "b.tsv", "validation_share": 0}, r"dataset\.validation_share=0 must"),
        ({"train": "a.tsv", "validation": "b.tsv", "test_share": 0}, r"^dataset\.test_share=0 .*a test set"),
        (
            {"train": "a.tsv", "validation_share": 0.5, "test_share": 0.5},
            r"dataset\.test_share=0\.5: their sum",
        ),
        ({"train": "a.tsv", "limit": 0}, r"dataset\.limit=0"),
        ({"train": "a.tsv", "max_tokens": 0}, r"dataset\.max_tokens=0"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_read(changes, message):
    with pytest.raises(UserError, match=message):
        parallel(**changes)


def test_the_error_of_a_missing_file_lists_the_files_of_the_folder(tmp_path):
    train = write(tmp_path / "train.tsv", table(PAIRS))
    write(tmp_path / "train.de", "a\n")
    for changes, message in (
        (
            {"train": str(tmp_path / "trian.tsv")},
            r"dataset\.train=.*trian\.tsv: .*Did you mean 'train\.tsv'\?",
        ),
        (
            {"train": train, "test": [str(tmp_path / "train.de"), "gone.de"]},
            r"dataset\.test=.*file gone\.de not found",
        ),
        ({"train": train, "test": {"x": "a/b.tsv"}}, r"dataset\.test\.x=a/b\.tsv: .*folder a not found"),
        ({"train": str(tmp_path), "format": "tsv"}, r"is a folder; .* contains train\.de, train\.tsv"),
    ):
        with pytest.raises(UserError, match=message):
            parallel(**changes).load()


def test_the_format_can_be_set(tmp_path, held_out):
    train = write(tmp_path / "train.data", "a,b\n")
    shown = {name: write(tmp_path / f"{name}.data", f"{name},b\n") for name in held_out}
    assert pairs_of(parallel(train=train, format="csv", **shown).load().train) == [("a", "b")]


MANY = [(f"Sentence {n // 2}.", f"Phrase {n} !") for n in range(2000)]


def test_validation_and_test_are_cut_by_source(tmp_path):
    train = write(tmp_path / "train.tsv", table(MANY))
    corpus = parallel(train=train, validation_share=0.1, test_share=0.2).load()
    splits = [corpus.train, corpus.validation, corpus.tests["test"]]
    assert sorted(pair for split in splits for pair in pairs_of(split)) == sorted(MANY)
    assert sum(len(set(split.source)) for split in splits) == 1000
    assert 120 <= len(splits[1]) <= 280
    assert 300 <= len(splits[2]) <= 500
    # Must never change, because scores of different splits cannot be compared. The same holds for Tatoeba.
    assert parallel(train=train).load().validation.source[0] == "Sentence 82."


def test_only_missing_splits_are_cut_and_a_pair_keeps_its_split(tmp_path):
    train, own = write(tmp_path / "train.tsv", table(MANY)), write(tmp_path / "own.tsv", "own\tpair\n")
    shares = {"train": train, "validation_share": 0.1, "test_share": 0.2}
    cut = parallel(**shares).load()
    only_test = parallel(**shares, validation=own).load()
    assert pairs_of(only_test.validation) == [("own", "pair")]
    assert only_test.tests == cut.tests
    assert sorted(pairs_of(only_test.train)) == sorted(pairs_of(cut.train) + pairs_of(cut.validation))
    only_validation = parallel(**shares, test={"one": own, "two.b": own}).load()
    assert {name: pairs_of(split) for name, split in only_validation.tests.items()} == {
        "one": [("own", "pair")],
        "two.b": [("own", "pair")],
    }
    assert only_validation.validation == cut.validation
    assert len(parallel(**shares, validation=own, test=own).load().train) == 2000
    without = {
        "train": train,
        "validation_share": 0,
        "test_share": 0,
    }  # the shares of given splits have no effect
    assert len(parallel(**without, validation=own, test={"one": own}).load().train) == 2000
    assert parallel(**without | {"validation_share": 0.1}, test=own).load().validation == cut.validation


def test_too_few_pairs_to_cut_from_is_an_error(tmp_path):
    train = write(tmp_path / "train.tsv", table(PAIRS))
    with pytest.raises(
        UserError, match=r"No pairs for validation: .*dataset\.validation_share=.*dataset\.validation=FILE"
    ):
        parallel(train=train).load()
    with pytest.raises(
        UserError, match=r"No pairs for validation: .*Give dataset\.validation=FILE"
    ) as caught:
        parallel(train=write(tmp_path / "one.tsv", "a\tb\n"), validation_share=0.2, test_share=0.2).load()
    assert "share=" not in str(caught.value)  # they are large
    own = write(tmp_path / "own.tsv", table(MANY))
    with pytest.raises(UserError, match="No pairs for test: none of the 3 pairs"):  # of train
        parallel(train=train, validation=own, test_share=0.001).load()
    with pytest.raises(UserError, match=r"dataset\.validation=.*v\.tsv.*dataset\.max_tokens=1"):
        parallel(
            train=train, max_tokens=1, validation=write(tmp_path / "v.tsv", "a b\tc\n"), test=train
        ).load()


def test_long_pairs_are_left_out_and_a_limit_keeps_the_first_training_pairs(tmp_path, held_out):
    train = write(tmp_path / "train.tsv", "a b c\td\n" + table(PAIRS) + "e\tf g h\n")
    corpus = parallel(**held_out, train=train, max_tokens=2, limit=2).load()
    assert pairs_of(corpus.train) == PAIRS[:2]
    assert +corpus.counts == Counter(pairs_over_max_tokens=2)
    write(tmp_path / "train.tsv", table(PAIRS) + "bad\n")
    with pytest.raises(UserError, match="line 4: 1 columns"):
        parallel(**held_out, train=train, limit=1).load()


def test_duplicates_are_kept_or_dropped_in_every_split(tmp_path):
    files = {
        "train": write(tmp_path / "train.tsv", table([*PAIRS, PAIRS[0], ("eins", "One"), PAIRS[0]])),
        "validation": write(tmp_path / "v.tsv", "v\tw\nv\tw\nv\tx\n"),
        "test": write(tmp_path / "t.tsv", "v\tw\n"),
    }
    kept = parallel(**files).load()
    assert (len(kept.train), len(kept.validation)) == (6, 3)
    assert +kept.counts == Counter(duplicate_pairs=3)
    corpus = parallel(**files, on_duplicate="drop").load()
    assert pairs_of(corpus.train) == [*PAIRS, ("eins", "One")]
    assert pairs_of(corpus.validation) == [("v", "w"), ("v", "x")]
    assert len(corpus.tests["test"]) == 1
    assert +corpus.counts == Counter(duplicate_pairs=3, dropped_duplicates=3)


def test_leaks_are_kept_or_dropped_from_training_only(tmp_path):
    train = [("caf\u00e9  NOIR", "a"), ("b", "c"), ("d", "e"), ("d", "e"), ("f", "g"), ("g", "f")]
    files = {
        "train": write(tmp_path / "train.tsv", table(train)),
        "validation": write(tmp_path / "v.tsv", table([("Cafe\u0301 noir", "A "), ("x", "y")])),
        "test": write(tmp_path / "t.tsv", table([("d", "E"), ("b", "other"), ("x", "y")])),
    }
    found = Counter(duplicate_pairs=1, leaked_pairs=2, leaked_sources=3, composed_lines=1)
    kept = parallel(**files).load()
    assert pairs_of(kept.train) == train
    assert +kept.counts == found
    corpus = parallel(**files, on_leak="drop").load()
    assert pairs_of(corpus.train) == [("f", "g"), ("g", "f")]
    assert (len(corpus.validation), len(corpus.tests["test"])) == (2, 3)
    assert +corpus.counts == found + Counter(dropped_leaks=4)
    both = parallel(**files, on_leak="drop", on_duplicate="drop").load()
    assert both.train == corpus.train
    assert +both.counts == found + Counter(dropped_leaks=3, dropped_duplicates=1)
    with pytest.raises(UserError, match=r"dataset\.on_leak=drop leaves no training pair"):
        parallel(**files | {"train": files["test"]}, on_leak="drop").load()


@pytest.mark.parametrize(("source", "kept"), [("tr", 1), ("en", 2)])
def test_leaks_are_found_by_the_rules_of_the_language(source, kept, tmp_path):
    files = {
        "train": write(tmp_path / "a.tsv", table([("ıssız ada", "a"), ("ev", "b")])),
        "validation": write(tmp_path / "v.tsv", table([("ISSIZ ADA", "c")])),
        "test": write(tmp_path / "t.tsv", table([("x", "y")])),
    }
    assert len(parallel(**files, on_leak="drop", source=source).load().train) == kept


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder in the layout of the hub, nested columns; and an empty cache."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "hub"
    folder.mkdir()
    for split, count in (("train", 2000), ("dev", 2)):
        rows = [{"id": n, "pair": {"q": f"{split} q{n}", "a": f"{split} a{n}"}} for n in range(count)]
        write(folder / f"{split}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_splits_of_the_hub_are_read_and_missing_ones_are_cut_from_training(hub, tmp_path):
    corpus = parallel(hub=str(hub), columns=["pair.q", "pair.a"]).load()
    assert pairs_of(corpus.validation) == [("dev q0", "dev a0"), ("dev q1", "dev a1")]
    assert 5 <= len(corpus.tests["test"]) <= 50
    assert len(corpus.train) + len(corpus.tests["test"]) == 2000
    assert corpus.train.target[-1] == corpus.train.source[-1].replace("q", "a")
    own = write(tmp_path / "own.jsonl", '{"pair": {"q": "own", "a": "pair"}}')
    corpus = parallel(hub=str(hub), columns=["pair.q", "pair.a"], validation=own, test={"x": own}).load()
    assert pairs_of(corpus.validation) == pairs_of(corpus.tests["x"]) == [("own", "pair")]
    assert (len(corpus.train), list(corpus.tests)) == (2000, ["x"])

    write(hub / "test.jsonl", '{"id": 1, "pair": {"q": "test q", "a": "test a"}}')
    corpus = parallel(hub=str(hub), columns=["pair.q", "pair.a"]).load()
    assert pairs_of(corpus.tests["test"]) == [("test q", "test a")]
    corpus = parallel(hub=str(hub), columns=["pair.q", "pair.a"], test={"x": own}).load()
    assert list(corpus.tests) == ["x"]


def test_missing_parts_of_a_hub_data_set_are_named(hub, tmp_path):
    with pytest.raises(
        UserError,
        match=r"train\.jsonl line 1 has no column pair\.x; it has id, pair\.q, pair\.a\. Did you mean 'pair\.",
    ):
        parallel(hub=str(hub), columns=["pair.x", "pair.a"]).load()
    with pytest.raises(UserError, match=r"dataset\.hub=.*, dataset\.hub_config=other cannot be loaded: "):
        parallel(hub=str(hub), hub_config="other").load()
    with pytest.raises(UserError, match=r"train\.jsonl line 1 id: 0 is not text"):
        parallel(hub=str(hub), columns=["id", "pair.a"]).load()
    (hub / "train.jsonl").unlink()
    with pytest.raises(UserError, match=r"has no split train; it has validation"):
        parallel(hub=str(hub), columns=["pair.q", "pair.a"]).load()
    with pytest.raises(UserError, match=r"dataset\.hub=no/such/folder is neither a folder nor"):
        parallel(hub="no/such/folder").load()


def test_a_sub_set_that_is_not_in_the_cache_is_looked_for_on_the_hub(hub, tmp_path, monkeypatch):
    import datasets
    from huggingface_hub import constants

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    datasets.load_dataset(str(hub))
    # The cache names a hub's data set OWNER___NAME; the rest of the layout is that of a local one.
    (tmp_path / "cache" / "hub").rename(tmp_path / "cache" / "owner___hub")
    columns = ["pair.q", "pair.a"]
    assert len(parallel(hub="owner/hub", columns=columns).load().validation) == 2
    with pytest.raises(
        UserError, match=rf"No network: 127\.0\.0\.1:{port} .*dataset\.hub_config=other is not in"
    ):
        parallel(hub="owner/hub", hub_config="other", columns=columns).load()


def test_a_line_of_column_names_is_not_a_pair(tmp_path, held_out):
    train = write(tmp_path / "named.tsv", "en\tfr\nthe cat\tle chat\n")
    with pytest.raises(UserError, match=r"dataset\.columns=\[en,fr\]"):
        parallel(**held_out, train=train, source="en", target="fr").load()


def test_a_sentence_is_found_as_a_whole_cell_in_the_files_of_its_split(tmp_path):
    lines = ["the long b and more", "x", "the long b"]
    files = {
        "train": write(tmp_path / "train.tsv", table([(lines[0], "a"), (lines[2], "a")])),
        "validation": write(tmp_path / "validation.tsv", table([(line, "a") for line in lines])),
        "test": {
            "first": write(tmp_path / "first.csv", "".join(f'a,"{line}"\n' for line in lines)),
            "second": write(
                tmp_path / "second.jsonl.gz", "".join(f'{{"a": ["{line}"]}}\n' for line in lines)
            ),
            "third": [write(tmp_path / f"third.{side}", f"{lines[0]}\n{side}\n") for side in ("de", "en")],
        },
    }
    dataset = parallel(**files)
    for split, place in (
        ("validation", "validation.tsv"),
        ("first", "first.csv"),
        ("second", "second.jsonl.gz"),
    ):
        assert find_line(dataset, split, "the long b") == f"{tmp_path / place} line 3"
    assert find_line(dataset, "third", "en") == f"{tmp_path / 'third.en'} line 2"
    assert find_line(dataset, "third", "the long b") == ""
    cut = parallel(train=files["train"])
    assert find_line(cut, "validation", "the long b") == f"{files['train']} line 2"

    folder = tmp_path / "multi30k"
    folder.mkdir()
    for name in ("train.de", "train.en", "val.de", "val.en", "test.de", "test.en"):
        write(folder / name, "".join(f"{line}\n" for line in lines[name.startswith("val") :]))
    raw = Multi30k(
        path=str(folder),
        hub="",
        source="de",
        target="en",
        encoding=None,
        alignments=None,
        alignment_base=None,
        alignments_reversed=False,
        on_bad_pair="error",
        limit=None,
    )
    assert find_line(raw, "validation", "the long b") == f"{folder / 'val.de'} line 2"
    assert find_line(raw, "test", "the long b") == f"{folder / 'test.de'} line 3"
