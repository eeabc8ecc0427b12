"""Alignment: golden values computed by hand."""

import math
import re
from collections.abc import Callable, Iterator, Sequence, Set
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seq2seq_lab.data.corpus import Gold, ParallelText, word_spans
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.data.tokenizers import UNK, WordTokenizer, fit_tokenizers
from seq2seq_lab.data.words import words
from seq2seq_lab.metrics.alignment import (
    AlignmentErrorRate,
    AlignmentPrecision,
    AlignmentRecall,
    Counts,
    Link,
    PointingAccuracy,
    WordLinks,
    copied_counts,
    diagonal_links,
    group_tokens,
    join_subwords,
    link_counts,
    oracle_links,
    replace_unknown,
)


def test_pointing_accuracy_counts_copied_words_only() -> None:
    words = ("Bob", "met", "Kim", "Kim"), ("Bob", "meets", "Kim", "Eve")
    gold = Gold(*words, frozenset({(0, 0), (1, 1), (2, 2), (3, 2), (0, 3)}))
    assert copied_counts({(0, 0), (1, 1), (3, 2), (0, 3)}, gold) == (2, 2)
    assert copied_counts({(1, 0), (1, 1), (2, 2), (2, 3)}, gold) == (1, 2)
    metric = PointingAccuracy()
    assert metric.value(np.array([3.0, 4.0])) == 0.75
    assert not metric.is_defined(np.array([0.0, 0.0]))


def test_word_spans_go_from_left_to_right() -> None:
    text = "L'homme a vu la mer."
    words = ["L'", "homme", "a", "vu", "la", "mer", "."]
    spans = word_spans(text, words)
    assert spans == [(0, 2), (2, 7), (8, 9), (10, 12), (13, 15), (16, 19), (19, 20)]
    assert word_spans("no no no", ["no", "no", "no"]) == [(0, 2), (3, 5), (6, 8)]


def test_a_word_that_does_not_follow_is_an_error() -> None:
    with pytest.raises(ValueError, match="'John' is not in 'Mary and John met' after character 17"):
        word_spans("Mary and John met", ["met", "John"])


def test_tokens_go_to_the_word_they_overlap_most() -> None:
    words = [(0, 4), (5, 10)]
    # " loves" with its space; a token over both words; the space alone; an empty span.
    assert group_tokens([(0, 4), (4, 10)], words) == [[0], [1]]
    assert group_tokens([(0, 2), (2, 8)], words) == [[0], [1]]
    assert group_tokens([(1, 7)], words) == [[0], []]
    assert group_tokens([(0, 4), (4, 5), (7, 7), (5, 10)], words) == [[0], [3]]
    assert group_tokens([(0, 4)], []) == []


def group_tokens_slowly(
    token_spans: Sequence[tuple[int, int]], words: Sequence[tuple[int, int]]
) -> list[list[int]]:
    """The definition: the overlap of each token with each word."""
    groups: list[list[int]] = [[] for _ in words]
    for token, (start, end) in enumerate(token_spans):
        overlaps = [min(end, word_end) - max(start, word_start) for word_start, word_end in words]
        best = max(overlaps, default=0)
        if best > 0:
            groups[overlaps.index(best)].append(token)
    return groups


def random_spans(random: Random, end: int, count: int) -> list[tuple[int, int]]:
    """Spans in the order of the text that do not overlap, some of them empty or without a space between them."""
    places = sorted(random.choices(range(end + 1), k=2 * count))
    return list(zip(places[::2], places[1::2], strict=True))


def test_groups_equal_their_definition_on_random_spans() -> None:
    random = Random(1)
    for _ in range(3000):
        end = random.randint(0, 30)
        tokens, words = (random_spans(random, end, random.randint(0, 10)) for _ in range(2))
        for one in random.choices(tokens, k=3) if tokens else ():
            tokens.insert(random.randint(0, len(tokens)), one)  # several tokens of one character; any order
        assert group_tokens(tokens, words) == group_tokens_slowly(tokens, words)


class CountedSpans(list[tuple[int, int]]):
    """Spans that count how many of them are read."""

    reads = 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self.reads += len(self)
        return super().__iter__()

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.reads += len(found) if isinstance(index, slice) else 1
        return found


def test_grouping_reads_a_word_a_constant_number_of_times() -> None:
    words = CountedSpans((place, place + 1) for place in range(0, 2000, 2))
    groups = group_tokens([(place, place + 1) for place in range(2000)], words)
    assert groups == [[place] for place in range(0, 2000, 2)]
    assert words.reads <= 10 * len(words)


