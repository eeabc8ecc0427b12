"""Masks of padded batches, and the softmax over the real positions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from seq2seq_lab.runtime.device import on_device


def padding_mask(lengths: Sequence[int], size: int, device: torch.device) -> Tensor | None:
    """Return mask_BS, True at the real positions; None if no row is padded."""
    if min(lengths) == size:
        return None
    return torch.arange(size, device=device) < on_device(lengths, device)[:, None]


def masked_mean(x_BSM: Tensor, mask_BS: Tensor | None) -> Tensor:
    """Return mean_BM over the positions where the mask is True; over all positions without a mask."""
    if mask_BS is None:
        return x_BSM.mean(1)
    real_BS1 = mask_BS[..., None]
    return torch.where(real_BS1, x_BSM, 0).sum(1) / real_BS1.sum(1)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the softmax over the positions where the mask is True, in float32 or wider."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1)
