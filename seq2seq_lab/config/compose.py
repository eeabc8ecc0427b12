"""From the command line to a configuration that can run, before Hydra makes a folder or calls anything."""

import argparse
import difflib
import itertools
import logging
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import hydra
import yaml  # type: ignore[import-untyped]
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import get_args_parser
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from seq2seq_lab.config import extensions
from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.type_checks import wrong_type
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.files import read_evaluated_run, read_record
from seq2seq_lab.launching import study, warm_start
from seq2seq_lab.runtime.torchrun import is_external_rank

log = logging.getLogger(__name__)

# A job takes about a tenth of a second; beyond these (shared by the cells), each value is checked but not each combination.
MOST_JOBS_CHECKED = 32

# Values of Hydra's groups that another package has, by the extra that installs it.
EXTRAS = {
    "hydra/launcher=submitit_slurm": "slurm",
    "hydra/launcher=submitit_local": "slurm",
    "hydra/launcher=ray": "ray",
    "hydra/launcher=ray_aws": "ray",
    "hydra/sweeper=optuna": "optuna",
}

OPTIONS = ("--help", "--version", "--multirun", "--config-dir", "--cfg", "--info", "--hydra-help")

PLUGINS = ("hydra._internal.core_plugins.", "hydra_plugins.")
SAMPLER = re.compile(
    r"optuna\.samplers\.[A-Z]\w*Sampler"
)  # of the sweeper by Optuna: the classes, nothing below them
# What gives text, or a key that is checked itself; other resolvers can make a mapping with a `_target_`.
PLAIN_INTERPOLATION = re.compile(r"\$\{(?:[\w.]+|(?:now|hydra|oc\.env|job_hash):[^${}]*)\}")


study.register()


def preflight(arguments: Sequence[str]) -> tuple[list[str], study.Study | None]:
    """Compose and check what the command line asks for, every job of a multirun.

    Returns:
        The settings that come before those given (see `inherited`), and of a multirun its study.

    Raises:
        UserError: names the key, the value, what is allowed and the nearest spelling.
    """
    line = parse_line(arguments)
    if line.hydra_help or line.shell_completion:
        return [], None
    with extensions.using(line.config_dir), composer():
        overrides = parse_overrides(line.overrides)
        settings = inherited(overrides)
        overrides = [*parse_overrides(settings), *overrides]
        first = compose([values(override)[0] for override in overrides])
        check_hydra(first.hydra)
        if line.help or line.cfg or line.info:
            return settings, None
        multirun = line.multirun or first.hydra.mode is RunMode.MULTIRUN
        for override in overrides:
            if override.is_sweep_override() and not multirun:
                line_of = str(override.input_line)
                decimal = re.fullmatch(r"([^=]+=\d+),(\d+)", line_of)
                point = f" A decimal number has a point: {decimal[1]}.{decimal[2]}." if decimal else ""
                raise UserError(
                    f"{line_of} gives several values, a job each. Add -m to run them all; a list is written [a,b], a text "
                    f"with a comma in quotation marks.{point}"
                )
        every = alternatives(first.hydra.sweeper, overrides) if multirun else [overrides]
        begun: dict[Path, configuration.Config] = {}
        for job in jobs(every):
            node = compose(job) if multirun else first
            check_hydra(node.hydra)
            if not multirun:
                check_output(node)
            folder = Path(node.hydra.sweep.dir, node.hydra.sweep.subdir) if multirun else None
            config = check_job(node, parse_overrides(job))
            if not multirun:
                check_machine(config)
            if folder is not None and folder.is_dir():
                begun[folder] = config
        return settings, study.planned(first, varying(every), begun) if multirun else None


