"""Tests and measures a GPU with one command of less than ten minutes.

    python -m benchmarks.gpu

measures the machine, runs the tests marked `gpu`, and measures training, decoding and memory. It needs no network, no corpus
and no other package. Each part runs in its own process with a time limit; if it crashes, hangs or is stopped, its results so
far are kept. `report.json` and `report.md` in `--out` are written after each part.

`--device cpu` runs everything without a GPU, in the smallest sizes.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import cli, decoding, training
from benchmarks.learners import MODELS, MULTI30K_PAIRS, Data, package, synthetic
from benchmarks.machine import DTYPES, bandwidth, machine, matrix_product_peak
from benchmarks.page import filled, table
from benchmarks.reference import Sizes
from benchmarks.training import Arm
from seq2seq_lab.config.schema import Device, Precision
from seq2seq_lab.data.batching import plan_epoch
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import write_atomically
from seq2seq_lab.runtime.device import (
    choose_device,
    limit_primitive_cache,
    memory_in_use,
    peak_memory,
    reset_peak_memory,
    set_tf32,
)

COMMAND = "python -m benchmarks.gpu"
ROOT = Path(__file__).parents[1]
LOG_END = 6000  # characters of the output of a failed part


@dataclass(frozen=True)
class Work:
    """The inputs and results of a part. Each result is written to its file immediately.

    Attributes:
        folder: of the report and of the runs that a part starts.
        found: notes (paragraphs) and tables by title.
    """

    name: str
    device: torch.device
    folder: Path
    found: dict[str, Any]

    @property
    def small(self) -> bool:
        """Whether everything has the smallest sizes."""
        return self.device.type == "cpu"

    @property
    def batch_size(self) -> int:
        """Sentences per training step."""
        return 8 if self.small else 128

    def data(self) -> tuple[Data, Sizes]:
        """Return the training text and the sizes of the models."""
        data = synthetic(60 if self.small else MULTI30K_PAIRS, 1)
        return data, data.sizes(8, 8) if self.small else data.sizes()

    def note(self, text: str) -> None:
        """Add a paragraph."""
        self._add("notes", len(self.found.get("notes", {})), text)

    def table(self, title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1) -> None:
        """Add or replace a table whose first columns are names."""
        self._add("tables", title, {"heads": heads, "rows": list(rows), "names": names})

    def _add(self, kind: str, key: str | int, value: Any) -> None:
        self.found.setdefault(kind, {})[key] = value
        write_atomically(self.folder / f"{self.name}.json", json.dumps(self.found) + "\n")


def describe_machine(work: Work) -> None:
    """Report hardware and software, and measure matrix products and memory bandwidth."""
    values = {"host": machine(), "python": platform.python_version(), "torch": torch.__version__}
    if not work.small:
        properties = torch.cuda.get_device_properties(work.device)
        values |= {
            "GPU": f"{torch.cuda.device_count()} × {properties.name}",
            "compute capability": f"{properties.major}.{properties.minor}",
            "memory": f"{properties.total_memory / 2**30:.1f} GiB",
            "CUDA, cuDNN": f"{torch.version.cuda}, {torch.backends.cudnn.version()}",  # type: ignore[no-untyped-call]
        }
    work.table("Hardware and software", ("what", "value"), values.items(), 2)
    rows = [[f"matrix products, {name}", f"{peak / 1e12:,.2f} TFLOP/s"] for name, peak in peaks(work).items()]
    for name, dtype in DTYPES.items():
        rate = bandwidth(dtype, work.device, 2**24 if work.small else 2**30)
        rows.append([f"reading memory, {name}", f"{rate / 1e9:,.0f} GB/s"])
    work.table("Peaks", ("what", "at most"), rows)


def peaks(work: Work) -> dict[str, float]:
    """Return the operations per second of the fastest matrix products, by precision."""
    dtypes = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    found = {}
    for name in DTYPES if work.small else dtypes:
        set_tf32(name == "tf32")
        found[name] = matrix_product_peak(dtypes[name], work.device, (256,) if work.small else ())
    set_tf32(False)
    return found


def run_tests(work: Work) -> None:
    """Run the tests marked `gpu`.

    Raises:
        RuntimeError: some failed; with the end of pytest's output.
    """
    if importlib.util.find_spec("pytest") is None:
        work.note("Not run: pytest is not installed.")
        return
    # The options in pyproject.toml need plug-ins; warnings do not count as failures.
    options: tuple[str, ...] = (
        "-m",
        "gpu",
        "-q",
        "--tb=short",
        "-o",
        "addopts=",
        "-W",
        "default",
        "-p",
        "no:cacheprovider",
    )
    environment = os.environ | {"SEQ2SEQ_LAB_GPU_TESTS": work.device.type}
    if importlib.util.find_spec("xdist") is not None:
        options += ("-n", str(min(6, os.cpu_count() or 1)))  # most of the time is that of the processors
    command = [sys.executable, "-m", "pytest", *options, "tests/gpu/test_gpu.py"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    work.note(ended.stdout.strip().split("\n")[-1].strip("= ") + ".")
    if ended.returncode:
        raise RuntimeError(f"pytest ended with status {ended.returncode}\n{ended.stdout[-LOG_END:]}")


def arms(work: Work) -> list[Arm]:
    """Return the tutorial's loop, and the package in each precision."""
    precisions = (Precision.fp32, *(() if work.small else (Precision.tf32,)), Precision.bf16)
    return [
        Arm("reference", "loop", "random", Precision.fp32),
        *(Arm("package", "package", "exact length", precision) for precision in precisions),
    ]


