"""One optimizer step: forward and backward pass of its micro-batches, then the update of the weights."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import record_function

from seq2seq_lab.config.schema import Precision
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import autocast
from seq2seq_lab.runtime.heartbeat import heartbeat
from seq2seq_lab.runtime.memory import TRAINING, memory_errors
from seq2seq_lab.tasks.base import EpochPlan, StepInfo, Task
from seq2seq_lab.training.schedules import Schedule
from seq2seq_lab.training.state import StepResult, TrainerSettings, TrainState


class TrainingStep:
    """Computes the optimizer steps of a training.

    Args:
        seed: seed of the dropout masks.
        total: the number of steps of the training, for the schedule.
        compute: its ranks share every step.

    Attributes:
        rates: the learning rate of each group of parameters, before the factor of the schedule.
    """

    def __init__(
        self,
        *,
        task: Task,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        settings: TrainerSettings,
        seed: int,
        total: int,
        compute: Compute,
    ) -> None:
        self.task = task
        self.model = model
        self.optimizer = optimizer
        self.schedule = schedule
        self.micro_batches, self.by_example = settings.micro_batches, settings.by_example
        self.max_norm = math.inf if settings.clip_norm is None else settings.clip_norm
        self.seed = seed
        self.total = total
        self.compute = compute
        self.rates = [group["lr"] for group in optimizer.param_groups]
        self.scaler = torch.amp.GradScaler(compute.device.type, enabled=compute.precision is Precision.fp16)
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._skips_on_device = decides_on_device(optimizer, compute.device)
        if self._skips_on_device:
            start_momentum(optimizer)
        self._loss = compute.ranks.data_parallel(_Loss(task, model), compute.device)
        if compute.ranks.size > 1:
            # DDP rearranges its buckets of gradients once, in the order in which the first backward pass computes them. With
            # three or more ranks, the order of a sum depends on the position in a bucket. This pass is the same at every
            # start, so that a resumed run sums in the same order.
            self._loss(None, StepInfo(epoch=0, step=0)).backward()
            optimizer.zero_grad(set_to_none=True)

    def __call__(self, plan: EpochPlan, state: TrainState) -> StepResult:
        """Perform the optimizer step at the position of `state` in the plan of the epoch. `state` does not change.

        Loss and norm stay on the device. If the loss or the norm is not finite on any rank, no rank updates its weights.
        The schedule still counts that step, since the host would have to wait for the device to know.
        """
        step, ranks = state.step, self.compute.ranks
        heartbeat.begin_step(step + 1)
        self.model.train()
        self._set_rate(state)
        with _phase("batch"):
            own = plan.share(state.position, ranks.rank, ranks.size, self.micro_batches)
            micro_batches = {part: [plan.batch(index) for index in batches] for part, batches in own.items()}
        units = plan.count(state.position)
        divisor = plan.examples(state.position) if self.by_example else units
        info = StepInfo(state.epoch, step)
        sums: list[Tensor] = []
        for part, batches in micro_batches.items():
            # Dropout masks are a function of (seed, step, micro-batch): a resumed run draws the same masks, and several
            # ranks draw those of one process with the same micro-batches.
            _set_seed(_mixed(self.seed, step, part), self.compute.device)
            losses = []
            with self._separate_gradients():
                # A rank without an example in this micro-batch still takes part in the sum of the gradients.
                for count, batch in enumerate(batches or [None], start=1):
                    last = count == max(1, len(batches)) and part == max(micro_batches)
                    with (
                        memory_errors(f"step {step + 1:,}", batch, TRAINING),
                        ranks.gradient_sync(self._loss, last),
                    ):
                        with (
                            _phase("forward", waits=True),
                            autocast(self.compute.precision, self.compute.device),
                        ):
                            loss_sum = self._loss(batch, info)
                        with _phase("backward", waits=True):
                            # The gradients are averaged over the ranks; the divisor is that of all ranks.
                            self.scaler.scale(loss_sum * ranks.size / divisor).backward()
                    losses.append(loss_sum.detach())
            sums.append(torch.stack(losses).sum())
        examples = sum(len(index) for batches in own.values() for index in batches)
        return StepResult(*self._update_weights(torch.stack(sums).sum(), step), units, examples)

    def _update_weights(self, loss_sum: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Clip the gradients and update the weights; return the summed loss of all ranks and the gradient norm."""
        with memory_errors(f"the update of step {step + 1:,}", None, TRAINING):
            with _phase("gradient norm", waits=True):
                self.scaler.unscale_(self.optimizer)
                norm = nn.utils.clip_grad_norm_(self._parameters, self.max_norm)
                sums = self.compute.ranks.all_reduce(torch.stack([loss_sum, norm]))
            with _phase("optimizer", waits=True):
                step_if(torch.isfinite(sums).all(), self.optimizer, self._skips_on_device)
                self.scaler.update()
                self.optimizer.zero_grad(set_to_none=True)
        # The norm of another rank can be the only one that is not finite; all ranks count the step that they skip.
        return sums[0], torch.where(sums[1].isfinite(), norm, sums[1])

    def _set_rate(self, state: TrainState) -> None:
        schedule = self.schedule
        factor = schedule.factor(state.step, self.total, state.scores)
        _require_number(schedule, "factor", factor, math.inf)
        epoch_factor = schedule.epoch_factor(state.epoch)
        _require_number(schedule, "epoch_factor", epoch_factor, math.inf)
        factor *= epoch_factor
        momentum = schedule.momentum(state.step, self.total)
        if momentum is not None:
            _require_number(schedule, "momentum", momentum, 1.0)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
            if momentum is not None and "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            elif momentum is not None and group.get("momentum"):
                group["momentum"] = momentum

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


