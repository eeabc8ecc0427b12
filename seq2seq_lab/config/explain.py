"""Error messages for configurations that Hydra or OmegaConf refuse."""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from seq2seq_lab.config import extensions, hydra_adapter
from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.slots import constructor_parameters, imported
from seq2seq_lab.config.type_checks import wrong_type
from seq2seq_lab.config.upgrade import RENAMED, renamed_key
from seq2seq_lab.errors import SYNONYMS, UserError, did_you_mean, nearest, plain_letters

SIMILAR_ELSEWHERE = 0.8  # as `errors.SIMILAR`, for the name of a key of another section

# The extra that installs a value of one of Hydra's groups.
EXTRAS = {
    "hydra/launcher=submitit_slurm": "slurm",
    "hydra/launcher=submitit_local": "slurm",
    "hydra/launcher=ray": "ray",
    "hydra/launcher=ray_aws": "ray",
    "hydra/sweeper=optuna": "optuna",
}
EXTRA_NOTES = {
    "optuna": " For Hydra 1.3 it installs optuna<3 and SQLAlchemy<2. If another package needs later versions, use a "
    "separate environment."
}


def explain(error: Exception, overrides: Sequence[Override]) -> str:
    """Return an error message for what Hydra or OmegaConf raised for these overrides."""
    # The parser raises errors without a text, with the text in their cause.
    first_line = (str(error) or str(error.__cause__ or "") or type(error).__name__).splitlines()[0]
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, value = error.missing_cfg_file.rpartition("/")
        if (extra := EXTRAS.get(f"{group}={value}")) is not None:
            return (
                f"{group}={value} needs a package that is not installed: pip install 'seq2seq_lab[{extra}]'."
                f"{EXTRA_NOTES.get(extra, '')}"
            )
        # Hydra lists no options for a value in a list, as in metric=[a,b].
        allowed = [str(option) for option in error.options or configuration.group_values(group)]
        near = suggest_value(group, value, allowed)
        return f"{group}={value} is not a value of {group}.{near} Values: {', '.join(allowed) or 'none'}."
    if misplaced := re.fullmatch(r"In '(.+)': Could not override '([^']+)'\..*", first_line):
        file, group = misplaced[1], misplaced[2]
        if "@" in group:
            return f"{file}.yaml cannot override {group.partition('@')[0]}. Add the line `# @package _global_` at its top."
        if group not in configuration.groups():
            near = did_you_mean(group, configuration.groups())
            return f"{file}.yaml: `override /{group}` is not allowed: {group!r} is not a group.{near}"
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__ or error.__context__
    if not isinstance(cause, OmegaConfBaseException) or not cause.full_key:
        return first_line
    key = cause.full_key.partition("[")[0]
    given = [override for override in overrides if f"{override.key_or_group}.".startswith(f"{key}.")]
    reason = str(cause).splitlines()[0]
    if missing := re.fullmatch(r"Interpolation key '(.+)' not found", reason):
        references = [override for override in overrides if f"${{{missing[1]}}}" in str(override.input_line)]
        if references:
            setting, key = references[-1].input_line, references[-1].key_or_group
            return f"{setting} refers to {missing[1]}, which is not a setting. Give it a value, {key}=VALUE."
        if not given:
            return f"{key} refers to another setting: {reason}. Give it a value, {key}=VALUE."
    file = first_line.split(": ")[0]  # if it is set in a file, Hydra's first line begins with it
    if not given and key == "_target_":
        return f"{file}: `_target_` is not a setting of the whole run. Remove the line `# @package _global_`."
    if key == "experiment" and isinstance(cause, ConfigKeyError | ConfigAttributeError):
        name = file.partition("'")[2].rstrip("'")
        return f"{name}.yaml sets keys of the whole run. Make `# @package _global_` its first line."
    if not given and key in configuration.groups() and reason.startswith("Cannot assign"):
        return (
            f"{file}: {key} is a group, and its settings are keys. To choose its value, write "
            f"`- override /{key}: VALUE` in the defaults list of the file."
        )
    if not given:
        setting, value = f"{key} ({file}: {reason})", ""
    elif given[-1].is_delete():
        return f"{given[-1].input_line}: {key} cannot be left out. Give it another value."
    else:
        setting, value = str(given[-1].input_line), given[-1].get_value_element_as_str()
    if isinstance(cause, ConfigKeyError | ConfigAttributeError):
        return explain_unknown_key(key, setting, overrides if given else ())
    if isinstance(cause, MissingMandatoryValue):
        return f"{key} is missing. Give it a value, {key}=VALUE."
    hint = configuration.annotation(key)
    return wrong_type(setting, value, hint) if hint else f"{setting}: {reason}."


