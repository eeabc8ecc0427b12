"""Attention in a window around one source position."""

from typing import Literal

import torch
from torch import Tensor, nn

from seq2seq_lab.models.attention.base import check_positive, repeat_rows
from seq2seq_lab.models.attention.multiplicative import MultiplicativeAttention
from seq2seq_lab.models.source import Source


class LocalAttention(MultiplicativeAttention):
    """The bilinear function in a window [p_t − D, p_t + D], times exp(−(j − p_t)² / 2σ²) with σ = D/2 (Luong 2015, §3.2).

    The softmax is over the window. Since each weight is then multiplied by a value of at most 1, the weights of a row sum to
    1 or less (eq. 10).

    Args:
        size: size of the layer that predicts p_t.
        window: D.
        alignment: `predicted`: p_t = S · sigmoid(vᵀ tanh(W s_t)), S the length of the source (local-p, eq. 9);
            `monotonic`: p_t = t, at most the last position (local-m).
    """

    def __init__(
        self,
        query_size: int,
        encoder_output_size: int,
        size: int,
        window: int,
        alignment: Literal["predicted", "monotonic"],
    ) -> None:
        super().__init__(query_size, encoder_output_size)
        self.window = check_positive("window", window)
        self.center: nn.Module | None = None
        if alignment == "predicted":
            hidden = nn.Linear(query_size, check_positive("size", size), bias=False)
            self.center = nn.Sequential(hidden, nn.Tanh(), nn.Linear(size, 1, bias=False))

    def reweight(self, weights_NTS: Tensor, query_NTQ: Tensor, source: Source, first_step: int) -> Tensor:
        _, steps, positions = weights_NTS.shape
        device, dtype = weights_NTS.device, weights_NTS.dtype
        length_N11 = repeat_rows(source.lengths_B, len(weights_NTS))[:, None, None]
        if self.center is None:
            step_T1 = torch.arange(first_step, first_step + steps, device=device)[:, None]
            center_NT1 = step_T1.minimum(length_N11 - 1)
        else:
            center_NT1 = length_N11 * self.center(query_NTQ).to(dtype).sigmoid()
        distance_NTS = torch.arange(positions, device=device, dtype=dtype) - center_NT1
        window_NTS = weights_NTS * (distance_NTS.abs() <= self.window)
        # The sum is 0 only where the softmax underflows in the whole window.
        window_NTS = window_NTS / window_NTS.sum(-1, keepdim=True).clamp_min(torch.finfo(dtype).tiny)
        return window_NTS * torch.exp(-2 * (distance_NTS / self.window) ** 2)
