"""One experiment, from its configuration to its result."""

import json
import logging
import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import nn

from seq2seq_lab.config import foreign
from seq2seq_lab.config.job_hash import computed_settings
from seq2seq_lab.config.schema import Config, Precision, TrainerConfig, flat_keys
from seq2seq_lab.data.download import cache_folder
from seq2seq_lab.errors import Preempted, UserError, storage_errors
from seq2seq_lab.files import (
    RUN_FORMAT,
    cover,
    finite,
    folder_marks,
    read_finished_result,
    read_result,
    set_file_aside,
    write_atomically,
    write_covered,
)
from seq2seq_lab.models.recurrent import report_float32_lstm
from seq2seq_lab.reporting import run_report
from seq2seq_lab.reporting.score_tables import WORST_OUTPUTS
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import (
    choose_device,
    choose_precision,
    keep_freed_memory,
    limit_primitive_cache,
    peak_memory,
    reset_peak_memory,
    set_deterministic,
)
from seq2seq_lab.runtime.heartbeat import heartbeat
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.runtime.signals import StopSignals
from seq2seq_lab.tasks.base import Task, TaskData
from seq2seq_lab.tasks.evaluation import Counted, SplitEvaluator
from seq2seq_lab.tasks.parts import build_task, monitored
from seq2seq_lab.tracking import METRICS_FILE, FileTracker, Logger, Trackers, logger_errors
from seq2seq_lab.tracking.git import git_diff
from seq2seq_lab.tracking.parts import build_logger
from seq2seq_lab.training import checkpoint, provenance
from seq2seq_lab.training.parts import build_optimizer, build_schedule, trainer_settings
from seq2seq_lab.training.profiling import no_profile, step_profile
from seq2seq_lab.training.threads import choose_threads, restored_threads, use_recorded_threads
from seq2seq_lab.training.trainer import Trainer

log = logging.getLogger(__name__)

RESULT_FORMAT = 1
DEV_RUN_EXAMPLES = 16
RECORDS = ("run.json", "result.json", METRICS_FILE)  # uploaded with the best checkpoint
NO_PROVENANCE = (
    "format",
    "choices",
    "overrides",
    "run_id",
    "folder",
    "copy_of",
    foreign.INPUTS,
)  # in run.json, not in result.json


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


def run(job: Job, ranks: Ranks) -> dict[str, Any]:
    """Run one experiment in its folder and return the content of its `result.json`.

    The configuration has been checked. If the run fails or is interrupted, `run.log` and `result.json` record
    how it ended. Only rank 0 writes.

    Raises:
        UserError: the data or the checkpoint cannot be used.
        Preempted: a signal has stopped the run; see `runtime.signals`.
    """
    stop = StopSignals(ranks.store)
    with stop.handled():
        try:
            with storage_errors(job.folder), restored_threads():
                result = experiment(job, ranks, stop)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            if ranks.main:
                record_end(job.folder, error)
            raise
        if stop.received:  # when the run had ended: a study must not start its next job
            raise Preempted(stop.received)
        return result


def record_end(folder: Path, error: BaseException) -> None:
    """Record in `run.log` and `result.json` the error or the interrupt that ended a run.

    A `result.json` of a finished run is kept. Errors are not printed here: the command line prints them. What cannot
    be written, as on a full disk, is left out.
    """
    with suppress(OSError):
        _record_end(folder, error)


def _record_end(folder: Path, error: BaseException) -> None:
    if isinstance(error, KeyboardInterrupt):
        by = (
            f"Stopped by {signal.Signals(error.number).name}"
            if isinstance(error, Preempted)
            else "Interrupted"
        )
        if checkpoint.any_in(folder / "checkpoints"):
            log.warning("%s. To resume: %s", by, run_report.resume_command(folder))
            text = f"{by}; resume=RUN_FOLDER resumes the run"
        else:
            text = f"{by} before the first checkpoint. Start the run again"
            log.warning("%s.", text)
        status = "preempted" if isinstance(error, Preempted) else "interrupted"
    else:
        status, text = "failed", f"{type(error).__name__}: {error}"
        trace = None if isinstance(error, UserError) else error
        log.error("The run failed. %s", text, exc_info=trace, extra={"console": False})
    if read_finished_result(folder) is None:
        write_result(folder, {"format": RESULT_FORMAT, "status": status, "error": text})


