"""Output of a run to the terminal and to `run.log`: tables, log lines and progress."""

import contextlib
import functools
import io
import logging
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.containers import Lines
from rich.measure import Measurement
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Table
from rich.text import Text

from seq2seq_lab.errors import visible, visible_line
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
    """Formats log records with control characters as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


@functools.cache
def console() -> Console:
    """Return the console of this process, which writes to standard output and does not interpret markup."""
    shared = _console(None)
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
    _log.info("\n%s", buffer.getvalue().rstrip("\n"), extra={"console": False})


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
            console().print(Text(message), soft_wrap=True)


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


def parameter_table(rows: Sequence[tuple[str, int, int]]) -> Table:
    """Return a table of (component, parameters, trainable parameters) with a row of totals.

    Count a tensor that two components share in one of them only.
    """
    total = ("total", sum(row[1] for row in rows), sum(row[2] for row in rows))
    sections = [
        [[name, f"{count:,}", f"{trained:,}"] for name, count, trained in part] for part in (rows, [total])
    ]
    return sectioned_table("parameters", ["component", "parameters", "trainable"], sections)


def records_table(title: str, records: Sequence[Mapping[str, str]]) -> Table:
    """Return a table of records, each a section with a row per field: its name and its text."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for record in records:
        for name, text in record.items():
            table.add_row(literal(name), literal(text))
        table.add_section()
    return table


def time_table(title: str, what: str, rows: Sequence[tuple[str, float, float]]) -> Table:
    """Return a table of (name, milliseconds, share from 0 to 1)."""
    texts = [[name, f"{milliseconds:.2f}", f"{share:.1%}"] for name, milliseconds, share in rows]
    return sectioned_table(title, [what, "ms", "share"], [texts])


def print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], numeric: int) -> None:
    """Print a table without wrapping its columns, even if it is wider than the terminal.

    Args:
        numeric: number of columns, counted from the right, that are right-aligned.
    """
    table = sectioned_table(title, heads, [rows], numeric)
    width = Measurement.get(console(), console().options.update(max_width=1000), table).maximum
    _console(width).print(table)


def mean_and_deviation(values: Sequence[float], form: str) -> str:
    """Return "mean ± sample standard deviation", or the value alone if all values are equal."""
    if not values:
        return "–"
    if len(set(values)) == 1:
        return f"{values[0]:{form}}"
    return f"{statistics.mean(values):{form}} ± {statistics.stdev(values):{form}}"


def with_spread(head: str, word: str, texts: Sequence[str]) -> str:
    """Return the head of a column; if a text has a "±", with the word for what follows it, such as "BLEU ± std"."""
    return f"{head} ± {word}" if any("±" in text for text in texts) else head


def sectioned_table(
    title: str, heads: Sequence[str], sections: Sequence[Sequence[Sequence[str]]], numeric: int | None = None
) -> Table:
    """Return a table of texts in sections.

    Args:
        numeric: number of columns, counted from the right, that are right-aligned (None: all but the first).
    """
    table = Table(title=title, title_justify="left")
    first = 1 if numeric is None else len(heads) - numeric
    for index, head in enumerate(heads):
        table.add_column(literal(head), justify="right" if index >= first else "left", overflow="fold")
    for rows in sections:
        for row in rows:
            table.add_row(*map(literal, row))
        table.add_section()
    return table


@dataclass(frozen=True)
class TextTable:
    """A table of texts, which the terminal and pages show.

    Attributes:
        title: shown above it.
        heads: the names of the columns.
        rows: a text per column.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __rich__(self) -> Table:
        return sectioned_table(self.title, self.heads, [self.rows])


def closing_summary(
    tables: Sequence[RenderableType], facts: Sequence[tuple[str, str]], commands: Mapping[str, Sequence[str]]
) -> Group:
    """Return the output at the end of a program: tables, facts in two columns, and commands to copy.

    Args:
        facts: (label, text); a fact with an empty label starts at the left margin.
        commands: the words of each command, quoted for a shell, by purpose.
    """
    width = max((cell_len(label) for label, _ in facts), default=0)
    lines = [f"{set_cell_size(label, width)}  {text}" if label else text for label, text in facts]
    for purpose, words in commands.items():
        line = f"{' '.join(words)}  # {purpose}"
        fits = cell_len(line) <= console().width
        lines += [line] if fits else [f"# {purpose}", *wrap_command(words)]
    return Group(*tables, *(literal(line) for line in lines))


def wrap_command(words: Sequence[str]) -> list[str]:
    """Return a shell command in lines of at most 80 columns, broken between words only."""
    lines = [words[0]]
    for word in words[1:]:
        if cell_len(lines[-1]) + 1 + cell_len(word) <= COMMAND_WIDTH:
            lines[-1] += f" {word}"
        else:
            lines[-1] += " \\"
            lines.append(f" {word}")
    return lines


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


def _console(width: int | None) -> Console:
    return _VisibleConsole(markup=False, emoji=False, highlight=False, width=width)


class _Cell(Text):
    """A text whose lines keep their direction apart from the other columns of a table."""

    def wrap(self, *arguments: Any, **options: Any) -> Lines:
        lines = super().wrap(*arguments, **options)
        if not has_right_to_left(self.plain):
            return lines
        return Lines(Text(isolate(line.plain, direction(self.plain))) for line in lines)


def literal(text: str) -> Text:
    """Return a text for a table with control characters escaped: byte-level models can generate them."""
    return _Cell(visible_line(text))


def duration(seconds: float) -> str:
    """Return seconds as H:MM:SS."""
    return str(timedelta(seconds=round(seconds)))


def age(seconds: float) -> str:
    """Return seconds in the largest unit that is not above them, such as "3 h"."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
