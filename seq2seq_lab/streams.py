"""The standard streams of a program, which can be closed, full or without a reader.

`import seq2seq_lab` replaces no stream: a program does it with `guarded`, a run with `optional_output`.
"""

import contextlib
import errno
import io
import logging
import os
import select
import sys
from collections.abc import Iterator
from typing import Any

INPUT, OUTPUT, ERRORS = "standard input", "standard output", "standard error"
CLOSED = OSError(errno.EBADF, "it is closed")

log = logging.getLogger(__name__)


class StreamError(OSError):
    """A standard stream cannot be read or written. `filename` is its name, such as "standard output"."""


class _Stream(io.FileIO):
    """A standard stream. After an error, its descriptor is `/dev/null`, and output is lost.

    Args:
        lost: the error that made it unusable before it was opened.
        needed: whether an error is raised; otherwise it is reported once.
    """

    def __init__(self, descriptor: int, name: str, lost: OSError | None, needed: bool) -> None:
        super().__init__(descriptor, "r" if name == INPUT else "w", closefd=False)
        self._name = name
        self._lost = lost
        self.needed = needed

    def readinto(self, buffer: Any) -> int:
        """Raise `StreamError`: only a closed standard input is replaced."""
        raise self._error()

    def write(self, data: Any) -> int:
        """Write bytes, or discard them. Waits for the reader of a pipe that is in non-blocking mode."""
        while self._lost is None:
            try:
                written = super().write(data)
            except OSError as error:
                self._lose(error)
                break
            if written is not None:
                return written
            select.select([], [self], [])
        if self.needed:
            raise self._error()
        return len(data)

    def _lose(self, error: OSError) -> None:
        self._lost = error
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, self.fileno())  # Python flushes standard output on exit
        os.close(null)
        if self.needed:
            return
        message = f"{self._name} cannot be written: {error.strerror}. The program continues without it."
        if logging.root.handlers:
            log.warning(message, extra={"console": False})  # in run.log
        if self._name == OUTPUT:
            # Not `sys.stderr`: a progress bar sends it to standard output.
            with contextlib.suppress(OSError):
                os.write(2, f"warning: {message}\n".encode())

    def _error(self) -> StreamError:
        lost = self._lost or CLOSED
        return StreamError(lost.errno, lost.strerror, self._name)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Replace the standard streams of this process in the block.

    Standard output raises `StreamError` if it cannot be written, except in `optional_output`. Standard error raises nothing.
    A character that the encoding of a stream does not have is written as its code point, such as \\u05d0.
    A closed descriptor is opened, since the next file that is opened would get its number and receive what is printed.
    Streams that are not those of the process, as in a notebook, remain.
    """
    replaced = []
    _open_closed_descriptors()
    for attribute, name in (("stdin", INPUT), ("stdout", OUTPUT), ("stderr", ERRORS)):
        stream = getattr(sys, attribute)
        if stream is getattr(sys, f"__{attribute}__") and (stream is None or name != INPUT):
            new, raw = _replacement(stream, name)
            replaced.append((attribute, stream, new, raw))
            setattr(sys, attribute, new)
    try:
        yield
    finally:
        for attribute, stream, new, raw in replaced:
            setattr(sys, attribute, stream)
            raw.needed = False  # what is left after an error is discarded
            new.flush()


def _replacement(stream: Any, name: str) -> tuple[io.TextIOWrapper, _Stream]:
    if stream is None:
        descriptor, lost = os.open(os.devnull, os.O_RDWR), CLOSED
    else:
        stream.flush()
        descriptor, lost = stream.fileno(), None
    raw = _Stream(descriptor, name, lost, needed=name != ERRORS)
    text = io.TextIOWrapper(
        io.BufferedReader(raw) if name == INPUT else io.BufferedWriter(raw),
        encoding=getattr(stream, "encoding", "utf-8"),
        # A terminal of Windows or with LANG=C has no encoding for most scripts.
        errors="strict" if name == INPUT else "backslashreplace",
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )
    return text, raw


def _open_closed_descriptors() -> None:
    """Open `/dev/null` on those of the descriptors 0, 1 and 2 that are closed; child processes inherit it."""
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(null, True)
    os.close(null)


@contextlib.contextmanager
def optional_output() -> Iterator[None]:
    """Continue without standard output in the block if it cannot be written: a run has its results in its folder."""
    with guarded():
        raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
        if not isinstance(raw, _Stream):
            yield
            return
        before, raw.needed = raw.needed, False
        try:
            yield
            sys.stdout.flush()
        finally:
            raw.needed = before
