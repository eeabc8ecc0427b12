"""The training loop: updates, validation, checkpoints."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import record_function

from seq2seq_lab.config.schema import FIGURES, MonitorMode, Precision, TrainerConfig, ValidateUnit
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.batching import BatchMaker, StepPlan, deal, plan_epoch
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.runtime.console import Progress
from seq2seq_lab.runtime.device import (
    MemoryReleaser,
    autocast,
    memory_in_use,
    peak_memory,
    synchronize,
    to_host,
)
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.tracking import Tracker
from seq2seq_lab.training import checkpoint
from seq2seq_lab.training.profiling import UPDATE, Profile
from seq2seq_lab.training.schedules import Schedule

log = logging.getLogger(__name__)

Counted = Callable[[int, int], None]  # takes how many parts of some work are done, and how many there are
WARM_UP_UPDATES = 10  # not counted in the throughput: the first updates choose kernels and fill caches


class Task(Protocol):
    """What the trainer minimises."""

    @property
    def model(self) -> nn.Module:
        """The module whose weights are trained and saved."""
        ...

    def loss(self, batch: Batch, epoch: int, update: int) -> Tensor:
        """Return the loss, summed over the real target tokens."""
        ...

    def figures(self, update: int) -> dict[str, float]:
        """Return what else is worth a curve, for example the forcing ratio."""
        ...


@dataclass
class TrainState:
    """Where a training is: all that a checkpoint holds besides weights and the optimizer's tensors.

    `update` counts optimizer updates done, `position` those done in the epoch, and `validated` is the one last
    validated. `history` is the monitored figure at each validation, oriented so that greater is better.
    `pending_losses` (of updates), `pending_tokens` and `pending_sentences` (of rank 0) are of the updates since the last
    log line.
    """

    update: int = 0
    epoch: int = 0
    position: int = 0
    history: list[float] = field(default_factory=list)
    best: str | None = None
    pending_losses: list[float] = field(default_factory=list)
    pending_tokens: int = 0
    pending_sentences: int = 0
    seconds: float = 0.0
    validation_seconds: float = 0.0
    counted_seconds: float = 0.0
    counted_tokens: int = 0
    validated: int | None = None
    scaler: dict[str, Any] = field(default_factory=dict)

    @property
    def target_tokens_per_second(self) -> float:
        """Real target tokens a second of training, without warm-up and validation; 0 during the warm-up."""
        return self.counted_tokens / self.counted_seconds if self.counted_seconds else 0.0


class Trainer:
    """Trains a task on one split.

    Args:
        task: the model and its loss.
        text: returns the training split's ids of an epoch, counted from 0.
        validate: scores the model at an update and returns figures by name (`val/…`); it calls its second argument with
            the number of batches that are done and that of all.
        folder: where the checkpoints go.
        seed: of the order of the sentences and of dropout.
        identity: what a checkpoint must share with the run that goes on from it.
        profile: looks at the updates, or `profiling.no_profile`.
        ranks: the processes that share every update; rank 0 alone writes checkpoints.
    """

    def __init__(
        self,
        task: Task,
        text: Callable[[int], TokenizedText],
        validate: Callable[[TrainState, Counted], Mapping[str, float]],
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        config: TrainerConfig,
        tracker: Tracker,
        folder: Path,
        seed: int,
        device: torch.device,
        precision: Precision,
        identity: Mapping[str, str],
        profile: Profile,
        ranks: Ranks,
    ) -> None:
        self.task = task
        self.text = text
        self.validate = validate
        self.optimizer = optimizer
        self.schedule = schedule
        self.config = config
        self.tracker = tracker
        self.folder = folder
        self.seed = seed
        self.device = device
        self.precision = precision
        self.identity = identity
        self.profile = profile
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision is Precision.fp16)
        if self.scaler.is_enabled():
            _start_momentum(optimizer)
        self.state = TrainState()
        self.ranks = ranks
        self._loss = ranks.data_parallel(_Loss(task), device)
        self._pending = _Pending()
        self._freed = MemoryReleaser(device)
        self._rates = [group["lr"] for group in optimizer.param_groups]
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.batches: BatchMaker | None = None
        # A new segmentation in a later epoch may change it a little where a batch is of tokens.
        self.epoch_updates = len(self.open_epoch(0))
        by_epochs = (1 if config.fast_dev_run else config.max_epochs) * self.epoch_updates
        self.total = by_epochs if config.max_steps is None else min(config.max_steps, by_epochs)

    def open_epoch(self, epoch: int) -> list[StepPlan]:
        """Have the batches of an epoch at hand, and return its updates."""
        config = self.config
        fixed = config.overfit_batches > 0
        text = self.text(0 if fixed else epoch)
        if self.batches is None or text is not self.batches.text:
            self.batches = None  # the ids of one epoch at a time on the device
            self.batches = BatchMaker(text, self.device)
        steps = plan_epoch(text, config.batch_size, config.batch_unit.value, self.seed, 0 if fixed else epoch)
        if config.fast_dev_run:
            return steps[:3]
        return steps[: config.overfit_batches] if fixed else steps

    @property
    def done(self) -> bool:
        """Whether there is nothing left to train."""
        return self.state.update >= self.total or self._out_of_patience()

    def fit(self) -> None:
        """Train until `max_epochs` or `max_steps`, or until patience runs out; goes on from `self.state`.

        Raises:
            UserError: the loss is not finite, `trainer.monitor` names no figure, or the disk is full.
        """
        state = self.state
        with (
            Progress(self.total, state.update, self._epochs(), 10.0, "target tokens") as progress,
            self.profile(self.total - state.update) as profiled,
        ):
            while not self.done:
                start = time.perf_counter()
                steps = self.open_epoch(state.epoch)
                state.seconds += time.perf_counter() - start
                epoch = state.epoch
                while state.epoch == epoch and not self.done:
                    self._timed_step(steps[state.position])
                    profiled()
                    state.update += 1
                    state.position += 1
                    if state.position == len(steps):
                        state.epoch, state.position = epoch + 1, 0
                    if progress.due():
                        loss, speed = self._pending.mean_loss(), state.target_tokens_per_second
                        progress.show(state.update, epoch + 1, loss, speed, self._best_score())
                    self._after_update(progress, epoch)
        if state.update < self.total:
            log.info(
                "Stopped early: %s has not improved for %s validations (trainer.patience).",
                self.config.monitor,
                self.config.patience,
            )

    def _epochs(self) -> int:
        """Return the number of epochs of the run; the last one may be partial."""
        return math.ceil(self.total / self.epoch_updates)

    def _best_score(self) -> str:
        """Return the best monitored figure so far, with its name; empty before the first validation."""
        if not self.state.history:
            return ""
        value = max(self.state.history) * (1 if self._greater_is_better() else -1)
        return f"best {self.config.monitor} {value:.{2 if abs(value) >= 10 else 3}f}"

    def _after_update(self, progress: Progress, epoch: int) -> None:
        """Log, validate and save what is due after an update of an epoch."""
        config, update = self.config, self.state.update
        if update % config.log_every_steps == 0 or update == self.total:
            self._log()
        if self._validation_due():
            self._validate(partial(progress.show_validation, update, epoch + 1, self._best_score()))
        elif config.checkpoint_every_steps and update % config.checkpoint_every_steps == 0:
            self._save()

    def step(self, step: StepPlan) -> tuple[Tensor, Tensor, int]:
        """Do one optimizer update; return (summed loss, gradient norm, target tokens).

        The first two stay on the device. With float16 the scaler skips a step whose gradient is not finite; it counts as
        a step of the schedule all the same, since the host would have to wait to know.
        """
        state, ranks = self.state, self.ranks
        self.task.model.train()
        self._set_rate()
        with record_function("batch"):
            assert self.batches is not None, "open_epoch comes first"
            own = deal(step, ranks.rank, ranks.size, self.config.micro_batches)
            micro_batches = {number: [self.batches(index) for index in part] for number, part in own.items()}
        tokens = self.batches.target_tokens(step)
        sums: list[Tensor] = []
        for number, batches in micro_batches.items():
            # Dropout's masks are a function of (seed, update, micro-batch): a resumed run draws what it would have
            # drawn, and several ranks draw what one process does that computes the same micro-batches.
            torch.manual_seed(_mixed(self.seed, state.update, number))
            # A rank without a sentence of this step takes part in the sum of the gradients all the same.
            runs: Sequence[Batch | None] = batches or [None]
            losses = []
            with self._gradients_apart():
                for place, batch in enumerate(runs, start=1):
                    last = place == len(runs) and number == max(micro_batches)
                    with ranks.gradient_sync(self._loss, last):
                        with record_function("forward"), autocast(self.precision, self.device):
                            loss_sum = self._loss(batch, state.epoch, state.update)
                        with record_function("backward"):
                            # The ranks' gradients are averaged, and the loss is the mean over the tokens of all.
                            self.scaler.scale(loss_sum * ranks.size / tokens).backward()
                    losses.append(loss_sum.detach())
            sums.append(torch.stack(losses).sum())
        total = ranks.all_reduce(torch.stack(sums).sum())
        self._pending.sentences += sum(len(index) for part in own.values() for index in part)
        with record_function("gradient norm"):
            self.scaler.unscale_(self.optimizer)
            limit = math.inf if self.config.clip_norm is None else self.config.clip_norm
            norm = nn.utils.clip_grad_norm_(self._parameters, limit)
        with record_function("optimizer"):
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
        return total, norm, tokens

    @contextmanager
    def _gradients_apart(self) -> Iterator[None]:
        """Sum up the gradients of a micro-batch by itself, then add those of the ones before, in the order of ranks."""
        if self.ranks.size > 1:  # they lie where the ranks share them
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
        """Go on from a checkpoint, the newest that is valid.

        Raises:
            UserError: the checkpoint belongs to another vocabulary, other data or another precision.
        """
        saved = checkpoint.load_state(path)
        for what, value in self.identity.items():
            if saved["identity"][what] != value:
                raise UserError(
                    f"This run cannot go on from {path}: {what} was {saved['identity'][what]} and is now "
                    f"{value}. Put it back as it was, or start a new run with init_from=RUN_FOLDER."
                )
        state = TrainState(**saved["train_state"])
        if self.total < state.update or (self.total == state.update != state.validated):
            raise UserError(
                f"This run has done {state.update} updates, the last validation was after {state.validated}: it "
                f"cannot end after {self.total}. Give it more with trainer.max_epochs or trainer.max_steps."
            )
        checkpoint.load_weights(path, self.task.model)
        checkpoint.load_optimizer(path, self.optimizer)
        if self.ranks.main:
            checkpoint.remove_newer(path)
        self.state = state
        self.scaler.load_state_dict(self.state.scaler)
        self._pending.restore(
            state.pending_losses, state.pending_tokens, state.pending_sentences, self.device
        )
        log.info("Going on from update %s.", f"{self.state.update:,}")
        if saved["total"] != self.total:
            log.info(
                "The run now has %s updates, not %s: a schedule that depends on the length is stretched.",
                f"{self.total:,}",
                f"{saved['total']:,}",
            )

    def _timed_step(self, step: StepPlan) -> None:
        start = time.perf_counter()
        with record_function(UPDATE):
            loss_sum, norm, tokens = self.step(step)
        self._pending.add(loss_sum, norm, tokens)
        self._freed.after_step(first_epoch=self._pending.steps_this_start <= self.epoch_updates)
        # Launching is not computing: without a wait now and then a GPU's time would not be counted.
        if (self.state.update + 1) % self.config.log_every_steps == 0:
            synchronize(self.device)
        seconds = time.perf_counter() - start
        self.state.seconds += seconds
        if self._pending.steps_this_start > WARM_UP_UPDATES:
            self.state.counted_seconds += seconds
            self.state.counted_tokens += tokens

    def _set_rate(self) -> None:
        update, history = self.state.update, self.state.history
        factor = self.schedule.factor(update, self.total, history)
        momentum = self.schedule.momentum(update, self.total)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
            if momentum is not None and "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            elif momentum is not None and group.get("momentum"):
                group["momentum"] = momentum

    def _log(self) -> None:
        self._check_losses()
        figures = self.task.figures(self.state.update - 1)
        self.tracker.log_metrics(
            {
                "train/loss": self._pending.mean_loss(),
                "train/gradient_norm": self._pending.last_norm(),
                "train/learning_rate": self.optimizer.param_groups[0]["lr"],
                "train/epoch": self.state.update / self.epoch_updates,
                "train/target_tokens_per_second": self.state.target_tokens_per_second,
                "train/sentences_per_rank": self._pending.sentences_per_update(),
                "train/memory_mib": memory_in_use(self.device) / 2**20,
                "train/peak_memory_mib": peak_memory(self.device) / 2**20,
                **{f"train/{name}": value for name, value in figures.items()},
            },
            self.state.update,
        )
        self._pending.clear()

    def _check_losses(self) -> None:
        if self._pending.losses():
            self._check_finite("training loss", self._pending.mean_loss())

    def _check_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            clip = self.config.clip_norm
            raise UserError(
                f"The {what} is {value} at update {self.state.update}, allowed are finite numbers: the "
                f"training has diverged. Use a smaller optimizer.lr (now {max(self._rates):g}), a smaller "
                f"trainer.clip_norm (now {'null' if clip is None else clip}), or trainer.precision=fp32 "
                f"(now {self.precision.value})."
            )

    def _validation_due(self) -> bool:
        config, update = self.config, self.state.update
        interval = config.validate_every
        if config.validate_unit is ValidateUnit.epoch:
            interval *= self.epoch_updates

        def count(updates: int) -> int:
            # A tenth of 30 updates may come out as a little more than 3.
            return math.floor(updates / interval + 1e-9)

        return update == self.total or count(update) > count(update - 1)

    def _validate(self, counted: Counted) -> None:
        self._check_losses()
        start = time.perf_counter()
        values = self.validate(self.state, counted)
        self.state.validation_seconds += time.perf_counter() - start
        monitor = self.config.monitor
        if monitor not in values:
            raise UserError(
                f"trainer.monitor={monitor} is no figure of this run.{did_you_mean(monitor, values)} "
                f"Allowed: {', '.join(values)}."
            )
        self._check_finite(monitor, values[monitor])
        value = values[monitor] if self._greater_is_better() else -values[monitor]
        if not self.state.history or value > max(self.state.history):
            self.state.best = self._name()
        self.state.history.append(value)
        self.state.validated = self.state.update
        self._save()

    def _greater_is_better(self) -> bool:
        mode = self.config.monitor_mode
        return (FIGURES[self.config.monitor] if mode is MonitorMode.auto else mode) is MonitorMode.max

    def _save(self) -> None:
        self._check_losses()
        state = self.state
        state.scaler = self.scaler.state_dict()
        state.pending_losses, state.pending_tokens = self._pending.losses(), self._pending.tokens
        state.pending_sentences = self._pending.sentences
        if not self.ranks.main:
            return
        checkpoint.save(
            self.folder,
            self._name(),
            self.task.model,
            self.optimizer,
            {"train_state": asdict(state), "total": self.total, "identity": dict(self.identity)},
            state.best,
        )
        checkpoint.prune(self.folder, self.config.keep_checkpoints)

    def _name(self) -> str:
        return f"step_{self.state.update:08d}"

    def _out_of_patience(self) -> bool:
        patience, history = self.config.patience, self.state.history
        if patience is None or not history:
            return False
        return len(history) - 1 - history.index(max(history)) >= patience


class _Loss(nn.Module):
    """A task's loss as a module, as torch's data parallelism takes it."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        self.model = task.model

    def forward(self, batch: Batch | None, epoch: int, update: int) -> Tensor:
        """Return the summed loss of a batch; of none, 0 with a gradient of 0 for every weight."""
        if batch is not None:
            return self.task.loss(batch, epoch, update)
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        return torch.stack([weight.flatten()[:0].sum() for weight in weights]).sum()


