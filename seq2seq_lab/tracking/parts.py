"""The slot of the logger."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2seq_lab.config.job_hash import computing_lines
from seq2seq_lab.config.schema import Config
from seq2seq_lab.config.secrets import mask_secrets
from seq2seq_lab.config.slots import Kind, part
from seq2seq_lab.tracking.base import Logger

NAME_LENGTH = 100  # letters; W&B allows 128

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
    settings = named(config.logger, overrides)
    return part("logger", settings, KINDS)(folder=folder, config=plain, flat=flat, run_id=run_id)


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
    without_seed = [line for line in lines if not line.startswith("seed=")]
    texts = {"name": " ".join(lines), "group": " ".join(without_seed)}
    return {
        **logger,
        **{
            key: (text or "defaults")[:NAME_LENGTH]
            for key, text in texts.items()
            if key in logger and not logger[key]
        },
    }
