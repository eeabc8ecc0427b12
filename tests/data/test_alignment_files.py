"""Files of word alignments: every notation, every fault, and error rates equal to those of a well-known script."""

import gzip
import logging
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq_lab.data.alignment_files import AlignmentReader, pharaoh
from seq2seq_lab.data.corpus import Gold
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.alignment import (
    AlignmentErrorRate,
    AlignmentPrecision,
    AlignmentRecall,
    link_counts,
)

SIZES = [(3, 2), (2, 3), (1, 1)]
SURE = [{(0, 0), (2, 1)}, {(1, 0), (0, 2)}, set()]
POSSIBLE = [{(1, 1)}, set(), {(0, 0)}]  # without the sure links
EXPECTED = [(frozenset(sure), frozenset(more)) for sure, more in zip(SURE, POSSIBLE, strict=True)]


def lines_of(sure, possible, *, base=0, mark="?", is_reversed=False):
    """Pharaoh lines that are written from the definition."""
    step = -1 if is_reversed else 1
    lines = []
    for links, more in zip(sure, possible, strict=True):
        marked = [(link, "-") for link in sorted(links)] + [(link, mark) for link in sorted(more)]
        lines.append(" ".join(sign.join(str(word + base) for word in link[::step]) for link, sign in marked))
    return "".join(f"{line}\n" for line in lines)


def wpt_of(sure, possible, *, is_reversed=False, number="{}", sure_mark=" S"):
    step = -1 if is_reversed else 1
    return "".join(
        f"{number.format(sentence)} {' '.join(str(word + 1) for word in link[::step])}{mark}\n"
        for sentence, (links, more) in enumerate(zip(sure, possible, strict=True), start=1)
        for mark, part in ((sure_mark, links), (" P", more))
        for link in sorted(part)
    )


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("mark", "?p")
@pytest.mark.parametrize("base", [0, 1])
def test_pharaoh_in_both_bases_and_directions(tmp_path, base, mark, is_reversed) -> None:
    path = write(
        tmp_path / "gold.talp", lines_of(SURE, POSSIBLE, base=base, mark=mark, is_reversed=is_reversed)
    )
    for given_base in (None, base):
        reader = AlignmentReader(base=given_base, is_reversed=is_reversed)
        assert reader.read(path, SIZES) == EXPECTED
    with pytest.raises(
        UserError, match=rf"gold\.talp line \d: the link \S+ is outside .* \(first word {1 - base}, "
    ):
        AlignmentReader(base=1 - base, is_reversed=is_reversed).read(path, SIZES)


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("number", ["{}", "{:04}"])
@pytest.mark.parametrize("sure_mark", ["", " S", " S 0.9"])
def test_wpt_in_both_directions(tmp_path, number, sure_mark, is_reversed) -> None:
    text = wpt_of(SURE, POSSIBLE, number=number, sure_mark=sure_mark, is_reversed=is_reversed)
    path = write(tmp_path / "gold.wa", text)
    for base in (None, 1):
        assert AlignmentReader(base=base, is_reversed=is_reversed).read(path, SIZES) == EXPECTED


def test_a_link_that_is_both_is_sure(tmp_path) -> None:
    path = write(tmp_path / "a", "0p0 0-0 0-0 1?1\n")
    assert AlignmentReader(base=0).read(path, [(2, 2)]) == [(frozenset({(0, 0)}), frozenset({(1, 1)}))]
    path = write(tmp_path / "b", "1 1 1 S\n1 1 1 P\n1 2 2 P\n")
    assert AlignmentReader().read(path, [(2, 2)]) == [(frozenset({(0, 0)}), frozenset({(1, 1)}))]


def test_files_without_links(tmp_path) -> None:
    assert AlignmentReader().read(write(tmp_path / "a", "\n\n\n"), SIZES) == [(frozenset(), frozenset())] * 3
    with pytest.raises(UserError, match="0 lines, and its test set 3 pairs"):
        AlignmentReader().read(write(tmp_path / "b", ""), SIZES)


def test_compressed_files_and_windows_line_ends(tmp_path) -> None:
    text = lines_of(SURE, POSSIBLE).replace("\n", "\r\n")
    assert AlignmentReader().read(write(tmp_path / "gold.gz", text), SIZES) == EXPECTED