def suggest_value(group: str, value: str, allowed: Sequence[str]) -> str:
    """Return a suggestion for a value that a group does not have.

    It is a file in the wrong place of `--config-dir`; else a value of the group that begins with this one, apart from case,
    hyphens and underscores; else another group that has this value; else a value of the group with a similar spelling; else
    `--config-dir`.
    """
    own = extensions.folder()
    for path in sorted(own.glob("*/*.y*ml")) if own is not None else ():
        if path.stem == value and (path.suffix != ".yaml" or path.parent.name not in configuration.groups()):
            return f" {path} is not read. Rename it to {own}/{group}/{value}.yaml."
    near, elsewhere = nearest(value, allowed), other_groups(group, value)
    same = [one for one in near if plain_letters(one).startswith(plain_letters(value))]
    if elsewhere and not same:
        return f" Did you mean {' or '.join(elsewhere[:3])}?"
    if near:
        return did_you_mean(value, allowed)
    if own is None:
        return " A value of your own needs the folder of its file: --config-dir FOLDER."
    return ""


def other_groups(group: str, value: str) -> list[str]:
    """Return the groups that have a value, as `group=value`."""
    others = [other for other in configuration.groups() if other not in (group, "experiment", "study")]
    return [
        f"{other}={choice}"
        for other in others
        for choice in configuration.group_values(other)
        if choice.lower() == value.lower()
    ]


def refuse_keys_of_null(node: DictConfig, overrides: Sequence[Override]) -> None:
    """Refuse settings of a group that is null, for which OmegaConf only raises an AssertionError.

    Raises:
        UserError: names the setting and the group.
    """
    for override in overrides:
        group, _, name = override.key_or_group.partition(".")
        if name and group in node and node[group] is None:
            user = f"task={node.hydra.runtime.choices.task}" if "hydra" in node else "this run"
            now = renamed_key(node, override.key_or_group)
            remedy = f"Set {now} instead." if now else f"Leave {override.key_or_group} out."
            raise UserError(
                f"{override.input_line} is not allowed: {group} is null, since {user} does not use it. {remedy}"
            )


def refuse_keys_of_deleted(overrides: Sequence[Override]) -> None:
    """Refuse settings of a group that another override leaves out.

    Raises:
        UserError: names both.
    """
    deleted = {str(one.key_or_group): one.input_line for one in overrides if one.is_delete()}
    for override in overrides:
        group, _, name = override.key_or_group.partition(".")
        if name and group in deleted:
            raise UserError(
                f"{override.input_line} is not allowed: {deleted[group]} leaves out {group}. Remove {deleted[group]}."
            )


def explain_unknown_key(key: str, setting: str, overrides: Sequence[Override]) -> str:
    """Return an error message for a key that does not exist: the nearest keys and the keys of its section."""
    if key in RENAMED:
        return f"{setting}: {key} is now {RENAMED[key]}. Change it there."
    kept = (*configuration.groups(), "hydra.searchpath")
    choices = [str(override.input_line) for override in overrides if override.key_or_group in kept]
    node = hydra_adapter.compose(choices)
    container = OmegaConf.to_container(node, resolve=False)
    assert isinstance(container, dict)
    if argument := explain_argument(key, setting, container):
        return argument
    keys = configuration.dotted_keys({str(name): item for name, item in container.items()})
    known = [name for name in keys if not name.endswith("_target_") and name != "hydra"]
    section = key.rpartition(".")[0]
    neighbors = [name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == section]
    near = suggest_key(key, [name for name in known if not key.startswith(f"{name}.")])
    within = f" in {section}" if section else ""
    return (
        f"{setting}: {key!r} is not a setting.{near} Settings{within}: {', '.join(neighbors) or 'none'}. "
        f"`--cfg job` prints all settings."
    )


