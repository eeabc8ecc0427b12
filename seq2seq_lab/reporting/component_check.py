"""Evaluates custom components before the first step, so that an error in them costs no training."""

import contextlib
import copy
import logging
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq_lab.config.schema import Config
from seq2seq_lab.config.slots import custom_components, named_components
from seq2seq_lab.data.download import cache_folder
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.reporting.output_check import checked_outputs
from seq2seq_lab.reporting.run_report import report_evaluations
from seq2seq_lab.reporting.shown import show_validation
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import autocast
from seq2seq_lab.tasks.base import StepInfo, Task, TrainingSplit
from seq2seq_lab.tracking import Trackers
from seq2seq_lab.training.initial import use_vocabulary

EXAMPLES = 2  # of the validation split


def check_components(config: Config, task: Task, model: Any, compute: Compute) -> None:
    """Evaluate two validation examples and report them, if the run uses a file of `--config-dir`, and compute a gradient.

    The generator of random numbers and the attributes of the task do not change.

    Raises:
        UserError: the code of the user raises an exception: names the component, the file and the line. What an attention
            function, a decoder or a readout returns is wrong, or a component gets no gradient: names the component.
    """
    if not (custom := custom_components(config)):
        return
    tried = copy.copy(task)  # `load` sets attributes
    saved = use_vocabulary(config, tried)
    with named_components(config), quiet(), torch.random.fork_rng(), tempfile.TemporaryDirectory() as folder:
        data = tried.load(cache_folder(config.cache_dir), saved, EXAMPLES)
        alone = Compute(compute.device, compute.precision)
        evaluator = tried.evaluator(data.validation, model, alone)
        with checked_outputs(model):
            evaluation = evaluator(final=True)
        split, tracker = data.validation, Trackers(())
        show_validation(tried.report(split, evaluation, 0), split.prefix, Path(folder), tracker, 0)
        declared = Declarations.of(evaluator.metrics, evaluator.groupings, tried.primary)
        report_evaluations(
            tried, [(split, evaluation)], declared, folder=Path(folder), tracker=tracker, step=0
        )
        check_gradients(tried, copy.deepcopy(model), data.train, alone, custom)


def check_gradients(
    task: Task,
    model: nn.Module,
    train: TrainingSplit,
    compute: Compute,
    custom: Mapping[Path, Mapping[str, str]],
) -> None:
    """Refuse custom components whose weights get no gradient from a training batch, and custom tasks with an unusable loss.

    Args:
        model: a copy, whose buffers may change.
        custom: see `custom_components`.

    Raises:
        UserError: names the component.
    """
    weights = {
        setting: trained
        for module in model.modules()
        if (setting := _setting_of(module, custom))
        and (trained := [weight for weight in module.parameters() if weight.requires_grad])
    }
    own_task = _setting_of(task, custom)
    if not weights and own_task is None:
        return
    plan = train.epoch(0, compute.device)
    if not plan.steps:
        return
    ((index, *_),) = plan.share(0, rank=0, ranks=1, micro_batches=1).values()
    model.train()
    with autocast(compute.precision, compute.device):
        loss = task.loss(model, plan.batch(index), StepInfo(epoch=0, step=0))
    if own_task is not None:
        _check_loss(loss, own_task)
    if loss.requires_grad:
        torch.autograd.backward(loss)
    for setting, trained in weights.items():
        if all(weight.grad is None for weight in trained):
            raise UserError(
                f"{setting}: the loss has no gradient for its weights, so they would not be trained. What it returns may be "
                f"detached, computed with torch.no_grad(), or integers. Correct it; for weights that are not to be trained, "
                f"call requires_grad_(False)."
            )


def _check_loss(loss: object, setting: str) -> None:
    """Refuse what the `loss` of a custom task returned for a training batch, if it cannot be trained with."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        shown = (
            f"a tensor of shape {[*loss.shape]}"
            if isinstance(loss, Tensor)
            else f"of type {type(loss).__name__}"
        )
        raise UserError(
            f"{setting}: its loss of a training batch is {shown}. Return a tensor with one number, the sum over the units "
            f"of the batch."
        )
    if not loss.isfinite():
        raise UserError(f"{setting}: its loss of the first training batch is {loss.item()}. Correct `loss`.")
    if not loss.requires_grad:
        raise UserError(
            f"{setting}: its loss has no gradient. It may be detached, or computed with torch.no_grad() or from integers. "
            f"Correct `loss`."
        )


def _setting_of(part: object, custom: Mapping[Path, Mapping[str, str]]) -> str | None:
    """Return the setting that names the class of a part, if it is in a file of `--config-dir`."""
    file = getattr(sys.modules[type(part).__module__], "__file__", None)
    return custom.get(Path(file or ""), {}).get(type(part).__name__)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Show nothing on the terminal and in the log."""
    shared, before = console.console(), logging.root.manager.disable
    was_quiet, shared.quiet = shared.quiet, True
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        shared.quiet = was_quiet
        logging.disable(before)
