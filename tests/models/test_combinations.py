"""Every decoder with every attention function and every encoder, built from conf/ as the program builds them."""

from itertools import product
from typing import Any

import pytest
import torch
from small_models import (
    WITHOUT_ATTENTION,
    ragged_batch,
    recurrent_values_of,
    small_config,
    small_model,
    values_of,
)
from torch import Tensor, nn

from seq2seq_lab.config.schema import Config, TiedEmbeddings, origin
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import check_slots
from seq2seq_lab.models.decoders import Decoder
from seq2seq_lab.models.recurrent import RecurrentState
from seq2seq_lab.models.seq2seq import Seq2Seq, build_seq2seq
from seq2seq_lab.tasks.losses import cross_entropy
from seq2seq_lab.tasks.parts import check_model
from seq2seq_lab.training.parts import build_optimizer

ENCODERS, DECODERS = recurrent_values_of("encoder"), recurrent_values_of("decoder")
ATTENTIONS = [value for value in values_of("attention") if origin("attention", value) == value]


def compatible(decoder: str, attention: str, num_layers: int) -> bool:
    if decoder in WITHOUT_ATTENTION:
        return attention == "none"
    if decoder == "conditional":
        return attention != "none" and num_layers == 1
    return True


# An attention function depends on an encoder only through the size of its outputs: one direction or two. Two layers depend
# on the encoder only through its number of directions and whether its state has a cell.
PRODUCT = [
    (encoder, decoder, attention, num_layers)
    for encoder, decoder, attention, num_layers in product(ENCODERS, DECODERS, ATTENTIONS, (1, 2))
    if encoder == "bigru"
    or (encoder, num_layers) == ("lstm", 1)
    or (attention in ("additive", "none") and (num_layers == 1 or encoder.endswith("lstm")))
]
COMBINATIONS = [
    pytest.param(*parts, id="-".join(map(str, parts))) for parts in PRODUCT if compatible(*parts[1:])
]
REFUSED_COMBINATIONS = [
    pytest.param(*parts, id="-".join(map(str, parts)))
    for parts in PRODUCT
    if parts[0] == "bigru" and not compatible(*parts[1:])
]
every_combination = pytest.mark.parametrize(("encoder", "decoder", "attention", "num_layers"), COMBINATIONS)


def test_the_product_covers_every_value() -> None:
    columns = list(zip(*(parts.values for parts in COMBINATIONS), strict=True))
    assert {*columns[0]} >= {"rnn", "lstm", "gru", "birnn", "bilstm", "bigru"}
    assert {*columns[1]} >= {
        *WITHOUT_ATTENTION,
        "bahdanau",
        "tutorial",
        "luong",
        "luong_feeding",
        "conditional",
    }
    assert {*columns[2]} >= {"additive", "dot", "location", "none", "coverage", "location_sensitive", "local"}


@pytest.mark.parametrize(("encoder", "decoder", "attention", "num_layers"), REFUSED_COMBINATIONS)
def test_incompatible_parts_are_refused_by_name(
    encoder: str, decoder: str, attention: str, num_layers: int
) -> None:
    with pytest.raises(UserError, match=r"decoder.*(attention|num_layers)="):
        check_model(config_of(encoder, decoder, attention, num_layers))


def config_of(
    encoder: str, decoder: str, attention: str, num_layers: int, tied: TiedEmbeddings = TiedEmbeddings.none
) -> Config:
    """Sizes that differ wherever this is allowed."""
    sizes: dict[str, Any] = {"num_layers": num_layers}
    if attention == "dot":
        sizes["hidden_size"] = 8 if encoder.startswith("bi") else 4
    # Features of another size than the embeddings.
    wide = decoder in (*WITHOUT_ATTENTION, "bahdanau", "tutorial")
    readout = "deep" if wide and tied is not TiedEmbeddings.none else "linear"
    config = small_config(encoder, decoder, attention, readout, **sizes)
    config.model.tied_embeddings = tied
    return config


@every_combination
def test_takes_an_optimizer_step(encoder: str, decoder: str, attention: str, num_layers: int) -> None:
    take_an_optimizer_step(encoder, decoder, attention, num_layers, TiedEmbeddings.none)


