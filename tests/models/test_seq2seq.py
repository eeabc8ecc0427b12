"""The results of a sentence do not depend on the other sentences of its batch."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from small_models import WITHOUT_ATTENTION, batch_of, random_sentences, small_config, small_model, values_of
from torch import Tensor

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import PAD
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.search.greedy import GreedySearch

LENGTHS = (4, 2, 4, 7, 1)
SOURCES = random_sentences(LENGTHS, seed=3)
TARGETS = random_sentences([3, 6, 5, 2, 4], seed=4)

Parts = tuple[str, str, str]
Options = dict[str, Any]

PARTS: list[Parts] = [
    ("rnn", "luong", "multiplicative"),
    ("gru", "plain", "none"),
    ("lstm", "luong", "scaled_dot"),
    ("bilstm", "luong", "additive"),
    ("bigru", "luong", "dot"),
    ("birnn", "plain", "none"),
    ("bigru", "bahdanau", "additive"),
    ("gru", "tutorial", "location"),
    ("bilstm", "luong_feeding", "multiplicative"),
    ("bigru", "conditional", "additive"),
    ("lstm", "context", "none"),
    ("transformer", "transformer", "scaled_dot"),
]
every_model = pytest.mark.parametrize("parts", PARTS, ids="-".join)

# Every decoder with an encoder of one and of both directions, and what else may look at the length of a sentence.
ATTENDING = sorted({*values_of("decoder")} - {*WITHOUT_ATTENTION, "transformer"})
COMBINED = {*product(("lstm", "bigru"), ATTENDING, ("additive", "location")), ("bilstm", "context", "none")}
MODELS: list[tuple[Parts, Options]] = [
    *((parts, {}) for parts in sorted({*PARTS, *COMBINED})),
    (("lstm", "luong", "location"), {"reverse_source": True}),
    (("gru", "plain", "none"), {"reverse_source": True}),
    (("bigru", "conditional", "additive"), {"bridge": "mean"}),
    (("lstm", "plain", "none"), {"bridge": "mean"}),
    (("gru", "tutorial_plain", "none"), {}),
    (("bilstm", "bahdanau", "additive"), {"bridge": "zero"}),
    (("lstm", "plain", "none"), {"share_layers": True, "bridge": "copy", "encoder_hidden_size": 8}),
    (("gru", "luong", "additive"), {"share_layers": True, "bridge": "copy", "encoder_hidden_size": 8}),
]

# Batches: all sentences, in another order, some; 0 and 2 have the same length, so nothing is packed.
BATCHES = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 1], [0, 2], [2, 0, 2]]


def model_of(parts: Parts, num_layers: int = 2, **options: Any) -> Seq2Seq:
    if parts[1] == "conditional":
        num_layers = 1
    config = small_config(*parts, hidden_size=8, num_layers=num_layers, **options)
    return small_model(config, seed=5).double().eval()


def batch(rows: list[int]) -> Batch:
    return batch_of([SOURCES[i] for i in rows], [TARGETS[i] for i in rows])


@pytest.mark.parametrize(
    ("parts", "options"), MODELS, ids=lambda value: "-".join(map(str, value if value else ["as_it_is"]))
)
def test_results_of_a_sentence_do_not_depend_on_the_batch(parts: Parts, options: Options) -> None:
    """Log-probabilities, weights, and the gradient that a sentence sends to every parameter."""
    model = model_of(parts, **options)
    alone = [sentences(model, [i])[0] for i in range(len(SOURCES))]
    expected = [gradients(model, log_probs_TV) for log_probs_TV, _ in alone]
    for rows in BATCHES:
        for i, (log_probs_TV, weights_TS) in zip(rows, sentences(model, rows), strict=True):
            torch.testing.assert_close(log_probs_TV, alone[i][0], rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(weights_TS, alone[i][1], rtol=1e-10, atol=1e-12)
            if rows in ([4, 3, 2, 1, 0], [0, 2]):
                torch.testing.assert_close(gradients(model, log_probs_TV), expected[i], rtol=1e-8, atol=1e-11)


def sentences(model: Seq2Seq, rows: list[int]) -> list[tuple[Tensor, Tensor | None]]:
    """Each sentence's log_probs_TV and weights_TS, cut to its lengths; beyond them the weights are 0."""
    together = batch(rows)
    logits_BTV, weights_BTS = model(together, together.inputs_BT)
    found = []
    for row, i in enumerate(rows):
        steps, length = len(TARGETS[i]) + 1, LENGTHS[i] + 2
        weights_TS = None
        if weights_BTS is not None:
            assert torch.all(weights_BTS[row, :, length:] == 0)
            weights_TS = weights_BTS[row, :steps, :length]
        found.append((logits_BTV[row, :steps].log_softmax(-1), weights_TS))
    return found