def measure_training(work: Work) -> None:
    """Measure target tokens per second, share of the peak and memory of each model and precision, at two ratios."""
    data, sizes = work.data()
    at_most, rounds, steps = peaks(work), *((1, 1) if work.small else (3, 6))
    work.note(
        f"{data.name}, batches of {work.batch_size}. Medians of {rounds} rounds of {steps} steps, in turns."
    )
    rows: dict[str, list[training.Row]] = {}
    for ratio in (1.0, 0.5):
        for name in list(MODELS)[: 1 if work.small else None]:
            options = Namespace(
                seed=1, batch_size=work.batch_size, ratios=[ratio], rounds=rounds, steps=steps, warm_up=steps
            )
            own = rows.setdefault(name, [])
            own += training.measure(name, data, options, work.device, ways=arms(work), sizes=sizes)
            cells = [row.cells(own[0], at_most) for row in own]
            work.table(training.title(own[0]), training.HEADS, cells, 2)


def measure_decoding(work: Work) -> None:
    """Measure greedy and beam search at several batch sizes, and a tutorial's loop."""
    data, sizes = work.data()
    size = 2**24 if work.small else 2**30
    rates = {name: bandwidth(dtype, work.device, size) for name, dtype in DTYPES.items()}
    work.note(
        f"{data.name}. {decoding.rates_line(rates)}. Random weights; each output is as long as its source."
    )
    count = 1 if work.small else 3
    options = Namespace(rounds=count, batches=count, joeynmt=None)
    at_most = peaks(work)
    for batch_size in (8,) if work.small else (64, 1, 256):
        load = decoding.workload(
            data, batch_size, device=work.device, rates=rates, peaks=at_most, sizes=sizes
        )
        rows = decoding.measure(load, options)
        title = f"Luong 2015, batches of {batch_size}"
        work.table(title, decoding.HEADS, [row.cells() for row in rows])


