"""The progress bar of long work: on standard error, at a terminal, after a delay, with the items unchanged."""

import io
import logging

import pytest
import rich.console

from seq2seq_lab.data import progress as module
from seq2seq_lab.data.progress import progress
from seq2seq_lab.runtime import console


@pytest.fixture
def screen(monkeypatch):
    """What is drawn; work counts as long after no time at all, and each item is shown."""
    drawn = io.StringIO()
    make = rich.console.Console

    def console(stderr):
        assert stderr
        return make(file=drawn, force_terminal=True, force_interactive=True, width=100)

    monkeypatch.setattr(rich.console, "Console", console)
    monkeypatch.setattr(module, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.0)
    return drawn


def test_long_work_is_drawn_by_items_or_by_a_position(screen):
    assert list(progress("abcd", "Reading [x]", 4)) == list("abcd")
    assert "Reading [x]" in screen.getvalue()
    assert " 75%" in screen.getvalue()
    done = iter(range(0, 1000, 10))
    assert list(progress(range(5), "Bytes", 100, lambda: next(done))) == list(range(5))
    assert " 40%" in screen.getvalue()
    assert " 80%" not in screen.getvalue()


def test_short_work_is_not_drawn(screen, monkeypatch):
    monkeypatch.setattr(module, "AFTER_SECONDS", 60.0)
    assert list(progress("abcd", "Reading", 4)) == list("abcd")
    assert screen.getvalue() == ""


def test_a_quiet_rank_prints_nothing(screen, monkeypatch):
    monkeypatch.setattr(console.console(), "quiet", True)
    assert list(progress("abcd", "Reading", 4)) == list("abcd")
    assert screen.getvalue() == ""


def test_without_a_terminal_lines_are_logged(monkeypatch, capsys, caplog):
    monkeypatch.setattr(module, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(module, "LINE_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "seq2seq_lab")
    assert list(progress(iter("abcd"), "Reading")) == list("abcd")
    assert list(progress(iter("abcd"), "Writing", 4)) == list("abcd")
    assert capsys.readouterr() == ("", "")
    assert caplog.messages[2:6] == ["Reading: 2", "Reading: 3", "Writing: 0%", "Writing: 25%"]
    monkeypatch.setattr(module, "LINE_SECONDS", 60.0)
    caplog.clear()
    assert list(progress(iter("abcd"), "Reading")) == list("abcd")
    assert caplog.messages == ["Reading: 0"]


def test_the_bar_ends_with_the_work_however_it_ends(screen):
    def broken():
        yield "a"
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        list(progress(broken(), "Reading", 2))
    shown = progress("abcd", "Reading", 4)
    next(shown)
    shown.close()
    show_cursor = "\x1b[?25h"
    assert screen.getvalue().count(show_cursor) == 2
