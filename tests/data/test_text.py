"""Reading lines: each fault of the data is an error with its location, or is repaired and counted."""

import gzip
import logging
import tracemalloc

import pytest

from seq2seq_lab.data.local_files import list_folder, read_lines
from seq2seq_lab.data.text import find_problem, new_counts, one_line, read_parallel
from seq2seq_lab.errors import UserError

SOURCE = ["eins", "zwei", "drei"]
TARGET = ["one", "two", "three"]

BAD = {
    "blank": (b"", "the sentence is empty"),
    "spaces": (b"  ", "the sentence is empty"),
    "no-break space alone": ("\u00a0".encode(), "the sentence is empty"),
    "U+2028 alone": ("\u2028".encode(), "the sentence is empty"),
    "invalid UTF-8": (b"caf\xe9", "byte 4 is not UTF-8"),
    "encoded surrogate": (b"ab\xed\xa0\x80", "byte 3 is not UTF-8"),
    "lone carriage return": (b"a\rb", "the sentence contains a carriage return"),
    "NUL": (b"a\0b", "the sentence contains the character NUL"),
    "zero-width space alone": ("\u200b".encode(), "the sentence is empty"),
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


def with_second(lines, second):
    return [lines[0], second, lines[2]]


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


@pytest.mark.parametrize("side", ["s", "t"])
def test_a_decomposed_line_is_composed_and_counted(tmp_path, side):
    source = with_second(SOURCE, "cafe\u0301") if side == "s" else SOURCE
    target = with_second(TARGET, "cafe\u0301") if side == "t" else TARGET
    pairs, counts = read(tmp_path, source, target)
    assert pairs[1] == ("caf\u00e9" if side == "s" else "zwei", "caf\u00e9" if side == "t" else "two")
    assert counts == {"composed_lines": 1}


def test_a_pair_with_two_bad_sides_is_counted_once_and_both_are_named(tmp_path):
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


def test_an_additional_blank_line_is_not_a_bad_pair(tmp_path):
    with pytest.raises(UserError, match="has 4 lines"):
        read(tmp_path, ["eins", "", "zwei", "drei"], TARGET, "drop")


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


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ("a", ""),
        ("a\u2028b", ""),
        ("ab\r", "the sentence contains a carriage return"),
        ("\0", "the sentence contains the character NUL"),
        ("\u200b\ufeff ", "the sentence is empty"),
        (" ", "the sentence is empty"),
        (None, "None is not text"),
        (5, "5 is not text"),
        ("a\nb", "the sentence contains a line break"),
        ("ab\ud800", "character 3 is half a surrogate pair"),
    ],
)
def test_the_problem_of_a_sentence_is_named(value, wrong):
    assert find_problem(value) == wrong


def test_a_generated_text_is_one_line():
    assert one_line("a\nb\rc\r\nd") == "a b c  d"


def test_the_files_of_a_folder_are_listed(tmp_path):
    assert list_folder(tmp_path).endswith("contains nothing")
    for number in range(14):
        (tmp_path / f"f{number:02}").touch()
    assert list_folder(tmp_path).endswith("f11 and 2 more")
    assert list_folder(tmp_path / "gone").endswith("not found")


def test_the_log_has_the_first_drops_and_the_number_of_the_others(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        assert read(tmp_path, ["a", *[""] * 1_200], ["b"] * 1_201, "drop")[1] == {"dropped_pairs": 1_200}
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1_002
    assert "line 1001:" in messages[-3]
    assert "200 more dropped pairs" in messages[-2]
    assert "1200 of 1201 pairs dropped" in messages[-1]
