"""One recurrent network for both sides (model.share_layers)."""

from typing import Any

import pytest
import torch
from small_models import batch_of, random_sentences, small_config, small_model
from torch import Tensor

from seq2seq_lab.config.schema import Config
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.recurrent import RecurrentLayers
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.tasks.parts import check_model

H = 10
PARTS = [("rnn", "plain", "none"), ("lstm", "plain", "none"), ("gru", "luong", "additive")]
every_model = pytest.mark.parametrize("parts", PARTS, ids="-".join)


def config_of(parts: tuple[str, str, str], shared: bool, **model: Any) -> Config:
    sizes: dict[str, Any] = {"encoder_hidden_size": H, "num_layers": 2, "share_layers": shared}
    return small_config(*parts, **(sizes | model))


def models(parts: tuple[str, str, str]) -> tuple[Seq2Seq, Seq2Seq]:
    """A model with one network, and one with two networks of the same weights."""
    one, two = (small_model(config_of(parts, shared)).double() for shared in (True, False))
    two.load_state_dict(one.state_dict())
    return one, two


def layers_of(model: Seq2Seq) -> tuple[RecurrentLayers, RecurrentLayers]:
    ours, theirs = model.encoder.get_submodule("layers"), model.decoder.get_submodule("layers")
    assert isinstance(ours, RecurrentLayers)
    assert isinstance(theirs, RecurrentLayers)
    return ours, theirs


def log_probs(model: Seq2Seq) -> Tensor:
    batch = batch_of(random_sentences([3, 1, 5], seed=1), random_sentences([4, 2, 2], seed=2))
    logits_BTV, _ = model(batch, batch.inputs_BT)
    return logits_BTV.log_softmax(-1)


@every_model
def test_one_set_of_weights_counted_once(parts: tuple[str, str, str]) -> None:
    one, two = models(parts)
    assert layers_of(one)[0] is layers_of(one)[1]
    assert layers_of(two)[0] is not layers_of(two)[1]
    of_layers = sum(weight.numel() for weight in layers_of(one)[0].parameters())
    counts = [sum(parameter.numel() for parameter in model.parameters()) for model in (one, two)]
    assert of_layers > 0
    assert counts[0] == counts[1] - of_layers


@every_model
def test_gradients_are_the_sum_of_those_of_two_networks(parts: tuple[str, str, str]) -> None:
    one, two = models(parts)
    found, expected = log_probs(one), log_probs(two)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    direction = torch.linspace(-1, 2, found.numel(), dtype=torch.float64).view_as(found)
    (found * direction).sum().backward()  # type: ignore[no-untyped-call]
    (expected * direction).sum().backward()  # type: ignore[no-untyped-call]
    encoder, decoder = (dict(layers.named_parameters()) for layers in layers_of(two))
    for name, weight in layers_of(one)[0].named_parameters():
        of_encoder, of_decoder = encoder[name].grad, decoder[name].grad
        assert of_encoder is not None
        assert of_decoder is not None
        assert of_encoder.any()
        assert of_decoder.any()
        torch.testing.assert_close(weight.grad, of_encoder + of_decoder, rtol=1e-8, atol=1e-11)
    others = dict(two.named_parameters())
    for name, weight in one.named_parameters():
        if ".layers." not in name:
            torch.testing.assert_close(weight.grad, others[name].grad, rtol=1e-8, atol=1e-11)


def of_cells(encoder: str, decoder: str) -> Config:
    config = config_of((encoder, "plain", "none"), True)
    config.decoder["cell"] = decoder
    return config


def of_layers(encoder: int, decoder: int) -> Config:
    config = config_of(("lstm", "plain", "none"), True, bridge="mean")
    config.encoder["num_layers"], config.decoder["num_layers"] = encoder, decoder
    return config


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(config_of(("lstm", "plain", "none"), True, encoder_hidden_size=4), id="sizes"),
        pytest.param(of_cells("gru", "lstm"), id="cells"),
        pytest.param(of_cells("gru", "rnn"), id="gates"),
        pytest.param(of_layers(2, 1), id="layers"),
        pytest.param(config_of(("bilstm", "plain", "none"), True, encoder_hidden_size=5), id="directions"),
        pytest.param(config_of(("gru", "context", "none"), True), id="the context in the input"),
        pytest.param(config_of(("gru", "bahdanau", "additive"), True), id="attention in the input"),
        pytest.param(config_of(("gru", "luong_feeding", "additive"), True), id="input feeding"),
        pytest.param(config_of(("gru", "conditional", "additive"), True, num_layers=1), id="two networks"),
    ],
)
def test_layers_that_cannot_be_shared_are_refused(config: Config) -> None:
    with pytest.raises(
        UserError, match=r"model\.share_layers=true .*same cell, size and number.*model\.share_layers=false"
    ):
        check_model(config)


def test_two_dropouts_for_one_network_are_refused() -> None:
    config = config_of(("gru", "plain", "none"), True)
    config.decoder["dropout"] = 0.3
    with pytest.raises(UserError, match=r"probability=0\.0.*probability=0\.3.*model\.dropout"):
        check_model(config)
