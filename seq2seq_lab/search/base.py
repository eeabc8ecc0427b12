"""The contract of searches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import Tensor

from seq2seq_lab.config.type_checks import AtMost, Within
from seq2seq_lab.errors import require

if TYPE_CHECKING:
    from seq2seq_lab.search.trace import SearchTrace

LengthFactor = Annotated[float, Within(0), AtMost(1000)]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A generated sentence.

    Attributes:
        tokens: target ids without `<sos>` and `<eos>`.
        log_prob: log-probability of the tokens, and of `<eos>` if the sentence ended with it.
        score: the value that the search ranks by, by default the log-probability.
        weights_TS: the attention weights of each token, and of `<eos>` if the sentence ended with it; None without
            attention or if the caller did not ask for them.
        ended: whether the sentence ended with `<eos>`, and not at the length limit.
    """

    tokens: list[int]
    log_prob: float
    score: float
    weights_TS: npt.NDArray[np.float32] | None
    ended: bool = True


class SearchBatch(Protocol):
    """The part of a task's batch that a search reads.

    Attributes:
        index_B: the index of each example in its split.
        source_lengths: the B source lengths that `LengthLimits` refers to, on the host; 0 without a source.
    """

    @property
    def index_B(self) -> Tensor: ...

    @property
    def source_lengths(self) -> Sequence[int]: ...


class StepModel(Protocol):
    """The part of a model that a search uses: of `Seq2Seq` or of `Ensemble`."""

    def start(self, batch: Any) -> tuple[Any, Any]:
        """Return (the state before the first token, the encoded source), both `models.selectable.Selectable`.

        The source has `lengths_B`, the number of positions of each example that can be attended to.
        """
        ...

    def step(
        self, token_N: Tensor, state: Any, source: Any, with_weights: bool
    ) -> tuple[Tensor, Any, Tensor | None]:
        """Read a token: return (log_probs_NV of the next, the next state, weights_NS or None).

        The N = B · K rows of a state belong to the B sentences of a source, K adjacent rows to each.

        Args:
            with_weights: False if the search does not read the weights, which may then be None.
        """
        ...


@runtime_checkable
class ReadingModel(StepModel, Protocol):
    """A model that reads a prefix at once; a search passes it tokens one at a time otherwise."""

    @property
    def vocabulary_size(self) -> int:
        """The number of types of the outputs."""
        ...

    def read(
        self, inputs_NT: Tensor, state: Any, source: Any, with_weights: bool
    ) -> tuple[Tensor, Any, Tensor | None]:
        """Read known tokens: return (log_probs_NTV after each, the state after the last one, weights_NTS or None)."""
        ...


class Search(Protocol):
    """Produces sentences; each file of `conf/search/` names a class."""

    def __call__(
        self,
        model: StepModel,
        batch: SearchBatch,
        with_weights: bool,
        *,
        prefix: Sequence[Sequence[int]] | None = None,
        trace: "SearchTrace | None" = None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each example of the batch, the best first or in the order of the draws.

        Args:
            prefix: for each example, the target ids that every hypothesis begins with; `<eos>` may be the last one. Their
                log-probabilities are the model's. Evaluation passes neither this argument nor the next.
            trace: records the search.
        """
        ...


class LengthLimits:
    """The number of tokens that an output may have, for a source of S tokens including `<sos>` and `<eos>`.

    Args:
        min_length_factor: an output has at least ⌊min_length_factor · S⌋ tokens before `<eos>`.
        max_length_factor: an output has at most ⌊max_length_factor · S⌋ + max_length_extra tokens, including `<eos>`.

    Raises:
        ValueError: the minimum is negative or above the maximum.
    """

    def __init__(self, min_length_factor: float, max_length_factor: float, max_length_extra: int) -> None:
        allowed = f"a number from 0 to search.max_length_factor={max_length_factor}"
        require(
            0 <= min_length_factor <= max_length_factor,
            "search.min_length_factor",
            min_length_factor,
            allowed,
        )
        self.min_length_factor = min_length_factor
        self.max_length_factor = max_length_factor
        self.max_length_extra = max_length_extra

    def bounds(self, lengths: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the minimum and the maximum number of tokens for sources of these lengths."""
        shortest = [_floor(self.min_length_factor * length) for length in lengths]
        longest = [_floor(self.max_length_factor * length) + self.max_length_extra for length in lengths]
        return shortest, longest


def _floor(value: float) -> int:
    """Return ⌊value⌋ without the rounding error of a product: 0.29 · 100 is 29, not 28.999999999999996."""
    return math.floor(round(value, 9))
