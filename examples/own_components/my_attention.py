"""A custom attention function."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from seq2seq_lab.config.type_checks import Count, Positive
from seq2seq_lab.models.attention import Attention


class CosineAttention(Attention):
    """score(h_j, s) = b cos(U s, W h_j), with b > 0 learned (Graves 2014, arXiv:1410.5401, eq. 5-6).

    Without the factor b the scores would be between -1 and 1 and the weights nearly uniform.

    Args:
        size: the size that encoder outputs and query are projected to.
        initial_sharpness: the initial value of b.
    """

    def __init__(
        self, query_size: int, encoder_output_size: int, size: Count, initial_sharpness: Positive
    ) -> None:
        super().__init__(query_size, encoder_output_size)
        self.key = nn.Linear(encoder_output_size, size, bias=False)
        self.query = nn.Linear(query_size, size, bias=False)
        self.log_sharpness = nn.Parameter(torch.tensor(initial_sharpness).log())

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return normalize(self.key(encoder_outputs_BSM), dim=-1)

    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        query_BTK = normalize(self.query(query_BTQ), dim=-1)
        return self.log_sharpness.exp() * torch.bmm(query_BTK, keys_BSK.transpose(1, 2))
