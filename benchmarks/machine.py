"""The machine that a benchmark runs on: its name, and the speed of matrix products and memory."""

import os
from collections.abc import Callable
from functools import partial
from time import perf_counter

import torch

from seq2seq_lab.runtime.device import device_name

CPU_SIZES, GPU_SIZES = (1024, 2048, 4096), (4096, 8192, 16384)  # of square matrices
TIMES = 5
CPU = torch.device("cpu")
BANDWIDTH_BYTES = 2**28  # of the matrix that is read
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def machine(device: torch.device = CPU) -> str:
    """Return the number of cores and the processor, or the GPU."""
    return device_name(device) if device.type == "cuda" else f"{os.cpu_count()} cores, {device_name(device)}"


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the time that the device needs: between two events on a GPU, by the clock otherwise."""
    if device.type == "cuda":
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000
    begin = perf_counter()
    work()
    return perf_counter() - begin


def matrix_product_peak(dtype: torch.dtype, device: torch.device, sizes: tuple[int, ...] = ()) -> float:
    """Return the highest number of operations per second of square matrix products of several sizes."""
    fastest = 0.0
    for size in sizes or (GPU_SIZES if device.type == "cuda" else CPU_SIZES):
        a, b = (torch.ones(size, size, dtype=dtype, device=device) for _ in range(2))
        product = partial(torch.mm, a, b, out=torch.mm(a, b))
        fastest = max(fastest, *(2 * size**3 / seconds(product, device) for _ in range(TIMES)))
    return fastest


def bandwidth(dtype: torch.dtype, device: torch.device, size: int = BANDWIDTH_BYTES) -> float:
    """Return the bytes read per second when a matrix of `size` bytes is multiplied by a vector."""
    columns = 4096
    matrix = torch.ones(size // dtype.itemsize // columns, columns, dtype=dtype, device=device)
    vector = torch.ones(columns, dtype=dtype, device=device)
    product = partial(torch.mv, matrix, vector)
    product()
    return size / min(seconds(product, device) for _ in range(TIMES))
