"""From settings to a checked configuration, before Hydra creates a folder or calls anything."""

import argparse
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import ConfigTypeError, OmegaConfBaseException

from seq2seq_lab.config import extensions, foreign, hydra_adapter, inheritance, job_hash
from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.command_line import parse_overrides
from seq2seq_lab.config.explain import explain, refuse_keys_of_deleted, refuse_keys_of_null
from seq2seq_lab.config.run_folder import check_run_files, read_evaluated_run, read_record
from seq2seq_lab.config.run_folders import DEMO, LATEST
from seq2seq_lab.config.secrets import check_secrets
from seq2seq_lab.config.sweeps import (
    expand_cells,
    find_varying_keys,
    refuse_sweeps,
    select_jobs_to_check,
    split_values,
)
from seq2seq_lab.config.trust import check_hydra
from seq2seq_lab.config.upgrade import upgraded_choices
from seq2seq_lab.errors import UserError, did_you_mean, nearest

INITIAL = ("init_from", "init_part")
NOT_OPENED = (*foreign.NOT_RESUMED, "dataset")  # sections whose files are not read when a run is opened

job_hash.register_resolver()


@dataclass(frozen=True)
class Composed:
    """A composed configuration with valid closed sections.

    Attributes:
        node: as Hydra composed it, with Hydra's section; without it for a recorded run.
        config: the same as dataclasses.
        plain: the same as nested plain values, without Hydra's section.
        overrides: the settings that it was composed with, without Hydra's own and those inherited by `init_from`.
    """

    node: DictConfig
    config: configuration.Config
    plain: dict[str, Any]
    overrides: tuple[str, ...] = ()

    @property
    def choices(self) -> dict[str, str]:
        """The chosen value of each group."""
        return select_choices(self.node.hydra.runtime.choices)

    @property
    def run_folder(self) -> Path:
        """The output folder of a single run."""
        return Path(self._resolved("hydra.run.dir")).absolute()

    @property
    def job_folder(self) -> Path:
        """The output folder of a job of a multirun."""
        return self.sweep_folder / self._resolved("hydra.sweep.subdir")

    @property
    def sweep_folder(self) -> Path:
        """The output folder of a multirun."""
        return Path(self._resolved("hydra.sweep.dir"))

    def _resolved(self, key: str) -> str:
        """Return a path of Hydra's section. Raises `UserError` if it refers to something that is not known."""
        try:
            return str(OmegaConf.select(self.node, key, throw_on_missing=True))
        except OmegaConfBaseException as error:
            section, _, name = key.rpartition(".")
            text = OmegaConf.to_container(OmegaConf.select(self.node, section), resolve=False)
            assert isinstance(text, dict)
            raise UserError(
                f"{key}={text[name]} cannot be resolved before a job starts: {str(error).splitlines()[0]}. Refer to "
                f"settings, for example ${{model.name}}, or to the value of a group, ${{hydra.runtime.choices.model}}."
            ) from error


@dataclass(frozen=True)
class Request:
    """The runs that a command line requests.

    Attributes:
        inherited: settings from the run that `init_from` names, to put before those of the command line.
        multirun: whether it starts several jobs.
        varies: the keys and groups that differ between these jobs.
        jobs: the run, or the jobs of the multirun that have been checked (see `sweeps.MAX_CHECKED_JOBS`).
    """

    inherited: list[str]
    multirun: bool
    varies: list[str]
    jobs: list[Composed]


def read_command_line(line: argparse.Namespace) -> Request:
    """Compose the run that a command line requests, or each job of a multirun.

    Raises:
        UserError: names the key, the value, what is allowed and the nearest spelling.
    """
    with composer():
        overrides = parse_overrides(line.overrides)
        inherited = inherit(overrides)
        overrides = [*parse_overrides(inherited), *overrides]
        first = compose([split_values(override)[0] for override in overrides])
        check_hydra(first.hydra)
        if line.help or line.cfg or line.info:
            return Request(inherited, False, [], [])
        if not (line.multirun or first.hydra.mode is RunMode.MULTIRUN):
            refuse_sweeps(overrides)
            _refuse_other_task(first, overrides)
            composed = replace(check_closed(first, overrides), overrides=_without_hydras(line.overrides))
            return Request(inherited, False, [], [composed])
        cells = expand_cells(first.hydra.sweeper, overrides)
        jobs = [compose_job(settings) for settings in select_jobs_to_check(cells)]
        return Request(inherited, True, find_varying_keys(cells), jobs)


