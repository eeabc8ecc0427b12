"""One thread for the model of each run, with a short queue; a newer request of a page replaces its older one."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

QUEUE = 16  # waiting requests of a run

Check = Callable[[], None]


class QueueFull(Exception):
    """A run has too many waiting requests."""


class Superseded(Exception):
    """The page has sent a newer request."""


@dataclass(eq=False)
class QueuedRequest:
    """A request.

    Attributes:
        key: the page and the kind of the request.
        call: computes the answer. It calls its argument between two steps, which raises `Superseded` if the answer is no
            longer needed.
        locks: of the runs that it uses.
    """

    key: tuple[str, str]
    call: Callable[[Check], Any]
    locks: Sequence[Any]
    future: Future[Any] = field(default_factory=Future)
    superseded: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise `Superseded` if a newer request has replaced this one."""
        if self.superseded.is_set():
            raise Superseded

    def run(self) -> None:
        """Compute the answer or the error, unless the request was cancelled."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            with contextlib.ExitStack() as held:
                for lock in self.locks:
                    held.enter_context(lock)
                self.check()
                result = self.call(self.check)
        except BaseException as error:  # the request raises it
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class Worker:
    """The thread of a run.

    Attributes:
        lock: held while the model of the run computes.
    """

    def __init__(self, name: str) -> None:
        self.lock = threading.Lock()
        self._changed = threading.Condition()
        self._waiting: deque[QueuedRequest] = deque()
        self._running: QueuedRequest | None = None
        threading.Thread(target=self._work, name=f"studio: {name}", daemon=True).start()

    def __len__(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    def submit(self, key: tuple[str, str], call: Callable[[Check], Any], locks: Sequence[Any]) -> Future[Any]:
        """Queue a request, and remove the older ones with the same key.

        Raises:
            QueueFull: `QUEUE` requests are waiting.
        """
        request = QueuedRequest(key, call, locks)
        with self._changed:
            older = [one for one in self._waiting if one.key == key]
            if len(self._waiting) - len(older) >= QUEUE:
                raise QueueFull
            for one in older:
                self._waiting.remove(one)
                if one.future.set_running_or_notify_cancel():
                    one.future.set_exception(Superseded())
            if self._running is not None and self._running.key == key:
                self._running.superseded.set()
            self._waiting.append(request)
            self._changed.notify()
        return request.future

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                self._running = self._waiting.popleft()
            self._running.run()
