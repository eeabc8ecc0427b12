"""The dot product of memory and state as they are."""

import torch
from torch import Tensor

from seq2seq_lab.models.attention.base import Attention


class DotAttention(Attention):
    """score(h_j, s) = h_jᵀ s (Luong 2015, eq. 8); memory and state must have the same size."""

    def __init__(self, query_size: int, memory_size: int) -> None:
        super().__init__(query_size, memory_size)
        if query_size != memory_size:
            raise ValueError(
                f"attention=dot has no weights and needs a decoder state of the memory's size, but the decoder "
                f"state (model.hidden_size) has {query_size} and the memory {memory_size} (model.encoder_hidden_size "
                f"times the encoder's directions). Set model.hidden_size={memory_size}, or choose "
                f"attention=multiplicative."
            )

    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        return torch.bmm(query_BTQ.to(keys_BSK.dtype), keys_BSK.transpose(1, 2))
