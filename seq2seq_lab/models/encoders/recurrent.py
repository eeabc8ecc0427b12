"""The recurrent encoder: RNN, LSTM or GRU, in one or both directions."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from seq2seq_lab.config.type_checks import Share
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import EncoderOutputs, EncoderSizes, TokenEncoder
from seq2seq_lab.models.masking import padding_mask
from seq2seq_lab.models.recurrent import RecurrentLayers, RecurrentSpec


class RecurrentEncoder(TokenEncoder):
    """Stacked recurrent layers over the source (Sutskever 2014 §2; both directions: Bahdanau 2014 §3.2).

    Args:
        input_size: E, the size of an embedding.
        reverse: read the source from its end (Sutskever 2014, §3.3); the outputs keep the order of the source.
        encoder_output_dropout: probability on the outputs that the decoder attends to.

    Attributes:
        layers_type: the class of its layers, with the method `forward_padded` of `RecurrentLayers`.

    Raises:
        ValueError: `reverse` with both directions, where it has no effect.
    """

    layers_type: ClassVar[Any] = RecurrentLayers

    def __init__(
        self,
        *,
        input_size: int,
        recurrent: RecurrentSpec,
        bidirectional: bool,
        reverse: bool,
        encoder_output_dropout: Share,
    ) -> None:
        super().__init__()
        if reverse and bidirectional:
            raise ValueError(
                "encoder: model.reverse_source=true has no effect on an encoder that reads in both directions. Choose "
                "encoder=rnn, lstm or gru, or model.reverse_source=false."
            )
        self.reverse = reverse
        self.layers = self.layers_type(recurrent, input_size, bidirectional)
        size = self.layers.output_size
        self.sizes = EncoderSizes(size, final_size=size, num_layers=recurrent.num_layers)
        self.encoder_output_dropout = Dropout(encoder_output_dropout, recurrent.locked_dropout)

    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> EncoderOutputs:
        if self.reverse:
            mask_BS = padding_mask(lengths, embedded_BSE.shape[1], embedded_BSE.device)
            outputs_BSM, final = self.layers.forward_padded(reverse(embedded_BSE, mask_BS), lengths)
            outputs_BSM = reverse(outputs_BSM, mask_BS)
        else:
            outputs_BSM, final = self.layers.forward_padded(embedded_BSE, lengths)
        # The layers compute time first; without the copy, a decoder that attends step by step would copy at each step.
        return EncoderOutputs(self.encoder_output_dropout(outputs_BSM).contiguous(), lengths, final)


def reverse(x_BSE: Tensor, mask_BS: Tensor | None) -> Tensor:
    """Return each sentence from its last real token to its first; padding stays at the end.

    Args:
        mask_BS: see `padding_mask`.
    """
    if mask_BS is None:
        return x_BSE.flip(1)
    lengths_B1 = mask_BS.sum(1, keepdim=True)
    positions_S = torch.arange(x_BSE.shape[1], device=x_BSE.device)
    index_BS = torch.where(mask_BS, lengths_B1 - 1 - positions_S, positions_S)
    return x_BSE.gather(1, index_BS[..., None].expand_as(x_BSE))
