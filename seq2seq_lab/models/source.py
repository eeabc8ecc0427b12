"""The encoded source as a decoder sees it."""

from typing import NamedTuple

from torch import Tensor

from seq2seq_lab.models.recurrent import RecurrentState


class Source(NamedTuple):
    """What the decoder looks up about a batch of source sentences; the same at every step.

    `mask` is true at real tokens, of shape B1S; None where nothing is padding.
    """

    encoder_outputs_BSM: Tensor
    keys_BSK: Tensor
    mask: Tensor | None
    final: RecurrentState

    def select(self, index_N: Tensor) -> "Source":
        """Return the source sentences of the given rows."""
        return Source(
            self.encoder_outputs_BSM.index_select(0, index_N),
            self.keys_BSK.index_select(0, index_N),
            None if self.mask is None else self.mask.index_select(0, index_N),
            self.final.select(index_N),
        )