@contextmanager
def composer() -> Iterator[None]:
    """Initialize Hydra with the groups of conf/ and of the user's own folder, if there is one.

    Raises:
        UserError: a file in that folder has the name of one in conf/, which Hydra would read instead.
    """
    own = extensions.folder()
    if own is not None and own == configuration.CONF_DIR.resolve():
        own = None
    if own is not None:
        for path in configuration.CONF_DIR.rglob("*.yaml"):
            if (own / (file := path.relative_to(configuration.CONF_DIR))).exists():
                raise UserError(
                    f"{own / file} has the name of one of the program's own files. Rename it, and change settings of the "
                    f"program's files on the command line or in an experiment."
                )
    with hydra_adapter.initialized(configuration.CONF_DIR, own):
        yield


def compose(settings: Sequence[str]) -> DictConfig:
    """Compose a configuration, with Hydra's own section, as Hydra's command line does.

    Raises:
        UserError: an unknown key or group, or a value of a wrong type.
    """
    try:
        return hydra_adapter.compose(settings)
    except (HydraException, OmegaConfBaseException, AssertionError, AttributeError) as error:
        overrides = parse_overrides(settings)
        # OmegaConf raises an AttributeError for a key of a group without a value, in a message about its own code.
        refuse_keys_of_deleted(overrides)
        # For a key of a group that is null, OmegaConf 2.3 raises an AssertionError and OmegaConf 2.4 a ConfigTypeError.
        if isinstance(error, AssertionError) or isinstance(error.__cause__, ConfigTypeError):
            choices = [str(override.input_line) for override in overrides if "." not in override.key_or_group]
            if len(choices) < len(overrides):
                refuse_keys_of_null(compose(choices), overrides)
        if not isinstance(error, HydraException | OmegaConfBaseException):
            raise
        raise UserError(explain(error, overrides)) from error
    except yaml.YAMLError as error:
        raise UserError(f"A configuration file is not valid YAML: {error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"A configuration file is not in UTF-8: {error}. Save it as UTF-8.") from error


def compose_job(settings: Sequence[str]) -> Composed:
    """Compose a configuration and check Hydra's section and the closed sections; see `compose`."""
    node = compose(settings)
    check_hydra(node.hydra)
    overrides = parse_overrides(settings)
    _refuse_other_task(node, overrides)
    return check_closed(node, overrides)


def _refuse_other_task(node: DictConfig, overrides: Sequence[Override]) -> None:
    """Raise `UserError` if an experiment and a task are given, and the experiment is for another task."""
    given = {override.key_or_group: str(override.input_line) for override in overrides}
    if {"experiment", "task"} <= given.keys():
        own = compose([given["experiment"]]).hydra.runtime.choices.task
        if node.hydra.runtime.choices.task != own:
            raise UserError(
                f"{given['task']} cannot be combined with {given['experiment']}, which is for task={own}. Leave one of "
                f"them out."
            )


def check_closed(node: DictConfig, overrides: Sequence[Override]) -> Composed:
    """Convert a composed configuration to dataclasses and check their values.

    Args:
        node: with or without Hydra's section.
        overrides: what it was composed with, for the error message.

    Raises:
        UserError: names the key, the value and what is allowed.
    """
    try:
        values = configuration.plain(job_hash.without_hydra(node))
        config = configuration.typed(values)
    except OmegaConfBaseException as error:
        raise UserError(explain(error, overrides)) from error
    if "hydra" in node:
        _refuse_files_without_target(values, node.hydra.runtime.choices)
        if extensions.folder() is not None and config.metric:
            _refuse_merged_metrics(overrides)
    configuration.check(config)
    check_secrets(values)
    return Composed(node, config, values)


def _refuse_files_without_target(values: Mapping[str, Any], choices: Mapping[str, str]) -> None:
    """Raise `UserError` if a file of the user's folder was chosen for a slot and names no class."""
    own = extensions.folder()
    if own is None:
        return
    for group in configuration.SLOTS:
        path, slot = own / group / f"{choices.get(group)}.yaml", values[group]
        if slot is None or "_target_" in slot or not path.is_file():
            continue
        below = [key for key, item in slot.items() if isinstance(item, dict) and "_target_" in item]
        if below:
            raise UserError(
                f"{path}: `_target_` is below {below[0]}. The keys belong at the top level of the file, without a line "
                f"`# @package …`."
            )
        near = [f"rename the key {key!r}" for key in nearest("_target_", slot)]
        remedy = " or ".join([*near, "add `_target_: FILE.CLASS`"])
        raise UserError(f"{path} has no `_target_`, which names the class. To correct the file, {remedy}.")


def _refuse_merged_metrics(overrides: Sequence[Override]) -> None:
    """Refuse two files of the group `metric` that write to the same key, where the second replaces the first."""
    settings = [str(override.input_line) for override in overrides]
    for package, files in hydra_adapter.files_by_package(settings, "metric").items():
        if len(files) > 1:
            raise UserError(
                f"metric: {' and '.join(files)} have the same first line, `# @package {package}`. Give each file its own "
                f"line, `# @package metric.NAME`."
            )


def compose_run(settings: Sequence[str]) -> Composed:
    """Compose the configuration of one run.

    Raises:
        UserError: as `read_command_line`, and for options and settings that start several runs.
    """
    for word in settings:
        if word.startswith(("-", "resume=")):
            raise UserError(
                f"{word} works on the command line only. Give settings here, key=value or group=value, and a folder of "
                f"custom components as config_dir=FOLDER."
            )
    with composer():
        overrides = parse_overrides(settings)
        refuse_sweeps(overrides)
        composed = compose_job([*inherit(overrides), *settings])
    if composed.node.hydra.mode is RunMode.MULTIRUN:
        raise UserError(
            "hydra.mode=MULTIRUN starts several runs. Use the command line, or start each run separately."
        )
    return replace(composed, overrides=_without_hydras(settings))


def inherit(overrides: Sequence[Override]) -> list[str]:
    """Return the settings that a run inherits from the run that `init_from` names.

    They override those of an experiment, and settings on the command line override them.

    Raises:
        UserError: the run or one of its parts is missing, or `init_from` names several runs whose settings differ.
    """
    bundles = [
        split_values(override)[0]
        for override in overrides
        if override.key_or_group in ("experiment", "study", "hydra.searchpath")
    ]
    bundle = compose(bundles) if bundles else None
    cells = [[*overrides]] if bundle is None else expand_cells(bundle.hydra.sweeper, overrides)
    given = {override.key_or_group for cell in cells for override in cell}
    chosen = set[tuple[str, ...]]()
    for cell in cells:
        named = {one.key_or_group: split_values(one) for one in cell if one.key_or_group in INITIAL}
        chosen |= {*product(*named.values())}
    composed = (compose([*bundles, *lines]) if lines else bundle for lines in sorted(chosen))
    nodes = [node for node in composed if node is not None]
    found = [_read_inherited(node, given) for node in nodes if node.init_from is not None]
    # With parts, a run without them has their settings too, so that it differs in the first weights only.
    whole = any(node.init_from is not None and node.init_part is None for node in nodes)
    if any(settings != found[0] for settings in found) or (whole and len(found) < len(nodes)):
        origins = ",".join(str(node.init_from) for node in nodes)
        raise UserError(
            f"init_from={origins}: these runs have different models or tokenizers. Start one command for each run."
        )
    return found[0] if found else []


def _read_inherited(node: DictConfig, given: set[str]) -> list[str]:
    folder = Path(node.init_from)
    given_parts = node.init_part
    parts = configuration.part_names(
        OmegaConf.to_container(given_parts) if isinstance(given_parts, ListConfig) else given_parts
    )
    try:
        saved, chosen = configuration.plain(read_config(folder)), _read_choices(folder)
    except UserError as error:
        raise UserError(f"init_from={error}") from error
    if parts is not None:
        return inheritance.select_part(folder, saved, chosen, parts, given)
    choices = inheritance.select_choices(folder, chosen, given)
    if "model" not in given:
        foreign.check_inputs(folder, saved, given, inheritance.GROUPS)
    template = job_hash.without_hydra(compose(choices))
    inherited = inheritance.select_groups(given)
    return [
        *(choice for choice in choices if choice.partition("=")[0] in inherited),
        *inheritance.select_settings(saved, template, given),
    ]


def select_given(lines: Sequence[str], node: DictConfig) -> list[str]:
    """Return the settings that the user or the study gave to a job, without those that the program added.

    Args:
        lines: the overrides of the job, with those inherited by `init_from`.
        node: the configuration of the job.
    """
    inherited = set[str]()
    if node.init_from is not None:
        folder = Path(node.init_from)
        saved, chosen = configuration.plain(read_config(folder)), _read_choices(folder)
        inherited = inheritance.list_inheritable(saved, chosen)
    given = {line.partition("=")[0]: line for line in _without_hydras(lines) if line not in inherited}
    return [line for key, line in given.items() if key not in configuration.SET_BY_STUDIES]


def _without_hydras(lines: Sequence[str]) -> tuple[str, ...]:
    """Return settings without those of Hydra's own section."""
    return tuple(line for line in lines if not line.lstrip("+~").startswith(("hydra.", "hydra/")))


def select_choices(groups: Mapping[Any, Any]) -> dict[str, str]:
    """Return the chosen value of each of the program's groups, from Hydra's `runtime.choices`."""
    return {str(group): str(choice) for group, choice in groups.items() if "/" not in str(group)}


def compose_resumed(folder: Path, lines: Sequence[str]) -> Composed:
    """Return the configuration of a run that is resumed, with the few changes that are allowed.

    Raises:
        UserError: a setting may not change, or the run's config.yaml is not valid.
    """
    with composer():
        changes = parse_overrides(lines)
        node = read_config(folder)
        given = [change.key_or_group for change in changes]
        foreign.remove_logger_and_cache(node, folder, given)
        named = foreign.resumed_inputs(configuration.plain(node))
        loggers = (f"logger.{key}" for key in node.logger if key != "_target_")
        allowed = [*configuration.MAY_CHANGE, *loggers, *named]
        remedy = f" To start a new run from its weights use init_from={folder}."
        _refuse_other_changes(changes, allowed, "when a run is resumed", remedy)
        update(node, changes)
        if "cache_dir" in given and node.dataset is not None and "cache_dir" in node.dataset:
            node.dataset.cache_dir = node.cache_dir  # as its file refers to it
        foreign.check_inputs(folder, configuration.plain(node), given, leaving=foreign.NOT_RESUMED)
        return check_closed(node, changes)


def _refuse_other_changes(
    changes: Sequence[Override], allowed: Collection[str], when: str, remedy: str = ""
) -> None:
    """Raise `UserError` for a setting that is not allowed to change, that deletes a key, or that has several values."""
    for change in changes:
        key = change.key_or_group
        if key in allowed and change.is_delete():
            raise UserError(f"{change.input_line} is not allowed {when}. Give it another value, {key}=VALUE.")
        if key in allowed and change.is_sweep_override():
            raise UserError(
                f"{change.input_line} has several values, and {when} it has one. Write {key}=VALUE."
            )
        without = change.is_delete() or change.value() in (None, "none")
        if key == "logger" and without and "logger.mode" in allowed:
            raise UserError(
                f"{change.input_line} cannot change {when}. To log nothing write logger.mode=disabled."
            )
        if key not in allowed:
            raise UserError(
                f"{change.input_line} cannot change {when}.{did_you_mean(key, allowed)} "
                f"Allowed: {', '.join(allowed) or 'none'}.{remedy}"
            )


def compose_repeated(folder: Path, values: Mapping[str, Any], lines: Sequence[str] = ()) -> Composed:
    """Return the configuration of a run that is trained again, with other values of some keys and without a logger.

    Args:
        lines: files and folders that replace recorded ones, `KEY=VALUE`.

    Raises:
        UserError: the run's config.yaml is not valid, or a line changes something else.
    """
    with composer():
        changes = parse_overrides(lines)
        node = read_config(folder)
        given = [change.key_or_group for change in changes]
        foreign.remove_logger_and_cache(node, folder, ["logger.project"])
        inputs = foreign.named_inputs(configuration.plain(node))
        _refuse_other_changes(changes, inputs, "when a run is trained again")
        update(node, changes)
        foreign.check_inputs(folder, configuration.plain(node), given)
        for key, value in values.items():
            OmegaConf.update(node, key, value)
        node.logger = compose(["logger=none"]).logger
        return check_closed(node, ())


def compose_opened(folder: Path, lines: Sequence[str]) -> DictConfig:
    """Return the configuration of a run that is loaded, with changes to its search and its data set.

    Raises:
        UserError: another setting is changed, or the run's config.yaml is not valid.
    """
    groups, keys = configuration.OPENED_GROUPS, configuration.OPENED_KEYS
    with composer():
        changes = parse_overrides(lines)
        node = read_config(folder)
        foreign.remove_logger_and_cache(node, folder, ["logger.project"])  # nothing is logged
        for change in changes:
            group = (key := change.key_or_group).partition(".")[0]
            if (group not in groups and key not in keys) or change.is_sweep_override() or change.is_delete():
                allowed = [*(f"{group}=VALUE" for group in groups), *keys]
                raise UserError(
                    f"{change.input_line} cannot change for a trained run.{did_you_mean(key, [*groups, *keys])} "
                    f"Allowed: {', '.join(allowed)}, and the settings of these groups."
                )
            if key == group:
                node[group] = compose([str(change.input_line)])[group]
        update(node, [change for change in changes if "." in change.key_or_group])
        given = [change.key_or_group for change in changes]
        plain = configuration.plain(node)
        foreign.check_inputs(folder, plain, given, leaving=NOT_OPENED)
        foreign.check_bounds(folder, plain, given)
        return node


def check_dataset(folder: Path, config: configuration.Config, lines: Sequence[str]) -> None:
    """Refuse the data set of a recorded run before it is read; see `foreign.check_inputs`.

    Args:
        folder: the run.
        config: its configuration, as `compose_opened` returned it for the same lines.
        lines: the settings of the command.
    """
    given = [change.key_or_group for change in parse_overrides(lines)]
    foreign.check_inputs(folder, {"dataset": config.dataset}, given)


def update(node: DictConfig, changes: Sequence[Override]) -> None:
    """Set the values of parsed settings in a configuration.

    Raises:
        UserError: a key does not exist or a value has a wrong type.
    """
    refuse_keys_of_null(node, changes)
    for change in changes:
        try:
            OmegaConf.update(node, change.key_or_group, change.value())
        except OmegaConfBaseException as error:
            raise UserError(explain(error, changes)) from error


def _read_choices(folder: Path) -> dict[str, str]:
    """Return the chosen values of the groups of a run."""
    return upgraded_choices(read_record(folder)["choices"])


def read_config(folder: Path) -> DictConfig:
    """Return the configuration of a run, with unchecked open slots. Must be called within `composer`.

    Raises:
        UserError: the folder contains no run or an evaluation, or one of its files is damaged or not valid.
    """
    path = folder / "config.yaml"
    if not path.is_file() and not (folder / "run.json").is_file():
        near = did_you_mean(str(folder), {LATEST, DEMO} - {str(folder)})
        raise UserError(
            f"{folder} contains no run (no config.yaml).{near} Give the folder of a run, such as outputs/DATE/TIME."
        )
    foreign.check_tree(folder)
    check_run_files(folder)
    evaluated = read_evaluated_run(folder)
    if evaluated is not None:
        raise UserError(f"{folder} is an evaluation of {evaluated}. Give the folder of the run.")
    read_record(folder)  # refuses another format, whose config.yaml may have other keys
    try:
        schema = OmegaConf.structured(configuration.Config)
        node = OmegaConf.merge(schema, foreign.load_config(path))
        OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(f"{path}: {explain(error, ())}") from error
    assert isinstance(node, DictConfig)
    return node
