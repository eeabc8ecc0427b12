"""The slot of the logger."""

from pathlib import Path
from typing import Any

from seq2seq_lab.config.schema import Config
from seq2seq_lab.config.slots import Kind, part
from seq2seq_lab.tracking.base import Logger

KINDS = {"logger": Kind(Logger, frozenset({"folder", "config", "flat", "run_id"}))}


def build_logger(
    config: Config, folder: Path, plain: dict[str, Any], flat: dict[str, object], run_id: str | None
) -> Logger:
    """Return the logger; the arguments are those of `seq2seq_lab.tracking.base.Logger`."""
    return part("logger", config.logger, KINDS)(folder=folder, config=plain, flat=flat, run_id=run_id)
