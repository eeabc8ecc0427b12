"""The linear readout."""

from torch import Tensor, nn

from seq2seq_lab.models.readouts.base import Readout, output_layer
from seq2seq_lab.models.source import Source


class LinearReadout(Readout):
    """logits = W f + b.

    Raises:
        ValueError: a tied W does not have the size of the features.
    """

    def __init__(self, feature_size: int, vocabulary_size: int, table: nn.Parameter | None) -> None:
        super().__init__(feature_size, vocabulary_size, table)
        remedy = (
            f"Set model.attentional_size=${{model.embedding_size}} (decoder=luong), readout=deep, "
            f"model.embedding_size={feature_size}"
        )
        self.linear = output_layer(feature_size, vocabulary_size, table, remedy)

    def forward(
        self, features_NTF: Tensor, weights_NTS: Tensor | None = None, source: Source | None = None
    ) -> Tensor:
        return self.linear(features_NTF)
