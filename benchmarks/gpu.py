"""Measure and test a GPU with one command of less than ten minutes.

    python -m benchmarks.gpu

measures the machine, runs the GPU's tests, measures training, decoding, memory and kernel launches, checks checkpoints and
ranks, and runs the main command and two epochs of a Multi30k-sized run. It needs no network, no corpus and no package
besides the program's own. Each part runs in its own process with a time limit; its results so far are kept if it
crashes, hangs or is stopped. The report, `report.json` and `report.md` in `--out`, is written after each part.

`--device cpu` runs all of it without a GPU, in the smallest sizes.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks import gpu_parts
from benchmarks.gpu_parts import ROOT, Figures, Work
from benchmarks.machine import machine
from benchmarks.page import filled, table
from seq2seq_lab.config.schema import Device
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import write_atomically
from seq2seq_lab.runtime.device import choose_device, limit_primitive_cache
from seq2seq_lab.tracking.git import git_commit, git_is_dirty

COMMAND = "python -m benchmarks.gpu"
TIME_TO_WRITE = 0.1  # share of a part's time that is left to it to end by itself
LOG_END = 6000  # characters of the output of a part that failed


@dataclass(frozen=True)
class Part:
    """A part of the report.

    Attributes:
        seconds: its share of the nine minutes; time that a part does not use is left to later parts.
    """

    title: str
    seconds: int
    measure: Callable[[Work], None]


PARTS = {
    "machine": Part("The machine", 30, gpu_parts.describe_machine),
    "training": Part("Training speed", 110, gpu_parts.measure_training),
    "decoding": Part("Decoding speed", 40, gpu_parts.measure_decoding),
    "tests": Part("Tests on the GPU", 70, gpu_parts.run_tests),
    "checkpoint": Part("Checkpoints between GPU and CPU", 60, gpu_parts.check_checkpoint),
    "ranks": Part("Two ranks", 50, gpu_parts.check_ranks),
    "profile": Part("Kernel launches of the step loops", 35, gpu_parts.profile_loops),
    "memory": Part("Memory over all shapes of batches", 40, gpu_parts.measure_memory),
    "main": Part("The main command", 55, gpu_parts.run_main_command),
    "multi30k": Part("Two epochs of a Multi30k-sized run", 50, gpu_parts.run_multi30k),
}


def main() -> None:
    """Run the parts that the command line asks for, or, in a process that was started for it, one of them."""
    options = parser().parse_args()
    if options.part:
        run_part(options)
        return
    try:
        device = choose_device(Device(options.device))
    except UserError as error:
        sys.exit(f"{error} To try out the command without a GPU: {COMMAND} --device cpu")
    # A signal that stops a batch job also stops the running part.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    report = measure(options, device)
    print(f"Report: {options.out / 'report.md'} and {options.out / 'report.json'}")
    if any(part["status"].startswith("failed") for part in report["parts"].values()):
        sys.exit(1)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=COMMAND, description=__doc__.split("\n")[0])
    made.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu: the smallest sizes (default: cuda)"
    )
    made.add_argument("--minutes", type=float, default=9.0, help="in all (default: 9)")
    made.add_argument(
        "--parts", nargs="+", choices=PARTS, default=list(PARTS), help="some of them (default: all)"
    )
    made.add_argument(
        "--out", type=Path, default=Path("outputs/gpu"), help="folder of the report (default: outputs/gpu)"
    )
    made.add_argument(
        "--multi30k", type=Path, metavar="DIR", help="use the corpus instead of random text of its size"
    )
    made.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    made.add_argument("--deadline", type=float, help=argparse.SUPPRESS)
    return made


def measure(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Run each part in its own process and return the report, which is written after each part."""
    parts: dict[str, Any] = {}
    report = {
        "command": command(options),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": machine(device),
        "torch": torch.__version__,
        "commit": git_commit(),
        "changed_since": git_is_dirty(),
        "parts": parts,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for name in PARTS:  # of an earlier report
        (options.out / f"{name}.json").unlink(missing_ok=True)
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if options.device == "cpu" else {}
    start, share = time.monotonic(), 0.0
    for name in options.parts:
        share += PARTS[name].seconds / sum(PARTS[part].seconds for part in options.parts)
        seconds = start + 60 * options.minutes * share - time.monotonic()
        path, arguments = options.out / f"{name}.json", part_arguments(name, options, seconds)
        parts[name] = {"status": "cut off"}
        write(report, options.out)
        print(f"{PARTS[name].title} (at most {seconds:.0f} s) …", flush=True)
        began = time.monotonic()
        try:
            parts[name] = run_limited(arguments, seconds, options.out / f"{name}.log", hidden)
        finally:  # also where this process is stopped
            parts[name]["seconds"] = round(time.monotonic() - began, 1)
            if path.is_file():
                parts[name] |= json.loads(path.read_text("utf-8"))
            write(report, options.out)
        print(f"  {parts[name]['status']} after {parts[name]['seconds']:.0f} s", flush=True)
    return report


def command(options: argparse.Namespace) -> str:
    """Return the command line of a report, without paths of the machine."""
    chosen = "" if options.parts == list(PARTS) else f" --parts {' '.join(options.parts)}"
    minutes = "" if options.minutes == parser().get_default("minutes") else f" --minutes {options.minutes:g}"
    device = "" if options.device == "cuda" else f" --device {options.device}"
    return f"{COMMAND}{device}{minutes}{chosen}{' --multi30k DIR' if options.multi30k else ''}"


def part_arguments(name: str, options: argparse.Namespace, seconds: float) -> list[str]:
    """Return the command of a part's own process."""
    arguments = [sys.executable, "-m", "benchmarks.gpu", "--part", name, "--device", options.device]
    arguments += ["--out", str(options.out.absolute())]
    arguments += ["--deadline", str(time.time() + (1 - TIME_TO_WRITE) * seconds)]
    return [*arguments, *(["--multi30k", str(options.multi30k.absolute())] if options.multi30k else [])]


def run_limited(
    arguments: Sequence[str], seconds: float, log: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run a command with a limit of time, and end all processes that it leaves; return how it ended."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout=max(1.0, seconds))
            ended = "finished" if status == 0 else f"failed with status {status}"
        except subprocess.TimeoutExpired:
            ended = f"failed: stopped after its {seconds:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if ended == "finished":
        return {"status": ended}
    printed = log.read_text("utf-8", errors="replace")[-LOG_END:]
    return {"status": ended, "error": printed.replace(f"{ROOT}/", "").replace(f"{sys.prefix}/", "")}


def run_part(options: argparse.Namespace) -> None:
    """Measure one part in this process."""
    limit_primitive_cache()
    folder = options.out / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    measured = options.out / "machine.json"
    values = json.loads(measured.read_text("utf-8"))["values"] if measured.is_file() else {}
    PARTS[options.part].measure(
        Work(
            device=choose_device(Device(options.device)),
            multi30k=options.multi30k,
            deadline=options.deadline,
            peaks=values.get("peak_flops_per_second", {}),
            folder=folder,
            figures=Figures(options.out / f"{options.part}.json"),
        )
    )


def write(report: Mapping[str, Any], folder: Path) -> None:
    """Write the report as JSON and as Markdown."""
    write_atomically(folder / "report.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    write_atomically(folder / "report.md", "\n".join(["# GPU report", "", *markdown(report), ""]))


def markdown(report: Mapping[str, Any]) -> list[str]:
    """Return the lines of a report, below a heading of the first or second level."""
    about = f"{report['device']}; torch {report['torch']}, commit {(report['commit'] or 'unknown')[:7]}"
    changed = " with changes" if report["changed_since"] else ""
    lines = ["```", report["command"], "```", "", *filled(f"{about}{changed}; {report['date']}.")]
    for name, part in report["parts"].items():
        lines += ["", f"### {PARTS[name].title}", ""]
        for note in [
            f"{part['status'].capitalize()}, {part.get('seconds', 0):.0f} s.",
            *part.get("notes", []),
        ]:
            lines += [*(note.split("\n") if note.startswith("```") else filled(note)), ""]
        for title, made in part.get("tables", {}).items():
            lines += [f"**{title}**", "", *table(made["heads"], made["rows"], made["names"]), ""]
        if part.get("error"):
            lines += ["```", *part["error"].strip().split("\n"), "```", ""]
        lines.pop()
    return lines


if __name__ == "__main__":
    main()
