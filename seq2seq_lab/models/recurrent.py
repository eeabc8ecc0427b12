"""Recurrent layers and their states, for encoders and decoders."""

import collections.abc
import logging
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.profiler import record_function

from seq2seq_lab.config.type_checks import Count, Share
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.kernels.recurrent import GRU, LSTM, RNN, lacks_lstm, matrix_dtype
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import DTYPES, on_device

log = logging.getLogger(__name__)

Cell = Literal["rnn", "lstm", "gru"]
Sequence = TypeVar("Sequence", Tensor, PackedSequence)
Masks = tuple[Tensor, ...] | None


@dataclass(frozen=True)
class RecurrentSpec:
    """Sizes and switches of stacked recurrent layers.

    A component whose constructor takes a `RecurrentSpec` has its fields as settings in the configuration.

    Args:
        hidden_size: H of one direction, as in `torch.nn.LSTM`.
        dropout: probability between the layers.
        locked_dropout: one dropout mask per sentence instead of one per token, here and in the rest of the component.
    """

    cell: Cell
    hidden_size: Count
    num_layers: Count
    dropout: Share
    locked_dropout: bool


class RecurrentState(NamedTuple):
    """The state of stacked recurrent layers after a step; `cell_LBH` is None unless they are LSTMs.

    The two directions of an encoder are concatenated in H.
    """

    hidden_LBH: Tensor
    cell_LBH: Tensor | None

    def select(self, index_N: Tensor) -> "RecurrentState":
        """Return the states of the given rows of the batch."""
        cell = self.cell_LBH
        return RecurrentState(
            self.hidden_LBH.index_select(1, index_N), None if cell is None else cell.index_select(1, index_N)
        )


class LayerState(NamedTuple):
    """The state of one layer; `cell_BH` is None unless it is an LSTM."""

    hidden_BH: Tensor
    cell_BH: Tensor | None


def rnn_step(input_BG: Tensor, recurrent_BG: Tensor, state: LayerState) -> LayerState:
    """h_t = tanh(W x_t + U h_{t-1} + b) (Elman 1990), from the two products; G = H."""
    return LayerState((input_BG + recurrent_BG).tanh(), None)


def lstm_step(input_BG: Tensor, recurrent_BG: Tensor, state: LayerState) -> LayerState:
    """A step of the LSTM (Hochreiter and Schmidhuber 1997), from the two products; G = 4H, as in `torch.nn.LSTM`."""
    assert state.cell_BH is not None
    i_BH, f_BH, g_BH, o_BH = (input_BG + recurrent_BG).chunk(4, dim=-1)
    cell_BH = f_BH.sigmoid() * state.cell_BH + i_BH.sigmoid() * g_BH.tanh()
    return LayerState(o_BH.sigmoid() * cell_BH.tanh().to(o_BH.dtype), cell_BH)


def gru_step(input_BG: Tensor, recurrent_BG: Tensor, state: LayerState) -> LayerState:
    """A step of the GRU (Cho 2014), from the two products; G = 3H, as in `torch.nn.GRU`."""
    size = state.hidden_BH.shape[-1]
    input_gates, input_n_BH = torch.split(input_BG, [2 * size, size], dim=-1)
    recurrent_gates, recurrent_n_BH = torch.split(recurrent_BG, [2 * size, size], dim=-1)
    r_BH, z_BH = (input_gates + recurrent_gates).sigmoid().chunk(2, dim=-1)
    n_BH = torch.addcmul(input_n_BH, r_BH, recurrent_n_BH).tanh()
    return LayerState(torch.lerp(n_BH, state.hidden_BH, z_BH), None)


LAYERS: dict[str, type[RNN] | type[LSTM] | type[GRU]] = {"rnn": RNN, "lstm": LSTM, "gru": GRU}
STEPS = {"rnn": rnn_step, "lstm": lstm_step, "gru": gru_step}