@pytest.mark.parametrize("tied", [TiedEmbeddings.target, TiedEmbeddings.all], ids=lambda tied: tied.value)
@pytest.mark.parametrize(
    ("decoder", "attention"),
    [pair for pair in product(DECODERS, ("additive", "none")) if compatible(*pair, 1)],
)
def test_tied_embeddings_take_an_optimizer_step(decoder: str, attention: str, tied: TiedEmbeddings) -> None:
    take_an_optimizer_step("bigru", decoder, attention, 1, tied)


def take_an_optimizer_step(
    encoder: str, decoder: str, attention: str, num_layers: int, tied: TiedEmbeddings
) -> None:
    config = config_of(encoder, decoder, attention, num_layers, tied)
    check_slots(config)
    model = small_model(config).train()
    batch = ragged_batch()
    optimizer = build_optimizer(config, model)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    logits_BTV, weights_BTS = model(batch, batch.inputs_BT)
    assert (weights_BTS is None) == (attention == "none") == (not model.attends)
    loss = cross_entropy(logits_BTV, batch.outputs_BT, label_smoothing=0.1)
    loss.backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name
    optimizer.step()
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all(), name
        assert not torch.equal(parameter, before[name]), name
    tables = [model.source_embedding.weight, model.target_embedding.weight, model.readout.linear.weight]
    assert len({id(table) for table in tables}) == {"none": 3, "target": 2, "all": 1}[tied.value]


def unroll_by_steps(model: Seq2Seq, batch: Batch) -> tuple[Tensor, Tensor | None]:
    state, source = model.start(batch)
    log_probs, rows = [], []
    for token_B in batch.inputs_BT.unbind(1):
        log_probs_BV, state, weights_BS = model.step(token_B, state, source)
        log_probs.append(log_probs_BV)
        rows += [] if weights_BS is None else [weights_BS]
    return torch.stack(log_probs, dim=1), torch.stack(rows, dim=1) if rows else None


def gradients(model: nn.Module, output: Tensor) -> list[Tensor]:
    direction = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view_as(output)
    return list(torch.autograd.grad((output * direction).sum(), [*model.parameters()]))


@every_combination
def test_unroll_equals_repeated_step(encoder: str, decoder: str, attention: str, num_layers: int) -> None:
    assert_unroll_equals_repeated_step(config_of(encoder, decoder, attention, num_layers))


SETTINGS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "mean-deep": ("bigru", "deep", {"bridge": "mean"}, 1),
    "zero-deep": ("bilstm", "deep", {"bridge": "zero"}, 1),
    "copy-reverse": (
        "gru",
        "linear",
        {"bridge": "copy", "encoder_hidden_size": 10, "reverse_source": True},
        1,
    ),
    "mean-deeper_encoder": ("birnn", "linear", {"bridge": "mean"}, 2),
}


@pytest.mark.parametrize(
    ("decoder", "name"),
    [
        (decoder, name)
        for decoder, name in product(DECODERS, SETTINGS)
        if decoder not in ("plain", "tutorial_plain") or name != "zero-deep"  # it would not see the source
    ],
)
def test_unroll_equals_repeated_step_however_it_is_set(decoder: str, name: str) -> None:
    encoder, readout, settings, encoder_layers = SETTINGS[name]
    attention = "none" if decoder in WITHOUT_ATTENTION else "additive"
    config = small_config(encoder, decoder, attention, readout, **settings)
    config.encoder["num_layers"] = encoder_layers
    assert_unroll_equals_repeated_step(config)


