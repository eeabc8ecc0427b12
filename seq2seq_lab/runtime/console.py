"""What a run says at the terminal and in its `run.log`: tables, log lines and progress."""

import contextlib
import functools
import io
import logging
import statistics
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Table
from rich.text import Text

COMMAND_WIDTH = 78  # columns, so that " \\" still fits into 80
PLAIN_WIDTH = 100  # columns of tables that no terminal shows
BAR_SECONDS = 0.25  # between two refreshes of the bar: each costs about a millisecond

_log = logging.getLogger(__name__)


@functools.cache
def console() -> Console:
    """Return the one console, on standard output. Nothing printed through it is read as markup."""
    made = _console(None)
    if not made.is_interactive:
        made.width = PLAIN_WIDTH
    return made


def mute() -> None:
    """Keep tables, log lines and progress of this process from the terminal, for good."""
    console().quiet = True
    logging.getLogger().addHandler(logging.NullHandler())  # without one, Python prints warnings


def print_and_log(renderable: RenderableType) -> None:
    """Print a table or a text on the console, and write it as plain text to the log file of the run.

    Lines of text are not wrapped, so that paths and commands can be copied.
    """
    console().print(renderable, soft_wrap=True)
    log_only(renderable)


def log_only(renderable: RenderableType) -> None:
    """Write a table or a text to the log file of the run, and not on the console."""
    buffer = io.StringIO()
    plain = Console(
        file=buffer,
        width=PLAIN_WIDTH,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,  # or a notebook would show it a second time
        markup=False,
        emoji=False,
    )
    plain.print(renderable, soft_wrap=True)
    _log.info("\n%s", buffer.getvalue().rstrip("\n"), extra={"on_console": True})


class ConsoleHandler(logging.Handler):
    """Prints log records through the console, above a progress bar if there is one.

    Unlike Rich's own handler it leaves long lines whole, and it skips what `print_and_log` printed already.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record; warnings and errors with their level in front."""
        if getattr(record, "on_console", False):
            return
        message = self.format(record)
        if record.levelno >= logging.WARNING:
            style = "bold red" if record.levelno >= logging.ERROR else "yellow"
            console().print(Text(f"{record.levelname}: {message}", style=style), soft_wrap=True)
        else:
            console().print(Text(message), soft_wrap=True)


@contextlib.contextmanager
def setup_logging(run_log: Path) -> Iterator[None]:
    """Send log records to the console and, with the time in front, to the end of the file `run_log`.

    This package is heard from INFO on, other libraries at their own levels. On leaving, the handlers are
    removed and the file is closed, so that several runs in one process each have their own.
    """
    to_file = logging.FileHandler(run_log, encoding="utf-8")
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    to_console = ConsoleHandler()
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
        to_file.close()
        package.setLevel(level)


def parameter_table(rows: Sequence[tuple[str, int, int]]) -> Table:
    """Return a table of (component, parameters, trainable parameters) with their sums.

    A tensor that two components share is to be counted in one of them.
    """
    table = _table("parameters", "component", "parameters", "trainable", show_footer=True)
    for component, parameters, trainable in rows:
        table.add_row(_literal(component), f"{parameters:,}", f"{trainable:,}")
    table.columns[0].footer = "total"
    table.columns[1].footer = f"{sum(row[1] for row in rows):,}"
    table.columns[2].footer = f"{sum(row[2] for row in rows):,}"
    return table


def corpus_table(
    split_sizes: Mapping[str, int], vocabulary_sizes: Mapping[str, int], unknown_rates: Mapping[str, float]
) -> Table:
    """Return a table of splits: sentence pairs, and the share of unknown tokens on each side.

    `unknown_rates` (0 to 1) are named split/side, with the splits of `split_sizes` and the sides of
    `vocabulary_sizes`, for example "test/test2016/source"; a split that has no rate shows a dash.
    """
    sides = list(vocabulary_sizes)
    table = _table("corpus", "split", "pairs", *(f"unknown in {side}" for side in sides))
    for split, size in split_sizes.items():
        names = [f"{split}/{side}" for side in sides]
        rates = [f"{unknown_rates[name]:.2%}" if name in unknown_rates else "–" for name in names]
        table.add_row(_literal(split), f"{size:,}", *rates)
    table.add_section()
    table.add_row("vocabulary", "", *(f"{size:,} types" for size in vocabulary_sizes.values()))
    return table


