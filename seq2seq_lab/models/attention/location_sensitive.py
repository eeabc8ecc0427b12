"""Attention whose score depends on the previous weights."""

from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.models.attention.stateful_additive import StatefulAdditiveAttention


class LocationSensitiveAttention(StatefulAdditiveAttention):
    """score_j = vᵀ tanh(W s + U h_j + V f_{t,j} + b) with f_t = F ∗ α_{t−1} (Chorowski 2015, arXiv:1506.07503, eq. 5–8).

    Args:
        size: d_a, the size of W s and U h_j.
        filters: number of filters in F.
        width: source positions that a filter covers, an odd number.
        cumulative: the filters read the sum of all earlier weights instead of α_{t−1}.

    Raises:
        ValueError: `width` is even.
    """

    def __init__(
        self,
        query_size: int,
        encoder_output_size: int,
        *,
        size: Count,
        filters: Count,
        width: Count,
        cumulative: bool,
    ) -> None:
        super().__init__(query_size, encoder_output_size, size, cumulative)
        if width % 2 == 0:
            raise ValueError(f"attention.width={width} must be odd, so that a filter has a center.")
        self.filters = nn.Conv1d(1, filters, width, padding=width // 2, bias=False)
        self.location = nn.Linear(filters, size, bias=False)

    def features(self, weights_NS: Tensor) -> Tensor:
        return self.location(self.filters(weights_NS[:, None]).transpose(1, 2))