def explain_argument(key: str, setting: str, node: Mapping[Any, Any]) -> str:
    """Return an error message for an argument with a default that the YAML file of a slot lacks, or an empty string."""
    section, _, name = key.rpartition(".")
    slot = node.get(section)
    target = slot.get("_target_") if isinstance(slot, dict) else None
    if not isinstance(target, str) or not inspect.isclass(kind := imported(section, target)):
        return ""
    parameter = constructor_parameters(kind).get(name)
    if parameter is None or parameter.default is inspect.Parameter.empty:
        return ""
    own, file = extensions.folder(), f"{section}/{node['hydra']['runtime']['choices'][section]}.yaml"
    remedy = f"Add `{name}: …` to {own}/{file}" if own and (own / file).is_file() else f"Write +{key}=VALUE"
    return f"{setting}: {target} accepts {name}, but {file} does not set it. {remedy}."


def suggest_key(key: str, known: Sequence[str]) -> str:
    """Return " Did you mean …?" for a key that does not exist, or an empty string.

    A value of the group whose section this is comes first, then a setting of another value of the group, then the keys of
    the same or the nearest spelling.
    """
    section, _, name = key.rpartition(".")
    if section in configuration.groups() and name in configuration.group_values(section):
        choice = f"{section}={name}"
        if key in hydra_adapter.files_by_package([choice], section):
            return f" It is the section of {choice}, which is not chosen."
    if others := configuration.values_with(section, name):
        return f" It is a setting of {' and '.join(f'{section}={value}' for value in others)}."
    if key.startswith("hydra"):
        return did_you_mean(key, known)
    if section and name in configuration.groups():
        return f" Did you mean the group {name!r}, without {section}?"
    own = [one for one in known if not one.startswith("hydra.")]
    same = [one for one in own if one.rpartition(".")[2] == name]
    if same and section not in configuration.groups():
        shared = f"model.{name}"  # the parts refer to it
        return f" Did you mean {' or '.join([shared] if shared in same else same[:3])}?"
    for one in own:
        if one.replace(".", "_") == key.replace(".", "_"):
            return f" Did you mean {one}?"
    if not section and (near := did_you_mean(key, configuration.groups())):
        return near
    if values := settings_of_values(key):
        return f" Did you mean {' or '.join(values)}?"
    beside = [one.rpartition(".")[2] for one in own if one.rpartition(".")[0] == section]
    if names := nearest(name, beside):
        return f" Did you mean {' or '.join(repr(f'{section}.{one}'.strip('.')) for one in names)}?"
    if others := configuration.values_with(section, meant := SYNONYMS.get(name, "")):
        return f" Did you mean {section}.{meant}, a setting of {' and '.join(f'{section}={value}' for value in others)}?"
    last_parts = {one.rpartition(".")[2]: one for one in reversed(own)}
    elsewhere = nearest(name, last_parts, SIMILAR_ELSEWHERE)
    return f" Did you mean {last_parts[elsewhere[0]]!r}?" if elsewhere else ""


def settings_of_values(key: str) -> list[str]:
    """Return the choice and the setting that a key such as `beam_size` stands for, as `search=beam search.size=…`."""
    return [
        f"{group}={choice} {group}.{rest}=…"
        for group in configuration.groups()
        for choice in configuration.group_values(group)
        if (rest := key.removeprefix(f"{choice}_")) != key and rest in configuration.file_keys(group, choice)
    ]
