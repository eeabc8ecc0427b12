"""`init_from=RUN`: a new run from the weights, the vocabulary and the model settings of another run."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seq2seq_lab.config.schema import Config, dotted_settings
from seq2seq_lab.errors import UserError

# Config groups whose values a run inherits, and sections whose settings it inherits, in the order of their references.
GROUPS = ("model", "encoder", "decoder", "attention", "readout", "initialization", "tokenizer")
SECTIONS = ("model", "embedding", *GROUPS[1:])
# Pretrained vectors are part of the weights.
NOT_INHERITED = ("embedding.source.path", "embedding.target.path")


def inherited_groups(given: Collection[str]) -> tuple[str, ...]:
    """Return the groups that a run inherits: those not given. A model that is given replaces all of its parts.

    Args:
        given: the groups and keys that are set on the command line.
    """
    groups = ("tokenizer",) if "model" in given else GROUPS
    return tuple(group for group in groups if group not in given)


def inherited_settings(
    saved: Mapping[str, Any], template: DictConfig, given: Collection[str]
) -> dict[str, Any]:
    """Return the settings, by their dotted keys, that give `template` the inherited sections of a saved run.

    A setting that the template takes from an inherited one (`encoder.dropout: ${model.dropout}`) stays a reference where
    that results in the saved value, so that both change together.

    Args:
        saved: the run's configuration, as plain values.
        template: what the run's group values compose to today.
        given: the groups and keys that are set on the command line.
    """
    node = OmegaConf.create(OmegaConf.to_container(template, resolve=False, enum_to_str=True))
    assert isinstance(node, DictConfig)
    groups = inherited_groups(given)
    sections = [name for name in SECTIONS if name in (*groups, *(["embedding"] if "model" in groups else []))]
    settings = {}
    for references in (False, True):  # values first, then what refers to them
        for key, value in dotted_settings({name: saved[name] for name in SECTIONS}):
            if _is_reference(node, key) is references and OmegaConf.select(node, key) != value:
                OmegaConf.update(node, key, value, force_add=True)
                if key.partition(".")[0] in sections and key not in (*given, *NOT_INHERITED):
                    settings[key] = value
    return settings


def check(config: Config) -> None:
    """Refuse a run of `init_from` whose model or tokenizer is not that of the run it names. No data is read.

    Raises:
        UserError: names the settings that differ, or the folder contains no run or no checkpoint.
    """
    import torch

    from seq2seq_lab import build
    from seq2seq_lab.data.tokenizers import TokenizerPair
    from seq2seq_lab.training import checkpoint

    if config.init_from is None:
        return
    folder = Path(config.init_from)
    if not (folder / "config.yaml").is_file():
        raise UserError(
            f"init_from={folder}: the folder contains no run (no config.yaml). Give the folder of a run, outputs/DATE/TIME."
        )
    wanted = build.tokenizer(config)()
    try:
        weights = checkpoint.best(folder / "checkpoints")
        pair = TokenizerPair.load(folder / "tokenizer")
    except UserError as error:
        raise UserError(f"init_from={folder}: {error}") from error
    saved = OmegaConf.load(folder / "config.yaml")
    if type(pair.source) is not type(wanted) or pair.source.options() != wanted.options():
        raise UserError(
            f"init_from={folder}: its weights need its vocabulary, and this run has another tokenizer: "
            f"{_differences(saved, config, ('tokenizer',))}. Leave these settings out, or train without init_from."
        )
    with torch.device("meta"):
        model = build.model(config, pair.source.size, pair.target.size, pair.joint)
    mismatch = checkpoint.mismatch(weights, model)
    if mismatch is not None:
        names = [name for name in SECTIONS if name not in ("initialization", "tokenizer")]
        raise UserError(
            f"init_from={folder}: its weights do not fit this model ({mismatch}). Settings that differ: "
            f"{_differences(saved, config, names)}. Leave these settings out, or train without init_from."
        )


def _is_reference(node: DictConfig, key: str) -> bool:
    """Return whether a key takes its value from a key of an inherited section."""
    section, _, name = key.rpartition(".")
    parent = OmegaConf.select(node, section)
    if not isinstance(parent, DictConfig) or not OmegaConf.is_interpolation(parent, name):
        return False
    written = OmegaConf.to_container(parent, resolve=False)
    assert isinstance(written, dict)
    return written[name].startswith(tuple(f"${{{section}." for section in SECTIONS))


def _differences(saved: Any, config: Config, sections: Collection[str]) -> str:
    """Return the settings of sections that differ from those of a saved run, as text.

    Settings that follow from others are left out where possible: those of parts if sizes of the model differ, and
    rates (dropout) if any other setting differs.
    """
    now = OmegaConf.to_container(OmegaConf.structured(config), enum_to_str=True)
    assert isinstance(now, dict)
    differing = {
        key: (value, OmegaConf.select(saved, key))
        for key, value in dotted_settings({name: now[name] for name in sections})
        if key not in NOT_INHERITED and OmegaConf.select(saved, key) != value
    }
    shaping = {key: pair for key, pair in differing.items() if not isinstance(pair[0], float)} or differing
    if any(key.startswith("model.") for key in shaping):
        shaping = {
            key: pair
            for key, pair in shaping.items()
            if key.startswith("model.") or key.endswith("._target_")
        }
    return ", ".join(f"{key}={value} (there {was})" for key, (value, was) in shaping.items())
