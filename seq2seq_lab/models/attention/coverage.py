"""Attention with coverage: the sum of earlier weights is an input of the score."""

from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.models.attention.stateful_additive import StatefulAdditiveAttention


class CoverageAttention(StatefulAdditiveAttention):
    """score_j = vᵀ tanh(W s + U h_j + w_c C_{t,j} + b), C_{t,j} the sum of the earlier weights of position j.

    Tu 2016, arXiv:1601.04811, §3; See 2017, arXiv:1704.04368, eq. 11.

    Args:
        size: d_a, the size of W s and U h_j.
    """

    def __init__(self, query_size: int, encoder_output_size: int, size: Count) -> None:
        super().__init__(query_size, encoder_output_size, size, cumulative=True)
        self.coverage = nn.Linear(1, size, bias=False)

    def features(self, weights_NS: Tensor) -> Tensor:
        return self.coverage(weights_NS[..., None])