class RecurrentLayers(nn.Module):
    """Stacked recurrent layers, batch first, in one or both directions, with dropout between the layers."""

    def __init__(self, spec: RecurrentSpec, input_size: int, bidirectional: bool) -> None:
        super().__init__()
        self.cell = spec.cell
        self.directions = 2 if bidirectional else 1
        self.output_size = spec.hidden_size * self.directions
        self.layers = nn.ModuleList(
            LAYERS[spec.cell](
                input_size if layer == 0 else self.output_size,
                spec.hidden_size,
                batch_first=True,
                bidirectional=bidirectional,
            )
            for layer in range(spec.num_layers)
        )
        self.dropout = Dropout(spec.dropout, spec.locked_dropout)

    def forward(self, sequence: Sequence, start: RecurrentState | None) -> tuple[Sequence, RecurrentState]:
        """Return (the top layer's states_BTH, the state after the last token) from inputs_BTE or a packed sequence."""
        hidden, cells = [], []
        for index, layer in enumerate(self.layers):
            if index > 0:
                sequence = self._drop(sequence)
            sequence, last = layer(sequence, None if start is None else self._layer_state(start, index))
            hidden.append(self._concatenate(last if isinstance(last, Tensor) else last[0]))
            if not isinstance(last, Tensor):
                cells.append(self._concatenate(last[1]))
        return sequence, RecurrentState(torch.stack(hidden), torch.stack(cells) if cells else None)

    def forward_padded(
        self, inputs_BTE: Tensor, lengths: collections.abc.Sequence[int]
    ) -> tuple[Tensor, RecurrentState]:
        """Return the same as `forward` for padded inputs; the states are 0 at padding.

        A batch of one length is not packed, since packed sequences leave the layers' fast path.

        Args:
            lengths: the B real lengths, on the host.
        """
        longest = inputs_BTE.shape[1]
        if min(lengths) == longest:
            return self(inputs_BTE, None)
        # Sorted here: with enforce_sorted=False, pack_padded_sequence makes the host wait for the GPU.
        sorted_B, order_B = torch.sort(torch.tensor(lengths), descending=True, stable=True)
        inverse_B = on_device(order_B.argsort().numpy(), inputs_BTE.device)
        inputs_BTE = inputs_BTE.index_select(0, on_device(order_B.numpy(), inputs_BTE.device))
        packed = pack_padded_sequence(inputs_BTE, sorted_B, batch_first=True)
        output, final = self(packed, None)
        states_BTH, _ = pad_packed_sequence(output, batch_first=True, total_length=longest)
        return states_BTH.index_select(0, inverse_B), final.select(inverse_B)

    def step(self, input_NE: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read one input: return (the top layer's state_NH, the state of all layers)."""
        states_N1H, state = self(input_NE[:, None], state)
        return states_N1H[:, 0], state

    def _drop(self, sequence: Sequence) -> Sequence:
        if isinstance(sequence, PackedSequence):
            return self.dropout.packed(sequence)
        return self.dropout(sequence)

    def _layer_state(self, state: RecurrentState, layer: int) -> Tensor | tuple[Tensor, Tensor]:
        """Return the state of one layer in the form that torch takes."""
        hidden_1BH = state.hidden_LBH[layer : layer + 1]
        return hidden_1BH if state.cell_LBH is None else (hidden_1BH, state.cell_LBH[layer : layer + 1])

    def _concatenate(self, state_DBH: Tensor) -> Tensor:
        return state_DBH[0] if self.directions == 1 else torch.cat([state_DBH[0], state_DBH[1]], dim=-1)


class RecurrentLoop:
    """The layers of a decoder, step by step over T inputs [x_t; c_t] whose x_t are all known in advance.

    What does not depend on earlier steps is computed once: the products of all x_t with the weights of the bottom layer,
    dropout masks, and the weights' cast under autocast. Equal to `RecurrentLayers.step` on [x_t; c_t].

    Args:
        known_BTE: the x_t, of size 0 if no part of the input is known.
    """

    def __init__(self, layers: RecurrentLayers, known_BTE: Tensor, start: RecurrentState) -> None:
        assert layers.directions == 1, "a decoder has one direction"
        self._step = STEPS[layers.cell]
        dtype = self.dtype = matrix_dtype(known_BTE)
        self._weights = [
            tuple(getattr(layer, f"{name}_l0").to(dtype) for name in _WEIGHTS) for layer in layers.layers
        ]
        weight_GE, bias_G = self._weights[0][0], self._weights[0][1]
        self._shape = (len(known_BTE), known_BTE.shape[1], known_BTE.device)
        known_size = known_BTE.shape[2]
        known_GE, self._late_GM = weight_GE[:, :known_size], weight_GE[:, known_size:].contiguous()
        # Time first, so that the rows of a step are contiguous.
        self._known_BG = functional.linear(known_BTE.transpose(0, 1), known_GE, bias_G).unbind(0)
        hidden_LBH = start.hidden_LBH.to(dtype)
        # The memory cell of an LSTM stays in float32 or wider, as in torch's layer.
        wide = torch.promote_types(dtype, torch.float32)
        cells = [None] * len(hidden_LBH) if start.cell_LBH is None else [*start.cell_LBH.to(wide)]
        self.states = [LayerState(*state) for state in zip(hidden_LBH, cells, strict=True)]
        self._masks = [self.masks(layers.dropout, layers.output_size) for _ in range(len(layers.layers) - 1)]

    @property
    def top_BH(self) -> Tensor:
        """The top layer's state."""
        return self.states[-1].hidden_BH

    @property
    def state(self) -> RecurrentState:
        """The state of all layers."""
        hidden, cells = zip(*self.states, strict=True)
        return RecurrentState(torch.stack(hidden), None if cells[0] is None else torch.stack(cells))

    def masks(self, dropout: Dropout, size: int) -> Masks:
        """Return the dropout masks of all steps, for `apply_mask`."""
        batch_size, steps, device = self._shape
        return dropout.steps((batch_size, steps, size), self.dtype, device)

    def step(self, t: int, late_BM: Tensor | None) -> Tensor:
        """Read [x_t; late_BM], or x_t alone if `late_BM` is None; return the top layer's state_BH."""
        with record_function("recurrent step"):
            return self._step_layers(t, late_BM)

    def _step_layers(self, t: int, late_BM: Tensor | None) -> Tensor:
        input_BG = self._known_BG[t]
        if late_BM is not None:
            input_BG = torch.addmm(input_BG, late_BM, self._late_GM.t())
        for index, (weight_GE, bias_G, recurrent_GH, recurrent_bias_G) in enumerate(self._weights):
            if index > 0:
                below_BH = apply_mask(self.states[index - 1].hidden_BH, self._masks[index - 1], t)
                input_BG = functional.linear(below_BH, weight_GE, bias_G)
            state = self.states[index]
            recurrent_BG = functional.linear(state.hidden_BH, recurrent_GH, recurrent_bias_G)
            self.states[index] = self._step(input_BG, recurrent_BG, state)
        return self.top_BH


def report_float32_lstm(model: nn.Module, *settings: Compute) -> list[str]:
    """Log and return the precisions in which the LSTM layers of a model compute in float32; see `lacks_lstm`."""
    if not any(isinstance(module, LSTM) for module in model.modules()):
        return []
    lacking = {
        compute.precision.value: compute
        for compute in settings
        if compute.precision in DTYPES and lacks_lstm(compute.device.type, DTYPES[compute.precision])
    }
    for precision in lacking:
        log.warning(
            "PyTorch has no LSTM in %s for this processor: the LSTM layers compute in fp32, other layers in %s.",
            precision,
            precision,
        )
    return sorted(lacking)


def apply_mask(x_BH: Tensor, masks: Masks, t: int) -> Tensor:
    """Return x_BH with the dropout mask of step t applied."""
    return x_BH if masks is None else x_BH * masks[t]


_WEIGHTS = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