def _require_number(schedule: Schedule, method: str, value: object, limit: float) -> None:
    """Refuse a value that a schedule returned, unless it is a number from 0 to below the limit.

    Raises:
        UserError: names the schedule, the method and the value.
    """
    if not (isinstance(value, Real) and 0 <= float(value) < limit):
        bound = "finite" if limit == math.inf else f"below {limit:g}"
        raise UserError(
            f"schedule={type(schedule).__name__}: {method} returned {value!r}. Expected: a Python number of at least 0 that "
            f"is {bound}. Correct {method}."
        )


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


def _set_seed(seed: int, device: torch.device) -> None:
    """Seed the generators of the CPU and of `device`, as `torch.manual_seed` does for all devices.

    On a machine without a GPU, `torch.manual_seed` formats the Python stack for each kind of device, in every step.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


def _mixed(*numbers: int) -> int:
    """Return a 64-bit seed that depends on all of the numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def decides_on_device(optimizer: torch.optim.Optimizer, device: torch.device) -> bool:
    """Return whether the optimizer can skip a step without the host: the fused optimizers on a GPU."""
    return device.type == "cuda" and bool(optimizer.defaults.get("fused"))


def step_if(finite: Tensor, optimizer: torch.optim.Optimizer, on_device: bool) -> None:
    """Perform an optimizer step if `finite` is true; otherwise change neither the weights nor the optimizer's state.

    Args:
        finite: a bool, on the device of the weights.
        on_device: pass the decision to the fused kernel as `torch.amp.GradScaler` does. Otherwise the host reads it.
    """
    if on_device:
        optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
    elif finite:
        optimizer.step()


def start_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Set the momentum of SGD to 0.

    Its fused kernel allocates the buffers without a value and sets them in the first step only: if that step is skipped,
    the next one reads uninitialized memory.

    Raises:
        UserError: a dampening, which SGD does not apply to the first gradient, but would apply to a momentum of 0.
    """
    if isinstance(optimizer, torch.optim.SGD):
        for group in optimizer.param_groups:
            if group["momentum"]:
                if group["dampening"] != 0:
                    raise UserError(
                        f"optimizer.dampening={group['dampening']} cannot be combined with optimizer.fused=true on a GPU. "
                        f"Set optimizer.dampening=0, or optimizer.fused=false."
                    )
                for parameter in group["params"]:
                    optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
