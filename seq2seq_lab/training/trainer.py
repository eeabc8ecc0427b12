"""The training loop: optimizer steps, validation, checkpoints."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import record_function

from seq2seq_lab.config.renamed import RENAMED
from seq2seq_lab.config.schema import Precision
from seq2seq_lab.errors import Preempted, UserError
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.console import Progress
from seq2seq_lab.runtime.device import (
    MemoryReleaser,
    autocast,
    memory_in_use,
    peak_memory,
    synchronize,
    to_host,
)
from seq2seq_lab.runtime.heartbeat import heartbeat
from seq2seq_lab.runtime.memory import TRAINING, memory_errors
from seq2seq_lab.runtime.signals import StopSignals
from seq2seq_lab.tasks.base import EpochPlan, StepInfo, Task, TrainingSplit
from seq2seq_lab.tasks.evaluation import Counted
from seq2seq_lab.tracking import Tracker
from seq2seq_lab.training import checkpoint
from seq2seq_lab.training.divergence import LossRecord
from seq2seq_lab.training.profiling import STEP, Profile
from seq2seq_lab.training.schedules import Schedule, Score
from seq2seq_lab.training.update import decides_on_device, digest, start_momentum, state_tensors, step_if

log = logging.getLogger(__name__)

WARM_UP_STEPS = 10  # not counted in the throughput: the first steps choose kernels and fill caches
FAST_DEV_STEPS = 3


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """How long to train, and when to log, validate, save and stop. Meanings: conf/trainer/default.yaml.

    Attributes:
        validate_by_epoch: whether `validate_every` counts epochs instead of steps.
        monitor: the name of the monitored metric, with the prefix of the validation split.
        higher_is_better: whether a greater value of the monitored metric is better.
        tie_breaker: the name of the validation loss that decides between equal values of the monitored metric; None if the
            task has no other loss.
    """

    max_epochs: int
    max_steps: int | None
    micro_batches: int
    clip_norm: float | None
    validate_every: float
    validate_by_epoch: bool
    monitor: str
    higher_is_better: bool
    tie_breaker: str | None
    patience: int | None
    checkpoint_every_steps: int | None
    checkpoint_every_minutes: float | None
    keep_checkpoints: int
    log_every_steps: int
    max_skipped_steps: int
    fast_dev_run: bool
    overfit_batches: int


@dataclass
class TrainState:
    """The state of a training: everything in a checkpoint besides weights, the optimizer's tensors and the task's state.

    Attributes:
        step: optimizer steps completed.
        position: optimizer steps completed in the current epoch.
        history: the monitored metric at each validation, negated if a smaller value is better.
        losses: the loss `TrainerSettings.tie_breaker` at each validation; None if it is unknown or not finite. It is unknown
            for the validations of earlier versions.
        best: the name of the best checkpoint.
        best_value: its entry in `history`.
        best_loss: its entry in `losses`.
        lost: the names of checkpoints that were the best and are missing or damaged.
        pending_losses: summed loss of each step since the last log line; None if it is not finite.
        pending_counts: units of each of these steps on all ranks.
        pending_examples: examples of these steps on rank 0.
        counted_seconds: seconds of the steps that the throughput counts.
        counted_units: units of these steps.
        validated: the step of the last validation.
        skipped: steps without an update of the weights, because the loss or the gradient norm was not finite.
        skipped_in_a_row: those since the last update.
        step_losses: the losses by which a divergence is found.
    """

    step: int = 0
    epoch: int = 0
    position: int = 0
    history: list[float] = field(default_factory=list)
    losses: list[float | None] = field(default_factory=list)
    best: str | None = None
    best_value: float | None = None
    best_loss: float | None = None
    lost: list[str] = field(default_factory=list)
    pending_losses: list[float | None] = field(default_factory=list)
    pending_counts: list[int] = field(default_factory=list)
    pending_examples: int = 0
    seconds: float = 0.0
    validation_seconds: float = 0.0
    counted_seconds: float = 0.0
    counted_units: int = 0
    validated: int | None = None
    skipped: int = 0
    skipped_in_a_row: int = 0
    scaler: dict[str, Any] = field(default_factory=dict)
    step_losses: LossRecord = field(default_factory=LossRecord)

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> "TrainState":
        """Return the state in a checkpoint. Those of earlier versions have no losses of steps."""
        return cls(**{**saved, "step_losses": LossRecord(**saved.get("step_losses", {}))})

    def __post_init__(self) -> None:
        self.losses = [*[None] * (len(self.history) - len(self.losses)), *self.losses]

    @property
    def scores(self) -> list[Score]:
        """The score of each validation."""
        return [Score.of(value, loss) for value, loss in zip(self.history, self.losses, strict=True)]

    @property
    def units_per_second(self) -> float:
        """Units per second of training, without warm-up and validation; 0 during the warm-up."""
        return self.counted_units / self.counted_seconds if self.counted_seconds else 0.0


class Trainer:
    """Trains a model on a task.

    Args:
        model: the module whose weights are trained and saved.
        validate: evaluates the model at a step and returns metrics by name, with the prefix of the split.
        folder: the folder of the checkpoints.
        seed: seed of the dropout masks.
        identity: values that must be equal in a checkpoint and in the run that resumes from it, by name.
        profile: profiles the steps, or `profiling.no_profile`.
        stop: checked after every step and every batch of a validation.
        compute: its ranks share every step; rank 0 alone writes checkpoints.
        uniform_loss: see `Task.uniform_loss`.
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
        identity: Mapping[str, str],
        profile: Profile,
        stop: StopSignals,
        compute: Compute,
        uniform_loss: float | None = None,
    ) -> None:
        self.task = task
        self.model = model
        self.data = data
        self.validate = validate
        self.optimizer = optimizer
        self.schedule = schedule
        self.settings = settings
        self.tracker = tracker
        self.folder = folder
        self.seed = seed
        self.identity = identity
        self.profile = profile
        self.stop = stop
        self.compute = compute
        self.uniform_loss = uniform_loss
        self.scaler = torch.amp.GradScaler(compute.device.type, enabled=compute.precision is Precision.fp16)
        self._skips_on_device = decides_on_device(optimizer, compute.device)
        if self._skips_on_device:
            start_momentum(optimizer)
        self.state = TrainState()
        self._loss = compute.ranks.data_parallel(_Loss(task, model), compute.device)
        if compute.ranks.size > 1:
            # DDP rearranges its buckets of gradients once, in the order in which the first backward pass computes them. With
            # three or more ranks, the order of a sum depends on the position in a bucket. This pass is the same at every
            # start, so that a resumed run sums in the same order.
            self._loss(None, StepInfo(epoch=0, step=0)).backward()
            optimizer.zero_grad(set_to_none=True)
        self._pending = _Pending()
        self._requests: Callable[[], list[int]] = lambda: [0, 0]  # of the last step
        self._saved = 0  # the step of the last checkpoint
        self._next_save = math.inf
        self._releaser = MemoryReleaser(compute.device)
        self._rates = [group["lr"] for group in optimizer.param_groups]
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.plan: EpochPlan | None = None
        # With a tokenizer that samples, later epochs can have a few steps more or less.
        self.epoch_steps = self.open_epoch(0)
        by_epochs = (1 if settings.fast_dev_run else settings.max_epochs) * self.epoch_steps
        self.total = by_epochs if settings.max_steps is None else min(settings.max_steps, by_epochs)

    def open_epoch(self, epoch: int) -> int:
        """Load the plan of an epoch and return its number of steps."""
        heartbeat.beat(f"reading epoch {epoch + 1}")
        fixed = self.settings.overfit_batches
        self.plan = None  # the data of one epoch at a time is on the device
        self.plan = self.data.epoch(0 if fixed else epoch, self.compute.device)
        if self.settings.fast_dev_run:
            return min(FAST_DEV_STEPS, self.plan.steps)
        return min(fixed or self.plan.steps, self.plan.steps)

    @property
    def done(self) -> bool:
        """Whether the training is complete."""
        return self.state.step >= self.total or self._out_of_patience()

    def fit(self) -> None:
        """Train from `self.state` until `max_epochs`, `max_steps` or `patience` ends the training.

        Raises:
            UserError: `max_skipped_steps` steps in a row were skipped, a weight or the monitored metric is not finite, or
                the disk is full.
            Preempted: there was a signal. A checkpoint of the last step has been written.
        """
        state = self.state
        self.stop.deferred = True
        self._schedule_save()
        epochs = math.ceil(self.total / self.epoch_steps)  # the last one can be partial
        with (
            Progress(self.total, state.step, epochs, 10.0, self.task.unit.replace("_", " ")) as progress,
            self.profile(self.total - state.step) as after_step,
        ):
            if state.step and self._validation_due() and state.validated != state.step:
                epoch = state.epoch + (state.position > 0)  # at position 0, the one before has just ended
                self._validate(partial(progress.show_validation, state.step, epoch, self._best_score()))
            while not self.done:
                start = time.perf_counter()
                steps = self.open_epoch(state.epoch)
                state.seconds += time.perf_counter() - start
                epoch = state.epoch
                while state.epoch == epoch and not self.done:
                    self._timed_step(state.position)
                    after_step()
                    state.step += 1
                    state.position += 1
                    if state.position == steps:
                        state.epoch, state.position = epoch + 1, 0
                    if progress.due():
                        loss, speed = self._pending.mean_loss(), state.units_per_second
                        progress.show(state.step, epoch + 1, loss, speed, self._best_score())
                    self._after_step(progress, epoch)
        self._requests()  # end the communication of the last step
        if state.step < self.total:
            log.info(
                "Stopped early: %s has not improved for %s validations (trainer.patience).",
                self.settings.monitor,
                self.settings.patience,
            )
        self._report_constant_metric()
        if self.divergence is not None:
            log.warning("The training has diverged: %s. %s", self.divergence, self._advice())

    @property
    def divergence(self) -> str | None:
        """How the training has diverged although its loss is finite; None if it has not."""
        return self.state.step_losses.divergence(self.uniform_loss)

    def _report_constant_metric(self) -> None:
        """Log a warning if the monitored metric had the same value at every validation."""
        history, loss = self.state.history, self.settings.tie_breaker
        if len(history) < 2 or min(history) != max(history):
            return
        if loss is None or all(one is None for one in self.state.losses):
            instead = "The best checkpoint is the last one. Set trainer.monitor to another metric."
        else:
            instead = f"The best checkpoint has the lowest {loss}. To monitor it: trainer.monitor={loss}"
        log.warning(
            "%s was %g at each of the %s validations. %s",
            self.settings.monitor,
            history[0] if self.settings.higher_is_better else -history[0],
            len(history),
            instead,
        )

    def _best_score(self) -> str:
        """Return the best value of the monitored metric with its name; empty before the first validation."""
        if not self.state.history:
            return ""
        value = max(self.state.history) * (1 if self.settings.higher_is_better else -1)
        return f"best {self.settings.monitor} {value:.{2 if abs(value) >= 10 else 3}f}"

    def _after_step(self, progress: Progress, epoch: int) -> None:
        """Log, validate and save a checkpoint if they are due; stop after a signal."""
        settings, step = self.settings, self.state.step
        heartbeat.beat("after the step")
        signal_number, save = self._exchange_requests()
        if step % settings.log_every_steps == 0 or step == self.total:
            self._log()
        if self._validation_due() and not signal_number:
            self._validate(partial(progress.show_validation, step, epoch + 1, self._best_score()))
        elif (
            signal_number
            or save
            or (settings.checkpoint_every_steps and step % settings.checkpoint_every_steps == 0)
        ):
            self._count_skipped()
            self._check_weights()
            self._save(self.task.state_dict(self.compute.ranks))
        if signal_number:
            self.compute.ranks.barrier()  # a launcher ends all ranks when the first one ends
            raise Preempted(signal_number)

    def _exchange_requests(self) -> tuple[int, bool]:
        """Return the signal to stop, 0 without one, and whether a checkpoint is due. All ranks return the same.

        The ranks exchange these values while they compute the next step. With several ranks, the values are those of
        the previous step.
        """
        ranks = self.compute.ranks
        due = ranks.main and time.monotonic() >= self._next_save
        requests = ranks.start_maximum([self.stop.received, due])
        before, self._requests = self._requests, requests
        signal_number, save = requests() if ranks.size == 1 else before()
        # A request made in the step of the last checkpoint has already been served.
        return signal_number, bool(save) and self.state.step - self._saved > 1

    def _schedule_save(self) -> None:
        minutes = self.settings.checkpoint_every_minutes
        self._next_save = math.inf if minutes is None else time.monotonic() + 60 * minutes

    def step(self, position: int) -> tuple[Tensor, Tensor, int]:
        """Perform the optimizer step at a position of the current epoch; return (summed loss, gradient norm, units).

        Loss and norm stay on the device. If the loss or the norm is not finite on any rank, no rank updates its weights.
        The schedule still counts that step, since the host would have to wait for the device to know.
        """
        assert self.plan is not None, "open_epoch comes first"
        state, ranks = self.state, self.compute.ranks
        heartbeat.begin_step(state.step + 1)
        self.model.train()
        self._set_rate()
        with _phase("batch"):
            own = self.plan.share(position, ranks.rank, ranks.size, self.settings.micro_batches)
            micro_batches = {part: [self.plan.batch(index) for index in plan] for part, plan in own.items()}
        units = self.plan.count(position)
        info = StepInfo(state.epoch, state.step)
        sums: list[Tensor] = []
        for part, batches in micro_batches.items():
            # Dropout masks are a function of (seed, step, micro-batch): a resumed run draws the same masks, and several
            # ranks draw those of one process with the same micro-batches.
            torch.manual_seed(_mixed(self.seed, state.step, part))
            losses = []
            with self._separate_gradients():
                # A rank without an example in this micro-batch still takes part in the sum of the gradients.
                for place, batch in enumerate(batches or [None], start=1):
                    last = place == max(1, len(batches)) and part == max(micro_batches)
                    with (
                        memory_errors(f"step {state.step + 1:,}", batch, TRAINING),
                        ranks.gradient_sync(self._loss, last),
                    ):
                        with (
                            _phase("forward", waits=True),
                            autocast(self.compute.precision, self.compute.device),
                        ):
                            loss_sum = self._loss(batch, info)
                        with _phase("backward", waits=True):
                            # The gradients are averaged over the ranks; the loss is the mean over the units of all ranks.
                            self.scaler.scale(loss_sum * ranks.size / units).backward()
                    losses.append(loss_sum.detach())
            sums.append(torch.stack(losses).sum())
        self._pending.examples += sum(len(index) for plan in own.values() for index in plan)
        with memory_errors(f"the update of step {state.step + 1:,}", None, TRAINING):
            return *self._update_weights(torch.stack(sums).sum()), units

    def _update_weights(self, loss_sum: Tensor) -> tuple[Tensor, Tensor]:
        """Clip the gradients and update the weights; return the summed loss of all ranks and the gradient norm."""
        with _phase("gradient norm", waits=True):
            self.scaler.unscale_(self.optimizer)
            limit = math.inf if self.settings.clip_norm is None else self.settings.clip_norm
            norm = nn.utils.clip_grad_norm_(self._parameters, limit)
            sums = self.compute.ranks.all_reduce(torch.stack([loss_sum, norm]))
        with _phase("optimizer", waits=True):
            step_if(torch.isfinite(sums).all(), self.optimizer, self._skips_on_device)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
        # The norm of another rank can be the only one that is not finite; all ranks count the step that they skip.
        return sums[0], torch.where(sums[1].isfinite(), norm, sums[1])

    @contextmanager
    def _separate_gradients(self) -> Iterator[None]:
        """Sum the gradients of a micro-batch separately, then add those of the earlier ones, in the order of the ranks."""
        if self.compute.ranks.size > 1:  # the gradients are in buffers that the ranks share
            yield
            return
        before = [parameter.grad for parameter in self._parameters]
        self.optimizer.zero_grad(set_to_none=True)
        yield
        for parameter, gradient in zip(self._parameters, before, strict=True):
            if parameter.grad is None:
                parameter.grad = gradient
            elif gradient is not None:
                parameter.grad += gradient

    def load(self, path: Path) -> None:
        """Resume from the newest valid checkpoint.

        Raises:
            UserError: the checkpoint was written with another vocabulary, other data, other settings or another precision.
        """
        saved = checkpoint.load_state(path)
        before = saved["identity"]
        for what in dict.fromkeys((*self.identity, *before)):
            was, now = (values.get(what, "not set") for values in (before, self.identity))
            if was != now:
                raise UserError(
                    f"Cannot resume from {path}: {RENAMED.get(what, what)} was {was} and is now {now}. Restore it, or start "
                    f"a new run with init_from=RUN_FOLDER."
                )
        state = TrainState.restored(saved["train_state"])
        if self.total < state.step:
            raise UserError(
                f"Cannot resume from {path}: the run has completed {state.step} steps and would end at step {self.total}. "
                f"Raise trainer.max_epochs or trainer.max_steps."
            )
        checkpoint.load_checked_weights(path, self.model)
        checkpoint.load_optimizer(path, self.optimizer)
        self.task.load_state_dict(checkpoint.load_task_state(path))
        if self.compute.ranks.main:
            checkpoint.remove_newer(path)
        self.state = state
        self.scaler.load_state_dict(state.scaler)
        self._pending.restore(
            state.pending_losses, state.pending_counts, state.pending_examples, self.compute.device
        )
        log.info("Resuming from step %s.", f"{state.step:,}")
        if saved["total"] != self.total:
            log.info(
                "The run now has %s steps instead of %s: a schedule that depends on the length is stretched.",
                f"{self.total:,}",
                f"{saved['total']:,}",
            )

    def replace_lost_best(self) -> None:
        """If the best checkpoint is missing or damaged, make the best one that is left the best, and log a warning.

        If no validated checkpoint is left, the next validation chooses the best one. The model must have the weights of
        the last step: its checkpoint is written again, since it names the best one.
        """
        state = self.state
        if state.best is None:
            return
        lost = self.folder / state.best
        problem = self.compute.ranks.broadcast(lambda: checkpoint.damage(lost))
        if problem is None:
            return
        state.lost.append(lost.name)
        state.best, state.best_value, state.best_loss = self.compute.ranks.broadcast(self._best_left)
        log.warning(
            "The best checkpoint %s cannot be used (%s). Of the validated checkpoints that are left, %s is the best.",
            lost,
            problem,
            state.best or "none",
        )
        self._save(self.task.state_dict(self.compute.ranks))
        self.compute.ranks.barrier()  # the other ranks may read this checkpoint next

    def _best_left(self) -> tuple[str | None, float | None, float | None]:
        """Return name, monitored value and loss of the best checkpoint on disk that is valid and was validated."""
        left: dict[str, TrainState] = {}
        for path in sorted(self.folder.glob("step_*")):
            if checkpoint.damage(path) is None:
                saved = TrainState.restored(checkpoint.load_state(path)["train_state"])
                if saved.validated == saved.step:
                    left[path.name] = saved
        if not left:
            return None, None, None
        best = max(left, key=lambda name: (left[name].scores[-1], name))  # of equal ones, the last
        return best, left[best].history[-1], left[best].losses[-1]

    def _timed_step(self, position: int) -> None:
        start = time.perf_counter()
        with record_function(STEP):
            loss_sum, norm, units = self.step(position)
        self._pending.add(loss_sum, norm, units)
        self._releaser.after_step(first_epoch=self._pending.steps_this_start <= self.epoch_steps)
        # A GPU computes asynchronously: its time is only measured if the host waits for it from time to time.
        if (self.state.step + 1) % self.settings.log_every_steps == 0:
            synchronize(self.compute.device)
        seconds = time.perf_counter() - start
        self.state.seconds += seconds
        if self._pending.steps_this_start > WARM_UP_STEPS:
            self.state.counted_seconds += seconds
            self.state.counted_units += units

    def _set_rate(self) -> None:
        step = self.state.step
        factor = self.schedule.factor(step, self.total, self.state.scores)
        momentum = self.schedule.momentum(step, self.total)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
            if momentum is not None and "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            elif momentum is not None and group.get("momentum"):
                group["momentum"] = momentum

    def _log(self) -> None:
        self._count_skipped()
        values = {
            "loss": self._pending.mean_loss(),
            "gradient_norm": self._pending.last_norm(),
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "epoch": self.state.step / self.epoch_steps,
            "skipped_steps": self.state.skipped,
            f"{self.task.unit}_per_second": self.state.units_per_second,
            "examples_per_rank": self._pending.examples_per_step(),
            "memory_mib": memory_in_use(self.compute.device) / 2**20,
            "peak_memory_mib": peak_memory(self.compute.device) / 2**20,
            **self.task.values(self.state.step - 1),
        }
        self.tracker.log_metrics({f"train/{name}": value for name, value in values.items()}, self.state.step)
        self._pending.clear()

    def _count_skipped(self) -> None:
        """Count the skipped steps that have not been counted yet.

        With float16, a gradient that overflows lowers the scale of the loss; it counts only if the scale is below 1.

        Raises:
            UserError: `max_skipped_steps` steps in a row were skipped.
        """
        state, limit = self.state, self.settings.max_skipped_steps
        before, longest = state.skipped, 0
        backs_off = self.scaler.is_enabled() and self.scaler.get_scale() >= 1
        new = self._pending.take_uncounted()
        counts = self._pending.counts[len(self._pending.counts) - len(new) :]
        means = [loss / count for (loss, _), count in zip(new, counts, strict=True)]
        state.step_losses.add(state.step - len(new), means)
        for loss, norm in new:
            skipped = not (math.isfinite(loss) and (backs_off or math.isfinite(norm)))
            state.skipped += skipped
            state.skipped_in_a_row = state.skipped_in_a_row + 1 if skipped else 0
            longest = max(longest, state.skipped_in_a_row)
        if longest >= limit:
            raise self._diverged(
                f"Loss or gradient norm was not finite in {longest} steps in a row (trainer.max_skipped_steps={limit})"
            )
        if state.skipped > before:
            log.warning(
                "Up to step %s, %s steps were skipped: their loss or gradient norm was not finite. The training stops after "
                "%s in a row (trainer.max_skipped_steps).",
                f"{state.step:,}",
                f"{state.skipped:,}",
                limit,
            )

    def _check_weights(self) -> None:
        """Refuse weights and moments that are not finite."""
        sums: dict[tuple[torch.device, torch.dtype], list[tuple[str, Tensor]]] = {}
        for name, weight in self.model.named_parameters():
            for tensor in (weight, *self.optimizer.state.get(weight, {}).values()):
                if isinstance(tensor, Tensor):
                    sums.setdefault((tensor.device, tensor.dtype), []).append((name, tensor.detach().sum()))
        for group in sums.values():
            names, values = zip(*group, strict=True)
            # A sum is finite if and only if its terms are, except for an overflow. The host reads it only for a checkpoint.
            finite = np.isfinite(to_host(torch.stack(values)))
            if not finite.all():
                name = names[int(finite.argmin())]
                raise self._diverged(f"The weight {name}, or its state in the optimizer, is not finite")

    def _compare_ranks(self) -> None:
        """Refuse ranks whose weights or optimizers differ.

        Raises:
            UserError: names the ranks that differ from rank 0.
        """
        ranks = self.compute.ranks
        if ranks.size == 1:
            return
        digests = ranks.gather(digest([*self.model.parameters(), *state_tensors(self.optimizer)]))
        others = [str(rank) for rank, rank_digest in enumerate(digests) if rank_digest != digests[0]]
        if others:
            raise UserError(
                f"The weights or the optimizer of rank {', '.join(others)} differ from those of rank 0 at step "
                f"{self.state.step}: the ranks no longer train the same model. Earlier checkpoints are not changed. "
                f"Check the memory and the device of these ranks, then resume with resume=RUN_FOLDER."
            )

    def _diverged(self, problem: str) -> UserError:
        return UserError(
            f"{problem} at step {self.state.step}: the training has diverged. Earlier checkpoints are not changed. "
            f"{self._advice()}"
        )

    def _advice(self) -> str:
        """Return what to change after a training that has diverged."""
        clip = self.settings.clip_norm
        return (
            f"Start a new run with a smaller optimizer.lr (now {max(self._rates):g}), a smaller trainer.clip_norm (now "
            f"{'null' if clip is None else clip}), or trainer.precision=fp32 (now {self.compute.precision.value})."
        )

    def _validation_due(self) -> bool:
        step, interval = self.state.step, self.settings.validate_every
        if self.settings.validate_by_epoch:
            interval *= self.epoch_steps

        def count(steps: int) -> int:
            # A tenth of 30 steps can round to a little more than 3.
            return math.floor(steps / interval + 1e-9)

        return step == self.total or count(step) > count(step - 1)

    def _validate(self, counted: Counted) -> None:
        self._count_skipped()
        self._check_weights()
        self._compare_ranks()
        task_state = self.task.state_dict(self.compute.ranks)
        start = time.perf_counter()
        try:
            with self.stop.evaluation():
                values = self.validate(self.state.step, self.stop.checked(counted))
        except Preempted:
            self._save(task_state)  # a resumed run begins with this validation
            raise
        self.state.validation_seconds += time.perf_counter() - start
        monitor = self.settings.monitor
        if monitor not in values:
            raise UserError(
                f"trainer.monitor={monitor}: this validation split or model does not have this metric. Values: "
                f"{', '.join(values)}."
            )
        if not math.isfinite(values[monitor]):
            raise self._diverged(f"{monitor}={values[monitor]}")
        value = values[monitor] if self.settings.higher_is_better else -values[monitor]
        loss = values.get(self.settings.tie_breaker or "", math.nan)
        self._keep_score(value, loss if math.isfinite(loss) else None)
        self._save(task_state)

    def _keep_score(self, value: float, loss: float | None) -> None:
        """Add the score of this step, whose checkpoint becomes the best one unless an earlier score is better."""
        state = self.state
        best = None if state.best_value is None else Score.of(state.best_value, state.best_loss)
        if best is None or Score.of(value, loss) >= best:
            state.best, state.best_value, state.best_loss = self._name(), value, loss
        state.history.append(value)
        state.losses.append(loss)
        state.validated = state.step

    def _save(self, task_state: Mapping[str, Any]) -> None:
        """Write a checkpoint. It is not a collective operation: the ranks that a signal interrupts are not in step."""
        heartbeat.beat("saving a checkpoint")
        self._saved = self.state.step
        self._schedule_save()
        state = self.state
        state.scaler = self.scaler.state_dict()
        state.pending_losses, state.pending_counts = self._pending.losses(), self._pending.counts
        state.pending_examples = self._pending.examples
        if not self.compute.ranks.main:
            return
        checkpoint.save(
            self.folder,
            self._name(),
            self.model,
            self.optimizer,
            {"train_state": asdict(state), "total": self.total, "identity": dict(self.identity)},
            best=state.best,
            task_state=task_state,
        )
        checkpoint.prune(self.folder, self.settings.keep_checkpoints)

    def _name(self) -> str:
        return f"step_{self.state.step:08d}"

    def _out_of_patience(self) -> bool:
        patience, scores = self.settings.patience, self.state.scores
        if patience is None or not scores:
            return False
        return len(scores) - 1 - scores.index(max(scores)) >= patience


