"""The command line: refuses what cannot run, and hands over to `run`."""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

import seq2seq_lab
from seq2seq_lab.config import extensions
from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.compose import choices, compose_resumed, parse_line, preflight
from seq2seq_lab.errors import UserError, exit_on_closed_pipe
from seq2seq_lab.files import (
    FolderInUseError,
    lock_folder,
    read_finished_result,
    read_record,
    write_atomically,
)
from seq2seq_lab.launching import study
from seq2seq_lab.runtime.torchrun import is_external_rank, is_secondary_rank

RESUME = "resume="


def main() -> None:
    """Run the program.

    What a user did wrong is printed without a traceback and ends it with status 2; a fault of the program
    shows its traceback and ends it with status 1. A multirun goes on after a job that failed.
    """
    with exit_on_closed_pipe():
        if "--version" in sys.argv[1:]:
            print(versions())
        else:
            _main(sys.argv[1:])


def versions() -> str:
    """Return the versions of the program and of its main dependencies, without importing them."""
    others = ", ".join(f"{name} {version(name)}" for name in ("torch", "hydra-core", "wandb", "sacrebleu"))
    return f"seq2seq_lab {seq2seq_lab.__version__} (Python {platform.python_version()}, {others})"


def _main(arguments: list[str]) -> None:
    # Hydra prints only a summary of an exception unless it is told to let it through.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    many: study.Study | None = None

    try:
        line = parse_line(arguments)
        if is_secondary_rank() and line.multirun:
            sys.exit(2)  # rank 0 says why
        if is_external_rank() and line.multirun:
            raise UserError(
                "--multirun under a launcher: its processes are the ranks of one run, and each job of a multirun needs "
                "ranks of its own. Start the launcher once for each job, or leave it out and give trainer.devices=N."
            )
        with extensions.using(line.config_dir):
            if is_secondary_rank():
                # What ends without a run is rank 0's to print.
                if not (line.help or line.hydra_help or line.cfg or line.info or line.shell_completion):
                    from seq2seq_lab.launching.launch import follow

                    follow()
            elif any(item.startswith(RESUME) for item in line.overrides):
                resume(line)
            else:
                settings, planned = preflight(arguments)
                if planned is not None:
                    study.check_unchanged(planned.begun)
                many = planned
                # Hydra's parser wants the settings together.
                options = [argument for argument in arguments if argument not in line.overrides]
                sys.argv[1:] = [*options, *settings, *line.overrides, *(many.settings if many else ())]
                launcher = hydra.main(
                    version_base="1.3", config_path=str(configuration.CONF_DIR), config_name="config"
                )
                refused: list[UserError] = []
                launcher(job_of(extensions.folder(), refused))()
                if refused:
                    raise refused[0]
    except (UserError, HydraException) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        if many:
            print(study.how_to_continue(many, arguments), file=sys.stderr)
        sys.exit(130)
    finally:
        if many:
            study.tell(many)
    if is_external_rank() and "seq2seq_lab.launching.launch" in sys.modules:
        sys.modules["seq2seq_lab.launching.launch"].leave()


def job_of(config_dir: Path | None, refused: list[UserError]) -> Callable[[DictConfig], float | None]:
    """Return what Hydra is to do with each job's configuration, in this process or another.

    Args:
        refused: receives the error of a single run that is refused; if it were raised, Hydra would print a line
            before it. A job of a multirun raises it, for a sweeper that learns from its jobs.
    """

    def job(node: DictConfig) -> float | None:
        with extensions.using(config_dir):
            if HydraConfig.get().mode is RunMode.MULTIRUN:
                return start(node)
            try:
                return start(node)
            except UserError as error:
                refused.append(error)
                return None

    return job


def start(node: DictConfig) -> float | None:
    """Run one composed job in Hydra's output folder; of a study, return its score for a sweeper that learns from it."""
    told = HydraConfig.get()
    chosen, folder = choices(told.runtime.choices), Path(told.runtime.output_dir)
    number = told.job.num if told.mode is RunMode.MULTIRUN else node.study.number
    if number is None:
        start_run(node, chosen, folder)
        return None
    start_job(node, chosen, folder, study.entry_of(node, chosen, folder, number))
    return study.score(folder, node.trainer.monitor)


def start_job(node: DictConfig, chosen: Mapping[str, str], folder: Path, entry: study.Entry) -> None:
    """Run a job of a study, or what is left of it, unless another process does.

    Raises:
        UserError: something is wrong with it, or the run of another job lies in its folder.
    """
    from seq2seq_lab.training import checkpoint

    study.name_in_logger(node, entry)
    config = configuration.plain(node)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with lock_folder(folder):
            study.check_folder(folder, config)
            if node.study.number is None:  # who gave a number has noted it
                study.note(folder.parent, entry)
            study.refuse_changed(study.settle(folder, configuration.typed(node)))
            if read_finished_result(folder) is None:
                resume = checkpoint.any_valid(folder / "checkpoints")
                write_atomically(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(config)))
                launch_job(node, chosen, folder, resume)
    except FolderInUseError:
        print(f"{entry.label}: another process is running it, in {folder}", flush=True)
        return
    except Exception as error:
        # Hydra goes on with the next job, and in the end tells of the first one that failed.
        print(
            f"error: {entry.label} in {folder}: {str(error) or type(error).__name__}",
            file=sys.stderr,
            flush=True,
        )
        raise
    print(f"{entry.label}: {study.outcome(folder, 'finished')}, {folder}", flush=True)


def start_run(node: DictConfig, chosen: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Run a checked configuration in a folder, made if need be, and return what its `result.json` holds.

    Args:
        chosen: the chosen value of each group.

    Raises:
        UserError: a run lies there already, or goes on there, or something is wrong with this one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        if (folder / "config.yaml").exists():
            raise UserError(f"{folder}: a run lies there already. Choose another folder for each run.")
        write_atomically(
            folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(configuration.plain(node)))
        )
        return launch_job(node, chosen, folder, resume=False)


def resume(line: argparse.Namespace) -> None:
    """Go on with the run of `resume=FOLDER`, from its own config.yaml and its newest checkpoint.

    Raises:
        UserError: there is no such run, it is running now, or a setting is changed that may not change.
    """
    options = [
        f"--{name.replace('_', '-')}"
        for name, given in vars(line).items()
        if given and name not in ("overrides", "config_dir")
    ]
    if options:
        raise UserError(
            f"{' '.join(options)} cannot be given with resume=: one run goes on by itself. Leave it out."
        )
    (given, *others) = [item for item in line.overrides if item.startswith(RESUME)]
    if others:
        raise UserError(f"{' '.join(others)}: resume= takes one folder. Start the program once for each.")
    folder = Path(text := given.removeprefix(RESUME).strip("'\""))
    for name, remedy in (
        ("config.yaml", "Give the folder of a run, outputs/DATE/TIME."),
        ("run.json", "It ended before it had begun to train: start it anew."),
    ):
        if not (folder / name).is_file():
            raise UserError(f"resume={text}: the folder contains no run to resume (no {name}). {remedy}")
    with lock_folder(folder):
        node = compose_resumed(folder, [item for item in line.overrides if item != given])
        launch_job(node, read_record(folder)["choices"], folder.resolve(), resume=True)


def launch_job(node: DictConfig, chosen: Mapping[str, str], folder: Path, resume: bool) -> dict[str, Any]:
    """Run a job in as many processes as it asks for, and return its result."""
    from seq2seq_lab.launching.launch import launch
    from seq2seq_lab.run import Job

    return launch(Job(configuration.typed(node), configuration.plain(node), dict(chosen), folder, resume))
