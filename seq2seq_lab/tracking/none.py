"""No logger: the run folder's own files are all there is."""

from collections.abc import Mapping, Sequence
from pathlib import Path


class NoTracker:
    """The null object of `logger=none`."""

    run_id: str | None = None
    url: str | None = None
    offline: bool = False

    def __init__(
        self, folder: Path, config: Mapping[str, object], flat: Mapping[str, object], run_id: str | None
    ) -> None:
        """Take what every logger is built with, and leave it."""

    def sync_command(self) -> str | None:
        """Return None: there is nothing to send."""
        return None

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Leave the figures to the run folder's files."""

    def images(self, name: str, paths: Sequence[Path], captions: Sequence[str], step: int) -> None:
        """Leave the pictures where they lie."""

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], step: int) -> None:
        """Leave the table to the run folder's files."""

    def artifact(self, name: str, kind: str, parts: Sequence[Path], metadata: Mapping[str, object]) -> None:
        """Leave them where they lie."""

    def summary(self, values: Mapping[str, object]) -> None:
        """Leave the summary to the run folder's files."""

    def finish(self, exit_code: int) -> None:
        """Have nothing to close."""
