"""From the configuration to objects: the only caller of Hydra's `instantiate`.

What a slot of the configuration may say is checked against the annotations of the class it names, before any
data is read; the objects only known at run time are passed on top.
"""

import importlib
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from hydra.utils import instantiate
from torch import nn

from seq2seq_lab.config import SLOTS, Config, ModelConfig, Slot, TiedEmbeddings
from seq2seq_lab.data.corpus import Dataset
from seq2seq_lab.data.tokenizers import PAD, Tokenizer
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.models.decoders.base import Decoder
from seq2seq_lab.models.encoders.base import Encoder
from seq2seq_lab.models.readout import LinearReadout
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.schedules import Schedule
from seq2seq_lab.search.base import Search
from seq2seq_lab.teacher_forcing import TeacherForcing
from seq2seq_lab.tracker.base import Logger

TRUSTED = ("seq2seq_lab.", "torch.optim.")
TRUST_VARIABLE = "SEQ2SEQ_LAB_TRUST"

# What the program passes to a slot's constructor itself; a configuration may not.
RUNTIME: dict[str, frozenset[str]] = {
    "encoder": frozenset({"input_size"}),
    "decoder": frozenset({"input_size", "encoder", "attention"}),
    "attention": frozenset({"query_size", "memory_size"}),
    "optimizer": frozenset({"params"}),
    "logger": frozenset({"folder", "config", "flat", "run_id"}),
}


def check_slots(config: Config) -> None:
    """Check every open slot: its target is trusted, its keys are the constructor's, its values of their types.

    Raises:
        UserError: names the key, the value, what is allowed and the nearest spelling.
    """
    for name in SLOTS:
        check_slot(name, getattr(config, name))


def check_slot(name: str, slot: Slot) -> None:
    """Check one open slot; see `check_slots`."""
    target = locate(name, slot)
    runtime = RUNTIME.get(name, frozenset())
    parameters = inspect.signature(target).parameters
    allowed = [key for key in parameters if key not in runtime]
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    for key, value in slot.items():
        if key == "_target_":
            continue
        if key not in allowed:
            raise UserError(
                f"{name}.{key}={value}: {slot['_target_']} has no such setting.{did_you_mean(key, allowed)} "
                f"Allowed: {', '.join(allowed) or 'none'}."
            )
        if key in hints and not fits(value, hints[key]):
            hint = hints[key]
            near = did_you_mean(str(value), map(str, typing.get_args(hint))) if _is_literal(hint) else ""
            raise UserError(f"{name}.{key}={value} has the wrong type. Allowed: {describe(hint)}.{near}")
    missing = [key for key in allowed if key not in slot and parameters[key].default is inspect.Parameter.empty]
    if missing:
        raise UserError(f"{name}.{missing[0]} is missing: {slot['_target_']} needs {', '.join(missing)}.")


def locate(name: str, slot: Mapping[str, Any]) -> Callable[..., Any]:
    """Return what a slot's `_target_` names, if it is trusted: a configuration that names code is code.

    Raises:
        UserError: the target is not trusted, or there is no such thing.
    """
    path = slot.get("_target_")
    if not isinstance(path, str):
        raise UserError(f"{name}._target_={path} names no class. Choose one of the group's values, {name}=…")
    trusted = TRUSTED + tuple(f"{module}." for module in os.environ.get(TRUST_VARIABLE, "").split(",") if module)
    if not path.startswith(trusted):
        raise UserError(
            f"{name}._target_={path} is refused: a configuration may only name classes of {', '.join(trusted)} and of "
            f"modules you trust. If you do trust it, set {TRUST_VARIABLE}={path.split('.')[0]} in the environment."
        )
    module, _, attribute = path.rpartition(".")
    try:
        target = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{name}._target_={path} cannot be imported: {error}.") from error
    assert callable(target)
    return typing.cast("Callable[..., Any]", target)


