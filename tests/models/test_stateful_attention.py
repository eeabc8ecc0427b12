"""Attention functions that depend on earlier steps or on the number of the step, against their formulas in loops."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import batch_of, beam_search, random_sentences, sampling_search, small_config, small_model
from torch import Tensor

import seq2seq_lab
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import EOS
from seq2seq_lab.models.attention import (
    BaseAttention,
    CoverageAttention,
    LocalAttention,
    LocationSensitiveAttention,
)
from seq2seq_lab.models.attention.base import AttentionState
from seq2seq_lab.models.attention.stateful_additive import StatefulAdditiveAttention
from seq2seq_lab.models.encoders import EncoderOutputs
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.models.source import Source
from seq2seq_lab.search.greedy import GreedySearch

B, T, S, Q, M, D = 3, 4, 6, 3, 2, 5
LENGTHS = (6, 3, 1)
VALUES = ("coverage", "location_sensitive", "local")
DECODERS = ("luong", "luong_feeding", "bahdanau", "tutorial", "conditional")

every_value = pytest.mark.parametrize("value", VALUES)


def coverage() -> CoverageAttention:
    return CoverageAttention(Q, M, size=D)


def location_sensitive(cumulative: bool) -> LocationSensitiveAttention:
    return LocationSensitiveAttention(Q, M, size=D, filters=2, width=3, cumulative=cumulative)


def additive_rows(attention: StatefulAdditiveAttention, h: Tensor, queries: Tensor) -> list[Tensor]:
    """v^T tanh(W s + U h_j + b + features_j) of one sentence without padding, and the softmax of each step."""
    total = torch.zeros(len(h), dtype=h.dtype)
    last, rows = total, []
    for s in queries:
        scores = []
        for j in range(len(h)):
            inner = attention.query.weight @ s + attention.key.weight @ h[j] + attention.key.bias
            inner = inner + features(attention, total, last, j)
            scores.append(attention.energy.weight[0] @ torch.tanh(inner))
        last = torch.stack(scores).softmax(0)
        total = total + last
        rows.append(last)
    return rows


def features(attention: StatefulAdditiveAttention, total: Tensor, last: Tensor, j: int) -> Tensor:
    if isinstance(attention, CoverageAttention):
        return attention.coverage.weight[:, 0] * total[j]
    assert isinstance(attention, LocationSensitiveAttention)
    read = total if attention.cumulative else last
    filtered = []
    for filter_W in attention.filters.weight[:, 0]:
        inside = [k for k in range(3) if 0 <= j + k - 1 < len(read)]
        filtered.append(torch.stack([filter_W[k] * read[j + k - 1] for k in inside]).sum())
    return attention.location.weight @ torch.stack(filtered)


def local_rows(attention: LocalAttention, h: Tensor, queries: Tensor) -> list[Tensor]:
    """h_j^T W s, the softmax over the window around p_t, times the Gaussian if p_t is predicted."""
    rows, length, predicted = [], len(h), attention.center is not None
    for t, s in enumerate(queries):
        if attention.center is None:
            center = torch.tensor(float(min(t, length - 1)), dtype=h.dtype)
        else:
            w, _, v = attention.center.children()
            center = length / (1 + torch.exp(-(v.weight[0] @ torch.tanh(w.weight @ s))))
        scores = [(attention.key.weight @ h[j]) @ s / math.sqrt(Q) for j in range(length)]
        window = [j for j in range(length) if abs(j - center.item()) <= attention.window]
        total = torch.stack([torch.exp(scores[j]) for j in window]).sum()
        sigma = attention.window / 2
        row = [
            torch.exp(scores[j])
            / total
            * (torch.exp(-((j - center) ** 2) / (2 * sigma**2)) if predicted else 1)
            if j in window
            else torch.zeros((), dtype=h.dtype)
            for j in range(length)
        ]
        rows.append(torch.stack(row))
    return rows


FORMULAS = {
    "coverage": (coverage, additive_rows),
    "location_sensitive": (lambda: location_sensitive(False), additive_rows),
    "cumulative": (lambda: location_sensitive(True), additive_rows),
    "local-p": (lambda: LocalAttention(Q, M, size=D, window=2, alignment="predicted"), local_rows),
    "local-m": (lambda: LocalAttention(Q, M, size=D, window=2, alignment="monotonic"), local_rows),
}


@pytest.mark.parametrize(("make", "formula"), FORMULAS.values(), ids=FORMULAS)
def test_equals_the_formula_in_values_and_gradients(
    make: Callable[[], BaseAttention], formula: Callable[..., list[Tensor]]
) -> None:
    torch.manual_seed(1)
    attention = make().double()
    for parameter in attention.parameters():
        torch.nn.init.uniform_(parameter, -2, 2)
    outputs_BSM = torch.randn(B, S, M, dtype=torch.float64)
    query_BTQ = torch.randn(B, T, Q, dtype=torch.float64)
    context_BTM, weights_BTS, state = attend(attention, query_BTQ, outputs_BSM)
    assert state.step == T
    found, expected = [], []
    for b, length in enumerate(LENGTHS):
        rows = formula(attention, outputs_BSM[b, :length], query_BTQ[b])
        expected += [torch.cat([row, row @ outputs_BSM[b, :length]]) for row in rows]
        found += [torch.cat([weights_BTS[b, t, :length], context_BTM[b, t]]) for t in range(T)]
        assert not weights_BTS[b, :, length:].any()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    direction = torch.linspace(-1, 2, sum(map(len, found)), dtype=torch.float64)
    parameters = [*attention.parameters()]
    gradients = torch.autograd.grad(torch.cat(found) @ direction, parameters)
    assert all(gradient.any() for gradient in gradients)
    torch.testing.assert_close(
        gradients, torch.autograd.grad(torch.cat(expected) @ direction, parameters), rtol=1e-8, atol=1e-11
    )


def attend(
    attention: BaseAttention, query_BTQ: Tensor, outputs_BSM: Tensor
) -> tuple[Tensor, Tensor, AttentionState]:
    source = Source.encoded(EncoderOutputs(outputs_BSM, LENGTHS, None), attention.project)
    context_BTM, weights_BTS, state = attention(query_BTQ, source, attention.initial_state(source))
    assert weights_BTS is not None
    return context_BTM, weights_BTS, state


def test_a_score_outside_the_window_does_not_change_local_weights() -> None:
    attention = LocalAttention(Q, M, size=D, window=1, alignment="monotonic")
    torch.nn.init.constant_(attention.key.weight, 1000.0)
    outputs_BSM = torch.zeros(B, S, M)
    outputs_BSM[:, -1] = 1  # the window of step 0 has the first two positions
    outputs_BSM.requires_grad_()
    context_BTM, weights_BTS, _ = attend(attention, torch.ones(B, 1, Q), outputs_BSM)
    torch.testing.assert_close(weights_BTS[0, 0], torch.tensor([0.5, 0.5, 0, 0, 0, 0]))
    (gradient_BSM,) = torch.autograd.grad(context_BTM.sum(), outputs_BSM)
    assert gradient_BSM.isfinite().all()


def test_a_filter_of_even_width_is_refused() -> None:
    with pytest.raises(ValueError, match=r"attention\.width=4"):
        LocationSensitiveAttention(Q, M, size=D, filters=2, width=4, cumulative=False)


def model_of(value: str, decoder: str = "luong", seed: int = 0, **settings: object) -> Seq2Seq:
    config = small_config("bigru", decoder, value)
    config.attention.update({"window": 2} if value == "local" else {}, **settings)
    model = small_model(config, seed=seed).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # attention that is far from uniform
    return model.eval()


def ragged_batch() -> Batch:
    return batch_of(random_sentences([5, 2, 7, 2], seed=1), [[]] * 4)


@every_value
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_beam_reorders_the_state(value: str, decoder: str) -> None:
    """The score and the weights of each hypothesis are those of the model when it reads the output."""
    model, batch = model_of(value, decoder), ragged_batch()
    found = beam_search(4, nbest=4)(model, batch, with_weights=True)
    for row, hypotheses in enumerate(found):
        assert len(hypotheses) == 4
        for hypothesis in hypotheses:
            log_probs_TV, weights_TS = read(model, batch, row, hypothesis.tokens)
            assert hypothesis.weights_TS is not None
            steps = len(hypothesis.weights_TS)
            tokens = [*hypothesis.tokens, EOS][:steps]
            reached = sum(log_probs_TV[t, token].item() for t, token in enumerate(tokens))
            assert hypothesis.log_prob == pytest.approx(reached, rel=1e-5)
            np.testing.assert_allclose(hypothesis.weights_TS, weights_TS[:steps], rtol=1e-4, atol=1e-6)


@torch.no_grad()
def read(model: Seq2Seq, batch: Batch, row: int, tokens: list[int]) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and weights of an output, computed by `unroll` in a batch of one sentence."""
    length = batch.source_lengths[row]
    given = batch_of([batch.source_BS[row, 1 : length - 1].tolist()], [tokens])
    logits_1TV, weights_1TS = model(given, given.inputs_BT)
    assert weights_1TS is not None
    return logits_1TV[0].log_softmax(-1), weights_1TS[0]