def experiment(job: Job, ranks: Ranks, stop: StopSignals) -> dict[str, Any]:
    """Run one experiment from its data to its result; see `run`."""
    config, settings, folder = job.config, job.config.trainer, job.folder
    check_folder(folder, ranks)
    record = foreign.read_opened_record(folder) if job.resume else None
    resumed = ranks.broadcast(lambda: find_checkpoint(folder / "checkpoints") if job.resume else None)
    compute, test_compute = prepare_machine(settings, ranks, record)
    ranks = compute.ranks
    task = build_task(config)
    with ranks.main_first():
        heartbeat.beat("reading the data")
        limit = DEV_RUN_EXAMPLES if settings.fast_dev_run else None
        data = task.load(cache_folder(config.cache_dir), vocabulary_folder(job), limit)
    precisions = {"precision": compute.precision.value, "test_precision": test_compute.precision.value}
    heartbeat.beat("building the model")
    model = initial_model(job, task, ranks).to(compute.device)
    if record is None and settings.threads == "auto":
        study, parts = None if config.study.name is None else folder.parent, settings.micro_batches
        choose_threads(task, model, data.train, micro_batches=parts, compute=compute, study=study)
    weights = (
        ranks.broadcast(lambda: provenance.initial_weights(config)) if record is None else record["weights"]
    )
    origin = provenance.provenance(config, data.record, weights, compute.device, ranks.size)
    float32_lstm = report_float32_lstm(model, compute, test_compute)
    inputs = ranks.broadcast(lambda: foreign.input_digests(job.plain) if record is None else {})
    start_record = {**precisions, **({"float32_lstm": float32_lstm} if float32_lstm else {}), **origin}
    start_record |= {foreign.INPUTS: inputs} if inputs else {}
    if record is not None and resumed is not None:
        start_record = resumed_record(folder, record, start_record, resumed.name)
    run_report.describe(model, task, compute)
    evaluators = [
        task.evaluator(data.validation, model, compute, also=[monitored(config, task).name]),
        *(task.evaluator(split, model, test_compute) for split in data.tests),
    ]
    tracker, logger = Trackers(()), Logger()
    report = run_report.RunReport(task, data, folder, tracker)
    trainer = make_trainer(
        job, task, data, model, report=report, evaluate=evaluators[0], stop=stop, compute=compute
    )
    result = None if resumed is None else load(trainer, resumed, folder)
    if result is None:
        with tracking(job, trainer, start_record, tracker) as logger:
            tracker.declare_metrics(report.declared.directions())
            if ranks.main:
                own = not job.resume or foreign.is_own(folder)
                remove_result(folder)
                write_config(job)
                write_record(job, start_record, logger.run_id)
                if own:
                    foreign.remember(folder)
            trainer.fit()
            best = load_best(trainer)
            with console.progress_bar("scoring, batches") as counted, stop.evaluation():
                evaluations = [evaluate(final=True, counted=stop.checked(counted)) for evaluate in evaluators]
            result = training_result(trainer, start_record)
            if ranks.main:
                result |= (scores := report.end(evaluations, trainer.state.step))
                write_result(folder, result)
                files = [best, *(folder / name for name in (*task.files, *RECORDS))]
                about = {"step": trainer.state.step, **best_scores(scores)}
                with logger_errors():
                    tracker.log_artifact(f"checkpoint-{logger.run_id}", "model", files, about)
                    tracker.record_summary(summary(result))
    if ranks.main:
        run_report.print_result(result, task.commands, folder, logger.sync_command(), logger.url)
    return result


def check_folder(folder: Path, ranks: Ranks) -> None:
    """Refuse a run folder that a rank cannot see."""
    if not all(ranks.gather(folder.is_dir())):
        raise UserError(
            f"{folder} does not exist on every machine of this run. Use a folder on a shared file system: "
            f"hydra.run.dir=FOLDER."
        )


def find_checkpoint(folder: Path) -> Path:
    """Return the newest valid checkpoint of a run that is resumed. The run folder must be locked."""
    checkpoint.restore_moved(folder)
    return checkpoint.newest(folder)


def load(trainer: Trainer, resumed: Path, folder: Path) -> dict[str, Any] | None:
    """Load the checkpoint of a resumed run, and return its result if it has finished and need not be trained longer."""
    trainer.load(resumed)
    result = read_finished_result(folder)
    trainer.compute.ranks.barrier()  # all ranks have read checkpoint and result, which rank 0 may replace
    if result is not None and trainer.done:
        log.info("The training is complete. To train a finished run longer, set trainer.max_epochs=N.")
        return result
    if trainer.state.best != resumed.name:  # which has just been checked
        trainer.checkpoints.replace_lost_best(trainer.state)
    return None


