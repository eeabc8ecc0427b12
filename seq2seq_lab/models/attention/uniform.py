"""The mean of the encoder outputs: a control for attention functions that learn."""

from torch import Tensor

from seq2seq_lab.models.attention.base import Attention


class UniformAttention(Attention):
    """score(h_j, s) = 0: every position has the same weight.

    Trained from the beginning, it shows whether the data need attention (Wiegreffe and Pinter 2019, "Attention is not not
    explanation", §3.2).
    """

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return encoder_outputs_BSM[..., :0]

    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        # A factor of 0 instead of no query: with several ranks, all parameters need a gradient.
        zero_BT1 = 0.0 * query_BTQ.sum(-1, keepdim=True)
        return zero_BT1.expand(-1, -1, keys_BSK.shape[1])