def near_duplicates_table(rows: Mapping[str, Sequence[tuple[int, float]]], kinds: Sequence[str]) -> Table:
    """Return a table of held-out splits: how many of their pairs are near-duplicates, of each kind.

    `rows[split]` has a count and a share (0 to 1) for each of `kinds`.
    """
    table = _table("near-duplicates", "split", *kinds)
    table.columns[0].no_wrap = True
    for split, counts in rows.items():
        table.add_row(
            _literal(split), *(f"{count:,} ({share:.1%})" if count else "–" for count, share in counts)
        )
    return table


def pairs_table(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Table:
    """Return a table of tokenised (source, target) pairs, tokens separated by spaces."""
    table = _text_table("tokenised pairs")
    for source, target in pairs:
        table.add_row("source", _literal(" ".join(source)))
        table.add_row("target", _literal(" ".join(target)), end_section=True)
    return table


def sample_translations(rows: Sequence[tuple[str, str, str]]) -> Table:
    """Return a table of (source, reference, hypothesis)."""
    table = _text_table("translations")
    for source, reference, hypothesis in rows:
        table.add_row("source", _literal(source))
        table.add_row("reference", _literal(reference))
        table.add_row("hypothesis", _literal(hypothesis), end_section=True)
    return table


def time_table(title: str, what: str, rows: Sequence[tuple[str, float, float]]) -> Table:
    """Return a table of (name, milliseconds, share from 0 to 1)."""
    table = _table(title, what, "ms", "share")
    for name, milliseconds, share in rows:
        table.add_row(_literal(name), f"{milliseconds:.2f}", f"{share:.1%}")
    return table


def print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], figures: int) -> None:
    """Print a table of texts whose last columns are figures, as wide as it is: a terminal may be made wider."""
    table = Table(title=title, title_justify="left")
    for number, head in enumerate(heads):
        table.add_column(_literal(head), justify="right" if number >= len(heads) - figures else "left")
    for row in rows:
        table.add_row(*map(_literal, row))
    whole = Measurement.get(console(), console().options.update(max_width=1000), table).maximum
    _console(whole).print(table)


def mean_and_deviation(values: Sequence[float], form: str) -> str:
    """Return mean ± standard deviation of the sample; a figure that is the same in all runs stands alone."""
    if not values:
        return "–"
    if len(set(values)) == 1:
        return f"{values[0]:{form}}"
    return f"{statistics.mean(values):{form}} ± {statistics.stdev(values):{form}}"


def sectioned_table(title: str, heads: Sequence[str], sections: Sequence[Sequence[Sequence[str]]]) -> Table:
    """Return a table of texts in sections, the first column on the left and the others on the right."""
    table = _table(title, *heads)
    for rows in sections:
        for row in rows:
            table.add_row(*map(_literal, row))
        table.add_section()
    return table


def closing_summary(
    tables: Sequence[Table], facts: Sequence[tuple[str, str]], commands: Mapping[str, Sequence[str]]
) -> Group:
    """Return the end of a program's output: tables, facts in two columns, and commands to copy.

    Args:
        facts: (what, text); those without a `what` start at the left.
        commands: the words of a command, quoted for a shell, by what it is for. A command that is wider than 80 columns
            is continued on further lines as a shell reads them: a word, a path for example, is never broken.
    """
    width = max((len(what) for what, _ in facts), default=0)
    lines = [f"{what:<{width}}  {text}" if what else text for what, text in facts]
    for purpose, words in commands.items():
        lines += [f"# {purpose}", *wrap_command(words)]
    return Group(*tables, *(_literal(line) for line in lines))


