"""Beam search against the enumeration of all outputs, greedy search and the model."""

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from exhaustive import every_output, forced, ranked, wu
from small_models import batch_of, beam_search, random_sentences, sampling_search, small_config, small_model
from torch import Tensor

from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import EOS
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.start import check_parts
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.search.base import Hypothesis
from seq2seq_lab.search.greedy import GreedySearch

VOCABULARY = 7  # with PAD, SOS, EOS and UNK
ALL = 100  # more than all outputs of up to three tokens


def model_of(decoder: str = "luong", attention: str = "additive", vocabulary: int = VOCABULARY) -> Seq2Seq:
    """A model in float64 whose distributions are far from flat."""
    model = small_model(small_config(decoder=decoder, attention=attention), vocabulary=vocabulary).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model.eval()


def sentences(*lengths: int, vocabulary: int = VOCABULARY) -> Batch:
    sources = random_sentences(lengths, seed=1, vocabulary=vocabulary)
    return batch_of(sources, [[] for _ in lengths])


def written(hypothesis: Hypothesis, ended: bool) -> list[int]:
    return [*hypothesis.tokens, EOS] if ended else hypothesis.tokens


@pytest.mark.parametrize("decoder", ["luong", "luong_feeding", "conditional"])
@pytest.mark.parametrize(
    ("alpha", "beta", "least", "offset"),
    [(0.0, 0.0, 0.0, 5), (0.8, 0.0, 0.0, 5), (1.5, 0.4, 0.3, 5), (0.9, 0.0, 0.0, 0)],
)
def test_a_beam_of_full_width_finds_what_enumeration_finds(
    decoder: str, alpha: float, beta: float, least: float, offset: float
) -> None:
    model, batch = model_of(decoder), sentences(2, 1)
    found = beam_search(
        ALL,
        length_penalty=alpha,
        coverage_penalty=beta,
        nbest=30,
        min_length_factor=least,
        max_length_factor=least,
        max_length_extra=2,
        length_offset=offset,
    )(model, batch, True)
    for row, length in enumerate(batch.source_lengths):
        lowest = int(least * length)
        outputs = [
            forced(model, batch, row, tokens) for tokens in every_output(VOCABULARY, lowest + 2, lowest)
        ]
        expected = ranked(outputs, wu(alpha, beta, offset))[:30]
        assert len(found[row]) == len(expected)
        for hypothesis, (score, output) in zip(found[row], expected, strict=True):
            assert written(hypothesis, output.ended) == output.tokens
            assert hypothesis.ended == output.ended
            assert hypothesis.score == pytest.approx(score, rel=1e-5)
            assert hypothesis.log_prob == pytest.approx(output.log_prob, rel=1e-5)
            assert output.weights_TS is not None
            np.testing.assert_allclose(hypothesis.weights_TS, output.weights_TS.detach(), rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("decoder", ["luong", "luong_feeding", "bahdanau", "plain", "context"])
def test_a_beam_of_one_is_greedy(decoder: str, alpha: float) -> None:
    attention = "none" if decoder in ("plain", "context") else "additive"
    model, batch = model_of(decoder, attention, 40), sentences(*range(1, 12), vocabulary=40)
    greedy = GreedySearch(0.0, 2.0, 3)(model, batch, True)
    for one, other in zip(
        beam_search(1, length_penalty=alpha, max_length_factor=2.0, max_length_extra=3)(model, batch, True),
        greedy,
        strict=True,
    ):
        assert one[0].tokens == other[0].tokens
        assert one[0].log_prob == pytest.approx(other[0].log_prob)
        assert (one[0].weights_TS is None) == (attention == "none")
        if one[0].weights_TS is not None and other[0].weights_TS is not None:
            np.testing.assert_allclose(one[0].weights_TS, other[0].weights_TS)


every_kind = pytest.mark.parametrize(
    ("decoder", "attention"),
    [
        ("luong", "multiplicative"),
        ("luong_feeding", "location"),
        ("bahdanau", "additive"),
        ("conditional", "scaled_dot"),
        ("context", "none"),
    ],
)


@every_kind
def test_scores_are_those_of_the_model_when_it_reads_the_output(decoder: str, attention: str) -> None:
    model = model_of(decoder, attention, 40)
    batch = sentences(*range(1, 9), vocabulary=40)
    found = beam_search(4, length_penalty=0.7, nbest=4, max_length_extra=6)(model, batch, True)
    for row, hypotheses in enumerate(found):
        assert len(hypotheses) == 4
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for hypothesis in hypotheses:
            limit = batch.source_lengths[row] + 6
            output = forced(model, batch, row, written(hypothesis, len(hypothesis.tokens) < limit))
            assert hypothesis.log_prob == pytest.approx(output.log_prob, rel=1e-5)
            assert hypothesis.score == pytest.approx(
                wu(0.7, 0)(output.log_prob, len(output.tokens), None), rel=1e-5
            )
            if output.weights_TS is not None:
                np.testing.assert_allclose(
                    hypothesis.weights_TS, output.weights_TS.detach(), rtol=1e-5, atol=1e-12
                )


@every_kind
def test_a_batch_equals_each_sentence_alone(decoder: str, attention: str) -> None:
    model = model_of(decoder, attention, 40)
    together = sentences(*([1, 9, 3, 3, 7, 2] * 4), vocabulary=40)
    search = beam_search(5, length_penalty=0.6, nbest=3, max_length_factor=2.0, max_length_extra=3)
    for row, found in enumerate(search(model, together, True)):
        length = together.source_lengths[row]
        words = together.source_BS[row, 1 : length - 1].tolist()
        (alone,) = search(model, batch_of([words], [[]]), True)
        assert [h.tokens for h in alone] == [h.tokens for h in found]
        assert [h.score for h in alone] == pytest.approx([h.score for h in found], rel=1e-5)


class NeverEnds(Seq2Seq):
    """A model that never predicts `<eos>`."""

    def step(self, token_N: Tensor, state, source, with_weights):  # type: ignore[no-untyped-def]
        log_probs_NV, state, weights_NS = super().step(token_N, state, source, with_weights)
        log_probs_NV[:, EOS] = float("-inf")
        return log_probs_NV, state, weights_NS


@pytest.mark.parametrize("size", [1, 3])
def test_a_model_that_never_ends_is_stopped(size: int) -> None:
    model, batch = model_of(), sentences(2, 4)
    model.__class__ = NeverEnds
    for search in (beam_search(size, length_penalty=0.5, max_length_extra=2), GreedySearch(0.0, 1.0, 2)):
        found = search(model, batch, True)
        assert [len(h.tokens) for (h, *_) in found] == [6, 8]
        assert all(h.weights_TS is not None and len(h.weights_TS) == len(h.tokens) for (h, *_) in found)


class CountsRows(Seq2Seq):
    """A model that records the number of prefixes that each step reads."""

    rows: ClassVar[list[int]] = []

    def step(self, token_N: Tensor, *others: Any) -> Any:
        self.rows.append(len(token_N))
        return super().step(token_N, *others)


def test_the_first_step_reads_one_prefix_of_each_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountsRows, "rows", [])
    model = model_of()
    model.__class__ = CountsRows
    beam_search(3, length_penalty=0.5, max_length_extra=2)(model, sentences(4, 4), False)
    assert CountsRows.rows[:2] == [2, 2 * 3]


