"""`python -m seq2seq_lab.evaluate RUN_FOLDER`: score a trained run, any of its checkpoints, on any test set."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq_lab.errors import Parser, UserError, report_errors
from seq2seq_lab.files import RUN_FORMAT, make_numbered_folder, read_record, write_covered
from seq2seq_lab.streams import optional_output

if TYPE_CHECKING:
    from seq2seq_lab.api import LoadedRun
    from seq2seq_lab.config.schema import Precision
    from seq2seq_lab.data.corpus import Corpus
    from seq2seq_lab.runtime.ranks import Ranks
    from seq2seq_lab.tasks.translation.evaluation import TranslationSplit

RUN_HELP = "a run folder (outputs/DATE/TIME), or a checkpoint on W&B: ENTITY/PROJECT/checkpoint-RUN_ID:latest"

NO_LANGUAGE = frozenset(("source", "target"))  # the default labels of dataset=parallel


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
        description="Translate and score the test sets of a run, with other settings if you like: BLEU, chrF and TER "
        "with sacreBLEU's signatures and 95% intervals, BLEU of lowercased tokens, BLEU by source length, AER.",
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
        help="also score the translations with each unknown word (⁇) replaced by the source word with the highest weight",
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


def open_run(options: argparse.Namespace, changes: Sequence[str]) -> "LoadedRun":
    """Return the run, or the ensemble of runs, that the options of `add_opening` and `add_ensemble` select.

    From now on this process keeps freed memory, as in training; see `keep_freed_memory`.
    """
    from seq2seq_lab import api
    from seq2seq_lab.runtime.device import keep_freed_memory

    runs = [
        api.load(folder, options.config_dir, options.device, options.precision, changes, options.checkpoint)
        for folder in (options.folder, *options.others)
    ]
    keep_freed_memory(runs[0].device)
    return api.ensemble(runs) if len(runs) > 1 else runs[0]


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
    from seq2seq_lab import build
    from seq2seq_lab.config import extensions
    from seq2seq_lab.metrics.base import Declarations
    from seq2seq_lab.reporting import baselines, run_report, score_tables
    from seq2seq_lab.run import RESULT_FORMAT, write_result
    from seq2seq_lab.runtime import console
    from seq2seq_lab.runtime.compute import Compute
    from seq2seq_lab.tracking import Trackers

    with ranks.main_first():  # the others read the cache
        run = open_run(options, options.changes)
        with extensions.using(options.config_dir):
            run.task.metrics = (*run.task.metrics, *build.metrics(run.config))
        splits, origin = read_splits(run, options, ranks)
    validation_precision = choose_validation_precision(run, options)
    evaluations = []
    for split in splits:
        precision = validation_precision if split.prefix == "val" else run.precision
        evaluator = run.task.evaluator(
            split, run.model, Compute(run.device, precision, ranks), replace_unknown=options.replace_unknown
        )
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
    scores |= baselines.measured(run.task, [split for split in splits if split.prefix != "val"])
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


def choose_validation_precision(run: "LoadedRun", options: argparse.Namespace) -> "Precision":
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


def read_splits(
    run: "LoadedRun", options: argparse.Namespace, ranks: "Ranks"
) -> tuple[list["TranslationSplit"], dict[str, Any]]:
    """Return the splits to score, tokenized with the tokenizers of the run, and the provenance of the evaluation.

    Raises:
        UserError: the data set has no validation split, or a sentence is too long for the model.
    """
    from seq2seq_lab import build
    from seq2seq_lab.config import extensions
    from seq2seq_lab.config.compose import check_dataset
    from seq2seq_lab.data.download import cache_folder
    from seq2seq_lab.data.near_duplicates import with_near_duplicates
    from seq2seq_lab.data.tokenized import tokenize_text
    from seq2seq_lab.tasks.splits import evaluation_splits
    from seq2seq_lab.tasks.translation.data import check_lengths, segmentation_of
    from seq2seq_lab.tasks.translation.evaluation import TranslationSplit
    from seq2seq_lab.tasks.translation.task import pairs_record
    from seq2seq_lab.training.provenance import provenance

    assert run.config.dataset is not None, "TranslationTask uses the group"
    with extensions.using(options.config_dir):
        check_dataset(run.folder, run.config, options.changes)
        build.check_slot("dataset", run.config.dataset)
        dataset = build.dataset(run.config)
        corpus = dataset.load()
    if options.validation and not corpus.validation:
        raise UserError(
            "--validation: this data set has no validation split. Omit the option, or set dataset.validation=FILE."
        )
    corpus = with_languages(corpus, run, ranks)
    segmentation = segmentation_of(corpus, run.config.trainer.bleu_tokenizer)
    tests = {name: tokenize_text(text, run.tokenizers, name) for name, text in corpus.tests.items()}
    validation = tokenize_text(corpus.validation, run.tokenizers, "validation")
    longest = run.config.trainer.max_eval_length
    for name, tokens in {"validation": validation, **tests}.items():
        check_lengths(name, corpus.splits[name], tokens, longest, dataset)
    corpus = with_near_duplicates(corpus, cache_folder(run.config.cache_dir))
    with extensions.using(options.config_dir):
        weights = read_record(run.folder)["weights"]
        origin = provenance(run.config, pairs_record(corpus), weights, run.device, ranks.size)
    held_out = {"validation": validation, **tests} if options.validation else tests
    texts = {name: corpus.splits[name] for name in held_out}
    splits = evaluation_splits(
        TranslationSplit, texts, held_out, language=corpus.target_language, segmentation=segmentation
    )
    for split in splits:
        run.model.check_length(int(split.tokens.lengths.max()), f"A source sentence of {split.prefix}")
    return splits, origin


def write_settings(
    folder: Path, run: "LoadedRun", options: argparse.Namespace, origin: Mapping[str, Any]
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


def with_languages(corpus: "Corpus", run: "LoadedRun", ranks: "Ranks") -> "Corpus":
    """Replace the default labels by the languages of the run's vocabulary; warn if the languages differ."""
    fitted = run.tokenizers.languages
    if fitted is None:
        return corpus
    labels = (corpus.source_language, corpus.target_language)
    source, target = (
        known if label in NO_LANGUAGE else label for label, known in zip(labels, fitted, strict=True)
    )
    if ranks.main and (source, target) != fitted and NO_LANGUAGE.isdisjoint(fitted):
        print(
            f"warning: the vocabulary of {run.folder} is for {'→'.join(fitted)}, this data set is {source}→{target}.",
            file=sys.stderr,
        )
    return replace(corpus, source_language=source, target_language=target)


if __name__ == "__main__":
    main()
