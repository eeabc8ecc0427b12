"""Measures functions in turns."""

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from seq2seq_lab.data.progress import progress
from seq2seq_lab.runtime.device import release_memory, reset_peak_memory


@dataclass(frozen=True, slots=True)
class Turn:
    """A measured turn: real target tokens, seconds, operations if they are known, peak memory."""

    tokens: int
    seconds: float
    operations: int | None
    peak_bytes: int

    @property
    def speed(self) -> float:
        """Target tokens per second."""
        return self.tokens / self.seconds


# Takes the number of the first batch and the number of batches.
Contestant = Callable[[int, int], Turn]


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Medians over the rounds, with the slowest and the fastest round; `times_the_first` is computed per round."""

    tokens_per_second: float
    slowest: float
    fastest: float
    times_the_first: float
    least_times: float | None = None
    most_times: float | None = None

    @property
    def cell(self) -> str:
        """The tokens per second as text."""
        return f"{self.tokens_per_second:,.0f} ({self.slowest:,.0f}–{self.fastest:,.0f})"

    @property
    def times_cell(self) -> str:
        """The quotient with the first contestant as text."""
        limits = "" if self.least_times is None else f" ({self.least_times:.2f}–{self.most_times:.2f})"
        return f"{self.times_the_first:.2f}{limits}"


def summarise(turns: Sequence[Turn], first: Sequence[Turn]) -> dict[str, float]:
    """Return the fields of `Speed` for the turns of a contestant and those of the first contestant."""
    speeds = [turn.speed for turn in turns]
    times = [turn.speed / other.speed for turn, other in zip(turns, first, strict=True)]
    return {
        "tokens_per_second": statistics.median(speeds),
        "slowest": min(speeds),
        "fastest": max(speeds),
        "times_the_first": statistics.median(times),
        "least_times": min(times),
        "most_times": max(times),
    }


def in_turns(contestants: Sequence[Contestant], warm_up: int, rounds: int, steps: int) -> list[list[Turn]]:
    """Return the turns of each contestant: after a warm-up, each contestant has one turn per round."""
    for turn in contestants:
        turn(0, warm_up)
    measured = [
        [turn(warm_up + number * steps, steps) for turn in contestants]
        for number in progress(range(rounds), "Rounds", rounds)
    ]
    return [list(turns) for turns in zip(*measured, strict=True)]


def reset_memory(device: torch.device) -> None:
    """Return freed memory to the system and reset the peak, so that a turn does not count the peak of another one."""
    gc.collect()
    release_memory()
    reset_peak_memory(device)
