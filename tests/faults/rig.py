"""Runs of the program in forked children, faults injected into them, and what a fault costs."""

import io
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import command_line
import torch
from forked_ranks import forked_ranks
from safetensors.torch import load_file

from seq2seq_lab.files import read_json_object
from seq2seq_lab.launching import launch
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.heartbeat import heartbeat
from seq2seq_lab.tasks.base import EpochPlan
from seq2seq_lab.tasks.translation.evaluation import TranslationEvaluator
from seq2seq_lab.training import checkpoint
from seq2seq_lab.training.step import TrainingStep

SETTINGS = (
    *("dataset=grammar", "dataset.train=80", "dataset.validation=4", "dataset.test=4"),
    *(
        "dataset.test_compositional=0",
        "search.max_length_factor=0",
        "dataset.max_depth=2",
        "model.embedding_size=8",
        "model.hidden_size=8",
    ),
    *("model.encoder_hidden_size=4", "model.dropout=0.3", "teacher_forcing.ratio=0.5", "trainer.device=cpu"),
    *("trainer.precision=fp32", "task.samples=0", "trainer.log_every_steps=1", "task.batch_size=16"),
    *("trainer.max_epochs=2", "task.eval_batch_size=2", "trainer.checkpoint_every_steps=2", "logger=none"),
)
STEPS = 10  # of a run with these settings, 5 in an epoch
RANKS = "trainer.devices=2"
MOST_RANKS = 4  # also on a machine with fewer cores
LIMIT = 120.0  # seconds for a run
ORPHAN_SECONDS = 5.0  # for the processes of a run to end after it

Action = Callable[[], object]
Hook = Callable[[], object]
"""Called in the child before the program starts. It patches the program."""


@dataclass(frozen=True)
class Ended:
    """How a child has ended. The status is the negative number of the signal that ended it.

    Attributes:
        orphans: number of processes of its session that it left.
    """

    status: int
    output: str
    seconds: float
    orphans: int


@dataclass
class Seen:
    """What a fault has led to: the problems, none if it is as expected, and the figures of the table."""

    problems: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def expect(self, holds: bool, problem: str) -> None:
        """Add a problem unless the expectation holds."""
        if not holds:
            self.problems.append(problem)

    def worst(self, name: str, value: float) -> None:
        """Keep the greatest value of a figure."""
        self.figures[name] = max(value, self.figures.get(name, value))

    def least(self, name: str, value: float) -> None:
        """Keep the smallest value of a figure."""
        self.figures[name] = min(value, self.figures.get(name, value))

    def count(self, name: str, value: int = 1) -> None:
        """Add to a figure."""
        self.figures[name] = self.figures.get(name, 0) + value


@dataclass(frozen=True)
class Fault:
    """A row of the table."""

    row: str
    name: str
    injected: str
    expected: str
    run: Callable[["Rig"], Seen]


