"""`python -m seq2seq_lab.evaluate RUN_FOLDER`: score a trained run, any of its checkpoints, on any test set."""

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq_lab.errors import Parser, UserError, report_errors
from seq2seq_lab.files import RUN_FORMAT, make_numbered_folder, read_record, write_covered
from seq2seq_lab.streams import optional_output

if TYPE_CHECKING:
    from seq2seq_lab.config.schema import Precision
    from seq2seq_lab.runtime.ranks import Ranks
    from seq2seq_lab.tasks.base import EvaluationData, Task
    from seq2seq_lab.tasks.loaded import Loaded

RUN_HELP = "a run folder (outputs/DATE/TIME), or a checkpoint on W&B: ENTITY/PROJECT/checkpoint-RUN_ID:latest"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `parser`."""
    with report_errors():
        options = parser().parse_intermixed_args(arguments)
        evaluate(options)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.evaluate",
        usage="%(prog)s FOLDER [KEY=VALUE ...] [options]",
        description="Compute the metrics of a run's task on its test sets, or on other test sets, with another "
        "checkpoint or another search: values, signatures and 95% intervals.",
        epilog="Example: python -m seq2seq_lab.evaluate outputs/DATE/TIME search=beam search.size=10",
    )
    add_opening(arguments)
    add_ensemble(arguments)
    arguments.add_argument(
        "changes",
        nargs="*",
        metavar="KEY=VALUE",
        help="changes to the run's settings, such as search=beam, search.length_penalty=1, dataset=…, dataset.path=…, "
        "trainer.eval_batch_size=…",
    )
    arguments.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="write to this folder (default: evaluations/NUMBER in the run folder)",
    )
    arguments.add_argument(
        "--devices",
        type=positive,
        default=1,
        metavar="N",
        help="divide the work among N processes: one for each GPU, or sharing the cores of a CPU (default: 1)",
    )
    arguments.add_argument("--validation", action="store_true", help="score the validation split too")
    arguments.add_argument(
        "--replace-unknown",
        action="store_true",
        help="translation: also score the outputs with each unknown word (⁇) replaced by the source word of highest weight",
    )
    return arguments


def positive(text: str) -> int:
    """Return a whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(text)


def add_opening(arguments: argparse.ArgumentParser) -> None:
    """Add the options for opening a run."""
    arguments.add_argument("folder", metavar="FOLDER", help=RUN_HELP)
    arguments.add_argument(
        "--checkpoint",
        metavar="NAMES",
        help="a checkpoint in checkpoints/; NAME,NAME or last:N: the mean of their weights (default: the best)",
    )
    arguments.add_argument(
        "--config-dir",
        metavar="FOLDER",
        help="the folder of the custom components of the run; its Python files are executed",
    )
    arguments.add_argument("--device", default="auto", help="auto, cuda, mps or cpu (default: auto)")
    arguments.add_argument(
        "--precision",
        default="auto",
        help="fp32, tf32, bf16, fp16, or auto: trainer.test_precision, and the precision of training for the "
        "validation split (default: auto)",
    )


def add_ensemble(arguments: argparse.ArgumentParser) -> None:
    """Add the option for an ensemble."""
    arguments.add_argument(
        "--ensemble",
        dest="others",
        action="append",
        default=[],
        metavar="FOLDER",
        help="add a run with the same vocabulary: average the probabilities of all runs; may be repeated",
    )


def open_run(
    options: argparse.Namespace,
    changes: Sequence[str],
    kind: "type[Task] | None" = None,
    others: Sequence[str] = (),
) -> Any:
    """Return the run, or the ensemble of runs, that the options of `add_opening` select; see `api.load`.

    From now on this process keeps freed memory, as in training; see `keep_freed_memory`.

    Args:
        kind: the kind of task that the program opens; None for every kind.
        others: the other runs of an ensemble.
    """
    from seq2seq_lab import api
    from seq2seq_lab.runtime.device import keep_freed_memory

    runs = [
        api.open_run(
            folder,
            kind,
            config_dir=options.config_dir,
            device=options.device,
            precision=options.precision,
            changes=changes,
            checkpoint=options.checkpoint,
        )
        for folder in (options.folder, *others)
    ]
    keep_freed_memory(runs[0].device)
    return api.ensemble(runs) if others else runs[0]


def evaluate(options: argparse.Namespace) -> None:
    """Score a run in the given number of processes, and write and print the metrics."""
    if options.output is not None and options.output.exists():
        raise UserError(f"--output={options.output} already exists. Choose another folder.")
    with optional_output():  # the scores are in the folder of the evaluation
        if options.devices == 1:
            from seq2seq_lab.runtime.ranks import Ranks

            score(options, Ranks())
        else:
            from seq2seq_lab.launching.launch import spawn

            spawn(options.devices, _score_on_rank, options)


def _score_on_rank(options: argparse.Namespace) -> None:
    """Entry point of a spawned process."""
    from seq2seq_lab.launching.launch import join_ranks

    with optional_output(), join_ranks() as ranks:
        score(options, ranks)


