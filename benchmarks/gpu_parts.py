"""What `benchmarks.gpu` measures: each part is a function that adds to its figures as soon as it has them."""

import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from benchmarks import decoding, training
from benchmarks.learners import DROPOUT, MODELS, MULTI30K_PAIRS, Data, Package, multi30k, synthetic
from benchmarks.machine import DTYPES, bandwidth, machine, matrix_product_peak, seconds
from benchmarks.reference import Sizes
from benchmarks.turns import Arm
from seq2seq_lab.config.compose import setting
from seq2seq_lab.config.schema import Precision
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.batching import BatchMaker, StepPlan, plan_epoch
from seq2seq_lab.files import read_result, write_atomically
from seq2seq_lab.launching.side_by_side import cores
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.runtime.device import (
    autocast,
    memory_in_use,
    peak_memory,
    reset_peak_memory,
    set_tf32,
    synchronize,
)
from seq2seq_lab.search.base import Search
from seq2seq_lab.tracking.files import read_metrics

ROOT = Path(__file__).parents[1]
SMALL_SIZES = ("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=8")
SMALL_RUN = (
    "dataset.train=60",
    "dataset.validation=6",
    "dataset.test=6",
    "trainer.batch_size=16",
    *SMALL_SIZES,
)
# Runs whose losses are compared.
COMPARED_RUN = (
    *("logger=none", "dataset.test_compositional=0", "trainer.precision=fp32", "trainer.samples=0"),
    *("schedule=constant", "trainer.log_every_steps=1"),
)
NO_TF32 = {"NVIDIA_TF32_OVERRIDE": "0"}  # read by NVIDIA's libraries: recurrent layers too compute in float32
SAME = 1e-2  # largest relative difference of their losses
LOSS_HEADS = ("run", "updates", "last training loss", "largest relative difference", f"within {SAME:g}")
PROFILE_HEADS = ("what", "tokens/s", "ms per batch", "launches per token", "time in launches", "GPU busy")
RESULTS = (
    *(
        "test/bleu",
        "test/chrf",
        "test/loss_teacher_forced",
        "test/aer",
        "updates",
        "train/seconds",
        "val/seconds",
    ),
    *("train/target_tokens_per_second", "peak_memory_mib", "device", "precision"),
)