def assert_unroll_equals_repeated_step(config: Config) -> None:
    check_model(config)
    model = small_model(config).double()
    batch = ragged_batch()
    logits_BTV, weights_BTS = model(batch, batch.inputs_BT)
    log_probs_BTV, rows_BTS = unroll_by_steps(model, batch)
    whole_BTV = logits_BTV.log_softmax(-1)
    torch.testing.assert_close(whole_BTV, log_probs_BTV, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(weights_BTS, rows_BTS, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        gradients(model, whole_BTV), gradients(model, log_probs_BTV), rtol=1e-8, atol=1e-11
    )


def test_the_loop_of_the_base_class_equals_the_decoders_own_unroll() -> None:
    model = small_model(small_config("bilstm", num_layers=2)).double()
    batch = ragged_batch()
    state, source = model.start(batch)
    embedded_BTE = torch.randn(*batch.inputs_BT.shape, 6, dtype=torch.float64)
    for ours, theirs in zip(
        Decoder.unroll(model.decoder, embedded_BTE, state, source)[::2],
        model.decoder.unroll(embedded_BTE, state, source)[::2],
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


REFUSED = [
    pytest.param(
        {"encoder": "bigru", "attention": "dot"},
        ["attention=dot", "model.hidden_size", "10", "8", "model.hidden_size=8", "attention=multiplicative"],
        id="dot between unequal sizes",
    ),
    pytest.param(
        {"encoder": "gru", "decoder": "plain", "attention": "additive"},
        ["decoder.attentional_size=null", "attention=", "decoder=luong"],
        id="attention for a decoder without",
    ),
    pytest.param(
        {"encoder": "gru", "decoder": "plain", "attention": "none", "tied_embeddings": TiedEmbeddings.target},
        ["model.tied_embeddings", "10", "model.embedding_size=10", "=none"],
        id="tied embeddings of another size",
    ),
]


@pytest.mark.parametrize(("settings", "words"), REFUSED)
def test_parts_that_do_not_fit_are_refused(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        check_model(small_config(**settings))
    for word in words:
        assert word in str(error.value)


def test_a_copying_bridge_between_unequal_sizes_is_refused() -> None:
    config = small_config("bilstm")
    config.decoder["bridge"] = "copy"
    with pytest.raises(
        UserError, match=r"decoder\.bridge=copy .* has 10 .* 8 .*model\.hidden_size=8, or .*=tanh"
    ):
        check_model(config)


def test_unequal_numbers_of_layers_are_refused() -> None:
    config = small_config("bilstm")
    config.encoder["num_layers"] = 3
    with pytest.raises(UserError, match=r"encoder has 3 layers and the decoder 1.*model\.num_layers"):
        check_model(config)


def test_one_table_for_two_vocabularies_is_refused() -> None:
    config = small_config(tied_embeddings=TiedEmbeddings.all)
    with pytest.raises(UserError, match=r"model\.tied_embeddings=all .*tokenizer\.joint=true.*=target"):
        build_seq2seq(config, source_vocabulary=8, target_vocabulary=8, joint=False)


@pytest.mark.parametrize("encoder", ["gru", "bilstm"])
def test_a_copying_bridge_copies(encoder: str) -> None:
    config = small_config(encoder, hidden_size=8 if encoder.startswith("bi") else 4)
    config.decoder["bridge"] = "copy"
    model = small_model(config)
    batch = ragged_batch()
    state, source = model.start(batch)
    torch.testing.assert_close(state.layers, source.final)


CELLS = ("rnn", "lstm", "gru")


@pytest.mark.parametrize("same", [True, False], ids=["equal_sizes", "unequal_sizes"])
@pytest.mark.parametrize(("encoder", "decoder_cell"), list(product(CELLS, CELLS)))
def test_the_tanh_bridge(encoder: str, decoder_cell: str, same: bool) -> None:
    """h_0 = tanh(W h + b); a memory cell is copied, projected, dropped, or computed from h."""
    config = small_config(encoder, encoder_hidden_size=10 if same else 4)
    config.decoder["cell"] = decoder_cell
    model = small_model(config)
    batch = ragged_batch()
    started, source = model.start(batch)
    state = started.layers
    weights = dict(model.decoder.named_parameters())
    w, b = weights["bridge.hidden.0.weight"], weights["bridge.hidden.0.bias"]
    final = source.final
    torch.testing.assert_close(state.hidden_LBH, torch.tanh(final.hidden_LBH @ w.T + b))
    assert (state.cell_LBH is None) == (decoder_cell != "lstm")
    if state.cell_LBH is not None:
        memory = final.hidden_LBH if final.cell_LBH is None else final.cell_LBH
        if not same:
            memory = memory @ weights["bridge.cell.weight"].T + weights["bridge.cell.bias"]
        torch.testing.assert_close(state.cell_LBH, memory)
    assert isinstance(state, RecurrentState)
