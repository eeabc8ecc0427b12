"""The readout with a hidden linear layer."""

from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.models.readouts.base import Readout, output_layer
from seq2seq_lab.models.source import Source


class DeepReadout(Readout):
    """logits = V h + b, h = W f. If h is smaller than f, the product V W is of low rank.

    With f = [s; c; e], h is W_s s + W_c c + W_e e, as in Cho 2014 (appendix A), there followed by maxout.

    Args:
        size: the size of h.

    Raises:
        ValueError: `size` is not the size of a tied V.
    """

    def __init__(
        self, feature_size: int, vocabulary_size: int, table: nn.Parameter | None, size: Count
    ) -> None:
        super().__init__(feature_size, vocabulary_size, table)
        self.deep = nn.Linear(feature_size, size, bias=False)
        self.linear = output_layer(size, vocabulary_size, table, "Set readout.size=${model.embedding_size}")

    def forward(
        self, features_NTF: Tensor, weights_NTS: Tensor | None = None, source: Source | None = None
    ) -> Tensor:
        return self.linear(self.deep(features_NTF))