@every_value
@pytest.mark.parametrize("decoder", DECODERS)
def test_several_rows_of_a_sentence_equal_one_row_each(value: str, decoder: str) -> None:
    """N = B · K rows over B sentences equal N rows with one copy of the source each."""
    model, batch = model_of(value, decoder), ragged_batch()
    state, source = model.start(batch)
    rows = torch.arange(4).repeat_interleave(3)
    shared, apart, wide = state.select(rows), state.select(rows), source.select(rows)
    generator = torch.Generator().manual_seed(5)
    for _ in range(3):
        token_N = torch.randint(4, 13, (12,), generator=generator)
        log_probs_NV, shared, weights_NS = model.step(token_N, shared, source)
        expected_NV, apart, expected_NS = model.step(token_N, apart, wide)
        torch.testing.assert_close(log_probs_NV, expected_NV, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(weights_NS, expected_NS, rtol=1e-10, atol=1e-12)


@every_value
def test_the_state_matters(value: str) -> None:
    """A step depends on the steps before it through the attention alone."""
    model = model_of(value, **({"alignment": "monotonic"} if value == "local" else {}))
    batch = ragged_batch()
    first, source = model.start(batch)
    token_B = torch.tensor([5, 6, 7, 8])
    _, later, _ = model.step(token_B, first, source)
    mixed = later._replace(layers=first.layers)  # type: ignore[attr-defined]
    weights = [model.step(token_B, state, source)[2] for state in (first, mixed)]
    assert weights[0] is not None
    assert weights[1] is not None
    assert not torch.allclose(weights[0], weights[1])


@every_value
def test_searches_and_ensembles(value: str) -> None:
    batch = ragged_batch()
    one, other = model_of(value), model_of(value, "bahdanau", seed=1)
    plain = small_model(small_config("gru", "luong", "additive"), seed=2).double().eval()
    sampling = sampling_search(nbest=3)
    for search in (
        GreedySearch(0.0, 1.0, 4),
        beam_search(3, length_penalty=0.6, coverage_penalty=0.1, nbest=2),
        sampling,
    ):
        alone, twice = search(one, batch, True), search(Ensemble([one, one]), batch, True)
        assert [[h.tokens for h in found] for found in alone] == [
            [h.tokens for h in found] for found in twice
        ]
        for found in search(Ensemble([one, other, plain]), batch, True):
            assert all(hypothesis.weights_TS is not None for hypothesis in found)
        separate = [
            search(one, batch_of([batch.source_BS[row, 1 : length - 1].tolist()], [[]]), True)
            for row, length in enumerate(batch.source_lengths)
        ]
        if search is not sampling:  # whose draws depend on the number of the sentence
            assert [[h.tokens for h in found] for found in alone] == [
                [h.tokens for h in found] for (found,) in separate
            ]


@every_value
@pytest.mark.parametrize("decoder", DECODERS)
def test_bfloat16(value: str, decoder: str) -> None:
    """Under autocast the weights and gradients are float32 and close to those computed in float32."""
    model = small_model(small_config("bigru", decoder, value))
    batch = batch_of(random_sentences([5, 2, 7, 2], seed=1), random_sentences([3, 4, 2, 5], seed=2))

    def train(enabled: bool) -> tuple[Tensor, list[Tensor]]:
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits_BTV, weights_BTS = model(batch, batch.inputs_BT)
        assert weights_BTS is not None
        assert weights_BTS.dtype == torch.float32
        loss = logits_BTV.float().square().sum()
        return weights_BTS.detach(), [*torch.autograd.grad(loss, [*model.parameters()])]

    (weights_BTS, gradients), (expected_BTS, expected) = train(True), train(False)
    torch.testing.assert_close(weights_BTS, expected_BTS, rtol=0.05, atol=0.02)
    found, wanted = (torch.cat([gradient.flatten() for gradient in all_]) for all_ in (gradients, expected))
    assert (found - wanted).norm() < 0.05 * wanted.norm()


@pytest.mark.parametrize(
    ("value", "decoder"),
    [("coverage", "luong_feeding"), ("location_sensitive", "bahdanau"), ("local", "conditional")],
)
def test_a_run(value: str, decoder: str, tmp_path: Path) -> None:
    """Training with the model's own predictions as inputs, validation by beam search, and translation."""
    settings = [
        *(f"attention={value}", f"decoder={decoder}", "teacher_forcing.ratio=0.5", "search=beam"),
        *("search.coverage_penalty=0.1", "trainer.fast_dev_run=true", "trainer.device=cpu", "logger=none"),
        *("dataset.train=40", "dataset.validation=5", "dataset.test=5", "dataset.test_compositional=0"),
        *(
            "model.embedding_size=8",
            "model.encoder_hidden_size=8",
            "model.hidden_size=8",
            "task.samples=0",
        ),
        f"cache_dir={tmp_path / 'cache'}",
    ]
    run = seq2seq_lab.train(settings, folder=tmp_path / "run")
    (translation,) = run.predict(["the king sleeps."])
    assert translation.attention is not None
    assert run.model.attends
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["status"] == "finished"
    assert 0 <= result["test/aer"] <= 1
