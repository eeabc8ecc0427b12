"""Run commands side by side on one machine, each with its own devices."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

POLL_SECONDS = 0.2
# After an interrupt, before a process is killed: longer than `launch.SHUTDOWN_SECONDS`, in which its ranks save.
TIMEOUT_SECONDS = 180
LAUNCHER = (
    "SEQ2SEQ_LAB_LAUNCHER"  # the environment variable with the id of the process that started a command
)


@dataclass(frozen=True)
class Command:
    """A command to run.

    Attributes:
        arguments: arguments of the Python interpreter.
        log: file to which the output is appended.
        devices: number of devices that it needs, one per rank.
    """

    arguments: tuple[str, ...]
    log: Path
    devices: int = 1


@dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Attributes:
        status: its exit status; -N if signal N killed it.
        seconds: its duration.
    """

    command: Command
    status: int
    seconds: float


@dataclass
class Devices:
    """The GPUs or CPU cores that commands share.

    Attributes:
        kind: cuda or cpu. On a CPU a command gets an equal share of the cores, or more if it needs more.
        ids: indices of the devices.
        at_once: maximum number of commands at a time.
    """

    kind: str
    ids: Sequence[int]
    at_once: int
    _free: list[int] = field(init=False)
    _taken: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._free = list(self.ids)

    def take(self, needed: int) -> tuple[int, ...] | None:
        """Return free devices, or None if too few are free or `at_once` commands are running."""
        count = needed if self.kind == "cuda" else max(needed, len(self.ids) // self.at_once)
        if self._taken == self.at_once or count > len(self._free):
            return None
        self._taken += 1
        taken, self._free = self._free[:count], self._free[count:]
        return tuple(taken)

    def give_back(self, taken: Iterable[int]) -> None:
        """Free the devices of a command that has ended."""
        self._taken -= 1
        self._free = sorted([*self._free, *taken])

    def environment(self, taken: Sequence[int], ranks: int) -> dict[str, str]:
        """Return the environment variables that give a command its devices, and each of its ranks a share of the cores."""
        gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, taken))} if self.kind == "cuda" else {}
        share = len(taken) if self.kind == "cpu" else len(cores()) * len(taken) // len(self.ids)
        return {"OMP_NUM_THREADS": str(max(1, share // ranks)), **gpus}


def cores() -> list[int]:
    """Return the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def side_by_side(commands: Sequence[Command], devices: Devices) -> Iterator[Ended]:
    """Run commands in order, each as soon as enough devices are free, and yield each when it ends.

    Raises:
        KeyboardInterrupt, SystemExit: after SIGINT, or after SIGTERM or SIGHUP. All processes have ended.
    """
    waiting = list(commands)
    running: dict[subprocess.Popen[bytes], tuple[Command, tuple[int, ...], float]] = {}
    with _collect_signals() as received:
        try:
            while (waiting or running) and not received:
                while waiting and (taken := devices.take(waiting[0].devices)) is not None:
                    command = waiting.pop(0)
                    running[_start(command, devices, taken)] = (command, taken, time.monotonic())
                time.sleep(POLL_SECONDS)
                for process in [process for process in running if process.poll() is not None]:
                    command, taken, start = running.pop(process)
                    devices.give_back(taken)
                    yield Ended(command, process.returncode, time.monotonic() - start)
        finally:
            _end(running)
    if received:
        raise KeyboardInterrupt if received[0] == signal.SIGINT else SystemExit(128 + received[0])


@contextmanager
def _collect_signals() -> Iterator[list[int]]:
    """Collect termination signals for the caller to handle; a SIGHUP that `nohup` ignores stays ignored."""
    received: list[int] = []

    def collect(number: int, frame: FrameType | None) -> None:
        received.append(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, collect) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(command: Command, devices: Devices, taken: Sequence[int]) -> subprocess.Popen[bytes]:
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with command.log.open("ab") as log, _on_cores(taken if devices.kind == "cpu" else cores()):
        return subprocess.Popen(
            [sys.executable, *command.arguments],
            env={**os.environ, **devices.environment(taken, command.devices), LAUNCHER: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Ctrl-C in the terminal reaches it only through `_end`; a second interrupt would abort its cleanup.
            start_new_session=True,
        )


@contextmanager
def _on_cores(ids: Iterable[int]) -> Iterator[None]:
    """Start processes on these cores within the context, if the system supports it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, ids)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def end_with_launcher() -> None:
    """If `side_by_side` started this process, send it SIGTERM when that process has ended, even if it was killed."""
    launcher = int(os.environ.pop(LAUNCHER, "0"))

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    if launcher:
        threading.Thread(target=watch, daemon=True).start()


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Interrupt processes, wait until they have ended, and kill those that do not end."""
    processes = list(processes)
    for process in processes:
        process.send_signal(signal.SIGINT)
    for process in processes:
        try:
            process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