def test_join_subwords_sums_columns_and_averages_rows() -> None:
    weights = np.array([[0.1, 0.2, 0.7], [0.3, 0.4, 0.3], [0.5, 0.5, 0.0]])
    joined = join_subwords(weights, [[0, 1], [2]], [[0, 1], [2], []])
    np.testing.assert_allclose(joined, [[0.5, 0.5], [1.0, 0.0], [0.0, 0.0]])


def test_links_of_word_tokens() -> None:
    # <sos> John loves Mary <eos>; the greatest weight of the first row is on <sos>, which does not count.
    weights = np.array(
        [
            [0.6, 0.3, 0.1, 0.0, 0.0],
            [0.0, 0.1, 0.2, 0.3, 0.4],
            [0.0, 0.4, 0.5, 0.1, 0.0],
            [0.0, 0.0, 0.0, 0.9, 0.1],
        ]
    )
    source = words("John loves Mary")
    target = words("Jean aime Marie")
    assert WordLinks(source, target, source, target).predict(weights) == {(0, 0), (2, 1), (1, 2)}


def test_links_of_subword_tokens() -> None:
    # Source "informatician works": infor|mat|ician| works. No single piece wins, the word's sum does.
    source_spans = [(0, 5), (5, 8), (8, 13), (13, 19)]
    # Target "un informaticien": un| infor|maticien; the two rows of the second word disagree.
    target_spans = [(0, 2), (2, 8), (8, 16)]
    weights = np.array(
        [
            [0.0, 0.2, 0.2, 0.2, 0.4, 0.0],
            [0.0, 0.0, 0.3, 0.0, 0.7, 0.0],
            [0.0, 0.9, 0.0, 0.0, 0.1, 0.0],
            [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        ],
        dtype=np.float32,
    )
    links = WordLinks(
        source_spans,
        target_spans,
        word_spans("informatician works", ["informatician", "works"]),
        word_spans("un informaticien", ["un", "informaticien"]),
    )
    assert links.predict(weights) == {(0, 0), (0, 1)}


def test_links_of_characters_ignore_the_spaces() -> None:
    # "a b" to "x y": the space takes the greatest weight and belongs to no word.
    spans = [(0, 1), (1, 2), (2, 3)]
    weights = np.array(
        [
            [0.0, 0.1, 0.6, 0.3, 0.0],
            [0.0, 1.0, 0.0, 0.0, 0.0],
            [0.0, 0.3, 0.5, 0.2, 0.0],
            [0.0, 0.0, 0.0, 0.0, 1.0],
        ]
    )
    both = words("a b")
    assert WordLinks(spans, spans, both, both).predict(weights) == {(1, 0), (0, 1)}


def test_links_edge_cases() -> None:
    # One token over two target words: the one that overlaps less has no row, so no link.
    weights = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert WordLinks([(0, 3)], [(0, 6)], [(0, 3)], [(0, 2), (3, 6)]).predict(weights) == {(0, 1)}
    assert WordLinks([], [], [], []).predict(np.array([[0.5, 0.5]])) == set()
    no_source_word = WordLinks([(0, 1)], [(0, 3)], [], [(0, 3)])
    assert no_source_word.predict(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])) == set()
    with pytest.raises(AssertionError, match=r"weights \(2, 3\), expected \(3, 3\)"):
        WordLinks([(0, 3)], [(0, 3), (4, 6)], [(0, 3)], [(0, 3), (4, 6)]).predict(weights)


def totals(*counts: Counts) -> Any:
    return np.array(counts, np.float64).sum(0)


def linked(sure: set[Link], possible: Set[Link] = frozenset()) -> Gold:
    """Three words on each side with these links."""
    words = ("a", "b", "c")
    return Gold(words, words, frozenset(sure), frozenset(possible))


def test_alignment_error_rate_by_hand() -> None:
    found = totals(
        link_counts({(0, 0), (1, 1), (2, 2)}, linked({(0, 0), (1, 2)})),
        link_counts({(0, 0)}, linked({(0, 0), (0, 1), (1, 0)})),
    )
    # |A∩S| = |A∩P| = 1 + 1, |A| = 3 + 1, |S| = 2 + 3.
    assert AlignmentErrorRate().value(found) == pytest.approx(1 - 4 / 9)
    assert AlignmentPrecision().value(found) == pytest.approx(2 / 4)
    assert AlignmentRecall().value(found) == pytest.approx(2 / 5)


