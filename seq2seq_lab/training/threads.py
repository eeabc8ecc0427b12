"""The number of CPU threads that a run computes with."""

import copy
import json
import logging
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seq2seq_lab.config.job_hash import compute_job_hash
from seq2seq_lab.files import read_json_object, write_atomically
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import autocast, device_name
from seq2seq_lab.runtime.memory import TRAINING, memory_errors
from seq2seq_lab.tasks.base import StepInfo, Task, TrainingSplit

log = logging.getLogger(__name__)

FILE = "threads.json"  # of a study, whose jobs compute with the same number on each machine
ROUNDS = 3  # timed steps with each number of threads, after one that is not counted
MAX_SECONDS = 1.5  # start no further round after this time
GAIN = 0.83  # a larger number of threads is chosen only if it takes less than this fraction of the time

_opened: dict[str, int] = {}  # the numbers of threads before and after `use_recorded_threads`


@contextmanager
def restored_threads() -> Iterator[None]:
    """Restore the number of threads of this process at the end of the block: a study runs many jobs."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def use_recorded_threads(record: Mapping[str, Any]) -> None:
    """Compute with the number of threads of a run, or with fewer if this process has fewer.

    Args:
        record: the `run.json` of the run.
    """
    undo_recorded_threads()
    before = torch.get_num_threads()
    _opened.update(before=before, chosen=min(record["machine"]["threads"], before))
    torch.set_num_threads(_opened["chosen"])


def undo_recorded_threads() -> None:
    """Restore the number of threads from before `use_recorded_threads`, unless it has been changed since."""
    if torch.get_num_threads() == _opened.get("chosen"):
        torch.set_num_threads(_opened["before"])


def choose_threads(
    task: Task,
    model: nn.Module,
    data: TrainingSplit,
    *,
    micro_batches: int,
    compute: Compute,
    file: Path | None,
) -> None:
    """Set the number of threads with which a training step is fastest, at most the current number.

    Each number is timed on a copy of the model. The task's state and the random state of the CPU do not change.

    Args:
        file: the numbers that were measured before, by machine, to which a new one is added; None: measure in any case.
    """
    most = torch.get_num_threads()
    if compute.device.type != "cpu" or compute.ranks.size > 1 or most == 1:
        return
    machine = f"{device_name(compute.device)}, at most {most}"
    known = {} if file is None else read_json_object(file)
    if machine in known:
        torch.set_num_threads(min(most, known[machine]))
        return
    state = task.state_dict(compute.ranks)
    seconds = _measure(_training_step(task, model, data, micro_batches, compute), most)
    task.load_state_dict(state)
    chosen = fewest_fast(seconds)
    if file is not None:
        known = read_json_object(file)  # another job may have measured at the same time
        chosen = known.setdefault(machine, chosen)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(known, indent=2) + "\n")
    torch.set_num_threads(min(most, chosen))
    measured = ", ".join(f"{1000 * value:.0f} ms with {threads}" for threads, value in seconds.items())
    log.info("A training step takes %s threads; chosen: %s (trainer.threads=auto).", measured, chosen)


def file_of_today(cache: Path, config: Mapping[str, Any]) -> Path:
    """Return the file of the numbers that runs with the same settings, but any seed, have measured today.

    Those of other days are removed.

    Args:
        cache: the user's folder of cached data.
        config: the plain configuration.
    """
    settings = compute_job_hash({**config, "seed": 0})
    file = cache / "threads" / f"{settings}-{date.today()}.json"
    for old in file.parent.glob(f"{settings}-*.json"):
        if old != file:
            old.unlink(missing_ok=True)
    return file


def fewest_fast(seconds: Mapping[int, float]) -> int:
    """Return the number of threads to use, given the seconds of a step by number of threads, in increasing order.

    A greater number is chosen only if its step takes less than `GAIN` of the time.
    """
    chosen = min(seconds)
    for threads, value in seconds.items():
        if value < GAIN * seconds[chosen]:
            chosen = threads
    return chosen


def _measure(step: Callable[[int], None], most: int) -> dict[int, float]:
    """Return the median seconds of a step with 1, 2, 4, … and `most` threads.

    Args:
        step: computes the step with this index.
    """
    counts = sorted({most, *(2**power for power in range(most.bit_length()))})
    taken: dict[int, list[float]] = {count: [] for count in counts}
    with restored_threads():
        began = time.perf_counter()
        for turn in range(1 + ROUNDS):
            if turn > 1 and time.perf_counter() - began > MAX_SECONDS:
                break
            for count in counts:
                torch.set_num_threads(count)
                start = time.perf_counter()
                step(max(0, turn - 1))
                if turn:
                    taken[count].append(time.perf_counter() - start)
    return {count: statistics.median(values) for count, values in taken.items()}


def _training_step(
    task: Task, model: nn.Module, data: TrainingSplit, micro_batches: int, compute: Compute
) -> Callable[[int], None]:
    """Return a function that computes the loss and the gradients of a step of the first epoch, on a copy of the model."""
    copied = copy.deepcopy(model).train()
    plan = data.epoch(0, compute.device)

    def step(position: int) -> None:
        share = plan.share(position % plan.steps, 0, 1, micro_batches)
        with torch.random.fork_rng(devices=[]):
            for index in (index for part in share.values() for index in part):
                batch = plan.batch(index)
                with memory_errors("a training step (trainer.threads=auto)", batch, TRAINING):
                    with autocast(compute.precision, compute.device):
                        loss = task.loss(copied, batch, StepInfo(0, position))
                    torch.autograd.backward(loss)
        copied.zero_grad(set_to_none=True)

    return step
