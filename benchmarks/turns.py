"""Measures functions in turns.

Other processes and other machines on the same host slow down everything that runs at the same time, but hardly change the
ratio of two turns that follow each other. So every round has one turn of each contestant, and the report has the median of
the ratios with its bootstrap interval.
"""

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seq2seq_lab.data.progress import progress
from seq2seq_lab.runtime.device import (
    M_MMAP_MAX,
    M_MMAP_THRESHOLD,
    M_TRIM_THRESHOLD,
    keep_freed_memory,
    release_memory,
    reset_peak_memory,
    set_malloc_options,
)


@dataclass(frozen=True, slots=True)
class Turn:
    """A measured turn: real target tokens and seconds; operations and peak memory if they are known."""

    tokens: int
    seconds: float
    operations: int | None = None
    peak_bytes: int | None = None

    @property
    def speed(self) -> float:
        """Target tokens per second."""
        return self.tokens / self.seconds


# Takes the number of the first batch and the number of batches.
Contestant = Callable[[int, int], Turn]


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Medians over the rounds.

    Attributes:
        slowest, fastest: rounds, in tokens per second.
        times_the_first: the median over the rounds of the speed relative to the first contestant.
        times_lowest, times_highest: its 95% interval (bootstrap over the rounds); None in reports of earlier versions.
    """

    tokens_per_second: float
    slowest: float
    fastest: float
    times_the_first: float
    times_lowest: float | None = None
    times_highest: float | None = None

    @property
    def cell(self) -> str:
        """The tokens per second as text."""
        return f"{self.tokens_per_second:,.0f} ({self.slowest:,.0f}–{self.fastest:,.0f})"

    @property
    def times_cell(self) -> str:
        """The speed relative to the first contestant as text."""
        interval = f" ({self.times_lowest:.2f}–{self.times_highest:.2f})" if self.times_lowest else ""
        return f"{self.times_the_first:.2f}{interval}"


def summarize(turns: Sequence[Turn], first: Sequence[Turn]) -> dict[str, float]:
    """Return the fields of `Speed` for the turns of a contestant and those of the first contestant."""
    speeds = [turn.speed for turn in turns]
    times = [turn.speed / other.speed for turn, other in zip(turns, first, strict=True)]
    lowest, highest = median_interval(times)
    return {
        "tokens_per_second": statistics.median(speeds),
        "slowest": min(speeds),
        "fastest": max(speeds),
        "times_the_first": statistics.median(times),
        "times_lowest": lowest,
        "times_highest": highest,
    }


def median_interval(values: Sequence[float], samples: int = 2000) -> tuple[float, float]:
    """Return the ends of the 95% interval of a median (percentile bootstrap)."""
    drawn = np.random.default_rng(1).choice(values, size=(samples, len(values)))
    lowest, highest = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return float(lowest), float(highest)


def in_turns(contestants: Sequence[Contestant], warm_up: int, rounds: int, steps: int) -> list[list[Turn]]:
    """Return the turns of each contestant: after a warm-up, each contestant has one turn per round."""
    for turn in contestants:
        turn(0, warm_up)
    measured = [
        [turn(warm_up + index * steps, steps) for turn in contestants]
        for index in progress(range(rounds), "Rounds", rounds)
    ]
    return [list(turns) for turns in zip(*measured, strict=True)]


def reset_memory(device: torch.device, *, reuse: bool) -> None:
    """Return freed memory to the system and reset the peak, so that a turn does not count the peak of another contestant.

    Args:
        reuse: whether this turn reuses memory that it frees, as the package does, or returns it as glibc does by default.
    """
    if reuse:
        keep_freed_memory(device)
    elif device.type == "cpu":
        # The values to which glibc raises its thresholds after it has freed 32 MiB.
        set_malloc_options({M_MMAP_MAX: 2**16, M_MMAP_THRESHOLD: 2**25, M_TRIM_THRESHOLD: 2**26})
    gc.collect()
    release_memory()
    reset_peak_memory(device)
