"""The name of a job's folder in a study: a hash of everything that the job computes."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seq2seq_lab.config import hydra_adapter
from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.upgrade import earlier, may_change

RESOLVER = "job_hash"
NOT_COMPUTED = ("study", "logger", "cache_dir")  # sections that do not change the results of a job
# Settings of the trainer section that do not change the results of a job.
RESULT_NEUTRAL = (
    *("start_timeout_seconds", "timeout_seconds", "max_restarts", "keep_checkpoints"),
    *("checkpoint_every_minutes", "profile"),
)
STALE = ".stale-"  # between the hash and a number: a folder of files that were moved out of the job's folder


def computing_lines(overrides: Sequence[str]) -> list[str]:
    """Return the settings of a command line that change what a run computes."""
    sections = (line.lstrip("+~").partition("=")[0].partition(".")[0] for line in overrides)
    return [
        line
        for line, section in zip(overrides, sections, strict=True)
        if section not in (*NOT_COMPUTED, "hydra")
    ]


def compute_job_hash(config: Mapping[str, Any]) -> str:
    """Return the ten hexadecimal digits that name a job's folder.

    Settings that do not change the results have their defaults in the hash, so changing them does not rename the jobs of a
    study. Those that vary between the jobs (`study.varies`) keep their values: each job has its own folder.

    Args:
        config: the plain configuration.
    """
    sections = _computed(config, config["study"].get("varies", ()))
    return hashlib.sha256(json.dumps(_normalize(sections), sort_keys=True).encode()).hexdigest()[:10]


def computed_settings(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that determine what a run computes, as JSON by dotted key, without those of `may_change`.

    Args:
        config: the plain configuration.
    """
    return {
        key: json.dumps(_normalize(value))
        for key, value in configuration.dotted_settings(_computed(config))
        if not may_change(key)
    }


def _computed(config: Mapping[str, Any], varies: Collection[str] = ()) -> dict[str, Any]:
    """Return the sections that determine what a run computes.

    Their form is that of `upgrade.earlier`, so that runs and studies of earlier versions continue. `RESULT_NEUTRAL` settings
    have their defaults.

    Args:
        varies: keys and groups that differ between the jobs of a study. Settings that they change keep their values.
    """
    sections = {key: value for key, value in earlier(config).items() if key not in NOT_COMPUTED}
    if isinstance(dataset := sections.get("dataset"), dict) and "cache_dir" in dataset:
        sections["dataset"] = dataset | {"cache_dir": None}
    if "trainer" in sections and not any(map(_can_set_trainer, varies)):
        replaced = {name for name in RESULT_NEUTRAL if f"trainer.{name}" not in varies}
        defaults = configuration.trainer_defaults()
        sections["trainer"] = {
            name: defaults[name] if name in replaced else value for name, value in sections["trainer"].items()
        }
    return sections


def _can_set_trainer(key: str) -> bool:
    """Return whether a key is a group whose files can contain settings of the trainer section, such as `experiment`."""
    names = configuration.Config.__annotations__.keys() - {"trainer", "study"}
    return "." not in key and key not in names


def _normalize(value: object) -> object:
    """Return a value with whole floats as integers: 1 and 1.0 are the same setting."""
    if isinstance(value, Mapping):
        return {key: _normalize(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_normalize(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_stale(folder: Path) -> bool:
    """Return whether a folder contains files that a study moved out of a job's folder."""
    return STALE in folder.name


def register_resolver() -> None:
    """Register `${job_hash:}`, which `hydra.sweep.subdir` uses to name a job's folder."""

    def resolve(*, _root_: DictConfig) -> str:
        return compute_job_hash(configuration.plain(without_hydra(_root_)))

    hydra_adapter.register_resolver(RESOLVER, resolve)


def without_hydra(node: DictConfig) -> DictConfig:
    """Return a configuration without Hydra's own section."""
    return OmegaConf.masked_copy(node, [str(key) for key in node if key != "hydra"])
