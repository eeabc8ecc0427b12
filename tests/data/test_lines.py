"""Lines in one buffer: exact text, little memory, a digest."""

import pickle
import tracemalloc
from itertools import product

import numpy as np
import pytest

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.lines import Lines, LinesBuilder

ODD = ["", "a", "b\nc", "\0", "\r\n", "é", "e\u0301", "\u2028\u0085\u001c", "語" * 300, "\U0001f600", "", " "]


def test_every_line_is_kept_as_it_is():
    lines = Lines.of(iter(ODD))
    assert list(lines) == ODD
    assert [lines[i] for i in range(-len(ODD), len(ODD))] == ODD * 2
    assert lines[np.int64(2)] == "b\nc"
    assert list(reversed(lines)) == ODD[::-1]
    assert "b\nc" in lines
    assert "b" not in lines
    assert Lines.of(lines) is lines
    for beyond in (len(ODD), -len(ODD) - 1):
        with pytest.raises(IndexError):
            lines[beyond]


@pytest.mark.parametrize("count", [9_999, 10_000, 10_001, 20_001])
def test_many_lines_are_read_in_order(count):
    expected = [str(n) for n in range(count)]
    assert list(Lines.of(expected)) == expected


def test_a_slice_is_independent_lines():
    lines = Lines.of(ODD)
    for start, stop, step in product((None, 0, 3, -2, 50), (None, 0, 5, -1, 50), (None, 1, 2, -1)):
        cut, expected = lines[start:stop:step], ODD[start:stop:step]
        assert isinstance(cut, Lines)
        assert list(cut) == expected
        assert cut.digest() == Lines.of(expected).digest()
        assert list(cut[1:]) == expected[1:]


def test_lines_equal_any_sequence_of_the_same_lines():
    lines = Lines.of(["a", "b"])
    assert lines == Lines.of(["a", "b"])
    assert lines == ["a", "b"]
    assert ParallelText(["a"], ["b"]) == ParallelText(Lines.of(["a"]), Lines.of(["b"]))
    assert lines == ("a", "b")
    assert lines != ["a", "c"]
    assert lines != ["a", "b", "c"]
    assert lines != "ab"
    assert lines != 5


def test_the_digest_depends_on_the_ends_of_lines():
    alike = (["a", "b"], ["ab"], ["ab", ""], ["", "ab"], ["a\nb"], [], [""], ["a", "b", ""])
    assert len({Lines.of(lines).digest() for lines in alike}) == len(alike)
    # A change needs a new `data.tokenized.FORMAT`: it is part of the key of cached corpora.
    assert Lines.of(ODD).digest().hex()[:16] == "f1ca09f69dc9de1c"


def test_lines_can_be_pickled_and_a_slice_pickles_only_its_lines():
    lines = Lines.of(ODD)
    assert pickle.loads(pickle.dumps(lines)) == ODD
    many = Lines.of(["word"] * 20_000)
    assert len(pickle.dumps(many[5:7])) < 1000


def test_a_builder_cannot_append_after_build():
    builder = LinesBuilder()
    builder.append("a")
    assert len(builder) == 1
    lines = builder.build()
    with pytest.raises(BufferError):
        builder.append("b")
    assert lines == ["a"]


def test_text_that_is_not_utf_8_is_refused():
    with pytest.raises(UnicodeEncodeError):
        Lines.of(["\ud800"])


def test_a_line_costs_its_bytes_and_8_more():
    tracemalloc.start()
    try:
        lines = Lines.of("a line of twenty 123" for _ in range(100_000))
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(lines) == 100_000
    assert used < 100_000 * 28 * 1.15, "a buffer that grows may be an eighth larger than what it holds"
