"""Device, precision and memory of a run."""

import ctypes
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.config.schema import Device, Precision, TrainerConfig
from seq2seq_lab.errors import UserError

# oneDNN caches a primitive with its buffers for each of the last 1,024 shapes. Real corpora have hundreds of
# shapes, which takes gigabytes of memory. No slowdown of the smaller cache was measurable.
PRIMITIVES = "32"

# Parameters of glibc's mallopt: the maximum number of blocks allocated with mmap, the minimum size of such a block,
# and the amount of free memory above which memory is returned to the system.
M_MMAP_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -4, -3, -1

RELEASE_EVERY = 100  # steps; the steps after a release are slower because they touch new pages

STATUS = Path("/proc/self/status")  # Linux only

# Width of the square matrices whose product `choose_precision` times. On a GPU, a product of the CPU's width takes
# less time than its launch, which is the same for every precision.
PRODUCT_SIZE, GPU_PRODUCT_SIZE = 512, 4096

DTYPES = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}


def choose_device(wanted: Device, index: int = 0) -> torch.device:
    """Return the requested device; `auto` chooses CUDA, then MPS, then the CPU.

    Args:
        index: the index of the GPU.

    Raises:
        UserError: this machine does not have the requested device.
    """
    available = {
        Device.cuda: torch.cuda.is_available(),
        Device.mps: torch.backends.mps.is_available(),
        Device.cpu: True,
    }
    if wanted is Device.auto:
        wanted = next(device for device, present in available.items() if present)
    if not available[wanted]:
        names = ", ".join(device.value for device, present in available.items() if present)
        raise UserError(
            f"trainer.device={wanted.value} is not available on this machine. Values: auto, {names}."
        )
    if wanted is Device.cuda and index >= torch.cuda.device_count():
        raise UserError(
            f"No GPU for local rank {index}: this machine has {torch.cuda.device_count()}. Start fewer ranks, or set "
            f"trainer.backend=gloo, with which ranks can share a GPU. If each process sees a different GPU, as with srun "
            f"--gpus-per-task=1, leave LOCAL_RANK out."
        )
    return torch.device(wanted.value, index) if wanted is Device.cuda else torch.device(wanted.value)


def gpu_of_rank(local_rank: int) -> int:
    """Return the index of the GPU of a local rank. If a machine has more processes than GPUs, processes share GPUs."""
    return local_rank % max(1, torch.cuda.device_count())


@cache
def device_name(device: torch.device) -> str:
    """Return the name of the GPU or, for other devices, of the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpu_info = Path("/proc/cpuinfo")  # Linux only
    lines = cpu_info.read_text().split("\n") if cpu_info.is_file() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def limit_primitive_cache() -> None:
    """Limit the size of oneDNN's primitive cache. Call this before the first computation."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PRIMITIVES)


def keep_freed_memory(device: torch.device) -> None:
    """Make glibc reuse freed memory in this process from now on, if `device` is the CPU.

    By default glibc returns a block of 32 MiB or more to the system as soon as it is freed. The next block then
    consists of new pages, which can cost more time than the computation. The caller returns freed memory with
    `release_memory` or `MemoryReleaser`.
    """
    if device.type == "cpu":
        set_malloc_options({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1})


def set_malloc_options(options: Mapping[int, int]) -> None:
    """Set parameters of glibc's `mallopt`; does nothing on a system without glibc."""
    set_option = _glibc("mallopt")
    if set_option is not None:
        for option, value in options.items():
            set_option(option, value)


def check_precision(setting: str, wanted: Precision, device: torch.device) -> None:
    """Refuse tf32 without a GPU.

    Args:
        setting: the key, for the message.

    Raises:
        UserError: names the key and the device.
    """
    if wanted is Precision.tf32 and device.type != "cuda":
        raise UserError(
            f"{setting}=tf32 requires a GPU, but the device is {device.type}. Use a machine with a GPU, or another "
            f"precision: auto, fp32, bf16, fp16."
        )


def check_precisions(settings: TrainerConfig, device: torch.device) -> None:
    """Check the precisions of a run; see `check_precision`."""
    check_precision("trainer.precision", settings.precision, device)
    check_precision("trainer.test_precision", settings.test_precision, device)