def prepare_machine(
    settings: TrainerConfig, ranks: Ranks, record: Mapping[str, Any] | None
) -> tuple[Compute, Compute]:
    """Set up this process and return where it computes, for training and validation and for the test sets.

    A resumed run computes with the recorded precision and number of threads, where the settings are `auto`.

    Args:
        record: the `run.json` of a resumed run.
    """
    limit_primitive_cache()
    if isinstance(settings.threads, int):
        torch.set_num_threads(settings.threads)
    elif record is not None:
        use_recorded_threads(record)
    set_deterministic(settings.deterministic)
    device = choose_device(settings.device, ranks.gpu_index(settings.backend))
    ranks = ranks.with_backend(settings.backend, device)
    keep_freed_memory(device)
    reset_peak_memory(device)
    if record is not None and settings.precision is Precision.auto:  # measured once: measurements vary
        precision = Precision(record["precision"])
    else:
        precision = ranks.broadcast(lambda: choose_precision(settings.precision, device))
    if record is not None:
        test_precision = Precision(record["test_precision"])
    elif settings.test_precision is Precision.auto:
        test_precision = precision
    else:
        test_precision = choose_precision(settings.test_precision, device)
    return Compute(device, precision, ranks), Compute(device, test_precision, ranks)


def vocabulary_folder(job: Job) -> Path | None:
    """Return the folder of the run whose vocabulary the weights of `init_from` need; a resumed run has a copy of it."""
    if job.config.init_from is None:
        return None
    return job.folder if job.resume else Path(job.config.init_from)


def initial_model(job: Job, task: Task, ranks: Ranks) -> nn.Module:
    """Return the model at the start of a run, and save what the task needs to open it again.

    Only rank 0 reads weights from files; training starts with its weights on every rank.

    Raises:
        UserError: the weights do not fit the model.
    """
    torch.manual_seed(job.config.seed)
    model = task.model()
    if not job.resume and ranks.main:
        task.save(job.folder)
        if job.config.init_from is not None:
            checkpoint.load_weights(checkpoint.best(Path(job.config.init_from) / "checkpoints"), model)
        else:
            task.load_pretrained(model)
    return model


def make_trainer(
    job: Job,
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
        identity={
            **data.identity,
            **computed_settings(job.plain),
            **monitor,
            "trainer.precision": compute.precision.value,
        },
        profile=step_profile(model, job.folder / "profile", compute.device) if profiled else no_profile,
        stop=stop,
        compute=compute,
        uniform_loss=task.uniform_loss(),
    )


def load_best(trainer: Trainer) -> Path:
    """Load the weights of the best checkpoint, or of the best that is left, into the model and return the checkpoint."""
    trainer.checkpoints.replace_lost_best(trainer.state)
    if trainer.state.best is None:  # no checkpoint that was validated is left
        best = trainer.compute.ranks.broadcast(lambda: checkpoint.newest(trainer.checkpoints.folder))
        trainer.state.best = best.name
    best = trainer.checkpoints.folder / trainer.state.best
    checkpoint.load_checked_weights(best, trainer.model)
    return best


@contextmanager
def tracking(
    job: Job, trainer: Trainer, start_record: Mapping[str, Any], tracker: Trackers
) -> Iterator[Logger]:
    """Open the trackers of a run that trains; they are closed at the end, with exit code 1 after an error.

    Ranks other than 0 have none. A resumed run has loaded its checkpoint: a run that is refused changes no record.

    Args:
        start_record: see `write_record`.
        tracker: the opened trackers are added to it.
    """
    if not trainer.compute.ranks.main:
        yield Logger()
        return
    flat = flat_keys(job.plain, job.choices)
    logger = build_logger(job.config, job.folder, job.plain, flat, start_record.get("run_id"))
    tracker.add(logger)
    exit_code = 1
    try:
        if job.overrides is not None:
            logger.record_notes(f"overrides: {shlex.join(job.overrides) or 'none'}")
        if not job.resume:
            cover(job.folder, "run", ["config.yaml", *trainer.task.files])
            if changes := git_diff():
                write_atomically(job.folder / "uncommitted.diff", changes)
            else:
                (job.folder / "uncommitted.diff").unlink(missing_ok=True)  # of a start that failed
        step = trainer.state.step if job.resume else None
        tracker.add(FileTracker(job.folder, step, read_finished_result(job.folder) is not None))
        yield logger
        exit_code = 0
    finally:
        with logger_errors():
            tracker.finish(exit_code)