def test_the_signature_identifies_the_gold_alignments() -> None:
    def signature(metric: AlignmentErrorRate, *golds: Gold) -> str | None:
        text = ParallelText(["a b c"], ["a b c"], gold=list(golds) or None)
        return metric.signature(SimpleNamespace(text=text, alignments={}))

    first = signature(AlignmentErrorRate(), linked({(0, 0), (1, 1)}))
    assert first is not None
    assert re.fullmatch(r"links:attention\|gold:[0-9a-f]{7}", first)
    same = linked({(np.int64(1), np.int64(1)), (np.int64(0), np.int64(0))})  # type: ignore[arg-type]
    assert first == signature(AlignmentErrorRate(), same)
    for other in (linked({(0, 0)}), linked({(0, 0)}, {(1, 1)}), linked({(0, 0), (1, 1)}, {(2, 2)})):
        assert signature(AlignmentErrorRate(), other) != first
    assert signature(AlignmentErrorRate()) is None
    assert signature(AlignmentErrorRate("oracle"), linked({(0, 0)})) is None


def test_possible_links_count_for_precision_and_not_for_recall() -> None:
    for possible in ({(1, 1)}, {(0, 0), (1, 1)}):  # a sure link counts once
        found = totals(link_counts({(0, 0), (1, 1)}, linked({(0, 0)}, possible)))
        for metric, value in ((AlignmentPrecision(), 1), (AlignmentRecall(), 1), (AlignmentErrorRate(), 0)):
            assert metric.value(found) == value


def test_rates_without_links_are_not_numbers() -> None:
    found = totals(link_counts(set(), linked({(0, 0)})))
    assert math.isnan(AlignmentPrecision().value(found))
    assert AlignmentErrorRate().value(found) == 1
    assert math.isnan(AlignmentErrorRate().value(0 * found))


def aer(links: Callable[[Gold], set[Link]], gold: Sequence[Gold]) -> float:
    return AlignmentErrorRate().value(totals(*(link_counts(links(one), one) for one in gold)))


def test_aer_of_the_best_links_and_of_a_diagonal() -> None:
    # "ne … pas" is one source word; the second target word of the second pair has two source words.
    gold = [
        Gold(("I", "not", "sleep"), ("je", "ne", "dors", "pas"), frozenset({(0, 0), (1, 1), (2, 2), (1, 3)})),
        Gold(("the", "red", "cat"), ("le", "chat"), frozenset({(0, 0), (1, 1), (2, 1)})),
        Gold(("a", "b"), ("x", "y", "z"), frozenset({(1, 2)})),  # two target words have no gold link
    ]
    # 9 links for 9 target words, 8 gold links; of the best links 7 are right, of the diagonal's
    # 3 in the first pair (not the fourth word, at the last source word), 2 in the second and 1 in the third.
    assert aer(oracle_links, gold) == pytest.approx(1 - 2 * 7 / (9 + 8))
    assert aer(diagonal_links, gold) == pytest.approx(1 - 2 * 6 / (9 + 8))


def test_the_best_links_use_possible_links_where_no_sure_link_is_right() -> None:
    gold = Gold(("a", "b"), ("x", "y", "z"), frozenset({(0, 0)}), frozenset({(1, 0), (1, 1)}))
    assert oracle_links(gold) == {(0, 0), (1, 1), (0, 2)}
    # |A∩S| = 1, |A∩P| = 2, |A| = 3, |S| = 1
    assert aer(oracle_links, [gold]) == pytest.approx(1 - 3 / 4)


def test_aer_bounds_of_the_grammars_test_sets() -> None:
    corpus = Grammar(
        train=100, validation=10, test=300, test_compositional=300, held_out_share=0.1, seed=1, max_depth=4
    ).load()
    for text in corpus.tests.values():
        assert text.gold is not None
        assert 0.03 < aer(oracle_links, text.gold) < 0.06
        assert 0.5 < aer(diagonal_links, text.gold) < 0.7


def test_unknown_words_are_replaced_by_the_source_word_of_most_attention() -> None:
    pair = fit_tokenizers(
        lambda: WordTokenizer(joint=False, lowercase=True, min_frequency=1, max_size=None),
        ParallelText(["a cat sees the dog"], ["un chat voit l'chien"]),
        ("en", "fr"),
    )
    line = "A Zebra sees Quagga!"
    (tokens,) = pair.target.encode(["un okapi voit l'okapi"])
    assert tokens[1] == tokens[4] == UNK
    columns = len(pair.source.encode([line])[0]) + 2
    weights = np.zeros((len(tokens) + 1, columns))
    weights[1, [0, 2, columns - 1]] = [0.5, 0.2, 0.3]  # <sos> and <eos> are not words
    weights[4, [1, 4]] = [0.4, 0.6]
    # The case of the sentence, not of the lowercasing tokenizer.
    assert replace_unknown(weights, pair, line, tokens) == "un Zebra voit l'Quagga"
    assert replace_unknown(weights[:, :2], pair, "", tokens) == "un ⁇ voit l'⁇"
    known = pair.target.encode(["un chat"])[0]
    assert replace_unknown(weights, pair, line, known) == "un chat"