class Rig:
    """Folders for runs, the runs themselves, and what they are compared with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stopped: Path | None = None  # see `damage.interrupted`
        self._whole: dict[tuple[str, ...], Path] = {}

    def new(self) -> Path:
        """Return a new path for a run, in an empty folder."""
        return Path(tempfile.mkdtemp(dir=self.folder)) / "run"

    def warm_up(self) -> None:
        """Run once in this process, so that children need not import what a run imports."""
        folder = self.new()
        with redirect_stdout(io.StringIO()):
            status = command_line.run(f"hydra.run.dir={folder}", *SETTINGS, "trainer.fast_dev_run=true")
        assert status == 0
        console.console.cache_clear()  # it writes to the standard output of now

    def whole(self, *settings: str) -> Path:
        """Return the uninterrupted run with these settings."""
        if settings not in self._whole:
            folder = self.new()
            ended = self.start(folder, *settings)
            assert ended.status == 0, ended.output
            self._whole[settings] = folder
        return self._whole[settings]

    def start(self, folder: Path, *settings: str, hooks: Sequence[Hook] = ()) -> Ended:
        """Start a run in a child."""
        return self.program(folder.parent, f"hydra.run.dir={folder}", *SETTINGS, *settings, hooks=hooks)

    def resume(self, folder: Path, *settings: str, hooks: Sequence[Hook] = ()) -> Ended:
        """Resume a run in a child."""
        return self.program(folder.parent, f"resume={folder}", *settings, hooks=hooks)

    def program(
        self, folder: Path, *arguments: str, hooks: Sequence[Hook] = (), limit: float = LIMIT
    ) -> Ended:
        """Run the command line in a child, in a folder that receives its samples, for a number of seconds at most."""

        def work() -> int:
            os.chdir(folder)
            launch.cores = lambda: list(range(MOST_RANKS))  # type: ignore[assignment]
            record_samples(folder / "samples.jsonl")
            for hook in hooks:
                hook()
            with forked_ranks():
                return command_line.run(*arguments)

        return in_child(work, limit)

    def check_same(self, seen: Seen, folder: Path, whole: Path) -> None:
        """Compare a resumed run with the uninterrupted one, and add the figures L, P, D and R."""
        status = read_json_object(folder / "result.json").get("status")
        seen.expect(status == "finished", f"status={status}")
        mismatches = differing_losses(folder, whole)
        same = same_tensors(folder, whole)
        samples = differing_samples(folder.parent, whole.parent)
        seen.worst("L", mismatches)
        seen.figures["P"] = "equal" if same and seen.figures.get("P", "equal") == "equal" else "differ"
        seen.worst("D", samples)
        seen.worst("R", recomputed(folder.parent))
        seen.expect(mismatches == 0, f"{mismatches} losses differ")
        seen.expect(same, "final weights or optimizer differ")
        seen.expect(samples == 0, f"{samples} samples differ")


def in_child(work: Callable[[], int], limit: float = LIMIT) -> Ended:
    """Call a function in a forked child, in a session of its own, and return how it ended.

    Processes of the session that are left after 5 seconds are counted and killed.
    """
    sys.stdout.flush()
    with tempfile.TemporaryFile() as output:
        start = time.monotonic()
        process = os.fork()
        if process == 0:
            os.setsid()
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # not those of pytest
            status = 1
            try:
                status = work()
            except BaseException:  # reported to the parent as the output
                traceback.print_exc()
            finally:
                for stream in (sys.stdout, sys.stderr):
                    with suppress(OSError, AttributeError):  # the fault has closed it
                        stream.flush()
                os._exit(status)
        status, timed_out = _wait(process, limit)
        seconds = time.monotonic() - start
        orphans = _orphans(process)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return Ended(status, f"no end after {limit} s\n{text}" if timed_out else text, seconds, orphans)


def _wait(process: int, limit: float) -> tuple[int, bool]:
    """Return the status of a child, and whether it was killed at its limit in seconds."""
    until, timed_out = time.monotonic() + limit, False
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), timed_out
        if time.monotonic() > until:
            os.kill(process, signal.SIGKILL)
            timed_out = True
        time.sleep(0.01)


def session(leader: int) -> list[int]:
    """Return the processes of a session, without those that have ended."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def _orphans(leader: int) -> int:
    until = time.monotonic() + ORPHAN_SECONDS
    while (left := session(leader)) and time.monotonic() < until:
        time.sleep(0.02)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return len(left)


def record_samples(path: Path) -> None:
    """Record the examples of each step: a line with the step, the rank and the indices."""
    share = EpochPlan.share

    def recorded(plan: EpochPlan, step: int, rank: int, ranks: int, micro_batches: int) -> Any:
        own = share(plan, step, rank, ranks, micro_batches)
        indices = sorted(int(i) for parts in own.values() for chunk in parts for i in chunk)
        with path.open("a") as file:
            file.write(json.dumps([heartbeat.step, rank, indices]) + "\n")
        return own

    EpochPlan.share = recorded  # type: ignore[method-assign]


def at_step(place: int, action: Action, rank: int = 0) -> Hook:
    """Call an action between the backward pass and the update of a step, counted from 0."""

    def hook() -> None:
        update = TrainingStep._update_weights

        def updating(training_step: TrainingStep, loss_sum: torch.Tensor, current: int) -> Any:
            if current == place and training_step.compute.ranks.rank == rank:
                action()
            return update(training_step, loss_sum, current)

        TrainingStep._update_weights = updating  # type: ignore[method-assign]

    return hook


def at_evaluation(place: int, action: Action, rank: int = 0) -> Hook:
    """Call an action in an evaluation, counted from 0: first the validations, then the scores of the best checkpoint."""

    def hook() -> None:
        evaluate, calls = TranslationEvaluator.__call__, 0

        def evaluating(evaluator: TranslationEvaluator, final: bool = False, counted: Any = None) -> Any:
            nonlocal calls
            if calls == place and evaluator.compute.ranks.rank == rank:
                action()
            calls += 1
            return evaluate(evaluator, final, counted)

        TranslationEvaluator.__call__ = evaluating  # type: ignore[method-assign]

    return hook


