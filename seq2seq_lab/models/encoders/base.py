"""The contract of encoders."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from seq2seq_lab.models.recurrent import RecurrentState


class EncoderOutputs(NamedTuple):
    """An encoded batch.

    Attributes:
        outputs_BSM: h_1 … h_S, zero at padding.
        final: the state after the last real token; None if the encoder has no such state.
    """

    outputs_BSM: Tensor
    final: RecurrentState | None


class EncoderSizes(NamedTuple):
    """Sizes that a decoder needs to know.

    Attributes:
        encoder_output_size: M.
        final_size: size of the final state of a layer; None for an encoder without a final state.
        num_layers: number of layers that have a final state.
    """

    encoder_output_size: int
    final_size: int | None
    num_layers: int


class Encoder(nn.Module, ABC):
    """Reads the embedded source."""

    sizes: EncoderSizes

    @abstractmethod
    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> EncoderOutputs:
        """Encode a batch; `lengths` are the B real lengths, on the host."""
