"""A batch of sentence pairs."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """Token ids of B sentence pairs, with `<sos>` and `<eos>` on both sides.

    Attributes:
        index_B: the sentences' numbers in their split (order, gold alignments, coins, gathering).
        source_BS: source ids, padded where the lengths differ.
        source_lengths: the B real source lengths, on the host.
        target_BU: target ids, padded; U = T + 1.
        target_tokens: how many target tokens are predicted (`<eos>` counted, `<sos>` and padding not), on the host.
    """

    index_B: Tensor
    source_BS: Tensor
    source_lengths: tuple[int, ...]
    target_BU: Tensor
    target_tokens: int

    def twice(self) -> "Batch":
        """Return the batch with every sentence a second time, after all of them."""
        return Batch(
            index_B=self.index_B.repeat(2),
            source_BS=self.source_BS.repeat(2, 1),
            source_lengths=self.source_lengths * 2,
            target_BU=self.target_BU.repeat(2, 1),
            target_tokens=self.target_tokens * 2,
        )

    @property
    def inputs_BT(self) -> Tensor:
        """What the decoder reads under teacher forcing: `<sos>` y_1 … y_{T-1}."""
        return self.target_BU[:, :-1]

    @property
    def outputs_BT(self) -> Tensor:
        """What it is to predict: y_1 … `<eos>`."""
        return self.target_BU[:, 1:]
