"""Attention in a window around one source position."""

from typing import Literal

import torch
from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.models.attention.base import AttentionState, regroup, repeat_rows
from seq2seq_lab.models.attention.multiplicative import MultiplicativeAttention
from seq2seq_lab.models.masking import masked_softmax
from seq2seq_lab.models.source import Source


class LocalAttention(MultiplicativeAttention):
    """The bilinear function in a window [p_t − D, p_t + D], over which the softmax is computed (Luong 2015, §3.2).

    If p_t is predicted, each weight is then multiplied by exp(−(j − p_t)² / 2σ²) with σ = D/2 (eq. 10), so that the weights
    of a row sum to 1 or less.

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
        size: Count,
        window: Count,
        alignment: Literal["predicted", "monotonic"],
    ) -> None:
        super().__init__(query_size, encoder_output_size)
        self.window = window
        self.center: nn.Module | None = None
        if alignment == "predicted":
            hidden = nn.Linear(query_size, size, bias=False)
            self.center = nn.Sequential(hidden, nn.Tanh(), nn.Linear(size, 1, bias=False))

    def weigh(
        self, query_NTQ: Tensor, source: Source, state: AttentionState
    ) -> tuple[Tensor, AttentionState]:
        rows, steps, _ = query_NTQ.shape
        scores_BXS = self.score(regroup(query_NTQ, len(source.keys_BSK)), source.keys_BSK)
        scores_NTS = regroup(scores_BXS, rows)
        device, dtype = scores_NTS.device, torch.promote_types(scores_NTS.dtype, torch.float32)
        length_N11 = repeat_rows(source.lengths_B, rows)[:, None, None]
        if self.center is None:
            step_T1 = torch.arange(state.step, state.step + steps, device=device)[:, None]
            center_NT1 = step_T1.minimum(length_N11 - 1)
        else:
            center_NT1 = length_N11 * self.center(query_NTQ).to(dtype).sigmoid()
        position_S = torch.arange(scores_NTS.shape[-1], device=device, dtype=dtype)
        state, distance_NTS = AttentionState(state.step + steps, None), position_S - center_NT1
        # p_t is at most 1 after the last real position, so that every window has a real position.
        window_NTS = (distance_NTS.abs() <= self.window) & (position_S < length_N11)
        weights_NTS = masked_softmax(scores_NTS, window_NTS)
        if self.center is None:
            return weights_NTS, state
        return weights_NTS * torch.exp(-2 * (distance_NTS / self.window) ** 2), state
