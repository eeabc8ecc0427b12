"""The training loop: which steps a training performs, and when it logs, validates, saves a checkpoint and stops."""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.profiler import record_function

from seq2seq_lab.errors import Preempted
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.console import Progress
from seq2seq_lab.runtime.device import MemoryReleaser, memory_in_use, peak_memory, synchronize
from seq2seq_lab.runtime.heartbeat import heartbeat
from seq2seq_lab.runtime.signals import StopSignals
from seq2seq_lab.tasks.base import EpochPlan, Task, TrainingSplit
from seq2seq_lab.tasks.evaluation import Counted
from seq2seq_lab.tracking import Tracker
from seq2seq_lab.training.checkpointer import Checkpointer
from seq2seq_lab.training.guards import Guards, require_monitored
from seq2seq_lab.training.profiling import STEP, Profile
from seq2seq_lab.training.schedules import Schedule
from seq2seq_lab.training.state import PendingLosses, StepResult, TrainerSettings, TrainState
from seq2seq_lab.training.step import TrainingStep

WARM_UP_STEPS = 10  # not counted in the throughput: the first steps choose kernels and fill caches
FAST_DEV_STEPS = 3


def no_snapshot(step: int, always: bool) -> None:
    """Write nothing."""


class Trainer:
    """Trains a model on a task.

    Args:
        model: the module whose weights are trained and saved.
        validate: evaluates the model at a step and returns metrics by name, with the prefix of the split.
        folder, identity, inputs: see `Checkpointer`.
        seed: seed of the dropout masks.
        epoch_steps: the number of steps of the first epoch, if a checkpoint records it; None: read the epoch and count them.
        profile: profiles the steps, or `profiling.no_profile`.
        stop: checked after every step and every batch of a validation.
        compute: its ranks share every step; rank 0 alone writes checkpoints.
        uniform_loss: see `Task.uniform_loss`.
        snapshot: called before the first step and after each step with the step and whether the model is validated there.
    """

    def __init__(
        self,
        *,
        task: Task,
        model: nn.Module,
        data: TrainingSplit,
        validate: Callable[[int, Counted], Mapping[str, float]],
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        settings: TrainerSettings,
        tracker: Tracker,
        folder: Path,
        seed: int,
        epoch_steps: int | None = None,
        identity: Mapping[str, str],
        inputs: Collection[str] = (),
        profile: Profile,
        stop: StopSignals,
        compute: Compute,
        uniform_loss: float | None = None,
        snapshot: Callable[[int, bool], None] = no_snapshot,
    ) -> None:
        self.task = task
        self.model = model
        self.data = data
        self.validate = validate
        self.snapshot = snapshot
        self.optimizer = optimizer
        self.settings = settings
        self.tracker = tracker
        self.profile = profile
        self.stop = stop
        self.compute = compute
        self.state = TrainState()
        self.plan: EpochPlan | None = None
        # With a tokenizer that samples, later epochs can have a few steps more or less.
        self.epoch_steps = self.open_epoch(0) if epoch_steps is None else epoch_steps
        self.total = self.steps_of(settings.max_epochs, settings.max_steps)
        self.step = TrainingStep(
            task=task,
            model=model,
            optimizer=optimizer,
            schedule=schedule,
            settings=settings,
            seed=seed,
            total=self.total,
            compute=compute,
        )
        self.pending = PendingLosses()
        self.guards = Guards(self.step, self.pending, settings, uniform_loss)
        self.checkpoints = Checkpointer(
            self.step,
            self.pending,
            settings,
            folder,
            epoch_steps=self.epoch_steps,
            identity=identity,
            inputs=inputs,
        )
        self._requests: Callable[[], list[int]] = lambda: [0, 0]  # of the last step
        self._releaser = MemoryReleaser(compute.device)

    def open_epoch(self, epoch: int) -> int:
        """Load the plan of an epoch and return its number of steps."""
        heartbeat.beat(f"reading epoch {epoch + 1}")
        fixed = self.settings.overfit_batches
        self.plan = None  # the data of one epoch at a time is on the device
        self.plan = self.data.epoch(0 if fixed else epoch, self.compute.device)
        if self.settings.fast_dev_run:
            return min(FAST_DEV_STEPS, self.plan.steps)
        return min(fixed or self.plan.steps, self.plan.steps)

    def steps_of(self, max_epochs: int, max_steps: int | None) -> int:
        """Return the number of steps of a run with these limits."""
        by_epochs = (1 if self.settings.fast_dev_run else max_epochs) * self.epoch_steps
        return by_epochs if max_steps is None else min(max_steps, by_epochs)

    @property
    def done(self) -> bool:
        """Whether the training is complete."""
        return self.state.step >= self.total or self.state.out_of_patience(self.settings.patience)

    def load(self, path: Path, changed: Sequence[str] = ()) -> None:
        """Resume from the newest valid checkpoint; see `Checkpointer.load`."""
        self.state = self.checkpoints.load(path, changed)

    def fit(self) -> None:
        """Train from `self.state` until `max_epochs`, `max_steps` or `patience` ends the training.

        Raises:
            UserError: `max_skipped_steps` steps in a row were skipped, a weight or the monitored metric is not finite, or
                the disk is full.
            Preempted: there was a signal. A checkpoint of the last step has been written.
        """
        state = self.state
        self.stop.deferred = True
        self.checkpoints.start_timer()
        epochs = math.ceil(self.total / self.epoch_steps)  # the last one can be partial
        with (
            Progress(self.total, state.step, epochs, 10.0, self.task.unit.replace("_", " ")) as progress,
            self.profile(self.total - state.step) as after_step,
        ):
            if state.step and self._validation_due() and state.validated != state.step:
                epoch = state.epoch + (state.position > 0)  # at position 0, the one before has just ended
                self._validate(partial(progress.show_validation, state.step, epoch, self._best_score()))
            else:  # a signal stops a run before the snapshot of its step
                self._snapshot(always=not state.step)
            while not self.done:
                start = time.perf_counter()
                steps = self.open_epoch(state.epoch)
                assert self.plan is not None
                state.seconds += time.perf_counter() - start
                epoch = state.epoch
                while state.epoch == epoch and not self.done:
                    start = time.perf_counter()
                    with record_function(STEP):
                        result = self.step(self.plan, state)
                    self._count(result, start)
                    after_step()
                    state.step += 1
                    state.position += 1
                    if state.position == steps:
                        state.epoch, state.position = epoch + 1, 0
                    if progress.due():
                        loss, speed = self.pending.mean_loss(), state.units_per_second
                        progress.show(state.step, epoch + 1, loss, speed, self._best_score())
                    self._after_step(progress, epoch)
        self._requests()  # end the communication of the last step
        self.guards.warn_at_end(state, self.total)

    def _count(self, result: StepResult, start: float) -> None:
        """Count a step that began at this time, with its loss and its units."""
        state = self.state
        self.pending.add(result)
        self._releaser.after_step(first_epoch=self.pending.steps_this_start <= self.epoch_steps)
        # A GPU computes asynchronously: its time is only measured if the host waits for it from time to time.
        if (state.step + 1) % self.settings.log_every_steps == 0:
            synchronize(self.compute.device)
        seconds = time.perf_counter() - start
        state.seconds += seconds
        if self.pending.steps_this_start > WARM_UP_STEPS:
            state.counted_seconds += seconds
            state.counted_units += result.units

    def _after_step(self, progress: Progress, epoch: int) -> None:
        """Log, validate and save a checkpoint if they are due; stop after a signal."""
        state, ranks = self.state, self.compute.ranks
        heartbeat.beat("after the step", waits=True)  # values of a GPU wait for the other ranks
        signal_number, save = self._exchange_requests()
        if state.step % self.settings.log_every_steps == 0 or state.step == self.total:
            self._log()
        if self._validation_due() and not signal_number:
            self._validate(partial(progress.show_validation, state.step, epoch + 1, self._best_score()))
        elif signal_number or save or self.checkpoints.due(state.step):
            self.guards.count_skipped(state)
            self.guards.check_weights(state)
            self.checkpoints.save(state, self.task.state_dict(ranks))
        if signal_number:
            ranks.barrier()  # a launcher ends all ranks when the first one ends
            raise Preempted(signal_number)
        self._snapshot(always=False)

    def _exchange_requests(self) -> tuple[int, bool]:
        """Return the signal to stop, 0 without one, and whether a checkpoint is due. All ranks return the same.

        The ranks exchange these values while they compute the next step. With several ranks, the values are those of
        the previous step.
        """
        ranks = self.compute.ranks
        requests = ranks.start_maximum([self.stop.received, self.checkpoints.time_is_up()])
        before, self._requests = self._requests, requests
        signal_number, save = requests() if ranks.size == 1 else before()
        # A request made in the step of the last checkpoint has already been served.
        return signal_number, bool(save) and self.state.step - self.checkpoints.saved > 1

    def _log(self) -> None:
        state, device = self.state, self.compute.device
        self.guards.count_skipped(state)
        values = {
            "loss": self.pending.mean_loss(),
            "gradient_norm": self.pending.last_norm(),
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "epoch": state.step / self.epoch_steps,
            "skipped_steps": state.skipped,
            f"{self.task.unit}_per_second": state.units_per_second,
            "examples_per_rank": self.pending.examples_per_step(),
            "memory_mib": memory_in_use(device) / 2**20,
            "peak_memory_mib": peak_memory(device) / 2**20,
            **self.task.values(state.step - 1),
        }
        self.tracker.log_metrics({f"train/{name}": value for name, value in values.items()}, state.step)
        self.pending.clear()

    def _validation_due(self) -> bool:
        step, interval = self.state.step, self.settings.validate_every
        if self.settings.validate_by_epoch:
            interval *= self.epoch_steps

        def count(steps: int) -> int:
            # A tenth of 30 steps can round to a little more than 3.
            return math.floor(steps / interval + 1e-9)

        return step == self.total or count(step) > count(step - 1)

    def _validate(self, counted: Counted) -> None:
        """Evaluate the model, keep its score, and save a checkpoint."""
        state, monitor = self.state, self.settings.monitor
        self.guards.count_skipped(state)
        self.guards.check_weights(state)
        self.guards.compare_ranks(state)
        task_state = self.task.state_dict(self.compute.ranks)

        def save_and_count(done: int, total: int) -> None:
            if self.checkpoints.time_is_up() and self.checkpoints.saved != state.step:
                # If the run is killed, it resumes with this validation.
                self.checkpoints.save(state, task_state)
            counted(done, total)

        heartbeat.beat("validation")
        start = time.perf_counter()
        try:
            with self.stop.evaluation():
                values = self.validate(state.step, self.stop.checked(save_and_count))
        except Preempted:
            self.checkpoints.save(state, task_state)  # a resumed run begins with this validation
            raise
        state.validation_seconds += time.perf_counter() - start
        self._snapshot(always=True)
        require_monitored(monitor, values)
        loss = values.get(self.settings.tie_breaker or "", math.nan)
        if not math.isfinite(values[monitor]):
            raise self.guards.not_finite(values[monitor], loss, state)
        value = values[monitor] if self.settings.higher_is_better else -values[monitor]
        state.keep_score(value, loss if math.isfinite(loss) else None)
        self.checkpoints.save(state, task_state)

    def _snapshot(self, always: bool) -> None:
        start = time.perf_counter()
        self.snapshot(self.state.step, always)
        self.state.validation_seconds += time.perf_counter() - start

    def _best_score(self) -> str:
        """Return the best value of the monitored metric with its name; empty before the first validation."""
        if not self.state.history:
            return ""
        value = max(self.state.history) * (1 if self.settings.higher_is_better else -1)
        return f"best {self.settings.monitor} {value:.{2 if abs(value) >= 10 else 3}f}"
