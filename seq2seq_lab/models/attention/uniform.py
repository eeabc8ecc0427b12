"""The mean of the encoder outputs: a control for attention functions that learn."""

from torch import Tensor

from seq2seq_lab.models.attention.base import Attention


class UniformAttention(Attention):
    """score(h_j, s) = 0: every position has the same weight.

    Trained from the beginning, it shows whether the data need attention (Wiegreffe and Pinter 2019, "Attention is not not
    explanation", §3.2).
    """

    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        return query_BTQ.new_zeros(*query_BTQ.shape[:2], keys_BSK.shape[1])
