"""Faults of one rank among several, of studies, of services and of the clock."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from faults.rig import (
    RANKS,
    SETTINGS,
    STEPS,
    Fault,
    Hook,
    Rig,
    Seen,
    at_evaluation,
    at_step,
    kill,
    losses,
    once,
    samples,
    valid,
)
from safetensors.torch import load_file

from seq2seq_lab.files import read_json_object
from seq2seq_lab.runtime import watch
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.tasks.base import EpochPlan
from seq2seq_lab.tasks.translation.task import TranslationTask
from seq2seq_lab.training.state import TrainState
from seq2seq_lab.training.step import TrainingStep

TIMEOUT = 4  # trainer.timeout_seconds of a rank that hangs
SLACK = 10  # seconds more on a busy machine
TIMEOUTS = ("trainer.start_timeout_seconds=30", f"trainer.timeout_seconds={TIMEOUT}")


def change_in_step(step: int, rank: int, what: str) -> Hook:
    """Multiply the loss or a gradient by NaN in a step of a rank, or add 1e-3 to a weight after it."""

    def hook() -> None:
        update = TrainingStep._update_weights

        def updating(training_step: TrainingStep, loss_sum: torch.Tensor, current: int) -> Any:
            if current != step or training_step.compute.ranks.rank != rank:
                return update(training_step, loss_sum, current)
            weight = next(training_step.model.parameters())
            if what == "loss":
                loss_sum = loss_sum * math.nan
            elif what == "gradient":
                assert weight.grad is not None
                weight.grad *= math.nan
            updated = update(training_step, loss_sum, current)
            if what == "weight":
                weight.data[0, 0] += 1e-3
            return updated

        TrainingStep._update_weights = updating  # type: ignore[method-assign]

    return hook


def not_finite(rig: Rig) -> Seen:
    seen = Seen()
    for what in ("loss", "gradient"):
        folder = rig.new()
        ended = rig.start(folder, RANKS, hooks=[change_in_step(6, 1, what)])
        seen.expect(ended.status == 0, ended.output)
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
        skipped = max(row.get("train/skipped_steps", 0) for row in rows)
        finite = all(
            bool(tensor.isfinite().all())
            for path in valid(folder)
            for tensor in load_file(path / "model.safetensors").values()
        )
        seen.expect(skipped == 1, f"{what}: {skipped} steps are counted")
        seen.expect(finite, f"{what}: a weight is not finite")
        seen.worst("skipped", skipped)
        seen.least("V", len(valid(folder)))
    return seen


def no_memory(rig: Rig) -> Seen:
    """An allocation that PyTorch refuses: in step 6 of one rank or of rank 1 of two, in a validation and in the test."""
    seen = Seen()

    def refused() -> None:
        torch.empty(2**50)

    def in_step() -> None:
        compute_loss = TranslationTask.loss

        def failing(task: TranslationTask, model: Any, batch: Any, step: Any) -> torch.Tensor:
            if step.step == 5 and os.environ.get("RANK", "1") == "1":
                refused()
            return compute_loss(task, model, batch, step)

        TranslationTask.loss = failing  # type: ignore[method-assign]

    def in_search(number: int) -> Hook:
        def hook() -> None:
            search, calls = GreedySearch.__call__, iter(range(10**6))

            def failing(*arguments: Any) -> Any:
                if next(calls) == number:
                    refused()
                return search(*arguments)

            GreedySearch.__call__ = failing  # type: ignore[method-assign, assignment]

        return hook

    batches = 2  # of a validation, and of the test
    cases = [(in_step, False), (in_step, True), (in_search(batches), False), (in_search(2 * batches), False)]
    for hook, several in cases:
        folder = rig.new()
        ended = rig.start(folder, *([RANKS] if several else []), hooks=[hook])
        error = str(read_json_object(folder / "result.json").get("error"))
        where, key = (
            ("step 6", "trainer.micro_batches")
            if hook is in_step
            else ("an evaluation", "task.eval_batch_size")
        )
        seen.expect(ended.status == 2, f"status {ended.status}: {ended.output}")
        seen.expect("Traceback" not in ended.output, ended.output)
        for part in (f"Out of memory in {where}", "source ", key):
            seen.expect(part in error, f"{part!r} is not in {error!r}")
        seen.worst("O", ended.orphans)
        seen.expect(ended.orphans == 0, f"{ended.orphans} orphans")
        seen.least("V", len(valid(folder)))
        seen.count("runs")
    seen.expect(seen.figures["V"] > 0, "no valid checkpoint")
    return seen


def hung_rank(rig: Rig) -> Seen:
    """A rank is stopped (SIGSTOP), or waits without end."""
    seen = Seen()

    for rank, stopped in ((0, True), (1, True), (1, False)):
        folder = rig.new()
        marker = folder.parent / "hung"

        def hang(marker: Path = marker, stopped: bool = stopped) -> None:
            time.sleep(2 * watch.INTERVAL)  # until the other rank has read what this rank does
            marker.touch()
            if stopped:
                os.kill(os.getpid(), signal.SIGSTOP)
            threading.Event().wait()

        ended = rig.start(folder, RANKS, *TIMEOUTS, hooks=[at_step(6, hang, rank)])
        error = str(read_json_object(folder / "result.json").get("error"))
        seen.expect(ended.status == 2, f"status {ended.status}: {ended.output}")
        seen.expect(f"on rank {rank} (step 7, backward)" in error, error)
        _detected(seen, marker, ended.orphans)
        seen.least("V", len(valid(folder)))
    return seen


def skipped_collective(rig: Rig) -> Seen:
    """Rank 1 does not take part in a sum over the ranks, so that they are one operation apart."""
    seen, folder = Seen(), rig.new()
    marker = folder.parent / "skipped"

    def hook() -> None:
        all_reduce, calls = Ranks.all_reduce, iter(range(10**6))

        def skipping(ranks: Ranks, tensor: torch.Tensor) -> torch.Tensor:
            if next(calls) == 6 and ranks.rank == 1:
                marker.touch()
                return tensor
            return all_reduce(ranks, tensor)

        Ranks.all_reduce = skipping  # type: ignore[method-assign]

    ended = rig.start(folder, RANKS, *TIMEOUTS, hooks=[hook])
    seen.expect(ended.status in (1, 2), f"status {ended.status}: {ended.output}")
    seen.expect(read_json_object(folder / "result.json").get("status") == "failed", "not recorded as failed")
    _detected(seen, marker, ended.orphans)
    seen.least("V", len(valid(folder)))
    return seen


def _detected(seen: Seen, marker: Path, orphans: int) -> None:
    """Add the seconds from a fault, at which its marker was written, until now."""
    seconds = time.time() - marker.stat().st_mtime
    seen.worst("T", round(seconds, 1))
    seen.expect(seconds < TIMEOUT + SLACK, f"detected after {seconds:.1f} s")
    seen.worst("O", orphans)
    seen.expect(orphans == 0, f"{orphans} orphans")


def drift(rig: Rig) -> Seen:
    seen, folder = Seen(), rig.new()
    ended = rig.start(folder, RANKS, hooks=[change_in_step(6, 1, "weight")])
    error = str(read_json_object(folder / "result.json").get("error"))
    seen.expect(ended.status == 2, f"status {ended.status}: {ended.output}")
    seen.expect("rank 1" in error and f"step {STEPS}" in error, error)
    seen.worst("O", ended.orphans)
    seen.expect(ended.orphans == 0, f"{ended.orphans} orphans")
    seen.least("V", len(valid(folder)))
    return seen


def other_number_of_ranks(rig: Rig) -> Seen:
    """2, 1 and 2 ranks with 2 micro-batches; the control has 2 ranks throughout."""
    seen, folder, settings = Seen(), rig.new(), (RANKS, "trainer.micro_batches=2")
    ended = rig.start(folder, *settings, hooks=[at_step(3, lambda: os.kill(os.getpid(), signal.SIGTERM))])
    seen.expect(ended.status == 143, ended.output)
    stop = at_step(6, lambda: os.kill(os.getpid(), signal.SIGTERM))
    ended = rig.resume(folder, "trainer.devices=1", hooks=[stop])
    seen.expect(ended.status == 143, ended.output)
    ended = rig.resume(folder, "trainer.devices=2")
    seen.expect(ended.status == 0, ended.output)
    if ended.status == 0:
        rig.check_same(seen, folder, rig.whole(*settings))
    return seen


def uneven_ranks(rig: Rig) -> Seen:
    """79 pairs in batches of 16, float64, without dropout: one rank and two."""
    seen, paths = Seen(), []
    for devices in (1, 2):
        folder = rig.new()
        settings = ("model.dropout=0", "teacher_forcing.ratio=1", "dataset.train=79")
        hook = lambda: torch.set_default_dtype(torch.float64)  # noqa: E731
        ended = rig.start(folder, *settings, f"trainer.devices={devices}", hooks=[hook])
        seen.expect(ended.status == 0, ended.output)
        paths.append(folder)
    one, two = ([float.fromhex(loss) for _, loss in losses(path)] for path in paths)
    worst = max(abs(a - b) / abs(a) for a, b in zip(one, two, strict=True))
    seen.figures["relative difference of a loss"] = f"{worst:.1g}"
    seen.expect(worst <= 1e-6, f"losses differ by {worst}")
    seen.expect(samples(paths[0].parent) == samples(paths[1].parent), "the ranks see other samples")
    return seen


def one_writer(rig: Rig) -> Seen:
    seen = Seen()
    steps = [step for step, _ in losses(rig.whole(RANKS))]
    lines = (rig.whole(RANKS) / "run.log").read_text("utf-8").splitlines()
    doubled = len(lines) - len(set(lines))
    seen.expect(steps == list(range(1, STEPS + 1)), f"rows of the steps {steps}")
    seen.expect(doubled == 0, f"{doubled} doubled lines")
    seen.figures["doubled lines"] = doubled + len(steps) - len(set(steps))
    return seen


def crashing_job(rig: Rig) -> Seen:
    seen, folder = Seen(), rig.new()
    statuses: dict[str, str] = {}

    def hook() -> None:
        step = TrainingStep.__call__

        def failing(training_step: TrainingStep, plan: EpochPlan, state: TrainState) -> Any:
            if training_step.seed == 2:
                raise ZeroDivisionError("injected")
            return step(training_step, plan, state)

        TrainingStep.__call__ = failing  # type: ignore[method-assign]

    ended = rig.program(folder.parent, *_study(), hooks=[hook])
    for path in _results(folder.parent):
        statuses[path.parent.name] = str(read_json_object(path)["status"])
    count = list(statuses.values()).count("finished")
    seen.expect(ended.status != 0, "exit status 0")
    seen.expect(count == 3, f"{statuses}")
    seen.expect("ZeroDivisionError: injected" in ended.output, "no message")
    seen.figures["finished"] = f"{count} of 4"
    return seen


def killed_study(rig: Rig) -> Seen:
    seen, folder = Seen(), rig.new()
    marker = folder.parent / "killed"

    def hook() -> None:
        at_evaluation(5, once(marker, kill))()  # in the second job

    ended = rig.program(folder.parent, *_study(), hooks=[hook])
    seen.expect(ended.status == -signal.SIGKILL, f"status {ended.status}: {ended.output}")
    finished = {path: path.stat().st_mtime_ns for path in _results(folder.parent)}
    again = rig.program(folder.parent, *_study())
    seen.expect(again.status == 0, again.output)
    kept = sum(path.stat().st_mtime_ns == before for path, before in finished.items())
    seen.expect(kept == len(finished) == 1, f"{kept} of {len(finished)} finished jobs are kept")
    seen.expect(len(_results(folder.parent)) == 4, "jobs have no result")
    seen.figures["jobs kept"] = kept
    seen.figures["finished"] = f"{len(_results(folder.parent))} of 4"
    return seen


def _study() -> tuple[str, ...]:
    return (*SETTINGS, "trainer.max_epochs=1", "study.name=faults", "seed=1,2,3,4", "-m")


def _results(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/result.json"))


def two_runs(rig: Rig) -> Seen:
    """The second one starts while the first one trains; two processes start at the same moment."""
    seen, folder = Seen(), rig.new()
    second: list[int] = []

    def start_second() -> None:
        process = os.fork()
        if process == 0:
            from command_line import run

            os._exit(run(f"resume={folder}"))
        _, status = os.waitpid(process, 0)
        (folder.parent / "second").write_text(str(os.waitstatus_to_exitcode(status)))

    ended = rig.start(folder, hooks=[at_step(3, start_second)])
    second.append(int((folder.parent / "second").read_text()))
    seen.expect(ended.status == 0, ended.output)
    seen.expect(second == [2], f"the second run ended with {second}")
    rig.check_same(seen, folder, rig.whole())
    folder = rig.new()
    command = [sys.executable, "-m", "seq2seq_lab", f"hydra.run.dir={folder}", *SETTINGS]
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(2)]
    errors = [process.communicate()[1].decode() for process in both]
    seen.expect(sorted(process.returncode for process in both) == [0, 2], f"{errors}")
    seen.expect("Traceback" not in "".join(errors), f"{errors}")
    seen.expect(read_json_object(folder / "result.json").get("status") == "finished", "not finished")
    seen.expect(losses(folder) == losses(rig.whole()), "other losses")
    return seen


def false_clock(rig: Rig) -> Seen:
    """`time.time` jumps a day back and a day ahead in turns."""
    seen, folder, clock = Seen(), rig.new(), time.time

    def hook() -> None:
        sign = 1

        def jumping() -> float:
            nonlocal sign
            sign = -sign
            return clock() + sign * 86_400

        time.time = jumping

    ended = rig.start(folder, hooks=[hook])
    seen.expect(ended.status == 0, ended.output)
    if ended.status == 0:
        rig.check_same(seen, folder, rig.whole())
    return seen


def faults() -> Iterator[Fault]:
    """Return the rows of this module."""
    yield Fault(
        "20", "other number of ranks", "2, 1, 2 ranks, 2 micro-batches", "resume exact", other_number_of_ranks
    )
    yield Fault("21", "uneven ranks", "79 pairs, float64", "1e-6 of one process", uneven_ranks)
    yield Fault(
        "22", "hung rank", f"SIGSTOP or a wait, time-out of {TIMEOUT} s", "the rank is named", hung_rank
    )
    yield Fault("23", "skipped collective", "rank 1 leaves out a sum", "all ranks end", skipped_collective)
    yield Fault("25", "NaN on one rank", "loss, gradient times NaN", "all ranks skip the step", not_finite)
    yield Fault("26", "ranks drift apart", "1e-3 added to a weight", "refused at the next validation", drift)
    yield Fault("27", "out of memory", "refused in a step, validation, test", "the batch is named", no_memory)
    yield Fault("31", "output of rank 1", "lines counted", "one writer", one_writer)
    yield Fault("32", "a job of a study fails", "exception in job 2 of 4", "the others finish", crashing_job)
    yield Fault(
        "33", "study killed", "SIGKILL in job 2 of 4, started again", "finished jobs kept", killed_study
    )
    yield Fault(
        "34", "two runs in one folder", "while it trains, same moment", "the second is refused", two_runs
    )
    yield Fault("35", "clock jumps", "a day back and a day ahead in turns", "the same run", false_clock)
