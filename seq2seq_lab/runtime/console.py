"""Output of a run to the terminal and to `run.log`: tables, log lines and progress."""

import contextlib
import functools
import io
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.containers import Lines
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from seq2seq_lab.errors import ISOLATES, LINES, visible, visible_line
from seq2seq_lab.runtime.direction import (
    direction,
    has_right_to_left,
    isolate,
)

COMMAND_WIDTH = 78  # columns, so that " \\" still fits into 80
PLAIN_WIDTH = 100  # columns of tables outside a terminal
BAR_SECONDS = 0.25  # between two refreshes of the bar; a refresh takes about a millisecond

_log = logging.getLogger(__name__)


class _VisibleConsole(Console):
    """A console that prints control characters in texts as escapes: a text may come from the run of someone else."""

    def render_str(self, text: str, *arguments: Any, **options: Any) -> Text:
        return super().render_str(visible(text), *arguments, **options)


class _VisibleFormatter(logging.Formatter):
    """Formats log records with control characters as escapes; isolates stay in what `log_only` has rendered."""

    def format(self, record: logging.LogRecord) -> str:
        kept = LINES + ISOLATES if getattr(record, "rendered", False) else LINES
        return visible(super().format(record), kept)


@functools.cache
def console() -> Console:
    """Return the console of this process, which writes to standard output and does not interpret markup."""
    shared = wide_console(None)
    if not shared.is_interactive:
        shared.width = PLAIN_WIDTH
    return shared


def mute() -> None:
    """Print no tables, log lines or progress in this process from now on."""
    console().quiet = True
    logging.getLogger().addHandler(logging.NullHandler())  # without a handler, Python prints warnings


def print_and_log(renderable: RenderableType) -> None:
    """Print a table or text on the console and write it as plain text to the run's log file.

    Lines of text are not wrapped, so paths and commands can be copied.
    """
    console().print(renderable, soft_wrap=True)
    log_only(renderable)


def print_prose(text: str) -> None:
    """Print lines of text, at a terminal wrapped between words; longer words, such as paths, stay whole."""
    if console().is_interactive:
        text = "\n".join(row for line in text.split("\n") for row in fill(line.split(" "), console().width))
    console().print(Text(visible(text)), soft_wrap=True)


def fill(words: Sequence[str], width: int, indent: str = "", end: str = "") -> list[str]:
    """Return lines of words of at most `width` columns, or of one word.

    Args:
        indent: before each line but the first.
        end: after each line but the last; it is not counted.
    """
    lines = [words[0]]
    for word in words[1:]:
        if cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines[-1] += end
            lines.append(indent + word)
    return lines


def log_only(renderable: RenderableType) -> None:
    """Write a table or text to the run's log file only."""
    buffer = io.StringIO()
    plain = _VisibleConsole(
        file=buffer,
        width=PLAIN_WIDTH,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,  # otherwise a notebook shows it twice
        markup=False,
        emoji=False,
    )
    plain.print(renderable, soft_wrap=True)
    _log.info("\n%s", buffer.getvalue().rstrip("\n"), extra={"console": False, "rendered": True})


class ConsoleHandler(logging.Handler):
    """Prints log records on the console, above the progress bar if there is one.

    Unlike Rich's handler it does not wrap long lines. It skips records with `extra={"console": False}`.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record. Warnings and errors are preceded by their level."""
        if not getattr(record, "console", True):
            return
        message = self.format(record)
        if record.levelno >= logging.WARNING:
            style = "bold red" if record.levelno >= logging.ERROR else "yellow"
            console().print(Text(f"{record.levelname}: {message}", style=style), soft_wrap=True)
        else:
            print_prose(message)


class _LogFile(logging.FileHandler):
    """Appends to a file. Without space on the disk, logging raises `OSError`."""

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            raise error
        super().handleError(record)