def gradients(model: Seq2Seq, log_probs_TV: Tensor) -> tuple[Tensor, ...]:
    direction = torch.linspace(-1, 2, log_probs_TV.numel(), dtype=torch.float64).view_as(log_probs_TV)
    return torch.autograd.grad((log_probs_TV * direction).sum(), [*model.parameters()], retain_graph=True)


def test_every_decoder_is_among_the_models() -> None:
    assert {parts[1] for parts, _ in MODELS} == {*values_of("decoder")}


@every_model
def test_tokens_at_padding_have_no_effect(parts: Parts) -> None:
    model = model_of(parts)
    with_padding = batch([0, 1, 2, 3, 4])
    noise = torch.where(with_padding.source_BS == PAD, 7, with_padding.source_BS)
    expected, _ = model(with_padding, with_padding.inputs_BT)
    found, _ = model(replace(with_padding, source_BS=noise), with_padding.inputs_BT)
    assert torch.equal(found, expected)


@every_model
@pytest.mark.parametrize("rows", BATCHES, ids=str)
def test_greedy_search_does_not_depend_on_the_batch(parts: Parts, rows: list[int]) -> None:
    model = model_of(parts, num_layers=1)
    search = GreedySearch(min_length_factor=0.0, max_length_factor=1.0, max_length_extra=2)
    for i, (hypothesis,) in zip(rows, search(model, batch(rows), with_weights=True), strict=True):
        ((alone,),) = search(model, batch([i]), with_weights=True)
        assert hypothesis.tokens == alone.tokens
        assert hypothesis.log_prob == pytest.approx(alone.log_prob, rel=1e-5)
        assert (hypothesis.weights_TS is None) == (parts[2] == "none")
        if hypothesis.weights_TS is not None and alone.weights_TS is not None:
            assert hypothesis.weights_TS == pytest.approx(alone.weights_TS, abs=1e-6)
            assert hypothesis.weights_TS.shape[1] == LENGTHS[i] + 2


@every_model
def test_later_target_tokens_have_no_effect(parts: Parts) -> None:
    model = model_of(parts)
    whole = batch([3])
    changed = whole.inputs_BT.clone()
    changed[:, 2:] = 5
    logits_1TV, _ = model(whole, whole.inputs_BT)
    found, _ = model(whole, changed)
    torch.testing.assert_close(found[:, :2], logits_1TV[:, :2])
    assert not torch.allclose(found[:, 2:], logits_1TV[:, 2:])


@every_model
def test_every_source_token_has_an_effect(parts: Parts) -> None:
    model = model_of(parts)
    whole = batch([3])
    for position in range(whole.source_BS.shape[1]):
        changed = whole.source_BS.clone()
        changed[0, position] = (changed[0, position] + 1) % 13
        logits, other = (
            model(replace(whole, source_BS=x), whole.inputs_BT)[0] for x in (whole.source_BS, changed)
        )
        assert (logits - other).abs().max() > 1e-9


def embedded(model: Seq2Seq, whole: Batch) -> tuple[Tensor, Tensor]:
    """Return the inputs of the encoder and the decoder."""
    read: list[Tensor] = []
    for module in (model.encoder, model.decoder.get_submodule("layers")):
        module.register_forward_pre_hook(lambda _, args: read.append(args[0]))
    model(whole, whole.inputs_BT)
    return read[0], read[1]


@pytest.mark.parametrize("scaled", [True, False])
def test_both_sides_read_their_embeddings_with_dropout(scaled: bool) -> None:
    config = small_config(embedding_size=64, dropout=0.5, state_dropout=0.0, scale_embeddings=scaled)
    model = small_model(config)
    whole = batch([0])
    factor = 8 if scaled else 1
    expected = (
        factor * model.source_embedding(whole.source_BS),
        factor * model.target_embedding(whole.inputs_BT),
    )
    torch.testing.assert_close(embedded(model.eval(), whole), expected)
    for x, wanted in zip(embedded(model.train(), whole), expected, strict=True):
        torch.testing.assert_close(x[x != 0], 2 * wanted[x != 0])
        assert (x == 0).double().mean().item() == pytest.approx(0.5, abs=0.15)
