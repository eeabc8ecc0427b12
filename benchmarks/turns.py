"""Measures contestants in turns: functions of this process, and JoeyNMT in a process of its own."""

import gc
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch

from benchmarks.learners import CLIP_NORM, DROPOUT, LEARNING_RATE
from benchmarks.reference import Sizes
from seq2seq_lab.data.batching import StepPlan
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.errors import UserError
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


@dataclass(frozen=True, slots=True)
class Peer:
    """JoeyNMT in a process of its own, which waits between requests.

    Attributes:
        parameters: of its model.
        ask: takes the size of a beam (0 to train), the first batch and the number of batches.
    """

    parameters: int
    ask: Callable[[int, int, int], Turn]


@contextmanager
def joeynmt(
    python: Path, sizes: Sizes, text: TokenizedText, plan: Sequence[StepPlan], device: torch.device
) -> Iterator[Peer]:
    """Start JoeyNMT with another interpreter.

    Args:
        plan: its batches, all of one size.

    Raises:
        UserError: the interpreter does not exist, or JoeyNMT fails.
    """
    settings = {
        **asdict(sizes),
        **{"dropout": DROPOUT, "learning_rate": LEARNING_RATE, "clip_norm": CLIP_NORM, "seed": 1},
        **{"batch_size": len(plan[0][0]), "threads": torch.get_num_threads(), "device": device.type},
    }
    with tempfile.TemporaryDirectory() as folder:
        arrays, described = Path(folder, "data.npz"), Path(folder, "settings.json")
        tokens = {field.name: getattr(text, field.name).numpy() for field in fields(text)}
        np.savez(arrays, batches=np.stack([step[0] for step in plan]), **tokens)
        described.write_text(json.dumps(settings), "utf-8")
        command = [python, Path(__file__).with_name("joeynmt_worker.py"), arrays, described]
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise UserError(
                f"--joeynmt={python} cannot be started ({error.strerror}). Give the Python interpreter of an "
                f"environment with JoeyNMT 2.3."
            ) from error
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def answer() -> dict[str, float]:
            line = answers.readline()
            if not line:
                raise UserError(
                    f"--joeynmt={python}: JoeyNMT ended with status {process.wait()}; see its message above."
                )
            values: dict[str, float] = json.loads(line)
            return values

        def ask(beam: int, first: int, count: int) -> Turn:
            reset_memory(device)
            print(beam, first, count, file=requests, flush=True)
            values = answer()
            return Turn(int(values["tokens"]), values["seconds"], None, int(values["peak_bytes"]))

        try:
            yield Peer(int(answer()["parameters"]), ask)
        finally:
            requests.close()
            answers.close()
            process.wait()
