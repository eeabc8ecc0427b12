"""The decoder's first state. The copying and the tanh bridge of whole models are in test_combinations.py."""

from collections.abc import Sequence

import pytest
import torch
from small_models import batch_of, beam_search, random_sentences, small_config, small_model
from torch import Tensor

from seq2seq_lab.config.schema import Config
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.bridge import Bridge, BridgeKind
from seq2seq_lab.models.encoders import EncoderOutputs, EncoderSizes, TokenEncoder
from seq2seq_lab.models.recurrent import RecurrentSpec, RecurrentState
from seq2seq_lab.models.source import Source
from seq2seq_lab.tasks.parts import check_model

S, M, H = 4, 6, 5
LENGTHS = (4, 1, 3)
B = len(LENGTHS)

either_cell = pytest.mark.parametrize("has_cell", [False, True], ids=["gru", "lstm"])
layer_counts = pytest.mark.parametrize(("encoder_layers", "num_layers"), [(1, 1), (3, 1), (1, 3), (2, 2)])


def bridge(kind: BridgeKind, encoder_layers: int, num_layers: int, has_cell: bool) -> Bridge:
    torch.manual_seed(0)
    decoder = RecurrentSpec("lstm" if has_cell else "gru", H, num_layers, 0.0, False)
    return Bridge(kind, EncoderSizes(M, M, encoder_layers), decoder).double()


def source(encoder_layers: int, padding: float) -> Source:
    """A random source with this value at padding."""
    generator = torch.Generator().manual_seed(1)
    encoder_outputs_BSM = torch.randn(B, S, M, dtype=torch.float64, generator=generator)
    mask = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
    encoder_outputs_BSM[~mask] = padding
    final = torch.randn(encoder_layers, B, M, dtype=torch.float64, generator=generator)
    return Source(
        encoder_outputs_BSM.requires_grad_(),
        encoder_outputs_BSM,
        torch.tensor(LENGTHS),
        mask[:, None],
        RecurrentState(final, final + 1),
    )


@either_cell
@layer_counts
@pytest.mark.parametrize("padding", [0.0, 1e6, float("nan")])
def test_mean(encoder_layers: int, num_layers: int, has_cell: bool, padding: float) -> None:
    """tanh(W mean(h_1 … h_S) + b) for every layer, of the real tokens only; an LSTM's memory cell is 0."""
    made, given = bridge("mean", encoder_layers, num_layers, has_cell), source(encoder_layers, padding)
    state = made(given)
    w, b = made.get_parameter("hidden.0.weight"), made.get_parameter("hidden.0.bias")
    for row, length in enumerate(LENGTHS):
        total = torch.zeros(M, dtype=torch.float64)
        for position in range(length):
            total = total + given.encoder_outputs_BSM[row, position]
        expected = torch.tanh(w @ (total / length) + b)
        torch.testing.assert_close(state.hidden_LBH[:, row], expected.expand(num_layers, H))
    assert_cell_is_zero(state, num_layers, has_cell)
    (gradient_BSM,) = torch.autograd.grad(state.hidden_LBH.sum(), given.encoder_outputs_BSM)
    assert given.mask is not None
    assert torch.equal(gradient_BSM.abs().sum(-1) > 0, given.mask[:, 0])


@either_cell
def test_mean_without_padding(has_cell: bool) -> None:
    given = source(1, padding=3.0)
    everywhere = torch.ones(B, 1, S, dtype=torch.bool)
    made = bridge("mean", 1, 1, has_cell)
    torch.testing.assert_close(made(given._replace(mask=None)), made(given._replace(mask=everywhere)))


@either_cell
@layer_counts
def test_zero(encoder_layers: int, num_layers: int, has_cell: bool) -> None:
    made = bridge("zero", encoder_layers, num_layers, has_cell)
    state = made(source(encoder_layers, padding=1.0))
    assert torch.equal(state.hidden_LBH, torch.zeros(num_layers, B, H, dtype=torch.float64))
    assert_cell_is_zero(state, num_layers, has_cell)
    assert [*made.parameters()] == []


