"""The command line: refuses what cannot run, and hands over to `run`."""

import fcntl
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from seq2seq_lab import config as configuration
from seq2seq_lab.compose import compose_resumed, parse_line, preflight
from seq2seq_lab.errors import UserError

RESUME = "resume="

log = logging.getLogger(__name__)


def main() -> None:
    """Run the program.

    What a user did wrong is printed without a traceback and ends it with status 2; a fault of the program
    shows its traceback and ends it with status 1. A multirun goes on after a job that failed.
    """
    arguments = sys.argv[1:]
    # Hydra prints only a summary of an exception unless it is told to let it through.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    failed: list[str] = []

    def job(node: DictConfig) -> None:
        with noted(failed):
            start(node)

    try:
        if any(argument.startswith(RESUME) for argument in arguments):
            resume(arguments)
        else:
            preflight(arguments)
            hydra.main(version_base="1.3", config_path=str(configuration.CONF_DIR), config_name="config")(
                job
            )()
    except (UserError, HydraException) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        if failed:
            print("Jobs that failed:", *failed, sep="\n  ", file=sys.stderr)


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
    choices = {str(group): str(choice) for group, choice in runtime.choices.items() if "/" not in str(group)}
    folder = Path(runtime.output_dir)
    with locked(folder):
        if (folder / "config.yaml").exists():
            raise UserError(f"{folder}: a run lies there already. Choose another folder for each run.")
        OmegaConf.save(OmegaConf.create(configuration.plain(node)), folder / "config.yaml")
        launch(node, choices, folder, resume=False)


def resume(arguments: Sequence[str]) -> None:
    """Go on with the run of `resume=FOLDER`, from its own config.yaml and its newest checkpoint.

    Raises:
        UserError: there is no such run, it is running now, or a setting is changed that may not change.
    """
    from seq2seq_lab.run import read_record

    line = parse_line(arguments)
    options = [
        f"--{name.replace('_', '-')}" for name, given in vars(line).items() if given and name != "overrides"
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
        launch(node, read_record(folder)["choices"], folder.resolve(), resume=True)


def launch(node: DictConfig, choices: Mapping[str, str], folder: Path, resume: bool) -> None:
    """Run a job with its log going to the console and to run.log."""
    from seq2seq_lab.report import setup_logging
    from seq2seq_lab.run import Job, run

    with setup_logging(folder / "run.log"):
        try:
            run(Job(configuration.typed(node), configuration.plain(node), dict(choices), folder, resume))
        except UserError as error:
            log.error("%s", error, extra={"on_console": True})  # `main` prints it
            raise


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
