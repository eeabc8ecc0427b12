"""States that search can reorder."""

from typing import Protocol, Self

from torch import Tensor


class Selectable(Protocol):
    """The state of a model for each row of a batch."""

    def select(self, index_N: Tensor) -> Self:
        """Return the state of the given rows, for example of the hypotheses that a beam keeps."""
        ...