def fits(value: object, hint: Any) -> bool:
    """Say whether a plain value of a configuration is of an annotated type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, typing.TypeVar):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, argument) for argument in arguments)
    if origin is Literal:
        return value in arguments and type(value) in {type(argument) for argument in arguments}
    if origin in (list, Sequence) or origin is tuple:
        items = arguments[:1] if origin is not tuple or arguments[-1] is Ellipsis else arguments
        if not isinstance(value, list | tuple) or (len(items) > 1 and len(value) != len(items)):
            return False
        return all(fits(item, items[i % len(items)]) for i, item in enumerate(value)) if items else True
    if origin in (dict, Mapping):
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (bool, str, list, dict, tuple):
        return isinstance(value, hint) or (hint is tuple and isinstance(value, list))
    if hint is None or hint is type(None):
        return value is None
    return False


def describe(hint: Any) -> str:
    """Return an annotated type in words."""
    arguments = typing.get_args(hint)
    if _is_literal(hint):
        return ", ".join(map(str, arguments))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        plain = [describe(argument) for argument in arguments if fits_plain(argument)]
        return " or ".join(plain)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    return names.get(hint, str(hint))


def fits_plain(hint: Any) -> bool:
    """Say whether a value of this type can stand in a configuration at all (a tensor cannot)."""
    return hint in (int, float, bool, str, type(None), list, dict, tuple) or typing.get_origin(hint) is not None


def _is_literal(hint: Any) -> bool:
    return typing.get_origin(hint) is Literal


def part(name: str, slot: Slot) -> Callable[..., Any]:
    """Return a slot's constructor with the slot's arguments bound, to be called with the run-time ones.

    A mistake that the constructor finds in its arguments (a ValueError) is the user's.
    """
    make = instantiate(slot, _partial_=True, _convert_="all")

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return make(*args, **kwargs)
        except UserError:
            raise
        except ValueError as error:
            raise UserError(f"{name}: {error}") from error

    return call


def dataset(config: Config) -> Dataset:
    """Return the data set, not yet loaded."""
    made: Dataset = part("dataset", config.dataset)()
    return made


def tokenizer(config: Config) -> Callable[[], Tokenizer]:
    """Return what makes an untrained tokenizer."""
    return part("tokenizer", config.tokenizer)


def teacher_forcing(config: Config) -> TeacherForcing:
    """Return the teacher-forcing rule."""
    made: TeacherForcing = part("teacher_forcing", config.teacher_forcing)()
    return made


def schedule(config: Config) -> Schedule:
    """Return the learning-rate schedule."""
    made: Schedule = part("schedule", config.schedule)()
    return made


def search(config: Config) -> Search:
    """Return the search that validation and test use."""
    made: Search = part("search", config.search)()
    return made


def optimizer(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer over the model's trainable parameters."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    made: torch.optim.Optimizer = part("optimizer", config.optimizer)(parameters)
    return made


def logger(
    config: Config, folder: Path, plain: dict[str, Any], flat: dict[str, object], run_id: str | None
) -> Logger:
    """Return the logger; `seq2seq_lab.tracker.base.Logger` says what it is built with."""
    made: Logger = part("logger", config.logger)(folder=folder, config=plain, flat=flat, run_id=run_id)
    return made


def model(config: Config, source_vocabulary: int, target_vocabulary: int, joint: bool) -> Seq2Seq:
    """Return the model, its weights drawn from torch's global generator.

    Raises:
        UserError: parts that do not fit together, by name.
    """
    sizes: ModelConfig = config.model
    tied = sizes.tied_embeddings
    if tied is TiedEmbeddings.all and not joint:
        raise UserError(
            "model.tied_embeddings=all makes one table of both sides, which needs one vocabulary. "
            "Set tokenizer.joint=true, or model.tied_embeddings=target."
        )
    target_embedding = embedding(target_vocabulary, sizes.embedding_size)
    source_embedding = (
        target_embedding if tied is TiedEmbeddings.all else embedding(source_vocabulary, sizes.embedding_size)
    )
    encoder: Encoder = part("encoder", config.encoder)(input_size=sizes.embedding_size)
    decoder: Decoder = part("decoder", config.decoder)(
        input_size=sizes.embedding_size, encoder=encoder.sizes, attention=part("attention", config.attention)
    )
    try:
        readout = LinearReadout(
            decoder.feature_size, target_vocabulary, None if tied is TiedEmbeddings.none else target_embedding
        )
    except ValueError as error:
        raise UserError(str(error)) from error
    return Seq2Seq(source_embedding, target_embedding, encoder, decoder, readout, sizes.dropout)


def embedding(vocabulary_size: int, size: int) -> nn.Embedding:
    """Return an embedding table from N(0, 1/E), so that it can serve as output weights too; padding is 0."""
    table = nn.Embedding(vocabulary_size, size, padding_idx=PAD)
    with torch.no_grad():
        nn.init.normal_(table.weight, std=size**-0.5)
        table.weight[PAD].zero_()
    return table


def check_model(config: Config) -> None:
    """Build the model without memory, so that parts that do not fit are refused before any data is read."""
    with torch.device("meta"):
        model(config, source_vocabulary=8, target_vocabulary=8, joint=bool(config.tokenizer.get("joint")))


def check_parts(config: Config) -> None:
    """Make every part that needs no data, so that their constructors' checks come first.

    Raises:
        UserError: what a part refuses.
    """
    check_slots(config)
    dataset(config)
    tokenizer(config)()
    teacher_forcing(config)
    schedule(config)
    search(config)
    part("optimizer", config.optimizer)([nn.Parameter(torch.zeros(1))])
    check_model(config)
