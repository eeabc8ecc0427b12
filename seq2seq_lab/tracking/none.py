"""`logger=none`: a run is recorded in its folder only."""

from collections.abc import Mapping
from pathlib import Path

from seq2seq_lab.tracking.base import Logger


class NoTracker(Logger):
    """A logger that records nothing."""

    def __init__(
        self, folder: Path, config: Mapping[str, object], flat: Mapping[str, object], run_id: str | None
    ) -> None:
        """Accept and ignore the arguments of every logger."""
