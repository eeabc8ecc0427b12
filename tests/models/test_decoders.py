"""The state of decoders, and their dropout in training."""

from typing import Any

import pytest
import torch
from small_models import (
    WITHOUT_ATTENTION,
    batch_of,
    beam_search,
    random_sentences,
    recurrent_values_of,
    small_config,
    small_model,
)
from torch import Tensor

from seq2seq_lab.config.slots import check_slot
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import KINDS
from seq2seq_lab.models.attention.base import AttentionFactory, AttentionState
from seq2seq_lab.models.bridge import Bridge
from seq2seq_lab.models.decoders import DecoderState, RecurrentDecoder
from seq2seq_lab.models.decoders.output import Output
from seq2seq_lab.models.encoders import EncoderSizes
from seq2seq_lab.models.recurrent import RecurrentLayers, RecurrentLoop, RecurrentSpec, RecurrentState
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.models.source import Source

DECODERS = recurrent_values_of("decoder")
every_decoder = pytest.mark.parametrize("decoder", DECODERS)
HIDDEN, EMBEDDING, STEPS = 40, 20, 6


def model_of(decoder: str, **model: Any) -> Seq2Seq:
    attention = "none" if decoder in WITHOUT_ATTENTION else "additive"
    sizes: dict[str, Any] = {"embedding_size": EMBEDDING, "hidden_size": HIDDEN, "encoder_hidden_size": 15}
    layers = {"num_layers": 1 if decoder == "conditional" else 2}
    return small_model(small_config("bilstm", decoder, attention, **(sizes | layers | model)))


def batch() -> Batch:
    """Targets of one length, since a padded input is 0 with and without dropout."""
    return batch_of(random_sentences([4, 2, 5], seed=1), random_sentences([STEPS - 1] * 3, seed=2))


@pytest.mark.parametrize("cell", [None, torch.arange(12.0).view(2, 3, 2) + 50], ids=["gru", "lstm"])
@pytest.mark.parametrize("fed", [None, torch.arange(9.0).view(3, 3)], ids=["nothing_fed", "fed"])
def test_select(cell: Tensor | None, fed: Tensor | None) -> None:
    hidden = torch.arange(12.0).view(2, 3, 2) + 20
    chosen = DecoderState(RecurrentState(hidden, cell), AttentionState(0, None), fed).select(
        torch.tensor([2, 0, 2, 1])
    )
    assert torch.equal(chosen.layers.hidden_LBH, hidden[:, [2, 0, 2, 1]])
    assert (chosen.layers.cell_LBH is None) == (cell is None)
    assert (chosen.fed_BF is None) == (fed is None)
    if cell is not None and chosen.layers.cell_LBH is not None:
        assert torch.equal(chosen.layers.cell_LBH, cell[:, [2, 0, 2, 1]])
    if fed is not None and chosen.fed_BF is not None:
        assert torch.equal(chosen.fed_BF, fed[[2, 0, 2, 1]])


@every_decoder
def test_a_selected_state_continues_like_its_row(decoder: str) -> None:
    """As in a beam: rows of one sentence with different tokens are reordered."""
    model = model_of(decoder).double().eval()
    sentence = random_sentences([4], seed=1)[0]
    rows = batch_of([sentence] * 3, [[5], [6], [7]])
    state, source = model.start(rows)
    for token_B in rows.inputs_BT.unbind(1):
        _, state, _ = model.step(token_B, state, source)
    index_N = torch.tensor([2, 0, 2])
    expected_NV, following, _ = model.step(torch.tensor([8, 9, 8]), state, source)
    found_NV, selected, _ = model.step(torch.tensor([8, 8, 8]), state.select(index_N), source)
    assert (state.fed_BF is not None) == (decoder == "luong_feeding")
    assert not torch.allclose(expected_NV[0], expected_NV[2])
    torch.testing.assert_close(found_NV, expected_NV[[2, 0, 2]])
    torch.testing.assert_close(selected, following.select(index_N))


def shown(model: Seq2Seq, given: Batch) -> Tensor:
    """The features_BTF that the readout reads."""
    read: list[Tensor] = []
    model.readout.register_forward_pre_hook(lambda _, args: read.append(args[0].detach()))
    model(given, given.inputs_BT)
    return read[0]


def patterns(x_BTF: Tensor) -> list[set[tuple[bool, ...]]]:
    """For each sentence, the different sets of zeros that its steps have."""
    return [{tuple(row) for row in x_TF} for x_TF in (x_BTF == 0).tolist()]


@every_decoder
@pytest.mark.parametrize("locked", [False, True], ids=["each_step", "locked"])
def test_the_mask_of_the_features(decoder: str, locked: bool) -> None:
    model = model_of(decoder, dropout=0.5, state_dropout=0.5, locked_dropout=locked).train()
    features_BTF = shown(model, batch())
    assert (features_BTF == 0).double().mean().item() == pytest.approx(0.5, abs=0.25)
    found = patterns(features_BTF)
    assert [len(rows) for rows in found] == [1 if locked else STEPS] * 3
    assert len(set.union(*found)) == (3 if locked else 3 * STEPS)
    assert (shown(model.eval(), batch()) != 0).all()


