"""A custom attention function whose state depends on the query, and whose weights are not a softmax."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.models.attention import StepAttention
from seq2seq_lab.models.source import Source


class Centers(NamedTuple):
    center_NK: Tensor  # κ

    def select(self, index_N: Tensor) -> "Centers":
        return Centers(self.center_NK[index_N])


class GaussianWindow(StepAttention):
    """weight_u = Σ_k α_k exp(−β_k (κ_k − u)²), κ_k = κ'_k + exp(κ̂_k) (Graves 2013, arXiv:1308.0850, eq. 46-51).

    Args:
        components: the number K of Gaussians.
    """

    def __init__(self, query_size: int, encoder_output_size: int, components: Count) -> None:
        super().__init__(query_size, encoder_output_size)
        self.window = nn.Linear(query_size, 3 * components)
        self.components = components

    def start(self, source: Source) -> Centers:
        return Centers(source.encoder_outputs_BSM.new_zeros(len(source.lengths_B), self.components).float())

    def attend_step(self, query_NQ: Tensor, source: Source, history: Centers) -> tuple[Tensor, Centers]:
        alpha_NK, beta_NK, move_NK = self.window(query_NQ).float().exp().chunk(3, dim=-1)
        center_NK = history.center_NK + move_NK
        position_S = torch.arange(source.encoder_outputs_BSM.shape[1], device=query_NQ.device)
        square_NKS = (center_NK[..., None] - position_S).square()
        weights_NKS = alpha_NK[..., None] * (-beta_NK[..., None] * square_NKS).exp()
        return weights_NKS.sum(1), Centers(center_NK)