@contextlib.contextmanager
def setup_logging(run_log: Path) -> Iterator[None]:
    """Send log records to the console and, with a timestamp, append them to the file `run_log`.

    Records of this package are shown from INFO, those of other libraries at their own levels. On exit the
    handlers are removed and the file is closed.
    """
    to_file = _LogFile(run_log, encoding="utf-8")
    to_file.setFormatter(_VisibleFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    to_console = ConsoleHandler()
    to_console.setFormatter(_VisibleFormatter())
    root = logging.getLogger()
    package = logging.getLogger("seq2seq_lab")
    level = package.level
    package.setLevel(logging.INFO)
    root.addHandler(to_file)
    root.addHandler(to_console)
    try:
        yield
    finally:
        root.removeHandler(to_console)
        root.removeHandler(to_file)
        with contextlib.suppress(OSError):  # of a line that could not be written
            to_file.close()
        package.setLevel(level)


def closing_summary(
    tables: Sequence[RenderableType],
    facts: Sequence[tuple[str, str | Path]],
    commands: Mapping[str, Sequence[str]],
) -> Group:
    """Return the output at the end of a program: tables, facts in two columns, and commands to copy.

    Args:
        facts: (label, text or path); a fact with an empty label starts at the left margin. At a terminal a text is broken
            between words, a path is not, and what is too long for the place beside its label is below it.
        commands: the words of each command, quoted for a shell, by purpose.
    """
    width = max((cell_len(label) for label, _ in facts), default=0)
    lines = []
    for label, text in facts:
        margin = f"{set_cell_size(label, width)}  " if label else ""
        room = console().width - cell_len(margin) if console().is_interactive else sys.maxsize
        first, *others = [str(text)] if isinstance(text, Path) else fill(text.split(" "), room)
        if margin and cell_len(first) > room:
            lines += [label, f"  {first}"]
        else:
            lines.append(margin + first)
        lines += [" " * cell_len(margin) + line for line in others]
    for purpose, words in commands.items():
        lines += [f"{purpose}:", *wrap_command(words)]  # a comment beside it would be an argument in zsh
    return Group(*tables, *(literal(line) for line in lines))


def wrap_command(words: Sequence[str]) -> list[str]:
    """Return a shell command in lines of at most 80 columns that fit the terminal, broken between words only."""
    return fill(words, min(COMMAND_WIDTH, console().width - 2), indent=" ", end=" \\")


class Progress:
    """A context manager that shows the progress of training: a live bar at a terminal, plain lines elsewhere.

    The trainer calls `due` after each step and, if it returns true, reads the loss from the device and calls
    `show`. The remaining time is estimated from the mean time per step since the start, including validation.

    Args:
        total: number of optimizer steps of the whole run.
        completed: steps completed before this start.
        epochs: number of epochs of the whole run.
        plain_seconds: seconds between two plain lines.
        unit: what the throughput counts, for example "target tokens".
    """

    def __init__(self, total: int, completed: int, epochs: int, plain_seconds: float, unit: str) -> None:
        self._total = total
        self._completed = completed
        self._epochs = epochs
        self._unit = unit
        self._bar: _Bar | None = None
        self._interval = plain_seconds
        if console().is_interactive:
            self._interval = BAR_SECONDS
            # No refresh thread: the bar is drawn by `show`, `show_validation` and below log lines.
            self._bar = _Bar(
                BarColumn(bar_width=None),
                TextColumn("{task.description}", markup=False),
                console=console(),
                auto_refresh=False,
                expand=True,
            )
            self._task = self._bar.add_task("starting", total=total, completed=completed)
        self._start = time.monotonic()
        self._next = self._start  # the first step is shown at once

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def due(self) -> bool:
        """Return whether it is time to show new values; costs one clock reading."""
        return time.monotonic() >= self._next and not console().quiet

    def show(self, step: int, epoch: int, loss: float, throughput: float, best: str) -> None:
        """Show the state after `step` steps.

        Args:
            epoch: counted from 1.
            throughput: units per second; 0 during warm-up.
            best: the best validation score so far and its name; empty before the first validation.
        """
        speed = f"{throughput:,.0f} {self._unit}/s" if throughput else "warming up"
        self._print(step, [f"epoch {epoch}/{self._epochs}", f"loss {loss:.3f}", best, speed])

    def show_validation(self, step: int, epoch: int, best: str, done: int, total: int) -> None:
        """Show how many batches of a validation are done, if it is time; see `show`."""
        if self.due():
            self._print(step, [f"epoch {epoch}/{self._epochs}", f"validating {done}/{total}", best])

    def _print(self, step: int, parts: Sequence[str]) -> None:
        now = time.monotonic()
        self._next = now + self._interval
        done = step - self._completed
        left = "?"
        if done > 0:
            seconds = (now - self._start) / done * max(0, self._total - step)
            left = str(timedelta(seconds=round(seconds)))
        count, left = f"step {step:,}/{self._total:,}", f"{left} left"
        if self._bar:
            self._bar.line = "  ".join(filter(None, parts))
            self._bar.update(self._task, completed=step, description=f"{count}  {left}", refresh=True)
        else:
            first, *others = parts
            line = "  ".join(filter(None, [first, count, *others, left]))
            console().print(line, soft_wrap=True)


class _Bar(RichProgress):
    """A bar with a line of text below it, truncated to the width of the terminal."""

    line = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Return the bar and the line."""
        yield from super().get_renderables()
        yield Text(self.line, no_wrap=True, overflow="ellipsis")


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar at a terminal; yields a function to call with the completed and the total number."""
    shown = console()
    with RichProgress(
        TextColumn("{task.description} {task.completed}/{task.total}", markup=False),
        BarColumn(bar_width=None),
        console=shown,
        auto_refresh=False,
        transient=True,
        expand=True,
        disable=not shown.is_interactive or shown.quiet,
    ) as bar:
        task = bar.add_task(title, total=0)
        yield lambda done, total: bar.update(task, completed=done, total=total, refresh=True)


def wide_console(width: int | None) -> Console:
    """Return a console of a width, which writes to standard output; None for the width of the terminal."""
    return _VisibleConsole(markup=False, emoji=False, highlight=False, width=width)


class Cell(Text):
    """A text whose lines keep their direction apart from the other columns of a table."""

    def wrap(self, *arguments: Any, **options: Any) -> Lines:
        lines = super().wrap(*arguments, **options)
        if not has_right_to_left(self.plain):
            return lines
        return Lines(Text(isolate(line.plain, direction(self.plain))) for line in lines)


def literal(text: str) -> Text:
    """Return a text for a table with control characters escaped: byte-level models can generate them."""
    return Cell(visible_line(text))


def duration(seconds: float) -> str:
    """Return seconds as H:MM:SS."""
    return str(timedelta(seconds=round(seconds)))


def age(seconds: float) -> str:
    """Return seconds in the largest unit that is not above them, such as "3 h"."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
