"""Commands side by side on one machine, each with devices of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

LOOK_EVERY = 0.2  # seconds between looks at the processes
TIME_TO_END = 60  # seconds that a process has to end by itself


@dataclass(frozen=True)
class Command:
    """What to run.

    Attributes:
        arguments: of this interpreter.
        log: where its output is added to.
        devices: how many it needs, one for each of its ranks.
    """

    arguments: tuple[str, ...]
    log: Path
    devices: int = 1


@dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Attributes:
        status: its exit status; -N if signal N has killed it.
        seconds: that it took.
    """

    command: Command
    status: int
    seconds: float


@dataclass
class Devices:
    """The GPUs or CPU cores that commands are given.

    Attributes:
        kind: cuda, or cpu: then a command gets as many cores as come to each of `at_once` commands, if it does not
            need more.
        ids: those that there are.
        at_once: the most commands at a time.
    """

    kind: str
    ids: Sequence[int]
    at_once: int
    _free: list[int] = field(init=False)
    _taken: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._free = list(self.ids)

    def take(self, needed: int) -> tuple[int, ...] | None:
        """Return devices that no command has, or None where there are not enough or enough commands run."""
        count = needed if self.kind == "cuda" else max(needed, len(self.ids) // self.at_once)
        if self._taken == self.at_once or count > len(self._free):
            return None
        self._taken += 1
        taken, self._free = self._free[:count], self._free[count:]
        return tuple(taken)

    def give_back(self, taken: Iterable[int]) -> None:
        """Take devices back from a command that has ended."""
        self._taken -= 1
        self._free = sorted([*self._free, *taken])

    def environment(self, taken: Sequence[int], ranks: int) -> dict[str, str]:
        """Return the variables that have a command use its devices, and each of its ranks its share of the cores."""
        gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, taken))} if self.kind == "cuda" else {}
        share = len(taken) if self.kind == "cpu" else len(cores()) * len(taken) // len(self.ids)
        return {"OMP_NUM_THREADS": str(max(1, share // ranks)), **gpus}


def cores() -> list[int]:
    """Return the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def side_by_side(commands: Sequence[Command], devices: Devices) -> Iterator[Ended]:
    """Run commands, in their order as far as devices are free, and yield each as it ends.

    Raises:
        KeyboardInterrupt, SystemExit: SIGINT, or SIGTERM or SIGHUP came; the processes have been interrupted and have
            ended.
    """
    waiting = list(commands)
    running: dict[subprocess.Popen[bytes], tuple[Command, tuple[int, ...], float]] = {}
    with _noted_signals() as came:
        try:
            while (waiting or running) and not came:
                while waiting and (taken := devices.take(waiting[0].devices)) is not None:
                    command = waiting.pop(0)
                    running[_start(command, devices, taken)] = (command, taken, time.monotonic())
                time.sleep(LOOK_EVERY)
                for process in [process for process in running if process.poll() is not None]:
                    command, taken, start = running.pop(process)
                    devices.give_back(taken)
                    yield Ended(command, process.returncode, time.monotonic() - start)
        finally:
            _end(running)
    if came:
        raise KeyboardInterrupt if came[0] == signal.SIGINT else SystemExit(128 + came[0])


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Note a signal to stop instead of obeying it at once; a hangup that `nohup` ignores stays ignored."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(command: Command, devices: Devices, taken: Sequence[int]) -> subprocess.Popen[bytes]:
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with command.log.open("ab") as log, _on_cores(taken if devices.kind == "cpu" else cores()):
        return subprocess.Popen(
            [sys.executable, *command.arguments],
            env={**os.environ, **devices.environment(taken, command.devices)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # A terminal's Ctrl-C reaches it through `_end` alone: a second one would cut its ending short.
            start_new_session=True,
        )


@contextmanager
def _on_cores(ids: Iterable[int]) -> Iterator[None]:
    """Have processes that start now run on these cores, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, ids)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Interrupt processes, and wait until they have ended; one that does not is killed."""
    processes = list(processes)
    for process in processes:
        process.send_signal(signal.SIGINT)
    for process in processes:
        try:
            process.wait(TIME_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
