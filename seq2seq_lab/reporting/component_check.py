"""Evaluates custom components before the first step, so that an error in them costs no training."""

import contextlib
import copy
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from seq2seq_lab.config.schema import Config
from seq2seq_lab.config.slots import custom_components, named_components
from seq2seq_lab.data.download import cache_folder
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.reporting.run_report import report_evaluations
from seq2seq_lab.reporting.shown import show_validation
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.tasks.base import Task
from seq2seq_lab.tracking import Trackers
from seq2seq_lab.training.initial import use_vocabulary

EXAMPLES = 2  # of the validation split


def check_components(config: Config, task: Task, model: Any, compute: Compute) -> None:
    """Evaluate two validation examples and report them, if the run uses a file of `--config-dir`.

    The generator of random numbers and the attributes of the task do not change.

    Raises:
        UserError: the code of the user raises an exception: names the component, the file and the line.
    """
    if not custom_components(config):
        return
    tried = copy.copy(task)  # `load` sets attributes
    saved = use_vocabulary(config, tried)
    with named_components(config), quiet(), torch.random.fork_rng(), tempfile.TemporaryDirectory() as folder:
        data = tried.load(cache_folder(config.cache_dir), saved, EXAMPLES)
        alone = Compute(compute.device, compute.precision)
        evaluator = tried.evaluator(data.validation, model, alone)
        evaluation = evaluator(final=True)
        split, tracker = data.validation, Trackers(())
        show_validation(tried.report(split, evaluation, 0), split.prefix, Path(folder), tracker, 0)
        declared = Declarations.of(evaluator.metrics, evaluator.groupings, tried.primary)
        report_evaluations(
            tried, [(split, evaluation)], declared, folder=Path(folder), tracker=tracker, step=0
        )


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
