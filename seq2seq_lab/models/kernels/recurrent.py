"""Recurrent layers of torch, with a faster forward and backward pass for training in bfloat16 on a CPU.

In that case torch computes the gradient of the weights with one small matrix product per step. Here, each step computes
only what depends on the step before; the rest is one product for all steps. In float32, where oneDNN's LSTM is faster, on a
GPU, for packed sequences and without a gradient, the layers are those of torch. Exception: on a CPU in float32 and without a
gradient, one step of an LSTM with at most `MAX_CELL_ROWS` rows uses `torch.lstm_cell`.

On a GPU under autocast to bfloat16 the layers compute in float32: autocast would run cuDNN's recurrent layers in float16
(PyTorch, aten/src/ATen/cudnn/AutocastRNN.cpp), where small gradients become 0 unless the loss is scaled. cuDNN multiplies
float32 in TF32 if the GPU has it.

On a CPU under autocast, an `LSTM` computes in float32 if PyTorch has no LSTM in that type for the processor (`lacks_lstm`).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence

aten = torch.ops.aten

State = TypeVar("State", Tensor, tuple[Tensor, Tensor])

MAX_CELL_ROWS = (
    128  # up to this number of rows, a step with `torch.lstm_cell` is faster than with `torch.nn.LSTM`
)


class RNN(nn.RNN):
    """A layer of `torch.nn.RNN` with tanh (Elman 1990), for `batch_first=True`."""

    def forward(  # type: ignore[override]
        self, sequence: Tensor | PackedSequence, start: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Return (states, hidden state after the last input), as torch does."""
        return _torch_pass(super().forward, sequence, start)


