"""From the configuration to objects.

The keys and values of a slot are checked against the annotations of its class before any data is read. Arguments that
are only known at run time are passed in addition.
"""

import copy
import importlib
import inspect
import typing
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seq2seq_lab.config import extensions
from seq2seq_lab.config.schema import (
    SLOTS,
    TASK_GROUPS,
    TASK_SETTINGS,
    Config,
    ModelConfig,
    MonitorMode,
    OptionalSlot,
    Slot,
    TableConfig,
    TiedEmbeddings,
    TrainerConfig,
    ValidateUnit,
    trainer_defaults,
    values_with,
)
from seq2seq_lab.config.trust import TRUST_VARIABLE, trusted_modules
from seq2seq_lab.config.type_checks import fits, wrong_type
from seq2seq_lab.data.corpus import Dataset
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.data.vectors import vector_size
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.metrics.base import Declarations, Metric
from seq2seq_lab.models.attention import BaseAttention, NoAttention
from seq2seq_lab.models.bridge import Bridge
from seq2seq_lab.models.classifier import Classifier
from seq2seq_lab.models.decoders import FixedContextDecoder, TransformerDecoder
from seq2seq_lab.models.decoders.base import Decoder
from seq2seq_lab.models.embedding import Embedding
from seq2seq_lab.models.encoders.base import NO_SOURCE, Encoder
from seq2seq_lab.models.encoders.hierarchical import HierarchicalEncoder
from seq2seq_lab.models.encoders.pretrained import PretrainedEncoder
from seq2seq_lab.models.initialization import Initialization
from seq2seq_lab.models.language_model import LanguageModel
from seq2seq_lab.models.pooling import Pooling
from seq2seq_lab.models.readouts import Readout
from seq2seq_lab.models.recurrent import RecurrentLayers, RecurrentSpec
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.models.transformer import TransformerSpec
from seq2seq_lab.search.base import Search
from seq2seq_lab.tasks.base import Part, Parts, Task
from seq2seq_lab.tasks.translation.teacher_forcing import TeacherForcing
from seq2seq_lab.tracking.base import Logger
from seq2seq_lab.training.schedules import Schedule
from seq2seq_lab.training.trainer import TrainerSettings

TRUSTED = ("seq2seq_lab.", "torch.optim.")

# The required type of each slot's class: a base class, or a protocol whose methods the class implements.
KINDS: dict[str, type] = {
    "task": Task,
    "encoder": Encoder,
    "decoder": Decoder,
    "attention": BaseAttention,
    "pooling": Pooling,
    "readout": Readout,
    "initialization": Initialization,
    "dataset": Dataset,
    "tokenizer": Tokenizer,
    "teacher_forcing": TeacherForcing,
    "optimizer": torch.optim.Optimizer,
    "schedule": Schedule,
    "search": Search,
    "metric": Metric,
    "logger": Logger,
}

NOT_ONE_NETWORK = (
    "model.share_layers=true requires that encoder and decoder have the same cell, size and number of layers, in one "
    "direction. Choose encoder=rnn, lstm or gru with model.encoder_hidden_size equal to model.hidden_size and "
    "decoder=plain or luong (model=shared does), or set model.share_layers=false."
)

# The arguments that the program passes to a slot's constructor; a configuration must not set them.
RUNTIME: dict[str, frozenset[str]] = {
    "task": frozenset({"parts", "seed"}),
    "encoder": frozenset({"input_size"}),
    "decoder": frozenset({"input_size", "encoder", "attention"}),
    "attention": frozenset({"query_size", "encoder_output_size"}),
    "pooling": frozenset({"input_size", "encoder", "attention"}),
    "readout": frozenset({"feature_size", "vocabulary_size", "table"}),
    "optimizer": frozenset({"params"}),
    "logger": frozenset({"folder", "config", "flat", "run_id"}),
}

# Dataclasses of settings: a constructor that takes one has its fields as settings.
SPECS = (RecurrentSpec, TransformerSpec)

# *args and **kwargs are not settings.
GATHERING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

# Keys that are instructions in Hydra's configurations.
INSTRUCTIONS = frozenset({"_target_", "_args_", "_partial_", "_recursive_", "_convert_"})


