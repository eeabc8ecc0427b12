"""What ends a training or warns about it: steps that are skipped, weights that are not finite, ranks that differ."""

import hashlib
import logging
import math
from collections.abc import Collection, Iterable

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.training.state import PendingLosses, TrainerSettings, TrainState
from seq2seq_lab.training.step import TrainingStep

log = logging.getLogger(__name__)


def require_monitored(monitor: str, values: Collection[str]) -> None:
    """Check that a validation has the monitored metric.

    Args:
        monitor: its name, with the prefix of the validation split.
        values: the names of what was computed.

    Raises:
        UserError: it is not among them.
    """
    if monitor not in values:
        raise UserError(
            f"trainer.monitor={monitor}: this validation split or model does not have this metric. Values: "
            f"{', '.join(values)}."
        )


class Guards:
    """Checks a training before each log line, validation and checkpoint, and at its end.

    Args:
        uniform_loss: see `Task.uniform_loss`.
    """

    def __init__(
        self,
        step: TrainingStep,
        pending: PendingLosses,
        settings: TrainerSettings,
        uniform_loss: float | None,
    ) -> None:
        self.step = step
        self.pending = pending
        self.settings = settings
        self.uniform_loss = uniform_loss

    def count_skipped(self, state: TrainState) -> None:
        """Count the skipped steps that have not been counted yet.

        With float16, a gradient that overflows lowers the scale of the loss; it counts only if the scale is below 1.

        Raises:
            UserError: `max_skipped_steps` steps in a row were skipped.
        """
        limit, scaler = self.settings.max_skipped_steps, self.step.scaler
        before, longest = state.skipped, 0
        backs_off = scaler.is_enabled() and scaler.get_scale() >= 1
        new = self.pending.take_uncounted()
        state.step_losses.add(state.step - len(new), [loss / units for loss, _, units in new])
        for loss, norm, _ in new:
            skipped = not (math.isfinite(loss) and (backs_off or math.isfinite(norm)))
            state.skipped += skipped
            state.skipped_in_a_row = state.skipped_in_a_row + 1 if skipped else 0
            longest = max(longest, state.skipped_in_a_row)
        if longest >= limit:
            raise self.diverged(
                f"Loss or gradient norm was not finite in {longest} steps in a row (trainer.max_skipped_steps={limit})",
                state,
            )
        if state.skipped > before:
            log.warning(
                "Up to step %s, %s steps were skipped: their loss or gradient norm was not finite. The training stops after "
                "%s in a row (trainer.max_skipped_steps).",
                f"{state.step:,}",
                f"{state.skipped:,}",
                limit,
            )

    def check_weights(self, state: TrainState) -> None:
        """Refuse weights and moments that are not finite."""
        sums: dict[tuple[torch.device, torch.dtype], list[tuple[str, Tensor]]] = {}
        for name, weight in self.step.model.named_parameters():
            for tensor in (weight, *self.step.optimizer.state.get(weight, {}).values()):
                if isinstance(tensor, Tensor):
                    sums.setdefault((tensor.device, tensor.dtype), []).append((name, tensor.detach().sum()))
        for group in sums.values():
            names, values = zip(*group, strict=True)
            # A sum is finite if and only if its terms are, except for an overflow. The host reads it only for a checkpoint.
            finite = np.isfinite(to_host(torch.stack(values)))
            if not finite.all():
                name = names[int(finite.argmin())]
                raise self.diverged(f"The weight {name}, or its state in the optimizer, is not finite", state)

    def compare_ranks(self, state: TrainState) -> None:
        """Refuse ranks whose weights or optimizers differ.

        Raises:
            UserError: names the ranks that differ from rank 0.
        """
        ranks = self.step.compute.ranks
        if ranks.size == 1:
            return
        digests = ranks.gather(digest([*self.step.model.parameters(), *state_tensors(self.step.optimizer)]))
        others = [str(rank) for rank, rank_digest in enumerate(digests) if rank_digest != digests[0]]
        if others:
            raise UserError(
                f"The weights or the optimizer of rank {', '.join(others)} differ from those of rank 0 at step "
                f"{state.step}: the ranks no longer train the same model. Earlier checkpoints are not changed. "
                f"Check the memory and the device of these ranks, then resume with resume=RUN."
            )

    def diverged(self, problem: str, state: TrainState) -> UserError:
        """Return the error of a training that has diverged."""
        return UserError(
            f"{problem} at step {state.step}: the training has diverged. Earlier checkpoints are not changed. "
            f"{self._advice()}"
        )

    def not_finite(self, value: float, loss: float, state: TrainState) -> UserError:
        """Return the error of a monitored metric that is not finite.

        Args:
            loss: `TrainerSettings.tie_breaker` of the same validation. Without one, the last training loss is used.
        """
        problem, name = f"{self.settings.monitor}={value}", self.settings.tie_breaker or "the training loss"
        is_known = self.settings.tie_breaker is not None
        finite_loss = math.isfinite(loss) if is_known else None not in state.step_losses.last[-1:]
        if not finite_loss or self.divergence(state) is not None:
            return self.diverged(problem, state)
        return UserError(
            f"{problem} at step {state.step}: the metric is not finite, but {name} is. Earlier checkpoints are not "
            f"changed. Correct the method value of the metric, or set trainer.monitor to another metric."
        )

    def divergence(self, state: TrainState) -> str | None:
        """Return how the training has diverged although its loss is finite; None if it has not."""
        return state.step_losses.divergence(self.uniform_loss)

    def warn_at_end(self, state: TrainState, total: int) -> None:
        """Log what the user should know about a training that has ended."""
        if state.step < total:
            log.info(
                "Stopped early: %s has not improved for %s validations (trainer.patience).",
                self.settings.monitor,
                self.settings.patience,
            )
        self._warn_of_constant_metric(state)
        if (divergence := self.divergence(state)) is not None:
            log.warning("The training has diverged: %s. %s", divergence, self._advice())

    def _warn_of_constant_metric(self, state: TrainState) -> None:
        """Log a warning if the monitored metric had the same value at every validation."""
        history, loss = state.history, self.settings.tie_breaker
        if len(history) < 2 or min(history) != max(history):
            return
        if loss is None or all(one is None for one in state.losses):
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

    def _advice(self) -> str:
        """Return what to change after a training that has diverged."""
        clip = self.settings.clip_norm
        return (
            f"Start a new run with a smaller optimizer.lr (now {max(self.step.rates):g}), a smaller trainer.clip_norm (now "
            f"{'null' if clip is None else clip}), or trainer.precision=fp32 (now {self.step.compute.precision.value})."
        )


def state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the tensors of the state of an optimizer, in the order of its parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    states = [optimizer.state.get(parameter, {}) for parameter in parameters]
    return [value for state in states for _, value in sorted(state.items()) if isinstance(value, Tensor)]


def digest(tensors: Iterable[Tensor]) -> str:
    """Return a hash of the values of tensors."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(to_host(tensor.contiguous()).tobytes())  # the ranks compare their weights
    return found.hexdigest()
