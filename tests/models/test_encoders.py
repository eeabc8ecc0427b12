"""The recurrent encoder: reading in reverse, and packed and whole batches."""

import pytest
import torch
from torch import Tensor

from seq2seq_lab.models.encoders import EncoderOutputs, RecurrentEncoder
from seq2seq_lab.models.recurrent import Cell, RecurrentSpec

E, H, S = 3, 4, 5
RAGGED, WHOLE = (3, 5, 1, 4), (5, 5, 5, 5)

every_cell = pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
either_batch = pytest.mark.parametrize("lengths", [RAGGED, WHOLE], ids=["ragged", "whole"])


def encoder(
    cell: Cell, bidirectional: bool = False, reverse: bool = False, num_layers: int = 2
) -> RecurrentEncoder:
    torch.manual_seed(0)
    return RecurrentEncoder(
        input_size=E,
        recurrent=RecurrentSpec(cell, H, num_layers, 0.0, False),
        bidirectional=bidirectional,
        reverse=reverse,
        encoder_output_dropout=0.0,
    ).double()


def embedded() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(len(WHOLE), S, E, dtype=torch.float64, generator=generator).requires_grad_()


def results(encoded: EncoderOutputs) -> list[Tensor]:
    final = encoded.final
    assert final is not None
    return [encoded.outputs_BSM, final.hidden_LBH, *([] if final.cell_LBH is None else [final.cell_LBH])]


def gradients(outputs: list[Tensor], model: RecurrentEncoder, x_BSE: Tensor) -> tuple[Tensor, ...]:
    flat = torch.cat([output.flatten() for output in outputs])
    direction = torch.linspace(-1, 2, len(flat), dtype=torch.float64)
    return torch.autograd.grad(flat @ direction, [x_BSE, *model.parameters()])


@every_cell
@either_batch
def test_reverse_is_the_encoder_on_the_reversed_sentence(cell: Cell, lengths: tuple[int, ...]) -> None:
    """The outputs are flipped back: row j belongs to source token j, and padding is 0."""
    forward, backward, x_BSE = encoder(cell), encoder(cell, reverse=True), embedded()
    found = results(backward(x_BSE, lengths))
    memory, finals = [], []
    for row, length in enumerate(lengths):
        alone, *states = results(forward(x_BSE[row : row + 1, :length].flip(1), [length]))
        memory.append(torch.cat([alone.flip(1), torch.zeros(1, S - length, H, dtype=torch.float64)], dim=1))
        finals.append(states)
    expected = [torch.cat(memory), *(torch.cat(states, dim=1) for states in zip(*finals, strict=True))]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        gradients(found, backward, x_BSE), gradients(expected, forward, x_BSE), rtol=1e-8, atol=1e-11
    )
    assert not torch.allclose(found[0], results(forward(x_BSE, lengths))[0])


@every_cell
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one_way", "both_ways"])
def test_packed_and_whole_batches_agree(cell: Cell, bidirectional: bool) -> None:
    """Sentences of one length are not packed; with a shorter one they are."""
    model, x_BSE = encoder(cell, bidirectional), embedded()
    whole = results(model(x_BSE[:3], (5, 5, 5)))
    packed = results(model(x_BSE, (5, 5, 5, 2)))
    packed = [packed[0][:3], *(state[:, :3] for state in packed[1:])]
    torch.testing.assert_close(packed, whole, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        gradients(packed, model, x_BSE), gradients(whole, model, x_BSE), rtol=1e-8, atol=1e-11
    )


@every_cell
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one_way", "both_ways"])
def test_padding_is_0_and_has_no_effect(cell: Cell, bidirectional: bool) -> None:
    model, x_BSE = encoder(cell, bidirectional), embedded()
    padding_BS = torch.arange(S) >= torch.tensor(RAGGED)[:, None]
    found = results(model(x_BSE, RAGGED))
    assert torch.equal(found[0].abs().sum(-1) == 0, padding_BS)
    noisy = results(model(x_BSE + 100 * padding_BS[..., None], RAGGED))
    assert all(map(torch.equal, noisy, found))


def test_both_directions_in_reverse_are_refused() -> None:
    with pytest.raises(ValueError, match=r"model\.reverse_source=true .*encoder=rnn, lstm or gru.*=false"):
        encoder("gru", bidirectional=True, reverse=True)
