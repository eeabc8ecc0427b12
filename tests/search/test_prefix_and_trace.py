"""Forced beginnings of outputs, and the record of what a search considered."""

import math
from collections import Counter
from itertools import chain
from typing import Any

import pytest
import torch
from exhaustive import every_output, forced, ranked, wu
from small_models import (
    LENGTHS,
    batch_of,
    beam_search,
    random_sentences,
    sampling_search,
    small_config,
    small_model,
)

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.search.base import Hypothesis, Search
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.search.trace import Node, SearchTrace

VOCABULARY = 7
SEARCHES: dict[str, Search] = {
    "greedy": GreedySearch(**LENGTHS),
    "beam": beam_search(4, nbest=3, length_penalty=0.6),
    "best": beam_search(4),
    "covered": beam_search(3, nbest=3, coverage_penalty=0.4),
    "sampling": sampling_search(temperature=0.8, top_k=4, top_p=0.95, nbest=3),
}
each_search = pytest.mark.parametrize("name", SEARCHES)
PREFIXES = [[4, 5], [], [6, 4, 4, 5], [0]]


def a_model(decoder: str = "luong_feeding", attention: str = "coverage") -> Seq2Seq:
    """A model in float64 whose distributions are far from flat."""
    model = small_model(small_config(decoder=decoder, attention=attention), vocabulary=VOCABULARY).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model.eval()


def a_batch() -> Batch:
    lengths = (3, 1, 5, 2)
    return batch_of(random_sentences(lengths, 1, VOCABULARY), [[] for _ in lengths])


def written(hypothesis: Hypothesis) -> list[int]:
    return [*hypothesis.tokens, *[EOS] * hypothesis.ended]


@each_search
@pytest.mark.parametrize("decoder", ["luong_feeding", "transformer"])
def test_forcing_an_output_reproduces_it(name: str, decoder: str) -> None:
    """In whole with its log-probability; a greedy search continues its own beginning as before."""
    model, batch, search = a_model(decoder), a_batch(), SEARCHES[name]
    found = search(model, batch, True)
    for rank in range(len(found[0])):
        outputs = [hypotheses[rank] for hypotheses in found]
        again = search(model, batch, True, prefix=[written(one) for one in outputs])
        for before, (after, *others) in zip(outputs, again, strict=True):
            assert (after.tokens, after.ended) == (before.tokens, before.ended)
            assert after.log_prob == pytest.approx(before.log_prob, rel=1e-6)
            assert after.weights_TS == pytest.approx(before.weights_TS, abs=1e-6)
            assert name == "sampling" or others == []
    if name == "greedy":
        for steps in (1, 3):
            again = search(model, batch, False, prefix=[written(one)[:steps] for (one,) in found])
            assert [one.tokens for (one,) in again] == [one.tokens for (one,) in found]


@each_search
def test_every_hypothesis_begins_with_the_prefix_of_its_sentence(name: str) -> None:
    model, batch = a_model(), a_batch()
    found = SEARCHES[name](model, batch, False, prefix=PREFIXES)
    for row, (prefix, hypotheses) in enumerate(zip(PREFIXES, found, strict=True)):
        for one in hypotheses:
            assert written(one)[: len(prefix)] == prefix
            expected = forced(model, batch, row, written(one)).log_prob
            assert one.log_prob == pytest.approx(expected, rel=1e-6)
    without = SEARCHES[name](model, batch, False)
    assert found[1] == without[1] or [one.tokens for one in found[1]] == [one.tokens for one in without[1]]


def test_a_beam_of_full_width_finds_the_best_outputs_with_a_prefix() -> None:
    model, batch = a_model(), batch_of([[4, 5, 6]], [[]])
    search = beam_search(100, length_penalty=0.8, nbest=5, max_length_factor=0.0)
    (found,) = search(model, batch, False, prefix=[[5]])
    outputs = [forced(model, batch, 0, tokens) for tokens in every_output(VOCABULARY, 4) if tokens[0] == 5]
    expected = ranked(outputs, wu(0.8, 0.0))[:5]
    assert [written(one) for one in found] == [output.tokens for _, output in expected]
    assert [one.score for one in found] == pytest.approx([score for score, _ in expected], rel=1e-6)


def test_a_prefix_may_end_before_the_minimum_length() -> None:
    search = GreedySearch(0.9, 1.0, 4)
    model, batch = a_model(), batch_of([[4, 5, 6, 4]], [[]])
    ((one,),) = search(model, batch, False, prefix=[[5, EOS]])
    assert (one.tokens, one.ended) == ([5], True)
    assert one.log_prob == pytest.approx(forced(model, batch, 0, [5, EOS]).log_prob, rel=1e-6)


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ([[4]], r"prefix=\[1 lists\].* 4 sentences"),
        ([[], [4] * 9, [], []], r"prefix\[1\]=\[9 tokens\].*length limit"),
        ([[EOS, 4], [], [], []], r"prefix\[0\]=\[3, 4\]"),
        ([[], [], [SOS], []], r"prefix\[2\]=\[2\]"),
        ([[], [], [], [PAD]], r"prefix\[3\]=\[1\]"),
        ([[], [-1], [], []], r"prefix\[1\]=\[-1\]"),
        ([[], [VOCABULARY], [], []], r"prefix=.*7.*ids from 0 to 6"),
    ],
)
def test_prefixes_that_cannot_be_forced_are_refused(prefix: list[list[int]], words: str) -> None:
    with pytest.raises(UserError, match=words):
        SEARCHES["beam"](a_model(), a_batch(), False, prefix=prefix)