class Figures:
    """What a part has found so far; each addition is written to its file at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, Any] = {"notes": [], "tables": {}, "values": {}}

    def note(self, text: str) -> None:
        """Add a paragraph."""
        self.found["notes"].append(text)
        self._write()

    def table(self, title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1) -> None:
        """Add or replace a table, whose first columns are names."""
        self.found["tables"][title] = {"heads": heads, "rows": list(rows), "names": names}
        self._write()

    def value(self, name: str, value: Any) -> None:
        """Add a value for programs that read the report."""
        self.found["values"][name] = value
        self._write()

    def _write(self) -> None:
        write_atomically(self.path, json.dumps(self.found, indent=2, ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class Work:
    """What a part is given.

    Attributes:
        multi30k: the folder of the corpus; None for random text of its size.
        deadline: by `time.time`, when the part has to be done.
        peaks: operations per second of matrix products, by precision, once they are measured.
        folder: for the files of the runs that the part starts.
    """

    device: torch.device
    multi30k: Path | None
    deadline: float
    peaks: Mapping[str, float]
    folder: Path
    figures: Figures

    @property
    def small(self) -> bool:
        """Whether all is in the smallest sizes, to try out the command without a GPU."""
        return self.device.type == "cpu"

    @property
    def batch_size(self) -> int:
        """Sentences of a training update."""
        return 8 if self.small else 128

    @property
    def precision(self) -> Precision:
        """What a run computes in."""
        return Precision.fp32 if self.small else Precision.bf16

    def seconds_left(self) -> float:
        """Return the seconds until the deadline, at least one."""
        return max(1.0, self.deadline - time.time())

    def has_time(self, needed: float, what: str) -> bool:
        """Return whether so many seconds are left, and note what is not measured if they are not."""
        enough = self.deadline - time.time() > needed
        if not enough:
            self.figures.note(f"Not measured, out of time: {what}.")
        return enough

    def data(self) -> tuple[Data, Sizes]:
        """Return the training text and the sizes of the models."""
        if self.multi30k is not None and not self.small:
            data = multi30k(self.multi30k, "tokenizer=word", "tokenizer.lowercase=true")
        else:
            data = synthetic(60 if self.small else MULTI30K_PAIRS, 1)
        return data, data.sizes(8, 8) if self.small else data.sizes()

    def call(self, module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a module as a program, at most until the deadline; its output is in `stdout`."""
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, "WANDB_MODE": "offline", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=self.seconds_left(),
        )

    def train(self, *arguments: str, **environment: str) -> None:
        """Run `python -m seq2seq_lab`.

        Raises:
            RuntimeError: it failed; with the end of its output.
            TimeoutExpired: it was stopped at the deadline.
        """
        ended = self.call("seq2seq_lab", *arguments, **environment)
        if ended.returncode:
            raise RuntimeError(f"{shlex.join(arguments)}: status {ended.returncode}\n{ended.stdout[-4000:]}")

    def compared_run(self) -> tuple[tuple[str, ...], int]:
        """Return the settings of a run whose losses are compared, and a third of its updates."""
        sizes = ("dataset.train=4000", "dataset.validation=100", "dataset.test=100")
        return (*COMPARED_RUN, *(SMALL_RUN if self.small else sizes)), 2 if self.small else 20

    def into(self, name: str) -> tuple[Path, str]:
        """Return the folder of a new run and the setting that names it."""
        folder = (self.folder / name).absolute()
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier report
        return folder, setting("hydra.run.dir", folder)


def describe_machine(work: Work) -> None:
    """Name the hardware and the software, and measure what the hardware can do at most."""
    cuda, device = torch.cuda, work.device
    values = {"host": f"{machine()}; {len(cores())} cores are available", "python": platform.python_version()}
    if not work.small:
        properties = cuda.get_device_properties(device)
        values |= {
            "GPU": f"{properties.name}, compute capability {properties.major}.{properties.minor}",
            "GPUs": str(cuda.device_count()),
            "memory": f"{properties.total_memory / 2**30:.1f} GiB",
            "driver": nvidia_driver(),
            "CUDA, cuDNN": f"{torch.version.cuda}, {torch.backends.cudnn.version()}",  # type: ignore[no-untyped-call]
        }
    work.figures.table(
        "Hardware and software", ("what", "value"), [*values.items(), ("torch", torch.__version__)], 2
    )
    peaks = measured_peaks(work)
    rows = [(f"matrix products, {name}", f"{peak / 1e12:,.2f} TFLOP/s") for name, peak in peaks.items()]
    for name, dtype in DTYPES.items():
        rate = bandwidth(dtype, device, 2**24 if work.small else 2**30)
        rows.append((f"reading memory, {name}", f"{rate / 1e9:,.0f} GB/s"))
    work.figures.table("Peaks, measured", ("what", "at most"), rows)


def measured_peaks(work: Work) -> dict[str, float]:
    """Return the operations per second of the fastest matrix products, by precision."""
    dtypes = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    peaks: dict[str, float] = {}
    for name in ("fp32", "bf16") if work.small else dtypes:
        set_tf32(name == "tf32")
        peaks[name] = matrix_product_peak(dtypes[name], work.device, (256,) if work.small else ())
        work.figures.value("peak_flops_per_second", peaks)
    set_tf32(False)
    return peaks


def nvidia_driver() -> str:
    """Return the version of NVIDIA's driver."""
    if shutil.which("nvidia-smi") is None:
        return "unknown: nvidia-smi is not installed"
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
    return ", ".join(sorted(set(answer.stdout.split()))) or f"unknown: {answer.stderr.strip()}"


