"""A thread in each rank that ends the run if a rank makes no progress.

Each rank publishes its heartbeat in the store of the ranks every second and reads those of the others. Collective operations
have no time limit of their own: a rank can wait for hours for another rank that reads a large corpus.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import NoReturn

from torch import distributed
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from seq2seq_lab.runtime.heartbeat import Heartbeat, heartbeat
from seq2seq_lab.runtime.ranks import Ranks

INTERVAL = 1.0  # seconds between two rounds
BUSY = 0.05  # processor time, as a share of the time, that counts as progress
REPORT_SECONDS = 3.0  # another rank reports first
EXIT_STATUS = 2


@dataclass(frozen=True)
class Limits:
    """The seconds without progress after which the run ends.

    Attributes:
        before: until the first step has been completed.
        after: from then on.
    """

    before: float
    after: float

    def of(self, stepped: bool) -> float:
        """Return the limit of a rank."""
        return self.after if stepped else self.before


@dataclass(frozen=True, kw_only=True)
class Sign:
    """What a rank publishes.

    Attributes:
        round: counts the rounds of its thread.
        idle: seconds since its last progress.
        beats: signs of progress since the beginning of the step: the rank with fewer of them is behind.
        machine: name of its machine and process that has started it: another rank with the same value can kill it.
        ended: whether it no longer takes part in the run.
    """

    round: int
    idle: float
    step: int
    beats: int
    activity: str
    waits: bool
    stepped: bool
    machine: str = field(default_factory=lambda: f"{socket.gethostname()} {os.getppid()}")
    process: int = field(default_factory=os.getpid)
    ended: bool = False

    def __str__(self) -> str:
        return f"step {self.step}, {self.activity}" if self.step else self.activity


@contextmanager
def watched(ranks: Ranks, limits: Limits, report: Callable[[str], None]) -> Iterator[None]:
    """End this process if a rank makes no progress during the block.

    Args:
        report: called with the error message, on one of the ranks.
    """
    heartbeat.reset()
    if ranks.size == 1:
        yield
        return
    watch = Watch(ranks.rank, ranks.size, _new_connection(), limits, report)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


def _new_connection() -> Store:
    """Connect to the store of the ranks. In a shared connection, a request that is not answered would block the thread."""
    store = TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, wait_for_workers=False
    )
    return PrefixStore(f"watch.{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


class Watch(threading.Thread):
    """Publishes the heartbeat of this rank and ends the process if a rank makes no progress; see `watched`."""

    def __init__(
        self, rank: int, size: int, store: Store, limits: Limits, report: Callable[[str], None]
    ) -> None:
        super().__init__(name="watch", daemon=True)
        self.rank = rank
        self.store = store
        self.limits = limits
        self.report = report
        self._keys = [f"heartbeat.{rank}" for rank in range(size)]
        self._stopped = threading.Event()
        self._own = _OwnProgress(heartbeat, limits)
        self._signs: list[Sign] = []
        self._silent = [0.0] * size  # seconds since each rank has published a sign

    def run(self) -> None:
        """Publish and read heartbeats until `stop`."""
        threading.Thread(target=self._check_store, name="watch of the store", daemon=True).start()
        while not self._stopped.is_set():
            try:
                self._exchange()
            except distributed.DistError:
                time.sleep(REPORT_SECONDS)  # the other threads may know more
                if not self._stopped.is_set():
                    self._lost("has ended")
                return
            self._judge()
            self._stopped.wait(INTERVAL)

    def stop(self) -> None:
        """End the thread; the other ranks no longer expect progress of this rank."""
        self._stopped.set()
        self.join(INTERVAL)
        if self.is_alive():  # the store does not answer
            return
        with suppress(distributed.DistError):  # the process with the store has ended before this one
            self._publish(ended=True)

    def _publish(self, ended: bool = False) -> float:
        seconds, sign = self._own.sign(ended)
        self.store.set(self._keys[self.rank], json.dumps(asdict(sign)))
        return seconds

    def _exchange(self) -> None:
        """Publish the sign of this rank and read those of all."""
        seconds = self._publish()
        signs = [Sign(**json.loads(text)) for text in self.store.multi_get(self._keys)]
        for index, (sign, before) in enumerate(zip(signs, self._signs or signs, strict=True)):
            self._silent[index] = self._silent[index] + seconds if sign.round == before.round else 0.0
        self._signs = signs

    def _judge(self) -> None:
        """End this process if a rank makes no progress."""
        running = [rank for rank, sign in enumerate(self._signs) if not sign.ended]
        message = find_stalled(self._signs, self._silent, self.limits)
        if message is None or self.rank not in running:
            return
        # A process that is stopped publishes nothing and cannot end itself.
        limit = self.limits.of(self._signs[self.rank].stepped)
        stopped = [rank for rank in running if self._silent[rank] > limit / 2]
        if self.rank != min(set(running) - set(stopped)):
            time.sleep(REPORT_SECONDS)
            _end()
        try:
            self.report(message)
            for rank in running:
                if rank != self.rank and self._signs[rank].machine == self._signs[self.rank].machine:
                    with suppress(ProcessLookupError):
                        os.kill(self._signs[rank].process, signal.SIGKILL)
        finally:
            _end()

    def _check_store(self) -> None:
        """End this process if the store does not answer: the thread that reads it is blocked."""
        waited, rounds, before = 0.0, 0, time.monotonic()
        while not self._stopped.wait(INTERVAL):
            now, limit = time.monotonic(), self.limits.of(heartbeat.stepped)
            waited = waited + min(now - before, limit / 2) if rounds == self._own.rounds else 0.0
            rounds, before = self._own.rounds, now
            if waited > limit:
                if self._signs and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
                    self._silent[0] = waited  # the store is in rank 0
                    self._judge()
                self._lost(f"has not answered for {waited:.0f} s")

    def _lost(self, problem: str) -> NoReturn:
        """End this process without the store."""
        try:
            self.report(
                f"The process with the store of the ranks {problem}: the launcher, or rank 0 if the launcher has no store. "
                f"Resume the run with resume=RUN."
            )
        finally:
            _end()


class _OwnProgress:
    """The progress of this process.

    Its clock does not count the time in which all ranks are stopped together, for example by Ctrl-Z.
    """

    def __init__(self, heart: Heartbeat, limits: Limits) -> None:
        self._heart = heart
        self._limits = limits
        self.rounds = 0
        self._idle = 0.0
        self._beats = heart.beats
        self._time = time.monotonic()
        self._used = _processor_seconds()

    def sign(self, ended: bool) -> tuple[float, Sign]:
        """Return the seconds since the last call and the sign to publish."""
        heart, now, used = self._heart, time.monotonic(), _processor_seconds()
        seconds = min(now - self._time, self._limits.of(heart.stepped) / 2)
        busy = not heart.waits and used - self._used > BUSY * seconds
        self._idle = 0.0 if heart.beats != self._beats or busy else self._idle + seconds
        self._time, self._used, self._beats = now, used, heart.beats
        self.rounds += 1
        return seconds, Sign(
            round=self.rounds,
            idle=self._idle,
            step=heart.step,
            beats=heart.beats - heart.begun,
            activity=heart.activity,
            waits=heart.waits,
            stepped=heart.stepped,
            ended=ended,
        )


def find_stalled(signs: Sequence[Sign], silent: Sequence[float], limits: Limits) -> str | None:
    """Return an error message if a rank makes no progress, or None.

    A rank that can wait for other ranks is not expected to make progress, unless all ranks wait.

    Args:
        signs: the last sign of each rank.
        silent: the seconds since each rank has published it.
    """
    running = [rank for rank, sign in enumerate(signs) if not sign.ended]
    idle = {rank: signs[rank].idle + silent[rank] for rank in running}
    limit = {rank: limits.of(signs[rank].stepped) for rank in running}
    stalled = [rank for rank in running if silent[rank] > limit[rank]]
    if not stalled and len(running) > 1:
        stalled = [rank for rank in running if idle[rank] > limit[rank] and not signs[rank].waits]
    if not stalled and all(signs[rank].waits and idle[rank] > max(limit.values()) for rank in running):
        stalled = running
    if not stalled:
        return None
    stalled.sort(key=lambda rank: (signs[rank].step, signs[rank].beats))
    setting = "timeout_seconds" if signs[stalled[0]].stepped else "start_timeout_seconds"
    others = [rank for rank in running if rank not in stalled]
    return (
        f"trainer.{setting}={limit[stalled[0]]:g}: no progress for {min(idle[rank] for rank in stalled):.0f} s on "
        f"{_listed(signs, stalled)}.{f' The others: {_listed(signs, others)}.' if others else ''} Check the device, disk "
        f"and network of the first of these ranks, then resume with resume=RUN. If the work takes that long, raise "
        f"trainer.{setting}."
    )


def _listed(signs: Sequence[Sign], ranks: Sequence[int]) -> str:
    return "; ".join(f"rank {rank} ({signs[rank]})" for rank in ranks)


def _processor_seconds() -> float:
    """Return the processor time that this process has used, without the calling thread."""
    return time.process_time() - time.thread_time()


def _end() -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_STATUS)  # the main thread cannot be interrupted in a collective operation
