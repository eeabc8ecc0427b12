"""The command line: its options and its settings, `key=value` and `group=value`."""

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import OverrideParseException

from seq2seq_lab.config.hydra_adapter import find_config_loader, make_argument_parser
from seq2seq_lab.config.schema import Config, file_keys, group_values, groups
from seq2seq_lab.config.secrets import MASK, URL_CREDENTIALS, mask_secrets
from seq2seq_lab.config.upgrade import RENAMED, renamed_settings
from seq2seq_lab.errors import UserError, did_you_mean

OPTIONS = ("--help", "--version", "--multirun", "--config-dir", "--cfg", "--info", "--hydra-help")


def parse_line(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line; its settings are in `overrides`.

    Raises:
        UserError: an option is unknown, would bypass the checks, or cannot be combined with another.
    """
    parser = make_argument_parser()
    if parser.prog == "__main__.py":
        parser.prog = "python -m seq2seq_lab"
    options = [word for word in arguments if word.startswith("-")]

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{' '.join(options)}: {message}. `{parser.prog} --help` lists the options.")

    setattr(parser, "error", refuse)  # noqa: B010  (argparse prints its usage)
    line, unknown = parser.parse_known_intermixed_args(list(arguments))
    if unknown:
        raise UserError(explain_unknown_option(unknown[0]))
    for option in ("config_path", "config_name", "experimental_rerun"):
        if getattr(line, option) is not None:
            raise UserError(
                f"--{option.replace('_', '-')} is not supported: every run starts from conf/config.yaml. Give a folder of "
                f"your own groups with --config-dir."
            )
    modes = ("run", "multirun", "cfg", "info", "shell_completion")
    given = [f"--{mode.replace('_', '-')}" for mode in modes if getattr(line, mode)]
    if len(given) > 1:
        raise UserError(f"{' '.join(given)}: give only one of these options.")
    if line.resolve and not (line.cfg or line.help):
        raise UserError("--resolve needs --cfg: add --cfg job, or leave it out.")
    if line.config_dir is not None and not Path(line.config_dir).is_dir():
        raise UserError(f"--config-dir={line.config_dir}: this folder does not exist.")
    return line


def explain_unknown_option(option: str) -> str:
    """Return an error message for an option that does not exist; most of them are settings with dashes."""
    key, _, value = option.lstrip("-").partition("=")
    key = key.replace("-", "_")
    near = did_you_mean(option.partition("=")[0], OPTIONS)
    if key.partition(".")[0] in {*groups(), *Config.__dataclass_fields__}:
        near = f" Settings have no dashes: write {key}={value or 'VALUE'}."
    return f"{option} is not an option.{near} Options: {', '.join(OPTIONS)}."


def parse_overrides(lines: Sequence[str]) -> list[Override]:
    """Return parsed settings.

    Raises:
        UserError: a setting does not follow Hydra's grammar, has a key of an earlier version or of the group `experiment`,
            which has only files, or gives a group something other than one of its values.
    """
    try:
        overrides = OverridesParser.create(config_loader=find_config_loader()).parse_overrides(list(lines))
    except OverrideParseException as error:
        raise UserError(explain_syntax(str(error.override))) from error
    for override in overrides:
        if (key := override.key_or_group) in RENAMED:
            (current,) = renamed_settings([str(override.input_line)])
            raise UserError(f"{override.input_line}: {key} is now {RENAMED[key]}. Write {current}.")
        if key.startswith("experiment."):
            raise UserError(
                f"{override.input_line}: experiment is a group of files and has no settings. Leave out the prefix: write "
                f"{str(override.input_line).partition('.')[2]}."
            )
        if override.key_or_group in groups() and not override.is_sweep_override():
            check_choice(override)
    return overrides


def explain_syntax(line: str) -> str:
    """Return an error message for a word of the command line that Hydra's grammar does not accept."""
    key, equals, value = line.partition("=")
    if value.startswith(("[", "{", "'", '"')) and value.count("[") != value.count("]"):
        return (
            f"{line} is not a setting: the shell has split a value at a space. Put the setting in quotation marks, as in "
            f"'{key}=[a, b]'."
        )
    if equals:
        if value.startswith("[") and value.endswith("]"):
            value = f"[{','.join(map(quoted, value[1:-1].split(',')))}]"
        else:
            value = quoted(value.strip("'\""))
        near = [shlex.quote(f"{key}={value}")]
    else:
        key, _, value = line.lstrip("-").partition(":")
        near = [f"{group}={line}" for group in groups() if line in group_values(group)]
        if key in groups() or not (near or Path(line).exists()):
            near = [f"{key}={value or 'VALUE'}"]
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    return (
        f"{line} is not a setting.{meant} Write key=value, or group=value with one of the groups "
        f"{', '.join(groups())}. Put values with brackets, commas, spaces, = or letters outside ASCII in quotation marks: "
        f"'key=\"value\"'."
    )


def quoted(value: str) -> str:
    """Return a value in quotation marks, unless it is a plain word or number."""
    value = value.strip().strip("'\"").replace('"', "'")
    return value if re.fullmatch(r"[\w.+-]+", value, re.ASCII) else f'"{value}"'


def check_choice(override: Override) -> None:
    """Refuse a group's value that is not a single name; Hydra would merge a list of them into one.

    Raises:
        UserError: names the group and its values.
    """
    group = override.key_or_group
    if group == "metric" and isinstance(override.value(), list):
        return  # each metric has a separate key, so Hydra does not merge them
    if override.is_add():
        raise UserError(f"{override.input_line}: {group} already has a value. Leave out the + to change it.")
    value = override.value()
    if not override.is_delete() and not isinstance(value, str):
        near = [f"{group}={choice} {group}.{key}={value}" for choice, key in only_floats(group)]
        meant = f" Did you mean {near[0]}?" if near and type(value) in (int, float) else ""
        raise UserError(
            f"{override.input_line} is not allowed: choose one {group}.{meant} Allowed: {', '.join(group_values(group))}."
        )


def only_floats(group: str) -> Iterator[tuple[str, str]]:
    """Yield the values of a group with one setting that is a number, and its key, if it is a float."""
    for choice in group_values(group):
        settings = file_keys(group, choice)
        numbers = [key for key, value in settings.items() if type(value) in (int, float)]
        if len(numbers) == 1 and type(settings[numbers[0]]) is float:
            yield choice, numbers[0]


def mask_overrides(lines: Sequence[str]) -> list[str]:
    """Return settings of a command line with secrets masked; see `mask_secrets`. They may be of an earlier version."""
    masked = []
    for line in renamed_settings(lines):
        (override,) = parse_overrides([URL_CREDENTIALS.sub(MASK, line)])
        nested: Any = override.value()
        for name in reversed(override.key_or_group.split(".")):
            nested = {name: nested}
        shown = f"{line.partition('=')[0]}={MASK}" if mask_secrets(nested) != nested else override.input_line
        masked.append(str(shown))
    return masked


def literal(value: object) -> str:
    """Return a plain value in the syntax of Hydra's overrides."""
    if isinstance(value, str):
        return QuotedString(value, Quote.single).with_quotes()
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{literal(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(literal, value))}]"
    return "null" if value is None else str(value)


def setting(key: str, path: Path) -> str:
    """Return `key=path` in Hydra's syntax, whatever characters the path contains."""
    return f"{key}={literal(str(path))}"
