"""Interventions: attention weights that are changed before the context is computed."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from seq2seq_lab.errors import require


@dataclass(frozen=True, slots=True)
class WeightChange:
    """A change of attention weights.

    Attributes:
        function: from weights_NTS of T consecutive steps and the index of the first one to the changed weights. It is called
            with one or more steps, and in a search with the N rows of the unfinished sentences. Weights at padding must
            stay 0.
        layer: the only layer of a Transformer that is changed; None for all.
        head: the only head; None for all. The function gets the weights of one head.
        seen: whether the next state of a `StatefulAttention` is computed from the changed weights. Any other attention
            function computes its state itself, from the original ones.
    """

    function: Callable[[Tensor, int], Tensor]
    layer: int | None = None
    head: int | None = None
    seen: bool = True

    def check(self, layers: int, heads: int) -> None:
        """Check that the decoder has the layer and the head; both counts are 0 without heads.

        Raises:
            UserError: the decoder has no such layer or head.
        """
        for key, index, count in (("layer", self.layer, layers), ("head", self.head, heads)):
            allowed = f"0 to {count - 1}, or none for all" if count else "none: the model has no heads"
            require(index is None or index in range(count), key, index, allowed)

    def of_layer(self, layer: int) -> "WeightChange | None":
        """Return the change if it applies to a layer, else None."""
        return self if self.layer in (None, layer) else None

    def of_head(self, head: int) -> "WeightChange | None":
        """Return the change if it applies to a head, else None."""
        return self if self.head in (None, head) else None
