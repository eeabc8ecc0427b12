"""Trackers: objects that record what a run measures."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

log = logging.getLogger(__name__)


class Tracker:
    """Base class of trackers. Each method does nothing unless a subclass overrides it.

    Metrics are named `train/…`, `val/…` and `test/…`. `step` is the optimizer step that the values belong to.
    """

    def declare_metrics(self, directions: Mapping[str, str]) -> None:
        """Record for each metric whether its greatest ("max") or its smallest ("min") value is the best.

        Args:
            directions: by the metric's name without the prefix of the split.
        """

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """Record the metrics of one step."""

    def log_images(self, name: str, paths: Sequence[Path], captions: Sequence[str], step: int) -> None:
        """Record PNG files of the run folder as one row of images."""

    def log_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], step: int
    ) -> None:
        """Record a table. A path in it is that of a PNG file."""

    def log_artifact(
        self, name: str, kind: str, parts: Sequence[Path], metadata: Mapping[str, object]
    ) -> None:
        """Record files and folders of the run folder, for example the best checkpoint."""

    def record_data(self, name: str, metadata: Mapping[str, object]) -> None:
        """Record the data set that the run reads.

        Args:
            name: identifies its contents.
        """

    def record_notes(self, text: str) -> None:
        """Record a text about the run: the command that started it."""

    def record_summary(self, values: Mapping[str, object]) -> None:
        """Record the final values of the run."""

    def finish(self, exit_code: int) -> None:
        """Close the record. `exit_code` is 0 for a run that finished without an error."""


class Logger(Tracker):
    """Base class of the trackers in `conf/logger/*.yaml`, which can record a run outside the run folder.

    The constructor takes `folder`, `config`, `flat` and `run_id` in addition to the keys of the YAML file.

    Attributes:
        VARIABLES: the environment variables that set a key of the YAML file where the configuration does not.
        run_id: identifies the record, so that a resumed run continues it.
        url: address of the record.
        offline: whether the record is only on this machine and can be uploaded later.
    """

    VARIABLES: ClassVar[Mapping[str, str]] = {}

    run_id: str | None = None
    url: str | None = None
    offline: bool = False

    @classmethod
    def check(cls, settings: Mapping[str, Any]) -> None:
        """Check what a logger with these settings needs on this machine, before any data is read.

        Raises:
            UserError: names the key, the value and the remedy.
        """

    def sync_command(self) -> str | None:
        """Return the command that uploads an offline record, or None if there is nothing to upload."""
        return None


class Trackers(Tracker):
    """Passes every call to several trackers, in order."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = [*trackers]

    def add(self, tracker: Tracker) -> None:
        """Pass the calls from now on to this tracker too."""
        self._trackers.append(tracker)

    def declare_metrics(self, directions: Mapping[str, str]) -> None:
        for tracker in self._trackers:
            tracker.declare_metrics(directions)

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        for tracker in self._trackers:
            tracker.log_metrics(values, step)

    def log_images(self, name: str, paths: Sequence[Path], captions: Sequence[str], step: int) -> None:
        for tracker in self._trackers:
            tracker.log_images(name, paths, captions, step)

    def log_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], step: int
    ) -> None:
        for tracker in self._trackers:
            tracker.log_table(name, columns, rows, step)

    def log_artifact(
        self, name: str, kind: str, parts: Sequence[Path], metadata: Mapping[str, object]
    ) -> None:
        for tracker in self._trackers:
            tracker.log_artifact(name, kind, parts, metadata)

    def record_data(self, name: str, metadata: Mapping[str, object]) -> None:
        for tracker in self._trackers:
            tracker.record_data(name, metadata)

    def record_notes(self, text: str) -> None:
        for tracker in self._trackers:
            tracker.record_notes(text)

    def record_summary(self, values: Mapping[str, object]) -> None:
        for tracker in self._trackers:
            tracker.record_summary(values)

    def finish(self, exit_code: int) -> None:
        with ExitStack() as stack:  # closes all of them, also if one fails
            for tracker in self._trackers:
                stack.callback(tracker.finish, exit_code)


@contextmanager
def logger_errors() -> Iterator[None]:
    """Log an error of the block as a warning, with the traceback in `run.log`.

    For what the loggers do when the run has its scores or its own error. A logger can be a component of the user or
    another package, so any exception can be raised.
    """
    try:
        yield
    except Exception as error:
        log.warning(
            "The logger has failed (%s: %s). The run does not depend on it.", type(error).__name__, error
        )
        log.info("Traceback of the logger:", exc_info=error, extra={"console": False})
