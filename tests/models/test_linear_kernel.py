import pytest
import torch
from torch import Tensor, nn

from seq2seq_lab.models.kernels.linear import ALIGNMENT, MIN_ROWS, Linear, _AlignedProduct

F, V = 6, 2 * ALIGNMENT + 5


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


needs_mkl = pytest.mark.skipif(
    not torch.backends.mkl.is_available(), reason="the layer is torch's without MKL"
)


@needs_mkl
def test_equals_torch_and_aligns_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output and all gradients in float32; each row of the output starts at a multiple of `ALIGNMENT` values."""
    ours, theirs = pair(V)
    x_BTF = torch.randn(4, MIN_ROWS // 4, F)
    expected = outputs(theirs, x_BTF)
    monkeypatch.setattr(nn.Linear, "forward", None)  # ours does without it
    found = outputs(ours, x_BTF)
    torch.testing.assert_close(found, expected)
    assert found[0].shape == (4, MIN_ROWS // 4, V)
    assert found[0].stride()[1] % ALIGNMENT == 0


@needs_mkl
def test_the_output_can_be_changed_in_place_in_training() -> None:
    """As a subclass of a readout may do, for example to exclude a token."""
    gradients = []
    for layer in pair(V):
        torch.manual_seed(1)
        output_BTV = layer(torch.randn(4, MIN_ROWS // 4, F))
        output_BTV[..., 1] = -30.0
        output_BTV *= 2
        gradients.append(torch.autograd.grad(output_BTV.logsumexp(-1).sum(), layer.parameters()))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("why", ["few_rows", "aligned_size", "bfloat16"])
def test_otherwise_it_is_the_layer_of_torch(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also under autocast: the output is contiguous and of the autocast type."""
    monkeypatch.setattr(_AlignedProduct, "apply", None)
    ours, theirs = pair(V if why != "aligned_size" else 2 * ALIGNMENT)
    x_NF = torch.randn(MIN_ROWS - 1 if why == "few_rows" else MIN_ROWS, F)
    with torch.autocast("cpu", torch.bfloat16, enabled=why == "bfloat16"):
        found, expected = ours(x_NF), theirs(x_NF)
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
