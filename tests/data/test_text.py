"""Reading lines: every data fault is refused with its place, or repaired and counted, and shifts no line."""

import gzip
import logging
import tracemalloc
from collections import Counter

import pytest

from seq2seq_lab.data.tables import first_columns
from seq2seq_lab.data.text import (
    collect,
    divide,
    fault,
    listing,
    new_counts,
    read_lines,
    read_parallel,
    usable_pairs,
    within,
)
from seq2seq_lab.errors import UserError

SOURCE = ["eins", "zwei", "drei"]
TARGET = ["one", "two", "three"]

KEPT = {
    "lone carriage return": "a\rb",
    "NUL": "a\0b",
    "unbalanced quote": '"a b',
    "U+2028": "a\u2028b",
    "U+2029": "a\u2029b",
    "U+0085": "a\u0085b",
    "U+001C": "a\u001cb",
    "form feed": "a\fb",
    "zero-width space": "a\u200bb",
    "no-break space": "a\u00a0b\u202fc",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "byte order mark inside": "\ufeffa",
    "100,000 words": "word " * 99_999 + "word",
    "end mark as text": "<eos>",
    "at signs": "@@",
    "outer spaces": " a ",
}
BAD = {
    "blank": (b"", "the sentence is empty"),
    "spaces": (b"  ", "the sentence is empty"),
    "no-break space alone": ("\u00a0".encode(), "the sentence is empty"),
    "U+2028 alone": ("\u2028".encode(), "the sentence is empty"),
    "invalid UTF-8": (b"caf\xe9", "byte 4 is not UTF-8"),
    "encoded surrogate": (b"ab\xed\xa0\x80", "byte 3 is not UTF-8"),
}


def write(path, lines, newline=b"\n"):
    encoded = [line if isinstance(line, bytes) else line.encode() for line in lines]
    path.write_bytes(b"".join(line + newline for line in encoded))
    return path


def read(folder, source, target, on_bad_pair="error"):
    """The pairs and the counts above 0 of two lists of lines written to files."""
    counts = new_counts()
    pairs = list(read_parallel(write(folder / "s", source), write(folder / "t", target), on_bad_pair, counts))
    return pairs, dict(+counts)


def read_columns(path, on_bad_pair, counts):
    return usable_pairs(first_columns(path, counts), str(path), on_bad_pair, counts)


def with_second(lines, second):
    return [lines[0], second, lines[2]]


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("side", ["source", "target"])
def test_odd_text_is_kept_as_it_is(tmp_path, side, text):
    source = with_second(SOURCE, text) if side == "source" else SOURCE
    target = with_second(TARGET, text) if side == "target" else TARGET
    expected = list(zip(source, target, strict=True))

    assert read(tmp_path, source, target) == (expected, {})
    table = write(tmp_path / "table", ["\t".join(pair) for pair in expected])
    assert list(read_columns(table, "error", new_counts())) == expected


@pytest.mark.parametrize(("raw", "problem"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("side", ["s", "t"])
def test_a_bad_line_is_refused_with_file_and_line_or_dropped_with_its_pair(tmp_path, side, raw, problem):
    source = with_second(SOURCE, raw) if side == "s" else SOURCE
    target = with_second(TARGET, raw) if side == "t" else TARGET

    with pytest.raises(UserError, match=rf"/{side} line 2: {problem}.*dataset\.on_bad_pair=drop"):
        read(tmp_path, source, target)
    pairs, counts = read(tmp_path, source, target, "drop")
    assert pairs == [("eins", "one"), ("drei", "three")]
    assert counts == {"dropped_pairs": 1}


def test_a_pair_bad_on_both_sides_is_counted_once_and_both_are_named(tmp_path):
    source, target = with_second(SOURCE, b"\xff"), with_second(TARGET, "")
    with pytest.raises(UserError, match=r"/s line 2: byte 1 .*; .*/t line 2: the sentence is empty"):
        read(tmp_path, source, target)
    assert read(tmp_path, source, target, "drop")[1] == {"dropped_pairs": 1}


@pytest.mark.parametrize("on_bad_pair", ["error", "drop"])
@pytest.mark.parametrize(
    ("source", "target", "lines"),
    [
        (SOURCE[:2], TARGET, (2, 3)),
        (SOURCE, TARGET[:2], (3, 2)),
        ([*SOURCE, "vier"], TARGET, (4, 3)),
        (SOURCE, [*TARGET, "four", "five"], (3, 5)),
        ([], TARGET, (0, 3)),
    ],
)
def test_files_of_different_length_are_always_refused(tmp_path, source, target, lines, on_bad_pair):
    with pytest.raises(UserError, match=rf"/s has {lines[0]} lines and .*/t has {lines[1]}"):
        read(tmp_path, source, target, on_bad_pair)


def test_a_blank_line_too_many_is_not_taken_for_a_bad_pair(tmp_path):
    with pytest.raises(UserError, match="has 4 lines"):
        read(tmp_path, ["eins", "", "zwei", "drei"], TARGET, "drop")


@pytest.mark.parametrize("side", [0, 1])
def test_a_byte_order_mark_and_line_ends_of_windows_are_removed_and_counted(tmp_path, side):
    paths = [write(tmp_path / "s", SOURCE), write(tmp_path / "t", TARGET)]
    write(paths[side], [("\ufeff" if n == 0 else "") + line for n, line in enumerate([SOURCE, TARGET][side])])
    counts = new_counts()
    assert list(read_parallel(*paths, "error", counts)) == list(zip(SOURCE, TARGET, strict=True))
    assert +counts == Counter(byte_order_marks=1)

    write(paths[side], [SOURCE, TARGET][side], newline=b"\r\n")
    counts = new_counts()
    assert list(read_parallel(*paths, "error", counts)) == list(zip(SOURCE, TARGET, strict=True))
    assert +counts == Counter(carriage_returns=3)


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\n", ["a", ""]),
        (b"a\r\r\nb\r", ["a\r", "b\r"]),
    ],
)
def test_only_a_line_feed_ends_a_line_and_the_last_one_may_be_missing(tmp_path, raw, lines):
    (tmp_path / "file").write_bytes(raw)
    assert list(read_lines(tmp_path / "file", new_counts())) == [(line, "") for line in lines]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("one column", "line 2: 1 columns, not 2 or 3"),
        ("a\tb\tc\td", "line 2: 4 columns, not 2 or 3"),
        ("", "line 2: the sentence is empty"),
        ("\tb", "line 2 column 1: the sentence is empty"),
        ("a\t \tc", "line 2 column 2: the sentence is empty"),
        ("\t", "line 2 column 1: .*; .* line 2 column 2: "),
        (b"a\tb\xff", "line 2: byte 4 is not UTF-8"),
    ],
)
def test_a_bad_line_of_a_table_is_refused_or_dropped(tmp_path, line, problem):
    table = write(tmp_path / "table", ["eins\tone", line, "drei\tthree\tattribution"])
    with pytest.raises(UserError, match="/table " + problem):
        list(read_columns(table, "error", new_counts()))
    counts = new_counts()
    assert list(read_columns(table, "drop", counts)) == [("eins", "one"), ("drei", "three")]
    assert +counts == Counter(dropped_pairs=1)


