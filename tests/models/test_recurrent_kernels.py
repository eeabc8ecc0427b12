import os
import subprocess
import sys
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from seq2seq_lab.models.kernels import recurrent
from seq2seq_lab.models.kernels.recurrent import GRU, LSTM, MAX_CELL_ROWS, lacks_lstm

B, T, E, H = 3, 5, 4, 6
HALF = (torch.bfloat16, torch.float16)

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
def test_bfloat16(cell: Own, bidirectional: bool, started: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under autocast the states have its type and are close to those of float32; gradients are float32."""
    monkeypatch.setattr(recurrent, "lacks_lstm", lambda *_: False)
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
@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_small_states_in_bfloat16_have_the_relative_error_of_the_type(
    cell: Own, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent, "lacks_lstm", lambda *_: False)
    ours, theirs = pair(cell, False, torch.float32)
    x_BTE = scale * torch.randn(B, T, E)
    with torch.no_grad():
        for layer in (ours, theirs):
            for weight in layer.parameters():
                weight.mul_(scale)
    expected = states_of(theirs, x_BTE, ())[0]
    with torch.autocast("cpu", torch.bfloat16):
        found = states_of(ours, x_BTE, ())[0]
    assert (found.float() - expected).norm() < 0.02 * expected.norm()


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


@both_directions
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("way", ["training", "packed", "evaluation", "search"])
def test_an_lstm_that_the_processor_lacks_computes_in_float32(
    way: str, dtype: torch.dtype, bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States and gradients are those of torch's layer in float32."""
    monkeypatch.setattr(recurrent, "lacks_lstm", lambda _, dtype: dtype in HALF)
    ours, theirs = pair("lstm", bidirectional, torch.float32)
    x_BTE = torch.randn(B, 1 if way == "search" else T, E, requires_grad=way in ("training", "packed"))
    half_BTE = x_BTE.to(dtype)  # as other layers compute it
    start = tuple(x.detach() for x in starting_from("lstm", 1 + bidirectional, torch.float32))
    packed = way == "packed"
    read, half = (pack_sequence([*x]) if packed else x for x in (half_BTE.float(), half_BTE))
    with torch.set_grad_enabled(x_BTE.requires_grad):
        expected_states, expected = theirs(read, start)
        with torch.autocast("cpu", dtype):
            found_states, found = ours(half, start)
    if packed:
        expected_states, found_states = expected_states.data, found_states.data
    assert {x.dtype for x in (found_states, *found)} == {torch.float32}
    torch.testing.assert_close((found_states, *found), (expected_states, *expected))
    if x_BTE.requires_grad:
        torch.testing.assert_close(
            gradients((found_states, *found), [x_BTE, *ours.parameters()]),
            gradients((expected_states, *expected), [x_BTE, *theirs.parameters()]),
        )


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_whether_an_lstm_is_lacking(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is that of torch's layer; it draws no random numbers, and another error is not hidden."""
    state = torch.get_rng_state()
    lacks_lstm.cache_clear()
    lacking = lacks_lstm("cpu", dtype)
    assert torch.equal(torch.get_rng_state(), state)
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype):
            nn.LSTM(E, H, batch_first=True)(torch.randn(B, T, E))
    except RuntimeError:
        assert lacking
    else:
        assert not lacking
    assert not any(
        lacks_lstm(*place) for place in (("cpu", torch.float32), ("cpu", torch.float64), ("cuda", dtype))
    )

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    lacks_lstm.cache_clear()
    monkeypatch.setattr(nn.LSTM, "forward", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        lacks_lstm("cpu", dtype)


def test_an_lstm_computes_in_every_type_on_a_processor_without_avx512() -> None:
    """oneDNN reads the variable only once, so this needs another process."""
    code = (
        "import torch\n"
        "from seq2seq_lab.models.kernels.recurrent import LSTM\n"
        "layer = LSTM(4, 6, batch_first=True)\n"
        "for dtype in (torch.bfloat16, torch.float16):\n"
        "    with torch.autocast('cpu', dtype):\n"
        "        layer(torch.randn(3, 5, 4))[0].float().sum().backward()\n"
        "        with torch.no_grad():\n"
        "            layer(torch.randn(3, 5, 4))\n"
    )
    old = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    subprocess.run([sys.executable, "-c", code], env=old, check=True)
