"""What a tracker is: the sink for everything a run measures."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol


class Tracker(Protocol):
    """Takes the figures, pictures and tables of one run.

    Names of figures are `train/…`, `val/…` and `test/…`; `step` is the optimizer update they belong to.
    """

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Record figures of one moment of the run."""
        ...

    def images(self, name: str, paths: Sequence[Path], captions: Sequence[str], step: int) -> None:
        """Record pictures that lie in the run folder as PNG files."""
        ...

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], step: int) -> None:
        """Record a table, for example of translations."""
        ...

    def artifact(self, name: str, kind: str, parts: Sequence[Path], metadata: Mapping[str, object]) -> None:
        """Record files and folders of the run folder, for example the best checkpoint."""
        ...

    def summary(self, values: Mapping[str, object]) -> None:
        """Record the figures a run is known by once it has ended."""
        ...

    def finish(self, exit_code: int) -> None:
        """Close the record; `exit_code` is 0 for a run that ended well."""
        ...


class Logger(Tracker, Protocol):
    """A tracker that `conf/logger/*.yaml` names: it may keep the run somewhere beyond the run folder.

    Every logger is built with `folder`, `config`, `flat` and `run_id` beside the keys of its YAML file.
    """

    @property
    def run_id(self) -> str | None:
        """The name under which a resumed run goes on in the same record."""
        ...

    @property
    def url(self) -> str | None:
        """Where the run can be looked at."""
        ...

    @property
    def offline(self) -> bool:
        """Whether the record is kept on this machine, to be sent later."""
        ...

    def sync_command(self) -> str | None:
        """Return the command line that sends an offline record, if there is one to send."""
        ...


class Trackers:
    """Several trackers as one; each gets everything, in the order given."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = tuple(trackers)

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """See `Tracker.metrics`."""
        for tracker in self._trackers:
            tracker.metrics(values, step)

    def images(self, name: str, paths: Sequence[Path], captions: Sequence[str], step: int) -> None:
        """See `Tracker.images`."""
        for tracker in self._trackers:
            tracker.images(name, paths, captions, step)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], step: int) -> None:
        """See `Tracker.table`."""
        for tracker in self._trackers:
            tracker.table(name, columns, rows, step)

    def artifact(self, name: str, kind: str, parts: Sequence[Path], metadata: Mapping[str, object]) -> None:
        """See `Tracker.artifact`."""
        for tracker in self._trackers:
            tracker.artifact(name, kind, parts, metadata)

    def summary(self, values: Mapping[str, object]) -> None:
        """See `Tracker.summary`."""
        for tracker in self._trackers:
            tracker.summary(values)

    def finish(self, exit_code: int) -> None:
        """See `Tracker.finish`."""
        with ExitStack() as stack:
            for tracker in self._trackers:
                stack.callback(tracker.finish, exit_code)
