"""Runs the command line in this process; few tests need a separate process."""

import gc
import sys
from typing import Any

import pytest

from seq2seq_lab.config import extensions
from seq2seq_lab.config.command_line import parse_line
from seq2seq_lab.config.compose import Request, read_command_line
from seq2seq_lab.launching import cli, start
from seq2seq_lab.tasks.base import EpochPlan
from seq2seq_lab.training.state import TrainState
from seq2seq_lab.training.step import TrainingStep


def run(*arguments: str) -> int:
    """Do what the program does with these arguments, and return its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["seq2seq_lab", *arguments])
        patch.setenv("HYDRA_FULL_ERROR", "1")  # the program sets it, for longer than a test
        try:
            cli.main()
        except SystemExit as end:
            return int(end.code or 0)
        finally:
            gc.unfreeze()  # the program ends after one run; here the garbage of all runs would stay
    return 0


def run_until(step: int, *arguments: str) -> None:
    """Do the same, and interrupt the training before an optimizer step."""
    training_step = TrainingStep.__call__

    def interrupted(self: TrainingStep, plan: EpochPlan, state: TrainState) -> Any:
        if state.step == step:
            raise KeyboardInterrupt
        return training_step(self, plan, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingStep, "__call__", interrupted)
        assert run(*arguments) == 130


def check(*arguments: str) -> Request:
    """Compose and check what the program would run with these arguments."""
    line = parse_line(arguments)
    with extensions.using(line.config_dir):
        request = read_command_line(line)
        for job in request.jobs:
            start.check_parts(job.config)
    return request