def test_ended_outputs_rank_before_truncated_ones() -> None:
    model, batch = model_of(vocabulary=40), sentences(3, vocabulary=40)
    (found,) = beam_search(30, length_penalty=2.0, nbest=30, max_length_factor=0.0, max_length_extra=2)(
        model, batch, False
    )
    lengths = [len(h.tokens) for h in found]
    first_cut = lengths.index(2)
    assert set(lengths[first_cut:]) == {2}
    assert max(lengths[:first_cut]) < 2
    assert all(h.weights_TS is None for h in found)


def test_outputs_have_the_minimum_length() -> None:
    model, batch = model_of(), sentences(1, 2, 3, 4, 5, 6)
    least = [int(1.5 * length) for length in batch.source_lengths]
    free = beam_search(20, max_length_factor=2.0)(model, batch, False)
    held = beam_search(20, min_length_factor=1.5, max_length_factor=2.0)(model, batch, False)
    assert any(len(h.tokens) < length for (h, *_), length in zip(free, least, strict=True))
    assert all(len(h.tokens) >= length for (h, *_), length in zip(held, least, strict=True))


def test_coverage_needs_attention() -> None:
    with pytest.raises(UserError, match=r"search\.coverage_penalty=0\.2 needs attention"):
        beam_search(2, coverage_penalty=0.2)(model_of("plain", "none"), sentences(2), False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nbest": 3}, r"search\.nbest=3 .*search\.size=2"),
        ({"min_length_factor": 1.5}, r"search\.min_length_factor=1\.5 .*=1\.0"),
    ],
)
def test_values_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        beam_search(2, **settings)


def test_a_run_without_attention_for_its_coverage_is_refused_before_it_begins() -> None:
    words = ["model=vanilla", "search=beam", "search.coverage_penalty=0.2"]
    with pytest.raises(UserError, match=r"search\.coverage_penalty"):
        check_parts(compose_run(words).config)
    check_parts(compose_run(["model=attn", *words[1:]]).config)


def test_a_model_that_has_diverged_still_gives_an_output() -> None:
    model = model_of()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))
    for search in (
        beam_search(3),
        GreedySearch(0.0, 1.0, 2),
        sampling_search(nbest=2, max_length_extra=2),
    ):
        assert all(len(found) >= 1 for found in search(model, sentences(2, 3), True))
