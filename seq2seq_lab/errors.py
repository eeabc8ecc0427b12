"""What a user did wrong, said so that the user can mend it."""

import argparse
import contextlib
import difflib
import os
import select
import sys
from collections.abc import Iterable, Iterator
from typing import NoReturn

# Words of other libraries for our values; the value of nearest spelling would be a wrong suggestion.
SYNONYMS = {"gpu": "cuda", "float16": "fp16", "half": "fp16", "float32": "fp32", "bfloat16": "bf16"}


class UserError(ValueError):
    """A mistake in what was asked for. The command line shows its message without a traceback.

    The message names the key, the value, what is allowed and the remedy.
    """


class Parser(argparse.ArgumentParser):
    """A parser of a command line whose mistakes are `UserError`s."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}. `{self.prog} --help` lists what can be given.")


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Print a user's mistake on standard error and end with status 2; end with 130 where the user interrupts."""
    with exit_on_closed_pipe():
        try:
            yield
        except UserError as error:
            sys.stdout.flush()
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)


@contextlib.contextmanager
def exit_on_closed_pipe() -> Iterator[None]:
    """End with status 1, without a traceback, when the reader of standard output (`| head`) has closed it."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_gone():
            raise  # another pipe: to a process that ended, for example
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes at its end
        sys.exit(1)


def _reader_gone() -> bool:
    """Return whether standard output is a pipe that nothing reads any more."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest choices, or an empty string.

    Nearest are those that begin with `word`, else the one closest in spelling.
    """
    known = list(choices)
    if SYNONYMS.get(word) in known:
        return f" Did you mean {SYNONYMS[word]!r}?"
    near = [choice for choice in known if len(word) > 2 and choice.startswith(word)]
    if not 0 < len(near) <= 4:
        near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
