"""One experiment, from its configuration to its result."""

import gc
import json
import logging
import re
import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import nn

from seq2seq_lab.config import foreign
from seq2seq_lab.config.job_hash import computed_settings
from seq2seq_lab.config.run_folder import RUN_FORMAT, cover, folder_marks, read_finished_result, write_covered
from seq2seq_lab.config.schema import Config, Precision, TrainerConfig, flat_keys
from seq2seq_lab.config.slots import named_components
from seq2seq_lab.data.download import cache_folder
from seq2seq_lab.errors import Preempted, UserError, storage_errors
from seq2seq_lab.files import write_atomically
from seq2seq_lab.metrics.base import Metric
from seq2seq_lab.models.recurrent import report_float32_lstm
from seq2seq_lab.reporting import run_report
from seq2seq_lab.reporting.component_check import check_components
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import (
    check_precision,
    choose_device,
    choose_precision,
    keep_freed_memory,
    limit_primitive_cache,
    reset_peak_memory,
    set_deterministic,
)
from seq2seq_lab.runtime.heartbeat import heartbeat
from seq2seq_lab.runtime.memory import DEVICE, memory_errors
from seq2seq_lab.runtime.ranks import Ranks, has_lost_rank
from seq2seq_lab.runtime.signals import StopSignals
from seq2seq_lab.tasks.base import Task, TaskData
from seq2seq_lab.tasks.evaluation import Counted, SplitEvaluator
from seq2seq_lab.tasks.parts import build_task, monitored
from seq2seq_lab.tracking import FileTracker, Logger, Trackers, logger_errors
from seq2seq_lab.tracking.git import git_diff
from seq2seq_lab.tracking.parts import build_logger, record_data
from seq2seq_lab.training import checkpoint, provenance, threads
from seq2seq_lab.training.guards import require_monitored
from seq2seq_lab.training.initial import load_initial_weights, use_vocabulary
from seq2seq_lab.training.parts import build_optimizer, build_schedule, trainer_settings
from seq2seq_lab.training.profiling import no_profile, step_profile
from seq2seq_lab.training.records import (
    RESULT_FORMAT,
    remove_result,
    resumed_record,
    training_result,
    with_extension,
    write_result,
)
from seq2seq_lab.training.trainer import Trainer

log = logging.getLogger(__name__)

DEV_RUN_EXAMPLES = 16
FEW = 8  # examples with which the monitored metric is checked


@dataclass(frozen=True)
class Job:
    """A run to start or resume.

    Attributes:
        config: the typed configuration.
        plain: the same as nested plain values, the content of `config.yaml`.
        choices: the chosen value of each config group.
        folder: the run folder, which exists and is locked.
        resume: whether to resume from the newest checkpoint in the folder.
        overrides: the settings of the command line, with secrets masked; None if they are unknown.
    """

    config: Config
    plain: dict[str, Any]
    choices: dict[str, str]
    folder: Path
    resume: bool
    overrides: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Origin:
    """The start of a run.

    Attributes:
        record: the `run.json` of a resumed run, whose precision and number of threads it uses; None for a new run.
        checkpoint: the newest valid checkpoint of a resumed run; None for a new run.
    """

    record: Mapping[str, Any] | None
    checkpoint: Path | None


@contextmanager
def recorded(job: Job, ranks: Ranks) -> Iterator[StopSignals]:
    """Record in `run.log` and `result.json` if a run fails or is interrupted; yield the signals that stop it.

    Only rank 0 writes.

    Raises:
        Preempted: a signal has stopped the run; see `runtime.signals`.
    """
    stop = StopSignals(ranks.store)
    named = named_components(job.config, of_others=has_lost_rank)
    with stop.handled():
        try:
            with storage_errors(job.folder), threads.restored_threads(), named:
                yield stop
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            if ranks.main:
                record_end(job.folder, error)
            raise
        if stop.received:  # when the run had ended: a study must not start its next job
            raise Preempted(stop.received)


