"""The formulas of model FLOPs against the operations that torch counts while the references run."""

import random
from collections.abc import Callable

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import flops
from benchmarks.flops import Tokens, product
from benchmarks.reference import Bahdanau, Cho, Luong, Reference, Sizes, Sutskever

SIZES = Sizes(source_vocabulary=11, target_vocabulary=13, embedding=6, hidden=4)
B, S, T = 3, 5, 7


def repeated_context(sizes: Sizes) -> int:
    """Products that the loop repeats at each step: Cho's context in the GRU and in the output layer."""
    return product(B, sizes.hidden, 3 * sizes.hidden) + product(B, sizes.hidden, sizes.target_vocabulary)


def repeated_keys(sizes: Sizes) -> int:
    return product(B * S, 2 * sizes.hidden, sizes.hidden)


@pytest.mark.parametrize(
    ("model", "formula", "repeated"),
    [
        (Sutskever, flops.sutskever, lambda sizes: 0),
        (Cho, flops.cho, repeated_context),
        (Bahdanau, flops.bahdanau, repeated_keys),
        (Luong, flops.luong, repeated_keys),
    ],
)
@pytest.mark.parametrize("steps", [1, T])
def test_the_formulas_match_the_operations_that_torch_counts(
    model: type[Reference],
    formula: Callable[[Sizes, Tokens], int],
    repeated: Callable[[Sizes], int],
    steps: int,
) -> None:
    made = model(SIZES, dropout=0.0).double()  # the fused LSTM of float32 hides its products
    source_SB, target_UB = torch.full((S, B), 5), torch.full((steps + 1, B), 5)
    with FlopCounterMode(display=False) as counter:
        logits_TBV = made(source_SB, [S] * B, target_UB, 1.0, random.Random(0))
        forward = counter.get_total_flops()
        logits_TBV.sum().backward()
    expected = formula(SIZES, Tokens.of([S] * B, [steps] * B))
    again = (steps - 1) * repeated(SIZES)
    assert forward == expected + again
    # The first state of an encoder is not a parameter: the product with it needs no gradient of it.
    first_states = sum(
        product(B, SIZES.hidden, weight.shape[0])
        for name, weight in made.named_parameters()
        if name.startswith("encoder.weight_hh")
    )
    assert counter.get_total_flops() == flops.training(expected + again) - first_states


def test_padding_does_not_count() -> None:
    assert Tokens.of([2, 5], [3, 1]) == Tokens(sentences=2, source=7, target=4, pairs=11)
