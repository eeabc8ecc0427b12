"""`init_from=RUN`: check that a new run can start from the weights and the vocabulary of another run."""

from pathlib import Path

import torch

from seq2seq_lab.config import foreign
from seq2seq_lab.config.inheritance import SECTIONS, describe_differences
from seq2seq_lab.config.schema import Config
from seq2seq_lab.errors import UserError
from seq2seq_lab.tasks.parts import build_task
from seq2seq_lab.training import checkpoint


def check(config: Config) -> None:
    """Refuse a run whose model or vocabulary is not that of the run that `init_from` names. No data is read.

    Raises:
        UserError: names the settings that differ, or the folder contains no run or no checkpoint.
    """
    if config.init_from is None:
        return
    folder = Path(config.init_from)
    if not (folder / "config.yaml").is_file():
        raise UserError(
            f"init_from={folder} contains no run (no config.yaml). Give the folder of a run, such as outputs/DATE/TIME."
        )
    task = build_task(config)
    saved = foreign.load_config(folder / "config.yaml")
    differences = describe_differences(saved, config, [name for name in SECTIONS if name != "initialization"])
    remedy = (
        f" Settings that differ: {differences}. Leave them out, or train without init_from."
        if differences
        else ""
    )
    try:
        weights = checkpoint.best(folder / "checkpoints")
        task.open(folder)
    except UserError as error:
        raise UserError(f"init_from={folder}: {error}{remedy}") from error
    with torch.device("meta"):
        model = task.model()
    if (mismatch := checkpoint.mismatch(weights, model)) is not None:
        raise UserError(f"init_from={folder}: its weights do not match this model ({mismatch}).{remedy}")
