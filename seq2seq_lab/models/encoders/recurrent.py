"""The recurrent encoder: RNN, LSTM or GRU, in one or both directions."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import Encoded, Encoder, EncoderSizes
from seq2seq_lab.models.recurrent import Cell, RecurrentLayers


class RecurrentEncoder(Encoder):
    """Stacked recurrent layers over the source (Sutskever 2014 §2; both directions: Bahdanau 2014 §3.2).

    A batch of one source length runs through the layers as it is; only unequal lengths are packed,
    which leaves the layers' fast path.

    Args:
        input_size: E, the size of an embedding.
        hidden_size: the size of a direction, as in `torch.nn.LSTM`.
        dropout: probability between the layers.
        memory_dropout: probability on the memory that the decoder attends to.
    """

    def __init__(
        self,
        input_size: int,
        cell: Cell,
        bidirectional: bool,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        memory_dropout: float,
    ) -> None:
        super().__init__()
        self.layers = RecurrentLayers(cell, input_size, hidden_size, num_layers, bidirectional, dropout)
        width = self.layers.output_size
        self.sizes = EncoderSizes(memory_size=width, final_size=width, num_layers=num_layers)
        self.memory_dropout = Dropout(memory_dropout)

    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> Encoded:
        longest = embedded_BSE.shape[1]
        if min(lengths) == longest:
            memory_BSM, final = self.layers(embedded_BSE, None)
        else:
            packed = pack_padded_sequence(
                embedded_BSE, torch.tensor(lengths), batch_first=True, enforce_sorted=False
            )
            output, final = self.layers(packed, None)
            memory_BSM, _ = pad_packed_sequence(output, batch_first=True, total_length=longest)
        return Encoded(self.memory_dropout(memory_BSM), final)