def measure_memory(work: Work) -> None:
    """Train two epochs over all shapes of batches; memory should not grow from the first to the second."""
    data, sizes = work.data()
    learner = package("bahdanau", data, work.device, sizes=sizes, batch_size=work.batch_size)
    precision = Precision.fp32 if work.small else Precision.bf16
    title = f"Bahdanau 2014, ratio 0.5, {precision.value}, batches of {work.batch_size}; {data.name}"
    rows = []
    for epoch in range(2):
        plan = plan_epoch(data.text, work.batch_size, "sentences", seed=1, epoch=epoch)
        reset_peak_memory(work.device)
        for index, step in enumerate(plan, start=1):
            learner.train_step(step, 0.5, precision)
            if index % max(1, len(plan) // 4) == 0:
                sizes_now = (memory_in_use(work.device), peak_memory(work.device))
                rows.append(
                    [f"{epoch + index / len(plan):.2f}", *(f"{size / 2**20:,.0f}" for size in sizes_now)]
                )
                work.table(title, ("epoch", "in use, MiB", "peak of the epoch, MiB"), rows)


@dataclass(frozen=True)
class Part:
    """A part of the report. `seconds` is its share of nine minutes; time that it does not use goes to later parts."""

    title: str
    seconds: int
    measure: Callable[[Work], None]


PARTS = {
    "machine": Part("The machine", 30, describe_machine),
    "tests": Part("Tests on the GPU", 80, run_tests),
    "training": Part("Training speed", 180, measure_training),
    "decoding": Part("Decoding speed", 80, measure_decoding),
    "memory": Part("Memory over all shapes of batches", 80, measure_memory),
}


def main() -> None:
    """Run the parts, or one of them in the process that was started for it."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: the smallest sizes")
    parser.add_argument("--minutes", type=float, default=9.0, help="time limit (default: 9)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="(default: all)")
    parser.add_argument("--out", type=Path, default=Path("outputs/gpu"), help="(default: outputs/gpu)")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        device = choose_device(Device(options.device))
    except UserError as error:
        sys.exit(f"error: {error} To try the command without a GPU: {COMMAND} --device cpu")
    if options.part:
        limit_primitive_cache()
        PARTS[options.part].measure(Work(options.part, device, options.out, {}))
        return
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # also stops the current part
    report = measure(options, device)
    print(f"Report: {options.out / 'report.md'} and {options.out / 'report.json'}")
    if any(part["status"].startswith("failed") for part in report["parts"].values()):
        sys.exit(1)


def measure(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Run each part in its own process and return the report."""
    parts: dict[str, Any] = {}
    report = {"command": COMMAND, **cli.environment(device), "parts": parts}
    options.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * options.minutes
    for index, name in enumerate(options.parts):
        left = sum(PARTS[later].seconds for later in options.parts[index:])
        seconds = (end - time.monotonic()) * PARTS[name].seconds / left
        path = options.out / f"{name}.json"
        path.unlink(missing_ok=True)  # of an earlier report
        parts[name] = {"status": "cut off"}
        write(report, options.out)
        print(f"{PARTS[name].title} (at most {seconds:.0f} s) …", flush=True)
        arguments = ("--part", name, "--device", options.device, "--out", str(options.out.absolute()))
        began = time.monotonic()
        try:
            parts[name] = run_limited(
                [sys.executable, "-m", "benchmarks.gpu", *arguments], seconds, path.with_suffix(".log")
            )
        finally:  # also if this process is stopped
            parts[name]["seconds"] = round(time.monotonic() - began, 1)
            if path.is_file():
                parts[name] |= json.loads(path.read_text("utf-8"))
            write(report, options.out)
        print(f"  {parts[name]['status']} after {parts[name]['seconds']:.0f} s", flush=True)
    return report


def run_limited(arguments: Sequence[str], seconds: float, log: Path) -> dict[str, Any]:
    """Run a command with a time limit, and end all processes that it leaves; return how it ended."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments,
            cwd=ROOT,
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


def write(report: Mapping[str, Any], folder: Path) -> None:
    """Write the report as JSON and as Markdown."""
    write_atomically(folder / "report.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    write_atomically(folder / "report.md", "\n".join(["# GPU report", "", *markdown(report), ""]))


def markdown(report: Mapping[str, Any]) -> list[str]:
    """Return the lines of a report, without a heading."""
    changed = " with changes" if report["changed_since"] else ""
    commit = (report["commit"] or "unknown")[:7]
    lines = [
        f"`{report['command']}`: {report['machine']}; torch {report['torch']}, commit {commit}{changed}."
    ]
    for name, part in report["parts"].items():
        lines += ["", f"### {PARTS[name].title}", ""]
        ended = f"{part['status'].capitalize()}, {part.get('seconds', 0):.0f} s."
        for note in (ended, *part.get("notes", {}).values()):
            lines += [*filled(note), ""]
        for title, found in part.get("tables", {}).items():
            lines += [f"**{title}**", "", *table(found["heads"], found["rows"], found["names"]), ""]
        if part.get("error"):
            lines += ["```", *part["error"].strip().split("\n"), "```", ""]
        lines.pop()
    return lines


if __name__ == "__main__":
    main()
