"""Recurrent layers: torch's, with a quicker way through a sequence for training in bfloat16 on a CPU.

There torch multiplies for the gradient of the weights once a step, with as few rows as the batch has sentences. Here
each step does only what has to wait for the one before; what does not is one product of all steps. In float32, where
oneDNN's LSTM is the faster one, on a GPU, for packed sequences and without a gradient they are torch's own.

On a GPU under autocast to bfloat16 they compute in float32: autocast runs cuDNN's recurrent layers in float16, whatever its
type is (PyTorch, aten/src/ATen/cudnn/AutocastRNN.cpp), where small gradients become 0 without a scaled loss. cuDNN
multiplies float32 in TF32 where the GPU has it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence

aten = torch.ops.aten

State = TypeVar("State", Tensor, tuple[Tensor, Tensor])


class RNN(nn.RNN):
    """A layer of `torch.nn.RNN` with tanh (Elman 1990), batch first."""

    def __init__(self, input_size: int, hidden_size: int, bidirectional: bool) -> None:
        super().__init__(input_size, hidden_size, batch_first=True, bidirectional=bidirectional)

    def forward(  # type: ignore[override]
        self, sequence: Tensor | PackedSequence, start: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Return (states, hidden state after the last input), as torch does."""
        return _torch_pass(super().forward, sequence, start)


