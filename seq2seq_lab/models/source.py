"""The encoded source as a decoder sees it."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq_lab.models.encoders.base import EncoderOutputs
from seq2seq_lab.models.masking import padding_mask
from seq2seq_lab.models.recurrent import RecurrentState
from seq2seq_lab.models.weight_change import WeightChange


class Source(NamedTuple):
    """The input of the decoder from a batch of source sentences; the same at every step.

    Attributes:
        keys_BSK: the projected encoder outputs that the attention function scores.
        lengths_B: number of real tokens of each sentence.
        mask: True at real tokens, shape B1S; None if no sentence is padded.
        final: final state of the encoder; None if it has none.
        tokens_BS: source ids, for a readout that needs them; else None.
        change: a change of the attention weights; None for no change.
    """

    encoder_outputs_BSM: Tensor
    keys_BSK: Tensor
    lengths_B: Tensor
    mask: Tensor | None
    final: RecurrentState | None
    tokens_BS: Tensor | None = None
    change: WeightChange | None = None

    @classmethod
    def encoded(cls, encoded: EncoderOutputs, project: Callable[[Tensor], Tensor]) -> "Source":
        """Return the source with its keys and mask.

        Args:
            project: the attention function's or the decoder's `project`.
        """
        outputs_BSM, lengths = encoded.outputs_BSM, encoded.lengths
        size, device = outputs_BSM.shape[1], outputs_BSM.device
        mask_BS = padding_mask(lengths, size, device)
        # torch.full does not copy from the host
        lengths_B = torch.full((len(lengths),), size, device=device) if mask_BS is None else mask_BS.sum(1)
        mask_B1S = None if mask_BS is None else mask_BS[:, None]
        return cls(outputs_BSM, project(outputs_BSM), lengths_B, mask_B1S, encoded.final)

    @classmethod
    def empty(cls, rows: int, like: Tensor) -> "Source":
        """Return the source of a model without one: it has no positions.

        Args:
            like: has the device and the dtype of the model.
        """
        outputs_BSM = like.new_zeros(rows, 0, 0)
        return cls(outputs_BSM, outputs_BSM, like.new_zeros(rows, dtype=torch.long), None, None)

    def select(self, index_N: Tensor) -> "Source":
        """Return the source sentences of the given rows."""
        return Source(
            self.encoder_outputs_BSM.index_select(0, index_N),
            self.keys_BSK.index_select(0, index_N),
            self.lengths_B.index_select(0, index_N),
            None if self.mask is None else self.mask.index_select(0, index_N),
            None if self.final is None else self.final.select(index_N),
            None if self.tokens_BS is None else self.tokens_BS.index_select(0, index_N),
            self.change,
        )
