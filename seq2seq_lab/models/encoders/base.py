"""What an encoder is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from seq2seq_lab.models.recurrent import RecurrentState


class EncoderOutputs(NamedTuple):
    """An encoded batch: the memory h_1 … h_S, zero at padding, and the state after the last real token."""

    outputs_BSM: Tensor
    final: RecurrentState


class EncoderSizes(NamedTuple):
    """What a decoder must know of an encoder: M, the width of a final state, the number of final states."""

    encoder_output_size: int
    final_size: int
    num_layers: int


class Encoder(nn.Module, ABC):
    """Reads the embedded source."""

    sizes: EncoderSizes

    @abstractmethod
    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> EncoderOutputs:
        """Encode a batch; `lengths` are the B real lengths, on the host."""
