"""Links from attention weights, and the alignment error rate of the weights."""

import numpy as np
import pytest

from seq2seq_lab.analysis.extraction import (
    argmax_links,
    soft_alignment_error_rate,
    soft_link_counts,
    threshold_links,
    word_weights,
)
from seq2seq_lab.data.corpus import Gold
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.alignment import WordLinks, link_counts, read

# Two target words, three source words between <sos> and <eos>.
WEIGHTS = np.array([[0.5, 0.3, 0.1, 0.1, 0.0], [0.1, 0.2, 0.4, 0.2, 0.1]])


def test_a_word_that_attends_most_to_the_frame_has_no_link_if_null_is_allowed() -> None:
    assert argmax_links(WEIGHTS) == argmax_links(WEIGHTS, null="drop") == {(0, 0), (1, 1)}
    assert argmax_links(WEIGHTS, null="allow") == {(1, 1)}
    assert argmax_links(WEIGHTS[:, ::-1], null="allow") == {(1, 1)}  # <eos> has the largest weight
    assert argmax_links(np.array([[0.4, 0.4, 0.2, 0]]), null="allow") == {
        (0, 0)
    }  # not larger than the word's


def test_a_threshold_gives_several_links_or_none() -> None:
    assert threshold_links(WEIGHTS, 0.2) == {(0, 0), (0, 1), (1, 1), (2, 1)}
    assert threshold_links(WEIGHTS, 0.2, null="allow") == {(0, 1), (1, 1), (2, 1)}
    assert threshold_links(WEIGHTS, 0.6) == set()


def test_a_word_without_tokens_has_no_link() -> None:
    weights = np.vstack([WEIGHTS, np.zeros(5)])
    for null in ("drop", "allow"):
        assert all(target < 2 for _, target in argmax_links(weights, null))
    assert argmax_links(np.ones((2, 2))) == threshold_links(np.ones((2, 2)), 0.5) == set()  # no source word


def test_dropping_null_is_the_rule_of_the_metric() -> None:
    random = np.random.default_rng(1)
    # Source tokens "un|believ|able", "cats"; target tokens "in", "croy|ables", "chats".
    words = WordLinks(
        [(0, 2), (2, 8), (8, 12), (13, 17)],
        [(0, 2), (3, 7), (7, 12), (13, 18)],
        [(0, 12), (13, 17)],
        [(0, 2), (3, 12), (13, 18)],
    )
    for _ in range(200):
        weights = random.dirichlet(np.ones(6), 5).astype(np.float32)
        joined = word_weights(words, weights)
        assert joined.shape == (3, 4)
        assert joined.sum(axis=1) == pytest.approx(1, abs=1e-6)
        assert argmax_links(joined) == words.predict(weights)
        assert argmax_links(word_weights(words, weights, "read")) == words.predict(read(weights))


def test_read_takes_the_row_of_the_next_step() -> None:
    words = WordLinks([(0, 1), (2, 3)], [(0, 1), (2, 3)], [(0, 1), (2, 3)], [(0, 1), (2, 3)])
    weights = np.array([[0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0]], np.float32)
    assert argmax_links(word_weights(words, weights, "emit")) == {(1, 0), (0, 1)}
    assert argmax_links(word_weights(words, weights, "read")) == {(0, 0), (1, 1)}


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: argmax_links(WEIGHTS, null="keep"), "null=keep.*drop, allow"),
        (lambda: threshold_links(WEIGHTS, 0), "threshold=0"),
        (lambda: threshold_links(WEIGHTS, 1.5), "threshold=1.5"),
        (lambda: word_weights(None, WEIGHTS, "write"), "reading=write.*emit, read"),
    ],
)
def test_errors_name_the_argument(call, named) -> None:
    with pytest.raises(UserError, match=named):
        call()


def test_soft_error_rate_of_the_formula() -> None:
    gold = Gold(("a", "b", "c"), ("x", "y"), frozenset({(0, 0), (1, 1)}), frozenset({(2, 1), (0, 0)}))
    counts = soft_link_counts(WEIGHTS, gold)
    assert counts == pytest.approx((0.7, 0.9, 1.3, 2))
    assert soft_alignment_error_rate(np.array(counts)) == pytest.approx(1 - (0.7 + 0.9) / (1.3 + 2))


def test_weights_of_one_word_give_the_hard_error_rate() -> None:
    random = np.random.default_rng(1)
    for _ in range(50):
        pairs = [(int(s), int(t)) for s, t in random.integers(0, 4, (8, 2))]
        gold = Gold(tuple("abcd"), tuple("wxyz"), frozenset(pairs[:4]), frozenset(pairs[4:]))
        weights = np.zeros((4, 6))
        weights[np.arange(4), 1 + random.integers(0, 4, 4)] = 1
        assert soft_link_counts(weights, gold) == link_counts(argmax_links(weights), gold)
