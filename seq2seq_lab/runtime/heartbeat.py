"""What this process does at the moment, for the other ranks of the run and for error messages."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

BEAT_SECONDS = 1.0


class Heartbeat:
    """The activity of this process. Code that can take long calls `beat` from time to time.

    A beat costs less than a microsecond and does not wait for a GPU.

    Attributes:
        beats: number of signs of progress.
        activity: what the process does.
        waits: whether the activity can wait for other processes.
        step: the last optimizer step that has begun, counted from 1; 0 before the first one.
        stepped: whether an optimizer step has been completed.
        begun: the value of `beats` when the last step began.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget an earlier run of this process."""
        self.beats = 0
        self.activity = "starting"
        self.waits = False
        self.step = 0
        self.stepped = False
        self.begun = 0

    def beat(self, activity: str, waits: bool = False) -> None:
        """Record progress: the process begins or continues an activity."""
        self.activity = activity
        self.waits = waits
        self.beats += 1

    def begin_step(self, step: int) -> None:
        """Record that an optimizer step begins."""
        self.stepped = self.step > 0
        self.step = step
        self.begun = self.beats

    @contextmanager
    def waiting(self, others: str = "the other ranks") -> Iterator[None]:
        """Record that the process waits for others during the block."""
        before = self.activity, self.waits
        self.beat(f"{self.activity}, waiting for {others}", waits=True)
        yield
        self.beat(*before)

    @contextmanager
    def unlimited(self, activity: str) -> Iterator[None]:
        """Record progress during the whole block, which has no time limit: it may wait for a slow disk."""
        ended = threading.Event()

        def continue_beating() -> None:
            while not ended.wait(BEAT_SECONDS):
                self.beat(activity)

        self.beat(activity)
        thread = threading.Thread(target=continue_beating, name=activity, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


heartbeat = Heartbeat()
