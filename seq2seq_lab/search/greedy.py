"""Greedy search: the most probable token at every step."""

from torch import Tensor

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.search.base import LengthFactor
from seq2seq_lab.search.paths import PathSearch


class GreedySearch(PathSearch):
    """Take the arg-max at every step.

    Raises:
        ValueError: length limits that no output satisfies; see `LengthLimits`.
    """

    def __init__(
        self, min_length_factor: float, max_length_factor: LengthFactor, max_length_extra: Count
    ) -> None:
        super().__init__(1, min_length_factor, max_length_factor, max_length_extra)

    def choose(self, log_probs_AKV: Tensor, index_A: Tensor, t: int) -> Tensor:
        return log_probs_AKV.argmax(-1)
