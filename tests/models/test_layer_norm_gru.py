"""The GRU encoder with layer normalization against its equations, one sentence and one step at a time."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from seq2seq_lab.errors import UserError
from seq2seq_lab.models.encoders import EncoderOutputs, LayerNormGruEncoder
from seq2seq_lab.models.encoders.layer_norm_gru import LayerNormGruLayers
from seq2seq_lab.models.recurrent import RecurrentSpec

E, H, S = 3, 4, 5
either_batch = pytest.mark.parametrize("lengths", [(3, 5, 1, 4), (5, 5, 5, 5)], ids=["ragged", "whole"])


def encoder(
    bidirectional: bool = True, reverse: bool = False, dropout: float = 0.0, output_dropout: float = 0.0
) -> LayerNormGruEncoder:
    torch.manual_seed(0)
    built = LayerNormGruEncoder(
        input_size=E,
        recurrent=RecurrentSpec("gru", H, 2, dropout, locked_dropout=True),
        bidirectional=bidirectional,
        reverse=reverse,
        encoder_output_dropout=output_dropout,
    ).double()
    for norm in (*built.layers.input_norms, *built.layers.recurrent_norms):
        torch.nn.init.normal_(norm.gain, mean=1.0)
        torch.nn.init.normal_(norm.bias)
    return built


def embedded() -> Tensor:
    return torch.randn(
        4, S, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    ).requires_grad_()


def normalized(x_F: Tensor) -> Tensor:
    return (x_F - x_F.mean()) / (x_F.var(correction=0) + 1e-5).sqrt()


def read(built: LayerNormGruEncoder, layer: int, direction: int, tokens: Sequence[Tensor]) -> list[Tensor]:
    """The states of one direction of a layer after each token (Ba 2016, with z as in torch)."""
    weight, recurrent = built.layers.weights.all_weights[layer * built.layers.directions + direction]
    own = slice(direction * 3 * H, (direction + 1) * 3 * H)

    def products(matrix: Tensor, x: Tensor, norm: torch.nn.Module) -> Tensor:
        rows = matrix @ x
        return (
            torch.cat([normalized(rows[: 2 * H]), normalized(rows[2 * H :])]) * norm.gain[own]
            + norm.bias[own]
        )

    state, states = torch.zeros(H, dtype=torch.float64), []
    for token in tokens:
        a = products(weight, token, built.layers.input_norms[layer])
        b = products(recurrent, state, built.layers.recurrent_norms[layer])
        r, z = torch.sigmoid(a[:H] + b[:H]), torch.sigmoid(a[H : 2 * H] + b[H : 2 * H])
        state = (1 - z) * torch.tanh(a[2 * H :] + r * b[2 * H :]) + z * state
        states.append(state)
    return states


def reference(built: LayerNormGruEncoder, x_BSE: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    outputs, finals = [], []
    for row_SE, length in zip(x_BSE, lengths, strict=True):
        tokens, final = [*row_SE[:length]], []
        for layer in range(built.sizes.num_layers):
            sides = [read(built, layer, 0, tokens)]
            if built.layers.directions == 2:
                sides.append(read(built, layer, 1, tokens[::-1])[::-1])
            final.append(torch.cat([sides[0][-1], *(side[0] for side in sides[1:])]))
            tokens = [torch.cat(states) for states in zip(*sides, strict=True)]
        size = built.sizes.encoder_output_size
        outputs.append(torch.cat([torch.stack(tokens), torch.zeros(S - length, size, dtype=torch.float64)]))
        finals.append(torch.stack(final))
    return torch.stack(outputs), torch.stack(finals, dim=1)


def results(encoded: EncoderOutputs) -> tuple[Tensor, Tensor]:
    assert encoded.final is not None
    assert encoded.final.cell_LBH is None
    return encoded.outputs_BSM, encoded.final.hidden_LBH


@either_batch
@pytest.mark.parametrize("bidirectional", [False, True])
def test_states_and_gradients_are_those_of_the_equations(bidirectional: bool, lengths: Sequence[int]) -> None:
    built, x_BSE = encoder(bidirectional), embedded()
    found, expected = results(built(x_BSE, lengths)), reference(built, x_BSE, lengths)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    gradients = [
        torch.autograd.grad(
            sum((part * torch.linspace(-1, 2, part.numel()).view_as(part)).sum() for part in parts),
            [x_BSE, *built.parameters()],
        )
        for parts in (found, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-10)


def test_the_states_do_not_depend_on_the_scale_of_large_embeddings() -> None:
    """Layer normalization is invariant to the scale of W x if its variance is far above ε."""
    built, x_BSE = encoder(), embedded().detach() * 1000
    torch.testing.assert_close(
        results(built(100 * x_BSE, (5,) * 4)), results(built(x_BSE, (5,) * 4)), rtol=1e-5, atol=1e-6
    )


@either_batch
def test_reverse_is_the_encoder_on_the_reversed_sentence(lengths: Sequence[int]) -> None:
    forward, backward, x_BSE = (
        encoder(bidirectional=False),
        encoder(bidirectional=False, reverse=True),
        embedded(),
    )
    outputs_BSM, final_LBH = results(backward(x_BSE, lengths))
    for row, length in enumerate(lengths):
        alone, last = results(forward(x_BSE[row : row + 1, :length].flip(1), [length]))
        torch.testing.assert_close(outputs_BSM[row, :length], alone[0].flip(0))
        torch.testing.assert_close(final_LBH[:, row], last[:, 0])


def test_dropout_of_the_outputs_has_one_mask_per_sentence() -> None:
    lengths = (3, 5, 1, 4)
    outputs_BSM, _ = results(encoder(output_dropout=0.5)(embedded(), lengths))
    dropped = [outputs_BSM[row, :length] == 0 for row, length in enumerate(lengths)]
    assert all(torch.equal(zero, zero[:1].expand_as(zero)) for zero in dropped)
    assert len({tuple(zero[0].tolist()) for zero in dropped}) > 1


def test_dropout_is_between_the_layers() -> None:
    built, x_BSE = encoder(dropout=0.5), embedded()
    (one, one_final), (other, other_final) = (results(built(x_BSE, (3, 5, 1, 4))) for _ in range(2))
    assert not torch.equal(one, other)
    assert torch.equal(one_final[0], other_final[0])


def test_other_cells_are_refused() -> None:
    with pytest.raises(UserError, match=r"encoder\.cell=lstm"):
        LayerNormGruLayers(RecurrentSpec("lstm", H, 1, 0.0, False), E, True)


def test_bfloat16_is_close_to_float32() -> None:
    built, x_BSE = encoder().float(), embedded().detach().float()
    with torch.autocast("cpu", torch.bfloat16):
        found = results(built(x_BSE, (3, 5, 1, 4)))
    torch.testing.assert_close(found, results(built(x_BSE, (3, 5, 1, 4))), rtol=0.05, atol=0.05)
    assert {part.dtype for part in found} == {torch.float32}
