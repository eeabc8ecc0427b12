"""The command line: `python -m seq2seq_lab`."""

import argparse
import gc
import io
import os
import platform
import sys
import textwrap
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import TaskFunction
from omegaconf import DictConfig, read_write

import seq2seq_lab
from seq2seq_lab.config import extensions, hydra_adapter
from seq2seq_lab.config.command_line import parse_line
from seq2seq_lab.config.compose import (
    Composed,
    Request,
    check_closed,
    composer,
    read_command_line,
    select_choices,
)
from seq2seq_lab.config.input_paths import make_absolute
from seq2seq_lab.config.run_folder import read_finished_result
from seq2seq_lab.config.run_folders import named_folders
from seq2seq_lab.config.schema import CONF_DIR
from seq2seq_lab.errors import UserError, report_errors
from seq2seq_lab.launching import study
from seq2seq_lab.launching.side_by_side import end_with_launcher
from seq2seq_lab.runtime.torchrun import is_external_rank, is_secondary_rank
from seq2seq_lab.streams import optional_output

RESUME = "resume="
AUTO = "resume=auto"
HELP_WIDTH = 80  # columns


def main() -> None:
    """Run the program.

    A `UserError` is printed without a traceback; the exit status is 2. Any other exception is printed with its traceback;
    the exit status is 1. A multirun continues after a failed job.
    """
    end_with_launcher()
    with report_errors():
        if "--version" in sys.argv[1:]:
            print(describe_versions())
        else:
            run_command(sys.argv[1:])


def describe_versions() -> str:
    """Return the versions of the program and of its main dependencies, without importing them."""
    others = ", ".join(f"{name} {version(name)}" for name in ("torch", "hydra-core", "wandb", "sacrebleu"))
    return f"seq2seq_lab {seq2seq_lab.__version__} (Python {platform.python_version()}, {others})"


def run_command(arguments: Sequence[str]) -> None:
    """Execute a command line.

    Modules that import torch are imported after the settings have been checked.

    Raises:
        UserError: the command line is invalid, or a run ended with an error.
    """
    arguments = named_folders(arguments)
    line = parse_line(arguments)
    shows_only = line.help or line.hydra_help or line.cfg or line.info or line.shell_completion
    if is_secondary_rank() and (line.multirun or shows_only):
        sys.exit(2 if line.multirun else 0)  # rank 0 prints
    if is_external_rank() and line.multirun:
        raise UserError(
            "--multirun under a launcher is not supported: the launcher's processes are the ranks of one run. Start the "
            "launcher once for each job, or start the jobs without it and set trainer.devices=N."
        )
    resumed = any(item.startswith(RESUME) and item != AUTO for item in line.overrides)
    with extensions.using(line.config_dir):
        if line.hydra_help or line.shell_completion:
            run_hydra(arguments, print)
            return
        if is_secondary_rank():
            from seq2seq_lab.launching.launch import follow

            follow(resumed)
        elif resumed:
            with optional_output():
                resume(line)
        else:
            resume_auto = AUTO in line.overrides
            arguments, line.overrides = (
                [item for item in items if item != AUTO] for items in (arguments, line.overrides)
            )
            request = read_command_line(line)
            options = [argument for argument in arguments if argument not in line.overrides]
            # Hydra's parser needs the settings together.
            full = [*options, *request.inherited, *line.overrides]
            if line.help:
                # Hydra exits after its help.
                with redirect_stdout(io.StringIO()) as shown, suppress(SystemExit):
                    run_hydra(full, print)
                print("\n".join(map(wrapped, shown.getvalue().rstrip().splitlines())))
                sys.exit(0)
            if shows_only:
                run_hydra(full, print)
                return
            if resume_auto:
                check_auto(request, line.overrides)
            with optional_output():
                if request.multirun:
                    run_study(request, arguments, [*request.inherited, *line.overrides])
                else:
                    gc.disable()  # until training: imports and data make many objects, and little garbage
                    (composed,) = request.jobs
                    check_single(composed, resume_auto)
                    with composer():
                        run = partial(run_single, composed, resume_auto)
                        hydra_adapter.run_composed(composed.node, run)
        if is_external_rank():
            from seq2seq_lab.launching.launch import leave

            leave()


def wrapped(line: str) -> str:
    """Return a line of Hydra's help in lines of at most `HELP_WIDTH` columns."""
    return textwrap.fill(line, HELP_WIDTH, subsequent_indent="  ") if line else line


def run_hydra(arguments: Sequence[str], function: TaskFunction) -> None:
    """Run Hydra's own program.

    Raises:
        UserError: Hydra refuses the command line.
    """
    # Otherwise Hydra prints a summary of an exception and exits.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    sys.argv[1:] = arguments
    try:
        hydra_adapter.run_main(CONF_DIR, function)
    except HydraException as error:
        raise UserError(str(error)) from error


