"""What a tracker is: the sink for everything a run measures."""

from collections.abc import Mapping, Sequence
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

    def artifact(self, name: str, kind: str, folder: Path, metadata: Mapping[str, object]) -> None:
        """Record a folder, for example the best checkpoint."""
        ...

    def summary(self, values: Mapping[str, object]) -> None:
        """Record the figures a run is known by once it has ended."""
        ...

    def finish(self, exit_code: int) -> None:
        """Close the record; `exit_code` is 0 for a run that ended well."""
        ...
