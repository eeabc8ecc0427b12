"""The slot of the logger."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2seq_lab.config.job_hash import computing_lines
from seq2seq_lab.config.schema import Config
from seq2seq_lab.config.secrets import mask_secrets
from seq2seq_lab.config.slots import Kind, locate, part
from seq2seq_lab.tracking.base import Logger

NAME_LENGTH = 100  # letters; W&B allows 128
HASH_LENGTH = 8  # hexadecimal digits
SEED = "seed="

KINDS = {"logger": Kind(Logger, frozenset({"folder", "config", "flat", "run_id"}))}


def build_logger(
    config: Config,
    folder: Path,
    *,
    plain: dict[str, Any],
    flat: dict[str, object],
    run_id: str | None,
    overrides: Sequence[str] | None,
) -> Logger:
    """Return the logger; the arguments but the last are those of `seq2seq_lab.tracking.base.Logger`.

    Args:
        overrides: the settings of the command line; None if they are unknown.
    """
    settings = named({**config.logger, **from_environment(config.logger)}, overrides)
    return part("logger", settings, KINDS)(folder=folder, config=plain, flat=flat, run_id=run_id)


def check_logger(config: Config) -> None:
    """Check what the logger of a run needs on this machine, before any data is read.

    Raises:
        UserError: names the key, the value and the remedy.
    """
    locate("logger", config.logger, KINDS).check(config.logger)


def record_data(logger: Logger, dataset: object, record: Mapping[str, Any]) -> None:
    """Record the data set of a run, named by the hash of its examples.

    Args:
        dataset: its settings.
        record: see `TaskData.record`.
    """
    logger.record_data(f"dataset-{record['fingerprint'][:12]}", mask_secrets({"dataset": dataset, **record}))


def named(logger: Mapping[str, Any], overrides: Sequence[str] | None) -> dict[str, Any]:
    """Return the settings of a logger with a name and a group where it has these keys and they are empty.

    The name is the settings of the command line that change what the run computes. The group is the name without the seed,
    so that a logger shows the mean over seeds.
    """
    if overrides is None:
        return dict(logger)
    lines = computing_lines(overrides)
    settings = {"name": lines, "group": [line for line in lines if not line.startswith(SEED)]}
    return {
        **logger,
        **{
            key: short_name(given) or "defaults"
            for key, given in settings.items()
            if key in logger and not logger[key]
        },
    }


def from_environment(logger: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of environment variables for the keys of a logger that are empty; see `Logger.VARIABLES`."""
    variables = locate("logger", dict(logger), KINDS).VARIABLES
    empty = [key for key in variables if key in logger and not logger[key]]
    values = {key: value for key in empty if (value := os.environ.get(variables[key]))}
    return {key: value.split(",") if key == "tags" else value for key, value in values.items()}


def short_name(settings: Sequence[str], length: int = NAME_LENGTH) -> str:
    """Join settings to a text of at most `length` characters.

    In a longer text, a hash of all settings except the seed replaces the end, and the seed follows: other settings have
    another text.
    """
    if len(text := " ".join(settings)) <= length:
        return text
    seed = "".join(f" {line}" for line in settings if line.startswith(SEED))
    rest = " ".join(line for line in settings if not line.startswith(SEED))
    end = f"… {hashlib.sha256(rest.encode()).hexdigest()[:HASH_LENGTH]}{seed}"
    return f"{rest[: length - len(end)]}{end}"