def check_auto(request: Request, overrides: Sequence[str]) -> None:
    """Refuse `resume=auto` where it cannot find the run that it should resume.

    Raises:
        UserError: a study is started, or the run folder has not been chosen.
    """
    if request.multirun:
        raise UserError(
            f"{AUTO}: the jobs of a study resume without it. Leave it out, and set study.name=NAME."
        )
    if not any(item.startswith("hydra.run.dir=") for item in overrides):
        raise UserError(f"{AUTO} needs the folder of the run: hydra.run.dir=FOLDER.")


def check_single(composed: Composed, resume_auto: bool) -> None:
    """Check one configuration and its run folder, before Hydra writes to the folder.

    Raises:
        UserError: the configuration is invalid, or the folder cannot be used.
    """
    from seq2seq_lab.launching import start

    # With hydra.job.chdir the paths of `composed` are not yet those of the recorded run.
    if resume_auto and not composed.node.hydra.job.chdir:
        start.check_existing_run(composed, composed.run_folder)
    elif composed.config.study.number is None and not resume_auto:
        start.refuse_existing_run(composed.run_folder)
        start.check_run(composed.config)


def run_single(composed: Composed, resume_auto: bool, node: DictConfig) -> None:
    """Start or resume the run of one configuration, which can be a job of a study that a launcher has started.

    Args:
        resume_auto: whether to resume the run that the folder contains.
        node: what Hydra passes: its copy of `composed.node`, without Hydra's section.
    """
    from seq2seq_lab.launching import start

    folder, number = Path(HydraConfig.get().runtime.output_dir), composed.config.study.number
    if number is not None:
        entry = study.make_entry(node, composed.choices, folder, number)
        make_absolute(node)
        start.start_job(node, composed.choices, folder, entry, composed.overrides)
        return
    if make_absolute(composed.node):
        composed = replace(check_closed(composed.node, ()), overrides=composed.overrides)
    begin = start.start_or_resume_run if resume_auto else start.start_run
    begin(composed, folder)


def run_study(request: Request, arguments: Sequence[str], settings: Sequence[str]) -> None:
    """Check the jobs of a multirun, run them with Hydra's sweeper and launcher, and print their scores.

    Args:
        arguments: the command line, for the command that continues the study.
        settings: its settings, with inherited ones.
    """
    from seq2seq_lab.launching import start
    from seq2seq_lab.tracking.parts import check_logger
    from seq2seq_lab.training import provenance

    for composed in request.jobs:
        start.check_parts(composed.config)
        study.check_direction(composed)
        with read_write(composed.node):
            composed.node.study.varies = request.varies  # the name of the job's folder depends on it
    planned = study.plan(request)
    unfinished = [job.config for job in request.jobs if read_finished_result(job.job_folder) is None]
    for config in {str(config.logger): config for config in unfinished}.values():
        check_logger(config)
    provenance.clear_cache()  # of an earlier study of this process
    study.check_unchanged({job.job_folder: job.config for job in request.jobs if job.job_folder.is_dir()})
    try:
        with composer():
            hydra_adapter.run_multirun([*settings, *planned.settings], StudyJob(extensions.folder()))
    except HydraException as error:
        raise UserError(str(error)) from error
    except KeyboardInterrupt:
        print(study.format_continue_command(planned, arguments), file=sys.stderr)
        raise
    finally:
        study.print_summary(planned)


class StudyJob:
    """The function that Hydra calls with the configuration of each job of a multirun, in this process or another.

    Args:
        config_dir: the folder of custom components.
    """

    def __init__(self, config_dir: Path | None) -> None:
        self.config_dir = config_dir

    def __call__(self, node: DictConfig) -> float | None:
        """Run a job and return its score, for sweepers that optimize it."""
        from seq2seq_lab.launching import start

        job = HydraConfig.get()
        chosen, folder = select_choices(job.runtime.choices), Path(job.runtime.output_dir)
        entry = study.make_entry(node, chosen, folder, job.job.num)
        make_absolute(node)
        with extensions.using(self.config_dir):
            try:
                return start.start_job(node, chosen, folder, entry, job.overrides.task)
            except Exception as error:
                # Hydra continues with the next job and in the end raises the first error only.
                message = str(error) or type(error).__name__
                print(f"error: {entry.label} in {folder}: {message}", file=sys.stderr, flush=True)
                raise


def resume(line: argparse.Namespace) -> None:
    """Resume the run of `resume=FOLDER` with the other settings as changes.

    Raises:
        UserError: an option or a second folder is given, or what `start.resume_run` raises.
    """
    from seq2seq_lab.launching import start

    options = [
        f"--{name.replace('_', '-')}"
        for name, given in vars(line).items()
        if given and name not in ("overrides", "config_dir")
    ]
    if options:
        raise UserError(f"{' '.join(options)} cannot be combined with resume=, which resumes one run.")
    (given, *others) = [item for item in line.overrides if item.startswith(RESUME)]
    if others:
        raise UserError(f"{' '.join(others)}: resume= takes one folder. Start the program once for each.")
    folder = Path(given.removeprefix(RESUME).strip("'\""))
    start.resume_run(folder, [item for item in line.overrides if item != given])