def check_slots(config: Config) -> None:
    """Check that each open slot has a trusted target and that its settings are arguments of the constructor, of its types.

    Raises:
        UserError: names the key, the value, what is allowed and the nearest spelling.
    """
    check_slot("task", config.task)
    check_groups(config)
    check_trainer(config)
    for name in SLOTS:
        if (slot := getattr(config, name)) is not None and name != "task":
            check_slot(name, slot)
    check_metrics(config)


def check_metrics(config: Config) -> None:
    """Check the slots of the metrics; see `check_slots`."""
    for name, slot in config.metric.items():
        if not isinstance(slot, dict):
            raise UserError(
                f"metric.{name}={slot} is not a metric. Write `# @package metric.NAME` in the first line of its YAML file."
            )
        check_slot(f"metric.{name}", slot)


def check_groups(config: Config) -> None:
    """Check that the groups of parts that the task uses have a value, and that the others have none.

    Raises:
        UserError: names the group and the task.
    """
    task = config.task["_target_"].rpartition(".")[2]
    target: type[Task] = locate("task", config.task)
    used = target.uses
    for group in TASK_GROUPS:
        slot = getattr(config, group)
        if slot is None and group in used:
            raise UserError(
                f"{group}=null is not allowed: {task} uses this group. Choose a value, {group}=VALUE."
            )
        if slot is not None and group not in used:
            raise UserError(
                f"{group}={slot.get('_target_')} is not allowed: {task} does not use this group. "
                f"{target.replacement(group, slot)}"
            )


def check_trainer(config: Config) -> None:
    """Check that the settings of the trainer that the task does not use have their default values.

    Raises:
        UserError: names the setting and the task.
    """
    target: type[Task] = locate("task", config.task)
    defaults, settings = trainer_defaults(), trainer_values(config.trainer)
    for name in TASK_SETTINGS:
        if name not in target.settings and settings[name] != defaults[name]:
            used = [f"trainer.{one}" for one in target.settings]
            raise UserError(
                f"trainer.{name}={settings[name]} is not allowed: {target.__name__} does not use this setting. Leave "
                f"it out. Used: {', '.join(used) or 'none'}, and the settings that do not depend on the task."
            )


def trainer_values(trainer: TrainerConfig) -> dict[str, Any]:
    """Return the settings of the trainer as plain values."""
    return {name: value.value if isinstance(value, Enum) else value for name, value in vars(trainer).items()}


def check_slot(name: str, slot: Slot) -> None:
    """Check one open slot; see `check_slots`."""
    target = locate(name, slot)
    settings = {key: value for key, value in slot.items() if key != "_target_"}
    refuse_instructions(name, settings)
    parameters = constructor_parameters(target)
    runtime = RUNTIME.get(name, frozenset())
    if issubclass(target, Task):
        runtime |= set(target.settings)
    gathering = [key for key, parameter in parameters.items() if parameter.kind in GATHERING]
    if not gathering and not runtime <= parameters.keys():
        raise UserError(
            f"{name}._target_={slot['_target_']}{place(target)}: the constructor must accept "
            f"{', '.join(sorted(runtime))}, which the program passes in addition to the slot's settings."
        )
    allowed = [key for key in parameters if key not in runtime and key not in gathering]
    hints = {key: parameter.annotation for key, parameter in parameters.items()}
    for key, value in settings.items():
        if key not in allowed:
            raise UserError(
                f"{name}.{key}={value}: {slot['_target_']} has no such setting.{did_you_mean(key, allowed)} "
                f"Allowed: {', '.join(allowed) or 'none'}."
            )
        if not fits(value, hints[key]):
            others = values_with(name, key, (str, type(None))) if isinstance(value, str) else []
            remedy = f" It may be meant for {name}={others[0]}." if others else ""
            raise UserError(wrong_type(f"{name}.{key}={value}", value, hints[key]) + remedy)
    missing = [
        key for key in allowed if key not in slot and parameters[key].default is inspect.Parameter.empty
    ]
    if missing:
        raise UserError(f"{name}.{missing[0]} is missing: {slot['_target_']} needs {', '.join(missing)}.")


