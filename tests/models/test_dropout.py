import pytest
import torch
from small_models import batch_of, small_config, small_model
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence

from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.recurrent import RecurrentLayers, RecurrentSpec

COUNT = 200_001  # no multiple of 4: one draw decides on four elements


B, T, F = 40, 7, 50
LENGTHS = (3, 7, 1, 7, 5)

either = pytest.mark.parametrize("locked", [False, True], ids=["each step", "locked"])


def dropped(probability: float, x: Tensor, seed: int = 0, locked: bool = False) -> Tensor:
    torch.manual_seed(seed)
    y: Tensor = Dropout(probability, locked).train()(x)
    return y


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.5, 0.9])
@either
def test_frequency_and_scale(probability: float, locked: bool) -> None:
    shape = (3, 1, COUNT // 3) if locked else (COUNT,)
    y = dropped(probability, torch.ones(shape, dtype=torch.float64), locked=locked)
    zero = (y == 0).double().mean().item()
    assert zero == pytest.approx(probability, abs=5 * (probability * (1 - probability) / COUNT) ** 0.5)
    kept = y[y != 0]
    assert kept.min() == kept.max() == pytest.approx(1 / (1 - probability), rel=2e-4)
    assert y.mean().item() == pytest.approx(1, abs=5 * (probability / (1 - probability) / COUNT) ** 0.5)


@pytest.mark.parametrize(("probability", "training"), [(0.5, False), (0.0, True), (0.0, False)])
@either
def test_identity(probability: float, training: bool, locked: bool) -> None:
    dropout = Dropout(probability, locked).train(training)
    x, packed = torch.randn(2, 3, 7), pack_sequence([torch.randn(length, F) for length in (3, 2)])
    assert dropout(x) is x
    assert dropout.packed(packed).data is packed.data
    assert dropout.mask(x.shape, x.dtype, x.device) is None
    assert dropout.steps(x.shape, x.dtype, x.device) is None


def test_the_gradient_uses_the_same_mask() -> None:
    x = torch.randn(101, dtype=torch.float64, requires_grad=True)
    y = dropped(0.3, x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(y, x * gradient, rtol=1e-12, atol=0)
    assert 0 < (gradient == 0).sum() < 101


def test_seeded_by_torch() -> None:
    x = torch.ones(1000)
    assert torch.equal(dropped(0.5, x), dropped(0.5, x))
    assert not torch.equal(dropped(0.5, x), dropped(0.5, x, seed=1))
    torch.manual_seed(0)
    dropout = Dropout(0.5, locked=False)
    assert not torch.equal(dropout(x), dropout(x))


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 5, 8])
def test_neighbors_are_independent(distance: int) -> None:
    y = dropped(0.3, torch.ones(COUNT, dtype=torch.float64))
    correlation = torch.corrcoef(torch.stack([y[:-distance], y[distance:]]))[0, 1].item()
    assert abs(correlation) < 5 / COUNT**0.5


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,), (5,), (3, 7), (2, 3, 5), (0, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_any_shape_and_precision(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    y = dropped(0.5, torch.ones(shape, dtype=dtype))
    assert y.shape == shape
    assert y.dtype == dtype
    assert set(y.flatten().tolist()) <= {0.0, 2.0}


def test_a_transposed_tensor_has_its_shape() -> None:
    x = torch.arange(1.0, 13.0).view(3, 4).T
    y = dropped(0.5, x)
    assert torch.all((y == 0) | (y == 2 * x))


@either
def test_a_mask_for_each_step_or_for_each_sentence(locked: bool) -> None:
    y_BTF = dropped(0.5, torch.ones(B, T, F), locked=locked)
    assert set(y_BTF.flatten().tolist()) == {0.0, 2.0}
    distinct = {tuple(row) for row in y_BTF.flatten(0, 1).tolist()}
    assert len(distinct) == (B if locked else B * T)
    assert torch.equal(y_BTF, y_BTF[:, :1].expand(B, T, F)) == locked
    y_BBTF = dropped(0.5, torch.ones(2, B, T, F), locked=locked)
    assert len({tuple(row) for row in y_BBTF.flatten(0, 2).tolist()}) == 2 * B * (1 if locked else T)


@either
def test_one_step_has_a_mask_for_each_row(locked: bool) -> None:
    y_NF = dropped(0.5, torch.ones(B, F), locked=locked)
    assert len({tuple(row) for row in y_NF.tolist()}) == B


@either
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_mask_drawn_beforehand_is_that_of_the_whole(locked: bool, dtype: torch.dtype) -> None:
    x_BTF = torch.randn(B, T, F, dtype=dtype)
    expected = dropped(0.3, x_BTF, locked=locked)
    dropout = Dropout(0.3, locked).train()
    torch.manual_seed(0)
    mask = dropout.mask(x_BTF.shape, dtype, x_BTF.device)
    assert mask is not None
    assert mask.shape == (B, 1 if locked else T, F)
    assert mask.dtype == dtype
    assert torch.equal(x_BTF * mask, expected)
    torch.manual_seed(0)
    steps = dropout.steps(x_BTF.shape, dtype, x_BTF.device)
    assert steps is not None
    read = [x_BF * mask_BF for x_BF, mask_BF in zip(x_BTF.unbind(1), steps, strict=True)]
    assert torch.equal(torch.stack(read, dim=1), expected)


def packed_ones() -> PackedSequence:
    return pack_sequence([torch.ones(length, F) for length in LENGTHS], enforce_sorted=False)


@either
def test_packed_sequences(locked: bool) -> None:
    torch.manual_seed(0)
    y = Dropout(0.5, locked).train().packed(packed_ones())
    y_BTF, lengths = pad_packed_sequence(y, batch_first=True)
    assert lengths.tolist() == [*LENGTHS]
    assert set(y.data.flatten().tolist()) == {0.0, 2.0}
    assert 0.4 < (y.data == 0).float().mean() < 0.6
    sentences = [rows_TF[:length].tolist() for rows_TF, length in zip(y_BTF, LENGTHS, strict=True)]
    distinct = [{tuple(row) for row in rows} for rows in sentences]
    assert [len(rows) for rows in distinct] == [1 if locked else length for length in LENGTHS]
    assert len(set.union(*distinct)) == (len(LENGTHS) if locked else sum(LENGTHS))


@either
def test_a_packed_sequence_passes_its_gradient_on(locked: bool) -> None:
    packed = packed_ones()
    packed.data.requires_grad_()
    y = Dropout(0.5, locked).train().packed(packed)
    (gradient,) = torch.autograd.grad(y.data.sum(), packed.data)
    assert torch.equal(gradient, y.data)


def read_by_the_second_layer(sequence: PackedSequence | Tensor, locked: bool) -> Tensor:
    """What a second layer reads at 0.5: the states of the first layer, each zeroed or doubled; unchanged in evaluation."""

    def data(read: PackedSequence | Tensor) -> Tensor:
        return read.data if isinstance(read, PackedSequence) else read

    torch.manual_seed(0)
    layers = RecurrentLayers(RecurrentSpec("rnn", 4, 2, 0.5, locked), 3, bidirectional=False).train()
    below = data(layers.layers[0](sequence)[0])
    read: list[Tensor] = []
    layers.layers[1].register_forward_pre_hook(lambda _, args: read.append(data(args[0])))
    layers(sequence, None)
    assert torch.all((read[0] == 0) | (read[0] == 2 * below))
    assert 0 < (read[0] == 0).sum() < read[0].numel()
    layers.eval()(sequence, None)
    assert torch.equal(read[1], below)
    return read[0]


@either
def test_packed_sequences_between_layers(locked: bool) -> None:
    torch.manual_seed(0)
    packed = pack_sequence([torch.randn(length, 3) for length in (5, 3, 1)])
    longest = [0, 3, 5, 7, 8]  # rows of the first sentence: the batch has 3, 2, 2, 1 and 1 rows at its steps
    zeros = read_by_the_second_layer(packed, locked)[longest] == 0
    assert (len({tuple(row) for row in zeros.tolist()}) == 1) == locked


@either
def test_sequences_between_layers(locked: bool) -> None:
    """The same for a batch of one length, which is not packed."""
    torch.manual_seed(0)
    zeros = read_by_the_second_layer(torch.randn(2, 5, 3), locked)[0] == 0
    assert (len({tuple(row) for row in zeros.tolist()}) == 1) == locked


@either
def test_only_between_layers(locked: bool) -> None:
    layers = RecurrentLayers(RecurrentSpec("gru", 4, 1, 0.9, locked), 3, bidirectional=False).train()
    x = torch.randn(2, 5, 3)
    assert torch.equal(layers(x, None)[0], layers(x, None)[0])


@pytest.mark.gpu
@either
def test_on_a_gpu(locked: bool, gpu: torch.device) -> None:
    x_BTF = torch.ones(B, T, F, device=gpu)
    packed = packed_ones().to(gpu)
    dropout = Dropout(0.5, locked).train()
    steps = dropout.steps(x_BTF.shape, x_BTF.dtype, x_BTF.device)
    assert steps is not None
    for y_BTF in (dropout(x_BTF), torch.stack(steps, dim=1)):
        assert y_BTF.device.type == gpu.type
        assert set(y_BTF.flatten().tolist()) == {0.0, 2.0}
        assert len({tuple(row) for row in y_BTF.flatten(0, 1).tolist()}) == B * (1 if locked else T)
    rows = dropout.packed(packed).data
    assert len({tuple(row) for row in rows.tolist()}) == (len(LENGTHS) if locked else sum(LENGTHS))
    assert dropout.eval()(x_BTF) is x_BTF


@pytest.mark.parametrize("side", ["source", "target"])
def test_each_sides_embeddings_have_their_own(side: str) -> None:
    """Dropout of one side changes the results of that side only."""
    config = small_config()
    getattr(config.embedding, side).dropout = 0.5
    model = small_model(config).train()
    batch = batch_of([[5, 6, 7]], [[8, 9]])
    (state, source), (_, again) = (model.start(batch) for _ in range(2))
    assert torch.equal(source.encoder_outputs_BSM, again.encoder_outputs_BSM) == (side == "target")
    logits, other = (model.unroll(batch.inputs_BT, state, source)[0] for _ in range(2))
    assert torch.equal(logits, other) == (side == "source")