class _Loss(nn.Module):
    """The loss of a task as a module, as data parallelism requires."""

    def __init__(self, task: Task, model: nn.Module) -> None:
        super().__init__()
        self.task = task
        self.model = model

    def forward(self, batch: Any | None, step: StepInfo) -> Tensor:
        """Return the summed loss of a batch; without a batch, 0 with a gradient of 0 for every weight."""
        if batch is not None:
            return self.task.loss(self.model, batch, step)
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        return torch.stack([weight.flatten()[:0].sum() for weight in weights]).sum()


def _phase(name: str, waits: bool = False) -> record_function:
    """Return the context of a phase of a step, with its name in profiles and in messages about a rank that hangs.

    Args:
        waits: whether the phase can wait for other ranks, also on the device.
    """
    heartbeat.beat(name, waits)
    return record_function(name)


def _mixed(*numbers: int) -> int:
    """Return a 64-bit seed that depends on all of the numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


class _Pending:
    """Losses and counts of the steps since the last log line; the losses stay on the device until they are read."""

    def __init__(self) -> None:
        self.steps_this_start = 0
        self.clear()

    def clear(self) -> None:
        self.counts: list[int] = []
        self.examples = 0  # of this rank
        self._losses: list[Tensor] = []
        self._norms: list[Tensor] = []  # of the steps of this start
        self._uncounted = 0  # steps that `take_uncounted` has not returned

    def restore(
        self, losses: Sequence[float | None], counts: Sequence[int], examples: int, device: torch.device
    ) -> None:
        self.counts = [*counts]
        self.examples = examples
        self._losses = [torch.tensor(math.nan if loss is None else loss, device=device) for loss in losses]

    def add(self, loss_sum: Tensor, norm: Tensor, count: int) -> None:
        self.steps_this_start += 1
        self.counts.append(count)
        self._losses.append(loss_sum)
        self._norms.append(norm)
        self._uncounted += 1

    def examples_per_step(self) -> float:
        return self.examples / len(self._losses)

    def take_uncounted(self) -> list[tuple[float, float]]:
        """Return loss and gradient norm of the steps since the last call, read by the host."""
        new = self._uncounted
        self._uncounted = 0
        if not new:
            return []
        losses, norms = (
            to_host(torch.stack(values[-new:])).tolist() for values in (self._losses, self._norms)
        )
        return [*zip(losses, norms, strict=True)]

    def losses(self) -> list[float | None]:
        """Return the loss of each step, read by the host; None for a loss that is not finite."""
        values = to_host(torch.stack(self._losses)).tolist() if self._losses else []
        return [loss if math.isfinite(loss) else None for loss in values]

    def mean_loss(self) -> float:
        """Return the mean loss of the steps with a finite one, read by the host; NaN if there are none."""
        losses = to_host(torch.stack(self._losses))
        finite = np.isfinite(losses)
        count = int(np.array(self.counts)[finite].sum())
        return float(torch.from_numpy(losses[finite]).sum()) / count if count else math.nan

    def last_norm(self) -> float:
        """Return the last gradient norm, read by the host."""
        return float(to_host(self._norms[-1]))
