"""Errors that the user can correct, and how programs report them."""

import argparse
import contextlib
import difflib
import errno
import os
import select
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn, TextIO

# Names of other libraries for values of this package. The value of nearest spelling would be a wrong suggestion.
SYNONYMS = {"gpu": "cuda", "float16": "fp16", "half": "fp16", "float32": "fp32", "bfloat16": "bf16"}


# What to do if the operating system cannot write a file.
STORAGE_REMEDIES = {
    errno.ENOSPC: "Free some disk space, or choose a folder on another disk",
    errno.EDQUOT: "Free some of your disk quota, or choose a folder on another disk",
    errno.EFBIG: "Raise the limit on the size of a file (ulimit -f)",
    errno.EROFS: "Choose a folder that can be written to",
    errno.EACCES: "Choose another path, or change its permissions",
    errno.EPERM: "Choose another path, or change its permissions",
}


# Characters that end or change the display of the text after them: direction overrides, and line separators.
MISLEADING = frozenset("\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: str, kept: str = "\n\t") -> str:
    """Return a text with control characters, such as those of terminals, written as escapes.

    Args:
        kept: the control characters that stay as they are.
    """
    return "".join(
        c.encode("unicode_escape").decode()
        if (unicodedata.category(c) in ("Cc", "Cs") or c in MISLEADING) and c not in kept
        else c
        for c in text
    )


def print_visible(text: object, file: TextIO | None = None) -> None:
    """Print a text that may come from a run: at a terminal with control characters as escapes, elsewhere as it is.

    Args:
        file: the stream; None for standard output.
    """
    stream = sys.stdout if file is None else file
    print(visible(str(text)) if stream.isatty() else text, file=stream)


class UserError(ValueError):
    """An error that the user can correct. Programs print its message without a traceback.

    The message states the key and the value, the allowed values, and what to do.
    """


class Preempted(KeyboardInterrupt):
    """A signal has stopped the run.

    Args:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_status(self) -> int:
        """The status with which a program exits."""
        return 128 + self.number


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UserError`."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}. See `{self.prog} --help`.")


@contextlib.contextmanager
def storage_errors(folder: Path | None = None) -> Iterator[None]:
    """Raise `UserError` in place of an `OSError` about a full disk, or a file or folder that must not be written or read.

    Args:
        folder: named if the error does not contain a path.
    """
    try:
        yield
    except OSError as error:
        path = error.filename or folder
        if path is None or error.errno not in STORAGE_REMEDIES:
            raise
        raise UserError(f"{path}: {error.strerror}. {STORAGE_REMEDIES[error.errno]}.") from error


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Print a `UserError` to standard error and exit with status 2; exit with 128 + N after signal N."""
    with exit_on_closed_pipe():
        try:
            with storage_errors():
                yield
        except UserError as error:
            sys.stdout.flush()
            print(f"error: {visible(str(error))}", file=sys.stderr)
            sys.exit(2)
        except Preempted as preempted:
            sys.exit(preempted.exit_status)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)


@contextlib.contextmanager
def exit_on_closed_pipe() -> Iterator[None]:
    """Exit with status 1 and no traceback if the reader of standard output, such as `head`, has closed it."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_gone():
            raise  # another pipe, for example to a process that has ended
        # Python flushes standard output on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _reader_gone() -> bool:
    """Return whether standard output is a pipe without a reader."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def require(holds: bool, key: str, value: object, allowed: str) -> None:
    """Raise `UserError` for the value of a key unless `holds` is true."""
    if not holds:
        raise UserError(f"{key}={value} is not allowed. Allowed: {allowed}.")


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest choices, or an empty string.

    The nearest choices are those that start with `word`, else the one with the most similar spelling.
    """
    known = list(choices)
    if SYNONYMS.get(word) in known:
        return f" Did you mean {SYNONYMS[word]!r}?"
    near = [choice for choice in known if len(word) > 2 and choice.startswith(word)]
    if not 0 < len(near) <= 4:
        near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
