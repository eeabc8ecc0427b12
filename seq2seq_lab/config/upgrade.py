"""Recorded configurations in the form of this version.

A later version may add settings, rename them, or describe the same model by other groups, without a new format of runs.
Every program that reads the `config.yaml`, the choices or the commands of a run gets them in the form of this version. What
is compared with a recorded hash or checkpoint has the form of earlier versions, so that their studies and runs continue.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from seq2seq_lab.config.schema import MAY_CHANGE, SLOTS, conf_folders, file_keys

# Settings of the group `task` that were keys of the section `trainer`, with their defaults then. A run recorded all of them
# (those of `_ADDED` since they were added), and a task refused a setting that it did not use unless it had its default.
_OF_TRAINER: dict[str, Any] = {
    "batch_size": 48,
    "batch_unit": "sentences",
    "max_length": 200,
    "pad_to": None,
    "label_smoothing": 0.0,
    "r_drop": 0.0,
    "stop_at_eos": False,
    "eval_batch_size": 128,
    "max_eval_length": 1000,
    "samples": 4,
    "join_subwords": False,
    "length_bounds": [6, 10, 14, 18],
    "bleu_tokenizer": "auto",
    "multi_reference": False,
}
_ADDED = ("pad_to", "bleu_tokenizer")

# The table: the earlier key, and the key now.
RENAMED = {f"trainer.{name}": f"task.{name}" for name in _OF_TRAINER}

_NO_ALIGNMENTS = {"alignments": None, "alignment_base": None, "alignments_reversed": False}
# Settings of classes that a later version added without a new format of runs, with the values that do what earlier runs did.
ADDED_TO_CLASS: dict[str, dict[str, Any]] = {
    "seq2seq_lab.tasks.classification.task.ClassificationTask": {
        **{"class_weights": "none", "pairs": "none"},
        **{"training_examples": None, "vector_words": None},
    },
    "seq2seq_lab.tasks.span.task.SpanTask": {"vector_words": None},
    "seq2seq_lab.tasks.tagging.task.TaggingTask": {"training_examples": None, "vector_words": None},
    "seq2seq_lab.tasks.translation.task.TranslationTask": {"coverage_loss": 0.0},
    "seq2seq_lab.data.captions.ImageFolder": {"encoding": None, "captions": "captions.tsv"},
    "seq2seq_lab.data.dialogue.Dialogue": {
        "encoding": None,
        "language": "en",
        "on_bad_pair": "error",
        "turns": None,
    },
    "seq2seq_lab.data.labelled_texts.LabelledTexts": {"hub": None, "hub_config": None, "hub_splits": None},
    "seq2seq_lab.data.monolingual.Monolingual": {"encoding": None, "column": None},
    "seq2seq_lab.data.multi30k.Multi30k": {"encoding": None, **_NO_ALIGNMENTS},
    "seq2seq_lab.data.names.Names": {"encoding": None},
    "seq2seq_lab.data.parallel.Parallel": {"encoding": None, "delimiter": None, **_NO_ALIGNMENTS},
    "seq2seq_lab.data.sentiment.Sentiment": {"encoding": None},
    "seq2seq_lab.data.tatoeba.Tatoeba": {"encoding": None},
    "seq2seq_lab.models.decoders.AttendAfterDecoder": {"rectified_input": False},
    "seq2seq_lab.search.beam.BeamSearch": {"length_offset": 5},
}
# Pairs of sentences were generated or read from files by one class. Its settings that had no effect on generated pairs.
PAIRS = "seq2seq_lab.data.sentence_pairs.SentencePairs"
OF_FILES: dict[str, Any] = {
    **dict.fromkeys(("train", "validation", "test", "delimiter", "encoding")),
    **{"format": "auto", "columns": ["sentence1", "sentence2", "label"], "language": "en"},
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
    **{"attentional_size": None, "input_feeding": False, "rectified_input": False, "bridge": "zero"},
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
    dataset = config.get("dataset")
    if isinstance(dataset, dict) and dataset.get("_target_") == PAIRS:
        if dataset.get("train") is None:
            config["dataset"] = {k: v for k, v in dataset.items() if k not in (*OF_FILES, "group")}
        else:
            kept = {k: v for k, v in dataset.items() if k not in ("pairs", "seed")}
            config["dataset"] = {
                "group": None,
                **kept,
                "_target_": "seq2seq_lab.data.labelled_texts.LabelledTexts",
            }
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
    if isinstance(dataset := config.get("dataset"), dict) and dataset.get("_target_") == PAIRS:
        sections["dataset"] = OF_FILES | dataset
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
    """Return the settings of `ADDED_TO_CLASS` that apply to a configuration, and those that all have, by section.

    Args:
        config: the plain configuration, unchecked.
    """
    slots = {name: slot for name in SLOTS if isinstance(slot := config.get(name), Mapping)}
    found = {name: ADDED_TO_CLASS.get(str(slot.get("_target_")), {}) for name, slot in slots.items()}
    of_model = {"cell": slots.get("encoder", {}).get("cell", "gru")}
    return {"model": of_model, "trainer": {"normalization": "units"}} | found


def renamed_settings(lines: Iterable[str]) -> list[str]:
    """Return recorded settings, `key=value`, with the keys of this version; other words stay unchanged."""
    current = []
    for line in lines:
        key = line.partition("=")[0].lstrip("+~")
        current.append(line.replace(key, RENAMED[key], 1) if key in RENAMED else line)
    return current


def bring_up_to_date(config: dict[str, Any]) -> dict[str, Any]:
    """Return a recorded configuration with the keys of this version.

    A setting of the trainer that the task does not use had its default, and is left out.

    Args:
        config: the configuration, unchecked; it is not changed.
    """
    trainer, task = config.get("trainer"), config.get("task")
    if not isinstance(trainer, Mapping) or not isinstance(task, Mapping) or not _OF_TRAINER.keys() & trainer:
        return config
    known = _task_keys(task.get("_target_"))
    moved = {
        name: trainer.get(name, default)
        for name, default in _OF_TRAINER.items()
        if (name in trainer or name in _ADDED)
        and (name in known if known is not None else trainer.get(name, default) != default)
    }
    kept = {name: value for name, value in trainer.items() if name not in _OF_TRAINER}
    return config | {"trainer": kept, "task": moved | dict(task)}


def _task_keys(target: object) -> set[str] | None:
    """Return the keys of the YAML file of a task, by its class; None for a task that has no file here."""
    if target is None:
        return None
    for folder in conf_folders():
        for path in sorted((folder / "task").glob("*.yaml")):
            keys = file_keys("task", path.stem)
            if target in (keys.get("_target_"), keys.get("task._target_")):
                return {key.removeprefix("task.") for key in keys}
    return None


def recorded_form(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the keys of earlier versions, as they recorded it.

    Args:
        config: the plain configuration.
    """
    trainer, task = config.get("trainer"), config.get("task")
    if trainer is None or task is None:
        return dict(config)
    moved = {name: task.get(name, default) for name, default in _OF_TRAINER.items()}
    for name in _ADDED:
        if moved[name] == _OF_TRAINER[name]:
            del moved[name]
    own = {name: value for name, value in task.items() if name not in _OF_TRAINER}
    return {**config, "trainer": {**trainer, **moved}, "task": own}


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


def may_change(key: str) -> bool:
    """Return whether a setting, by its current or its earlier key, may change when a run is resumed."""
    return RENAMED.get(key, key) in MAY_CHANGE
