"""The task of a configuration, and the slots of its parts."""

from collections.abc import Iterable, Set
from functools import partial
from pathlib import Path
from typing import Any

from seq2seq_lab.config.inheritance import GROUPS
from seq2seq_lab.config.schema import TASK_GROUPS, Config, MonitorMode, TiedEmbeddings
from seq2seq_lab.config.slots import Kind, Part, check_slot, locate, part
from seq2seq_lab.data.corpus import Dataset
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.data.tokenizers.copying import CopyingTokenizer
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.metrics.base import Declarations, Metric
from seq2seq_lab.models import parts as model_parts
from seq2seq_lab.models.classifier import build_classifier, build_tagger
from seq2seq_lab.models.encoders.base import Encoder
from seq2seq_lab.models.language_model import build_language_model
from seq2seq_lab.models.masked_language_model import build_masked_language_model
from seq2seq_lab.models.seq2seq import build_seq2seq, source_types
from seq2seq_lab.models.span import build_span_model
from seq2seq_lab.search.base import Search
from seq2seq_lab.tasks.base import Parts, Task
from seq2seq_lab.tasks.translation.teacher_forcing import TeacherForcing

KINDS = {
    "task": Kind(Task, frozenset({"parts", "seed"})),
    **model_parts.KINDS,
    "dataset": Kind(Dataset),
    "tokenizer": Kind(Tokenizer),
    "teacher_forcing": Kind(TeacherForcing),
    "search": Kind(Search),
    "metric": Kind(Metric),
}


def check_metrics(config: Config) -> None:
    """Check the slots of the metrics; see `check_slots`."""
    for name, slot in config.metric.items():
        if not isinstance(slot, dict):
            raise UserError(
                f"metric.{name}={slot} is not a metric. Write `# @package metric.NAME` in the first line of its YAML file."
            )
        check_slot(f"metric.{name}", slot, KINDS)


def check_uses(task: type[Task]) -> None:
    """Check that `uses` of a task is a set of config groups.

    Raises:
        UserError: names the task, the value and the groups.
    """
    uses = getattr(task, "uses", None)
    if not isinstance(uses, Set):
        raise UserError(
            f"{task.__name__}: uses={uses!r} is not a set of config groups. Set it, for example to "
            f'frozenset({{"encoder", "initialization"}}). Groups: {", ".join(TASK_GROUPS)}.'
        )
    for group in uses:
        if group not in TASK_GROUPS:
            raise UserError(
                f"{task.__name__}: uses contains {group!r}, which is not a config group of a task."
                f"{did_you_mean(str(group), TASK_GROUPS)} Groups: {', '.join(TASK_GROUPS)}."
            )


def check_task(task: Task) -> None:
    """Check that `metrics` of a task are metrics, and that `primary` and `default_monitor` are among them.

    Raises:
        UserError: names the task, the attribute and its value.
    """
    where, metrics = type(task).__name__, getattr(task, "metrics", None)
    if not isinstance(metrics, list | tuple):
        raise UserError(
            f"{where}: metrics={metrics!r} is not a sequence. Set it to metrics, such as (MyMetric(),)."
        )
    for metric in metrics:
        if not isinstance(metric, Metric):
            raise UserError(
                f"{where}: metrics contains {metric!r}, which is not an instance of Metric. Call the class: MyMetric()."
            )
    names = [getattr(metric, "name", None) for metric in metrics]
    primary = getattr(task, "primary", None)
    for attribute, value in (("primary", primary), ("default_monitor", task.default_monitor or primary)):
        if value not in names:
            raise UserError(
                f"{where}: {attribute}={value} is not the name of a metric.{did_you_mean(str(value), map(str, names))} "
                f"Names: {', '.join(map(str, names))}."
            )


def check_groups(config: Config, groups: Iterable[str] = TASK_GROUPS) -> None:
    """Check that the groups of parts that the task uses have a value, and that the others have none; check the encoder.

    Args:
        groups: the groups to check.

    Raises:
        UserError: names the group and the task.
    """
    task = config.task["_target_"].rpartition(".")[2]
    target: type[Task] = locate("task", config.task, KINDS)
    check_uses(target)
    used = target.uses
    for group in groups:
        slot = getattr(config, group)
        inherited = config.init_from is not None and config.init_part is None and group in GROUPS
        if inherited and (slot is None) is (group in used):
            parts = "source_embedding,encoder" if "encoder" in used else "target_embedding,decoder.layers"
            needs = f"needs {group}, which this run lacks"
            differs = needs if slot is None else f"does not use {group}, which this run has"
            raise UserError(
                f"init_from={config.init_from}: {task} {differs}. Name the parts of its model to start from, such as "
                f"init_part=[{parts}]."
            )
        if slot is None and group in used:
            raise UserError(
                f"{group}=null is not allowed: {task} uses this group. Choose a value, {group}=VALUE."
            )
        if slot is not None and group not in used:
            if group in (config.init_part or ()):
                raise UserError(f"init_part={group} is not a part of the model of {task}. Leave it out.")
            raise UserError(
                f"{group}={slot.get('_target_')} is not allowed: {task} does not use this group. "
                f"{target.replacement(group, slot)}"
            )
    if config.encoder is not None:
        encoder: type[Encoder] = locate("encoder", config.encoder, KINDS)
        if encoder.source not in target.sources:
            raise UserError(
                f"encoder._target_={config.encoder['_target_']} encodes {encoder.source}, and the source of {task} is "
                f"{' or '.join(target.sources)}. Choose another encoder, or another task."
            )