class LSTM(nn.LSTM):
    """A layer of `torch.nn.LSTM` (Hochreiter and Schmidhuber 1997), batch first."""

    def __init__(self, input_size: int, hidden_size: int, bidirectional: bool) -> None:
        super().__init__(input_size, hidden_size, batch_first=True, bidirectional=bidirectional)

    def forward(  # type: ignore[override]
        self, sequence: Tensor | PackedSequence, start: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        """Return (states, (hidden, cell) after the last input), as torch does."""
        if isinstance(sequence, PackedSequence) or not _own_pass(sequence):
            return _torch_pass(super().forward, sequence, start)
        dtype = matrix_dtype(sequence)
        wide = torch.promote_types(dtype, torch.float32)  # what is added up from step to step stays wide
        hidden_DBH, cell_DBH = start or (_zeros(self, sequence, dtype), _zeros(self, sequence, wide))
        weights = [
            (weight, recurrent, bias + recurrent_bias)
            for weight, recurrent, bias, recurrent_bias in self.all_weights
        ]
        states_BTH, hidden, cell = _read(
            _LSTMPass, sequence, weights, hidden_DBH.to(dtype), cell_DBH.to(wide)
        )
        return states_BTH, (hidden, cell)


class GRU(nn.GRU):
    """A layer of `torch.nn.GRU` (Cho 2014), batch first."""

    def __init__(self, input_size: int, hidden_size: int, bidirectional: bool) -> None:
        super().__init__(input_size, hidden_size, batch_first=True, bidirectional=bidirectional)

    def forward(  # type: ignore[override]
        self, sequence: Tensor | PackedSequence, start: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Return (states, hidden state after the last input), as torch does."""
        if isinstance(sequence, PackedSequence) or not _own_pass(sequence):
            return _torch_pass(super().forward, sequence, start)
        dtype = matrix_dtype(sequence)
        hidden_DBH = _zeros(self, sequence, dtype) if start is None else start
        states_BTH, hidden = _read(_GRUPass, sequence, self.all_weights, hidden_DBH.to(dtype))
        return states_BTH, hidden


class _LSTMPass(torch.autograd.Function):
    """c_t = f ⊙ c_{t-1} + i ⊙ g, h_t = o ⊙ tanh c_t; the gates i, f, o with σ, g with tanh (in torch's order: i, f, g, o).

    Everything but the products is computed in the type of the cell. Returns (states_TBH, h_T, c_T).
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
        hidden_UBH, cell_UBH = _with_steps(hidden_BH, len(input_TBE)), _with_steps(cell_BH, len(input_TBE))
        gates_TBG = _product(input_TBE, weight_GE, bias_G).to(cell_BH.dtype)
        tanh_TBH = cell_BH.new_empty(len(input_TBE), *cell_BH.shape)
        size = hidden_BH.shape[1]
        for t, (gates_BG, tanh_BH) in enumerate(zip(gates_TBG, tanh_TBH, strict=True)):
            gates_BG += hidden_UBH[t] @ recurrent_GH.t()
            gates_BG[:, : 2 * size].sigmoid_()
            write_BH, keep_BH, new_BH, show_BH = gates_BG.chunk(4, dim=1)
            _tanh(new_BH, out=new_BH)
            show_BH.sigmoid_()
            torch.mul(keep_BH, cell_UBH[t], out=cell_UBH[t + 1]).addcmul_(write_BH, new_BH)
            hidden_UBH[t + 1] = show_BH * _tanh(cell_UBH[t + 1], out=tanh_BH)
        ctx.save_for_backward(input_TBE, weight_GE, recurrent_GH, hidden_UBH, cell_UBH, gates_TBG, tanh_TBH)
        return hidden_UBH[1:], hidden_UBH[-1].clone(), cell_UBH[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, to_states_TBH: Tensor, to_hidden_BH: Tensor, to_cell_BH: Tensor
    ) -> tuple[Tensor | None, ...]:
        input_TBE, weight_GE, recurrent_GH, hidden_UBH, cell_UBH, gates_TBG, tanh_TBH = ctx.saved_tensors
        to_gates_TBG = gates_TBG.new_empty(gates_TBG.shape, dtype=input_TBE.dtype)
        wide_BG, product_BH = torch.empty_like(gates_TBG[0]), torch.empty_like(tanh_TBH[0])
        to_write_BH, to_keep_BH, to_new_BH, to_show_BH = wide_BG.chunk(4, dim=1)
        to_cell_BH = to_cell_BH.clone()
        for t in reversed(range(len(input_TBE))):
            write_BH, keep_BH, new_BH, show_BH = gates_TBG[t].chunk(4, dim=1)
            wide_BH = to_hidden_BH.to(wide_BG.dtype).add(to_states_TBH[t])
            _sigmoid_backward(torch.mul(wide_BH, tanh_TBH[t], out=product_BH), show_BH, out=to_show_BH)
            to_cell_BH += _tanh_backward(wide_BH.mul_(show_BH), tanh_TBH[t], out=product_BH)
            _tanh_backward(torch.mul(to_cell_BH, write_BH, out=product_BH), new_BH, out=to_new_BH)
            _sigmoid_backward(torch.mul(to_cell_BH, new_BH, out=product_BH), write_BH, out=to_write_BH)
            _sigmoid_backward(torch.mul(to_cell_BH, cell_UBH[t], out=product_BH), keep_BH, out=to_keep_BH)
            to_cell_BH *= keep_BH
            to_gates_TBG[t] = wide_BG
            to_hidden_BH = to_gates_TBG[t] @ recurrent_GH
        return (
            _to_input(ctx, to_gates_TBG, weight_GE),
            _to_weight(to_gates_TBG, input_TBE),
            _to_weight(to_gates_TBG, hidden_UBH[:-1]),
            to_gates_TBG.sum((0, 1)),
            to_hidden_BH,
            to_cell_BH,
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
        hidden_UBH = _with_steps(hidden_BH, len(input_TBE))
        gates_TBG = _product(input_TBE, weight_GE, bias_G)
        size = hidden_BH.shape[1]
        inner_TBH = hidden_BH.new_empty(len(input_TBE), *hidden_BH.shape)  # U_n h + b'_n
        for t, gates_BG in enumerate(gates_TBG):
            recurrent_BG = torch.addmm(recurrent_bias_G, hidden_UBH[t], recurrent_GH.t())
            inner_TBH[t] = recurrent_BG[:, 2 * size :]
            gates_BG[:, : 2 * size].add_(recurrent_BG[:, : 2 * size]).sigmoid_()
            reset_BH, keep_BH, new_BH = gates_BG.chunk(3, dim=1)
            _tanh(new_BH.addcmul_(reset_BH, inner_TBH[t]), out=new_BH)
            torch.lerp(new_BH, hidden_UBH[t], keep_BH, out=hidden_UBH[t + 1])
        ctx.save_for_backward(input_TBE, weight_GE, recurrent_GH, hidden_UBH, gates_TBG, inner_TBH)
        return hidden_UBH[1:], hidden_UBH[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_states_TBH: Tensor, to_hidden_BH: Tensor) -> tuple[Tensor | None, ...]:
        input_TBE, weight_GE, recurrent_GH, hidden_UBH, gates_TBG, inner_TBH = ctx.saved_tensors
        to_gates_TBG, to_recurrent_TBG = torch.empty_like(gates_TBG), torch.empty_like(gates_TBG)
        size = hidden_UBH.shape[2]
        for t in reversed(range(len(input_TBE))):
            reset_BH, keep_BH, new_BH = gates_TBG[t].chunk(3, dim=1)
            to_reset_BH, to_keep_BH, to_new_BH = to_gates_TBG[t].chunk(3, dim=1)
            to_hidden_BH = to_hidden_BH + to_states_TBH[t]
            kept_BH = to_hidden_BH * keep_BH
            _sigmoid_backward((hidden_UBH[t] - new_BH).mul_(to_hidden_BH), keep_BH, out=to_keep_BH)
            _tanh_backward(to_hidden_BH.sub_(kept_BH), new_BH, out=to_new_BH)
            _sigmoid_backward(to_new_BH * inner_TBH[t], reset_BH, out=to_reset_BH)
            to_recurrent_TBG[t, :, : 2 * size] = to_gates_TBG[t, :, : 2 * size]
            torch.mul(to_new_BH, reset_BH, out=to_recurrent_TBG[t, :, 2 * size :])
            to_hidden_BH = torch.addmm(kept_BH, to_recurrent_TBG[t], recurrent_GH)
        return (
            _to_input(ctx, to_gates_TBG, weight_GE),
            _to_weight(to_gates_TBG, input_TBE),
            _to_weight(to_recurrent_TBG, hidden_UBH[:-1]),
            to_gates_TBG.sum((0, 1)),
            to_recurrent_TBG.sum((0, 1)),
            to_hidden_BH,
        )


def matrix_dtype(x: Tensor) -> torch.dtype:
    """Return the type that matrix products are computed in."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _own_pass(sequence: Tensor) -> bool:
    """Say whether the pass of this module is the quicker one."""
    trains_on_cpu = sequence.device.type == "cpu" and torch.is_grad_enabled()
    return trains_on_cpu and matrix_dtype(sequence) is not torch.float32


def _torch_pass(
    forward: Callable[[Any, State | None], tuple[Any, State]],
    sequence: Tensor | PackedSequence,
    start: State | None,
) -> tuple[Any, State]:
    """Return what torch's own layer computes, on a GPU in float32 instead of bfloat16."""
    x = sequence.data if isinstance(sequence, PackedSequence) else sequence
    autocast = x.device.type == "cuda" and torch.is_autocast_enabled("cuda")
    if not autocast or torch.get_autocast_dtype("cuda") is not torch.bfloat16:
        return forward(sequence, start)
    if isinstance(start, tuple):
        start = (start[0].float(), start[1].float())
    elif start is not None:
        start = start.float()
    with torch.autocast("cuda", enabled=False):
        return forward(sequence.float(), start)


def _read(
    passing: type[torch.autograd.Function],
    sequence_BTE: Tensor,
    weights: Iterable[Sequence[Tensor]],
    *start_DBH: Tensor,
) -> tuple[Tensor, ...]:
    """Return (states_BTH, and of each state what it is after the last input) of all directions, whose weights these are."""
    dtype = matrix_dtype(sequence_BTE)
    passes = [
        passing.apply(  # type: ignore[no-untyped-call]
            _in_reading_order(sequence_BTE, direction).to(dtype),
            *(weight.to(dtype) for weight in own),
            *(state_DBH[direction] for state_DBH in start_DBH),
        )
        for direction, own in enumerate(weights)
    ]
    states, *last = zip(*passes, strict=True)
    return (_side_by_side(states), *(torch.stack(ends) for ends in last))


def _zeros(layer: nn.RNNBase, sequence_BTE: Tensor, dtype: torch.dtype) -> Tensor:
    return sequence_BTE.new_zeros(len(layer.all_weights), len(sequence_BTE), layer.hidden_size, dtype=dtype)


def _in_reading_order(sequence_BTE: Tensor, direction: int) -> Tensor:
    """Return inputs_TBE in the order that a direction reads them in."""
    input_TBE = sequence_BTE.transpose(0, 1)
    return input_TBE.flip(0) if direction else input_TBE


def _side_by_side(states: tuple[Tensor, ...]) -> Tensor:
    """Return states_BTH of all directions, in the order of the sequence."""
    ours_TBH = [states_TBH.flip(0) if number else states_TBH for number, states_TBH in enumerate(states)]
    return (ours_TBH[0] if len(ours_TBH) == 1 else torch.cat(ours_TBH, dim=-1)).transpose(0, 1)


def _with_steps(start_BH: Tensor, steps: int) -> Tensor:
    """Return a state's room for U = T + 1 steps, with the first in it."""
    states_UBH = start_BH.new_empty(steps + 1, *start_BH.shape)
    states_UBH[0] = start_BH
    return states_UBH


def _product(input_TBE: Tensor, weight_GE: Tensor, bias_G: Tensor) -> Tensor:
    return torch.addmm(bias_G, input_TBE.flatten(0, 1), weight_GE.t()).view(*input_TBE.shape[:2], -1)


def _to_input(ctx: Any, to_gates_TBG: Tensor, weight_GE: Tensor) -> Tensor | None:
    return to_gates_TBG @ weight_GE if ctx.needs_input_grad[0] else None


def _to_weight(to_gates_TBG: Tensor, read_TBE: Tensor) -> Tensor:
    """Return the gradient of the weights_GE of all steps, in one product."""
    return to_gates_TBG.flatten(0, 1).t() @ read_TBE.flatten(0, 1)


def _tanh(x: Tensor, out: Tensor) -> Tensor:
    """tanh x = 2 σ(2x) − 1, in a third of the time that a CPU takes for `torch.tanh`."""
    return torch.mul(x, 2, out=out).sigmoid_().mul_(2).sub_(1)


def _tanh_backward(gradient: Tensor, tanh: Tensor, out: Tensor) -> Tensor:
    return aten.tanh_backward.grad_input(gradient, tanh, grad_input=out)


def _sigmoid_backward(gradient: Tensor, sigmoid: Tensor, out: Tensor) -> Tensor:
    return aten.sigmoid_backward.grad_input(gradient, sigmoid, grad_input=out)
