"""Embeddings from outside and changed attention weights: what interventions and attributions build on."""

from typing import Any

import pytest
import torch
from small_models import batch_of, random_sentences, small_config, small_model, values_of
from torch import Tensor

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.seq2seq import Seq2Seq, build_seq2seq
from seq2seq_lab.models.weight_change import WeightChange

DECODERS = ["luong", "luong_feeding", "bahdanau", "conditional", "tutorial", "transformer"]
ATTENTIONS = ["additive", "scaled_dot", "multiplicative", "coverage", "location_sensitive", "local"]
MODELS = [
    *[(decoder, "additive") for decoder in DECODERS],
    *[("luong", attention) for attention in ATTENTIONS[1:]],
    *[("transformer", attention) for attention in ("scaled_dot", "coverage", "local")],
    *[
        ("luong_feeding", "coverage"),
        ("bahdanau", "location_sensitive"),
        ("transformer_post_norm", "scaled_dot"),
    ],
]
each_model = pytest.mark.parametrize(("decoder", "attention"), MODELS)


def a_model(decoder: str = "luong", attention: str = "additive", encoder: str = "bigru") -> Seq2Seq:
    settings = {"bridge": "zero"} if "transformer" in f"{decoder} {encoder}" else {}
    return small_model(small_config(encoder, decoder, attention, **settings)).double().eval()


def a_batch() -> Batch:
    return batch_of(random_sentences([4, 2, 5], 1), random_sentences([3, 5, 1], 2))


def unrolled(model: Seq2Seq, batch: Batch, **options: Any) -> tuple[Tensor, Tensor]:
    return model.unroll(batch.inputs_BT, *model.start(batch), **options)


def stepped(model: Seq2Seq, batch: Batch, change: WeightChange | None) -> tuple[Tensor, Tensor]:
    """The log-probabilities and weights of repeated steps."""
    state, source = model.start(batch)
    steps = []
    for token_B in batch.inputs_BT.unbind(1):
        log_probs_BV, state, weights_BS = model.step(token_B, state, source, change=change)
        steps.append((log_probs_BV, weights_BS))
    log_probs, weights = zip(*steps, strict=True)
    return torch.stack(log_probs, 1), torch.stack(weights, 1)


def one_position(weights_NTS: Tensor, step: int) -> Tensor:
    """All weight on the position t modulo 4, which every sentence of the batch has."""
    position_T = torch.arange(step, step + weights_NTS.shape[1]) % 4
    one_hot_TS = torch.nn.functional.one_hot(position_T, weights_NTS.shape[2])
    return one_hot_TS.to(weights_NTS.dtype).expand_as(weights_NTS)


@each_model
@pytest.mark.parametrize("seen", [True, False])
def test_the_models_own_weights_change_no_bit(decoder: str, attention: str, seen: bool) -> None:
    model, batch = a_model(decoder, attention), a_batch()
    plain, state, source = unrolled(model, batch), *model.start(batch)
    for change in (
        WeightChange(lambda weights, _: weights),
        WeightChange(lambda weights, _: weights.clone()),
    ):
        change = WeightChange(change.function, seen=seen)
        for ours, theirs in zip(unrolled(model, batch, change=change), plain, strict=True):
            assert torch.equal(ours, theirs)
        before = model.step(batch.inputs_BT[:, 0], state, source)
        after = model.step(batch.inputs_BT[:, 0], state, source, change=change)
        assert torch.equal(before[0], after[0])


@each_model
@pytest.mark.parametrize("seen", [True, False])
def test_changed_weights_are_used_in_unroll_and_step(decoder: str, attention: str, seen: bool) -> None:
    """With the index of the step."""
    model, batch, change = a_model(decoder, attention), a_batch(), WeightChange(one_position, seen=seen)
    logits_BTV, weights_BTS = unrolled(model, batch, change=change)
    log_probs_BTV, rows_BTS = stepped(model, batch, change)
    expected_BTS = one_position(weights_BTS, 0)
    torch.testing.assert_close(weights_BTS, expected_BTS, check_dtype=False)
    torch.testing.assert_close(rows_BTS, expected_BTS, check_dtype=False)
    torch.testing.assert_close(logits_BTV.log_softmax(-1), log_probs_BTV, rtol=1e-9, atol=1e-11)
    assert not torch.allclose(logits_BTV, unrolled(model, batch)[0])


def test_the_context_is_that_of_the_changed_weights() -> None:
    model, batch = a_model(), a_batch()
    logits_BTV, _ = unrolled(model, batch, change=WeightChange(one_position))
    state, source = model.start(batch)
    states_BTH, _ = model.decoder.layers(model.embed_target(batch.inputs_BT), state.layers)
    context_BTM = source.encoder_outputs_BSM[:, [0, 1, 2, 3, 0, 1]]
    features_BTF = model.decoder.combine(torch.cat([context_BTM, states_BTH], -1)).tanh()
    torch.testing.assert_close(logits_BTV, model.readout(features_BTF))


