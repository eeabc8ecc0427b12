"""What a search is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from seq2seq_lab.data.batch import Batch


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A produced sentence.

    Attributes:
        tokens: target ids without `<sos>` and `<eos>`.
        log_prob: log-probability of the tokens, and of `<eos>` if the sentence was ended by it.
        score: what the search ranks by: the log-probability, or what it has made of it.
        weights_TS: the attention row of each token, and last of `<eos>` if there is one; None without attention
            or where they were not asked for.
    """

    tokens: list[int]
    log_prob: float
    score: float
    weights_TS: npt.NDArray[np.float32] | None


class Selectable(Protocol):
    """What a model keeps of the rows of a batch."""

    def select(self, index_N: Tensor) -> Self:
        """Return that of the given rows."""
        ...


class StepModel(Protocol):
    """What a search needs of a model: `Seq2Seq`, or several as one."""

    def start(self, source_BS: Tensor, lengths: Sequence[int]) -> tuple[Any, Any]:
        """Return (the state before the first token, the encoded source), both `Selectable`."""
        ...

    def step(self, token_N: Tensor, state: Any, source: Any) -> tuple[Tensor, Any, Tensor | None]:
        """Read a token: return (log_probs_NV of the next, the next state, weights_NS or None).

        A source of B rows serves N = B · K rows, the K of a sentence side by side.
        """
        ...


class Search(Protocol):
    """A way to produce sentences; `conf/search/*.yaml` each name one."""

    def __call__(self, model: StepModel, batch: Batch, with_weights: bool) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence in the order of the batch: the best first, or as they were drawn."""
        ...


class LengthLimits:
    """How many tokens an output may have, given S source tokens, `<sos>` and `<eos>` counted.

    Args:
        min_length_factor: at least the whole part of `min_length_factor` · S tokens before `<eos>`.
        max_length_factor: at most the whole part of it times S, and
        max_length_extra: so many more, `<eos>` counted.

    Raises:
        ValueError: limits that leave a sentence no token, or of which none could be kept.
    """

    def __init__(self, min_length_factor: float, max_length_factor: float, max_length_extra: int) -> None:
        if max_length_factor < 0:
            raise ValueError(f"search.max_length_factor={max_length_factor} must be at least 0.")
        if max_length_extra < 1:
            raise ValueError(f"search.max_length_extra={max_length_extra} must be at least 1.")
        if not 0 <= min_length_factor <= max_length_factor:
            raise ValueError(
                f"search.min_length_factor={min_length_factor} must be from 0 to search.max_length_factor="
                f"{max_length_factor}."
            )
        self.min_length_factor = min_length_factor
        self.max_length_factor = max_length_factor
        self.max_length_extra = max_length_extra

    def of(self, lengths: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the least and the most tokens for sources of these lengths."""
        least = [int(self.min_length_factor * length) for length in lengths]
        most = [int(self.max_length_factor * length) + self.max_length_extra for length in lengths]
        return least, most