def refuse_instructions(path: str, value: object) -> None:
    """Refuse `_target_` and other instructions of Hydra below the slot itself: only the slot's class is called."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in INSTRUCTIONS:
                raise UserError(
                    f"{path}.{key}={item} is refused: a slot names one class, by its own _target_, and "
                    f"otherwise contains plain values. Leave {key} out."
                )
            refuse_instructions(f"{path}.{key}", item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            refuse_instructions(f"{path}[{number}]", item)


def constructor_parameters(target: type) -> dict[str, inspect.Parameter]:
    """Return the parameters of a constructor by name, with a dataclass of `SPECS` replaced by its fields."""
    hints = annotations(target)
    found: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if (spec := hints.get(name)) in SPECS:
            found |= constructor_parameters(spec)
        else:
            found[name] = parameter.replace(annotation=hints.get(name, Any))
    return found


def annotations(target: type) -> dict[str, Any]:
    """Return the annotated types of a constructor's arguments, by name."""
    try:
        return typing.get_type_hints(target.__init__)  # type: ignore[misc]  # the constructor of this very class
    except NameError:
        # A library may annotate with names that only type checkers import; its constructor then checks the values.
        return {}


def locate(name: str, slot: Slot) -> type:
    """Return the class that a slot's `_target_` names, if its module is trusted.

    Raises:
        UserError: the target is not trusted, does not exist, or is not a class for this slot.
    """
    path = slot.get("_target_")
    if not isinstance(path, str):
        raise UserError(f"{name}._target_={path} names no class. Choose one of the group's values, {name}=…")
    module, _, attribute = path.rpartition(".")
    file = extensions.file_of(module)
    if file is None and not path.startswith((*TRUSTED, *trusted_modules())):
        raise refusal(name, path, module)
    try:
        home = importlib.import_module(module) if file is None else extensions.load(module)
    except (ImportError, UserError) as error:
        raise UserError(f"{name}._target_={path} cannot be imported: {error}") from error
    if not hasattr(home, attribute):
        near = did_you_mean(attribute, [key for key, value in vars(home).items() if inspect.isclass(value)])
        raise UserError(
            f"{name}._target_={path} cannot be imported: {file or module} has no {attribute}.{near}"
        )
    target = getattr(home, attribute)
    kind = KINDS[name.partition(".")[0]]
    lacking: list[str] = []
    if inspect.isclass(target):
        # A trusted module may import classes that are not trusted.
        origin = target.__module__
        if extensions.file_of(origin) is None and not f"{origin}.".startswith((*TRUSTED, *trusted_modules())):
            raise refusal(name, path, origin)
        lacking = sorted(missing_methods(target, kind))
        if (is_protocol(kind) or issubclass(target, kind)) and not lacking:
            return target
    methods = f" It lacks {', '.join(lacking)}." if lacking else ""
    raise UserError(
        f"{name}._target_={path} is not a class for {name}{place(target)}.{methods} "
        f"Allowed: classes that are a {kind.__module__}.{kind.__name__}."
    )


def refusal(name: str, path: str, module: str) -> UserError:
    """Return the error for a class whose module is not trusted."""
    return UserError(
        f"{name}._target_={path} is refused: a configuration may only name classes of "
        f"{', '.join((*TRUSTED, *trusted_modules()))} and of modules you trust. {extensions.hint(module)} "
        f"If it is an installed package that you trust, set {TRUST_VARIABLE}={module.split('.')[0]} in the environment."
    )


def place(target: object) -> str:
    """Return " (FILE, line N)" for a class or function of a custom component, otherwise an empty string."""
    if not (inspect.isclass(target) or inspect.isfunction(target)):
        return ""
    file = extensions.file_of(target.__module__)
    return f" ({file}, line {inspect.getsourcelines(target)[1]})" if file else ""


def missing_methods(target: type, kind: type) -> set[str]:
    """Return the methods of a kind that a class does not implement."""
    if not is_protocol(kind):
        return set(getattr(target, "__abstractmethods__", ()))
    methods = {
        name
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and (name == "__call__" or not name.startswith("_"))
    }
    return {method for method in methods if not any(method in vars(base) for base in target.__mro__)}


def is_protocol(kind: type) -> bool:
    """Return whether a kind is a protocol."""
    return bool(getattr(kind, "_is_protocol", False))


