"""When a training writes checkpoints, and how it resumes from one; `checkpoint` reads and writes their files."""

import logging
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seq2seq_lab.config.upgrade import RENAMED, may_change
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.heartbeat import heartbeat
from seq2seq_lab.training import checkpoint
from seq2seq_lab.training.state import PendingLosses, TrainerSettings, TrainState
from seq2seq_lab.training.step import TrainingStep

log = logging.getLogger(__name__)

NEWEST = 2  # checkpoints that are kept to resume from, whatever caused them: the newest may be damaged


class Checkpointer:
    """Writes the checkpoints of a training, and restores the training from one.

    Args:
        step: its model, optimizer and gradient scaler are saved, and the state of its task.
        pending: saved too.
        folder: the folder of the checkpoints.
        epoch_steps: saved too: a resumed run does not read the first epoch to count its steps.
        identity: values that must be equal in a checkpoint and in the run that resumes from it, by name.
        inputs: names in `identity` of settings with files and folders. They may change: `identity` has a hash of the data.

    Attributes:
        saved: the step of the last checkpoint.
    """

    def __init__(
        self,
        step: TrainingStep,
        pending: PendingLosses,
        settings: TrainerSettings,
        folder: Path,
        *,
        epoch_steps: int,
        identity: Mapping[str, str],
        inputs: Collection[str] = (),
    ) -> None:
        self.step = step
        self.pending = pending
        self.settings = settings
        self.folder = folder
        self.epoch_steps = epoch_steps
        self.identity = identity
        self.inputs = inputs
        self.saved = 0
        self._next_save = math.inf

    def start_timer(self) -> None:
        """Let the next checkpoint be due after `checkpoint_every_minutes`."""
        minutes = self.settings.checkpoint_every_minutes
        self._next_save = math.inf if minutes is None else time.monotonic() + 60 * minutes

    def time_is_up(self) -> bool:
        """Return whether a checkpoint is due by the time since the last one, on rank 0."""
        return self.step.compute.ranks.main and time.monotonic() >= self._next_save

    def due(self, step: int) -> bool:
        """Return whether a checkpoint is due by the number of steps."""
        every = self.settings.checkpoint_every_steps
        return every is not None and step % every == 0

    def save(self, state: TrainState, task_state: Mapping[str, Any]) -> None:
        """Write a checkpoint. It is not a collective operation: the ranks that a signal interrupts are not in step.

        Args:
            task_state: see `Task.state_dict`.
        """
        heartbeat.beat("saving a checkpoint")
        self.saved = state.step
        self.start_timer()
        state.scaler = self.step.scaler.state_dict()
        state.pending_losses, state.pending_counts = self.pending.losses(), self.pending.counts
        state.pending_examples = self.pending.examples
        keep = self.settings.keep_checkpoints
        if (state.validated == state.step or self.due(state.step)) and state.name not in state.regular:
            state.regular = [*state.regular, state.name][-keep:]
        if not self.step.compute.ranks.main:
            return
        with heartbeat.unlimited("saving a checkpoint"):
            checkpoint.save(
                self.folder,
                state.name,
                self.step.model,
                self.step.optimizer,
                {
                    "train_state": asdict(state),
                    "total": self.step.total,
                    "epoch_steps": self.epoch_steps,
                    "identity": dict(self.identity),
                },
                best=state.best,
                task_state=task_state,
            )
            self._prune(state)

    def load(self, path: Path, changed: Sequence[str] = ()) -> TrainState:
        """Load weights, optimizer and task from the newest valid checkpoint, and return the state of the training.

        Args:
            changed: further changes since the run started, for the error message.

        Raises:
            UserError: the checkpoint was written with another vocabulary, other data, other settings or another precision.
        """
        saved = checkpoint.load_state(path)
        before = saved["identity"]
        for what in dict.fromkeys((*self.identity, *before)):
            was, now = (values.get(what, "not set") for values in (before, self.identity))
            if was != now and what not in self.inputs and not may_change(what):
                also = f" Changed since the run started: {'; '.join(changed)}." if changed else ""
                raise UserError(
                    f"Cannot resume from {path}: {RENAMED.get(what, what)} was {was} and is now {now}.{also} Restore it, or "
                    f"start a new run with init_from=RUN."
                )
        state = TrainState.restored(saved["train_state"])
        if "regular" not in saved["train_state"]:  # of an earlier version
            state.regular = checkpoint.names_until(path)
        if self.step.total < state.step:
            raise UserError(
                f"Cannot resume from {path}: the run has completed {state.step} steps and would end at step "
                f"{self.step.total}. Raise trainer.max_epochs or trainer.max_steps."
            )
        checkpoint.load_checked_weights(path, self.step.model)
        checkpoint.load_optimizer(path, self.step.optimizer)
        self.step.task.load_state_dict(checkpoint.load_task_state(path))
        if self.step.compute.ranks.main:
            checkpoint.remove_newer(path)
            self._prune(state)
        self.step.scaler.load_state_dict(state.scaler)
        self.pending.restore(state, self.step.compute.device)
        log.info("Resuming from step %s.", f"{state.step:,}")
        if saved["total"] != self.step.total:
            log.info(
                "The run now has %s steps instead of %s: a schedule that depends on the length is stretched.",
                f"{self.step.total:,}",
                f"{saved['total']:,}",
            )
        return state

    def _prune(self, state: TrainState) -> None:
        checkpoint.prune(self.folder, min(self.settings.keep_checkpoints, NEWEST), state.regular)

    def replace_lost_best(self, state: TrainState) -> None:
        """If the best checkpoint is missing or damaged, make the best one that is left the best, and log a warning.

        If no validated checkpoint is left, the next validation chooses the best one. The model must have the weights of
        the last step: its checkpoint is written again, since it names the best one.
        """
        ranks = self.step.compute.ranks
        if state.best is None:
            return
        lost = self.folder / state.best
        problem = ranks.broadcast(lambda: checkpoint.damage(lost))
        if problem is None:
            return
        state.lost.append(lost.name)
        state.best, state.best_value, state.best_loss = ranks.broadcast(self._best_left)
        log.warning(
            "The best checkpoint %s cannot be used (%s). Of the validated checkpoints that are left, %s is the best.",
            lost,
            problem,
            state.best or "none",
        )
        self.save(state, self.step.task.state_dict(ranks))
        ranks.barrier()  # the other ranks may read this checkpoint next

    def load_best(self, state: TrainState) -> Path:
        """Load the weights of the best checkpoint, or of the best that is left, and return the checkpoint."""
        self.replace_lost_best(state)
        if state.best is None:  # no checkpoint that was validated is left
            state.best = self.step.compute.ranks.broadcast(lambda: checkpoint.newest(self.folder)).name
        best = self.folder / state.best
        checkpoint.load_checked_weights(best, self.step.model)
        return best

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
