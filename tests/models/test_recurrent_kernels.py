from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from seq2seq_lab.models.kernels.recurrent import GRU, LSTM, MAX_CELL_ROWS

B, T, E, H = 3, 5, 4, 6

Own = Literal["lstm", "gru"]
OURS: dict[Own, type[LSTM] | type[GRU]] = {"lstm": LSTM, "gru": GRU}
TORCHS: dict[Own, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}

both_cells = pytest.mark.parametrize("cell", OURS)
both_directions = pytest.mark.parametrize("bidirectional", [False, True], ids=["one_way", "both_ways"])


def pair(cell: Own, bidirectional: bool, dtype: torch.dtype) -> tuple[nn.RNNBase, nn.RNNBase]:
    """Our layer and torch's, with the same weights."""
    torch.manual_seed(0)
    ours = OURS[cell](E, H, batch_first=True, bidirectional=bidirectional).to(dtype)
    theirs = TORCHS[cell](E, H, batch_first=True, bidirectional=bidirectional).to(dtype)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def states_of(layer: nn.RNNBase, x_BTE: Tensor, start: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return (states_BTH, hidden_DBH and the cell of an LSTM)."""
    begin = None if not start else start[0] if len(start) == 1 else start
    states, last = layer(x_BTE, begin)
    return (states, *([last] if isinstance(last, Tensor) else last))


def gradients(found: tuple[Tensor, ...], leaves: list[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradients of a randomly weighted sum over all states and the last states."""
    generator = torch.Generator().manual_seed(1)
    weighted = [
        (x * torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype)).sum() for x in found
    ]
    return torch.autograd.grad(torch.stack([x.double() for x in weighted]).sum(), leaves)


def starting_from(cell: Own, directions: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    count = 2 if cell == "lstm" else 1
    return tuple(torch.randn(directions, B, H, dtype=dtype, requires_grad=True) for _ in range(count))


@both_cells
@both_directions
@pytest.mark.parametrize("started", [False, True], ids=["from_zero", "from_a_state"])
@pytest.mark.parametrize("steps", [1, T])
def test_equals_torch(
    cell: Own, bidirectional: bool, started: bool, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64: all states and the last states, and the gradients of the input, the first state and the weights."""
    ours, theirs = pair(cell, bidirectional, torch.float64)
    x_BTE = torch.randn(B, steps, E, dtype=torch.float64, requires_grad=True)
    start = starting_from(cell, 1 + bidirectional, torch.float64) if started else ()
    expected = states_of(theirs, x_BTE, start)
    monkeypatch.setattr(TORCHS[cell], "forward", None)  # ours does without it
    found = states_of(ours, x_BTE, start)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        gradients(found, [x_BTE, *start, *ours.parameters()]),
        gradients(expected, [x_BTE, *start, *theirs.parameters()]),
        rtol=1e-9,
        atol=1e-11,
    )


@both_cells
@both_directions
@pytest.mark.parametrize("started", [False, True], ids=["from_zero", "from_a_state"])
def test_bfloat16(cell: Own, bidirectional: bool, started: bool) -> None:
    """Under autocast the states have its type and are close to those of float32; gradients are float32."""
    ours, theirs = pair(cell, bidirectional, torch.float32)
    x_BTE = torch.randn(B, T, E, requires_grad=True)
    start = starting_from(cell, 1 + bidirectional, torch.float32) if started else ()
    expected = states_of(theirs, x_BTE, start)
    with torch.autocast("cpu", torch.bfloat16):
        found = states_of(ours, x_BTE, start)
    assert [x.dtype for x in found] == [torch.bfloat16, torch.bfloat16, torch.float32][: len(found)]
    for near, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(near.float(), exact, rtol=0.05, atol=0.02)
    for near, exact in zip(
        gradients(found, [x_BTE, *start, *ours.parameters()]),
        gradients(expected, [x_BTE, *start, *theirs.parameters()]),
        strict=True,
    ):
        assert near.dtype == torch.float32
        assert (near - exact).norm() < 0.05 * exact.norm()


@both_cells
def test_an_input_that_needs_no_gradient(cell: Own) -> None:
    ours, theirs = pair(cell, True, torch.float64)
    x_BTE = torch.randn(B, T, E, dtype=torch.float64)
    torch.testing.assert_close(
        gradients(states_of(ours, x_BTE, ()), [*ours.parameters()]),
        gradients(states_of(theirs, x_BTE, ()), [*theirs.parameters()]),
    )


@both_cells
@pytest.mark.parametrize("why", ["no_gradient", "float32", "packed"])
def test_otherwise_the_pass_of_torch_is_used(cell: Own, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pair(cell, False, torch.float32 if why == "float32" else torch.float64)
    x_BTE = torch.randn(B, T, E, dtype=ours.weight_ih_l0.dtype)
    read = pack_sequence([*x_BTE]) if why == "packed" else x_BTE
    with torch.set_grad_enabled(why != "no_gradient"):
        expected = theirs(read)
        monkeypatch.setattr(f"seq2seq_lab.models.kernels.recurrent._{cell.upper()}Pass.apply", None)
        torch.testing.assert_close(ours(read), expected)


@pytest.mark.parametrize("rows", [B, MAX_CELL_ROWS + 1], ids=["few", "many"])
@torch.no_grad()
def test_a_search_step_of_few_rows_is_one_cell(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 it equals torch's layer without calling it; more rows are left to torch's layer."""
    ours, theirs = pair("lstm", False, torch.float32)
    x_N1E = torch.randn(rows, 1, E)
    start = (torch.randn(1, rows, H), torch.randn(1, rows, H))
    expected = states_of(theirs, x_N1E, start)
    monkeypatch.setattr(nn.LSTM if rows == B else torch, "forward" if rows == B else "lstm_cell", None)
    torch.testing.assert_close(states_of(ours, x_N1E, start), expected)
