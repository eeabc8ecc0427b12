"""A custom learning-rate schedule."""

from collections.abc import Sequence

from seq2seq_lab.training.schedules import Schedule


class Triangle(Schedule):
    """Linear up and down between `lowest_factor` and 1, in `half_cycle` steps each (Smith 2017).

    The "triangular" policy of arXiv:1506.01186, section 3.2.

    Raises:
        ValueError: `half_cycle` is less than 1.
    """

    def __init__(self, half_cycle: int, lowest_factor: float) -> None:
        if half_cycle < 1:
            raise ValueError(f"schedule.half_cycle={half_cycle} must be at least 1.")
        self.half_cycle = half_cycle
        self.lowest_factor = lowest_factor

    def factor(self, step: int, total: int, history: Sequence[float]) -> float:
        position = step / self.half_cycle % 2  # 0 and 2: lowest, 1: highest
        return 1 - (1 - self.lowest_factor) * abs(position - 1)
