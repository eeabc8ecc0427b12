"""Faults that stop a run or one of its processes."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from faults.rig import (
    RANKS,
    STEPS,
    Fault,
    Hook,
    Rig,
    Seen,
    at_evaluation,
    at_step,
    in_save,
    kill,
    losses,
    once,
    send,
    send_to_agent,
    valid,
)

from seq2seq_lab.files import read_json_object
from seq2seq_lab.training import checkpoint

INTERVAL = 2  # steps between two checkpoints
EVALUATIONS = 4  # of a run: two validations, then the scores of validation and test
VARIANTS = (
    (),
    ("tokenizer=bpe_dropout", "tokenizer.vocab_size=270"),
    ("task.r_drop=5",),
    ("task.batch_unit=tokens", "task.batch_size=150"),
    ("schedule=plateau", "schedule.patience=0", "trainer.validate_every=0.4"),
    ("trainer.patience=1", "trainer.validate_every=2", "trainer.validate_unit=step", "optimizer.lr=1e-9"),
)


def control(rig: Rig) -> Seen:
    seen = Seen()
    for settings in ((), (RANKS,)):
        folder = rig.new()
        ended = rig.start(folder, *settings)
        seen.expect(ended.status == 0, ended.output)
        rig.check_same(seen, folder, rig.whole(*settings))
    return seen


def stop_and_resume(rig: Rig, seen: Seen, hook: Hook, status: int, *settings: str) -> Path:
    """Start a run that a fault ends with a status, resume it, compare it with the uninterrupted one."""
    whole, folder = rig.whole(*settings), rig.new()
    stopped = rig.start(folder, *settings, hooks=[hook])
    seen.expect(stopped.status == status, f"status {stopped.status} instead of {status}: {stopped.output}")
    seen.worst("O", stopped.orphans)
    seen.expect(stopped.orphans == 0, f"{stopped.orphans} orphans")
    left = len(valid(folder))
    if left or len(losses(folder)) >= INTERVAL:
        seen.least("V", left)
    if not left:
        seen.expect(len(losses(folder)) < INTERVAL, "no valid checkpoint is left")
        folder = rig.new()  # it ended before its first checkpoint: start it again
        resumed = rig.start(folder, *settings)
    else:
        resumed = rig.resume(folder)
    seen.expect(resumed.status == 0, resumed.output)
    if resumed.status == 0:
        rig.check_same(seen, folder, whole)
    seen.count("runs")
    return folder


def killed_at_every_step(rig: Rig) -> Seen:
    seen = Seen()
    for settings in VARIANTS:
        steps = losses(rig.whole(*settings))[-1][0]
        places = [at_step(k, kill) for k in range(steps)]
        places += [at_evaluation(n, kill) for n in range(EVALUATIONS)] if settings == () else []
        for place in places:
            stop_and_resume(rig, seen, place, -signal.SIGKILL, *settings)
    seen.expect(seen.figures["R"] <= INTERVAL, f"{seen.figures['R']} steps recomputed")
    return seen


def three_preemptions(rig: Rig) -> Seen:
    seen, folder = Seen(), rig.new()
    for step in (5, 6, 8):
        start = rig.resume if step > 5 else rig.start
        ended = start(folder, hooks=[at_step(step, send(signal.SIGTERM))])
        seen.expect(ended.status == 143, f"status {ended.status}: {ended.output}")
    seen.expect(rig.resume(folder).status == 0, "cannot be resumed")
    rig.check_same(seen, folder, rig.whole())
    seen.expect(seen.figures["R"] == 0, "steps are recomputed")
    return seen


def fifty_preemptions(rig: Rig) -> Seen:
    """A run of 55 steps is stopped after every step but the last five."""
    seen, folder, settings = Seen(), rig.new(), ("trainer.max_epochs=11", "trainer.validate_every=11")
    for step in range(50):
        hooks = [at_step(step, send(signal.SIGTERM))]
        ended = rig.resume(folder, hooks=hooks) if step else rig.start(folder, *settings, hooks=hooks)
        seen.expect(ended.status == 143, f"step {step + 1}: status {ended.status}: {ended.output}")
        seen.count("runs")
    seen.expect(rig.resume(folder).status == 0, "cannot be resumed")
    rig.check_same(seen, folder, rig.whole(*settings))
    return seen


def preempted_at_the_end(rig: Rig) -> Seen:
    seen = Seen()
    for step in (STEPS // 2 - 1, STEPS - 1):
        folder = stop_and_resume(rig, seen, at_step(step, send(signal.SIGTERM)), 143)
        steps = [number for number, _ in losses(folder)]
        seen.expect(steps == list(range(1, STEPS + 1)), f"steps {steps}")
    return seen


def sigterm_to_the_agent(rig: Rig) -> Seen:
    """In a step, at the edge of an epoch, in a validation, in the search of the test, and in a save."""
    seen, action = Seen(), send_to_agent(signal.SIGTERM)
    places = [at_step(6, action), at_step(4, action), at_evaluation(0, action), at_evaluation(3, action)]
    for place in (*places, in_save(1, 3, action)):
        stop_and_resume(rig, seen, place, 143, RANKS)
    seen.expect(seen.figures["R"] == 0, f"{seen.figures['R']} steps recomputed")
    return seen


def signal_to_one_rank(rig: Rig) -> Seen:
    seen = Seen()
    for rank in (0, 1):
        for number, status in ((signal.SIGTERM, 143), (signal.SIGUSR1, 138)):
            stop_and_resume(rig, seen, at_step(6, send(number), rank), status, RANKS)
    seen.expect(seen.figures["R"] == 0, f"{seen.figures['R']} steps recomputed")
    return seen


def two_signals(rig: Rig) -> Seen:
    """Two SIGTERMs; SIGTERM, then SIGKILL in the save that it leads to."""
    seen = Seen()

    def twice() -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)

    stop_and_resume(rig, seen, at_step(6, twice), 143)

    def hook() -> None:
        at_step(6, send(signal.SIGTERM))()
        in_save(4, 4, kill)()

    stop_and_resume(rig, seen, hook, -signal.SIGKILL)
    return seen


def killed_in_a_save(rig: Rig) -> Seen:
    """After each operation on files of a save, of a new checkpoint and of one that replaces another."""
    seen = Seen()
    for number in (2, 0):  # the third save of a new run also prunes; the first after a validation replaces
        for place in range(100):
            folder = rig.new()
            start, before = rig.start, Seen()
            if number == 0:
                stopped = rig.start(folder, hooks=[at_evaluation(0, send(signal.SIGTERM))])
                before.expect(stopped.status == 143, stopped.output)
                start = rig.resume
            killed = start(folder, hooks=[in_save(number, place, kill)])
            if killed.status == 0:
                break
            seen.problems += before.problems
            _check_killed(rig, seen, folder, killed.status, (number, place))
        seen.expect(place > 10, f"only {place} operations")
    return seen


def _check_killed(rig: Rig, seen: Seen, folder: Path, status: int, where: Sequence[int]) -> None:
    seen.expect(status == -signal.SIGKILL, f"{where}: status {status}")
    replaced = [
        path for path in (folder / "checkpoints").glob(".*.replaced") if checkpoint.damage(path) is None
    ]
    left = len(valid(folder)) + len(replaced)
    seen.least("V", left)
    damaged = len(list((folder / "checkpoints").glob("step_*"))) - len(valid(folder))
    seen.expect(left >= 1 and damaged == 0, f"{where}: {left} valid, {damaged} damaged checkpoints")
    resumed = rig.resume(folder)
    seen.expect(resumed.status == 0, f"{where}: {resumed.output}")
    if resumed.status == 0:
        rig.check_same(seen, folder, rig.whole())
    seen.count("runs")


def killed_rank(rig: Rig) -> Seen:
    seen = Seen()
    for ranks, rank in ((2, 0), (2, 1), (3, 2), (4, 3)):
        folder, settings = rig.new(), f"trainer.devices={ranks}"
        marker = folder.parent / "killed"
        ended = rig.start(folder, settings, hooks=[at_step(6, once(marker, kill), rank)])
        seen.expect(ended.status == 0, ended.output)
        seen.expect(marker.exists(), "nothing was killed")
        detected = _restarted(folder) - marker.stat().st_mtime
        seen.worst("T", round(detected, 1))
        seen.expect(detected <= 10, f"restarted after {detected:.1f} s")
        seen.worst("O", ended.orphans)
        seen.expect(ended.orphans == 0, f"{ended.orphans} orphans")
        rig.check_same(seen, folder, rig.whole(settings))
        seen.count("runs")
    return seen


def _restarted(folder: Path) -> float:
    """Return the time of the log's first restart, rounded up to a second."""
    line = next(line for line in (folder / "run.log").read_text("utf-8").splitlines() if "Restart 1" in line)
    return time.mktime(time.strptime(line[:19], "%Y-%m-%d %H:%M:%S")) + 1


