"""Trust: `_target_` names code to execute, so a configuration may only name trusted modules."""

import os
import re
from collections.abc import Mapping
from enum import Enum
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.hydra_adapter import PLUGIN_MODULES
from seq2seq_lab.errors import UserError

# Comma-separated installed modules whose classes a configuration may name, besides the program's own. The module
# `extensions` trusts the files of the user's folder.
TRUST_VARIABLE = "SEQ2SEQ_LAB_TRUST"

# The sampler classes of Optuna's sweeper, and nothing else in that module.
SAMPLER = re.compile(r"optuna\.samplers\.[A-Z]\w*Sampler")
# References to keys, and resolvers that return a text. Other resolvers can create a mapping with `_target_`.
PLAIN_INTERPOLATION = re.compile(r"\$\{(?:[\w.]+|(?:now|hydra|oc\.env|job_hash):[^${}]*)\}")
# A value that is one reference can be a mapping or a list; a reference within a longer text is a text.
REFERENCE = re.compile(r"\$\{(?:(hydra)[.:])?([^:]+)\}")
# Sections of Hydra in which OmegaConf refuses a reference to a mapping, because each key has a type.
TYPED_SECTIONS = ("hydra.run.", "hydra.sweep.", "hydra.job.")
# Values that Hydra itself gives its settings, which result in a text: from version 1.4 on, the overrides of the job.
HYDRAS_OWN = frozenset({("hydra.job.override_dirname", "${hydra_override_dirname:}")})
SCALARS = (str, int, float, bool, NoneType, Enum)


def trusted_modules() -> tuple[str, ...]:
    """Return the prefixes of names in the installed modules that the user trusts."""
    return tuple(f"{module}." for module in os.environ.get(TRUST_VARIABLE, "").split(",") if module)


def check_hydra(node: DictConfig) -> None:
    """Refuse settings of Hydra's section that would call, import or write something before they are checked.

    A launcher or sweeper that is not a mapping is refused too: Hydra would fail without naming it.

    Args:
        node: Hydra's section.

    Raises:
        UserError: names the key and the value.
    """
    container: Any = OmegaConf.to_container(node, resolve=False)
    _check_names(container, "hydra", trusted_modules(), node)
    for group in ("launcher", "sweeper"):
        if not isinstance(value := container[group], Mapping):
            raise UserError(
                f"hydra.{group}={value} is not allowed: a {group} is chosen with a slash, for example hydra/{group}=basic."
            )
    for section in ("job_logging", "hydra_logging"):
        # Logging handlers import what `ext://` names and open any file.
        settings = container[section]
        if settings.keys() - {"version", "root", "disable_existing_loggers"} or settings["root"]:
            raise UserError(
                f"hydra.{section}={settings} is refused: the program has its own log, run.log in the run folder. Leave "
                f"hydra/{section} unchanged."
            )
    if container["job"]["env_set"]:
        raise UserError(
            f"hydra.job.env_set={container['job']['env_set']} is refused: the environment defines what is trusted. Set the "
            f"variables in the shell."
        )


def _check_names(value: object, path: str, trusted: tuple[str, ...], hydra: DictConfig) -> None:
    """Refuse classes that are not trusted and interpolations that could become one, anywhere in a value.

    Args:
        path: the key of the value.
        hydra: Hydra's section.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "_target_" and not _is_allowed(f"{path}.{key}", str(item), trusted):
                raise UserError(
                    f"{path}.{key}={item} is refused: a configuration may not name this code. Allowed: Hydra plugins as "
                    f"launcher and sweeper, and modules named in the environment variable {TRUST_VARIABLE}."
                )
            _check_names(item, f"{path}.{key}", trusted, hydra)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_names(item, f"{path}[{index}]", trusted, hydra)
    elif (path, value) in HYDRAS_OWN:
        return
    elif isinstance(value, str) and "${" in PLAIN_INTERPOLATION.sub("", value):
        raise UserError(
            f"{path}={value} is refused: it could name code to call. Allowed: references to other keys, such as "
            f"${{model.name}}, and the resolvers now, hydra and oc.env."
        )
    elif isinstance(value, str) and (reference := REFERENCE.fullmatch(value)):
        in_hydra, key = reference.groups()
        is_scalar = _is_scalar_in(hydra, key) if in_hydra else _has_scalar_type(key)
        if not is_scalar and not path.startswith(TYPED_SECTIONS):
            raise UserError(
                f"{path}={value} is refused: it could be a mapping that names code to call. Allowed: references to keys of "
                f"Hydra and of the sections with fixed keys that are not mappings or lists, such as ${{study.name}}. Write "
                f"the value itself."
            )


def _is_scalar_in(hydra: DictConfig, key: str) -> bool:
    """Return whether a key of Hydra's section is neither a mapping nor a list. Hydra sets missing keys, such as job.num."""
    try:
        return not OmegaConf.is_config(OmegaConf.select(hydra, key))
    except OmegaConfBaseException:
        return False


def _has_scalar_type(key: str) -> bool:
    """Return whether the schema gives a key a type that is neither a mapping nor a list.

    The value in one configuration is not enough: Hydra creates callbacks from a configuration without the settings of a
    job.
    """
    kind = configuration.annotation(key)
    kinds = get_args(kind) if NoneType in get_args(kind) else (kind,)
    kinds = tuple(get_args(one)[0] if get_origin(one) is Annotated else one for one in kinds)
    return all(isinstance(one, type) and issubclass(one, SCALARS) for one in kinds)


def _is_allowed(key: str, name: str, trusted: tuple[str, ...]) -> bool:
    """Return whether a key of Hydra's section may name this class."""
    if key in ("hydra.launcher._target_", "hydra.sweeper._target_") and name.startswith(PLUGIN_MODULES):
        return True  # Hydra instantiates only registered plugins for these two
    is_sampler = key == "hydra.sweeper.sampler._target_" and SAMPLER.fullmatch(name) is not None
    return is_sampler or name.startswith(trusted)
