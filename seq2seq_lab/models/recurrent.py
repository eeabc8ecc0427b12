"""What encoder and decoder share: the recurrent layers and their states."""

from typing import Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from seq2seq_lab.models.dropout import Dropout

Cell = Literal["rnn", "lstm", "gru"]
Sequence = TypeVar("Sequence", Tensor, PackedSequence)

LAYERS: dict[str, type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]] = {
    "rnn": nn.RNN,
    "lstm": nn.LSTM,
    "gru": nn.GRU,
}


class RecurrentState(NamedTuple):
    """The state of stacked recurrent layers after a step; only an LSTM has a memory cell.

    `hidden_LBH` and `cell_LBH` have one row a layer; the two directions of an encoder stand side by side in H.
    """

    hidden_LBH: Tensor
    cell_LBH: Tensor | None

    def select(self, index_N: Tensor) -> "RecurrentState":
        """Return the states of the given rows of the batch (a beam reorders its hypotheses so)."""
        cell = self.cell_LBH
        return RecurrentState(
            self.hidden_LBH.index_select(1, index_N), None if cell is None else cell.index_select(1, index_N)
        )


class RecurrentLayers(nn.Module):
    """Stacked recurrent layers, batch first, in one or both directions, with dropout between the layers."""

    def __init__(
        self,
        cell: Cell,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bidirectional: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.directions = 2 if bidirectional else 1
        self.output_size = hidden_size * self.directions
        self.layers = nn.ModuleList(
            LAYERS[cell](
                input_size if layer == 0 else self.output_size,
                hidden_size,
                batch_first=True,
                bidirectional=bidirectional,
            )
            for layer in range(num_layers)
        )
        self.dropout = Dropout(dropout)

    def forward(self, sequence: Sequence, start: RecurrentState | None) -> tuple[Sequence, RecurrentState]:
        """Return (the top layer's states_BTH, the state after the last token) from inputs_BTE or a packed sequence."""
        hidden, cells = [], []
        for number, layer in enumerate(self.layers):
            if number > 0:
                sequence = self._dropped(sequence)
            sequence, last = layer(sequence, None if start is None else self._of_layer(start, number))
            hidden.append(self._side_by_side(last if isinstance(last, Tensor) else last[0]))
            if not isinstance(last, Tensor):
                cells.append(self._side_by_side(last[1]))
        return sequence, RecurrentState(torch.stack(hidden), torch.stack(cells) if cells else None)

    def _dropped(self, sequence: Sequence) -> Sequence:
        if isinstance(sequence, PackedSequence):
            return sequence._replace(data=self.dropout(sequence.data))
        return self.dropout(sequence)

    def _of_layer(self, state: RecurrentState, layer: int) -> Tensor | tuple[Tensor, Tensor]:
        """Return a layer's state in the form that torch takes (a decoder's: one direction)."""
        hidden_1BH = state.hidden_LBH[layer : layer + 1]
        return hidden_1BH if state.cell_LBH is None else (hidden_1BH, state.cell_LBH[layer : layer + 1])

    def _side_by_side(self, state_DBH: Tensor) -> Tensor:
        return state_DBH[0] if self.directions == 1 else torch.cat([state_DBH[0], state_DBH[1]], dim=-1)
