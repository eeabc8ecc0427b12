"""A custom encoder of images."""

from typing import Any

from torch import nn

from seq2seq_lab.config.type_checks import Count, Positive
from seq2seq_lab.models.encoders import Encoder, EncoderOutputs, EncoderSizes


class PatchEncoder(Encoder):
    """h_j = tanh(W p_j + b), p_j the pixels of a square patch (after Dosovitskiy 2021, arXiv:2010.11929, eq. 1).

    Args:
        patch: the side of a patch in pixels.
        size: M, the size of the encoder outputs.
        lr: the learning rate of W and b.
    """

    source = "images"

    def __init__(self, input_size: int, patch: Count, size: Count, lr: Positive) -> None:
        super().__init__()
        self.projection = nn.Conv2d(3, size, kernel_size=patch, stride=patch)
        self.sizes = EncoderSizes(encoder_output_size=size, final_size=None, num_layers=1)
        self.lr = lr

    def encode(self, batch: Any, embed: Any) -> EncoderOutputs:
        map_BMYX = self.projection(batch.image_BCHW.float() / 127.5 - 1).tanh()
        rows, columns = map_BMYX.shape[2:]
        outputs_BSM = map_BMYX.flatten(2).transpose(1, 2)
        lengths = (rows * columns,) * len(outputs_BSM)
        return EncoderOutputs(outputs_BSM, lengths, final=None, grid=(rows, columns))

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": [*self.parameters()], "lr": self.lr}]
