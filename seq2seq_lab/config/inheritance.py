"""`init_from=RUN`: the groups and settings that a new run inherits from another run."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.command_line import literal
from seq2seq_lab.errors import UserError

# Config groups whose values a run inherits, and sections whose settings it inherits, in the order of their references.
GROUPS = ("model", "encoder", "decoder", "pooling", "attention", "readout", "initialization", "tokenizer")
SECTIONS = ("model", "embedding", *GROUPS[1:])
NULL = "None"  # how Hydra records that a group is null
# The side of the vocabulary of the parts that have one.
TABLES = {"source_embedding": "source", "target_embedding": "target", "readout": "target"}
# Pretrained vectors are part of the weights.
NOT_INHERITED = ("embedding.source.path", "embedding.target.path")


def select_groups(given: Collection[str]) -> tuple[str, ...]:
    """Return the groups that a run inherits: those not given. A given model replaces all of its parts.

    Args:
        given: the groups and keys that the command line sets.
    """
    groups = ("tokenizer",) if "model" in given else GROUPS
    return tuple(group for group in groups if group not in given)


def select_choices(folder: Path, chosen: Mapping[str, str], given: Collection[str]) -> list[str]:
    """Return the values of a saved run's groups, `group=value`, that exist here.

    Args:
        folder: the run.
        chosen: the value of each group of the run.
        given: the groups and keys that the command line sets.

    Raises:
        UserError: the run uses a value that does not exist here, in a group that is inherited.
    """
    existing = [group for group in GROUPS if chosen.get(group) in configuration.group_values(group)]
    for group in select_groups(given):
        if group in chosen and group not in existing and chosen[group] != NULL:
            raise UserError(
                f"init_from={folder}: its {group}={chosen[group]} does not exist here. If it is a custom component, give "
                f"its folder: --config-dir FOLDER."
            )
    return [f"{group}={chosen[group]}" for group in existing]


def select_settings(saved: Mapping[str, Any], template: DictConfig, given: Collection[str]) -> list[str]:
    """Return the settings that give `template` the inherited sections of a saved run, as overrides.

    A setting that refers to an inherited one (`encoder.dropout: ${model.dropout}`) stays a reference if that results in
    the saved value, so both change together.

    Args:
        saved: the run's plain configuration.
        template: what the run's group values compose to today.
        given: the groups and keys that the command line sets.
    """
    node = OmegaConf.create(OmegaConf.to_container(template, resolve=False, enum_to_str=True))
    assert isinstance(node, DictConfig)
    groups = select_groups(given)
    sections = [name for name in SECTIONS if name in (*groups, *(["embedding"] if "model" in groups else []))]
    settings = []
    for references in (False, True):  # values first, then what refers to them
        used = {name: saved[name] for name in SECTIONS if saved[name] is not None}
        for key, value in configuration.dotted_settings(used):
            if _is_reference(node, key) is references and OmegaConf.select(node, key) != value:
                OmegaConf.update(node, key, value, force_add=True)
                if key.partition(".")[0] in sections and key not in (*given, *NOT_INHERITED):
                    settings.append(f"++{key}={literal(value)}")
    return settings


def select_part(
    folder: Path,
    saved: Mapping[str, Any],
    chosen: Mapping[str, str],
    parts: Sequence[str],
    given: Collection[str],
) -> list[str]:
    """Return the values and settings, as overrides, that a run inherits with parts of a saved run's model.

    Args:
        folder, saved, chosen, given: see `select_choices` and `select_settings`.
        parts: the names of the parts.
    """
    names = {part.partition(".")[0] for part in parts}
    sides = {TABLES[name] for name in names if name in TABLES}
    groups = [group for group in GROUPS if group in names or (group == "tokenizer" and sides)]
    sizes = {f"embedding.{side}.size" for side in sides} | {"model.embedding_size", "model.scale_embeddings"}
    settings = [
        f"++{key}={literal(value)}"
        for key, value in configuration.dotted_settings(
            {name: saved[name] for name in SECTIONS if saved[name]}
        )
        if (key.partition(".")[0] in groups or key in sizes) and key not in given
    ]
    left = {*given, *(group for group in GROUPS if group not in groups)}
    choices = select_choices(folder, chosen, left)
    return [*(choice for choice in choices if choice.partition("=")[0] not in left), *settings]


def list_inheritable(saved: Mapping[str, Any], chosen: Mapping[str, str]) -> set[str]:
    """Return every override that can be inherited from a saved run; see `select_choices` and `select_settings`."""
    used = {name: saved[name] for name in SECTIONS if saved[name] is not None}
    settings = {f"++{key}={literal(value)}" for key, value in configuration.dotted_settings(used)}
    return settings | {f"{group}={chosen[group]}" for group in GROUPS if group in chosen}


def _is_reference(node: DictConfig, key: str) -> bool:
    """Return whether a key refers to a key of an inherited section."""
    section, _, name = key.rpartition(".")
    parent = OmegaConf.select(node, section)
    if not isinstance(parent, DictConfig) or not OmegaConf.is_interpolation(parent, name):
        return False
    unresolved = OmegaConf.to_container(parent, resolve=False)
    assert isinstance(unresolved, dict)
    return unresolved[name].startswith(tuple(f"${{{section}." for section in SECTIONS))


def describe_differences(saved: Any, config: configuration.Config, sections: Sequence[str]) -> str:
    """Return the settings of sections that differ from those of a saved run, as text.

    Settings that follow from others are left out where possible: those of parts if sizes of the model differ, and
    rates (dropout) if any other setting differs.
    """
    now = OmegaConf.to_container(OmegaConf.structured(config), enum_to_str=True)
    assert isinstance(now, dict)
    differing = {
        key: (value, OmegaConf.select(saved, key))
        for key, value in configuration.dotted_settings({name: now[name] for name in sections})
        if key not in NOT_INHERITED and OmegaConf.select(saved, key) != value
    }
    if "encoder.cell" in differing:
        differing.pop("model.cell", None)  # it follows from the encoder's
    shaping = {key: pair for key, pair in differing.items() if not isinstance(pair[0], float)} or differing
    if any(key.startswith("model.") for key in shaping):
        shaping = {
            key: pair
            for key, pair in shaping.items()
            if key.startswith("model.") or key.endswith("._target_")
        }
    return ", ".join(f"{key}={value} (the run has {old})" for key, (value, old) in shaping.items())