def part(name: str, slot: OptionalSlot) -> Part:
    """Return the constructor of a slot with the slot's settings bound.

    A ValueError of the constructor, or a RuntimeError of torch's constructors, becomes a UserError.
    """
    if slot is None:
        return Part(name, None, {})

    def call(*args: Any, **kwargs: Any) -> Any:
        target = locate(name, slot)  # refuses a class that is not trusted before it is imported
        hints = annotations(target)
        settings = copy.deepcopy({key: value for key, value in slot.items() if key != "_target_"})
        try:
            for key, spec in hints.items():
                if spec in SPECS:
                    kwargs[key] = spec(**{field.name: settings.pop(field.name) for field in fields(spec)})
            return target(*args, **settings, **kwargs)
        except UserError:
            raise
        except (ValueError, RuntimeError) as error:
            text = str(error)
            if not text.startswith(name):
                given = ", ".join(f"{name}.{key}={value}" for key, value in slot.items())
                text = f"{name}: {text.rstrip('.')}. Its settings: {given}."
            raise UserError(text) from error

    return Part(name, call, slot)


def parts(config: Config) -> Parts:
    """Return the constructors of the parts that a task uses."""
    return Parts(
        **{group: part(group, getattr(config, group)) for group in TASK_GROUPS if group != "dataset"},
        dataset=partial(dataset, config),
        seq2seq=partial(model, config),
        language_model=partial(language_model, config),
        classifier=partial(classifier, config),
        source_tokenizer=partial(source_tokenizer, config),
        vectors={side: table.path and Path(table.path) for side, table in vars(config.embedding).items()},
    )


def task(config: Config) -> Task:
    """Return the task of a run."""
    target: type[Task] = locate("task", config.task)
    values = trainer_values(config.trainer)
    settings = {name: values[name] for name in target.settings}
    built: Task = part("task", config.task)(parts=parts(config), seed=config.seed, **settings)
    built.metrics = (*built.metrics, *metrics(config))
    return built


def data_record(config: Config) -> dict[str, Any]:
    """Read the data of a run and return what `run.json` records of it."""
    return task(config).data_record()


def monitored(config: Config, task: Task) -> Metric:
    """Return the metric of `trainer.monitor`; null is the task's `default_monitor`.

    Raises:
        UserError: the task has no such metric.
    """
    metrics = {f"val/{metric.name}": metric for metric in task.metrics}
    default = f"val/{task.default_monitor or task.primary}"
    monitor = config.trainer.monitor or default
    if monitor not in metrics:
        raise UserError(
            f"trainer.monitor={monitor} is not a metric of {type(task).__name__}.{did_you_mean(monitor, metrics)} Values: "
            f"null ({default}), {', '.join(metrics)}."
        )
    return metrics[monitor]


def trainer_settings(config: Config, task: Task) -> TrainerSettings:
    """Return the settings of the trainer."""
    trainer, metric = config.trainer, monitored(config, task)
    automatic = trainer.monitor_mode is MonitorMode.auto
    losses = [f"val/{other.name}" for other in task.metrics if other.is_loss and other is not metric]
    names = [field.name for field in fields(TrainerSettings)]
    values = {
        **{name: value for name, value in vars(trainer).items() if name in names},
        "monitor": f"val/{metric.name}",
        "higher_is_better": metric.higher_is_better if automatic else trainer.monitor_mode is MonitorMode.max,
        "tie_breaker": losses[0] if losses else None,
        "validate_by_epoch": trainer.validate_unit is ValidateUnit.epoch,
    }
    return TrainerSettings(**values)


def dataset(config: Config) -> Dataset:
    """Return the data set, not yet loaded."""
    return part("dataset", config.dataset)()


def tokenizer(config: Config) -> Callable[[], Tokenizer]:
    """Return a function that creates an untrained tokenizer."""
    return part("tokenizer", config.tokenizer)


def source_tokenizer(config: Config, framed: bool) -> Tokenizer | None:
    """Return the tokenizer of an encoder that has its own; see `Encoder.tokenizer`."""
    if config.encoder is None:
        return None
    kind: type[Encoder] = locate("encoder", config.encoder)
    return kind.tokenizer(config.encoder, framed)


def schedule(config: Config) -> Schedule:
    """Return the learning-rate schedule."""
    return part("schedule", config.schedule)()


def search(config: Config) -> Search:
    """Return the search that validation and test use."""
    return part("search", config.search)()


def metrics(config: Config) -> list[Metric]:
    """Return the metrics that the configuration adds to those of the task.

    Raises:
        UserError: as `check_slots`.
    """
    check_metrics(config)
    return [part(f"metric.{name}", slot)() for name, slot in config.metric.items()]