def record_end(folder: Path, error: BaseException) -> None:
    """Record in `run.log` and `result.json` the error or the interrupt that ended a run.

    A `result.json` of a finished run is kept. Errors are not printed here: the command line prints them. A file
    that cannot be written, for example on a full disk, is left out.
    """
    with suppress(OSError):
        _record_end(folder, error)


def _record_end(folder: Path, error: BaseException) -> None:
    if isinstance(error, KeyboardInterrupt):
        status, by = "interrupted", "Interrupted"
        if isinstance(error, Preempted):
            status, by = "preempted", f"Stopped by {signal.Signals(error.number).name}"
        if checkpoint.any_in(folder / "checkpoints"):
            log.warning("%s. To resume: %s", by, run_report.resume_command(folder))
            text = f"{by}; resume=RUN resumes the run"
        else:
            text = f"{by} before the first checkpoint. Start the run again"
            log.warning("%s.", text)
    else:
        status, text = "failed", f"{type(error).__name__}: {error}"
        trace = error.__cause__ if isinstance(error, UserError) else error
        log.error("The run failed. %s", text, exc_info=trace, extra={"console": False})
    if read_finished_result(folder) is None:
        write_result(folder, {"format": RESULT_FORMAT, "status": status, "error": text})


def collect_garbage() -> None:
    """Enable garbage collection, which the program disables at its start, for new objects only.

    The modules, the data and the model stay until the end of the program, and each complete collection would visit them.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def experiment(job: Job, ranks: Ranks, stop: StopSignals) -> dict[str, Any]:
    """Run one experiment in its folder, from its data to its result; return the content of its `result.json`.

    The configuration has been checked. It is called within `recorded`. Only rank 0 writes.

    Raises:
        UserError: the data or the checkpoint cannot be used.
        Preempted: a signal has stopped the run.
    """
    config, folder = job.config, job.folder
    origin = find_origin(job, ranks)
    compute, test_compute = prepare_machine(config.trainer, ranks, origin)
    task = build_task(config)
    data = read_data(job, task, compute.ranks)
    with named_components(config), memory_errors("the model on the device", None, DEVICE):
        model = initial_model(job, task, compute.ranks).to(compute.device)
    set_threads(job, origin, task=task, model=model, data=data, compute=compute)
    record = start_record(job, origin, data=data, model=model, compute=compute, test_compute=test_compute)
    run_report.describe(model, task, compute)
    if not job.resume and compute.ranks.main:
        check_components(config, task, model, compute)
    monitor = monitored(config, task)
    evaluators = [
        task.evaluator(data.validation, model, compute, also=[monitor.name]),
        *(task.evaluator(split, model, test_compute) for split in data.tests),
    ]
    if not job.resume:
        check_monitor(task, monitor, data.validation, model, compute=compute, stop=stop)
        if config.metric:
            check_added_metrics(task, data.validation, model, compute)
    tracker, logger = Trackers(()), Logger()
    report = run_report.RunReport(task, data, folder, tracker)
    trainer = make_trainer(
        job, origin, task, data, model, report=report, evaluate=evaluators[0], stop=stop, compute=compute
    )
    result = resume(trainer, origin, job)
    if result is None:
        if job.resume:
            record = compute.ranks.broadcast(partial(with_extension, folder, record, trainer))
        with tracking(job, trainer, record, tracker) as logger:
            tracker.declare_metrics(report.declared.directions())
            if compute.ranks.main:
                write_start(job, record, logger.run_id)
            collect_garbage()
            trainer.fit()
            best = trainer.checkpoints.load_best(trainer.state)
            with console.progress_bar("scoring, batches") as counted, stop.evaluation():
                evaluations = [evaluate(final=True, counted=stop.checked(counted)) for evaluate in evaluators]
            result = training_result(trainer, record)
            if compute.ranks.main:
                result |= report.end(evaluations, trainer.state.step)
                write_result(folder, result)
                report.log_result(result, best, logger.run_id)
    if compute.ranks.main:
        run_report.print_result(
            result,
            report.lines,
            commands=task.commands,
            folder=folder,
            sync=logger.sync_command(),
            url=logger.url,
        )
    return result


def check_monitor(
    task: Task, monitor: Metric, validation: Any, model: nn.Module, *, compute: Compute, stop: StopSignals
) -> None:
    """Refuse a monitored metric that the validation split or the model lacks, before training.

    All examples are evaluated if the first ones lack the metric, for example because they have no unknown words.

    Raises:
        UserError: names the metric and those that can be monitored.
    """
    if (
        monitor.name == (task.default_monitor or task.primary)
        or type(monitor).unavailable is Metric.unavailable
    ):
        return
    values: Mapping[str, float] = {}
    for split in (*([validation.first(FEW)] if hasattr(validation, "first") else []), validation):
        evaluate = task.evaluator(split, model, compute, also=[monitor.name])
        with console.progress_bar("checking trainer.monitor, batches") as counted, stop.evaluation():
            values = evaluate(counted=stop.checked(counted)).values
        if f"val/{monitor.name}" in values:
            return
    require_monitored(f"val/{monitor.name}", values)


def check_added_metrics(task: Task, validation: Any, model: nn.Module, compute: Compute) -> None:
    """Refuse a metric of another task before training: compute all metrics for a few examples.

    Raises:
        UserError: names the metric and what it needs.
    """
    if hasattr(validation, "first"):
        names = [metric.name for metric in task.metrics]
        task.evaluator(validation.first(FEW), model, compute, also=names)()


def find_origin(job: Job, ranks: Ranks) -> Origin:
    """Return the record and the checkpoint that a run starts from.

    Raises:
        UserError: a rank does not see the run folder, or a resumed run has no valid record or checkpoint.
    """
    folder = job.folder
    if not all(ranks.gather(folder.is_dir())):
        raise UserError(
            f"{folder} does not exist on every machine of this run. Use a folder on a shared file system: "
            f"hydra.run.dir=FOLDER."
        )
    if not job.resume:
        return Origin(None, None)
    record = foreign.read_opened_record(folder)
    return Origin(record, ranks.broadcast(lambda: find_checkpoint(folder / "checkpoints")))


def find_checkpoint(folder: Path) -> Path:
    """Return the newest valid checkpoint of a run that is resumed. The run folder must be locked."""
    checkpoint.restore_moved(folder)
    return checkpoint.newest(folder)


def resume(trainer: Trainer, origin: Origin, job: Job) -> dict[str, Any] | None:
    """Load the checkpoint that a run starts from; return its result if it has finished and need not be trained longer."""
    if origin.checkpoint is None or origin.record is None:
        return None
    trainer.load(origin.checkpoint, provenance.changed_components(origin.record, job.config))
    result = read_finished_result(job.folder)
    trainer.compute.ranks.barrier()  # all ranks have read checkpoint and result, which rank 0 may replace
    if result is not None and trainer.done:
        if trainer.state.step < trainer.total:
            patience = trainer.settings.patience
            log.info(
                "The training is complete: trainer.patience=%s ended it. Set a greater value, or null.",
                patience,
            )
        else:
            key = "max_steps" if trainer.total == trainer.settings.max_steps else "max_epochs"
            log.info("The training is complete. To train a finished run longer, set trainer.%s=N.", key)
        return result
    if trainer.state.best != origin.checkpoint.name:  # which has just been checked
        trainer.checkpoints.replace_lost_best(trainer.state)
    return None


def prepare_machine(settings: TrainerConfig, ranks: Ranks, origin: Origin) -> tuple[Compute, Compute]:
    """Set up this process and return its device and precision, for training and validation and for the test sets.

    A resumed run computes with the recorded precision, where the setting is `auto`.
    """
    record = origin.record
    limit_primitive_cache()
    if isinstance(settings.threads, int):
        torch.set_num_threads(settings.threads)
    set_deterministic(settings.deterministic)
    device = choose_device(settings.device, ranks.gpu_index(settings.backend))
    ranks = ranks.with_backend(settings.backend, device)
    keep_freed_memory(device)
    reset_peak_memory(device)
    if record is not None and settings.precision is Precision.auto:  # measured once: measurements vary
        precision = Precision(record["precision"])
    else:
        check_precision("trainer.precision", settings.precision, device)
        precision = ranks.broadcast(lambda: choose_precision(settings.precision, device))
    if record is not None:
        test_precision = Precision(record["test_precision"])
    elif settings.test_precision is Precision.auto:
        test_precision = precision
    else:
        check_precision("trainer.test_precision", settings.test_precision, device)
        test_precision = settings.test_precision
    return Compute(device, precision, ranks), Compute(device, test_precision, ranks)


def read_data(job: Job, task: Task, ranks: Ranks) -> TaskData:
    """Read the data of a run. Rank 0 reads them first and caches them for the others."""
    # A resumed run that was initialized from another run has a copy of its vocabulary.
    resumed = job.folder if job.config.init_from is not None or task.saves_vocabulary else None
    saved = resumed if job.resume else use_vocabulary(job.config, task)
    limit = DEV_RUN_EXAMPLES if job.config.trainer.fast_dev_run else None
    with ranks.main_first():
        heartbeat.beat("reading the data")
        return task.load(cache_folder(job.config.cache_dir), saved, limit)


def initial_model(job: Job, task: Task, ranks: Ranks) -> nn.Module:
    """Return the model at the start of a run, and save what the task needs to open it again.

    Only rank 0 reads weights from files; training starts with its weights on every rank.

    Raises:
        UserError: the weights do not fit the model.
    """
    heartbeat.beat("building the model")
    torch.manual_seed(job.config.seed)
    model = task.model()
    if not job.resume and ranks.main:
        task.save(job.folder)
        load_initial_weights(job.config, task, model, job.folder)
    return model


def set_threads(
    job: Job, origin: Origin, *, task: Task, model: nn.Module, data: TaskData, compute: Compute
) -> None:
    """Set the number of threads if `trainer.threads=auto`: that of the record of a resumed run, else the fastest."""
    settings = job.config.trainer
    if settings.threads != "auto":
        return
    if origin.record is not None:
        threads.use_recorded_threads(origin.record)
        return
    file = job.folder.parent / threads.FILE  # of a study
    if job.config.study.name is None:
        file = threads.file_of_today(cache_folder(job.config.cache_dir), job.plain)
    parts = settings.micro_batches
    threads.choose_threads(task, model, data.train, micro_batches=parts, compute=compute, file=file)


def start_record(
    job: Job, origin: Origin, *, data: TaskData, model: nn.Module, compute: Compute, test_compute: Compute
) -> dict[str, Any]:
    """Return what `run.json` records of a run, except choices, overrides and run id.

    Raises:
        UserError: a resumed run started with other data, or a rank has other data or code than rank 0.
    """
    config, ranks, record = job.config, compute.ranks, origin.record
    if record is None:
        weights = ranks.broadcast(lambda: provenance.initial_weights(config))
    else:
        weights = provenance.recorded_weights(record)
    float32_lstm = report_float32_lstm(model, compute, test_compute)
    now = {
        "precision": compute.precision.value,
        "test_precision": test_compute.precision.value,
        **({"float32_lstm": float32_lstm} if float32_lstm else {}),
        **provenance.provenance(config, data.record, weights, compute.device, ranks.size),
    }
    provenance.require_equal(ranks.gather((dict(data.identity), now)))
    if record is not None and origin.checkpoint is not None:
        return resumed_record(job.folder, record, now, origin.checkpoint.name)
    inputs = ranks.broadcast(lambda: foreign.input_digests(job.plain))
    return {**now, **({foreign.INPUTS: inputs} if inputs else {})}


def make_trainer(
    job: Job,
    origin: Origin,
    task: Task,
    data: TaskData,
    model: nn.Module,
    *,
    report: run_report.RunReport,
    evaluate: SplitEvaluator[Any],
    stop: StopSignals,
    compute: Compute,
) -> Trainer:
    """Return the trainer of a run.

    Args:
        evaluate: the evaluator of the validation split.
    """

    def validate(step: int, counted: Counted) -> Mapping[str, float]:
        evaluation = evaluate(counted=counted)
        if compute.ranks.main:
            report.validation(evaluation, step)
        return evaluation.values

    profiled = job.config.trainer.profile and compute.ranks.main
    settings = trainer_settings(job.config, task)
    saved = {} if origin.checkpoint is None else checkpoint.load_state(origin.checkpoint)
    # What `trainer.monitor=null` means can depend on the data.
    monitor = {} if task.default_monitor is None else {"trainer.monitor": json.dumps(settings.monitor)}
    return Trainer(
        task=task,
        model=model,
        data=data.train,
        validate=validate,
        optimizer=build_optimizer(job.config, model),
        schedule=build_schedule(job.config),
        settings=settings,
        tracker=report.tracker,
        folder=job.folder / "checkpoints",
        seed=job.config.seed,
        epoch_steps=saved.get("epoch_steps"),  # those of earlier versions lack it
        identity={
            **data.identity,
            **computed_settings(job.plain),
            **monitor,
            "trainer.precision": compute.precision.value,
        },
        # The identity has a list of files as one setting: the key without the index.
        inputs={re.sub(r"\.\d+$", "", key) for key in foreign.resumed_inputs(job.plain)},
        profile=step_profile(model, job.folder / "profile", compute.device) if profiled else no_profile,
        stop=stop,
        compute=compute,
        uniform_loss=task.uniform_loss(),
        snapshot=report.snapshots(model, compute),
    )


@contextmanager
def tracking(
    job: Job, trainer: Trainer, start_record: Mapping[str, Any], tracker: Trackers
) -> Iterator[Logger]:
    """Open the trackers of a run that trains; they are closed at the end, with exit code 1 after an error.

    Ranks other than 0 have none. A resumed run has loaded its checkpoint: a run that is refused changes no record.

    Args:
        start_record: see `write_start`.
        tracker: the opened trackers are added to it.
    """
    if not trainer.compute.ranks.main:
        yield Logger()
        return
    flat = flat_keys(job.plain, job.choices)
    logger = build_logger(
        job.config,
        job.folder,
        plain=job.plain,
        flat=flat,
        run_id=start_record.get("run_id"),
        overrides=job.overrides,
    )
    tracker.add(logger)
    exit_code = 1
    try:
        if job.overrides is not None:
            logger.record_notes(shlex.join(["python", "-m", "seq2seq_lab", *job.overrides]))
        record_data(logger, job.plain["dataset"], start_record["data"])
        if not job.resume:
            cover(job.folder, "run", ["config.yaml", *trainer.task.files])
            if changes := git_diff():
                write_atomically(job.folder / "uncommitted.diff", changes)
            else:
                (job.folder / "uncommitted.diff").unlink(missing_ok=True)  # of a start that failed
        state, finished = trainer.state, read_finished_result(job.folder) is not None
        again = {"val/": state.validated != state.step, "test/": not finished}
        tracker.add(
            FileTracker(job.folder, state.step if job.resume else None, [one for one in again if again[one]])
        )
        yield logger
        exit_code = 0
    finally:
        with logger_errors():
            tracker.finish(exit_code)


def write_start(job: Job, start_record: Mapping[str, Any], run_id: str | None) -> None:
    """Replace the records of earlier starts before the training. A finished run that is not trained longer keeps them.

    Args:
        start_record: what `run.json` records, except choices, overrides and run id.
    """
    own = not job.resume or foreign.is_own(job.folder)
    remove_result(job.folder)
    write_config(job)
    given = {} if job.overrides is None else {"overrides": job.overrides}
    known = {"run_id": run_id, "folder": folder_marks(job.folder)}
    record = {"format": RUN_FORMAT, "choices": job.choices, **start_record, **given, **known}
    write_covered(job.folder, "run", "run.json", json.dumps(record, indent=2) + "\n")
    if own:
        foreign.remember(job.folder)


def write_config(job: Job) -> None:
    """Write `config.yaml`. For a resumed run this is done after its checkpoint and its settings have been accepted."""
    write_covered(job.folder, "run", "config.yaml", OmegaConf.to_yaml(OmegaConf.create(job.plain)))