def three_and_four_ranks(rig: Rig) -> Seen:
    """SIGTERM to the last rank in a step, SIGKILL of the parent of the ranks in the next one."""
    seen = Seen()
    for ranks in (3, 4):
        settings = f"trainer.devices={ranks}"
        stop_and_resume(rig, seen, at_step(6, send(signal.SIGTERM), ranks - 1), 143, settings)
        killed = at_step(7, send_to_agent(signal.SIGKILL))
        stop_and_resume(rig, seen, killed, -signal.SIGKILL, settings)
    return seen


def killed_agent(rig: Rig) -> Seen:
    seen: Seen = Seen()
    stop_and_resume(rig, seen, at_step(6, send_to_agent(signal.SIGKILL)), -signal.SIGKILL, RANKS)
    return seen


def exception_on_one_rank(rig: Rig) -> Seen:
    seen = Seen()

    def fail() -> None:
        raise ZeroDivisionError("injected")

    for rank in (0, 1):
        folder = rig.new()
        ended = rig.start(folder, RANKS, hooks=[at_step(6, fail, rank)])
        error = read_json_object(folder / "result.json").get("error", "")
        seen.expect(ended.status == 1, f"status {ended.status}: {ended.output}")
        seen.expect("ZeroDivisionError: injected" in ended.output, "no traceback on the console")
        seen.expect("ZeroDivisionError: injected" in error, f"result.json: {error}")
        seen.expect(ended.output.count("ZeroDivisionError: injected") == 1, "the traceback is repeated")
        seen.worst("O", ended.orphans)
        seen.expect(ended.orphans == 0, f"{ended.orphans} orphans")
        seen.least("V", len(valid(folder)))
    return seen


