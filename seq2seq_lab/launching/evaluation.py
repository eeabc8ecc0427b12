"""Score a trained run, any of its checkpoints, on its test sets or on others."""

import copy
import json
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from seq2seq_lab.config import extensions
from seq2seq_lab.config.command_line import mask_overrides
from seq2seq_lab.config.compose import check_dataset
from seq2seq_lab.config.run_folder import RUN_FORMAT, read_record, write_covered
from seq2seq_lab.config.run_folders import output_parent
from seq2seq_lab.config.schema import OPENED_GROUPS, Precision, plain
from seq2seq_lab.config.slots import check_slot
from seq2seq_lab.data.download import cache_folder
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import make_numbered_folder
from seq2seq_lab.metrics.base import Declarations, Grouping, Metric
from seq2seq_lab.models.recurrent import report_float32_lstm
from seq2seq_lab.reporting import baselines, run_report
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.tasks.base import EvaluationData
from seq2seq_lab.tasks.loaded import Loaded
from seq2seq_lab.tasks.parts import KINDS, build_metrics
from seq2seq_lab.tracking import Trackers
from seq2seq_lab.training.provenance import provenance, recorded_weights
from seq2seq_lab.training.records import RESULT_FORMAT, write_result


def evaluate(
    run: Loaded, validation: bool = False, output: str | Path | None = None, **options: Any
) -> dict[str, Any]:
    """Score a run in this process; see `Loaded.evaluate`."""
    check_output(output)
    return score(run, Ranks(), validation, output, options)[1]


def check_output(output: str | Path | None) -> None:
    """Refuse to write to a folder that exists."""
    if output is not None and Path(output).exists():
        raise UserError(f"--output={output} already exists. Choose another folder.")


def score(
    run: Loaded, ranks: Ranks, validation: bool, output: str | Path | None, options: Mapping[str, Any]
) -> tuple[Path, dict[str, Any]]:
    """Score a run together with the other ranks, and write the scores. Only rank 0 writes.

    Args:
        validation: score the validation split instead of the test sets.
        output: the folder to write; None for evaluations/NUMBER in the run folder.
        options: for `Task.evaluator`.

    Returns:
        The folder and the scores, by the names of `result.json`; (the run folder, {}) on other ranks than 0.
    """
    if not ranks.main:
        logging.getLogger("seq2seq_lab").setLevel(logging.ERROR)  # rank 0 warns
    task = copy.copy(run.task)  # the metrics of the configuration are added for this evaluation
    run = replace(run, task=task)
    with extensions.using(run.opening.config_dir):
        with ranks.main_first():  # the others read the cache
            task.metrics = (*task.metrics, *build_metrics(run.config))
            data = read_data(run, validation)
        origin = provenance(
            run.config, data.record, recorded_weights(read_record(run.folder)), run.device, ranks.size
        )
    precision = choose_validation_precision(run) if validation else run.precision
    splits = [data.validation] if validation else data.tests
    if not splits:
        raise UserError("The data set has no test set. Give --validation, or another data set.")
    evaluated = output_parent(run.folder, cache_folder(run.config.cache_dir)) / "evaluations"
    if ranks.main:
        parent = evaluated if output is None else Path(output).parent
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=parent):  # raises before the work if the folder cannot be written
            pass
    # Which metrics and groups there are depends on what a split has.
    evaluations, metrics, groupings = [], dict[str, Metric](), dict[str, Grouping]()
    for split in splits:
        evaluator = task.evaluator(split, run.model, Compute(run.device, precision, ranks), **options)
        evaluations.append((split, evaluator(final=True)))
        metrics |= {metric.name: metric for metric in evaluator.metrics}
        groupings |= {grouping.key: grouping for grouping in evaluator.groupings}
    declared = Declarations.of([*metrics.values()], [*groupings.values()], task.primary)
    if not ranks.main:
        return run.folder, {}
    folder = make_numbered_folder(evaluated) if output is None else Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    write_settings(folder, run, precision, origin)
    run_report.warn_of_values([evaluation for _, evaluation in evaluations], set())
    scores, _ = run_report.report_evaluations(
        task, evaluations, declared, folder=folder, tracker=Trackers(()), step=0
    )
    scores |= baselines.measured(task, splits)
    about: dict[str, object] = {
        "format": RESULT_FORMAT,
        "status": "finished",
        "run": run.opening.folder,
        "checkpoint": run.checkpoint,
        "precision": precision.value,
        "search": run.config.search,
        "dataset": run.config.dataset,
        "provenance": {"precision": precision.value, **origin},
    }
    kept = {name: run.result[name] for name in task.kept_entries if run.result and name in run.result}
    write_result(folder, about | kept | scores)
    return folder, scores


def choose_validation_precision(run: Loaded) -> Precision:
    """Return the precision of the validation split: by default that of the training, in which the run has scored it."""
    if run.opening.precision != "auto":
        return run.precision
    precision = Precision(read_record(run.folder)["precision"])
    if precision is not run.precision:
        report_float32_lstm(run.model, Compute(run.device, precision))
    return precision


def read_data(run: Loaded, validation: bool) -> EvaluationData:
    """Return the splits of the data set, with the vocabulary of the run.

    Raises:
        UserError: the data set has no validation split, or cannot be used.
    """
    if run.config.dataset is not None:
        check_dataset(run.folder, run.config, run.opening.changes)
        check_slot("dataset", run.config.dataset, KINDS)
    data: EvaluationData = run.task.evaluation_data(cache_folder(run.config.cache_dir), run.folder)
    if validation and data.validation is None:
        raise UserError(
            "--validation: this data set has no validation split. Omit the option, or set dataset.validation=FILE."
        )
    return data


def write_settings(folder: Path, run: Loaded, precision: Precision, origin: Mapping[str, Any]) -> None:
    """Write `config.yaml` and `run.json` of the evaluation, in the format of a run, for `seq2seq_lab.compare`.

    Args:
        precision: of the evaluation.
        origin: the result of `provenance.provenance`.
    """
    opening = run.opening
    settings = (word.partition("=") for word in opening.changes)
    changed = {group: choice for group, _, choice in settings if group in OPENED_GROUPS}
    record = read_record(run.folder)
    codes = [dict(one.code) for one in opening.members]
    noted = {
        "format": RUN_FORMAT,
        "choices": {**record["choices"], **changed},
        "precision": record["precision"],
        "test_precision": precision.value,
        "evaluation": {
            "run": opening.folder,
            "checkpoint": opening.checkpoint,
            "ensemble": [one.folder for one in opening.members],
            **({"components": codes} if any(codes) else {}),
            "precision": opening.precision,
        },
        **origin,
    }
    if "overrides" in record:
        noted["overrides"] = [*record["overrides"], *mask_overrides(opening.changes)]
    config = OmegaConf.create(plain(OmegaConf.structured(run.config)))
    write_covered(folder, "run", "config.yaml", OmegaConf.to_yaml(config))
    write_covered(folder, "run", "run.json", json.dumps(noted, indent=2, ensure_ascii=False) + "\n")
