"""`init_from=RUN`: check that a new run can start from the weights and the vocabulary of another run."""

from pathlib import Path

import torch

from seq2seq_lab.config import foreign
from seq2seq_lab.config.inheritance import SECTIONS, TABLES, describe_differences
from seq2seq_lab.config.schema import Config
from seq2seq_lab.errors import UserError
from seq2seq_lab.tasks.parts import build_task, build_tokenizer, source_tokenizer
from seq2seq_lab.training import checkpoint
from seq2seq_lab.training.initial import saved_tokenizers


def check(config: Config) -> None:
    """Refuse a run whose model or vocabulary is not that of the run that `init_from` names. No data is read.

    Raises:
        UserError: names the settings that differ, or the folder contains no run or no checkpoint.
    """
    parts = config.init_part
    if config.init_from is None:
        if parts is not None:
            raise UserError(
                f"init_part={','.join(parts)} needs a run. Set init_from=RUN, or leave init_part out."
            )
        return
    folder = Path(config.init_from)
    if not (folder / "config.yaml").is_file():
        raise UserError(
            f"init_from={folder} contains no run (no config.yaml). Give the folder of a run, such as outputs/DATE/TIME."
        )
    if parts is not None:
        check_parts(config)
        return
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


def check_parts(config: Config) -> None:
    """Refuse parts that the run does not have, and a tokenizer that is not that of the run's vocabulary. No data is read.

    Raises:
        UserError: names the part or the settings.
    """
    folder = Path(str(config.init_from))
    checkpoint.saved_shapes(checkpoint.best(folder / "checkpoints"), config.init_part)
    for side, tokenizer in saved_tokenizers(config).items():
        own = source_tokenizer(config, False) if side == "source" else None
        try:
            (own or build_tokenizer(config)()).check_saved(tokenizer, folder / "tokenizer")
        except UserError as error:
            given = f"init_from={folder} init_part={','.join(config.init_part)}"
            tables = " and ".join(name for name, of in TABLES.items() if of == side)
            raise UserError(
                f"{given}: {error} Leave settings of the tokenizer out, or {tables} out of init_part."
            ) from error
