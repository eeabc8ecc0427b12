"""Dropout that is fast on a CPU, with a mask per step or per sentence."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence


class Dropout(nn.Module):
    """Zero each element with a probability and scale the others up (Srivastava 2014).

    On a CPU, torch draws one random number per element, which takes longer than the forward pass of a recurrent layer.
    Here one draw of 64 bits serves four elements, so the probability is exact to 2⁻¹⁷.

    Args:
        probability: probability of zeroing an element; with 0 the module is the identity.
        locked: use the same mask at all steps of a sentence (Gal and Ghahramani 2016, arXiv:1512.05287, §4).
    """

    def __init__(self, probability: float, locked: bool) -> None:
        super().__init__()
        if not probability >= 0 or round(probability * 2**16) >= 2**16:
            raise ValueError(f"dropout={probability} is not allowed. Allowed: from 0 to below 1.")
        self.probability = probability
        self.locked = locked

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to x_BTF, or to x_NF of one step, which gets its own mask."""
        if x.device.type != "cpu" and not (self.locked and x.dim() > 2):
            return functional.dropout(x, self.probability, self.training)
        mask = self.mask(x.shape, x.dtype, x.device)
        return x if mask is None else x * mask

    def mask(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor | None:
        """Return the factors of an x of this shape, each 0 or 1/(1 - probability); None if nothing is dropped.

        The mask of x_BTF has shape BTF, or B1F if it is locked.
        """
        if not self.training or self.probability == 0:
            return None
        size = torch.Size((*shape[:-2], 1, shape[-1]) if self.locked and len(shape) > 2 else shape)
        if device.type != "cpu":
            return functional.dropout(torch.ones(size, dtype=dtype, device=device), self.probability)
        words = torch.empty((size.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        lanes = words.view(torch.int16)[: size.numel()].view(size)
        dropped = round(self.probability * 2**16)
        return (lanes >= dropped - 2**15).to(dtype).mul_(2**16 / (2**16 - dropped))

    def steps(
        self, shape: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> tuple[Tensor, ...] | None:
        """Return mask_BF of each of the T steps of x_BTF, for a loop over time; None if nothing is dropped."""
        mask = self.mask(shape, dtype, device)
        return None if mask is None else mask.expand(*shape).unbind(1)

    def packed(self, sequence: PackedSequence) -> PackedSequence:
        """Apply dropout to a packed sequence; if it is locked, all rows of a sentence share a mask."""
        data, sizes = sequence.data, sequence.batch_sizes.tolist()
        if not self.locked:
            return sequence._replace(data=self(data))
        mask_BF = self.mask((sizes[0], data.shape[-1]), data.dtype, data.device)
        if mask_BF is None:
            return sequence
        # The rows of a step belong to the sentences that are long enough, the longest first.
        return sequence._replace(data=data * torch.cat([mask_BF[:size] for size in sizes]))

    def extra_repr(self) -> str:
        return f"probability={self.probability}, locked={self.locked}"


def has_dropout(model: nn.Module) -> bool:
    """Return whether a model drops elements in training; a library's encoder has modules of torch."""
    rates = (
        one.probability if isinstance(one, Dropout) else one.p
        for one in model.modules()
        if isinstance(one, Dropout | nn.Dropout)
    )
    return any(rates)


class EmbeddingDropout(Dropout):
    """Dropout of embeddings, after they are multiplied by `scale` (√E in Vaswani 2017, §3.4)."""

    def __init__(self, probability: float, locked: bool, scale: float) -> None:
        super().__init__(probability, locked)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if self.scale == 1 else x * self.scale)