def resumed_record(
    folder: Path, record: Mapping[str, Any], now: Mapping[str, Any], newest: str
) -> dict[str, Any]:
    """Return the `run.json` of a resumed run: the original record with the differences from now.

    The names of the parts that differ are added to "changed"; a different machine is added to "resumed_on". A copy of the
    folder of a run becomes another run: it has no id yet, and "copy_of" names the original.

    Args:
        newest: the name of the checkpoint from which it is resumed.

    Raises:
        UserError: the data differ.
    """
    differing = provenance.differences({**record, "changed": []}, now)
    if "data" in differing:
        raise UserError(
            f"resume={folder}: the run started with other {differing['data']}. Restore the data, or start a new run from "
            f"its weights with init_from={folder}."
        )
    for what in differing.values():
        log.warning("Changed since the run started: %s.", what)
    changed = sorted({*record.get("changed", ()), *differing})
    machines = list(record.get("resumed_on", ()))
    if now["machine"] not in (record["machine"], *machines):
        machines.append(now["machine"])
    copied = {}
    if (marks := record.get("folder")) and set(marks).isdisjoint(folder_marks(folder)):
        origin = record.get("run_id")
        log.info("%s is a copy of the run %s. If it trains further, it gets a new id.", folder, origin or "")
        copied = {"run_id": None, "copy_of": {"run_id": origin, "checkpoint": newest}}
    return {
        **record,
        **({"changed": changed} if changed else {}),
        **({"resumed_on": machines} if machines else {}),
        **copied,
    }


def training_result(trainer: Trainer, start_record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `result.json` records of the training. The throughput of a run shorter than the warm-up is null."""
    state, unit = trainer.state, trainer.task.unit
    device, ranks = trainer.compute.device, trainer.compute.ranks
    parameters = list(trainer.model.parameters())
    return {
        "format": RESULT_FORMAT,
        "status": "finished" if trainer.guards.divergence(state) is None else "diverged",
        "num_parameters": sum(parameter.numel() for parameter in parameters),
        "num_trainable_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "best_checkpoint": state.best,
        "monitor": trainer.settings.monitor,
        **({"lost_checkpoints": state.lost} if state.lost else {}),
        "steps": state.step,
        "train/skipped_steps": state.skipped,
        "unit": unit,
        f"train/{unit}_per_second": round(state.units_per_second, 1) or None,
        "train/seconds": round(state.seconds, 1),
        "val/seconds": round(state.validation_seconds, 1),
        "peak_memory_mib": round(max(ranks.gather(peak_memory(device))) / 2**20),
        "device": device.type,
        "precision": trainer.compute.precision.value,
        "test_precision": start_record["test_precision"],
        "ranks": ranks.size,
        "provenance": {name: value for name, value in start_record.items() if name not in NO_PROVENANCE},
    }


def best_scores(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validation metrics of the best checkpoint as `best/…`; a logger's summary uses `val/…` for curves."""
    return {
        f"best/{name.removeprefix('val/')}": value
        for name, value in result.items()
        if name.startswith("val/") and name != "val/seconds"
    }


def summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary of a run for a logger."""
    others = {
        name: value
        for name, value in result.items()
        if not name.startswith("val/")
        and name not in ("provenance", "metrics", "page")
        and not name.endswith(f"/{WORST_OUTPUTS}")
    }
    return {**others, "val_seconds": result["val/seconds"], **best_scores(result)}


def write_record(job: Job, start_record: Mapping[str, Any], run_id: str | None) -> None:
    """Write `run.json` before the training. A finished run that is not trained longer keeps its own.

    Args:
        start_record: what it records, besides choices, overrides and run id.
    """
    given = {} if job.overrides is None else {"overrides": job.overrides}
    known = {"run_id": run_id, "folder": folder_marks(job.folder)}
    record = {"format": RUN_FORMAT, "choices": job.choices, **start_record, **given, **known}
    write_covered(job.folder, "run", "run.json", json.dumps(record, indent=2) + "\n")


def write_config(job: Job) -> None:
    """Write `config.yaml`. For a resumed run this is done after its checkpoint and its settings have been accepted."""
    write_covered(job.folder, "run", "config.yaml", OmegaConf.to_yaml(OmegaConf.create(job.plain)))


def remove_result(folder: Path) -> None:
    """Remove the `result.json` of a run that continues or starts again; a damaged one is set aside."""
    result = read_result(folder)
    if result.get("status") == "damaged":
        set_file_aside(folder / "result.json", f"is not used ({result['error']})")
    (folder / "result.json").unlink(missing_ok=True)


def write_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Write `result.json`. Infinities and NaN are written as null."""
    text = json.dumps(finite(result), indent=2, ensure_ascii=False, allow_nan=False)
    found = [*folder.glob("*.jsonl"), *folder.glob("attention/*.jsonl")]
    tables = [str(path.relative_to(folder)) for path in found if path.name != METRICS_FILE]
    cover(folder, "result", ["result.json", "scored", *tables])
    write_covered(folder, "result", "result.json", text + "\n")