def build_parts(config: Config) -> Parts:
    """Return the constructors of the parts that a task uses."""
    return Parts(
        **{
            group: part(group, getattr(config, group), KINDS) for group in TASK_GROUPS if group != "tokenizer"
        },
        tokenizer=build_tokenizer(config),
        seq2seq=partial(build_seq2seq, config),
        language_model=partial(build_language_model, config),
        classifier=partial(build_classifier, config),
        tagger=partial(build_tagger, config),
        masked_language_model=partial(build_masked_language_model, config),
        span_model=partial(build_span_model, config),
        source_tokenizer=partial(source_tokenizer, config),
        source_types=0 if config.readout is None else source_types(config),
        vectors={side: table.path and Path(table.path) for side, table in vars(config.embedding).items()},
    )


def build_task(config: Config) -> Task:
    """Return the task of a run."""
    built: Task = part("task", config.task, KINDS)(parts=build_parts(config), seed=config.seed)
    check_task(built)
    built.monitor = config.trainer.monitor
    built.metrics = (*built.metrics, *build_metrics(config))
    return built


def data_record(config: Config) -> dict[str, Any]:
    """Read the data of a run and return the entries of `run.json` for them."""
    return build_task(config).data_record()


def monitored(config: Config, task: Task) -> Metric:
    """Return the metric of `trainer.monitor`; null is the task's `default_monitor`.

    Raises:
        UserError: the task has no such metric, or its best value is not known.
    """
    metrics = {f"val/{metric.name}": metric for metric in task.metrics}
    default = f"val/{task.default_monitor or task.primary}"
    monitor = config.trainer.monitor or default
    if monitor not in metrics:
        raise UserError(
            f"trainer.monitor={monitor} is not a metric of {type(task).__name__}.{did_you_mean(monitor, metrics)} Values: "
            f"null ({default}), {', '.join(metrics)}."
        )
    if metrics[monitor].higher_is_better is None and config.trainer.monitor_mode is MonitorMode.auto:
        raise UserError(
            f"trainer.monitor={monitor} is not allowed with trainer.monitor_mode=auto: neither a greater nor a smaller "
            f"value is better. Set trainer.monitor_mode=max or min, or choose another metric."
        )
    return metrics[monitor]


def build_dataset(config: Config) -> Dataset:
    """Return the data set, not yet loaded."""
    return part("dataset", config.dataset, KINDS)()


def build_tokenizer(config: Config) -> Part:
    """Return the constructor of an untrained tokenizer: a `CopyingTokenizer` for a readout that copies unknown words."""
    tokenizer = part("tokenizer", config.tokenizer, KINDS)
    if config.readout is None or not (count := source_types(config)):
        return tokenizer
    settings = {**tokenizer.settings, "copied_words": count}
    return Part("tokenizer", lambda: CopyingTokenizer.of(tokenizer(), count), settings)


def source_tokenizer(config: Config, framed: bool) -> Tokenizer | None:
    """Return the tokenizer of the source, if it is not that of the target.

    An encoder may have its own (`Encoder.tokenizer`), and in a task of pairs the tokenizer another one for the source
    (`Tokenizer.of_source`).

    Args:
        framed: see `Encoder.tokenizer`; true for the task of one text.
    """
    if config.encoder is not None:
        kind: type[Encoder] = locate("encoder", config.encoder, KINDS)
        if (own := kind.tokenizer(config.encoder, framed)) is not None:
            return own
    return None if framed or config.tokenizer is None else build_tokenizer(config)().of_source()


def build_search(config: Config) -> Search:
    """Return the search that validation and test use."""
    return part("search", config.search, KINDS)()


def build_metrics(config: Config) -> list[Metric]:
    """Return the metrics that the configuration adds to those of the task.

    Raises:
        UserError: as `check_slots`.
    """
    check_metrics(config)
    return [part(f"metric.{name}", slot, KINDS)() for name, slot in config.metric.items()]


def check_model(config: Config) -> None:
    """Refuse settings of the task that cannot be combined, before any data is read; see `Task.check`."""
    _refuse_unused(config)
    built = build_task(config)
    Declarations.of(built.metrics, built.groupings, built.primary)
    monitored(config, built)
    built.check()


def _refuse_unused(config: Config) -> None:
    """Refuse settings of the model that have no effect on it. A run that has them can still be opened.

    Raises:
        UserError: names the setting and the remedy.
    """
    model, slot = config.model, config.encoder
    if slot is not None and model.reverse_source and "reverse" not in slot:
        raise UserError(
            f"model.reverse_source=true has no effect on encoder={locate('encoder', slot, KINDS).__name__}. Choose "
            f"encoder=rnn, lstm or gru, or set model.reverse_source=false."
        )
    if config.decoder is None and model.share_layers:
        raise UserError(
            "model.share_layers=true has no effect on a model without a decoder. Set model.share_layers=false."
        )
    if config.decoder is None and model.tied_embeddings is TiedEmbeddings.target:
        raise UserError(
            "model.tied_embeddings=target has no effect on a model without a decoder. Set model.tied_embeddings=none."
        )
