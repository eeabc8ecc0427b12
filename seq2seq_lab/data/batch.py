"""Batches of examples with a target sentence."""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOfTargets:
    """B target sentences, with `<sos>` and `<eos>`.

    Attributes:
        index_B: the index of each example in its split.
        source_lengths: the B source lengths without padding, on the host; the length limits of a search refer to them.
        target_BU: target ids, padded; U = T + 1.
        target_tokens: the number of target tokens to predict (with `<eos>`, without `<sos>` and padding), on the host.
    """

    index_B: Tensor
    source_lengths: tuple[int, ...]
    target_BU: Tensor
    target_tokens: int

    def twice(self) -> Self:
        """Return the batch with each example repeated after the last one."""
        return replace(self, **{one.name: _twice(getattr(self, one.name)) for one in fields(self)})

    @property
    def inputs_BT(self) -> Tensor:
        """The input of the decoder under teacher forcing: `<sos>` y_1 … y_{T-1}."""
        return self.target_BU[:, :-1]

    @property
    def outputs_BT(self) -> Tensor:
        """The tokens to predict: y_1 … `<eos>`."""
        return self.target_BU[:, 1:]


def _twice(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.cat([value, value])
    return value and value * 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(BatchOfTargets):
    """Token ids of B sentence pairs, with `<sos>` and `<eos>` on both sides.

    Attributes:
        source_BS: source ids, padded if the lengths differ.
        turn_lengths: the number of tokens of each turn of each source, with its `<eos>`, on the host; None if no source of
            the split has more than one turn.
    """

    source_BS: Tensor
    turn_lengths: tuple[tuple[int, ...], ...] | None = None