def assert_cell_is_zero(state: RecurrentState, num_layers: int, has_cell: bool) -> None:
    assert (state.cell_LBH is not None) == has_cell
    if state.cell_LBH is not None:
        assert torch.equal(state.cell_LBH, torch.zeros(num_layers, B, H, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["copy", "tanh"])
@pytest.mark.parametrize(("encoder_layers", "num_layers"), [(3, 1), (1, 3)])
def test_final_states_for_another_number_of_layers_are_refused(
    kind: str, encoder_layers: int, num_layers: int
) -> None:
    config = small_config("gru", encoder_hidden_size=10, bridge=kind)
    config.encoder["num_layers"], config.decoder["num_layers"] = encoder_layers, num_layers
    with pytest.raises(
        UserError,
        match=rf"bridge={kind}: the encoder has {encoder_layers} layers and the decoder {num_layers}.*"
        r"model\.num_layers for both, or model\.bridge=mean",
    ):
        check_model(config)


@pytest.mark.parametrize("kind", ["mean", "zero"])
@pytest.mark.parametrize("decoder", ["luong", "luong_feeding", "bahdanau", "tutorial"])
@pytest.mark.parametrize(("encoder_layers", "num_layers"), [(3, 1), (1, 3)])
def test_mean_and_zero_join_any_numbers_of_layers_and_directions(
    kind: str, decoder: str, encoder_layers: int, num_layers: int
) -> None:
    config = small_config("bilstm", decoder, bridge=kind)
    config.encoder["num_layers"], config.decoder["num_layers"] = encoder_layers, num_layers
    model = small_model(config)
    batch = batch_of(random_sentences([3, 1], seed=1), random_sentences([2, 4], seed=2))
    state, _ = model.start(batch)
    cell_LBH = state.layers.cell_LBH
    assert cell_LBH is not None
    assert state.layers.hidden_LBH.shape == cell_LBH.shape == (num_layers, 2, 10)
    assert bool(state.layers.hidden_LBH.any()) == (kind == "mean")
    logits_BTV, _ = model(batch, batch.inputs_BT)
    gradients: tuple[Tensor, ...] = torch.autograd.grad(logits_BTV.square().sum(), [*model.parameters()])
    assert all(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("kind", ["copy", "tanh", "mean", "zero"])
@pytest.mark.parametrize("encoder", ["gru", "bigru"])
def test_one_or_two_directions(encoder: str, kind: str) -> None:
    """An encoder of both directions has a final state of twice the size, which only bridge=copy refuses."""
    config = small_config(encoder, bridge=kind, encoder_hidden_size=10)
    if kind == "copy" and encoder == "bigru":
        with pytest.raises(UserError, match=r"bridge=copy .* has 10 .* 20 .*its directions.*hidden_size=20"):
            check_model(config)
    else:
        check_model(config)


class MeanPooling(TokenEncoder):
    """An encoder without a final state: its outputs are the embeddings."""

    def __init__(self, input_size: int) -> None:
        super().__init__()
        self.sizes = EncoderSizes(input_size, final_size=None, num_layers=0)

    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> EncoderOutputs:
        mask_BS1 = (torch.arange(embedded_BSE.shape[1]) < torch.tensor(lengths)[:, None])[..., None]
        return EncoderOutputs(embedded_BSE * mask_BS1, lengths, None)


@pytest.fixture
def without_final(monkeypatch: pytest.MonkeyPatch) -> Config:
    """A configuration whose encoder has no final state."""
    monkeypatch.setattr("seq2seq_lab.models.encoders.MeanPooling", MeanPooling, raising=False)
    monkeypatch.setattr(MeanPooling, "__module__", "seq2seq_lab.models.encoders")
    config = small_config("gru")
    config.encoder = {"_target_": "seq2seq_lab.models.encoders.MeanPooling"}
    return config


@pytest.mark.parametrize("kind", ["mean", "zero"])
def test_an_encoder_without_a_final_state(without_final: Config, kind: str) -> None:
    without_final.decoder["bridge"] = kind
    check_model(without_final)
    model = small_model(without_final)
    batch = batch_of(random_sentences([3, 1], seed=1), random_sentences([2, 4], seed=2))
    assert model.start(batch)[1].final is None
    (found, _) = beam_search(3, length_penalty=0.6, nbest=2, max_length_extra=2)(
        model, batch, with_weights=True
    )
    assert len(found) == 2


@pytest.mark.parametrize("kind", ["copy", "tanh"])
def test_a_bridge_that_needs_a_final_state_is_refused_without_one(without_final: Config, kind: str) -> None:
    without_final.decoder["bridge"] = kind
    with pytest.raises(UserError, match=rf"decoder\.bridge={kind} .*model\.bridge=mean"):
        check_model(without_final)


def test_a_decoder_that_reads_the_final_state_is_refused_without_one(without_final: Config) -> None:
    without_final.decoder = small_config("gru", "context", "none").decoder | {"bridge": "zero"}
    without_final.attention = small_config("gru", "plain", "none").attention
    with pytest.raises(UserError, match=r"decoder=context .*final state"):
        check_model(without_final)
