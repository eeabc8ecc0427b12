"""Settings that had another key in earlier versions: in recorded runs, commands and studies.

A recorded configuration is brought up to date when it is read (`config.foreign`). The hash of a job and the settings that a
checkpoint records keep the earlier keys, so that studies and runs of earlier versions continue.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from seq2seq_lab.config.schema import conf_folders, file_keys

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