def _start_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Set the momentum of SGD to 0.

    Its fused step creates the buffers without a value and sets them in the first step alone: if the scaler skips that one,
    the next one reads what was in memory.
    """
    if isinstance(optimizer, torch.optim.SGD):
        for group in optimizer.param_groups:
            if group["momentum"]:
                for parameter in group["params"]:
                    optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def _mixed(*numbers: int) -> int:
    """Return a seed of 64 bits that depends on all of the numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


class _Pending:
    """Figures of the updates since the last log line, left on the device until someone reads them."""

    def __init__(self) -> None:
        self.steps_this_start = 0
        self.clear()

    def clear(self) -> None:
        self.tokens = 0
        self.sentences = 0  # of this rank
        self._losses: list[Tensor] = []
        self._norm: Tensor | None = None

    def restore(self, losses: Sequence[float], tokens: int, sentences: int, device: torch.device) -> None:
        self.tokens = tokens
        self.sentences = sentences
        self._losses = [torch.tensor(loss, device=device) for loss in losses]

    def add(self, loss_sum: Tensor, norm: Tensor, tokens: int) -> None:
        self.steps_this_start += 1
        self.tokens += tokens
        self._losses.append(loss_sum)
        self._norm = norm

    def sentences_per_update(self) -> float:
        return self.sentences / len(self._losses)

    def losses(self) -> list[float]:
        """Return the loss of each step; read by the host to be saved, and to be checked before."""
        return to_host(torch.stack(self._losses)).tolist() if self._losses else []

    def mean_loss(self) -> float:
        """Return the mean loss; read by the host to be logged or shown."""
        return float(to_host(torch.stack(self._losses).sum())) / self.tokens

    def last_norm(self) -> float:
        """Return the last gradient norm; read by the host to be logged."""
        assert self._norm is not None
        return float(to_host(self._norm))
