"""The additive attention function."""

from torch import Tensor, nn

from seq2seq_lab.models.attention.base import Attention


class AdditiveAttention(Attention):
    """score(h_j, s) = vᵀ tanh(W s + U h_j + b) (Bahdanau 2014, appendix A.1.2; "concat" in Luong 2015).

    Args:
        size: d_a, the size of W s and U h_j.
    """

    def __init__(self, query_size: int, memory_size: int, size: int) -> None:
        super().__init__(query_size, memory_size)
        self.key = nn.Linear(memory_size, size)
        self.query = nn.Linear(query_size, size, bias=False)
        self.energy = nn.Linear(size, 1, bias=False)

    def project(self, memory_BSM: Tensor) -> Tensor:
        return self.key(memory_BSM)

    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        sum_BTSK = self.query(query_BTQ)[:, :, None] + keys_BSK[:, None]
        return self.energy(sum_BTSK.tanh()).squeeze(-1)
