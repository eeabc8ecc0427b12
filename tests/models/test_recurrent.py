import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2seq_lab.models.recurrent import Cell, RecurrentLayers, RecurrentLoop, RecurrentSpec, RecurrentState

B, T, E, H = 3, 5, 4, 6
LENGTHS = torch.tensor([3, 5, 1])
TORCHS: dict[Cell, type[nn.RNNBase]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def pair(cell: Cell, bidirectional: bool, num_layers: int) -> tuple[RecurrentLayers, nn.RNNBase]:
    """Our layers and torch's stack, with the same weights."""
    torch.manual_seed(0)
    ours = RecurrentLayers(RecurrentSpec(cell, H, num_layers, 0.0, False), E, bidirectional).double()
    theirs = TORCHS[cell](E, H, num_layers, batch_first=True, bidirectional=bidirectional).double()
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
    """Compare the states, and the gradients of the weights after a backward pass from the outputs."""
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

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_padded(self, cell: Cell, bidirectional: bool, num_layers: int, dtype: torch.dtype) -> None:
        """What the padding contains does not matter."""
        ours, theirs = pair(cell, bidirectional, num_layers)
        ours, theirs = ours.to(dtype), theirs.to(dtype)
        x = torch.randn(B, T, E, dtype=dtype)
        output, state = ours.forward_padded(x, LENGTHS.tolist())
        packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
        packed_output, last = theirs(packed)
        expected, _ = pad_packed_sequence(packed_output, batch_first=True)
        torch.testing.assert_close(output, expected)
        of_torch = [last] if isinstance(last, Tensor) else last
        torch.stack([one.square().sum() for one in (output, *state) if one is not None]).sum().backward()
        torch.stack([one.square().sum() for one in (expected, *of_torch)]).sum().backward()
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
def test_continuing_from_a_state_equals_one_pass(cell: Cell, num_layers: int) -> None:
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


def layers_of(cell: Cell, num_layers: int, dropout: float = 0.0, locked: bool = False) -> RecurrentLayers:
    torch.manual_seed(0)
    return RecurrentLayers(RecurrentSpec(cell, H, num_layers, dropout, locked), E, bidirectional=False)


def start_of(layers: RecurrentLayers, dtype: torch.dtype) -> RecurrentState:
    hidden, cell = torch.randn(2, len(layers.layers), B, H, dtype=dtype)
    return RecurrentState(hidden.requires_grad_(), cell.requires_grad_() if layers.cell == "lstm" else None)


def looped(layers: RecurrentLayers, x_BTE: Tensor, start: RecurrentState, known: int) -> Tensor:
    """Return states_BTH of the top layer, from a loop that gets the first `known` features of all inputs in advance."""
    loop = RecurrentLoop(layers, x_BTE[..., :known], start)
    states = []
    for t in range(T):
        states.append(loop.step(t, x_BTE[:, t, known:].to(loop.dtype) if known < E else None))
        assert loop.top_BH is states[-1]
    return torch.stack(states, dim=1)


def stepped(layers: RecurrentLayers, x_BTE: Tensor, state: RecurrentState) -> Tensor:
    states = []
    for x_BE in x_BTE.unbind(1):
        top_BH, state = layers.step(x_BE, state)
        states.append(top_BH)
    return torch.stack(states, dim=1)


every_loop = pytest.mark.parametrize(
    ("cell", "num_layers", "known"),
    [(cell, layers, known) for cell in ("rnn", "lstm", "gru") for layers in (1, 2, 3) for known in (0, 3, E)],
)


@every_loop
def test_a_loop_equals_the_layers_step_by_step(cell: Cell, num_layers: int, known: int) -> None:
    """Values and gradients are equal, whether all, some or none of the input features are known in advance."""
    layers = layers_of(cell, num_layers).double()
    x_BTE, start = (
        torch.randn(B, T, E, dtype=torch.float64, requires_grad=True),
        start_of(layers, torch.float64),
    )
    found, expected = looped(layers, x_BTE, start, known), stepped(layers, x_BTE, start)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    leaves = [x_BTE, *layers.parameters(), *(state for state in start if state is not None)]
    direction = torch.linspace(-1, 2, found.numel(), dtype=torch.float64).view_as(found)
    torch.testing.assert_close(
        torch.autograd.grad((found * direction).sum(), leaves),
        torch.autograd.grad((expected * direction).sum(), leaves),
        rtol=1e-8,
        atol=1e-11,
    )


@every_loop
def test_a_loop_in_half_precision(cell: Cell, num_layers: int, known: int) -> None:
    """Under autocast it computes in bfloat16, close to float32, and the gradients of all weights are float32."""
    layers, x_BTE = layers_of(cell, num_layers), torch.randn(B, T, E)
    start = start_of(layers, torch.float32)
    expected = stepped(layers, x_BTE, start)
    with torch.autocast("cpu", torch.bfloat16):
        found = looped(layers, x_BTE, start, known)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.02)
    parameters = [*layers.parameters()]
    gradients = torch.autograd.grad(found.float().square().sum(), parameters)
    wanted = torch.autograd.grad(expected.square().sum(), parameters)
    for gradient, near in zip(gradients, wanted, strict=True):
        assert gradient.dtype == torch.float32
        assert gradient.any()
        assert (gradient - near).norm() < 0.05 * near.norm()


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("locked", [False, True], ids=["each_step", "locked"])
def test_a_loop_drops_between_its_layers(cell: Cell, locked: bool) -> None:
    """Equal to running each layer alone with one mask for each layer but the last."""
    layers = layers_of(cell, 3, dropout=0.5, locked=locked).double().train()
    x_BTE, start = torch.randn(B, T, E, dtype=torch.float64), start_of(layers, torch.float64)
    torch.manual_seed(7)
    found = looped(layers, x_BTE, start, known=3)
    torch.manual_seed(7)
    masks = [layers.dropout.mask((B, T, H), torch.float64, x_BTE.device) for _ in range(2)]
    read_BTE = x_BTE
    for number, layer in enumerate(layers.layers):
        hidden, memory = (None if state is None else state[number : number + 1] for state in start)
        states_BTH, _ = layer(read_BTE, hidden if memory is None else (hidden, memory))
        mask = masks[number] if number < 2 else None
        read_BTE = states_BTH if mask is None else states_BTH * mask
    assert masks[0] is not None
    assert masks[0].shape == (B, 1 if locked else T, H)
    torch.testing.assert_close(found, states_BTH)
    assert not torch.allclose(looped(layers.eval(), x_BTE, start, known=3), found)