def optimizer(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer over the model's trainable parameters."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    make, encoder = part("optimizer", config.optimizer), getattr(model, "encoder", None)
    if not isinstance(encoder, PretrainedEncoder) or encoder.lr is None:
        return make(parameters)
    pretrained = set(encoder.model.parameters())
    others = [parameter for parameter in parameters if parameter not in pretrained]
    return make([{"params": others}, {"params": [*encoder.model.parameters()], "lr": encoder.lr}])


def logger(
    config: Config, folder: Path, plain: dict[str, Any], flat: dict[str, object], run_id: str | None
) -> Logger:
    """Return the logger; the arguments are those of `seq2seq_lab.tracking.base.Logger`."""
    return part("logger", config.logger)(folder=folder, config=plain, flat=flat, run_id=run_id)


def model(config: Config, source_vocabulary: int | None, target_vocabulary: int, joint: bool) -> Seq2Seq:
    """Return the model, with weights drawn from torch's global generator.

    Args:
        source_vocabulary: None if the source has no tokens.

    Raises:
        UserError: components that cannot be combined, by name.
    """
    sizes: ModelConfig = config.model
    tied = sizes.tied_embeddings
    check_tables(config, joint)
    target_embedding = embedding(config.embedding.target, target_vocabulary, sizes.embedding_size)
    source_embedding = target_embedding if tied is TiedEmbeddings.all else None
    reads_tokens = source_vocabulary is not None and has_source_table(config)
    if source_vocabulary is not None and reads_tokens and source_embedding is None:
        source_embedding = embedding(config.embedding.source, source_vocabulary, sizes.embedding_size)
    encoder_slot, decoder_slot = config.encoder or {}, config.decoder or {}
    if sizes.share_layers and encoder_slot.get("hidden_size") != decoder_slot.get("hidden_size"):
        raise UserError(NOT_ONE_NETWORK)  # before a bridge asks for something else
    encoder: Encoder = part("encoder", config.encoder)(input_size=sizes.embedding_size)
    decoder: Decoder = part("decoder", config.decoder)(
        input_size=sizes.embedding_size, encoder=encoder.sizes, attention=part("attention", config.attention)
    )
    check_turns_are_read(encoder, decoder)
    if sizes.share_layers:
        decoder.layers = shared_layers(encoder, decoder)
    readout: Readout = part("readout", config.readout)(
        feature_size=decoder.feature_size,
        vocabulary_size=target_vocabulary,
        table=None if tied is TiedEmbeddings.none else target_embedding.weight,
    )
    if (encoder.reads == "images") != (source_vocabulary is None):
        raise other_source(config, encoder)
    network = Seq2Seq(
        source_embedding=source_embedding,
        target_embedding=target_embedding,
        encoder=encoder,
        decoder=decoder,
        readout=readout,
        scale=embedding_scale(sizes),
        source_dropout=config.embedding.source.dropout,
        target_dropout=config.embedding.target.dropout,
        locked_dropout=sizes.locked_dropout,
    )
    initialize: Initialization = part("initialization", config.initialization)()
    initialize(network)
    return network


def check_turns_are_read(encoder: Encoder, decoder: Decoder) -> None:
    """Refuse a decoder that reads nothing of the RNN over the turns, whose weights would have no gradients.

    Raises:
        UserError: names the keys and the remedy.
    """
    if not isinstance(encoder, HierarchicalEncoder) or encoder.outputs != "words":
        return
    bridge, reads_final = getattr(decoder, "bridge", None), isinstance(decoder, FixedContextDecoder)
    if isinstance(bridge, Bridge) and bridge.kind in ("mean", "zero") and not reads_final:
        raise UserError(
            f"encoder.outputs=words cannot be combined with model.bridge={bridge.kind}: the decoder reads no state of the "
            f"RNN over the turns, which is not trained. Set model.bridge=tanh, or encoder.outputs=both."
        )
    if isinstance(decoder, TransformerDecoder):
        raise UserError(
            "encoder.outputs=words cannot be combined with decoder=transformer: the decoder reads no state of the RNN over "
            "the turns, which is not trained. Set encoder.outputs=both, or choose a recurrent decoder."
        )


def other_source(config: Config, encoder: Encoder) -> UserError:
    """Return the error for an encoder that reads something other than the task's source."""
    return UserError(
        f"encoder._target_={(config.encoder or {}).get('_target_')} reads {encoder.reads}, and task._target_="
        f"{config.task['_target_']} has another kind of source. Choose another encoder, or another task."
    )


def classifier(config: Config, vocabulary: int, classes: int) -> Classifier:
    """Return the classifier, with weights drawn from torch's global generator.

    Raises:
        UserError: components that cannot be combined, by name.
    """
    sizes, source = config.model, config.embedding.source
    check_tables(config, joint=True)
    encoder: Encoder = part("encoder", config.encoder)(input_size=sizes.embedding_size)
    if encoder.reads not in ("tokens", "subwords"):
        raise other_source(config, encoder)
    size = encoder.embedding_size if isinstance(encoder, PretrainedEncoder) else sizes.embedding_size
    pooling: Pooling = part("pooling", config.pooling)(
        input_size=size, encoder=encoder.sizes, attention=part("attention", config.attention)
    )
    network = Classifier(
        embedding=embedding(source, vocabulary, size) if has_source_table(config) else None,
        encoder=encoder,
        pooling=pooling,
        readout=part("readout", config.readout)(
            feature_size=pooling.feature_size, vocabulary_size=classes, table=None
        ),
        scale=embedding_scale(sizes),
        embedding_dropout=source.dropout,
        locked_dropout=sizes.locked_dropout,
    )
    part("initialization", config.initialization)()(network)
    return network


def language_model(config: Config, vocabulary: int) -> LanguageModel:
    """Return the language model, with weights drawn from torch's global generator. Its embeddings are those of the target.

    Raises:
        UserError: components that cannot be combined, by name.
    """
    sizes, target, source = config.model, config.embedding.target, config.embedding.source
    if source.path or source.frozen:
        raise UserError(
            f"embedding.source={vars(source)} is not allowed: a language model has no source. Set embedding.target instead."
        )
    check_tables(config, joint=True)
    check_no_source(config)
    table = embedding(target, vocabulary, sizes.embedding_size)
    decoder: Decoder = part("decoder", config.decoder)(
        input_size=sizes.embedding_size, encoder=NO_SOURCE, attention=part("attention", config.attention)
    )
    readout: Readout = part("readout", config.readout)(
        feature_size=decoder.feature_size,
        vocabulary_size=vocabulary,
        table=None if sizes.tied_embeddings is TiedEmbeddings.none else table.weight,
    )
    network = LanguageModel(
        embedding=table,
        decoder=decoder,
        readout=readout,
        scale=embedding_scale(sizes),
        embedding_dropout=target.dropout,
        locked_dropout=sizes.locked_dropout,
    )
    part("initialization", config.initialization)()(network)
    return network


def check_no_source(config: Config) -> None:
    """Refuse parts and settings of a decoder that read a source.

    Raises:
        UserError: names the key and the remedy.
    """
    slot, sizes = config.decoder or {}, config.model
    kind: type[Decoder] = locate("decoder", slot)
    attention, bridge = config.attention or {}, slot.get("bridge", "zero")
    attends = locate("attention", attention) is not NoAttention
    for wrong, setting, remedy in (
        (
            kind.needs_source,
            f"decoder._target_={slot.get('_target_')}",
            "decoder=plain, luong or transformer",
        ),
        (attends, f"attention._target_={attention.get('_target_')}", "attention=none"),
        (bridge != "zero", f"decoder.bridge={bridge}", "model.bridge=zero"),
        (
            slot.get("hidden_size", sizes.encoder_hidden_size) != sizes.encoder_hidden_size,
            f"model.encoder_hidden_size={sizes.encoder_hidden_size}",
            f"model.hidden_size={sizes.encoder_hidden_size}",
        ),
        (sizes.reverse_source, "model.reverse_source=true", "model.reverse_source=false"),
        (sizes.share_layers, "model.share_layers=true", "model.share_layers=false"),
    ):
        if wrong:
            raise UserError(f"{setting} is not allowed: a language model has no source. Set {remedy}.")


def has_source_table(config: Config) -> bool:
    """Return whether the source has an embedding table, which an encoder with its own embeddings does not need.

    Raises:
        UserError: such an encoder, and settings of the table.
    """
    kind: type[Encoder] = locate("encoder", config.encoder or {})
    table = config.embedding.source
    if kind.reads == "subwords" and (table.path or table.frozen):
        raise UserError(
            f"embedding.source={vars(table)} is not allowed: {kind.__name__} has its own embeddings. Leave "
            f"embedding.source out."
        )
    return kind.reads != "subwords"


def embedding_scale(sizes: ModelConfig) -> float:
    """Return the factor on the embeddings."""
    return sizes.embedding_size**0.5 if sizes.scale_embeddings else 1.0


def embedding(table: TableConfig, vocabulary_size: int, embedding_size: int) -> Embedding:
    """Return the embedding of one side; the vectors of a file are loaded later."""
    return Embedding(vocabulary_size, table.size, embedding_size, table.frozen)


def check_tables(config: Config, joint: bool) -> None:
    """Refuse embedding tables that cannot be shared, or that would keep random values.

    Raises:
        UserError: names the keys and the remedy.
    """
    tied, source, target = config.model.tied_embeddings, config.embedding.source, config.embedding.target
    if tied is TiedEmbeddings.all and not joint:
        raise UserError(
            "model.tied_embeddings=all requires one vocabulary for both sides. Set tokenizer.joint=true, or "
            "model.tied_embeddings=target."
        )
    usual = (config.model.embedding_size, target.size)
    if tied is TiedEmbeddings.all and (source.path or source.frozen or source.size not in usual):
        raise UserError(
            f"embedding.source={vars(source)} is not allowed: with model.tied_embeddings=all both sides use the target's "
            f"table. Set embedding.target instead, or model.tied_embeddings=target."
        )
    if tied is not TiedEmbeddings.none and (target.frozen or target.size != config.model.embedding_size):
        raise UserError(
            f"embedding.target={vars(target)} is not allowed: with model.tied_embeddings={tied.value} this table is also "
            f"the output weights, which are trained and have size model.embedding_size={config.model.embedding_size}. Set "
            f"embedding.target.size=${{model.embedding_size}} and embedding.target.frozen=false, or "
            f"model.tied_embeddings=none."
        )
    for side, table in vars(config.embedding).items():
        key = f"embedding.{side}"
        if table.frozen and table.path is None and config.init_from is None:
            raise UserError(
                f"{key}.frozen=true requires pretrained vectors. Set {key}.path=FILE, or {key}.frozen=false."
            )
        if table.path is not None and config.init_from is not None:
            raise UserError(
                f"{key}.path={table.path} cannot be combined with init_from={config.init_from}, which loads all embeddings. "
                f"Leave one of them out."
            )


def check_vectors(config: Config) -> None:
    """Refuse files of pretrained vectors whose size is not the table's.

    Raises:
        UserError: the sizes differ, or a file cannot be read.
    """
    for side, table in vars(config.embedding).items():
        key = f"embedding.{side}"
        if table.path is not None and (size := vector_size(Path(table.path), f"{key}.path")) != table.size:
            raise UserError(
                f"{key}.size={table.size}: the vectors of {key}.path={table.path} have {size} numbers. Set "
                f"{key}.size={size} or, if the table is also the output weights, model.embedding_size={size}."
            )


def shared_layers(encoder: Encoder, decoder: Decoder) -> RecurrentLayers:
    """Return the encoder's recurrent layers for use by the decoder.

    Raises:
        UserError: the two differ in cell, size, number, direction or dropout of layers.
    """
    ours, theirs = getattr(encoder, "layers", None), getattr(decoder, "layers", None)
    if not isinstance(ours, RecurrentLayers) or not isinstance(theirs, RecurrentLayers):
        raise UserError(NOT_ONE_NETWORK)
    shapes = [{name: weight.shape for name, weight in one.named_parameters()} for one in (ours, theirs)]
    if shapes[0] != shapes[1]:
        raise UserError(NOT_ONE_NETWORK)
    if str(ours.dropout) != str(theirs.dropout):
        raise UserError(
            f"model.share_layers=true: encoder.dropout={ours.dropout} and decoder.dropout={theirs.dropout} differ. Set "
            f"model.dropout for both."
        )
    return ours


def check_model(config: Config) -> None:
    """Refuse settings of the task that cannot be combined, before any data is read; see `Task.check`."""
    built = task(config)
    Declarations.of(built.metrics, built.groupings, built.primary)
    monitored(config, built)
    built.check()


def check_parts(config: Config) -> None:
    """Check the slots and create every part that needs no data, so that constructors check their arguments early.

    Raises:
        UserError: names the setting and the remedy.
    """
    check_slots(config)
    for group in ("dataset", "tokenizer", "teacher_forcing", "search"):
        if (slot := getattr(config, group)) is not None:
            part(group, slot)()
    schedule(config)
    part("optimizer", config.optimizer)([nn.Parameter(torch.zeros(1))])
    check_model(config)