@contextmanager
def composer() -> Iterator[None]:
    """Initialise Hydra as the command line does, with the groups of the user's own folder if there is one.

    Raises:
        UserError: a file in that folder has the name of one of conf/, which Hydra would take in its place.
    """
    own = extensions.folder()
    with hydra.initialize_config_dir(str(configuration.CONF_DIR), version_base="1.3"):
        if own is not None and own != configuration.CONF_DIR.resolve():
            files = [
                path.relative_to(configuration.CONF_DIR) for path in configuration.CONF_DIR.rglob("*.yaml")
            ]
            for file in (file for file in files if (own / file).exists()):
                raise UserError(
                    f"{own / file} would not be read: the program has a {file} of its own. Rename it, and "
                    f"change settings of the program's own files on the command line or in an experiment."
                )
            made = GlobalHydra.instance().hydra
            assert made is not None
            search_path = made.config_loader.get_search_path()
            search_path.prepend("command-line", f"file://{own}", SearchPathQuery(provider="schema"))
            made.config_loader = ConfigLoaderImpl(search_path)
        yield


def parse_line(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the command line in Hydra's parts.

    Raises:
        UserError: an option that would go round the checks, or options that exclude each other.
    """
    parser = get_args_parser()
    if parser.prog == "__main__.py":
        parser.prog = "python -m seq2seq_lab"
    options = [word for word in arguments if word.startswith("-")]

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{' '.join(options)}: {message}. `{parser.prog} --help` lists what can be given.")

    setattr(parser, "error", refuse)  # noqa: B010  (argparse prints its usage)
    line, unknown = parser.parse_known_intermixed_args(list(arguments))
    if unknown:
        raise UserError(unknown_option(unknown[0], arguments))
    for option in ("config_path", "config_name", "experimental_rerun"):
        if getattr(line, option) is not None:
            raise UserError(
                f"--{option.replace('_', '-')} is not supported: every run starts from conf/config.yaml. "
                f"Give a folder of your own groups with --config-dir, and a whole run as an experiment in it."
            )
    modes = ("run", "multirun", "cfg", "info", "shell_completion")
    given = [f"--{mode.replace('_', '-')}" for mode in modes if getattr(line, mode)]
    if len(given) > 1:
        raise UserError(f"{' '.join(given)}: only one of these can be given at a time.")
    if line.resolve and not (line.cfg or line.help):
        raise UserError("--resolve goes with --cfg: add --cfg job, or leave it out.")
    if line.config_dir is not None and not Path(line.config_dir).is_dir():
        raise UserError(f"--config-dir={line.config_dir}: there is no such folder.")
    return line


def unknown_option(option: str, arguments: Sequence[str]) -> str:
    """Return an error message for an option that does not exist, with a suggestion; most such options are settings."""
    key, _, value = option.lstrip("-").partition("=")
    following = [*arguments, ""][list(arguments).index(option) + 1]
    if not value:
        value = following if following and not following.startswith("-") and "=" not in following else "VALUE"
    near = did_you_mean(f"--{key}", OPTIONS)
    if key.replace("-", "_").split(".")[0] in (*configuration.groups(), "seed") or not near:
        near = f" A setting has no dashes: write {key.replace('-', '_')}={value}."
    return f"{option} is not an option.{near} Options: {', '.join(OPTIONS)}."


def parse_overrides(lines: Sequence[str]) -> list[Override]:
    """Return parsed overrides.

    Raises:
        UserError: one is not written as Hydra's grammar asks.
    """
    loader = GlobalHydra.instance().config_loader() if GlobalHydra.instance().is_initialized() else None
    try:
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(lines))
    except OverrideParseException as error:
        raise UserError(unreadable(str(error.override))) from error
    for override in overrides:
        if override.key_or_group in configuration.groups() and not override.is_sweep_override():
            check_choice(override)
    return overrides


def unreadable(line: str) -> str:
    """Return what is wrong with a word of the command line that Hydra's grammar does not read."""
    key, equals, value = line.partition("=")
    names = "|".join(map(re.escape, configuration.groups()))
    near = ""
    if not equals and (group := re.fullmatch(rf"-*({names})(?::(.*))?", line)):
        near = f" Did you mean {group[1]}={group[2] or 'VALUE'}?"
    elif not equals:
        near = f" Did you mean {key}=VALUE?"
    elif re.fullmatch(r"[\w./+~]+", key):
        near = f""" Did you mean {key}={literal(value.strip("'")).replace("'", '"')}, quoted for the shell?"""
    return (
        f"{line} cannot be read as a setting.{near} Write key=value, or group=value with one of the groups "
        f"{', '.join(configuration.groups())}; a value with brackets, commas, spaces or = goes in quotation marks, "
        f"'key=\"value\"'."
    )


def inherited(overrides: Sequence[Override]) -> list[str]:
    """Return the settings that a run takes from the run that `init_from` names, as overrides to put before those given.

    They override those of an experiment, and settings on the command line override them.

    Raises:
        UserError: the run or one of its parts is missing, or it names several runs whose settings differ.
    """
    bundles = [
        values(override)[0]
        for override in overrides
        if override.key_or_group in ("experiment", "study", "hydra.searchpath")
    ]
    if bundles:
        every = alternatives(compose(bundles).hydra.sweeper, overrides)
        overrides = [override for one in every for override in one]
    named = [override for override in overrides if override.key_or_group == "init_from"]
    if not bundles and not named:
        return []
    given = {override.key_or_group for override in overrides}
    lines = [[line] for line in values(named[-1])] if named else [[]]
    origins = [compose([*bundles, *line]).init_from for line in lines]
    found = [[] if origin is None else settings_of(Path(origin), given) for origin in origins]
    if any(settings != found[0] for settings in found):
        raise UserError(
            f"init_from={','.join(map(str, origins))}: these runs have different models or tokenizers, and one command "
            f"can inherit only one of each. Start a command for each run."
        )
    return found[0]


def settings_of(folder: Path, given: Collection[str]) -> list[str]:
    """Return the settings of a saved run that a run of `init_from` inherits, as overrides.

    Args:
        given: the groups and keys that are set on the command line.

    Raises:
        UserError: the folder contains no run that has begun to train, or a part of the run is missing.
    """
    try:
        saved, chosen = configuration.plain(read_config(folder)), read_record(folder)["choices"]
    except UserError as error:
        raise UserError(f"init_from={error}") from error
    groups = warm_start.inherited_groups(given)
    there = {
        group: chosen[group]
        for group in warm_start.GROUPS
        if chosen.get(group) in configuration.group_values(group)
    }
    for group in groups:
        if group in chosen and group not in there:
            raise UserError(
                f"init_from={folder}: its {group}={chosen[group]} does not exist here. If it is in a folder of your own, "
                f"give that folder: --config-dir FOLDER."
            )
    template = compose([f"{group}={value}" for group, value in there.items()])
    settings = warm_start.inherited_settings(saved, study.without_hydra(template), given)
    return [
        *(f"{group}={there[group]}" for group in groups if group in there),
        *(f"++{key}={literal(value)}" for key, value in settings.items()),
    ]


def literal(value: object) -> str:
    """Return a plain value as Hydra's grammar for overrides reads it."""
    if isinstance(value, str):
        return QuotedString(value, Quote.single).with_quotes()
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{literal(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(literal, value))}]"
    return "null" if value is None else str(value)