def in_save(number: int, place: int, action: Action) -> Hook:
    """Call an action after an operation on files, counted from 0, of the save of this number, counted from 0."""

    def hook() -> None:
        save, prune, saves, operations, active = checkpoint.save, checkpoint.prune, 0, 0, False

        def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                nonlocal operations
                result = operation(*arguments, **named)
                if active:
                    if operations == place:
                        action()
                    operations += 1
                return result

            return call

        def saving(*arguments: Any, **named: Any) -> Any:
            nonlocal active, saves
            active, saves = saves == number, saves + 1
            return save(*arguments, **named)

        def pruning(*arguments: Any) -> None:
            nonlocal active
            prune(*arguments)
            active = False

        checkpoint.save, checkpoint.prune = saving, pruning
        for name in ("save_file", "_write_json", "flush"):
            setattr(checkpoint, name, counted(getattr(checkpoint, name)))
        for owner, name in ((Path, "mkdir"), (Path, "rename"), (checkpoint.shutil, "rmtree")):
            setattr(owner, name, counted(getattr(owner, name)))

    return hook


def kill() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def send(number: int) -> Action:
    """Return an action that sends this process a signal."""
    return lambda: os.kill(os.getpid(), number)


def send_to_agent(number: int) -> Action:
    """Return an action that sends the process that has started this rank a signal."""
    return lambda: os.kill(os.getppid(), number)


def once(marker: Path, action: Action) -> Action:
    """Return an action that is done in the first call only, also of several processes."""

    def do() -> None:
        with suppress(FileExistsError):
            marker.touch(exist_ok=False)
            action()

    return do


def losses(folder: Path) -> list[tuple[int, str]]:
    """Return step and training loss, in hexadecimal, of the rows of a run."""
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []
    return [(row["step"], float(row["train/loss"]).hex()) for row in rows if "train/loss" in row]


def differing_losses(folder: Path, whole: Path) -> int:
    """Return the number of losses that only one of two runs has."""
    one, other = Counter(losses(folder)), Counter(losses(whole))
    return max((one - other).total(), (other - one).total())


def same_tensors(folder: Path, whole: Path) -> bool:
    """Return whether the newest checkpoints of two runs are at the same step and equal to the bit."""
    paths = [checkpoint.newest(run / "checkpoints") for run in (folder, whole)]
    one, other = (
        {
            (file, name): tensor
            for file in ("model", "optimizer", "task")
            for name, tensor in load_file(path / f"{file}.safetensors").items()
        }
        for path in paths
    )
    equal = one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
    return paths[0].name == paths[1].name and equal


def samples(folder: Path) -> Mapping[int, list[int]]:
    """Return the examples of each step of the run in a folder; a step that was computed again counts once."""
    last = {}
    for line in (folder / "samples.jsonl").read_text().splitlines():
        step, rank, indices = json.loads(line)
        last[step, rank] = indices
    steps: dict[int, list[int]] = {}
    for (step, _), indices in sorted(last.items()):
        steps[step] = sorted(steps.get(step, []) + indices)
    return steps


def differing_samples(folder: Path, whole: Path) -> int:
    """Return the number of examples that a step of one run has and the same step of the other has not."""
    one, other = samples(folder), samples(whole)
    return sum(
        (Counter(one.get(step, [])) - Counter(other.get(step, []))).total()
        + (Counter(other.get(step, [])) - Counter(one.get(step, []))).total()
        for step in one.keys() | other.keys()
    )


def recomputed(folder: Path) -> int:
    """Return the greatest number of steps that one interruption of a run has cost."""
    worst, highest, repeated = 0, 0, 0
    for line in (folder / "samples.jsonl").read_text().splitlines():
        step, rank, _ = json.loads(line)
        if rank:
            continue
        repeated = repeated + 1 if step <= highest else 0
        highest = max(highest, step)
        worst = max(worst, repeated)
    return worst


def valid(folder: Path) -> list[Path]:
    """Return the valid checkpoints of a run."""
    return [path for path in sorted((folder / "checkpoints").glob("step_*")) if not checkpoint.damage(path)]