@pytest.mark.parametrize("decoder", ["luong", "luong_feeding"])
@pytest.mark.parametrize("locked", [False, True], ids=["each_step", "locked"])
def test_the_masks_of_encoder_outputs_and_state_below_the_attentional_layer(
    decoder: str, locked: bool
) -> None:
    """The layer reads [c_t; s_t]: a locked mask of the encoder outputs is also a mask of the context."""
    model = model_of(decoder, dropout=0.5, state_dropout=0.5, locked_dropout=locked).train()
    read: list[Tensor] = []
    combine = model.decoder.get_submodule("combine")
    combine.register_forward_pre_hook(lambda _, args: read.append(args[0].detach()))
    shown(model, batch())
    joined_BTX = torch.cat(read, dim=1)
    assert joined_BTX.shape == (3, STEPS, 30 + HIDDEN)
    assert [len(rows) for rows in patterns(joined_BTX[..., -HIDDEN:])] == [1 if locked else STEPS] * 3
    # An element of the context is 0 if it is dropped at all positions.
    assert (joined_BTX[..., :30] == 0).double().mean().item() == pytest.approx(
        0.5 if locked else 0.02, abs=0.2
    )
    if locked:
        assert [len(rows) for rows in patterns(joined_BTX[..., :30])] == [1] * 3


@pytest.mark.parametrize("locked", [False, True], ids=["each_step", "locked"])
def test_the_fed_features_have_the_dropout_of_the_readout(
    locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[Tensor] = []
    step = RecurrentLoop.step

    def watched(loop: RecurrentLoop, t: int, late_BM: Tensor | None) -> Tensor:
        assert late_BM is not None
        fed.append(late_BM.detach())
        return step(loop, t, late_BM)

    monkeypatch.setattr(RecurrentLoop, "step", watched)
    model = model_of("luong_feeding", dropout=0.5, state_dropout=0.5, locked_dropout=locked).train()
    features_BTF = shown(model, batch())
    fed_BTF = torch.stack(fed, dim=1)
    assert not fed_BTF[:, 0].any()
    assert torch.equal(fed_BTF[:, 1:], features_BTF[:, :-1])
    assert [len(rows) for rows in patterns(fed_BTF[:, 1:])] == [1 if locked else STEPS - 1] * 3


@pytest.mark.parametrize("decoder", ["bahdanau", "tutorial", "luong_feeding", "conditional"])
def test_the_masks_of_a_loop_over_time_are_seeded(decoder: str) -> None:
    model = model_of(decoder, dropout=0.5, state_dropout=0.5).train()

    def features(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return shown(model, batch())

    assert torch.equal(features(1), features(1))
    assert not torch.equal(features(1), features(2))


@pytest.mark.parametrize("locked", [False, True], ids=["each_step", "locked"])
def test_state_and_context_are_dropped_for_the_readout_and_the_embedding_is_not(locked: bool) -> None:
    recurrent = RecurrentSpec("gru", HIDDEN, 1, 0.0, locked)
    output = Output(["context", "embedding", "state"], EMBEDDING, recurrent, 30, 0.5).train()
    x_BTF = output(torch.ones(3, STEPS, EMBEDDING), torch.ones(3, STEPS, HIDDEN), torch.ones(3, STEPS, 30))
    context_BTM, embedded_BTE, states_BTH = x_BTF.split([30, EMBEDDING, HIDDEN], dim=-1)
    assert torch.equal(embedded_BTE, torch.ones(3, STEPS, EMBEDDING))
    for part in (context_BTM, states_BTH):
        assert set(part.flatten().tolist()) == {0.0, 2.0}
        assert [len(rows) for rows in patterns(part)] == [1 if locked else STEPS] * 3
    assert not torch.equal(context_BTM, states_BTH[..., :30])
    assert (output.eval()(embedded_BTE, states_BTH + 1, context_BTM + 1) != 0).all()


class SumDecoder(RecurrentDecoder):
    """s_t = RNN(e, s_{t-1}); the readout reads s_t + c_t."""

    def __init__(
        self, input_size: int, encoder: EncoderSizes, attention: AttentionFactory, recurrent: RecurrentSpec
    ) -> None:
        super().__init__()
        self.layers = RecurrentLayers(recurrent, input_size, bidirectional=False)
        self.attention = attention(
            query_size=recurrent.hidden_size, encoder_output_size=encoder.encoder_output_size
        )
        self.bridge = Bridge("mean", encoder, recurrent)
        self.feature_size = recurrent.hidden_size

    def step(
        self, embedded_NE: Tensor, state: DecoderState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        state_NH, layers = self.layers.step(embedded_NE, state.layers)
        context_NM, weights_NS, attention = self.attend_once(state_NH, embedded_NE, state.attention, source)
        return state_NH + context_NM, DecoderState(layers, attention), weights_NS


@pytest.mark.parametrize("attention", ["additive", "coverage", "local"])
def test_a_new_decoder_is_one_class(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings are the fields of `RecurrentSpec`; training and search need no other method than `step`."""
    monkeypatch.setattr("seq2seq_lab.models.decoders.SumDecoder", SumDecoder, raising=False)
    monkeypatch.setattr(SumDecoder, "__module__", "seq2seq_lab.models.decoders")
    config = small_config("bigru", "luong", attention, hidden_size=8)
    spec = {"cell": "lstm", "hidden_size": 8, "num_layers": 2, "dropout": 0.0, "locked_dropout": False}
    config.decoder = {"_target_": "seq2seq_lab.models.decoders.SumDecoder", **spec}
    check_slot("decoder", config.decoder, KINDS)
    with pytest.raises(UserError, match=r"decoder\.hidden_size"):
        check_slot("decoder", config.decoder | {"hidden_size": "wide"}, KINDS)
    model = small_model(config).eval()
    assert model.attends
    given = batch()
    logits_BTV, _ = model(given, given.inputs_BT)
    gradients = torch.autograd.grad(logits_BTV.square().sum(), [*model.parameters()])
    assert all(gradient.any() for gradient in gradients)
    assert all(
        len(found) == 2
        for found in beam_search(3, length_penalty=0.6, nbest=2, max_length_extra=2)(model, given, True)
    )
