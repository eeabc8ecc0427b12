"""Recorded configurations in the form of this version.

A later version may add settings, or describe the same model by other groups, without a new format of runs. Every program
that reads the `config.yaml` or the choices of a run gets them in the form of this version. What is compared with a recorded
hash or checkpoint has the form of earlier versions.
"""

from collections.abc import Mapping
from typing import Any

from seq2seq_lab.config.renamed import bring_up_to_date, recorded_form
from seq2seq_lab.config.schema import SLOTS

# Settings of classes that a later version added without a new format of runs, with the values that do what earlier runs did.
ADDED_TO_CLASS: dict[str, dict[str, Any]] = {
    "seq2seq_lab.tasks.classification.task.ClassificationTask": {"class_weights": "none"},
    "seq2seq_lab.data.captions.ImageFolder": {"encoding": None},
    "seq2seq_lab.data.dialogue.Dialogue": {"encoding": None, "language": "en"},
    "seq2seq_lab.data.monolingual.Monolingual": {"encoding": None, "column": None},
    "seq2seq_lab.data.multi30k.Multi30k": {"encoding": None},
    "seq2seq_lab.data.names.Names": {"encoding": None},
    "seq2seq_lab.data.parallel.Parallel": {"encoding": None, "delimiter": None},
    "seq2seq_lab.data.sentiment.Sentiment": {"encoding": None},
    "seq2seq_lab.data.tatoeba.Tatoeba": {"encoding": None},
}

LANGUAGE_MODEL = "seq2seq_lab.tasks.language_model.task.LanguageModelTask"
# The groups that described a recurrent language model when it was an encoder, and those of the decoder that is the same. The
# settings of the two that have other names, or the same ones, in both; and the others with their values.
ENCODER = {
    "_target_": "seq2seq_lab.models.encoders.RecurrentEncoder",
    **{"bidirectional": False, "reverse": False},
}
DECODER = {
    "_target_": "seq2seq_lab.models.decoders.AttendAfterDecoder",
    **{"attentional_size": None, "input_feeding": False, "bridge": "zero"},
}
TO_DECODER = {
    **{name: name for name in ("cell", "hidden_size", "num_layers", "dropout", "locked_dropout")},
    "encoder_output_dropout": "state_dropout",
}
NO_ATTENTION = {"_target_": "seq2seq_lab.models.attention.NoAttention"}
CHOICES = {"encoder": "None", "decoder": "plain", "attention": "none"}


def upgraded(config: dict[str, Any]) -> dict[str, Any]:
    """Return a recorded configuration, unchecked, in the form of this version; its sections are changed."""
    config = {**bring_up_to_date(config)}
    config.setdefault("init_part", None)
    decoder = _renamed(config.get("encoder"), ENCODER, DECODER, TO_DECODER)
    if decoder is not None and _is_language_model(config):
        config |= {"encoder": None, "decoder": decoder, "attention": NO_ATTENTION}
        config["model"] |= {"bridge": "zero", "cell": decoder["cell"]}
    for section, added in added_settings(config).items():
        if isinstance(config.get(section), dict):
            config[section] |= added | config[section]  # in the order of the file
    return config


def upgraded_choices(choices: Mapping[str, str]) -> dict[str, str]:
    """Return the chosen values of the groups of a recorded run in the form of this version."""
    before = choices.get("task") == "language_model" and choices.get("encoder", "None") != "None"
    return {**choices, **(CHOICES if before else {})}


def renamed_key(config: Mapping[str, Any], key: str) -> str | None:
    """Return the key that replaces a setting of the encoder of an earlier language model; None for any other key."""
    group, _, name = key.partition(".")
    of_encoder = group == "encoder" and name in TO_DECODER and _is_language_model(config)
    return f"decoder.{TO_DECODER[name]}" if of_encoder else None


def earlier(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plain configuration in the form of earlier versions, if they have one for what it describes."""
    sections = {key: value for key, value in config.items() if (key, value) != ("init_part", None)}
    encoder = _renamed(
        config.get("decoder"), DECODER, ENCODER, {now: before for before, now in TO_DECODER.items()}
    )
    if encoder is not None and config.get("attention") == NO_ATTENTION and _is_language_model(config):
        sections |= {"encoder": encoder, "decoder": None, "attention": None}
        sections["model"] = config["model"] | {"bridge": "tanh"}
    for section, added in added_settings(sections).items():
        if isinstance(sections.get(section), dict):
            sections[section] = {
                name: value
                for name, value in sections[section].items()
                if name not in added or value != added[name]
            }
    return recorded_form(sections)


def added_settings(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of `ADDED_TO_CLASS` that apply to a configuration, by section.

    Args:
        config: the plain configuration, unchecked.
    """
    slots = {name: slot for name in SLOTS if isinstance(slot := config.get(name), Mapping)}
    found = {name: ADDED_TO_CLASS.get(str(slot.get("_target_")), {}) for name, slot in slots.items()}
    return {"model": {"cell": slots.get("encoder", {}).get("cell", "gru")}} | found


def _is_language_model(config: Mapping[str, Any]) -> bool:
    task = config.get("task")
    return (
        isinstance(task, Mapping)
        and task.get("_target_") == LANGUAGE_MODEL
        and isinstance(config.get("model"), Mapping)
    )


def _renamed(
    slot: Any, fixed: Mapping[str, Any], now_fixed: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return a slot with other names of its settings; None if it does not have the settings `fixed` and `names`."""
    if not (
        isinstance(slot, dict)
        and slot.keys() == fixed.keys() | names.keys()
        and fixed.items() <= slot.items()
    ):
        return None
    return {**now_fixed, **{now: slot[before] for before, now in names.items()}}
