import pytest
import torch
from torch import Tensor, nn

from seq2seq_lab.models.kernels.linear import ROW, ROWS, Linear

F, V = 6, 2 * ROW + 5


def outputs(layer: nn.Module, x_BTF: Tensor) -> tuple[Tensor, ...]:
    """Return what the layer computes, and the gradients of its weights and its input."""
    x_BTF = x_BTF.clone().requires_grad_()
    output_BTV = layer(x_BTF)
    factors = torch.arange(output_BTV.numel(), dtype=output_BTV.dtype).view(output_BTV.shape) / 100
    return (output_BTV, *torch.autograd.grad((output_BTV * factors).sum(), [x_BTF, *layer.parameters()]))


def pair(size: int) -> tuple[Linear, nn.Linear]:
    ours, theirs = Linear(F, size), nn.Linear(F, size)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="the layer is torch's without MKL")
def test_equals_torch_and_aligns_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output and all gradients in float32; each row of the output starts at a multiple of `ROW` numbers."""
    ours, theirs = pair(V)
    x_BTF = torch.randn(4, ROWS // 4, F)
    expected = outputs(theirs, x_BTF)
    monkeypatch.setattr(nn.Linear, "forward", None)  # ours does without it
    found = outputs(ours, x_BTF)
    torch.testing.assert_close(found, expected)
    assert found[0].shape == (4, ROWS // 4, V)
    assert found[0].stride()[1] % ROW == 0


@pytest.mark.parametrize("why", ["few_rows", "aligned_size", "bfloat16"])
def test_otherwise_it_is_the_layer_of_torch(why: str) -> None:
    """Also under autocast: the output is contiguous and of the autocast type."""
    ours, theirs = pair(V if why != "aligned_size" else 2 * ROW)
    x_NF = torch.randn(ROWS - 1 if why == "few_rows" else ROWS, F)
    with torch.autocast("cpu", torch.bfloat16, enabled=why == "bfloat16"):
        found, expected = ours(x_NF), theirs(x_NF)
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