def run_tests(work: Work) -> None:
    """Run the tests that are marked `gpu`.

    Raises:
        RuntimeError: some failed; with the end of pytest's output.
    """
    if importlib.util.find_spec("pytest") is None:
        work.figures.note("Not run: pytest is not installed.")
        return
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text("utf-8")]
    # The options in pyproject.toml need plug-ins; warnings do not count as failures.
    options = ("-m", "gpu", "-q", "--tb=short", "-o", "addopts=", "-W", "default", "-p", "no:cacheprovider")
    ended = work.call("pytest", *options, *map(str, files), SEQ2SEQ_LAB_GPU_TESTS=work.device.type)
    work.figures.note(ended.stdout.strip().split("\n")[-1].strip("= ") + ".")
    if ended.returncode:
        raise RuntimeError(f"pytest ended with status {ended.returncode}\n{ended.stdout[-20000:]}")


def ways_to_train(work: Work) -> list[Arm]:
    """Return the tutorial's loop and the package in each precision."""
    precisions = (Precision.fp32, *(() if work.small else (Precision.tf32,)), Precision.bf16)
    return [
        Arm("reference", "loop", "random", Precision.fp32),
        *(Arm("package", "package", "exact length", precision) for precision in precisions),
    ]


def measure_training(work: Work) -> None:
    """Measure target tokens per second, share of the peak and memory of each model and precision, at two ratios."""
    data, sizes = work.data()
    peaks = work.peaks or measured_peaks(work)
    rounds, updates = (1, 1) if work.small else (3, 5)
    options = Namespace(seed=1, batch_size=work.batch_size, rounds=rounds, steps=updates, warm_up=rounds)
    work.figures.note(
        f"{data.name}, batches of {work.batch_size} sentences. Reference: a loop over time on random padded batches. "
        f"Package: batches of one source length. Medians of {rounds} rounds of {updates} updates, in turns; in parentheses "
        "the slowest and the fastest. × the first: the median quotient with the first row of the same ratio. Of the peak: "
        "the share of the measured peak in the row's precision, by the operations the model needs."
    )
    found: dict[str, list[training.Row]] = {}
    longest = 0.0
    for ratio in (1.0, 0.5):
        for name in list(MODELS)[: 1 if work.small else None]:
            if not work.has_time(1.2 * longest, f"{name} at ratio {ratio:g}"):
                continue
            start = time.monotonic()
            options.ratios = [ratio]
            rows = found.setdefault(name, [])
            rows += training.measure(name, sizes, data, options, work.device, ways_to_train(work))
            longest = max(longest, time.monotonic() - start)
            cells = [training.cells(row, rows[0], peaks) for row in rows]
            title = f"{training.title(name)}, {rows[0].parameters:,} parameters"
            work.figures.table(title, training.HEADS, cells, 2)
            work.figures.value("rows", [asdict(row) for own in found.values() for row in own])


def measure_decoding(work: Work) -> None:
    """Measure greedy and beam search at several batch sizes, beside the tutorial's loop."""
    data, sizes = work.data()
    memory_size = 2**24 if work.small else 2**30
    speed = {name: bandwidth(dtype, work.device, memory_size) for name, dtype in DTYPES.items()}
    work.figures.note(
        f"{data.name}. {decoding.rates_line(speed)}. Random weights; each output is as long as its source. Of the bound: of "
        "what reading a step's weights once allows."
    )
    times = 1 if work.small else 3
    values, longest = [], 0.0
    for batch_size in (8,) if work.small else (64, 1, 256):
        title = f"Luong 2015, batches of {batch_size}"
        if not work.has_time(1.2 * longest, title):
            continue
        start = time.monotonic()
        given = decoding.prepared(data, batch_size, work.device, speed, sizes)
        rows = decoding.beside_the_tutorial(given, Namespace(rounds=times, batches=times))
        longest = max(longest, time.monotonic() - start)
        work.figures.table(title, decoding.HEADS, map(decoding.cells, rows))
        values += [asdict(replace(row, group=title)) for row in rows]
        work.figures.value("rows", values)


