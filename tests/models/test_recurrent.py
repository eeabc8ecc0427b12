import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from seq2seq_lab.models.recurrent import LAYERS, Cell, RecurrentLayers, RecurrentState

B, T, E, H = 3, 5, 4, 6
LENGTHS = torch.tensor([3, 5, 1])


def pair(cell: Cell, bidirectional: bool, num_layers: int) -> tuple[RecurrentLayers, nn.RNNBase]:
    """Our layers and torch's stack, with the same weights."""
    torch.manual_seed(0)
    ours = RecurrentLayers(cell, E, H, num_layers, bidirectional, dropout=0.0, locked_dropout=False).double()
    theirs = LAYERS[cell](E, H, num_layers, batch_first=True, bidirectional=bidirectional).double()
    with torch.no_grad():
        for number, layer in enumerate(ours.layers):
            for name, weight in layer.named_parameters():
                theirs.get_parameter(name.replace("_l0", f"_l{number}")).copy_(weight)
    return ours, theirs


def stacked(state_DBH: Tensor, bidirectional: bool) -> Tensor:
    """torch's (layers times directions, B, H) with the directions of a layer side by side."""
    if not bidirectional:
        return state_DBH
    return torch.cat([state_DBH[0::2], state_DBH[1::2]], dim=-1)


def check(
    ours: RecurrentLayers, state: RecurrentState, theirs: nn.RNNBase, last: Tensor | tuple[Tensor, Tensor]
) -> None:
    """Compare the states, and the gradients that the outputs have left in the weights."""
    hidden, cell = (last, None) if isinstance(last, Tensor) else last
    torch.testing.assert_close(state.hidden_LBH, stacked(hidden, theirs.bidirectional))
    assert (state.cell_LBH is None) == (cell is None)
    if state.cell_LBH is not None and cell is not None:
        torch.testing.assert_close(state.cell_LBH, stacked(cell, theirs.bidirectional))
    for number, layer in enumerate(ours.layers):
        for name, weight in layer.named_parameters():
            other = theirs.get_parameter(name.replace("_l0", f"_l{number}"))
            torch.testing.assert_close(weight.grad, other.grad)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one_way", "both_ways"])
@pytest.mark.parametrize("num_layers", [1, 3])
class TestEqualsTorch:
    def test_whole(self, cell: Cell, bidirectional: bool, num_layers: int) -> None:
        ours, theirs = pair(cell, bidirectional, num_layers)
        x = torch.randn(B, T, E, dtype=torch.float64)
        output, state = ours(x, None)
        expected, last = theirs(x)
        torch.testing.assert_close(output, expected)
        output.square().sum().backward()
        expected.square().sum().backward()
        check(ours, state, theirs, last)

    def test_packed(self, cell: Cell, bidirectional: bool, num_layers: int) -> None:
        ours, theirs = pair(cell, bidirectional, num_layers)
        x = torch.randn(B, T, E, dtype=torch.float64)
        packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
        output, state = ours(packed, None)
        expected, last = theirs(packed)
        torch.testing.assert_close(output.data, expected.data)
        output.data.square().sum().backward()
        expected.data.square().sum().backward()
        check(ours, state, theirs, last)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_started_from_a_state(cell: Cell, num_layers: int) -> None:
    ours, theirs = pair(cell, bidirectional=False, num_layers=num_layers)
    x = torch.randn(B, T, E, dtype=torch.float64)
    hidden, memory = torch.randn(2, num_layers, B, H, dtype=torch.float64)
    output, state = ours(x, RecurrentState(hidden, memory if cell == "lstm" else None))
    expected, last = theirs(x, (hidden, memory) if cell == "lstm" else hidden)
    torch.testing.assert_close(output, expected)
    output.square().sum().backward()
    expected.square().sum().backward()
    check(ours, state, theirs, last)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_going_on_from_a_state_equals_one_pass(cell: Cell, num_layers: int) -> None:
    ours, _ = pair(cell, bidirectional=False, num_layers=num_layers)
    x = torch.randn(B, T, E, dtype=torch.float64)
    whole, end = ours(x, None)
    first, middle = ours(x[:, :2], None)
    second, last = ours(x[:, 2:], middle)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    torch.testing.assert_close(last, end)


@pytest.mark.parametrize("cell", [None, torch.arange(12.0).view(2, 3, 2) + 50])
def test_select(cell: Tensor | None) -> None:
    hidden = torch.arange(12.0).view(2, 3, 2)
    chosen = RecurrentState(hidden, cell).select(torch.tensor([2, 0, 2, 1]))
    assert torch.equal(chosen.hidden_LBH, hidden[:, [2, 0, 2, 1]])
    assert (chosen.cell_LBH is None) == (cell is None)
    if cell is not None and chosen.cell_LBH is not None:
        assert torch.equal(chosen.cell_LBH, cell[:, [2, 0, 2, 1]])
