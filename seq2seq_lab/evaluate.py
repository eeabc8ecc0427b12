"""`python -m seq2seq_lab.evaluate RUN`: score a trained run, any of its checkpoints, on any test set."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq_lab.errors import Parser, UserError, output_folder, report_errors
from seq2seq_lab.streams import optional_output

if TYPE_CHECKING:
    from seq2seq_lab.runtime.ranks import Ranks

RUN_HELP = (
    "a run folder (outputs/DATE/TIME), latest for the newest one, demo for the run of the package, or a checkpoint on W&B: "
    "ENTITY/PROJECT/checkpoint-RUN_ID:latest"
)


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
        "task.eval_batch_size=…",
    )
    arguments.add_argument(
        "--output",
        type=output_folder,
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
    arguments.add_argument(
        "--validation", action="store_true", help="score the validation split instead of the test sets"
    )
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


def open_run(options: argparse.Namespace, changes: Sequence[str], others: Sequence[str] = ()) -> Any:
    """Return the run, or the ensemble of runs, that the options of `add_opening` select; see `api.load`.

    From now on this process keeps freed memory, as in training; see `keep_freed_memory`.

    Args:
        others: the other runs of an ensemble.
    """
    from seq2seq_lab import api
    from seq2seq_lab.runtime.device import keep_freed_memory

    runs = [
        api.load(
            folder,
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
    from seq2seq_lab.launching.evaluation import check_output
    from seq2seq_lab.launching.launch import spawn
    from seq2seq_lab.runtime.ranks import Ranks

    check_output(options.output)
    with optional_output():  # the scores are in the folder of the evaluation
        if options.devices == 1:
            score(options, Ranks())
        else:
            spawn(options.devices, _score_on_rank, options)


def _score_on_rank(options: argparse.Namespace) -> None:
    """Entry point of a spawned process."""
    from seq2seq_lab.launching.launch import join_ranks

    with optional_output(), join_ranks() as ranks:
        score(options, ranks)


def score(options: argparse.Namespace, ranks: "Ranks") -> None:
    """Score a run together with the other ranks. Only rank 0 writes and prints the metrics."""
    from seq2seq_lab.launching import evaluation
    from seq2seq_lab.reporting import score_tables
    from seq2seq_lab.reporting.run_page import write_run_page
    from seq2seq_lab.runtime import console

    with ranks.main_first():  # the others then read what it has downloaded
        run = open_run(options, options.changes, others=options.others)
    if options.replace_unknown and "replace_unknown" not in run.options:
        raise UserError(
            f"--replace-unknown: {type(run.task).__name__} translates nothing. Leave the option out."
        )
    more = {"replace_unknown": True} if options.replace_unknown else {}
    with run.named_errors():
        folder, scores = evaluation.score(run, ranks, options.validation, options.output, more)
    if not ranks.main:
        return
    facts = [
        *((f"{label} signature", text) for label, text in score_tables.signatures(scores, everything=True)),
        ("checkpoint", run.checkpoint),
        ("written to", folder),
        ("page", write_run_page(folder, compare_commands(run.folder, folder))),
    ]
    console.print_and_log(console.closing_summary(score_tables.score_tables(scores), facts, {}))


def compare_commands(run: Path, evaluation: Path) -> dict[str, list[str]]:
    """Return the command that compares an evaluation with its run, by purpose."""
    words = ["python", "-m", "seq2seq_lab.compare", shlex.quote(str(run)), shlex.quote(str(evaluation))]
    return {"compare it with the run": words}


if __name__ == "__main__":
    main()
