"""`init_from=RUN`: check that a new run can start from the weights and the vocabulary of another run."""

from pathlib import Path

import torch
from omegaconf import OmegaConf

from seq2seq_lab import build
from seq2seq_lab.config.inheritance import SECTIONS, describe_differences
from seq2seq_lab.config.schema import Config
from seq2seq_lab.data.tokenizers import TokenizerPair
from seq2seq_lab.errors import UserError
from seq2seq_lab.training import checkpoint


def check(config: Config) -> None:
    """Refuse a run whose model or tokenizer is not that of the run that `init_from` names. No data is read.

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
    tokenizer = build.tokenizer(config)()
    try:
        weights = checkpoint.best(folder / "checkpoints")
        pair = TokenizerPair.load(folder / "tokenizer")
    except UserError as error:
        raise UserError(f"init_from={folder}: {error}") from error
    saved = OmegaConf.load(folder / "config.yaml")
    if type(pair.source) is not type(tokenizer) or pair.source.options() != tokenizer.options():
        raise UserError(
            f"init_from={folder}: its weights need its tokenizer, and this run has another one: "
            f"{describe_differences(saved, config, ('tokenizer',))}. Leave these settings out, or train without init_from."
        )
    with torch.device("meta"):
        model = build.model(config, pair.source.size, pair.target.size, pair.joint)
    mismatch = checkpoint.mismatch(weights, model)
    if mismatch is not None:
        sections = [name for name in SECTIONS if name not in ("initialization", "tokenizer")]
        raise UserError(
            f"init_from={folder}: its weights do not match this model ({mismatch}). Settings that differ: "
            f"{describe_differences(saved, config, sections)}. Leave these settings out, or train without init_from."
        )
