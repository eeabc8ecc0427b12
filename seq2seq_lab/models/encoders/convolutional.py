"""An encoder of images."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count, Share
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import Encoder, EncoderOutputs, EncoderSizes


class PositionNorm(nn.LayerNorm):
    """Normalizes the features of each position of a map_BCYX."""

    def forward(self, map_BCYX: Tensor) -> Tensor:
        return super().forward(map_BCYX.movedim(1, -1)).movedim(-1, 1)


class ConvolutionalEncoder(Encoder):
    """Convolutions over an image; the encoder outputs are the positions of the feature map (Xu 2015, §3.1.1).

    A layer of stride s divides its input into cells of s × s, and reads each with a margin of one. At the edges the margin
    repeats the edge, so that positions at the edge do not differ from the others, which would attract attention. The
    features of each position are normalized (Ba 2016, arXiv:1607.06450), which keeps them local. A linear layer reads them
    with the row and column, scaled to [-1, 1] (Liu 2018, arXiv:1807.03247). The encoder has no final state.

    Args:
        input_size: size of the source embeddings, which this encoder does not use.
        channels: number of output channels of each layer.
        strides: stride of each layer; 2 halves width and height, and leaves out the last pixel of an odd one.
        size: M, of the encoder outputs.

    Raises:
        ValueError: the lists differ in length, or are empty.
    """

    source = "images"

    def __init__(
        self,
        input_size: int,
        channels: list[Count],
        strides: list[Count],
        size: Count,
        encoder_output_dropout: Share,
    ) -> None:
        super().__init__()
        if not channels or len(channels) != len(strides):
            raise ValueError(
                f"encoder.channels={channels} and encoder.strides={strides} must have one value for each layer."
            )
        layers: list[nn.Module] = []
        for before, after, stride in zip([3, *channels[:-1]], channels, strides, strict=True):
            convolution = nn.Conv2d(before, after, stride + 2, stride, padding=1, padding_mode="replicate")
            layers += [convolution, PositionNorm(after), nn.ReLU()]
        self.strides, self.layers = strides, nn.Sequential(*layers)
        self.output = nn.Linear(channels[-1] + 2, size)
        self.dropout = Dropout(encoder_output_dropout, locked=False)
        self.sizes = EncoderSizes(size, None, 1)

    def encode(self, batch: Any, embed: Callable[[Tensor], Tensor]) -> EncoderOutputs:
        """Encode `batch.image_BCHW`; see `forward`."""
        outputs: EncoderOutputs = self(batch.image_BCHW)
        return outputs

    def forward(self, image_BCHW: Tensor) -> EncoderOutputs:
        """Encode images, RGB values from 0 to 255. All positions of the feature map are outputs.

        Raises:
            UserError: the strides leave no position of images of this size.
        """
        height, width = image_BCHW.shape[2:]
        if min(height, width) < (reduction := math.prod(self.strides)):
            raise UserError(
                f"encoder.strides={self.strides} divide the sides of an image by {reduction}, and these images have only "
                f"{height} × {width} pixels. Set smaller strides."
            )
        scaled_BCHW = image_BCHW.float() / 127.5 - 1
        # Channels last, so that the normalization of a position reads adjacent values.
        map_BCYX: Tensor = self.layers(scaled_BCHW.contiguous(memory_format=torch.channels_last))
        rows, columns = map_BCYX.shape[2:]
        device, dtype = map_BCYX.device, map_BCYX.dtype
        y_YX, x_YX = torch.meshgrid(
            torch.linspace(-1, 1, rows, device=device, dtype=dtype),
            torch.linspace(-1, 1, columns, device=device, dtype=dtype),
            indexing="ij",
        )
        position_B2YX = torch.stack([y_YX, x_YX]).expand(len(map_BCYX), -1, -1, -1)
        features_BSC = torch.cat([map_BCYX, position_B2YX], 1).flatten(2).transpose(1, 2)
        lengths = (rows * columns,) * len(map_BCYX)
        return EncoderOutputs(
            self.dropout(torch.tanh(self.output(features_BSC))), lengths, None, (rows, columns)
        )
