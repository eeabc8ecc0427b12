"""Progress bars for long operations on data."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from seq2seq_lab.runtime.heartbeat import heartbeat

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")

AFTER_SECONDS = 2.0  # no bar before this
REFRESH_SECONDS = 0.25
LINE_SECONDS = 15.0  # between two log lines, without a terminal

logger = logging.getLogger(__name__)


def progress(
    items: Iterable[Item],
    description: str,
    total: int | None = None,
    position: Callable[[], int] | None = None,
) -> Iterator[Item]:
    """Yield the items, with a progress bar on standard error after 2 s.

    If standard error is not a terminal, log lines replace the bar. `total` and `position()` have the same unit; without
    `position` it is items.
    """
    due = time.monotonic() + AFTER_SECONDS
    bar: Progress | None = None
    try:
        for index, item in enumerate(items):
            now = time.monotonic()
            if now >= due:
                heartbeat.beat(description)
                bar = bar or _bar(description, total)
                done = index if position is None else position()
                bar.update(bar.task_ids[0], completed=done, refresh=True)
                if bar.console.is_interactive:
                    due = now + REFRESH_SECONDS
                else:
                    due = now + LINE_SECONDS
                    logger.info("%s: %s", description, f"{done / total:.0%}" if total else f"{done:,}")
            yield item
    finally:
        if bar is not None:
            bar.stop()


def _bar(description: str, total: int | None) -> "Progress":
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    from seq2seq_lab.runtime.console import console

    shown = Console(stderr=True)
    # The console is quiet on all ranks except the first.
    hidden = console().quiet or not shown.is_interactive
    # Without a refresh thread: only `progress` draws.
    bar = Progress(console=shown, auto_refresh=False, transient=True, disable=hidden)
    bar.add_task(escape(description), total=total)
    bar.start()
    return bar