def score(options: argparse.Namespace, ranks: "Ranks") -> None:
    """Score a run together with the other ranks. Only rank 0 writes and prints the metrics."""
    from seq2seq_lab.config import extensions
    from seq2seq_lab.metrics.base import Declarations
    from seq2seq_lab.reporting import baselines, run_report, score_tables
    from seq2seq_lab.run import RESULT_FORMAT, write_result
    from seq2seq_lab.runtime import console
    from seq2seq_lab.runtime.compute import Compute
    from seq2seq_lab.tasks.parts import build_metrics
    from seq2seq_lab.tracking import Trackers
    from seq2seq_lab.training.provenance import provenance

    if not ranks.main:
        logging.getLogger("seq2seq_lab").setLevel(logging.ERROR)  # rank 0 warns
    with ranks.main_first():  # the others read the cache
        run = open_run(options, options.changes, others=options.others)
        refuse_options(run, options)
        with extensions.using(options.config_dir):
            run.task.metrics = (*run.task.metrics, *build_metrics(run.config))
        data = read_data(run, options)
        weights, device = read_record(run.folder)["weights"], run.device
        with extensions.using(options.config_dir):
            origin = provenance(run.config, data.record, weights, device, ranks.size)
    validation_precision = choose_validation_precision(run, options)
    more = {"replace_unknown": True} if options.replace_unknown else {}
    evaluations = []
    for split in (*([data.validation] if options.validation else []), *data.tests):
        precision = validation_precision if split is data.validation else run.precision
        evaluator = run.task.evaluator(split, run.model, Compute(run.device, precision, ranks), **more)
        evaluations.append((split, evaluator(final=True)))
        declared = Declarations.of(evaluator.metrics, evaluator.groupings, run.task.primary)
    if not ranks.main:
        return
    folder = options.output or make_numbered_folder(run.folder / "evaluations")
    folder.mkdir(parents=True, exist_ok=True)
    write_settings(folder, run, options, origin)
    trackers = Trackers(())
    scores = run_report.report_evaluations(
        run.task.report(folder, trackers), evaluations, declared, folder, trackers, 0
    )
    scores |= baselines.measured(run.task, data.tests)
    about: dict[str, object] = {
        "format": RESULT_FORMAT,
        "status": "finished",
        "run": str(run.folder),
        "checkpoint": run.checkpoint,
        "precision": run.precision.value,
        "search": run.config.search,
        "dataset": run.config.dataset,
        "provenance": {"precision": run.precision.value, **origin},
    }
    if options.validation:
        about["validation_precision"] = validation_precision.value
    write_result(folder, about | scores)
    facts = [
        *((f"{label} signature", text) for label, text in score_tables.signatures(scores, everything=True)),
        ("checkpoint", run.checkpoint),
        ("written to", str(folder)),
    ]
    console.print_and_log(
        console.closing_summary(score_tables.score_tables(scores, everything=True), facts, {})
    )


def refuse_options(run: "Loaded", options: argparse.Namespace) -> None:
    """Refuse options that the task of the run does not have."""
    from seq2seq_lab.tasks.translation.task import TranslationTask

    if options.replace_unknown and not isinstance(run.task, TranslationTask):
        raise UserError(
            f"--replace-unknown: {type(run.task).__name__} translates nothing. Leave the option out."
        )


def choose_validation_precision(run: "Loaded", options: argparse.Namespace) -> "Precision":
    """Return the precision of the validation split: by default that of the training, in which the run has scored it."""
    from seq2seq_lab.config.schema import Precision
    from seq2seq_lab.models.recurrent import report_float32_lstm
    from seq2seq_lab.runtime.compute import Compute

    if options.precision != "auto":
        return run.precision
    precision = Precision(read_record(run.folder)["precision"])
    if options.validation and precision is not run.precision:
        report_float32_lstm(run.model, Compute(run.device, precision))
    return precision


def read_data(run: "Loaded", options: argparse.Namespace) -> "EvaluationData":
    """Return the splits of the data set, with the vocabulary of the run.

    Raises:
        UserError: the data set has no validation split, or cannot be used.
    """
    from seq2seq_lab.config import extensions
    from seq2seq_lab.config.compose import check_dataset
    from seq2seq_lab.config.slots import check_slot
    from seq2seq_lab.data.download import cache_folder
    from seq2seq_lab.tasks.parts import KINDS

    with extensions.using(options.config_dir):
        if run.config.dataset is not None:
            check_dataset(run.folder, run.config, options.changes)
            check_slot("dataset", run.config.dataset, KINDS)
        data = run.task.evaluation_data(cache_folder(run.config.cache_dir), run.folder)
    if options.validation and data.validation is None:
        raise UserError(
            "--validation: this data set has no validation split. Omit the option, or set dataset.validation=FILE."
        )
    return data


def write_settings(
    folder: Path, run: "Loaded", options: argparse.Namespace, origin: Mapping[str, Any]
) -> None:
    """Write `config.yaml` and `run.json` of the evaluation, in the format of a run, for `seq2seq_lab.compare`.

    Args:
        origin: the result of `provenance.provenance`.
    """
    from omegaconf import OmegaConf

    from seq2seq_lab.config.command_line import mask_overrides
    from seq2seq_lab.config.schema import OPENED_GROUPS, plain

    settings = (word.partition("=") for word in options.changes)
    changed = {group: choice for group, _, choice in settings if group in OPENED_GROUPS}
    record = read_record(run.folder)
    noted = {
        "format": RUN_FORMAT,
        "choices": {**record["choices"], **changed},
        "precision": record["precision"],
        "test_precision": run.precision.value,
        "evaluation": {
            "run": str(run.folder),
            "checkpoint": options.checkpoint,
            "ensemble": [str(folder) for folder in (options.folder, *options.others)]
            if options.others
            else [],
            "precision": options.precision,
        },
        **origin,
    }
    if "overrides" in record:
        noted["overrides"] = [*record["overrides"], *mask_overrides(options.changes)]
    config = OmegaConf.create(plain(OmegaConf.structured(run.config)))
    write_covered(folder, "run", "config.yaml", OmegaConf.to_yaml(config))
    write_covered(folder, "run", "run.json", json.dumps(noted, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