def test_possible_links_in_their_own_file(tmp_path) -> None:
    both = [sure | more for sure, more in zip(SURE, POSSIBLE, strict=True)]
    sure = write(tmp_path / "sure", lines_of(SURE, [set()] * 3))
    possible = write(tmp_path / "possible", lines_of(both, [set()] * 3))
    assert AlignmentReader().read(sure, SIZES, possible) == EXPECTED
    missing = [both[0], both[1] - {(0, 2)}, both[2]]
    write(possible, lines_of(missing, [set()] * 3))
    with pytest.raises(UserError, match=r"sure line 2: the link 0-2 is sure, but not among .*possible"):
        AlignmentReader().read(sure, SIZES, possible)


def test_a_null_word_of_wpt_is_left_out_with_a_warning(tmp_path, caplog) -> None:
    path = write(tmp_path / "gold.wa", "1 1 1\n1 0 2\n1 2 0 P\n")
    with caplog.at_level(logging.WARNING):
        assert AlignmentReader().read(path, [(2, 2)]) == [(frozenset({(0, 0)}), frozenset())]
    assert "gold.wa: 2 links of position 0" in caplog.text


@pytest.mark.parametrize(
    ("text", "settings", "named"),
    [
        ("0-0 1-1 x\n", {}, "line 1: 'x' is not a link"),
        ("0-0\n0-0 1:1\n0-0\n", {}, "line 2: '1:1' is not a link"),
        ("0-0\n-1-0\n0-0\n", {}, "line 2: '-1-0' is not a link"),
        ("0-0\n0-\u0661\n0-0\n", {}, "line 2: .* is not a link"),
        ("0-0\n1 1 1\n0-0\n", {}, "line 2: '1' is not a link"),
        ("1 1 1\n0-0\n", {}, "line 2: '0-0' is not `sentence source target"),
        ("1 1 1 X\n", {}, "line 1: '1 1 1 X' is not a link|line 1: '1' is not a link"),
        ("1 1 1 S\n1 1 2 X\n", {}, r"line 2: '1 1 2 X' is not `sentence source target \[S\|P"),
        (
            "1 1 1\n4 1 1\n",
            {},
            "line 2: '4 1 1' is a link of sentence 4, and the test set has the pairs 1 to 3",
        ),
        ("1 1 1\n0 1 1\n", {}, "line 2: '0 1 1' is a link of sentence 0"),
        (
            "1 1 1\n1 4 1\n",
            {},
            "line 2: the link 1 4 1 is outside .*source words 1 to 3 and target words 1 to 2",
        ),
        ("1 0 0\n1 1 1\n", {}, "line 1: '1 0 0' links no word.*add 1"),
        ("1 1 1\n", {"base": 0}, "alignment_base=0.* counts from 1"),
        ("0-0\n0-0\n", {}, "has 2 lines, and its test set 3 pairs"),
        ("0-0\n0-0\n0-0\n\n", {}, "has 4 lines, and its test set 3 pairs"),
        ("0-0\n0-0\n0-1\n", {}, r"line 3: the link 0-1 is outside .*target words 0 to 0 \(first word 0"),
        ("1-1\n1-1\n1-2\n", {}, r"line 3: the link 1-2 is outside .*target words 1 to 1 \(first word 1"),
        ("1-1\n1-1\n\n", {}, "all links are in their sentences if the first word is 0, and also if it is 1"),
        ("0-2\n2-0\n\n", {}, "line 1: the link 0-2 .*other direction: set dataset.alignments_reversed=true"),
        ("2-0\n0-2\n\n", {"is_reversed": True}, "line 1: .*set dataset.alignments_reversed=false"),
        ("0-2\n2-3\n\n", {}, "line 1: the link 0-2 .*Give the alignments of this text"),
        (b"0-0\n\xff\n0-0\n", {}, "line 2: byte 1 is not UTF-8"),
    ],
)
def test_errors_name_the_file_the_line_and_the_link(tmp_path, text, settings, named) -> None:
    path = tmp_path / "gold.talp"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=named) as caught:
        AlignmentReader(**settings).read(path, SIZES)
    assert "gold.talp" in str(caught.value)


pairs = st.frozensets(st.tuples(st.integers(0, 30), st.integers(0, 30)))


