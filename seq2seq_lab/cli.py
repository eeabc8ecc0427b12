"""The command line: composes the configuration, refuses what cannot run, and hands over to `run`."""

import fcntl
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq_lab import config as configuration
from seq2seq_lab.errors import UserError, did_you_mean

RESUME = "resume="
MAY_CHANGE = ("trainer.max_epochs", "trainer.max_steps", "trainer.patience", "trainer.keep_checkpoints", "logger.")


def main() -> None:
    """Run the program; a `UserError` is printed without a traceback and ends it with status 2."""
    arguments = sys.argv[1:]
    # Hydra prints only a summary of an exception unless it is told to let it through.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    try:
        if any(argument.startswith(RESUME) for argument in arguments):
            resume(arguments)
        else:
            preflight(arguments)
            hydra.main(version_base="1.3", config_path=str(configuration.CONF_DIR), config_name="config")(start)()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def start(node: DictConfig) -> None:
    """Run one composed job in Hydra's output folder."""
    hydra_config = HydraConfig.get()
    choices = {str(group): str(choice) for group, choice in hydra_config.runtime.choices.items() if "/" not in str(group)}
    folder = Path(hydra_config.runtime.output_dir)
    with locked(folder):
        OmegaConf.save(OmegaConf.create(configuration.plain(node)), folder / "config.yaml")
        launch(node, choices, folder, resume=False)


def resume(arguments: Sequence[str]) -> None:
    """Go on with the run of `resume=FOLDER`, from its own config.yaml and its newest checkpoint.

    Raises:
        UserError: there is no such run, it is running now, or a setting is changed that may not change.
    """
    folder = Path(next(argument for argument in arguments if argument.startswith(RESUME)).removeprefix(RESUME))
    changes = [argument for argument in arguments if not argument.startswith(RESUME)]
    saved = folder / "config.yaml"
    if not saved.is_file():
        raise UserError(f"resume={folder}: no run lies there (no config.yaml). Give the folder of a run, outputs/DATE/TIME.")
    for change in changes:
        if not change.startswith(MAY_CHANGE):
            raise UserError(
                f"{change} cannot be changed when a run goes on. Allowed: {', '.join(MAY_CHANGE)}. "
                f"To start a new run from its weights use init_from={folder}."
            )
    from seq2seq_lab.run import read_record

    with locked(folder):
        try:
            node = OmegaConf.merge(
                OmegaConf.structured(configuration.Config), OmegaConf.load(saved), OmegaConf.from_dotlist(list(changes))
            )
        except OmegaConfBaseException as error:
            raise UserError(f"resume={folder}: {error}") from error
        assert isinstance(node, DictConfig)
        OmegaConf.save(OmegaConf.create(configuration.plain(node)), saved)
        launch(node, read_record(folder)["choices"], folder.resolve(), resume=True)


def launch(node: DictConfig, choices: Mapping[str, str], folder: Path, resume: bool) -> None:
    """Run a job with its log going to the console and to run.log."""
    from seq2seq_lab.report import setup_logging
    from seq2seq_lab.run import Job, run

    with setup_logging(folder / "run.log"):
        run(Job(configuration.typed(node), configuration.plain(node), dict(choices), folder, resume))


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
            raise UserError(f"{folder} is in use: a run is going on there. Wait for it, or choose another folder.") from error
        yield


def preflight(arguments: Sequence[str]) -> None:
    """Compose and check what the command line asks for before Hydra makes a folder or calls anything.

    Raises:
        UserError: names the key, the value, what is allowed and the nearest spelling.
    """
    from hydra._internal.utils import get_args_parser

    parsed = get_args_parser().parse_args(list(arguments))
    if parsed.help or parsed.hydra_help or parsed.shell_completion:
        return
    try:
        overrides = OverridesParser.create().parse_overrides(parsed.overrides)
    except HydraException as error:
        raise UserError(str(error)) from error
    check_group_values(overrides)
    lines = [first_choice(override) for override in overrides]
    node = compose(lines, parsed.config_dir)
    check_hydra(node.hydra)
    check_run_folder(parsed.overrides)
    if parsed.cfg or parsed.info:
        return
    from seq2seq_lab import build

    with_defaults = OmegaConf.masked_copy(node, [key for key in node if key != "hydra"])
    typed = OmegaConf.merge(OmegaConf.structured(configuration.Config), OmegaConf.create(configuration.plain(with_defaults)))
    assert isinstance(typed, DictConfig)
    checked = configuration.typed(typed)
    configuration.check(checked)
    build.check_parts(checked)


