"""What encoder and decoder share: the recurrent layers and their states."""

from typing import Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence
from torch.profiler import record_function

from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.kernels.recurrent import GRU, LSTM, RNN, matrix_dtype

Cell = Literal["rnn", "lstm", "gru"]
Sequence = TypeVar("Sequence", Tensor, PackedSequence)
Masks = tuple[Tensor, ...] | None


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


class LayerState(NamedTuple):
    """The state of one layer; only an LSTM has a memory cell."""

    hidden_BH: Tensor
    cell_BH: Tensor | None


def rnn_step(input_BG: Tensor, recurrent_BG: Tensor, state: LayerState) -> LayerState:
    """h_t = tanh(W x_t + U h_{t-1} + b) (Elman 1990), from the two products; G = H."""
    return LayerState((input_BG + recurrent_BG).tanh(), None)


def lstm_step(input_BG: Tensor, recurrent_BG: Tensor, state: LayerState) -> LayerState:
    """A step of the LSTM (Hochreiter and Schmidhuber 1997), from the two products; G = 4H, as in `torch.nn.LSTM`."""
    assert state.cell_BH is not None
    gates_BG = input_BG + recurrent_BG
    write_BH, keep_BH, new_BH, show_BH = gates_BG.chunk(4, dim=-1)
    cell_BH = keep_BH.sigmoid() * state.cell_BH + write_BH.sigmoid() * new_BH.tanh()
    return LayerState(show_BH.sigmoid() * cell_BH.tanh().to(show_BH.dtype), cell_BH)


def gru_step(input_BG: Tensor, recurrent_BG: Tensor, state: LayerState) -> LayerState:
    """A step of the GRU (Cho 2014), from the two products; G = 3H, as in `torch.nn.GRU`."""
    size = state.hidden_BH.shape[-1]
    input_gates, input_new_BH = torch.split(input_BG, [2 * size, size], dim=-1)
    recurrent_gates, recurrent_new_BH = torch.split(recurrent_BG, [2 * size, size], dim=-1)
    reset_BH, keep_BH = (input_gates + recurrent_gates).sigmoid().chunk(2, dim=-1)
    new_BH = torch.addcmul(input_new_BH, reset_BH, recurrent_new_BH).tanh()
    return LayerState(torch.lerp(new_BH, state.hidden_BH, keep_BH), None)


LAYERS: dict[str, type[RNN] | type[LSTM] | type[GRU]] = {"rnn": RNN, "lstm": LSTM, "gru": GRU}
STEPS = {"rnn": rnn_step, "lstm": lstm_step, "gru": gru_step}


class RecurrentLayers(nn.Module):
    """Stacked recurrent layers, batch first, in one or both directions, with dropout between the layers.

    Raises:
        ValueError: there is no layer.
    """

    def __init__(
        self,
        cell: Cell,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bidirectional: bool,
        dropout: float,
        locked_dropout: bool,
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers={num_layers} must be at least 1.")
        self.cell = cell
        self.directions = 2 if bidirectional else 1
        self.output_size = hidden_size * self.directions
        self.layers = nn.ModuleList(
            LAYERS[cell](input_size if layer == 0 else self.output_size, hidden_size, bidirectional)
            for layer in range(num_layers)
        )
        self.dropout = Dropout(dropout, locked_dropout)

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

    def step(self, input_NE: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read one input: return (the top layer's state_NH, the state of all layers)."""
        states_N1H, state = self(input_NE[:, None], state)
        return states_N1H[:, 0], state

    def _dropped(self, sequence: Sequence) -> Sequence:
        if isinstance(sequence, PackedSequence):
            return self.dropout.packed(sequence)
        return self.dropout(sequence)

    def _of_layer(self, state: RecurrentState, layer: int) -> Tensor | tuple[Tensor, Tensor]:
        """Return a layer's state in the form that torch takes (a decoder's: one direction)."""
        hidden_1BH = state.hidden_LBH[layer : layer + 1]
        return hidden_1BH if state.cell_LBH is None else (hidden_1BH, state.cell_LBH[layer : layer + 1])

    def _side_by_side(self, state_DBH: Tensor) -> Tensor:
        return state_DBH[0] if self.directions == 1 else torch.cat([state_DBH[0], state_DBH[1]], dim=-1)


class RecurrentLoop:
    """The layers of a decoder, step by step over T inputs [x_t; c_t], of which all x_t are known beforehand.

    What does not wait for a step is done once: the product of all x_t with the bottom layer's weights, dropout's
    masks, and under autocast the weights' cast. It equals `RecurrentLayers.step` of [x_t; c_t].

    Args:
        known_BTE: the x_t; of width 0 where nothing is known.
    """

    def __init__(self, layers: RecurrentLayers, known_BTE: Tensor, start: RecurrentState) -> None:
        assert layers.directions == 1, "a decoder has one direction"
        self._step = STEPS[layers.cell]
        dtype = self.dtype = matrix_dtype(known_BTE)
        self._weights = [
            tuple(getattr(layer, f"{name}_l0").to(dtype) for name in _WEIGHTS) for layer in layers.layers
        ]
        weight_GE, bias_G = self._weights[0][0], self._weights[0][1]
        self._steps_of = (len(known_BTE), known_BTE.shape[1], known_BTE.device)
        known_size = known_BTE.shape[2]
        known_GE, self._late_GM = weight_GE[:, :known_size], weight_GE[:, known_size:].contiguous()
        # Time first: each step's rows then stand together.
        self._known_BG = functional.linear(known_BTE.transpose(0, 1), known_GE, bias_G).unbind(0)
        hidden_LBH = start.hidden_LBH.to(dtype)
        # What an LSTM adds up from step to step stays wide, as in torch's own layer.
        wide = torch.promote_types(dtype, torch.float32)
        cells = [None] * len(hidden_LBH) if start.cell_LBH is None else [*start.cell_LBH.to(wide)]
        self.states = [LayerState(*state) for state in zip(hidden_LBH, cells, strict=True)]
        self._masks = [self.masks(layers.dropout, layers.output_size) for _ in range(len(layers.layers) - 1)]

    @property
    def top_BH(self) -> Tensor:
        """The top layer's state."""
        return self.states[-1].hidden_BH

    def masks(self, dropout: Dropout, size: int) -> Masks:
        """Return a dropout's masks of all steps, for `dropped`."""
        batch_size, steps, device = self._steps_of
        return dropout.steps((batch_size, steps, size), self.dtype, device)

    def step(self, t: int, late_BM: Tensor | None) -> Tensor:
        """Read input t, of which `late_BM` is what had to be waited for; return the top layer's state_BH."""
        with record_function("recurrent step"):
            return self._read(t, late_BM)

    def _read(self, t: int, late_BM: Tensor | None) -> Tensor:
        input_BG = self._known_BG[t]
        if late_BM is not None:
            input_BG = torch.addmm(input_BG, late_BM, self._late_GM.t())
        for number, (weight_GE, bias_G, recurrent_GH, recurrent_bias_G) in enumerate(self._weights):
            if number > 0:
                below_BH = dropped(self.states[number - 1].hidden_BH, self._masks[number - 1], t)
                input_BG = functional.linear(below_BH, weight_GE, bias_G)
            state = self.states[number]
            recurrent_BG = functional.linear(state.hidden_BH, recurrent_GH, recurrent_bias_G)
            self.states[number] = self._step(input_BG, recurrent_BG, state)
        return self.top_BH


def dropped(x_BH: Tensor, masks: Masks, t: int) -> Tensor:
    """Return step t's x_BH with its elements dropped."""
    return x_BH if masks is None else x_BH * masks[t]


_WEIGHTS = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