def choose_precision(wanted: Precision, device: torch.device) -> Precision:
    """Return the requested precision; `auto` chooses bfloat16 if its matrix products are 1.5 times as fast as float32's."""
    if wanted is not Precision.auto:
        return wanted
    # Older GPUs emulate bfloat16, slowly and not in every kernel.
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return Precision.fp32
    faster = _seconds(torch.float32, device) > 1.5 * _seconds(torch.bfloat16, device)
    return Precision.bf16 if faster else Precision.fp32


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """Return the autocast context for the forward pass.

    On a GPU this also enables TF32 for float32 products unless `precision` is fp32. The setting stays in effect after
    the context, because the backward pass needs it too.
    """
    if device.type == "cuda":
        set_tf32(precision is not Precision.fp32)
    dtype = DTYPES.get(precision)
    return torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def set_tf32(allowed: bool) -> None:
    """Enable or disable TF32 for float32 products and for recurrent layers (PyTorch's default: layers only)."""
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def set_deterministic(deterministic: bool) -> None:
    """Choose whether PyTorch may use only deterministic algorithms. Must be called before the first operation on a GPU."""
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS needs it
    torch.use_deterministic_algorithms(deterministic)


def on_device(values: npt.NDArray[np.int64] | Sequence[int], device: torch.device) -> Tensor:
    """Copy integers to a device. With a GPU, the host does not wait for the copy."""
    tensor = torch.as_tensor(values, dtype=torch.int64)
    if device.type != "cuda":  # a copy to MPS that does not block can read memory that is already free
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def to_host(tensor: Tensor) -> npt.NDArray[Any]:
    """Return the values of a tensor on the host. On a GPU this waits for all queued operations.

    All values that the host reads from a computation go through this function, and each call has a comment with the
    reason. An optimizer step with a fused optimizer needs none.
    """
    return tensor.detach().cpu().numpy()


def synchronize(device: torch.device) -> None:
    """Wait until the device has completed all queued operations."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def memory_in_use(device: torch.device) -> int:
    """Return the memory in use in bytes: of the GPU, else resident memory on Linux, else 0."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return _status("VmRSS") if STATUS.is_file() else 0


def release_memory() -> None:
    """Return freed memory to the system.

    Batches of hundreds of shapes leave gaps between blocks in use. Without this, the resident memory of a CPU run
    grows with every epoch.
    """
    trim = _glibc("malloc_trim")
    if trim is not None:
        trim(0)


class MemoryReleaser:
    """Returns freed CPU memory to the system periodically, and whenever it exceeds the first epoch's maximum.

    The memory freed between two releases grows with every epoch, as the blocks in use are further apart.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._steps = 0
        self._maximum = 0  # bytes freed in the first epoch
        self._kept: int | None = None  # bytes in use after the last release

    def after_step(self, first_epoch: bool) -> None:
        """Release memory if necessary. `first_epoch` is whether this is the first epoch of this process."""
        if self.device.type != "cpu":
            return
        freed = 0 if self._kept is None else memory_in_use(self.device) - self._kept
        if first_epoch:
            self._maximum = max(self._maximum, freed)
        if self._steps % RELEASE_EVERY == 0 or (not first_epoch and freed > self._maximum):
            release_memory()
            self._kept = memory_in_use(self.device)
        self._steps += 1


def peak_memory(device: torch.device) -> int:
    """Return the peak memory since `reset_peak_memory` in bytes: of the GPU, else resident memory.

    On macOS the peak cannot be reset and is that of the whole process.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if STATUS.is_file():
        return _status("VmHWM")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def reset_peak_memory(device: torch.device) -> None:
    """Start a new measurement of the peak: the runs of a multirun share a process."""
    if device.type == "cuda":
        # PyTorch initializes CUDA with the first tensor. Before that, resetting the counters raises an error.
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats(device)
    elif STATUS.is_file():
        with suppress(OSError):  # not every kernel and sandbox has it: the peak is then that of the process
            Path("/proc/self/clear_refs").write_text("5")


def _glibc(name: str) -> Callable[..., int] | None:
    """Return a function of glibc, or None if the C library is not glibc."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _status(name: str) -> int:
    """Return a memory size of this process from /proc/self/status, in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _seconds(dtype: torch.dtype, device: torch.device) -> float:
    """Return the seconds of the fastest of ten matrix products."""
    size = GPU_PRODUCT_SIZE if device.type == "cuda" else PRODUCT_SIZE
    a, b = (torch.ones(size, size, dtype=dtype, device=device) for _ in range(2))
    fastest = float("inf")
    for _ in range(10):
        synchronize(device)
        start = time.perf_counter()
        torch.mm(a, b)
        synchronize(device)
        fastest = min(fastest, time.perf_counter() - start)
    return fastest