def test_tabs_stay_in_raw_lines_and_a_third_column_is_ignored(tmp_path):
    assert read(tmp_path, ["a\tb\tc\td"], ["x\t"])[0] == [("a\tb\tc\td", "x\t")]
    table = write(tmp_path / "table", ["a\tb\tc"], newline=b"\r\n")
    assert list(read_columns(table, "error", new_counts())) == [("a", "b")]


def test_gzipped_lines_are_read_and_a_damaged_archive_is_refused(tmp_path):
    packed = gzip.compress("".join(f"Zeile {n}\n" for n in range(1000)).encode())
    path = tmp_path / "train.de.gz"
    path.write_bytes(packed)
    assert [text for text, _ in read_lines(path, new_counts())] == [f"Zeile {n}" for n in range(1000)]
    wrong_block, wrong_sum = packed[:10] + b"\xff" + packed[11:], packed[:-8] + bytes(4) + packed[-4:]
    for damaged in (packed[:-1], packed[: len(packed) // 2], wrong_block, wrong_sum, b"Zeile 1\n"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"train\.de\.gz cannot be read to its end"):
            list(read_lines(path, new_counts()))


def test_few_drops_are_logged_in_full_and_their_number_always(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        read(tmp_path, ["a", *[""] * 20], ["b"] * 21, "drop")
    shown = [record for record in caplog.records if getattr(record, "console", True)]
    assert len(shown) <= 5
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 21
    assert "/s line 2: the sentence is empty" in messages[0]
    assert "20 of 21 pairs dropped" in messages[-1]


def test_a_limit_keeps_the_first_pairs_and_still_checks_the_rest(tmp_path):
    good = collect(iter([("a", "b"), ("c", "d"), ("e", "f")]), 2)
    assert (good.source, good.target) == (["a", "c"], ["b", "d"])
    source, target = write(tmp_path / "s", [*SOURCE, "vier"]), write(tmp_path / "t", TARGET)
    with pytest.raises(UserError, match="has 4 lines"):
        collect(read_parallel(source, target, "error", new_counts()), 1)


def test_reading_takes_no_memory_that_grows_with_the_file(tmp_path):
    source = write(tmp_path / "s", ["ein Satz " * 10] * 20_000)
    target = write(tmp_path / "t", ["a sentence " * 10] * 20_000)
    tracemalloc.start()
    try:
        number = sum(1 for _ in read_parallel(source, target, "error", new_counts()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert number == 20_000
    assert peak < 500_000, f"{peak} bytes for files of 4 MB"


def test_pairs_are_divided_in_their_order_and_the_limit_is_of_training_alone():
    pairs = [(f"{'validation' if n % 3 == 1 else 'train'} {n}", f"t{n}") for n in range(9)]
    texts = divide(pairs, lambda source: source.split()[0], 2)
    assert {split: list(text.target) for split, text in texts.items()} == {
        "train": ["t0", "t2"],
        "validation": ["t1", "t4", "t7"],
        "test": [],
    }


def test_pairs_too_long_on_either_side_are_left_out_and_counted():
    counts = new_counts()
    pairs = [("a b", "c"), ("a b c", "d"), ("a", "b\u00a0c d"), ("a", "b c")]
    assert list(within(pairs, 2, counts)) == [pairs[0], pairs[3]]
    assert +counts == Counter(pairs_over_max_tokens=2)
    assert list(within(pairs, None, counts)) == pairs


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ("a", ""),
        ("a\u2028b\r\0", ""),
        (" ", "the sentence is empty"),
        (None, "None is no text"),
        (5, "5 is no text"),
        ("a\nb", "the sentence holds a line break"),
        ("ab\ud800", "character 3 is half a surrogate pair"),
    ],
)
def test_what_is_no_sentence_is_said(value, wrong):
    assert fault(value) == wrong


def test_a_listing_names_what_is_there(tmp_path):
    assert listing(tmp_path).endswith("holds nothing")
    for number in range(14):
        (tmp_path / f"f{number:02}").touch()
    assert listing(tmp_path).endswith("f11 and 2 more")
    assert listing(tmp_path / "gone").startswith("there is no folder")
