"""A lock with which one process at a time builds an entry of a cache."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from seq2seq_lab.files import lock_file
from seq2seq_lab.runtime.heartbeat import heartbeat

BEAT_SECONDS = 1.0  # between two signs of progress of a process that waits

logger = logging.getLogger(__name__)


@contextmanager
def build_lock(entry: Path) -> Iterator[None]:
    """Lock an entry for the duration of the block. Waits without a time limit for a process that has locked it.

    The entry is not locked if the file system does not support locks, or the lock is another user's: then several processes
    may build it.

    Args:
        entry: its path. The lock is the file `ENTRY.lock`, which stays.

    Raises:
        OSError: the lock cannot be written.
    """
    try:
        file = entry.with_suffix(".lock").open("w")
    except PermissionError as error:
        logger.info("%s is not locked while it is built (%s).", entry, error.strerror)
        yield
        return
    with file:
        if not _acquired(file, 0.0):
            logger.info("Another process is building %s. Waiting for it.", entry)
            with heartbeat.waiting("another process"):
                while not _acquired(file, BEAT_SECONDS):
                    # All ranks of this run may wait for another run: that is progress.
                    heartbeat.beat(heartbeat.activity, waits=True)
        yield


def _acquired(file: IO[str], timeout: float) -> bool:
    """Return False if another process still holds the lock after `timeout` seconds."""
    try:
        lock_file(file, timeout)
    except BlockingIOError:
        return False
    return True