def faults() -> Iterator[Fault]:
    """Return the rows of this module."""
    exact = "resume exact"
    yield Fault("1", "control", "run twice, 1 and 2 ranks", "identical", control)
    yield Fault(
        "2",
        "kill at every step",
        "SIGKILL in each step and evaluation, 6 settings",
        exact,
        killed_at_every_step,
    )
    yield Fault("3", "kill a rank", "SIGKILL of one of 2, 3, 4 ranks", "the group restarts", killed_rank)
    yield Fault(
        "4", "kill the agent", "SIGKILL of the parent of the ranks", f"no orphans, {exact}", killed_agent
    )
    yield Fault(
        "5",
        "SIGTERM to the agent",
        "in step, epoch's end, validation, test, save",
        f"exit status 143, {exact}",
        sigterm_to_the_agent,
    )
    yield Fault(
        "6",
        "signal to one rank",
        "SIGTERM, SIGUSR1 to each rank",
        "both stop at one step",
        signal_to_one_rank,
    )
    yield Fault("7", "two signals", "SIGTERM twice; SIGKILL in the save", "one valid checkpoint", two_signals)
    yield Fault("8", "kill inside a save", "SIGKILL after each operation", "old or new", killed_in_a_save)
    yield Fault("9", "three preemptions in an epoch", "SIGTERM in steps 6, 7, 9", exact, three_preemptions)
    yield Fault(
        "10", "preempted in a last batch", "SIGTERM, of epoch and run", "exact count", preempted_at_the_end
    )
    yield Fault(
        "24",
        "exception on one rank",
        "raised on rank 0, on rank 1",
        "one traceback, exit status 1",
        exception_on_one_rank,
    )
    yield Fault(
        "39",
        "three and four ranks",
        "SIGTERM to a rank, SIGKILL of their parent",
        exact,
        three_and_four_ranks,
    )
    yield Fault("38", "fifty preemptions", "SIGTERM in each of 50 steps", exact, fifty_preemptions)
