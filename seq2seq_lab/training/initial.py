"""The first weights of a run, and the vocabulary that they need: `init_from=RUN init_part=NAME`."""

from pathlib import Path

from torch import nn

from seq2seq_lab.config.inheritance import TABLES
from seq2seq_lab.config.schema import Config
from seq2seq_lab.data.tokenizers import Tokenizer, load_tokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import sha256
from seq2seq_lab.tasks.base import Task
from seq2seq_lab.tasks.overlap import read_hashes
from seq2seq_lab.tasks.text import CLASSES
from seq2seq_lab.training import checkpoint

# The files that a run may have for the vocabulary of a side, without `.json`; that of a joint vocabulary is the last one.
CLASSES_FILE = CLASSES.removesuffix(".json")
FILES = {"source": ("source",), "target": ("target", "sentences", "source")}


def use_vocabulary(config: Config, task: Task) -> Path | None:
    """Let a new run use the vocabularies that its first weights need.

    Returns:
        The `saved` of `Task.load`: the run whose whole model is copied, else None.
    """
    if config.init_from is None:
        return None
    if config.init_part is None:
        return Path(config.init_from)
    task.initial_tokenizers = saved_tokenizers(config)
    task.pretraining_texts = read_hashes(Path(config.init_from))
    return None


def saved_tokenizers(config: Config) -> dict[str, Tokenizer]:
    """Return the tokenizers of the run `init_from` by side, `source` or `target`, whose tables are copied.

    Those of a run that joins several texts in one sequence are the tokenizers of one text.

    Raises:
        UserError: a file is damaged.
    """
    folder = Path(str(config.init_from)) / "tokenizer"
    names = {side: _file(folder, side) for side in _sides(config)}
    return {
        side: load_tokenizer(folder, name).of_one_text
        for side, name in names.items()
        if name not in (None, CLASSES_FILE)
    }


def load_initial_weights(config: Config, task: Task, model: nn.Module, folder: Path) -> None:
    """Load the weights of files, and of the run `init_from`, into the model of a new run.

    Args:
        folder: the folder of the new run, with its vocabulary.

    Raises:
        UserError: the weights or the vocabulary do not match.
    """
    origin, parts = config.init_from, config.init_part
    if origin is None or parts is not None:
        task.load_pretrained(model)
    if origin is not None:
        best = checkpoint.best(Path(origin) / "checkpoints")
        if parts is None:
            checkpoint.load_weights(best, model)
        else:
            checkpoint.check_parts(model.state_dict(), parts, "this model")
            check_vocabulary(config, folder)
            checkpoint.copy_parts(best, model, parts)


def check_vocabulary(config: Config, folder: Path) -> None:
    """Check that a new run has saved the vocabularies of the tables that it copies.

    Args:
        folder: the folder of the new run.

    Raises:
        UserError: its vocabulary or its classes are others.
    """
    before, now = Path(str(config.init_from)) / "tokenizer", folder / "tokenizer"
    for side in _sides(config):
        files = [_file(one, side) for one in (before, now)]
        paths = [one / f"{file}.json" for one, file in zip((before, now), files, strict=True)]
        if any(files) and (not all(files) or sha256(paths[0]) != sha256(paths[1])):
            tables = " and ".join(name for name, of in TABLES.items() if of == side)
            raise UserError(
                f"init_from={config.init_from} init_part={','.join(config.init_part)}: the {side} vocabulary of the run "
                f"differs from the one here, so its table cannot be copied. Leave {tables} out of init_part."
            )


def _sides(config: Config) -> list[str]:
    names = {part.partition(".")[0] for part in config.init_part or ()}
    return sorted({TABLES[name] for name in names if name in TABLES})


def _file(folder: Path, side: str) -> str | None:
    """Return the name of the file of a side in a folder of tokenizers; None if it has none."""
    if side == "target" and (folder / CLASSES).is_file():
        return CLASSES_FILE  # what a classifier puts out
    return next((name for name in FILES[side] if (folder / f"{name}.json").is_file()), None)