def paths(levels: list[list[Node]]) -> list[list[tuple[int, ...]]]:
    """The tokens of each node of a tree."""
    found: list[list[tuple[int, ...]]] = [[()]]
    for level in levels[1:]:
        found.append([(*found[-1][node.parent], node.token) for node in level])
    return found


def traced(
    name: str, model: Seq2Seq, batch: Batch, **options: Any
) -> tuple[list[list[Hypothesis]], SearchTrace]:
    trace = SearchTrace(top=3)
    return SEARCHES[name](model, batch, True, trace=trace, **options), trace


@each_search
@pytest.mark.parametrize("prefix", [None, PREFIXES], ids=["free", "prefix"])
def test_a_trace_is_the_tree_of_the_search(name: str, prefix: list[list[int]] | None) -> None:
    """Its log-probabilities and probable tokens are those of the model that reads each prefix at once."""
    model, batch = a_model(), a_batch()
    found, trace = traced(name, model, batch, prefix=prefix)
    for row, levels in enumerate(trace.sentences):
        assert [node.token for node in levels[0]] == [SOS]
        returned = []
        for level, prefixes in zip(levels, paths(levels), strict=True):
            for node, tokens in zip(level, prefixes, strict=True):
                expected = forced(model, batch, row, [*tokens]).log_prob if tokens else 0.0
                assert node.log_prob == pytest.approx(expected, rel=1e-5, abs=1e-6)
                returned += [[*tokens]] if node.fate == "returned" else []
                assert bool(node.top) == (node.fate in ("extended", "pruned"))
                if node.top:
                    each = {
                        token: forced(model, batch, row, [*tokens, token]).log_prob - expected
                        for token in range(VOCABULARY)
                        if token not in (PAD, SOS)
                    }
                    best = sorted(each, key=lambda token: -each[token])[:3]
                    assert [token for token, _ in node.top] == best
                    assert [value for _, value in node.top] == pytest.approx(
                        [each[one] for one in best], rel=1e-4
                    )
        assert sorted(returned) == sorted(written(one) for one in found[row])


@each_search
def test_a_trace_changes_no_output(name: str) -> None:
    model, batch = a_model(), a_batch()
    found, _ = traced(name, model, batch)
    for ours, theirs in zip(found, SEARCHES[name](model, batch, True), strict=True):
        assert [(one.tokens, one.log_prob, one.score) for one in ours] == [
            (one.tokens, one.log_prob, one.score) for one in theirs
        ]


def test_a_trace_says_why_a_hypothesis_ended() -> None:
    model, batch = a_model(), a_batch()
    fates: Counter[str] = Counter()
    for name in ("beam", "best"):
        _, trace = traced(name, model, batch)
        for levels in trace.sentences:
            fates.update(fates_of(levels))
            for level, children in zip(levels, [*levels[1:], []], strict=True):
                assert len(level) <= 4
                parents = {node.parent for node in children}
                worst = min((node.log_prob for node in children), default=-math.inf)
                for index, node in enumerate(level):
                    assert (node.fate == "extended") == (index in parents)
                    # The best continuation of a pruned prefix is not better than those that were kept.
                    assert node.fate != "pruned" or node.log_prob + node.top[0][1] <= worst + 1e-9
    assert fates.keys() == {"extended", "returned", "outranked", "pruned", "stopped"}
    _, trace = traced("greedy", model, batch)
    assert {fate for levels in trace.sentences for fate in fates_of(levels)} == {"extended", "returned"}


def fates_of(levels: list[list[Node]]) -> list[str]:
    return [node.fate for level in levels for node in level]


def test_the_tree_of_a_sentence_is_that_of_the_sentence_alone() -> None:
    model, batch = a_model(), a_batch()
    _, trace = traced("best", model, batch)
    for row, levels in enumerate(trace.sentences):
        words = batch.source_BS[row, 1 : batch.source_lengths[row] - 1].tolist()
        (alone,) = traced("best", model, batch_of([words], [[]]))[1].sentences
        assert paths(alone) == paths(levels)
        assert fates_of(alone) == fates_of(levels)


class Stepping:
    """A model that reads one token at a time only."""

    def __init__(self, model: Seq2Seq) -> None:
        self.start, self.step = model.start, model.step


@each_search
@pytest.mark.parametrize("decoder", ["luong_feeding", "transformer"])
def test_a_prefix_that_is_read_at_once_changes_nothing(name: str, decoder: str) -> None:
    model, batch, prefix = a_model(decoder), a_batch(), [[4, 5, 4], [5, 6, EOS], [6, 4, 4, 5], [0, 4, 5]]
    found, trace = traced(name, model, batch, prefix=prefix)
    expected, stepped = traced(name, Stepping(model), batch, prefix=prefix)  # type: ignore[arg-type]  # enough for a search
    for ours, theirs in zip(found, expected, strict=True):
        assert [(one.tokens, one.ended) for one in ours] == [(one.tokens, one.ended) for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert (one.log_prob, one.score) == pytest.approx((other.log_prob, other.score))
            assert one.weights_TS == pytest.approx(other.weights_TS, abs=1e-6)
    for ours, theirs in zip(trace.sentences, stepped.sentences, strict=True):
        assert paths(ours) == paths(theirs)
        for one, other in zip(chain(*ours), chain(*theirs), strict=True):
            assert (one.fate, one.rank, one.output) == (other.fate, other.rank, other.output)
            numbers = [one.log_prob, one.token_log_prob, one.entropy]
            assert numbers == pytest.approx([other.log_prob, other.token_log_prob, other.entropy], abs=1e-6)
            assert [token for token, _ in one.top] == [token for token, _ in other.top]
