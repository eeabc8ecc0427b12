"""A batch of sentence pairs."""

from dataclasses import dataclass
from typing import Protocol, Self

from torch import Tensor


class TargetBatch(Protocol):
    """The fields of a task's batch that the losses of a decoder read; see `Batch`."""

    @property
    def index_B(self) -> Tensor: ...

    @property
    def target_BU(self) -> Tensor: ...

    @property
    def inputs_BT(self) -> Tensor: ...

    @property
    def outputs_BT(self) -> Tensor: ...

    def twice(self) -> Self: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """Token ids of B sentence pairs, with `<sos>` and `<eos>` on both sides.

    Attributes:
        index_B: the index of each sentence in its split.
        source_BS: source ids, padded if the lengths differ.
        source_lengths: the B source lengths without padding, on the host.
        target_BU: target ids, padded; U = T + 1.
        target_tokens: the number of target tokens to predict (with `<eos>`, without `<sos>` and padding), on the host.
        turn_lengths: the number of tokens of each turn of each source, with its `<eos>`, on the host; None if no source of
            the split has more than one turn.
    """

    index_B: Tensor
    source_BS: Tensor
    source_lengths: tuple[int, ...]
    target_BU: Tensor
    target_tokens: int
    turn_lengths: tuple[tuple[int, ...], ...] | None = None

    def twice(self) -> "Batch":
        """Return the batch with each sentence repeated after the last one."""
        return Batch(
            index_B=self.index_B.repeat(2),
            source_BS=self.source_BS.repeat(2, 1),
            source_lengths=self.source_lengths * 2,
            target_BU=self.target_BU.repeat(2, 1),
            target_tokens=self.target_tokens * 2,
            turn_lengths=self.turn_lengths and self.turn_lengths * 2,
        )

    @property
    def inputs_BT(self) -> Tensor:
        """The input of the decoder under teacher forcing: `<sos>` y_1 … y_{T-1}."""
        return self.target_BU[:, :-1]

    @property
    def outputs_BT(self) -> Tensor:
        """The tokens to predict: y_1 … `<eos>`."""
        return self.target_BU[:, 1:]
