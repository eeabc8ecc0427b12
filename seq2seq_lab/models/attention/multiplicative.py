"""The bilinear attention function."""

import math

import torch
from torch import Tensor, nn

from seq2seq_lab.models.attention.base import Attention


class MultiplicativeAttention(Attention):
    """score(h_j, s) = h_jᵀ W s, called "general" by Luong 2015 (eq. 8).

    The parameter is V = √Q W, where Q is the size of s. Adam moves every element of a matrix by about the same amount;
    with W itself as the parameter, the sum of M · Q products would change so fast that the softmax saturates early.
    """

    def __init__(self, query_size: int, encoder_output_size: int) -> None:
        super().__init__(query_size, encoder_output_size)
        self.key = nn.Linear(encoder_output_size, query_size, bias=False)
        self.scale = 1 / math.sqrt(query_size)

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return self.key(encoder_outputs_BSM) * self.scale

    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        return torch.bmm(query_BTQ.to(keys_BSK.dtype), keys_BSK.transpose(1, 2))