def wrap_command(words: Sequence[str]) -> list[str]:
    """Return the lines of a command for a shell, at most 80 columns wide if its words allow."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= COMMAND_WIDTH:
            lines[-1] += f" {word}"
        else:
            lines[-1] += " \\"
            lines.append(f" {word}")
    return lines


class Progress:
    """Shows how far training is: a live bar with a line below at a terminal, plain lines elsewhere. A context manager.

    The trainer asks `due()` at each update, and only then reads the loss from the device and calls `show`. The time left is
    computed from the mean time of an update since the start, validation included.

    Args:
        total: optimizer updates of the whole run.
        completed: updates done before this start of it.
        epochs: of the whole run.
        plain_seconds: time between two plain lines.
    """

    def __init__(self, total: int, completed: int, epochs: int, plain_seconds: float) -> None:
        self._total = total
        self._completed = completed
        self._epochs = epochs
        self._bar: _Bar | None = None
        self._interval = plain_seconds
        if console().is_interactive:
            self._interval = BAR_SECONDS
            # Without a refreshing thread: it is drawn in `show`, `validating` and under log lines only.
            self._bar = _Bar(
                BarColumn(bar_width=None),
                TextColumn("{task.description}", markup=False),
                console=console(),
                auto_refresh=False,
                expand=True,
            )
            self._task = self._bar.add_task("starting", total=total, completed=completed)
        self._start = time.monotonic()
        self._next = self._start + self._interval

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
        """Return whether it is time for new figures. Costs one reading of the clock."""
        return time.monotonic() >= self._next and not console().quiet

    def show(self, update: int, epoch: int, loss: float, tokens_per_second: float, best: str) -> None:
        """Show the state after `update` updates.

        Args:
            epoch: counted from 1.
            tokens_per_second: real target tokens, 0 in the warm-up.
            best: the best validation score so far, with its name; empty before the first validation.
        """
        speed = f"{tokens_per_second:,.0f} target tokens/s" if tokens_per_second else "warming up"
        self._print(update, [f"epoch {epoch}/{self._epochs}", f"loss {loss:.3f}", best, speed])

    def validating(self, update: int, epoch: int, best: str, done: int, total: int) -> None:
        """Show how many of the batches of a validation are done, if it is time; see `show`."""
        if self.due():
            self._print(update, [f"epoch {epoch}/{self._epochs}", f"validating {done}/{total}", best])

    def _print(self, update: int, parts: Sequence[str]) -> None:
        now = time.monotonic()
        self._next = now + self._interval
        done = update - self._completed
        left = "?"
        if done > 0:
            seconds = (now - self._start) / done * max(0, self._total - update)
            left = str(timedelta(seconds=round(seconds)))
        count, left = f"update {update:,}/{self._total:,}", f"{left} left"
        if self._bar:
            self._bar.line = "  ".join(filter(None, parts))
            self._bar.update(self._task, completed=update, description=f"{count}  {left}", refresh=True)
        else:
            first, *others = parts
            line = "  ".join(filter(None, [first, count, *others, left]))
            console().print(line, soft_wrap=True)


class _Bar(RichProgress):
    """A bar with a line of text below it, which is cut where the terminal ends."""

    line = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Return the bar and the line."""
        yield from super().get_renderables()
        yield Text(self.line, no_wrap=True, overflow="ellipsis")


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show at a terminal how many parts of some work are done; yields what is called with that number and the total."""
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
        task = bar.add_task(what, total=0)
        yield lambda done, total: bar.update(task, completed=done, total=total, refresh=True)


def _console(width: int | None) -> Console:
    return Console(markup=False, emoji=False, highlight=False, width=width)


def _table(title: str, first: str, *figures: str, show_footer: bool = False) -> Table:
    table = Table(title=title, title_justify="left", show_footer=show_footer)
    table.add_column(first, overflow="fold")
    for figure in figures:
        table.add_column(_literal(figure), justify="right")
    return table


def _text_table(title: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _literal(text: str) -> Text:
    # Byte-level models put out control characters too: written raw they would steer the terminal.
    return Text("".join(repr(c)[1:-1] if unicodedata.category(c) in ("Cc", "Cs") else c for c in text))