@given(pairs, pairs)
def test_pharaoh_round_trip(tmp_path_factory, links, possible) -> None:
    path = write(tmp_path_factory.getbasetemp() / "round.talp", pharaoh(links, possible) + "\n")
    assert AlignmentReader(base=0).read(path, [(31, 31)]) == [(links, possible - links)]


def test_pharaoh_is_in_the_order_of_the_target() -> None:
    assert pharaoh({(1, 0), (0, 2), (0, 0)}, {(2, 1), (1, 0)}) == "0-0 1-0 2p1 0-2"


# A port of lilt/alignment-scripts/scripts/aer.py.


def parse_single_alignment(string, reverse=False, one_indexed=False):
    a, b = string.replace("p", "-").split("-")
    a, b = int(a), int(b)
    if one_indexed:
        a, b = a - 1, b - 1
    return (b, a) if reverse else (a, b)


def calculate_metrics(array_sure, array_possible, array_hypothesis):
    sum_a_intersect_p, sum_a_intersect_s, sum_s, sum_a = 0.0, 0.0, 0.0, 0.0
    for sure, possible, found in zip(array_sure, array_possible, array_hypothesis, strict=True):
        sum_a += len(found)
        sum_s += len(sure)
        sum_a_intersect_p += len(found & possible)
        sum_a_intersect_s += len(found & sure)
    precision = sum_a_intersect_p / sum_a
    recall = sum_a_intersect_s / sum_s
    return precision, recall, 1.0 - (sum_a_intersect_p + sum_a_intersect_s) / (sum_a + sum_s)


def read_reference(text, reverse, one_indexed):
    sure, possible = [], []
    for line in text.splitlines():
        links = [(parse_single_alignment(one, reverse, one_indexed), "-" in one) for one in line.split()]
        sure.append({link for link, is_sure in links if is_sure})
        possible.append({link for link, _ in links})
    return sure, possible


def rates(golds, hypotheses):
    totals = np.sum([link_counts(*pair) for pair in zip(hypotheses, golds, strict=True)], axis=0)
    return [one().value(totals) for one in (AlignmentPrecision, AlignmentRecall, AlignmentErrorRate)]


def random_links(random, size, share):
    return {(s, t) for s in range(size[0]) for t in range(size[1]) if random.random() < share}


def golds_of(sizes, found):
    return [
        Gold(("w",) * size[0], ("w",) * size[1], *links) for size, links in zip(sizes, found, strict=True)
    ]


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("base", [0, 1])
def test_rates_equal_the_script_on_files(tmp_path, base, is_reversed) -> None:
    random = Random(base)
    sizes = [(random.randint(1, 9), random.randint(1, 9)) for _ in range(50)]
    sure, possible, hypotheses = ([random_links(random, size, 0.3) for size in sizes] for _ in range(3))
    settings = {"base": base, "is_reversed": is_reversed}
    # The script has one notation for possible links; a link may be sure and possible.
    reference = lines_of(sure, possible, mark="p", **settings)
    expected = calculate_metrics(*read_reference(reference, is_reversed, base == 1), hypotheses)
    texts = [
        (reference, settings),
        (lines_of(sure, possible, mark="?", **settings), settings),
        (wpt_of(sure, possible, is_reversed=is_reversed), {"is_reversed": is_reversed}),
    ]
    for text, given_settings in texts:
        found = AlignmentReader(**given_settings).read(write(tmp_path / "gold", text), sizes)
        assert rates(golds_of(sizes, found), hypotheses) == pytest.approx(expected, abs=1e-12)


def test_rates_equal_the_script_on_random_alignments() -> None:
    random = Random(1)
    for _ in range(10_000):
        sizes = [(random.randint(1, 6), random.randint(1, 6)) for _ in range(random.randint(1, 3))]
        sure, more, hypotheses = (
            [random_links(random, size, random.random()) for size in sizes] for _ in range(3)
        )
        possible = [a | b for a, b in zip(sure, more, strict=True)]
        if not any(sure) or not any(hypotheses):
            continue
        # Gold.possible may repeat sure links.
        found = [(frozenset(a), frozenset(b)) for a, b in zip(sure, more, strict=True)]
        expected = calculate_metrics(sure, possible, hypotheses)
        assert rates(golds_of(sizes, found), hypotheses) == pytest.approx(expected, abs=1e-12)
