"""An encoder of precomputed features of images."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count, Share
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import Encoder, EncoderOutputs, EncoderSizes


class FeatureEncoder(Encoder):
    """h_j = tanh(W f_j + b) for the features f_j of each position of an image (Xu 2015). The encoder has no final state.

    Args:
        input_size: size of the source embeddings, which this encoder does not use.
        feature_size: D, of the features of a position.
        size: M, of the encoder outputs.
    """

    source = "features"

    def __init__(
        self, input_size: int, feature_size: Count, size: Count, encoder_output_dropout: Share
    ) -> None:
        super().__init__()
        self.output = nn.Linear(feature_size, size)
        self.dropout = Dropout(encoder_output_dropout, locked=False)
        self.sizes = EncoderSizes(size, None, 1)

    def encode(self, batch: Any, embed: Callable[[Tensor], Tensor]) -> EncoderOutputs:
        """Encode the features `batch.image_BCHW`; their height and width are the grid.

        Raises:
            UserError: the features do not have the size of the encoder.
        """
        size, rows, columns = batch.image_BCHW.shape[1:]
        if size != self.output.in_features:
            raise UserError(
                f"encoder.feature_size={self.output.in_features}, and the features have D={size}. "
                f"Set encoder.feature_size={size}."
            )
        features_BSD = batch.image_BCHW.float().flatten(2).transpose(1, 2)
        lengths = (rows * columns,) * len(features_BSD)
        return EncoderOutputs(self.dropout(self.output(features_BSD).tanh()), lengths, None, (rows, columns))