def compose(overrides: Sequence[str], config_dir: str | None) -> DictConfig:
    """Compose the configuration, Hydra's own node included, as Hydra will.

    Raises:
        UserError: an unknown key or a value of a wrong type.
    """
    search_path = [f"hydra.searchpath=[file://{Path(config_dir).resolve()}]"] if config_dir else []
    with hydra.initialize_config_dir(str(configuration.CONF_DIR), version_base="1.3"):
        try:
            return hydra.compose("config", [*search_path, *overrides], return_hydra_config=True)
        except (HydraException, OmegaConfBaseException) as error:
            known = list(configuration.leaf_keys(OmegaConf.to_container(hydra.compose("config"), resolve=False)))
            raise UserError(explain(error, overrides, known)) from error


def explain(error: Exception, overrides: Sequence[str], known: Sequence[str]) -> str:
    """Return what Hydra has to say of a composition that failed, with the nearest spelling of a key."""
    said = str(error).split("\n")[0]
    cause = f" {str(error.__cause__).splitlines()[0]}." if error.__cause__ else ""
    for override in overrides:
        key = override.lstrip("+~").split("=")[0]
        if key not in known and f"'{key}'" in f"{said}{cause}" or key not in known and key in said:
            return f"{override}: there is no key {key!r}.{did_you_mean(key, known)} `--cfg job` prints every key."
    return f"{said}.{cause}"


def check_group_values(overrides: Sequence[Override]) -> None:
    """Refuse a value that a group does not have, with what it has."""
    for override in overrides:
        group = override.key_or_group
        if group in configuration.groups() and not override.is_sweep_override():
            value, allowed = override.value(), configuration.group_values(group)
            if isinstance(value, str) and value not in allowed:
                raise UserError(
                    f"{group}={value}: there is no such {group}.{did_you_mean(value, allowed)} Allowed: {', '.join(allowed)}."
                )


def first_choice(override: Override) -> str:
    """Return an override as it stands, a sweep over several values as its first one."""
    if not override.is_sweep_override():
        assert override.input_line is not None
        return override.input_line
    first = next(iter(override.sweep_string_iterator()))
    return f"{override.get_key_element()}={first}"


def check_hydra(node: DictConfig) -> None:
    """Refuse classes that Hydra would call before this program could look at them."""

    def walk(value: Any, path: str) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                where = f"{path}.{key}"
                trusted = ("hydra.", "hydra_plugins.", "seq2seq_lab.", "logging.")
                if key in ("_target_", "class", "()") and not str(item).startswith(trusted):
                    raise UserError(f"{where}={item} is refused: allowed are classes of {', '.join(trusted)}.")
                walk(item, where)
        elif isinstance(value, list):
            for n, item in enumerate(value):
                walk(item, f"{path}[{n}]")

    for section in ("callbacks", "launcher", "sweeper", "job_logging", "hydra_logging"):
        walk(OmegaConf.to_container(node[section], resolve=False), f"hydra.{section}")


def check_run_folder(overrides: Sequence[str]) -> None:
    """Refuse to start a run where one lies already: Hydra would overwrite its record."""
    for override in overrides:
        if override.startswith("hydra.run.dir="):
            folder = Path(override.removeprefix("hydra.run.dir=").strip("'\""))
            if (folder / "config.yaml").exists():
                raise UserError(
                    f"{override}: a run lies there already. Use resume={folder} to go on with it, or choose another folder."
                )