def setting(key: str, path: Path) -> str:
    """Return `key=path` as Hydra reads it, whatever characters the path has."""
    return f"{key}={literal(str(path))}"


def check_choice(override: Override) -> None:
    """Refuse a group's value that is no single name; Hydra would merge a list of them into one."""
    group = override.key_or_group
    if override.is_add():
        raise UserError(
            f"{override.input_line}: {group} has a value already. To choose another leave out the +."
        )
    if not override.is_delete() and not isinstance(override.value(), str):
        node = hydra.compose("config").get(group) or {}
        number = isinstance(override.value(), int | float)
        settings = [
            f"{group}.{key}={override.get_value_element_as_str()}"
            for key, value in node.items()
            if number and isinstance(value, int | float) and not isinstance(value, bool)
        ]
        of_group = f" A setting of it is written {' or '.join(settings)}." if 0 < len(settings) < 5 else ""
        raise UserError(
            f"{override.input_line} is not allowed: choose one {group}. "
            f"Allowed: {', '.join(configuration.group_values(group))}.{of_group}"
        )


def alternatives(sweeper: DictConfig, overrides: Sequence[Override]) -> list[list[Override]]:
    """Return the overrides of a multirun for each cell of its sweeper; for a sweeper without cells, once.

    A key given in `overrides` replaces the values that `sweeper.params` lists for it. If the cells set it, it replaces
    all of them.
    """
    params = parse_overrides([f"{key}={value}" for key, value in (sweeper.get("params") or {}).items()])
    cells: list[Mapping[str, Any]] = list(sweeper.get("cells") or [{}])
    if any(override.key_or_group in cell for override in overrides for cell in cells):
        cells = [{}]
    return [
        [*parse_overrides([f"{key}={value}" for key, value in cell.items()]), *params, *overrides]
        for cell in cells
    ]


