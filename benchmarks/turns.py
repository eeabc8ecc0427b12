"""Ways to train, measured in turns: the ones of this process, and JoeyNMT's in a process of its own."""

import gc
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch

from benchmarks import flops
from benchmarks.learners import CLIP_NORM, DROPOUT, LEARNING_RATE, MODELS, Data, Loop, Package
from benchmarks.machine import seconds
from benchmarks.reference import Sizes
from seq2seq_lab.config.schema import Precision
from seq2seq_lab.data.batching import StepPlan
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.device import (
    M_MMAP_MAX,
    M_MMAP_THRESHOLD,
    M_TRIM_THRESHOLD,
    keep_freed_memory,
    peak_memory,
    release_memory,
    reset_peak_memory,
    set_malloc_options,
)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to train: whose code, on which batches, in which precision, with freed memory reused on a CPU or not."""

    name: str
    code: str
    batches: str
    precision: Precision
    reuses_memory: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn did: real target tokens, in how many seconds, by how many operations if known, in what memory."""

    tokens: int
    seconds: float
    operations: int | None
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Contestant:
    """An arm ready to run: `turn(first, count)` does so many updates from the given one on, after one not counted."""

    arm: Arm
    parameters: int
    turn: Callable[[int, int], Turn]


def in_turns(contestants: Sequence[Contestant], warm_up: int, rounds: int, steps: int) -> list[list[Turn]]:
    """Return each contestant's turns: a warm-up that is not kept, then rounds in which everyone has a turn."""
    for contestant in contestants:
        contestant.turn(0, warm_up)
    made = [
        [contestant.turn(warm_up + number * steps, steps) for contestant in contestants]
        for number in progress(range(rounds), "Rounds", rounds)
    ]
    return [list(turns) for turns in zip(*made, strict=True)]


def take_turn(
    learner: Loop | Package,
    arm: Arm,
    plan: Sequence[StepPlan],
    ratio: float,
    name: str | None,
    sizes: Sizes,
    data: Data,
    device: torch.device,
    first: int,
    count: int,
) -> Turn:
    """Measure `count` updates from update `first` of the plan on, round and round, after one that is not counted.

    `name` says whose operations are counted; None where they are not known.
    """
    steps = [plan[number % len(plan)] for number in range(first, first + count)]

    def updates() -> None:
        for step in steps:
            learner.update(step, ratio, arm.precision)

    set_up_memory(arm.reuses_memory, device)
    forget(device)
    # One more, so that caches and allocator are this arm's again.
    learner.update(plan[(first - 1) % len(plan)], ratio, arm.precision)
    time = seconds(updates, device)
    text = [data.tokens(step) for step in steps]
    operations = None
    if name is not None:
        operations = sum(flops.training(MODELS[name].forward_flops(sizes, tokens)) for tokens in text)
    return Turn(sum(tokens.target for tokens in text), time, operations, peak_memory(device))


def set_up_memory(reused: bool, device: torch.device) -> None:
    """Have freed memory reused as in a run, or given back as glibc does of itself in a program that has freed 32 MiB."""
    if reused:
        keep_freed_memory(device)
    elif device.type == "cpu":
        set_malloc_options({M_MMAP_MAX: 2**16, M_MMAP_THRESHOLD: 2**25, M_TRIM_THRESHOLD: 2**26})


def forget(device: torch.device) -> None:
    """Give freed memory back to the system, so that one turn's peak is not counted as the next one's, and reset it."""
    gc.collect()
    release_memory()
    reset_peak_memory(device)


@dataclass(frozen=True, slots=True)
class Peer:
    """JoeyNMT in a process of its own, which computes when it is asked to and waits otherwise.

    Attributes:
        parameters: of its model.
        ask: sends it a line of numbers (see `joeynmt_worker.py`) and returns what it measured.
    """

    parameters: int
    ask: Callable[..., Turn]


@contextmanager
def joeynmt(
    python: Path, sizes: Sizes, text: TokenizedText, plan: Sequence[StepPlan], device: torch.device, seed: int
) -> Iterator[Peer]:
    """Start JoeyNMT in the environment of this interpreter.

    Args:
        plan: the batches it is given, all of as many sentences as the first.

    Raises:
        UserError: there is no such interpreter, or JoeyNMT does not run in it.
    """
    settings = {
        **asdict(sizes),
        "dropout": DROPOUT,
        "learning_rate": LEARNING_RATE,
        "clip_norm": CLIP_NORM,
        "batch_size": len(plan[0][0]),
        "threads": torch.get_num_threads(),
        "device": device.type,
        "seed": seed,
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
                f"environment with JoeyNMT 2.3, for example FOLDER/bin/python."
            ) from error
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def answer() -> dict[str, float]:
            line = answers.readline()
            if not line:
                raise UserError(
                    f"--joeynmt={python}: JoeyNMT ended with code {process.wait()}; its message stands "
                    f"above. The environment needs joeynmt 2.3 and what it imports; see joeynmt_worker.py."
                )
            values: dict[str, float] = json.loads(line)
            return values

        def ask(*numbers: int) -> Turn:
            forget(device)
            print(*numbers, file=asked, flush=True)
            values = answer()
            return Turn(int(values["tokens"]), values["seconds"], None, int(values["peak_bytes"]))

        try:
            yield Peer(int(answer()["parameters"]), ask)
        finally:
            asked.close()
            answers.close()
            process.wait()
