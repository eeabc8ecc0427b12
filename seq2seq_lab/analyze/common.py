"""Shared by the questions: options, test sets, and files of pairs."""

import argparse
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seq2seq_lab.analysis.plain import plain
from seq2seq_lab.data.local_files import CONVERT_REMEDY, read_lines
from seq2seq_lab.data.text import new_counts
from seq2seq_lab.errors import UserError, did_you_mean, print_visible, require
from seq2seq_lab.evaluate import add_opening, open_run

CHUNK = 16  # batches that are read, processed and written together


def add_question(
    questions: Any, name: str, run: Callable[[argparse.Namespace], None], about: str, example: str
) -> argparse.ArgumentParser:
    """Add a question, with the options for opening a run."""
    arguments: argparse.ArgumentParser = questions.add_parser(
        name, help=about, description=f"{about[0].upper()}{about[1:]}.", epilog=f"Example: {example}"
    )
    add_opening(arguments)
    arguments.set_defaults(run=run, question=name)
    return arguments


def add_test_set(arguments: argparse.ArgumentParser) -> None:
    """Add the options that select a test set and settings."""
    arguments.add_argument(
        "changes",
        nargs="*",
        metavar="KEY=VALUE",
        help="changes to the run's settings, such as dataset.test=… search=beam",
    )
    arguments.add_argument("--test", metavar="NAME", help="a test set of the data set (default: the first)")
    arguments.add_argument("--first", type=int, metavar="N", help="use the first N examples only")


def add_null(arguments: argparse.ArgumentParser) -> None:
    """Add the option that selects whether a word can have no link."""
    arguments.add_argument(
        "--null",
        choices=["drop", "allow"],
        default="drop",
        help="drop: every word is linked, without regard to <sos> and <eos>; allow: a word has no link if one of them has "
        "its largest weight (default: drop)",
    )


def add_format(arguments: argparse.ArgumentParser) -> None:
    """Add the option that selects tables or JSON lines."""
    arguments.add_argument("--format", choices=["text", "jsonl"], default="text", help="(default: text)")


def print_record(record: Any) -> None:
    """Print a result as one line of JSON; see `plain`."""
    print_visible(json.dumps(plain(record), ensure_ascii=False))


def require_float32(options: argparse.Namespace, what: str) -> None:
    """Refuse another precision than float32, in which attributions are computed whatever the precision of the run.

    Raises:
        UserError: `--precision` is neither auto nor fp32.
    """
    require(options.precision in ("auto", "fp32"), "--precision", options.precision, f"auto, fp32 for {what}")


def open_for_test_set(options: argparse.Namespace, searches: bool) -> Any:
    """Return the run of a question about a test set; see `open_run`.

    Args:
        searches: whether the question needs outputs of the run's search.

    Raises:
        UserError: a setting has no effect on the question.
    """
    for change in options.changes:
        group = change.partition("=")[0].partition(".")[0]
        if group == "metric" or (group == "search" and not searches):
            used = "reads given outputs" if group == "search" else "computes other measures"
            raise UserError(
                f"{change} has no effect on this call of analyze {options.question}, which {used}. Leave it out."
            )
    return open_run(options, options.changes)


def selected_test_set(run: Any, options: argparse.Namespace) -> Any:
    """Return the test set that the options select.

    Raises:
        UserError: there is none with this name.
    """
    from seq2seq_lab.launching.evaluation import read_data

    require(options.first is None or options.first >= 1, "--first", options.first, "1 or more")
    splits = read_data(run, False).tests
    names = [split.prefix.removeprefix("test").removeprefix("/") or "test" for split in splits]
    if options.test is not None and options.test not in names:
        near = did_you_mean(options.test, names)
        raise UserError(f"--test={options.test} is not a test set.{near} Test sets: {', '.join(names)}.")
    split = splits[0 if options.test is None else names.index(options.test)]
    if getattr(split, "text", None) is None:
        raise UserError(
            f"{options.question} needs a test set of texts; {type(run.task).__name__} has other examples."
        )
    return split if options.first is None else split.first(options.first)


def forced_pairs(run: Any, split: Any, question: str) -> tuple[Any, Any]:
    """Return the pairs of a test set as given outputs (`Forced`), and their gold alignments or None.

    Raises:
        UserError: the test set has no pairs of texts.
    """
    from seq2seq_lab.data.corpus import ParallelText

    if not isinstance(split.text, ParallelText):
        raise UserError(f"{question} needs pairs of texts. Give a run of task=translation or task=dialogue.")
    forced = run.forced([*split.text.source], [*split.text.target])
    return replace(forced, clusters=split.text.clusters), split.text.gold


def influences_of(run: Any, split: Any, per_word: int, seed: int) -> Any:
    """Return what each reference word of a test set depends on; see `Grammar.influences`.

    Raises:
        UserError: the data set does not know.
    """
    dataset = run.task.parts.dataset()
    if getattr(split.text, "gold", None) is None or not hasattr(dataset, "influences"):
        raise UserError(
            "Counterfactuals need a generated data set, dataset=grammar: only there it is known what each reference word "
            "depends on."
        )
    return dataset.influences([*split.text.source], per_word=per_word, seed=seed)


def pairs(run: Any, files: Sequence[str]) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield (index of the first pair, sources, targets) of the lines of SOURCE and TARGET; see `add_score`.

    Raises:
        UserError: the files have different numbers of lines, or a line cannot be read.
    """
    size = CHUNK * run.task.eval_batch_size
    if len(files) != (1 if run.reads_targets_only else 2):
        expected = "TARGET, the texts" if run.reads_targets_only else "SOURCE TARGET"
        raise UserError(f"{' '.join(files)}: give {expected}.")
    targets = numbered(files[-1])
    sources = numbered(files[0]) if len(files) == 2 else (("", "") for _ in itertools.count())
    first = 0
    while True:
        chunk = list(itertools.islice(targets, size))
        given = list(itertools.islice(sources, len(chunk) if len(files) == 1 else size))
        if len(chunk) != len(given):
            shorter = files[0] if len(given) < len(chunk) else files[-1]
            raise UserError(
                f"{files[0]} and {files[-1]} have different numbers of lines: {shorter} ends after "
                f"{first + min(len(given), len(chunk)):,}. Give a target for each source."
            )
        if not chunk:
            return
        for where, line in given if len(files) == 2 else chunk:
            run.check_input(line, where, run.longest_input)
        yield first, [line for _, line in given], [line for _, line in chunk]
        first += len(chunk)


def numbered(name: str) -> Iterator[tuple[str, str]]:
    """Yield (where it is, the line) for the lines of a file.

    Raises:
        UserError: the file does not exist, or a line is not UTF-8.
    """
    if not Path(name).is_file():
        raise UserError(f"{name} is not a file. Give a file with one text per line.")
    lines = read_lines(Path(name), new_counts(), show=False, remedy=CONVERT_REMEDY)
    for index, (line, problem) in enumerate(lines, start=1):
        if problem:
            raise UserError(f"{name}, line {index}: {problem}. Correct the line.")
        yield f"{name}, line {index}", line
