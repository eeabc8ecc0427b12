"""Signals that ask a run to stop."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from torch.distributed import Store  # type: ignore[attr-defined]

from seq2seq_lab.errors import Preempted
from seq2seq_lab.runtime.heartbeat import heartbeat

KEY = "stop"  # in the store
POLL_SECONDS = 1.0
# Those of users, of a closed terminal, and of the schedulers of clusters before they kill a job.
SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
)
REPEAT_SECONDS = 1.0  # Ctrl-C reaches a rank twice: from the terminal and from the process that started it


def is_ignored(number: int) -> bool:
    """Return whether a signal has no effect on this process, as SIGHUP after `nohup`."""
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


class StopSignals:
    """The signals that this process has received.

    During an evaluation the ranks are not in step: a rank that stops publishes the signal in the store.

    Args:
        store: shared by the ranks of the run; None for one process.

    Attributes:
        received: the number of the first signal, 0 before it.
        deferred: whether the code that runs checks `received` itself. Otherwise a signal raises `Preempted` at once.
    """

    def __init__(self, store: Store | None) -> None:
        self.store = store
        self.received = 0
        self.deferred = False
        self._first = 0.0
        self._next_poll = 0.0

    def check(self) -> None:
        """Raise `Preempted` if this rank has received a signal or, after at most a second, if another rank has."""
        if self.store is not None and time.monotonic() >= self._next_poll:
            self._next_poll = time.monotonic() + POLL_SECONDS
            self.received = self.received or self._published()
        if self.received:
            if self.store is not None:
                self.store.set(KEY, str(self.received))
            raise Preempted(self.received)

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Raise `Preempted` if a collective operation of the block fails because another rank has stopped."""
        try:
            yield
        except RuntimeError as error:
            if number := self.received or self._published():
                raise Preempted(number) from error
            raise

    def _published(self) -> int:
        if self.store is None or not self.store.check([KEY]):
            return 0
        return int(self.store.get(KEY))

    def checked(self, counted: Callable[[int, int], None]) -> Callable[[int, int], None]:
        """Return a function that records progress and checks for a signal before it calls `counted`."""

        def check_and_count(done: int, total: int) -> None:
            heartbeat.beat(f"evaluation, batch {done} of {total} done")
            self.check()
            counted(done, total)

        return check_and_count

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Receive `SIGNALS` during the block, if this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self._receive) for number in SIGNALS if not is_ignored(number)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.received:
            self.received, self._first = number, now
            if not self.deferred:
                raise Preempted(number)
        elif self.received == signal.SIGINT and now - self._first > REPEAT_SECONDS:
            raise KeyboardInterrupt
