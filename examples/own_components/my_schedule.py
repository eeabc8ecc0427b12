"""A custom learning-rate schedule."""

from collections.abc import Sequence

from seq2seq_lab.config.type_checks import Count, Probability
from seq2seq_lab.training.schedules import Schedule, Score


class Triangle(Schedule):
    """Linear up and down between `lowest_factor` and 1, in `half_cycle` steps each (Smith 2017).

    The "triangular" policy of arXiv:1506.01186, section 3.2.
    """

    def __init__(self, half_cycle: Count, lowest_factor: Probability) -> None:
        self.half_cycle = half_cycle
        self.lowest_factor = lowest_factor

    def factor(self, step: int, total: int, history: Sequence[Score]) -> float:
        position = step / self.half_cycle % 2  # 0 and 2: lowest, 1: highest
        return 1 - (1 - self.lowest_factor) * abs(position - 1)