def varying(every: Sequence[Sequence[Override]]) -> list[str]:
    """Return the keys that differ between the jobs of a multirun, given the overrides of each of its cells."""
    given: dict[str, list[Override]] = {}
    for overrides in sorted(every, key=len, reverse=True):  # so that all keys of the cells come first
        for key, override in {override.get_key_element(): override for override in overrides}.items():
            given.setdefault(key, []).append(override)
    return [
        found[0].key_or_group
        for found in given.values()
        if any(override.is_sweep_override() for override in found)
        or len(found) < len(every)
        or len({override.input_line for override in found}) > 1
    ]


def combinations(overrides: Sequence[Override]) -> Iterator[list[str]]:
    """Yield the overrides of each job, combined as Hydra's basic sweeper does; a single run is one job."""
    yield from map(list, itertools.product(*_choices(overrides)))


def jobs(every: Sequence[Sequence[Override]]) -> Iterator[list[str]]:
    """Yield the jobs to check: of each cell its share of the first combinations, then each value that they leave out."""
    for overrides in every:
        found = combinations(overrides)
        yield from itertools.islice(found, max(1, MOST_JOBS_CHECKED // len(every)))
        if next(found, None) is not None:
            choices = _choices(overrides)
            firsts = [choice[0] for choice in choices]
            for number, choice in enumerate(choices):
                for value in choice[1:]:
                    yield [*firsts[:number], value, *firsts[number + 1 :]]


def _choices(overrides: Sequence[Override]) -> list[list[str]]:
    return list({override.get_key_element(): values(override) for override in overrides}.values())


def values(override: Override) -> list[str]:
    """Return an override as it stands, or a sweep over several values as an override each."""
    if not override.is_sweep_override():
        assert override.input_line is not None
        return [override.input_line]
    key = override.get_key_element()
    if override.is_discrete_sweep():
        return [f"{key}={value}" for value in override.sweep_string_iterator()]
    # A sweeper that samples draws from an interval; its start stands for all of it.
    interval: Any = override.value()
    return [f"{key}={interval.start}"]


def compose(overrides: Sequence[str]) -> DictConfig:
    """Compose a configuration, Hydra's own node included, as Hydra will.

    Raises:
        UserError: an unknown key or group, or a value of a wrong type.
    """
    try:
        return hydra.compose("config", list(overrides), return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(explain(error, parse_overrides(overrides))) from error
    except yaml.YAMLError as error:
        raise UserError(f"A configuration file is no YAML: {error}") from error


def explain(error: Exception, overrides: Sequence[Override]) -> str:
    """Return in this program's words what Hydra or OmegaConf have against a configuration."""
    said = str(error).splitlines()[0]
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, value = error.missing_cfg_file.rpartition("/")
        allowed = [str(option) for option in error.options or ()]
        if (extra := EXTRAS.get(f"{group}={value}")) is not None:
            return (
                f"{group}={value} needs a package that is not installed: pip install 'seq2seq_lab[{extra}]'."
            )
        near = did_you_mean(value, allowed)
        return f"{group}={value}: there is no such {group}.{near} Allowed: {', '.join(allowed) or 'nothing'}."
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__ or error.__context__
    if not isinstance(cause, OmegaConfBaseException) or not cause.full_key:
        return said
    key = cause.full_key.partition("[")[0]
    guilty = [override for override in overrides if f"{override.key_or_group}.".startswith(f"{key}.")]
    reason = str(cause).splitlines()[0]
    if isinstance(cause, InterpolationKeyError) and not guilty:
        return f"{key} takes its value from another setting: {reason}. Give it one of its own, {key}=VALUE."
    if not guilty:
        # A file says it; Hydra's first line names that file.
        setting, value = f"{key} ({said.split(': ')[0]}: {reason})", ""
    elif guilty[-1].is_delete():
        return f"{guilty[-1].input_line}: {key} cannot be left out. Give it another value."
    else:
        setting, value = str(guilty[-1].input_line), guilty[-1].get_value_element_as_str()
    if isinstance(cause, ConfigKeyError | ConfigAttributeError):
        return unknown_key(key, setting, overrides if guilty else ())
    if isinstance(cause, MissingMandatoryValue):
        return f"{key} is missing: it needs a value."
    hint = configuration.annotation(key)
    return wrong_type(setting, value, hint) if hint else f"{setting}: {reason}."


def unknown_key(key: str, setting: str, overrides: Sequence[Override]) -> str:
    """Return what to say of a key that is not there: its neighbours and the nearest spelling."""
    kept = (*configuration.groups(), "hydra.searchpath")
    choices = [str(override.input_line) for override in overrides if override.key_or_group in kept]
    node = hydra.compose("config", choices, return_hydra_config=True)
    container = OmegaConf.to_container(node, resolve=False)
    assert isinstance(container, dict)
    keys = configuration.dotted_keys({str(name): item for name, item in container.items()})
    known = [name for name in keys if not name.endswith("_target_") and name != "hydra"]
    section = key.rpartition(".")[0]
    neighbours = [name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == section]
    near = nearest_setting(key, [name for name in known if not key.startswith(f"{name}.")])
    within = f" in {section}" if section else ""
    return (
        f"{setting}: there is no setting {key!r}.{near} "
        f"Allowed{within}: {', '.join(neighbours) or 'nothing'}. `--cfg job` prints every setting."
    )


def nearest_setting(key: str, known: Sequence[str]) -> str:
    """Return " Did you mean …?" for a key that does not exist, or an empty string.

    A setting of another value of the group comes first, then settings of the same name in other sections, values of groups
    with that name, and the nearest spelling, that of the last part before that of the whole key.
    """
    section, _, name = key.rpartition(".")
    others = configuration.values_with(section, name)
    if others:
        return f" It is a setting of {' and '.join(f'{section}={value}' for value in others)}."
    own = [one for one in known if not one.startswith("hydra.")]
    if (
        dotted := next((one for one in own if one.replace(".", "_") == key.replace(".", "_")), None)
    ) is not None:
        return f" Did you mean {dotted}?"
    same = sorted(
        (one for one in own if one.endswith(f".{name}")), key=lambda one: (one.count("."), own.index(one))
    )
    if same and section not in configuration.groups():
        usual = next((one for one in same if one == f"model.{name}"), None)
        return f" Did you mean {' or '.join([usual] if usual else same[:3])}?"
    words = {name, *name.split("_")}
    for group in configuration.groups():
        for value in configuration.group_values(group):
            if value in words and group not in ("model", "experiment", "study"):
                keys = [f"{group}.{one}" for one in configuration.settings_of(group, value)]
                return f" Did you mean {group}={value}?" + (f" It has {', '.join(keys)}." if keys else "")
    if section in {one.rpartition(".")[0] for one in own} and section:
        neighbours = [one for one in own if one.rpartition(".")[0] == section]
        if near := did_you_mean(key, neighbours):
            return near
    by_last_part = {one.rpartition(".")[2]: one for one in reversed(own)}
    close = difflib.get_close_matches(name, by_last_part, n=1, cutoff=0.75)
    if close and not key.startswith("hydra"):
        return f" Did you mean {by_last_part[close[0]]!r}?"
    return did_you_mean(key, known if key.startswith("hydra") else own)


def check_job(node: DictConfig, overrides: Sequence[Override], resumed: bool = False) -> configuration.Config:
    """Check a composed job, its values, the parts it names, and that these make a model; return its configuration.

    A resumed run has its vectors in its checkpoint, and needs no file of pretrained ones.

    Raises:
        UserError: names the key, the value, what is allowed and the remedy.
    """
    from seq2seq_lab import build  # brings torch, which mistakes of spelling need not wait for

    with read_write(node), open_dict(node):
        node.pop("hydra", None)
    try:
        config = configuration.typed(node)
    except OmegaConfBaseException as error:
        raise UserError(explain(error, overrides)) from error
    configuration.check(config)
    build.check_parts(config)
    if not resumed:
        build.check_vectors(config)
        warm_start.check(config)
    return config


def check_machine(config: configuration.Config) -> None:
    """Refuse a run in this process that asks for devices this machine does not have, before it has a folder.

    Raises:
        UserError: names the key and what is allowed.
    """
    from seq2seq_lab.launching.launch import check_devices
    from seq2seq_lab.runtime.device import choose_device

    if is_external_rank():
        return  # the launcher's processes choose among the devices of theirs
    choose_device(config.trainer.device)
    if config.trainer.devices > 1:
        check_devices(config)


def compose_run(lines: Sequence[str]) -> tuple[DictConfig, dict[str, str], Path]:
    """Return the checked configuration of one run, the groups' choices, and the folder Hydra would make.

    Raises:
        UserError: as `preflight`, and for what makes several runs.
    """
    for line in lines:
        if line.startswith(("-", "resume=")):
            raise UserError(
                f"{line} is for the command line. Here give settings, key=value or group=value; a folder of your "
                f"own parts as config_dir=FOLDER."
            )
    with composer():
        overrides = parse_overrides(lines)
        lines = [*inherited(overrides), *lines]
        several = [str(override.input_line) for override in overrides if override.is_sweep_override()]
        node = compose(lines) if not several else None
        if node is None or node.hydra.mode is RunMode.MULTIRUN:
            raise UserError(
                f"{' '.join(several) or 'hydra.mode=MULTIRUN'} makes several runs, and this starts one. Call it "
                f"once for each, or give the command line -m."
            )
        check_hydra(node.hydra)
        check_output(node)
        chosen, folder = choices(node.hydra.runtime.choices), Path(node.hydra.run.dir).absolute()
        check_machine(check_job(node, overrides))
    return node, chosen, folder


def choices(groups: Mapping[Any, Any]) -> dict[str, str]:
    """Return the chosen value of each group of this program, from Hydra's `runtime.choices`."""
    return {str(group): str(choice) for group, choice in groups.items() if "/" not in str(group)}


def compose_resumed(folder: Path, lines: Sequence[str]) -> DictConfig:
    """Return the checked configuration of a run that goes on, with the few changes it may be given.

    Raises:
        UserError: a setting is changed that may not change, or the run's config.yaml is no configuration.
    """
    with composer():
        changes = parse_overrides(lines)
        node = read_config(folder)
        allowed = [*configuration.MAY_CHANGE, *(f"logger.{key}" for key in node.logger if key != "_target_")]
        for change in changes:
            key = change.key_or_group
            if key not in allowed or change.is_delete() or change.is_sweep_override():
                raise UserError(
                    f"{change.input_line}: this cannot be changed when a run goes on."
                    f"{did_you_mean(key, allowed)} Allowed: {', '.join(allowed)}. "
                    f"To start a new run from its weights use init_from={folder}."
                )
            try:
                OmegaConf.update(node, key, change.value())
            except OmegaConfBaseException as error:
                raise UserError(explain(error, changes)) from error
        check_job(node, changes, resumed=True)
        return node


def compose_opened(folder: Path, lines: Sequence[str]) -> DictConfig:
    """Return the configuration of a run that is opened to translate, with changes to how, or to what it is scored on.

    Raises:
        UserError: another setting is changed, or the run's config.yaml is no configuration.
    """
    with composer():
        changes = parse_overrides(lines)
        node = read_config(folder)
        for change in changes:
            key = change.key_or_group
            group = key.partition(".")[0]
            known = group in configuration.OPENED_GROUPS or key in configuration.OPENED_KEYS
            if not known or change.is_sweep_override() or change.is_delete():
                allowed = [
                    *(f"{group}=VALUE" for group in configuration.OPENED_GROUPS),
                    *configuration.OPENED_KEYS,
                ]
                raise UserError(
                    f"{change.input_line}: this cannot be changed of a run that is opened.{did_you_mean(key, allowed)} "
                    f"Allowed: {', '.join(allowed)}, and the settings of these groups."
                )
            if key == group:
                node[group] = compose([str(change.input_line)])[group]
        for change in changes:
            if "." in (key := change.key_or_group):
                try:
                    OmegaConf.update(node, key, change.value())
                except OmegaConfBaseException as error:
                    raise UserError(explain(error, changes)) from error
        return node


def read_config(folder: Path) -> DictConfig:
    """Return the configuration of a run, its closed sections of their types, its slots yet to be checked.

    It is called within `composer`.

    Raises:
        UserError: no run lies there, it is an evaluation, or its config.yaml is no configuration.
    """
    path = folder / "config.yaml"
    evaluated = read_evaluated_run(folder)
    if evaluated is not None:
        raise UserError(f"{folder} is an evaluation of {evaluated}. Give the folder of the run.")
    try:
        saved = OmegaConf.load(path)
        assert isinstance(saved, DictConfig)
        complete(saved)
        node = OmegaConf.merge(OmegaConf.structured(configuration.Config), saved)
        OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{folder}: no run lies there (no config.yaml). Give the folder of a run, outputs/DATE/TIME."
        ) from None
    except OmegaConfBaseException as error:
        raise UserError(f"{path}: {explain(error, ())}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path} cannot be read. {error}") from error
    assert isinstance(node, DictConfig)
    return node


def complete(saved: DictConfig) -> None:
    """Add the settings that the configuration of a run of an earlier version lacks, as today's files have them.

    What is added to the program leaves it as it was, unless it is given another value than its file's. What lacks a part or
    a section that every version has had is no run's, and stays as it is.
    """

    def add(to: object, values: Mapping[str, Any], section: str) -> None:
        if isinstance(to, DictConfig):
            for key in sorted(values.keys() - to.keys()):
                to[key] = values[key]
                log.info("%s%s is a setting that this run does not know: as it is by default.", section, key)

    if not {*configuration.SLOTS, "model", "trainer", "embedding", "seed"} <= saved.keys():
        return
    rename(saved)
    today = _today()
    add(saved, today, "")
    for section in ("model", "trainer", "study", "embedding.source", "embedding.target"):
        values = OmegaConf.select(OmegaConf.create(today), section)
        add(OmegaConf.select(saved, section), values, f"{section}.")
    for slot in configuration.SLOTS:
        node = saved[slot]
        if isinstance(node, DictConfig):
            add(node, _slot_file(slot, node.get("_target_")), f"{slot}.")


def rename(saved: DictConfig) -> None:
    """Put the settings that an earlier version called otherwise as they are called today."""
    trainer = saved.trainer
    if "micro_batch_size" in trainer:
        size = trainer.pop("micro_batch_size")  # the most sentences of a micro-batch, null for no bound
        counted = size is not None and trainer.batch_unit == "sentences"
        trainer.micro_batches = math.ceil(trainer.batch_size / size) if counted else 1
        log.info("trainer.micro_batch_size=%s is now trainer.micro_batches=%s.", size, trainer.micro_batches)


@cache
def _today() -> dict[str, Any]:
    """Return the default configuration, its interpolations as they are."""
    values: Any = OmegaConf.to_container(hydra.compose("config", []))
    return {str(key): value for key, value in values.items()}


@cache
def _slot_file(slot: str, target: str) -> dict[str, Any]:
    """Return what a file of this program sets of a slot's class; nothing where it has no file of its own."""
    for path in sorted((configuration.CONF_DIR / slot).glob("*.yaml")):
        values: Any = OmegaConf.to_container(OmegaConf.load(path))
        if values.get("_target_") == target and "defaults" not in values:
            return {str(key): value for key, value in values.items()}
    return {}


def check_hydra(node: DictConfig) -> None:
    """Refuse what would have Hydra or Python's logging call, import or write before this program looks at it.

    Of a class the whole name counts: Hydra follows attributes, so that a trusted prefix could lead anywhere.
    """
    container: Any = OmegaConf.to_container(node, resolve=False)
    for section in ("job_logging", "hydra_logging"):
        # Handlers import what `ext://` names and open any file.
        if (
            container[section].keys() - {"version", "root", "disable_existing_loggers"}
            or container[section]["root"]
        ):
            raise UserError(
                f"hydra.{section}={container[section]} is refused: the program keeps its own log, run.log in "
                f"the run folder. Leave hydra/{section} as it is."
            )
    if container["job"]["env_set"]:
        raise UserError(
            f"hydra.job.env_set={container['job']['env_set']} is refused: a configuration may not change the "
            f"environment, which says what is trusted. Set the variables in the shell."
        )
    trusted = configuration.user_trusted()
    plugin_slots = ("hydra.launcher._target_", "hydra.sweeper._target_")

    def walk(value: object, path: str) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                where, named = f"{path}.{key}", str(item)
                # Hydra itself makes nothing but registered plugins of these two.
                is_plugin = where in plugin_slots and named.startswith(PLUGINS)
                is_plugin |= (
                    where == "hydra.sweeper.sampler._target_" and SAMPLER.fullmatch(named) is not None
                )
                if key == "_target_" and not is_plugin and not named.startswith(trusted):
                    raise UserError(
                        f"{where}={item} is refused: a configuration may not name code to call there. "
                        f"Allowed: plugins of Hydra as launcher and sweeper, and modules named in the "
                        f"environment variable {configuration.TRUST_VARIABLE}."
                    )
                walk(item, where)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                walk(item, f"{path}[{number}]")
        elif isinstance(value, str) and "${" in PLAIN_INTERPOLATION.sub("", value):
            raise UserError(
                f"{path}={value} is refused: it could become code to call. Allowed there are other keys, as in "
                f"${{model.name}}, and the resolvers now, hydra and oc.env."
            )

    walk(container, "hydra")


def check_output(node: DictConfig) -> None:
    """Refuse to start where a run lies already: Hydra would overwrite its record."""
    folder = node.hydra.run.dir
    if node.study.number is None and (Path(folder) / "config.yaml").exists():
        raise UserError(
            f"hydra.run.dir={folder}: a run lies there already. Choose another folder, or go on with it by "
            f"resume={folder}."
        )
