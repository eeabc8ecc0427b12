"""The scaled dot product."""

import math

import torch
from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.models.attention.base import Attention


class ScaledDotAttention(Attention):
    """score(h_j, s) = (W h_j)ᵀ (U s) / √d (Vaswani 2017, eq. 1, with one head).

    Args:
        size: d, the size of the projected key and query.
    """

    def __init__(self, query_size: int, encoder_output_size: int, size: Count) -> None:
        super().__init__(query_size, encoder_output_size)
        self.key = nn.Linear(encoder_output_size, size, bias=False)
        self.query = nn.Linear(query_size, size, bias=False)
        self.scale = 1 / math.sqrt(size)

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return self.key(encoder_outputs_BSM) * self.scale

    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        return torch.bmm(self.query(query_BTQ), keys_BSK.transpose(1, 2))