class LSTM(nn.LSTM):
    """A layer of `torch.nn.LSTM` (Hochreiter and Schmidhuber 1997), for `batch_first=True`."""

    def forward(  # type: ignore[override]
        self, sequence: Tensor | PackedSequence, start: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        """Return (states, (hidden, cell) after the last input), as torch does."""
        if lacks_lstm(_data(sequence).device.type, matrix_dtype(_data(sequence))):
            return in_float32(self.forward, sequence, start)
        if isinstance(sequence, PackedSequence):
            return _torch_pass(super().forward, sequence, start)
        if start is not None and not self.bidirectional and _is_small_step(sequence):
            hidden_BH, cell_BH = torch.lstm_cell(
                sequence[:, 0], (start[0][0], start[1][0]), *self.all_weights[0]
            )
            return hidden_BH[:, None], (hidden_BH[None], cell_BH[None])
        if not _use_own_pass(sequence):
            return _torch_pass(super().forward, sequence, start)
        dtype = matrix_dtype(sequence)
        wide = torch.promote_types(dtype, torch.float32)  # of the memory cell, a sum over steps
        hidden_DBH, cell_DBH = start or (_zeros(self, sequence, dtype), _zeros(self, sequence, wide))
        weights = [(weight, inner, bias + inner_bias) for weight, inner, bias, inner_bias in self.all_weights]
        states_BTH, hidden, cell = _run_directions(
            _LSTMPass, sequence, weights, hidden_DBH.to(dtype), cell_DBH.to(wide)
        )
        return states_BTH, (hidden, cell)


class GRU(nn.GRU):
    """A layer of `torch.nn.GRU` (Cho 2014), for `batch_first=True`."""

    def forward(  # type: ignore[override]
        self, sequence: Tensor | PackedSequence, start: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Return (states, hidden state after the last input), as torch does."""
        if isinstance(sequence, PackedSequence) or not _use_own_pass(sequence):
            return _torch_pass(super().forward, sequence, start)
        dtype = matrix_dtype(sequence)
        hidden_DBH = _zeros(self, sequence, dtype) if start is None else start
        states_BTH, hidden = _run_directions(_GRUPass, sequence, self.all_weights, hidden_DBH.to(dtype))
        return states_BTH, hidden


class _LSTMPass(torch.autograd.Function):
    """c_t = f ⊙ c_{t-1} + i ⊙ g, h_t = o ⊙ tanh c_t; the gates i, f, o with σ, g with tanh (in torch's order: i, f, g, o).

    Everything except the products is computed in the dtype of the cell. Returns (states_TBH, h_T, c_T).
    """

    @staticmethod
    def forward(
        ctx: Any,
        input_TBE: Tensor,
        weight_GE: Tensor,
        recurrent_GH: Tensor,
        bias_G: Tensor,
        hidden_BH: Tensor,
        cell_BH: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        hidden_UBH, cell_UBH = (
            _allocate_states(start_BH, len(input_TBE)) for start_BH in (hidden_BH, cell_BH)
        )
        gates_TBG = _input_gates(input_TBE, weight_GE, bias_G).to(cell_BH.dtype)
        tanh_TBH = cell_BH.new_empty(len(input_TBE), *cell_BH.shape)
        size = hidden_BH.shape[1]
        for t, (gates_BG, tanh_BH) in enumerate(zip(gates_TBG, tanh_TBH, strict=True)):
            gates_BG += hidden_UBH[t] @ recurrent_GH.t()
            gates_BG[:, : 2 * size].sigmoid_()
            i_BH, f_BH, g_BH, o_BH = gates_BG.chunk(4, dim=1)
            _tanh(g_BH, out=g_BH)
            o_BH.sigmoid_()
            torch.mul(f_BH, cell_UBH[t], out=cell_UBH[t + 1]).addcmul_(i_BH, g_BH)
            hidden_UBH[t + 1] = o_BH * _tanh(cell_UBH[t + 1], out=tanh_BH)
        ctx.save_for_backward(input_TBE, weight_GE, recurrent_GH, hidden_UBH, cell_UBH, gates_TBG, tanh_TBH)
        return hidden_UBH[1:], hidden_UBH[-1].clone(), cell_UBH[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_states_TBH: Tensor, grad_hidden_BH: Tensor, grad_cell_BH: Tensor
    ) -> tuple[Tensor | None, ...]:
        input_TBE, weight_GE, recurrent_GH, hidden_UBH, cell_UBH, gates_TBG, tanh_TBH = ctx.saved_tensors
        grad_gates_TBG = gates_TBG.new_empty(gates_TBG.shape, dtype=input_TBE.dtype)
        wide_BG, product_BH = torch.empty_like(gates_TBG[0]), torch.empty_like(tanh_TBH[0])
        grad_i_BH, grad_f_BH, grad_g_BH, grad_o_BH = wide_BG.chunk(4, dim=1)
        grad_cell_BH = grad_cell_BH.clone()
        for t in reversed(range(len(input_TBE))):
            i_BH, f_BH, g_BH, o_BH = gates_TBG[t].chunk(4, dim=1)
            wide_BH = grad_hidden_BH.to(wide_BG.dtype).add(grad_states_TBH[t])
            _sigmoid_backward(torch.mul(wide_BH, tanh_TBH[t], out=product_BH), o_BH, out=grad_o_BH)
            grad_cell_BH += _tanh_backward(wide_BH.mul_(o_BH), tanh_TBH[t], out=product_BH)
            _tanh_backward(torch.mul(grad_cell_BH, i_BH, out=product_BH), g_BH, out=grad_g_BH)
            _sigmoid_backward(torch.mul(grad_cell_BH, g_BH, out=product_BH), i_BH, out=grad_i_BH)
            _sigmoid_backward(torch.mul(grad_cell_BH, cell_UBH[t], out=product_BH), f_BH, out=grad_f_BH)
            grad_cell_BH *= f_BH
            grad_gates_TBG[t] = wide_BG
            grad_hidden_BH = grad_gates_TBG[t] @ recurrent_GH
        return (
            _grad_input(ctx, grad_gates_TBG, weight_GE),
            _grad_weight(grad_gates_TBG, input_TBE),
            _grad_weight(grad_gates_TBG, hidden_UBH[:-1]),
            grad_gates_TBG.sum((0, 1)),
            grad_hidden_BH,
            grad_cell_BH,
        )


class _GRUPass(torch.autograd.Function):
    """h_t = z ⊙ h_{t-1} + (1 − z) ⊙ n with n = tanh(W_n x + b_n + r ⊙ (U_n h_{t-1} + b'_n)); r, z with σ (in torch's order).

    Returns (states_TBH, h_T).
    """

    @staticmethod
    def forward(
        ctx: Any,
        input_TBE: Tensor,
        weight_GE: Tensor,
        recurrent_GH: Tensor,
        bias_G: Tensor,
        recurrent_bias_G: Tensor,
        hidden_BH: Tensor,
    ) -> tuple[Tensor, Tensor]:
        hidden_UBH = _allocate_states(hidden_BH, len(input_TBE))
        gates_TBG = _input_gates(input_TBE, weight_GE, bias_G)
        size = hidden_BH.shape[1]
        inner_TBH = hidden_BH.new_empty(len(input_TBE), *hidden_BH.shape)  # U_n h + b'_n
        for t, gates_BG in enumerate(gates_TBG):
            recurrent_BG = torch.addmm(recurrent_bias_G, hidden_UBH[t], recurrent_GH.t())
            inner_TBH[t] = recurrent_BG[:, 2 * size :]
            gates_BG[:, : 2 * size].add_(recurrent_BG[:, : 2 * size]).sigmoid_()
            r_BH, z_BH, n_BH = gates_BG.chunk(3, dim=1)
            _tanh(n_BH.addcmul_(r_BH, inner_TBH[t]), out=n_BH)
            torch.lerp(n_BH, hidden_UBH[t], z_BH, out=hidden_UBH[t + 1])
        ctx.save_for_backward(input_TBE, weight_GE, recurrent_GH, hidden_UBH, gates_TBG, inner_TBH)
        return hidden_UBH[1:], hidden_UBH[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states_TBH: Tensor, grad_hidden_BH: Tensor) -> tuple[Tensor | None, ...]:
        input_TBE, weight_GE, recurrent_GH, hidden_UBH, gates_TBG, inner_TBH = ctx.saved_tensors
        grad_gates_TBG, grad_recurrent_TBG = torch.empty_like(gates_TBG), torch.empty_like(gates_TBG)
        size = hidden_UBH.shape[2]
        for t in reversed(range(len(input_TBE))):
            r_BH, z_BH, n_BH = gates_TBG[t].chunk(3, dim=1)
            grad_r_BH, grad_z_BH, grad_n_BH = grad_gates_TBG[t].chunk(3, dim=1)
            grad_hidden_BH = grad_hidden_BH + grad_states_TBH[t]
            kept_BH = grad_hidden_BH * z_BH
            _sigmoid_backward((hidden_UBH[t] - n_BH).mul_(grad_hidden_BH), z_BH, out=grad_z_BH)
            _tanh_backward(grad_hidden_BH.sub_(kept_BH), n_BH, out=grad_n_BH)
            _sigmoid_backward(grad_n_BH * inner_TBH[t], r_BH, out=grad_r_BH)
            grad_recurrent_TBG[t, :, : 2 * size] = grad_gates_TBG[t, :, : 2 * size]
            torch.mul(grad_n_BH, r_BH, out=grad_recurrent_TBG[t, :, 2 * size :])
            grad_hidden_BH = torch.addmm(kept_BH, grad_recurrent_TBG[t], recurrent_GH)
        return (
            _grad_input(ctx, grad_gates_TBG, weight_GE),
            _grad_weight(grad_gates_TBG, input_TBE),
            _grad_weight(grad_recurrent_TBG, hidden_UBH[:-1]),
            grad_gates_TBG.sum((0, 1)),
            grad_recurrent_TBG.sum((0, 1)),
            grad_hidden_BH,
        )


def matrix_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of matrix products."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


@cache
def lacks_lstm(device_type: str, dtype: torch.dtype) -> bool:
    """Return whether `torch.nn.LSTM` fails under autocast to a type, without gradients.

    With gradients this module uses its own pass (`_use_own_pass`). Torch's layer can then fail even where this function
    returns False: some processors have an LSTM in float16 for inference only. On a CPU that layer calls oneDNN, which has
    an LSTM in bfloat16 or float16 only for processors with certain instructions (in bfloat16: AVX-512). PyTorch has no
    function for this question, so this function tries a small layer.
    """
    if device_type != "cpu" or dtype not in (torch.bfloat16, torch.float16):
        return False
    with torch.random.fork_rng(devices=[]):
        layer = nn.LSTM(1, 1)
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype):
            layer(torch.zeros(1, 1, 1))
    except RuntimeError as error:
        if "could not create a primitive" not in str(error):
            raise
        return True
    return False


def _use_own_pass(sequence: Tensor) -> bool:
    """Return whether the pass of this module is faster than that of torch."""
    trains_on_cpu = sequence.device.type == "cpu" and torch.is_grad_enabled()
    return trains_on_cpu and matrix_dtype(sequence) is not torch.float32


def _is_small_step(sequence_BTE: Tensor) -> bool:
    """Return whether the input is one step of few rows in float32 on a CPU, without a gradient.

    `torch.nn.LSTM` copies the weights to the layout of oneDNN at each call, which takes longer than such a step.
    """
    rows, steps, _ = sequence_BTE.shape
    return (
        steps == 1
        and rows <= MAX_CELL_ROWS
        and sequence_BTE.device.type == "cpu"
        and not torch.is_grad_enabled()
        and matrix_dtype(sequence_BTE) is torch.float32
    )


def _torch_pass(
    forward: Callable[[Any, State | None], tuple[Any, State]],
    sequence: Tensor | PackedSequence,
    start: State | None,
) -> tuple[Any, State]:
    """Return the output of torch's layer, on a GPU in float32 instead of bfloat16."""
    x = _data(sequence)
    if x.device.type == "cuda" and matrix_dtype(x) is torch.bfloat16 and torch.is_autocast_enabled("cuda"):
        return in_float32(forward, sequence, start)
    return forward(sequence, start)


def in_float32(
    forward: Callable[[Any, State | None], tuple[Any, State]],
    sequence: Tensor | PackedSequence,
    start: State | None,
) -> tuple[Any, State]:
    """Return the output of `forward` in float32, without autocast."""
    if isinstance(start, tuple):
        start = (start[0].float(), start[1].float())
    elif start is not None:
        start = start.float()
    with torch.autocast(_data(sequence).device.type, enabled=False):
        return forward(sequence.float(), start)


def _data(sequence: Tensor | PackedSequence) -> Tensor:
    return sequence.data if isinstance(sequence, PackedSequence) else sequence


def _run_directions(
    function: type[torch.autograd.Function],
    sequence_BTE: Tensor,
    weights: Iterable[Sequence[Tensor]],
    *start_DBH: Tensor,
) -> tuple[Tensor, ...]:
    """Return states_BTH and the last states of all directions, each with its weights."""
    dtype = matrix_dtype(sequence_BTE)
    passes = [
        function.apply(  # type: ignore[no-untyped-call]
            _in_reading_order(sequence_BTE, direction).to(dtype),
            *(weight.to(dtype) for weight in own),
            *(state_DBH[direction] for state_DBH in start_DBH),
        )
        for direction, own in enumerate(weights)
    ]
    states, *last = zip(*passes, strict=True)
    return (_concatenate(states), *(torch.stack(ends) for ends in last))


def _zeros(layer: nn.RNNBase, sequence_BTE: Tensor, dtype: torch.dtype) -> Tensor:
    return sequence_BTE.new_zeros(len(layer.all_weights), len(sequence_BTE), layer.hidden_size, dtype=dtype)


def _in_reading_order(sequence_BTE: Tensor, direction: int) -> Tensor:
    """Return inputs_TBE in the order in which a direction reads them."""
    input_TBE = sequence_BTE.transpose(0, 1)
    return input_TBE.flip(0) if direction else input_TBE


def _concatenate(states: tuple[Tensor, ...]) -> Tensor:
    """Concatenate the states_BTH of all directions, in the order of the sequence."""
    forward_TBH, *backward = states
    states_TBH = torch.cat([forward_TBH, backward[0].flip(0)], dim=-1) if backward else forward_TBH
    return states_TBH.transpose(0, 1)


def _allocate_states(start_BH: Tensor, steps: int) -> Tensor:
    """Return a tensor for the states of U = T + 1 steps that contains the first."""
    states_UBH = start_BH.new_empty(steps + 1, *start_BH.shape)
    states_UBH[0] = start_BH
    return states_UBH


def _input_gates(input_TBE: Tensor, weight_GE: Tensor, bias_G: Tensor) -> Tensor:
    return torch.addmm(bias_G, input_TBE.flatten(0, 1), weight_GE.t()).view(*input_TBE.shape[:2], -1)


def _grad_input(ctx: Any, grad_gates_TBG: Tensor, weight_GE: Tensor) -> Tensor | None:
    return grad_gates_TBG @ weight_GE if ctx.needs_input_grad[0] else None


def _grad_weight(grad_gates_TBG: Tensor, input_TBE: Tensor) -> Tensor:
    """Return the gradient of weights_GE over all steps, in one product."""
    return grad_gates_TBG.flatten(0, 1).t() @ input_TBE.flatten(0, 1)


def _tanh(x: Tensor, out: Tensor) -> Tensor:
    """Return tanh x: in float32 as 2 σ(2x) − 1, which takes a third of the time of `torch.tanh` on a CPU.

    In 16 bits this difference has no correct digit for small x, and takes about as long.
    """
    if x.dtype in (torch.bfloat16, torch.float16):
        return torch.tanh(x, out=out)
    return torch.mul(x, 2, out=out).sigmoid_().mul_(2).sub_(1)


def _tanh_backward(gradient: Tensor, tanh: Tensor, out: Tensor) -> Tensor:
    return aten.tanh_backward.grad_input(gradient, tanh, grad_input=out)


def _sigmoid_backward(gradient: Tensor, sigmoid: Tensor, out: Tensor) -> Tensor:
    return aten.sigmoid_backward.grad_input(gradient, sigmoid, grad_input=out)
