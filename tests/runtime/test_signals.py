"""Signals that ask a run to stop."""

import os
import signal

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from seq2seq_lab.errors import Preempted
from seq2seq_lab.runtime import signals
from seq2seq_lab.runtime.signals import StopSignals


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_ends_the_block_at_once_or_is_kept(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Preempted) as ended, StopSignals(None).handled():
        send(number)
    assert ended.value.exit_status == 128 + number
    stop = StopSignals(None)
    stop.deferred = True
    with stop.handled():
        send(number)
        assert stop.received == number
        with pytest.raises(Preempted):
            stop.check()
    assert signal.getsignal(number) is before


def test_only_a_later_second_interrupt_ends_the_block_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(signals.time, "monotonic", lambda: now)
    stop = StopSignals(None)
    stop.deferred = True
    with stop.handled():
        send(signal.SIGINT)
        now += 0.5
        send(signal.SIGINT)  # of the same Ctrl-C
        now += 1
        with pytest.raises(KeyboardInterrupt) as ended:
            send(signal.SIGINT)
    assert not isinstance(ended.value, Preempted)


def test_a_second_sigterm_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(signals.time, "monotonic", lambda: now)
    stop = StopSignals(None)
    stop.deferred = True
    with stop.handled():
        send(signal.SIGTERM)
        now += 10
        send(signal.SIGTERM)
    assert stop.received == signal.SIGTERM


def test_ranks_in_an_evaluation_stop_after_a_signal_to_one() -> None:
    store = HashStore()
    one, other, third = (StopSignals(store) for _ in range(3))
    other.check()
    with pytest.raises(RuntimeError, match="out of memory"), other.evaluation():
        raise RuntimeError("out of memory")
    one.received = signal.SIGUSR1
    with pytest.raises(Preempted):
        one.check()
    with pytest.raises(Preempted) as ended, other.evaluation():
        raise RuntimeError("connection closed by peer")
    assert ended.value.number == signal.SIGUSR1
    with pytest.raises(Preempted) as ended:
        third.checked(lambda done, total: None)(1, 2)
    assert ended.value.number == signal.SIGUSR1
