"""Dropout that is cheap on a CPU too."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Dropout(nn.Module):
    """Zero each element with a probability and scale the others up (Srivastava 2014).

    On a CPU torch draws one number an element, which was measured to cost more than a recurrent layer's forward
    pass; here one draw of 64 bits decides on four elements, so the probability is exact to 2⁻¹⁷.

    Args:
        probability: of zeroing an element; at 0 the module does nothing.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0:
            return x
        if x.device.type != "cpu":
            return functional.dropout(x, self.probability, training=True)
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        lanes = words.view(torch.int16)[: x.numel()].view(x.shape)
        dropped = round(self.probability * 2**16)
        keep = (lanes >= dropped - 2**15).to(x.dtype)
        return x * keep * (2**16 / (2**16 - dropped))

    def extra_repr(self) -> str:
        return f"probability={self.probability}"
