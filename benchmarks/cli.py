"""What the command lines of the benchmarks share: options, the start of a measurement, the report."""

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import Conditions, conditions, machine
from seq2seq_lab.config.schema import Device
from seq2seq_lab.errors import UserError
from seq2seq_lab.evaluate import positive
from seq2seq_lab.runtime.device import choose_device, limit_primitive_cache
from seq2seq_lab.tracking.git import git_commit, git_is_dirty

PLACEHOLDERS = {"multi30k": "DIR", "json": "FILE", "joeynmt": "PYTHON"}  # of paths in a recorded command
POSITIONAL = ("settings",)  # arguments without a flag, in their order


def new_parser(module: str, description: str, batch_size: int) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--batch-size", type=positive, default=batch_size, help="sentences per batch")
    parser.add_argument("--threads", type=positive, help="of torch (default: torch's choice)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to this file")
    return parser


def add_comparison(parser: argparse.ArgumentParser, pairs: int, rounds: int) -> None:
    """Add the options of a comparison in turns."""
    about = f"turns of each contestant (default: {rounds})"
    parser.add_argument("--rounds", type=positive, default=rounds, help=about)
    parser.add_argument("--multi30k", type=Path, metavar="DIR", help="folder of train.de, train.en, …")
    parser.add_argument("--pairs", type=positive, default=pairs, help="random pairs, without --multi30k")


def run(
    parser: argparse.ArgumentParser, measure: Callable[[argparse.Namespace, torch.device], dict[str, Any]]
) -> None:
    """Measure what the command line asks for, and write the report if it asks for it."""
    options = parser.parse_args()
    check_folder("--json", options.json)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    limit_primitive_cache()
    try:
        device = choose_device(Device(options.device))
        before = Conditions.now(device)
        report = {"command": command(parser, options), **environment(device), **measure(options, device)}
        report |= conditions(before, Conditions.now(device), torch.get_num_threads(), report.get("rows", ()))
    except UserError as error:
        sys.exit(f"error: {error}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


def check_folder(flag: str, file: Path | None) -> None:
    """Exit with an error, before anything is measured, if the folder of an output file does not exist."""
    if file is not None and not file.parent.is_dir():
        sys.exit(f"error: {flag}={file}: {file.parent} is not a folder. Create it.")


def command(parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """Return a command line with these options, with placeholders for paths."""
    words, last = parser.prog.split(), []
    for name, value in vars(options).items():
        if value == parser.get_default(name):
            continue
        values = [str(item) for item in value] if isinstance(value, list) else [str(value)]
        if name in POSITIONAL:
            last += values
            continue
        words += [f"--{name.replace('_', '-')}", *([PLACEHOLDERS[name]] if name in PLACEHOLDERS else values)]
    return shlex.join([*words, *last])


def environment(device: torch.device) -> dict[str, Any]:
    """Return what measurements depend on besides the command."""
    return {
        "machine": machine(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "commit": git_commit(),
        "changed_since": git_is_dirty(),
    }
