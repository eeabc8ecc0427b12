"""`python -m seq2seq_lab.runs [FOLDER …]`: list runs, show one run, train it again, or animate its attention."""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seq2seq_lab.config.run_folder import SCORED, read_result
from seq2seq_lab.config.run_folders import named_folder
from seq2seq_lab.errors import Parser, UserError, output_file, output_folder, print_visible, report_errors
from seq2seq_lab.launching.listing import (
    HEADS,
    STATUSES,
    ListedRun,
    RunList,
    find,
    given,
    named_settings,
    read_valid_record,
)
from seq2seq_lab.reporting import score_tables
from seq2seq_lab.reporting.animation import animate
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.console import age, duration
from seq2seq_lab.runtime.tables import print_table

OPTIONAL = ("time", "ended", "status")  # columns that a narrow terminal does not show


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `parser`."""
    with report_errors():
        program = parser()
        options = program.parse_intermixed_args(arguments)
        program.refuse_without("animate", ["sample"], options)
        program.refuse_without("reproduce", ["output", "config_dir"], options)
        program.refuse_with("reproduce", ["animate", "json", "status"], options)
        program.refuse_with("animate", ["json"], options)
        if options.reproduce:
            sys.exit(reproduce(options))
        runs = find(options.folders, options.status.split(",") if options.status else ())
        if options.animate:
            if len(runs) != 1:
                raise UserError(f"--animate={options.animate} needs the folder of one run.")
            animate(Path(runs[0].folder), options.sample, options.animate)
            print(f"written: {options.animate}")
        elif options.json:
            print_visible(json.dumps([asdict(run) for run in runs], indent=2, ensure_ascii=False))
        elif len(runs) == 1 and [*map(named_folder, options.folders)] == [Path(runs[0].folder)]:
            show(runs[0])
        else:
            print_list(runs, folded=options.status is None)


def parser() -> Parser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.runs",
        usage="%(prog)s [FOLDER ...] [options]",
        description="List runs, the newest last, with their status, settings, scores and age. Given the folder of one run, "
        "show all of its scores, train it again or animate its attention.",
        epilog="Example: python -m seq2seq_lab.runs sweeps/why --status failed,preempted",
    )
    arguments.add_argument(
        "folders",
        nargs="*",
        metavar="FOLDER",
        help="runs or studies (default: outputs and sweeps); `latest` is the newest run",
    )
    arguments.add_argument(
        "--status",
        metavar="STATUS,STATUS",
        help=f"only runs with these: {', '.join(STATUSES)}",
    )
    arguments.add_argument(
        "--animate",
        type=output_file,
        metavar="FILE.gif",
        help="draw the attention of a sample from before the first step to the end of one run",
    )
    arguments.add_argument(
        "--sample", type=int, default=1, metavar="N", help="sample of --animate, counted from 1 (default: 1)"
    )
    arguments.add_argument("--json", action="store_true", help="print the list as JSON")
    group = arguments.add_argument_group("train a run again")
    group.add_argument(
        "--reproduce",
        action="store_true",
        help="train a finished run again from its recorded configuration, without a logger, and compare every recorded "
        "metric and the weights of the best checkpoint bit for bit, but not speed, time and memory. The exit status is 1 if "
        "the runs differ. KEY=FILE, such as dataset.path=FOLDER, replaces a file of the run, for a run of another user",
    )
    group.add_argument(
        "--output",
        type=output_folder,
        metavar="FOLDER",
        help="write the new run to this folder (default: reproductions/NUMBER in the run folder)",
    )
    group.add_argument(
        "--config-dir",
        type=Path,
        metavar="FOLDER",
        help="the folder of the custom components of the run; its Python files are executed",
    )
    return arguments


def reproduce(options: argparse.Namespace) -> int:
    """Train a run again, print whether it is identical, and return the exit status.

    Raises:
        UserError: no folder or several are given, or what `reproduction.reproduce` raises.
    """
    from seq2seq_lab.config import extensions
    from seq2seq_lab.launching.reproduction import reproduce

    changes = [word for word in options.folders if "=" in word and not Path(word).exists()]
    folders = [word for word in options.folders if word not in changes]
    if len(folders) != 1:
        raise UserError("--reproduce needs the folder of one run.")
    with extensions.using(options.config_dir):
        identical, text = reproduce(named_folder(folders[0]), options.output, changes)
    print_visible(text)
    return 0 if identical else 1


def print_list(runs: RunList, folded: bool) -> None:
    """Print a table of runs.

    Args:
        folded: count the runs that failed below the table, which does not contain them; otherwise print their errors.
    """
    failed = [run for run in runs if run.status == "failed"]
    if folded and len(failed) < len(runs):
        runs = RunList(run for run in runs if run.status != "failed")
    title = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    print_table(title, HEADS, runs.cells(), 2, optional=OPTIONAL, rest="--json prints all.")
    if folded and failed:
        console.print_prose(f"{len(failed)} failed (--status failed lists them with their errors)")
    elif failed:
        for run in failed:
            console.print_prose(f"{run.folder}: {read_result(Path(run.folder)).get('error', '')}")
    if len([run for run in runs if run.status in SCORED]) > 1:
        print("Compare finished runs: python -m seq2seq_lab.compare FOLDER…")


def show(run: ListedRun) -> None:
    """Print the scores of a run and its settings, time and machine."""
    from seq2seq_lab.training import checkpoint

    folder = Path(run.folder)
    result, record = read_result(folder), read_valid_record(folder)
    facts = {
        "status": f"{run.status}, {age(time.time() - run.ended)} ago",
        "error": record.get("error") or result.get("error"),
        "settings": None
        if run.overrides and run.settings == given(run.overrides)
        else named_settings([run])[0],
        "overrides": None if run.overrides is None else shlex.join(run.overrides) or "none",
        "steps": result.get("steps"),
        "parameters": f"{result['num_parameters']:,}" if "num_parameters" in result else None,
        "time": None if run.seconds is None else f"{duration(run.seconds)} of training and validation",
        "machine": describe_machine(record.get("machine", {})),
        "commit": record.get("commit"),
    }
    if copied := record.get("copy_of"):
        facts["copy of"] = (
            f"run {copied.get('run_id') or 'without an id'}, resumed from {copied.get('checkpoint')}"
        )
    tables = score_tables.score_tables(result) if run.status in SCORED else []
    shown = [(label, str(text)) for label, text in facts.items() if text is not None]
    commands = {}
    if run.status in SCORED:
        commands["compare it"] = ["seq2seq_lab.compare", str(folder), "FOLDER"]
    elif run.status in ("preempted", "interrupted", "cut off") and checkpoint.any_in(folder / "checkpoints"):
        commands["resume it"] = ["seq2seq_lab", f"resume={folder}"]
    quoted = {what: ["python", "-m", *map(shlex.quote, words)] for what, words in commands.items()}
    console.console().print(console.closing_summary(tables, shown, quoted))


def describe_machine(machine: Mapping[str, Any]) -> str | None:
    """Return the device, its threads and the version of torch; None if they are not recorded."""
    return (
        f"{machine['device_name']}, {machine['threads']} threads, torch {machine['torch']}"
        if machine
        else None
    )


if __name__ == "__main__":
    main()
