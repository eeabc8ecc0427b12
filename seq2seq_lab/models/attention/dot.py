"""The dot product of encoder outputs and decoder state."""

import torch
from torch import Tensor

from seq2seq_lab.models.attention.base import Attention


class DotAttention(Attention):
    """score(h_j, s) = h_jᵀ s (Luong 2015, eq. 8), without parameters.

    Raises:
        ValueError: encoder outputs and decoder states have different sizes.
    """

    def __init__(self, query_size: int, encoder_output_size: int) -> None:
        super().__init__(query_size, encoder_output_size)
        if query_size != encoder_output_size:
            raise ValueError(
                f"attention=dot needs a decoder state of the size of the encoder outputs, but the decoder state "
                f"(model.hidden_size) has {query_size} and the encoder outputs {encoder_output_size} "
                f"(model.encoder_hidden_size times the encoder's directions). Set model.hidden_size="
                f"{encoder_output_size}, or choose attention=multiplicative."
            )

    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        return torch.bmm(query_BTQ.to(keys_BSK.dtype), keys_BSK.transpose(1, 2))
