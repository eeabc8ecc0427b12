"""The machine of a benchmark: its name, the speed of matrix products and memory, and what disturbs a measurement."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple, Self

import torch

from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.device import device_name

CPU_SIZES, GPU_SIZES = (1024, 2048, 4096), (4096, 8192, 16384)  # of square matrices
TIMES = 5
CPU = torch.device("cpu")
BANDWIDTH_BYTES = 2**28  # of the matrix that is read
CPU_TIMES = Path("/proc/stat")  # of Linux
IDLE, IO_WAIT, STEAL = 3, 4, 7  # its columns
MOST_STEAL = 0.05  # shares of the time of all cores
MOST_OTHERS = 0.1  # beyond the cores that the measured process leaves free
MOST_CHANGE = 1.25  # of the peak between start and end
WIDEST = 0.5  # an interval, as a share of its median
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def machine(device: torch.device = CPU) -> str:
    """Return the number of cores and the processor, or the GPU."""
    return device_name(device) if device.type == "cuda" else f"{os.cpu_count()} cores, {device_name(device)}"


def seconds(
    work: Callable[[], object], device: torch.device, clock: Callable[[], float] | None = None
) -> float:
    """Return the seconds that the device needs.

    Args:
        device: on a GPU, the result is the time between two events.
        clock: of a CPU, returns seconds. By default the CPU time of the process with one thread, which does not count
            the time in which other processes use the core, or in which this process waits for them; with several threads,
            which wait for each other, `perf_counter`.
    """
    if device.type == "cuda":
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000
    clock = clock or (process_time if torch.get_num_threads() == 1 else perf_counter)
    begin = clock()
    work()
    return clock() - begin


def matrix_product_peak(dtype: torch.dtype, device: torch.device, sizes: tuple[int, ...] = ()) -> float:
    """Return the highest number of operations per second of square matrix products of several sizes."""
    fastest = 0.0
    for size in sizes or (GPU_SIZES if device.type == "cuda" else CPU_SIZES):
        a, b = (torch.ones(size, size, dtype=dtype, device=device) for _ in range(2))
        product = partial(torch.mm, a, b, out=torch.mm(a, b))
        fastest = max(fastest, *(2 * size**3 / seconds(product, device) for _ in range(TIMES)))
    return fastest


def peaks_line(peaks: Mapping[str, float]) -> str:
    """Return the fastest matrix products of the machine as text."""
    return "Matrix-product peak: " + ", ".join(
        f"{name} {peak / 1e9:,.0f} GFLOP/s" for name, peak in peaks.items()
    )


def bandwidth(dtype: torch.dtype, device: torch.device, size: int = BANDWIDTH_BYTES) -> float:
    """Return the bytes read per second when a matrix of `size` bytes is multiplied by a vector."""
    columns = 4096
    matrix = torch.ones(size // dtype.itemsize // columns, columns, dtype=dtype, device=device)
    vector = torch.ones(columns, dtype=dtype, device=device)
    product = partial(torch.mv, matrix, vector)
    product()
    return size / min(seconds(product, device) for _ in range(TIMES))


class CoreTimes(NamedTuple):
    """Seconds of all cores since the start of the machine."""

    busy: float
    stolen: float
    total: float


@dataclass(frozen=True)
class Conditions:
    """The state of a machine at one moment.

    Attributes:
        peak: operations per second of a matrix product in float32.
        cores: times of the cores, or None if the system does not report them.
        own: seconds of all cores that this process has used.
    """

    peak: float
    cores: CoreTimes | None
    own: float

    @classmethod
    def now(cls, device: torch.device) -> Self:
        """Measure the machine."""
        return cls(matrix_product_peak(torch.float32, device, (1024,)), core_times(), sum(os.times()[:4]))


def core_times() -> CoreTimes | None:
    """Return the times of the cores, or None if the system does not report them."""
    if not CPU_TIMES.is_file():
        return None
    line = CPU_TIMES.read_text("ascii").split("\n", 1)[0]
    times = [int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in line.split()[1:9]]
    idle, total = times[IDLE] + times[IO_WAIT], sum(times)
    return CoreTimes(total - idle - times[STEAL], times[STEAL], total)


def conditions(
    before: Conditions, after: Conditions, threads: int, rows: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what a report says about the machine during a measurement, and print the warnings.

    Args:
        threads: of the measured process.
        rows: the rows of the report; those with an interval are checked.
    """
    found: dict[str, Any] = {"peak_after_over_before": after.peak / before.peak}
    warnings = []
    if not 1 / MOST_CHANGE < found["peak_after_over_before"] < MOST_CHANGE:
        warnings.append(f"the peak changed by a factor of {found['peak_after_over_before']:.2f} meanwhile")
    if before.cores is not None and after.cores is not None:
        busy, stolen, elapsed = (end - start for start, end in zip(before.cores, after.cores, strict=True))
        found["steal"] = stolen / elapsed
        found["others"] = max(0.0, busy - (after.own - before.own)) / elapsed
        free = max(0.0, 1 - threads / (os.cpu_count() or threads))
        if found["steal"] > MOST_STEAL:
            warnings.append(f"other machines on the host took {found['steal']:.0%} of the time of the cores")
        if found["others"] > free + MOST_OTHERS and threads > 1:  # with one thread, CPU time is measured
            warnings.append(
                f"other processes took {found['others']:.0%} of the time of the cores, {free:.0%} was free"
            )
    wide = [
        row
        for row in rows
        if row.get("times_highest", 0) - row.get("times_lowest", 0) > WIDEST * row.get("times_the_first", 0)
    ]
    if wide:
        warnings.append(f"{len(wide)} intervals are wider than half of their speedup")
    for warning in warnings:
        console.console().print(
            f"Warning: {warning}. Measure again on a quiet machine, or with more --rounds."
        )
    return {"conditions": found, "warnings": warnings}


def conditions_line(report: Mapping[str, Any]) -> str:
    """Return the conditions and the warnings of a report as text; empty for a report of an earlier version."""
    if "conditions" not in report:
        return ""
    found = report["conditions"]
    parts = [f"peak after / before the measurement {found['peak_after_over_before']:.2f}"]
    parts += [
        f"{label} {found[name]:.0%} of the cores' time"
        for name, label in (("steal", "steal"), ("others", "other processes"))
        if name in found
    ]
    return (
        " "
        + "; ".join([*parts, *(f"warning: {warning}" for warning in report["warnings"])]).capitalize()
        + "."
    )