@pytest.mark.parametrize("attention", ["coverage", "location_sensitive"])
def test_the_next_state_sees_the_changed_or_the_original_weights(attention: str) -> None:
    """In decoder=luong the original weights depend on earlier ones through the state of the attention function alone."""
    model, batch = a_model("luong", attention), a_batch()
    _, plain_BTS = unrolled(model, batch)
    given: dict[bool, list[Tensor]] = {True: [], False: []}
    for seen, steps in given.items():

        def change(weights_NTS: Tensor, step: int, steps: list[Tensor] = steps) -> Tensor:
            steps.append(weights_NTS)
            return one_position(weights_NTS, step)

        unrolled(model, batch, change=WeightChange(change, seen=seen))
    assert torch.equal(torch.cat(given[False], 1), plain_BTS)
    seen_BTS = torch.cat(given[True], 1)
    assert torch.equal(seen_BTS[:, 0], plain_BTS[:, 0])
    assert not torch.allclose(seen_BTS[:, 1:], plain_BTS[:, 1:])


@pytest.mark.parametrize("attention", ["scaled_dot", "additive"])
@pytest.mark.parametrize(("layer", "head"), [(0, 1), (1, None), (None, 0), (None, None)])
def test_layer_and_head_of_a_transformer(attention: str, layer: int | None, head: int | None) -> None:
    """Weights of 0 are the same as a head whose part of the output matrix is 0."""
    config = small_config("transformer", "transformer", attention, bridge="zero", num_layers=2)
    model, batch = small_model(config).double().eval(), a_batch()
    change = WeightChange(lambda weights_NTS, _: torch.zeros_like(weights_NTS), layer=layer, head=head)
    logits_BTV, _ = unrolled(model, batch, change=change)
    log_probs_BTV, _ = stepped(model, batch, change)
    size = 6 // 2
    for index, one in enumerate(model.decoder.layers):
        for of_head in range(2):
            if layer in (None, index) and head in (None, of_head):
                one.cross_attention.output.weight.data[:, of_head * size : (of_head + 1) * size] = 0
    expected_BTV, _ = unrolled(model, batch)
    torch.testing.assert_close(logits_BTV, expected_BTV)
    torch.testing.assert_close(log_probs_BTV, expected_BTV.log_softmax(-1))


@each_model
@pytest.mark.parametrize("seen", [True, False])
def test_the_steps_after_a_step_changed_alone_are_identical_to_the_bit(
    decoder: str, attention: str, seen: bool
) -> None:
    model, batch, change = a_model(decoder, attention), a_batch(), WeightChange(one_position, seen=seen)
    plain_BTV, plain_BTS = stepped(model, batch, None)
    state, source = model.start(batch)
    for t, token_B in enumerate(batch.inputs_BT.unbind(1)):
        changed_BV, _, changed_BS = model.step(token_B, state, source, change=change)
        log_probs_BV, state, weights_BS = model.step(token_B, state, source)
        assert not torch.allclose(changed_BV, log_probs_BV)
        assert not torch.allclose(changed_BS, weights_BS)
        assert torch.equal(log_probs_BV, plain_BTV[:, t])
        assert torch.equal(weights_BS, plain_BTS[:, t])
    assert source.change is None


def test_what_cannot_be_changed_is_refused() -> None:
    batch = a_batch()
    for model, change, words in (
        (a_model("plain", "none", "gru"), WeightChange(one_position), "no attention"),
        (a_model(), WeightChange(one_position, head=0), "head=0"),
        (a_model("transformer", "scaled_dot"), WeightChange(one_position, layer=7), "layer=7"),
        (a_model("transformer", "scaled_dot"), WeightChange(one_position, head=-1), "head=-1"),
    ):
        with pytest.raises(UserError, match=words):
            unrolled(model, batch, change=change)


@pytest.mark.parametrize(
    "encoder",
    [value for value in values_of("encoder") if value not in ("convolutional", "features", "pretrained")],
)
def test_embeddings_from_outside_replace_those_of_the_tables(encoder: str) -> None:
    model, batch = a_model(encoder=encoder), a_batch()
    plain_BTV, _ = unrolled(model, batch)
    embedded_BSE = model.embed_source(batch.source_BS).detach().requires_grad_()
    inputs_BTE = model.embed_target(batch.inputs_BT).detach().requires_grad_()
    started = model.start(batch, embedded_BSE)
    logits_BTV, _ = model.unroll(batch.inputs_BT, *started, embedded_inputs_BTE=inputs_BTE)
    assert torch.equal(logits_BTV, plain_BTV)
    logits_BTV[:, -1].square().sum().backward()
    real_BS = torch.arange(batch.source_BS.shape[1]) < torch.tensor(batch.source_lengths)[:, None]
    assert torch.equal(embedded_BSE.grad.abs().sum(-1) > 0, real_BS)
    assert (inputs_BTE.grad.abs().sum(-1) > 0).all()
    zero_BTV, _ = model.unroll(batch.inputs_BT, *model.start(batch, torch.zeros_like(embedded_BSE)))
    assert not torch.allclose(zero_BTV, plain_BTV)


def test_embeddings_that_the_encoder_does_not_read_are_refused() -> None:
    model, batch = a_model(), a_batch()
    with pytest.raises(UserError, match=r"embedded_BSE of shape \[3, 6, 6\].*tokens of shape \[3, 7\]"):
        model.start(batch, model.embed_source(batch.source_BS)[:, :-1])
    config = small_config("convolutional", bridge="zero")
    images = build_seq2seq(config, source_vocabulary=None, target_vocabulary=9, joint=False)
    batch = type("Images", (), {"image_BCHW": torch.zeros(2, 3, 32, 32, dtype=torch.uint8)})()
    with pytest.raises(UserError, match="embeds no tokens"):
        images.start(batch, torch.zeros(2, 4, 6))
