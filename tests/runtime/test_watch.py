"""When the ranks of a run make no progress."""

import time
from dataclasses import replace

import pytest

from seq2seq_lab.runtime import heartbeat, watch
from seq2seq_lab.runtime.heartbeat import Heartbeat
from seq2seq_lab.runtime.watch import Limits, Sign, find_stalled

LIMITS = Limits(before=300, after=100)
WORKS = Sign(round=5, idle=0.0, step=12, beats=90, activity="saving a checkpoint", waits=False, stepped=True)
WAITS = replace(WORKS, activity="backward", waits=True)
STARTS = replace(WORKS, step=0, beats=1, activity="reading the data", stepped=False)
STARTED = replace(STARTS, waits=True)
ENDED = replace(WORKS, ended=True)


@pytest.mark.parametrize(
    ("signs", "silent", "named"),
    [
        ([WORKS, WAITS], [0, 0], None),
        ([WORKS, replace(WAITS, idle=9999)], [0, 0], None),  # rank 0 works
        ([replace(WORKS, idle=99), WAITS], [0, 0], None),
        ([replace(WORKS, idle=101), WAITS], [0, 0], [0]),
        ([replace(WORKS, idle=60), WAITS], [41, 0], [0]),
        ([WAITS, WAITS], [0, 101], [1]),
        ([WAITS, replace(WAITS, idle=101)], [0, 0], None),  # rank 0 does not wait any more
        (
            [replace(WAITS, idle=101), replace(WAITS, idle=102, beats=80)],
            [0, 0],
            [1, 0],
        ),  # the last one first
        ([replace(WAITS, idle=101), replace(WAITS, idle=102, step=11)], [0, 0], [1, 0]),
        ([replace(STARTS, idle=299), STARTED], [0, 0], None),
        ([replace(STARTS, idle=301), STARTED], [0, 0], [0]),
        ([replace(STARTED, idle=299), replace(WAITS, idle=299)], [0, 0], None),
        ([ENDED, replace(WORKS, idle=9999)], [9999, 0], None),  # no rank waits for rank 1
        ([ENDED, replace(WAITS, idle=101)], [9999, 0], [1]),
        ([ENDED, ENDED], [9999, 9999], None),
    ],
)
def test_ranks_without_progress_are_named(
    signs: list[Sign], silent: list[float], named: list[int] | None
) -> None:
    message = find_stalled(signs, silent, LIMITS)
    if named is None:
        assert message is None
        return
    assert message is not None
    setting = "timeout_seconds=100" if signs[named[0]].stepped else "start_timeout_seconds=300"
    ranks = "; ".join(f"rank {rank} ({signs[rank]})" for rank in named)
    assert message.startswith(f"trainer.{setting}: no progress for ")
    assert f" s on {ranks}. " in message


def test_a_beat_and_processor_time_are_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    now = used = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(watch, "_processor_seconds", lambda: used)
    heart = Heartbeat()
    own = watch._OwnProgress(heart, LIMITS)

    def idle(seconds: float, processor: float = 0.0) -> float:
        nonlocal now, used
        now, used = now + seconds, used + processor
        return own.sign(ended=False)[1].idle

    assert idle(10) == 10
    assert idle(10, processor=0.1) == 20  # of the threads of the watch
    assert idle(10, processor=1.0) == 0
    heart.beat("backward", waits=True)
    assert idle(10) == 0
    assert idle(10, processor=10) == 10  # the host can wait for a GPU in a loop
    heart.beat("optimizer", waits=True)
    assert idle(10) == 0
    assert idle(9999) == LIMITS.before / 2  # this process was stopped, perhaps together with the others


def test_the_activity_of_a_rank_before_and_after_it_waits() -> None:
    heart = Heartbeat()
    heart.beat("scoring")
    with heart.waiting():
        assert (heart.activity, heart.waits) == ("scoring, waiting for the other ranks", True)
    assert (heart.activity, heart.waits) == ("scoring", False)
    assert heart.beats == 3


def test_the_position_in_a_step_does_not_count_earlier_beats() -> None:
    heart = Heartbeat()
    for _ in range(5):  # rank 0 saves checkpoints
        heart.beat("saving a checkpoint")
    heart.begin_step(7)
    heart.beat("forward")
    assert watch._OwnProgress(heart, LIMITS).sign(ended=False)[1].beats == 1


def test_a_step_is_completed_when_the_next_one_begins() -> None:
    heart = Heartbeat()
    heart.begin_step(7)
    assert not heart.stepped
    heart.begin_step(8)
    assert heart.stepped


def test_work_without_a_time_limit_beats_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.001)
    heart = Heartbeat()
    with heart.unlimited("saving a checkpoint"):
        before = heart.beats
        while heart.beats < before + 3:
            time.sleep(0.001)
    assert (heart.activity, heart.waits) == ("saving a checkpoint", False)
    ended = heart.beats
    time.sleep(0.02)
    assert heart.beats == ended
