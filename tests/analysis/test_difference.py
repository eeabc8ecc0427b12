"""The outputs of two runs for one input, side by side."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from demo_models import SOURCES, demo, demo_with

import seq2seq_lab
from seq2seq_lab.analysis.difference import _is_cut_at, _of_last
from seq2seq_lab.errors import UserError

SENTENCE = SOURCES[1]
SHORT = ("search.max_length_factor=1", "search.max_length_extra=1")


def test_two_runs_differ_where_their_words_do() -> None:
    a, b = demo(), demo_with("bahdanau", "additive")
    found = seq2seq_lab.difference(a, b, SENTENCE, search=SHORT)
    json.dumps(found.as_json(), allow_nan=False)
    texts, ended = [found.a.best.text, found.b.best.text], [found.a.best.ended, found.b.best.ended]
    assert found.parting is not None
    for row, run in enumerate((a, b)):
        scored = run.score([SENTENCE] * 2, texts)
        expected = [
            math.fsum(one.log_probs if with_eos else one.log_probs[:-1])
            for one, with_eos in zip(scored, ended, strict=True)
        ]
        assert found.log_probs[row] == pytest.approx(expected, abs=1e-4)
        # The outputs differ in the first word already, and the score of a word does not depend on what follows it.
        assert found.parting.log_probs[row] == pytest.approx(
            [one.word_log_probs[0] for one in scored], abs=1e-4
        )
    assert (found.parting.word, found.parting.words) == (0, (found.a.best.words[0], found.b.best.words[0]))
    assert found.attention is not None
    for pair, row in zip(found.words, found.attention, strict=True):
        if pair.before is None or pair.after is None:
            assert np.isnan(row).all()
        else:
            expected = found.b.best.word_attention[pair.after] - found.a.best.word_attention[pair.before]
            np.testing.assert_array_equal(row, expected)


def test_the_own_output_is_not_cut_again() -> None:
    run = demo()
    forced = run.trace(SENTENCE, [4, 5, 3])  # its text is cut into other tokens
    (again,) = run.score([SENTENCE], [forced.best.text])
    assert abs(again.log_prob - forced.best.log_prob) > 0.1
    found = seq2seq_lab.difference(run, run, SENTENCE, traces=(forced, run.trace(SENTENCE)))
    assert found.log_probs[0][0] == forced.best.log_prob
    assert found.log_probs[1][0] == pytest.approx(again.log_prob, abs=1e-4)
    assert found.parting is not None
    assert found.parting.word == 0
    assert found.parting.log_probs[0][0] == forced.best.word_log_probs[0]


def test_a_word_that_the_other_run_cuts_has_the_probability_of_all_its_parts() -> None:
    scored = SimpleNamespace(words=["你", "我", "喜欢", "猫"], word_log_probs=[-1.0, -2.0, -4.0, -8.0])
    assert [_of_last(scored, letters) for letters in (1, 2, 3, 4, 5)] == [-8, -12, -12, -14, -15]


def test_traces_are_of_the_same_sentence_without_a_change() -> None:
    run, traced = demo(), demo().trace(SENTENCE)
    with pytest.raises(UserError, match=r"^sentence=.*that of traces"):
        seq2seq_lab.difference(run, run, SOURCES[0], traces=(traced, traced))
    changed = run.trace(SENTENCE, change={"kind": "uniform", "step": 1}, before=traced)
    with pytest.raises(UserError, match=r"^traces: .*changed attention weights"):
        seq2seq_lab.difference(run, run, SENTENCE, traces=(traced, changed))


def test_a_run_does_not_differ_from_itself() -> None:
    found = seq2seq_lab.difference(demo(), demo(), SENTENCE)
    assert found.parting is None
    assert all(pair.same for pair in found.words)
    assert not np.any(found.attention)


def test_an_output_that_ends_earlier_parts_at_its_end() -> None:
    run = demo()
    traces = (
        run.trace(SENTENCE),
        run.trace(SENTENCE, [*(run.trace(SENTENCE).best.tokens[i].id for i in range(2)), 3]),
    )
    found = seq2seq_lab.difference(run, run, SENTENCE, traces=traces)
    assert found.parting is not None
    assert (found.parting.word, found.parting.words) == (2, (traces[0].best.words[2], "<eos>"))
    for row in found.parting.log_probs:
        assert row == pytest.approx([traces[0].best.word_log_probs[2], traces[1].best.log_probs[2]], abs=1e-4)
        assert math.exp(row[0]) > math.exp(row[1])


def test_an_output_that_the_length_limit_cuts_is_scored_without_eos() -> None:
    run = demo()
    whole = run.trace(SENTENCE)
    cut = run.trace(SENTENCE, search=["search.max_length_factor=0", "search.max_length_extra=3"])
    assert whole.best.ended
    assert not cut.best.ended
    assert whole.best.words[: len(cut.best.words)] == cut.best.words
    found = seq2seq_lab.difference(run, run, SENTENCE, traces=(whole, cut))
    expected = [whole.best.log_prob, math.fsum(whole.best.log_probs[: len(cut.best.log_probs)])]
    assert found.log_probs == [pytest.approx(expected, abs=1e-4)] * 2
    assert found.parting is None


def test_a_word_that_the_length_limit_cuts_is_not_another_word() -> None:
    cut = SimpleNamespace(words=["a", "walk"], ended=False)
    assert [_is_cut_at(cut, 1, other) for other in ("walking", "talk", "")] == [True, False, False]
    assert _is_cut_at(cut, 2, "x")
    assert not _is_cut_at(cut, 0, "an")
    assert not _is_cut_at(SimpleNamespace(words=["a", "walk"], ended=True), 1, "walking")


def test_the_runs_of_a_difference_are_open() -> None:
    with pytest.raises(UserError, match=r"not 'demo'.*seq2seq_lab\.load\(FOLDER\)"):
        seq2seq_lab.difference("demo", demo(), SENTENCE)


def test_runs_without_comparable_attention_have_no_difference_of_it() -> None:
    found = seq2seq_lab.difference(demo(), demo_with("plain", "none"), SENTENCE, search=SHORT)
    assert found.attention is None
    assert (found.no_attention or "").startswith("The second run has no attention weights.")
