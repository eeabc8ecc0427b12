"""The command line: refuses what cannot run, and hands over to `run`."""

import argparse
import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from seq2seq_lab import config as configuration
from seq2seq_lab import own_parts
from seq2seq_lab.compose import choices, compose_resumed, parse_line, preflight
from seq2seq_lab.errors import UserError
from seq2seq_lab.launcher import follows, joins

RESUME = "resume="


def main() -> None:
    """Run the program.

    What a user did wrong is printed without a traceback and ends it with status 2; a fault of the program
    shows its traceback and ends it with status 1. A multirun goes on after a job that failed.
    """
    arguments = sys.argv[1:]
    # Hydra prints only a summary of an exception unless it is told to let it through.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    failed: list[str] = []

    try:
        line = parse_line(arguments)
        if follows() and line.multirun:
            sys.exit(2)  # rank 0 says why
        if joins() and line.multirun:
            raise UserError(
                "--multirun under a launcher: its processes are the ranks of one run, and each job of a multirun needs "
                "ranks of its own. Start the launcher once for each job, or leave it out and give trainer.devices=N."
            )
        with own_parts.using(line.config_dir):
            if follows():
                # What ends without a run is rank 0's to print.
                if not (line.help or line.hydra_help or line.cfg or line.info or line.shell_completion):
                    from seq2seq_lab.launch import follow

                    follow()
            elif any(item.startswith(RESUME) for item in line.overrides):
                resume(line)
            else:
                preflight(arguments)
                # Hydra's parser wants the settings together.
                options = [argument for argument in arguments if argument not in line.overrides]
                sys.argv[1:] = [*options, *line.overrides]
                launcher = hydra.main(
                    version_base="1.3", config_path=str(configuration.CONF_DIR), config_name="config"
                )
                launcher(job_of(failed, own_parts.folder()))()
    except (UserError, HydraException) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        if failed:
            print("Jobs that failed:", *failed, sep="\n  ", file=sys.stderr)


def job_of(failed: list[str], config_dir: Path | None) -> Callable[[DictConfig], None]:
    """Return what Hydra is to do with each job's configuration, in this process or another."""

    def job(node: DictConfig) -> None:
        with noted(failed), own_parts.using(config_dir):
            start(node)

    return job


@contextmanager
def noted(failed: list[str]) -> Iterator[None]:
    """Note a job of a multirun that fails: Hydra goes on, and in the end tells of the first one only."""
    try:
        yield
    except Exception as error:
        hydra_config = HydraConfig.get()
        if hydra_config.mode is RunMode.MULTIRUN:
            said = str(error) or type(error).__name__
            failed.append(f"{hydra_config.job.override_dirname} in {hydra_config.runtime.output_dir}: {said}")
            print(f"error: {failed[-1]}", file=sys.stderr)
        raise


def start(node: DictConfig) -> None:
    """Run one composed job in Hydra's output folder."""
    runtime = HydraConfig.get().runtime
    start_run(node, choices(runtime.choices), Path(runtime.output_dir))


def start_run(node: DictConfig, chosen: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Run a checked configuration in a folder, made if need be, and return what its `result.json` holds.

    Args:
        chosen: the chosen value of each group.

    Raises:
        UserError: a run lies there already, or goes on there, or something is wrong with this one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if (folder / "config.yaml").exists():
            raise UserError(f"{folder}: a run lies there already. Choose another folder for each run.")
        OmegaConf.save(OmegaConf.create(configuration.plain(node)), folder / "config.yaml")
        return launch_job(node, chosen, folder, resume=False)


def resume(line: argparse.Namespace) -> None:
    """Go on with the run of `resume=FOLDER`, from its own config.yaml and its newest checkpoint.

    Raises:
        UserError: there is no such run, it is running now, or a setting is changed that may not change.
    """
    from seq2seq_lab.run import read_record

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
    folder = Path(given.removeprefix(RESUME).strip("'\""))
    for name, remedy in (
        ("config.yaml", "Give the folder of a run, outputs/DATE/TIME."),
        ("run.json", "It ended before it had begun to train: start it anew."),
    ):
        if not (folder / name).is_file():
            raise UserError(f"resume={folder}: no run to go on with lies there (no {name}). {remedy}")
    with locked(folder):
        node = compose_resumed(folder, [item for item in line.overrides if item != given])
        launch_job(node, read_record(folder)["choices"], folder.resolve(), resume=True)


def launch_job(node: DictConfig, chosen: Mapping[str, str], folder: Path, resume: bool) -> dict[str, Any]:
    """Run a job in as many processes as it asks for, and return its result."""
    from seq2seq_lab.launch import launch
    from seq2seq_lab.run import Job

    return launch(Job(configuration.typed(node), configuration.plain(node), dict(chosen), folder, resume))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run folder, so that no second process writes into it.

    Raises:
        UserError: another process holds it.
    """
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"{folder} is in use: a run is going on there. Wait for it, or choose another folder."
            ) from error
        yield
