"""Ends of a run that come from outside: a terminal that closes, standard output that cannot be written."""

import os
import pty
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from faults.rig import RANKS, Fault, Hook, Rig, Seen, at_step, send, valid

from seq2seq_lab.files import read_json_object
from seq2seq_lab.runtime import console


class Terminal:
    """A terminal for a child, whose other end a process holds that `close` kills."""

    def __init__(self) -> None:
        self.holder = 0

    def open(self) -> None:
        """Make it the controlling terminal and the standard streams of this process."""
        master, slave = pty.openpty()
        self.holder = os.fork()
        if self.holder == 0:
            os.setsid()
            os.close(slave)
            while os.read(master, 1000):
                pass
        os.close(master)
        os.close(os.open(os.ttyname(slave), os.O_RDWR))  # it becomes the controlling terminal
        for descriptor in (0, 1, 2):
            os.dup2(slave, descriptor)
        os.close(slave)
        os.tcsetpgrp(0, os.getpgrp())
        console.console.cache_clear()

    def close(self) -> None:
        """Hang up: the system sends SIGHUP, and the streams can no longer be read or written."""
        os.kill(self.holder, signal.SIGKILL)
        while os.isatty(1):
            time.sleep(0.01)


def closed_terminal(rig: Rig) -> Seen:
    """As at the end of an ssh session, of one process and of two ranks; `nohup`; the signals of schedulers."""
    seen = Seen()
    for settings in ((), (RANKS,)):
        terminal = Terminal()
        stopped(rig, seen, [terminal.open, at_step(4, terminal.close)], signal.SIGHUP, settings)
    for number in (signal.SIGUSR2, signal.SIGXCPU):
        stopped(rig, seen, [at_step(4, send(number))], number)
    terminal, folder = Terminal(), rig.new()

    def nohup() -> None:
        terminal.open()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    ended = rig.start(folder, hooks=[nohup, at_step(4, terminal.close)])
    recorded = read_json_object(folder / "result.json")
    seen.expect(ended.status == 0, f"nohup: status {ended.status}: {recorded.get('error')}")
    rig.check_same(seen, folder, rig.whole())
    return seen


def stopped(rig: Rig, seen: Seen, hooks: list[Hook], number: int, settings: tuple[str, ...] = ()) -> None:
    """Check that a signal in step 5 stops a run as SIGTERM does, and that it resumes."""
    folder = rig.new()
    ended = rig.start(folder, *settings, hooks=hooks)
    seen.expect(ended.status == 128 + number, f"{number}: status {ended.status}: {ended.output}")
    seen.expect(ended.orphans == 0, f"{number}: {ended.orphans} processes are left")
    result = read_json_object(folder / "result.json")
    seen.expect(result.get("status") == "preempted", f"{number}: {result}")
    seen.least("V", len(valid(folder)))
    ended = rig.resume(folder)
    seen.expect(ended.status == 0, ended.output)
    rig.check_same(seen, folder, rig.whole(*settings))


def to_pipe() -> None:
    """Make standard output a pipe without a reader, as after `| head`."""
    reader, writer = os.pipe()
    os.dup2(writer, 1)
    for descriptor in (reader, writer):
        os.close(descriptor)


def to_full_disk() -> None:
    """Make standard output a file on a full disk."""
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, 1)
    os.close(full)


def closed(*descriptors: int) -> Callable[[], None]:
    """Return a hook that starts the program without standard streams, as `>&- 2>&-` does."""

    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)
            name = ("stdin", "stdout", "stderr")[descriptor]
            for attribute in (name, f"__{name}__"):
                setattr(cast(Any, sys), attribute, None)

    return close


def lost_output(rig: Rig) -> Seen:
    """From the start and from step 5; then of a program that only prints."""
    seen = Seen()
    ends: dict[str, Callable[[], None]] = {
        "Broken pipe": to_pipe,
        "No space left on device": to_full_disk,
        "it is closed": closed(1),
    }
    for number, (reason, lose) in enumerate({**ends, "all closed": closed(0, 1, 2)}.items()):
        folder = rig.new()
        # A closed stream is one of the start.
        ended = rig.start(folder, hooks=[lose if number >= 2 else at_step(4, lose)])
        seen.expect(ended.status == 0, f"{reason}: status {ended.status}: {ended.output}")
        seen.expect(str(folder) not in ended.output, f"{reason}: the run folder is named: {ended.output}")
        seen.expect("warning: standard output" in ended.output or number >= 2, f"{reason}: no warning")
        rig.check_same(seen, folder, rig.whole())
        text = (folder / "run.log").read_text()
        seen.expect(number >= 2 or reason in text, f"{reason} is not in run.log")
        printing = rig.program(Path(folder).parent, "--version", hooks=[lose])
        if reason == "Broken pipe":
            seen.expect((printing.status, printing.output) == (1, ""), f"{printing}")
        else:
            seen.expect(printing.status == 2, f"{reason}: {printing}")
            seen.expect(
                f"standard output cannot be used: {reason}." in printing.output or number == 3, f"{printing}"
            )
        seen.count("runs", 2)
    return seen


def faults() -> Iterator[Fault]:
    """Return the rows of this module."""
    yield Fault(
        "42", "terminal closed", "a pty without its master, USR2, XCPU", "as SIGTERM", closed_terminal
    )
    yield Fault("43", "output lost", "no reader, /dev/full, closed", "the same run", lost_output)