def losses(folder: Path, updates: int) -> dict[int, float]:
    """Return the training loss of each of the first updates of a run."""
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "train/loss" in row]
    return {int(row["step"]): row["train/loss"] for row in rows if row["step"] <= updates}


def compared(work: Work, name: str, found: Mapping[int, float], expected: Mapping[int, float]) -> list[str]:
    """Return the cells of `LOSS_HEADS` for a run, whose losses should be the expected ones."""
    apart = float("inf")
    if found.keys() == expected.keys():
        apart = max(abs(found[step] - loss) / loss for step, loss in expected.items())
    work.figures.value(name, {"losses": list(found.values()), "same": apart <= SAME})
    return [
        name,
        str(len(found)),
        f"{found[max(found)]:.4f}",
        f"{apart:.1e}",
        "yes" if apart <= SAME else "NO",
    ]


def check_checkpoint(work: Work) -> None:
    """Train on the GPU, continue on the CPU and again on the GPU; compare with a run that stays on the GPU."""
    settings, every = work.compared_run()
    settings += ("model.dropout=0", f"trainer.validate_every={every}", "trainer.validate_unit=step")
    (whole, own_of_whole), (moved, own_of_moved) = work.into("whole"), work.into("moved")
    work.train(*settings, own_of_whole, f"trainer.max_steps={3 * every}", **NO_TF32)
    work.train(*settings, own_of_moved, f"trainer.max_steps={every}", **NO_TF32)
    rows = []
    for number, place, hidden in ((2, "the CPU", {"CUDA_VISIBLE_DEVICES": ""}), (3, "the first device", {})):
        work.train(f"resume={moved}", f"trainer.max_steps={number * every}", **hidden, **NO_TF32)
        found, expected = (losses(folder, number * every) for folder in (moved, whole))
        rows.append(compared(work, f"continued on {place}", found, expected))
        title = f"A checkpoint every {every} updates, compared with a run that stays on its device; fp32, no dropout"
        work.figures.table(title, LOSS_HEADS, rows)


def check_ranks(work: Work) -> None:
    """Compare one rank with two that share a GPU (gloo) and, with several GPUs, with two that have one each (NCCL)."""
    settings, every = work.compared_run()
    several = torch.cuda.device_count() > 1 and not work.small
    runs: dict[str, tuple[str, ...]] = {"one rank, two micro-batches": ("trainer.micro_batches=2",)}
    if not work.small or len(cores()) > 1:
        runs["two ranks, gloo"] = ("trainer.devices=2", "trainer.backend=gloo")
    if several:
        runs["two ranks, NCCL"] = ("trainer.devices=2", "trainer.backend=nccl")
    else:
        work.figures.note("NCCL is not run: it needs two GPUs.")
    rows: list[list[str]] = []
    expected: dict[int, float] = {}
    for name, options in runs.items():
        shared = {"CUDA_VISIBLE_DEVICES": "0"} if several and "gloo" in name else {}
        folder, own = work.into(re.sub(r"\W+", "_", name))
        work.train(*settings, own, f"trainer.max_steps={3 * every}", *options, **shared, **NO_TF32)
        expected = expected or losses(folder, 3 * every)
        speed = read_result(folder)["train/target_tokens_per_second"]
        cells = compared(work, name, losses(folder, 3 * every), expected)
        rows.append([*cells, "–" if speed is None else f"{speed:,.0f}"])
        work.figures.table("fp32, with dropout", (*LOSS_HEADS, "target tokens/s"), rows)


