"""IBM model 1: equal to a slow EM over dictionaries, and its alignment error rate on the grammar."""

from collections import defaultdict
from random import Random

import numpy as np
import pytest

from seq2seq_lab.analysis.ibm1 import train_ibm1
from seq2seq_lab.analysis.symmetrization import SYMMETRIZATIONS
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.alignment import AlignmentErrorRate, link_counts


def slow_em(sources, targets, iterations):
    """t(target word | source word); None is NULL."""
    t = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts, totals = defaultdict(float), defaultdict(float)
        for source, target in zip(sources, targets, strict=True):
            for word in target:
                total = sum(t[one, word] for one in (None, *source))
                for one in (None, *source):
                    counts[one, word] += t[one, word] / total
                    totals[one] += t[one, word] / total
        t = defaultdict(float, {pair: count / totals[pair[0]] for pair, count in counts.items()})
    return t


def slow_links(t, source, target):
    links = set()
    for position, word in enumerate(target):
        scores = [t[None, word], *(t[one, word] for one in source)]
        if max(scores[1:], default=0) > scores[0]:
            links.add((scores.index(max(scores)) - 1, position))
    return links


@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_it_equals_slow_em(iterations) -> None:
    random = Random(iterations)
    sources = [random.choices("abcdefgh", k=random.randint(0, 8)) for _ in range(60)]
    targets = [random.choices("rstuvwxyz", k=random.randint(0, 9)) for _ in range(60)]
    model, t = train_ibm1(sources, targets, iterations), slow_em(sources, targets, iterations)
    assert t
    for (source, target), probability in t.items():
        assert model.probability(source, target) == pytest.approx(probability, abs=1e-9)
    for source in (None, *"abcdefgh"):
        assert sum(model.probability(source, word) for word in "rstuvwxyz") == pytest.approx(1, abs=1e-9)
    # Equal scores may differ in the last bit, and then the links do; random counts have none after two iterations.
    if iterations > 1:
        assert model.align(sources, targets) == [
            slow_links(t, *pair) for pair in zip(sources, targets, strict=True)
        ]


def test_two_sentences_are_enough_to_tell_words_apart() -> None:
    sources, targets = (
        [["the", "house"], ["the", "book"], ["a", "book"]],
        [["das", "Haus"], ["das", "Buch"], ["ein", "Buch"]],
    )
    model = train_ibm1(sources, targets, 30)
    assert model.align([["the", "book"]], [["das", "Buch"]]) == [{(0, 0), (1, 1)}]
    assert model.align([["a", "house"]], [["Haus", "ein"]]) == [{(1, 0), (0, 1)}]


def test_words_that_never_met_have_no_link() -> None:
    model = train_ibm1([["a"]], [["x"]])
    assert model.probability("a", "y") == model.probability("b", "x") == model.probability("b", "y") == 0
    assert model.align([["b"], [], ["a"], ["a"]], [["y"], ["y"], [], ["y", "q"]]) == [
        set(),
        set(),
        set(),
        set(),
    ]
    assert model.align([], []) == []
    assert model.align([["a"]], [[]]) == [set()]


@pytest.mark.parametrize(
    ("sources", "targets", "iterations", "named"),
    [
        ([["a"]], [], 5, "1 sources, 0 targets"),
        ([["a"]], [[]], 5, "0 words"),
        ([["a"]], [["x"]], 0, "iterations=0"),
    ],
)
def test_errors_name_what_is_wrong(sources, targets, iterations, named) -> None:
    with pytest.raises(UserError, match=named):
        train_ibm1(sources, targets, iterations)


def test_the_error_rate_on_the_grammar() -> None:
    corpus = Grammar(
        train=4000, validation=10, test=300, test_compositional=0, held_out_share=0.1, max_depth=2, seed=1
    ).load()
    train, gold = corpus.train.gold, corpus.tests["test"].gold
    sides = [[pair.source_words for pair in train], [pair.target_words for pair in train]]
    tests = [[pair.source_words for pair in gold], [pair.target_words for pair in gold]]
    forward = train_ibm1(*sides).align(*tests)
    backward = [{link[::-1] for link in links} for links in train_ibm1(*sides[::-1]).align(*tests[::-1])]

    def rate(links):
        rows = [link_counts(one, pair) for one, pair in zip(links, gold, strict=True)]
        return AlignmentErrorRate().value(np.sum(rows, axis=0))

    grown = map(SYMMETRIZATIONS["grow-diag"], forward, backward)
    assert [rate(forward), rate(backward), rate(grown)] == pytest.approx([0.139, 0.152, 0.106], abs=0.001)
