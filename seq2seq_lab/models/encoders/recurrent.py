"""The recurrent encoder: RNN, LSTM or GRU, in one or both directions."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import Encoder, EncoderOutputs, EncoderSizes
from seq2seq_lab.models.recurrent import Cell, RecurrentLayers


class RecurrentEncoder(Encoder):
    """Stacked recurrent layers over the source (Sutskever 2014 §2; both directions: Bahdanau 2014 §3.2).

    A batch of one source length runs through the layers as it is; only unequal lengths are packed,
    which leaves the layers' fast path.

    Args:
        input_size: E, the size of an embedding.
        hidden_size: the size of a direction, as in `torch.nn.LSTM`.
        reverse: read the source from its end (Sutskever 2014, §3.3); the memory keeps the source's order.
        dropout: probability between the layers.
        encoder_output_dropout: probability on the memory that the decoder attends to.
        locked_dropout: one dropout mask a sentence, not one a token.

    Raises:
        ValueError: both directions are to be read in reverse, which changes nothing.
    """

    def __init__(
        self,
        input_size: int,
        cell: Cell,
        bidirectional: bool,
        hidden_size: int,
        num_layers: int,
        reverse: bool,
        dropout: float,
        encoder_output_dropout: float,
        locked_dropout: bool,
    ) -> None:
        super().__init__()
        if reverse and bidirectional:
            raise ValueError(
                "encoder: model.reverse_source=true changes nothing where the encoder reads in both directions. Choose "
                "encoder=rnn, lstm or gru, or model.reverse_source=false."
            )
        self.reverse = reverse
        self.layers = RecurrentLayers(
            cell, input_size, hidden_size, num_layers, bidirectional, dropout, locked_dropout
        )
        width = self.layers.output_size
        self.sizes = EncoderSizes(encoder_output_size=width, final_size=width, num_layers=num_layers)
        self.encoder_output_dropout = Dropout(encoder_output_dropout, locked_dropout)

    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> EncoderOutputs:
        longest = embedded_BSE.shape[1]
        if self.reverse:
            embedded_BSE = _reversed(embedded_BSE, lengths)
        if min(lengths) == longest:
            encoder_outputs_BSM, final = self.layers(embedded_BSE, None)
        else:
            packed = pack_padded_sequence(
                embedded_BSE, torch.tensor(lengths), batch_first=True, enforce_sorted=False
            )
            output, final = self.layers(packed, None)
            encoder_outputs_BSM, _ = pad_packed_sequence(output, batch_first=True, total_length=longest)
        if self.reverse:
            encoder_outputs_BSM = _reversed(encoder_outputs_BSM, lengths)
        # The layers compute time first, and a decoder that looks at each step would copy that layout at each.
        return EncoderOutputs(self.encoder_output_dropout(encoder_outputs_BSM).contiguous(), final)


def _reversed(x_BSE: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return each sentence from its last real token to its first; padding stays where it is."""
    longest = x_BSE.shape[1]
    if min(lengths) == longest:
        return x_BSE.flip(1)
    index_BS = torch.arange(longest).repeat(len(lengths), 1)
    for row_S, length in zip(index_BS, lengths, strict=True):
        row_S[:length] = row_S[:length].flip(0)
    return x_BSE.gather(1, index_BS.to(x_BSE.device)[..., None].expand_as(x_BSE))