def measure_memory(work: Work) -> None:
    """Train two epochs over all shapes of batches; memory should not grow from the first to the second."""
    data, sizes = work.data()
    device = work.device
    package = Package("bahdanau", sizes, DROPOUT, data, work.batch_size, device, 1)
    title = f"Bahdanau 2014, ratio 0.5, {work.precision.value}, batches of {work.batch_size}; {data.name}"
    lengths = torch.stack([data.text.source_lengths, data.text.target_lengths], dim=1)
    shapes, rows = set(), []
    for epoch in range(2):
        plan = plan_epoch(data.text, work.batch_size, "sentences", 1, epoch)
        reset_peak_memory(device)
        for number, step in enumerate(plan, start=1):
            if not work.has_time(2, f"from update {number} of {len(plan)} of epoch {epoch + 1} on"):
                return
            package.update(step, 0.5, work.precision)
            shapes |= {(len(index), *lengths[torch.from_numpy(index)].amax(0).tolist()) for index in step}
            if number % max(1, len(plan) // 4) == 0:
                held = memory_in_use(device) if work.small else torch.cuda.memory_reserved(device)
                sizes_now = (memory_in_use(device), peak_memory(device), held)
                rows.append(
                    [f"{epoch + number / len(plan):.2f}", *(f"{size / 2**20:,.0f}" for size in sizes_now)]
                )
                work.figures.table(
                    title, ("epoch", "in use, MiB", "peak of the epoch, MiB", "held, MiB"), rows
                )
    work.figures.note(
        f"{len(shapes):,} shapes of batches (sentences, source tokens, target tokens) in two epochs."
    )


def profile_loops(work: Work) -> None:
    """Count the kernel launches of training at ratio 0.5 and of the searches, and the share of time that they take."""
    data, sizes = work.data()
    work.figures.note(
        f"{data.name}, batches of {work.batch_size}, {work.precision.value}; target tokens. Launches: of CUDA kernels (on a "
        "CPU: calls of operators). Time in launches: share of the host's time, under the profiler. GPU busy: sum of the "
        "kernels' times divided by the time without the profiler."
    )
    rows: list[list[str]] = []

    def add(name: str, compute: Callable[[], object], batches: int, tokens: int) -> None:
        rows.append([name, *profiled(compute, batches, tokens, work.device)])
        work.figures.table("Step loops", PROFILE_HEADS, rows)

    steps = plan_epoch(data.text, work.batch_size, "sentences", 1, 0)[: 1 if work.small else 3]
    tokens = sum(data.tokens(step).target for step in steps)
    for name in ["luong"] if work.small else [*MODELS, "luong_feeding"]:
        package = Package(name, sizes, DROPOUT, data, work.batch_size, work.device, 1)
        train = partial(update_all, package, steps, work.precision)
        add(f"training at ratio 0.5, {name}", train, len(steps), tokens)
    given = decoding.prepared(data, work.batch_size, work.device, {}, sizes)
    model, maker = given.package("luong"), BatchMaker(given.text, work.device)
    batches = [maker(step[0]) for step in given.plan[: len(steps)]]
    tokens = sum(sum(batch.source_lengths) for batch in batches)
    for name, search in decoding.SEARCHES.items():
        compute = partial(search_all, search, model, batches, work.precision)
        add(f"{name} search, luong", compute, len(batches), tokens)


def update_all(package: Package, steps: Sequence[StepPlan], precision: Precision) -> None:
    """Do one training update for each step, at ratio 0.5."""
    for step in steps:
        package.update(step, 0.5, precision)


def search_all(search: Search, model: Seq2Seq, batches: Sequence[Batch], precision: Precision) -> None:
    """Translate the batches."""
    for batch in batches:
        with autocast(precision, batch.source_BS.device):
            search(model, batch, False)


def profiled(compute: Callable[[], object], batches: int, tokens: int, device: torch.device) -> list[str]:
    """Return the cells of `PROFILE_HEADS` after the first for a function that computes so many batches and tokens."""
    on_gpu = device.type == "cuda"
    compute()
    synchronize(device)
    alone = min(seconds(compute, device) for _ in range(3))
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with torch.profiler.profile(activities=activities) as profiler:
        start = time.perf_counter()
        compute()
        synchronize(device)
        took = time.perf_counter() - start
    events = [event for event in profiler.key_averages() if event.device_type.name == "CPU"]
    prefixes = ("cudaLaunch", "cuLaunch") if on_gpu else ("aten::",)
    launches = [event for event in events if event.key.startswith(prefixes)]
    count = sum(event.count for event in launches)
    launching = sum(event.self_cpu_time_total for event in launches) / 1e6 / took
    busy = sum(event.self_device_time_total for event in events) / 1e6 / alone
    cells = [f"{tokens / alone:,.0f}", f"{1000 * alone / batches:.1f}", f"{count / tokens:.2f}"]
    return [*cells, *([f"{launching:.0%}", f"{busy:.0%}"] if on_gpu else ["–", "–"])]


def report_run(work: Work, name: str, *arguments: str) -> None:
    """Run `python -m seq2seq_lab` and report its scores; of one that is stopped for time, its last figures."""
    folder, own = work.into(name)
    line = " ".join(["python", "-m", "seq2seq_lab", *arguments]).replace(f"{work.folder.absolute()}/", "")
    work.figures.note(f"`{line.replace(str(work.multi30k), 'DIR')}`")
    start = time.monotonic()
    try:
        work.train(*arguments, own)
        found = read_result(folder)
        result: dict[str, Any] = {key: found[key] for key in RESULTS if found.get(key) is not None}
    except subprocess.TimeoutExpired:
        work.figures.note("Stopped before its end, out of time. Its last figures; `step` counts updates:")
        rows = read_metrics(folder / "metrics.jsonl") if (folder / "metrics.jsonl").exists() else []
        result = {key: value for row in rows for key, value in row.items() if key != "time"}
    result["seconds from start to end"] = time.monotonic() - start
    work.figures.value("result", result)
    cells = [
        (key, f"{value:,.2f}" if isinstance(value, float) else str(value)) for key, value in result.items()
    ]
    work.figures.table("Result", ("what", "value"), cells)


def run_main_command(work: Work) -> None:
    """Run the command of the README."""
    small = (*SMALL_RUN, "dataset.test_compositional=0", "trainer.max_epochs=1") if work.small else ()
    report_run(work, "main", "model=attn", "attention=additive", *small)


def run_multi30k(work: Work) -> None:
    """Train two epochs of a run of Multi30k's size."""
    options = ["experiment=luong2015", "tokenizer=word", "trainer.max_epochs=2"]
    if work.small:
        options += [*SMALL_SIZES, "model.attentional_size=8", "trainer.max_steps=4", "trainer.batch_size=16"]
    if work.multi30k is None or work.small:
        options.append("dataset=parallel")
        for seed, (split, pairs) in enumerate(
            (("train", MULTI30K_PAIRS), ("validation", 1014), ("test", 1000))
        ):
            path = work.folder.absolute() / f"{split}.tsv"
            write_text(path, 60 if work.small else pairs, seed)
            options.append(setting(f"dataset.{split}", path))
    else:
        options += [setting("dataset.path", work.multi30k), "tokenizer.lowercase=true"]
    report_run(work, "multi30k", *options)


def write_text(path: Path, pairs: int, seed: int) -> None:
    """Write random pairs with Multi30k's lengths and vocabulary sizes."""
    text = synthetic(pairs, seed).text
    sides = [
        [
            " ".join(f"w{number}" for number in tokens[low + 1 : high - 1].tolist())
            for low, high in pairwise(offsets)
        ]
        for tokens, offsets in (
            (text.source_tokens, text.source_offsets.tolist()),
            (text.target_tokens, text.target_offsets.tolist()),
        )
    ]
    path.write_text("".join(f"{source}\t{target}\n" for source, target in zip(*sides, strict=True)), "utf-8")
