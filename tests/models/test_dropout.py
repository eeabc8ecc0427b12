import pytest
import torch
from torch import Tensor

from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.recurrent import RecurrentLayers

COUNT = 200_001  # no multiple of 4: one draw decides on four elements


def dropped(probability: float, x: Tensor, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    y: Tensor = Dropout(probability).train()(x)
    return y


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.5, 0.9])
def test_frequency_and_scale(probability: float) -> None:
    y = dropped(probability, torch.ones(COUNT, dtype=torch.float64))
    zero = (y == 0).double().mean().item()
    assert zero == pytest.approx(probability, abs=5 * (probability * (1 - probability) / COUNT) ** 0.5)
    kept = y[y != 0]
    assert kept.min() == kept.max() == pytest.approx(1 / (1 - probability), rel=2e-4)
    assert y.mean().item() == pytest.approx(1, abs=5 * (probability / (1 - probability) / COUNT) ** 0.5)


@pytest.mark.parametrize(("probability", "training"), [(0.5, False), (0.0, True), (0.0, False)])
def test_identity(probability: float, training: bool) -> None:
    x = torch.randn(7)
    assert Dropout(probability).train(training)(x) is x


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
    dropout = Dropout(0.5)
    assert not torch.equal(dropout(x), dropout(x))


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 5, 8])
def test_neighbours_are_independent(distance: int) -> None:
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


def test_packed_sequences_between_layers() -> None:
    """At 0.5 the second layer reads the first layer's states, each zeroed or doubled, and padding never."""
    torch.manual_seed(0)
    layers = RecurrentLayers("rnn", 3, 4, num_layers=2, bidirectional=False, dropout=0.5).train()
    packed = torch.nn.utils.rnn.pack_sequence([torch.randn(length, 3) for length in (5, 3, 1)])
    below = layers.layers[0](packed)[0].data
    read: list[Tensor] = []
    layers.layers[1].register_forward_pre_hook(lambda _, args: read.append(args[0].data))
    layers(packed, None)
    assert torch.all((read[0] == 0) | (read[0] == 2 * below))
    assert 0 < (read[0] == 0).sum() < read[0].numel()
    layers.eval()(packed, None)
    assert torch.equal(read[1], below)


def test_only_between_layers() -> None:
    layers = RecurrentLayers("gru", 3, 4, num_layers=1, bidirectional=False, dropout=0.9).train()
    x = torch.randn(2, 5, 3)
    assert torch.equal(layers(x, None)[0], layers(x, None)[0])
