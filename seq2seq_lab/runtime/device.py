"""The device a run computes on, and in what precision."""

import ctypes
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.config.schema import Device, Precision
from seq2seq_lab.errors import UserError

# oneDNN keeps a primitive with its buffers for each of the last 1,024 shapes; a corpus of real sentences has
# hundreds, and a run of some minutes then held gigabytes. Fewer cost no time that could be measured.
PRIMITIVES = "32"

# Of glibc's mallopt: how many blocks may be pages of their own, from which size on, and how much may be free before it
# is given back.
M_MMAP_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -4, -3, -1

RELEASE_EVERY = 100  # updates; those that come after a release have to touch new pages

STATUS = Path("/proc/self/status")  # Linux only

# Width of the square matrices whose product `choose_precision` times. On a GPU a product of the CPU's width takes less time
# than its launch, which is the same for every precision.
PRODUCT_SIZE, GPU_PRODUCT_SIZE = 512, 4096

DTYPES = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}


def choose_device(wanted: Device, number: int = 0) -> torch.device:
    """Return the device: for `auto` CUDA, then MPS, then the CPU.

    Args:
        number: of the GPU, where there are several.

    Raises:
        UserError: the device asked for is not there.
    """
    there = {
        Device.cuda: torch.cuda.is_available(),
        Device.mps: torch.backends.mps.is_available(),
        Device.cpu: True,
    }
    if wanted is Device.auto:
        wanted = next(device for device, present in there.items() if present)
    if not there[wanted]:
        found = ", ".join(device.value for device, present in there.items() if present)
        raise UserError(f"trainer.device={wanted.value} is not on this machine. Allowed here: auto, {found}.")
    if wanted is Device.cuda and number >= torch.cuda.device_count():
        raise UserError(
            f"Rank {number} of this machine has no GPU: there are {torch.cuda.device_count()}. Start fewer ranks, or set "
            f"trainer.backend=gloo, which lets ranks share a GPU."
        )
    return torch.device(wanted.value, number) if wanted is Device.cuda else torch.device(wanted.value)


@cache
def device_name(device: torch.device) -> str:
    """Return the name of the GPU or, elsewhere, of the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpu_info = Path("/proc/cpuinfo")  # Linux only
    lines = cpu_info.read_text().split("\n") if cpu_info.is_file() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def limit_primitive_cache() -> None:
    """Bound what oneDNN keeps on a CPU; to be called before anything is computed."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PRIMITIVES)


def keep_freed_memory(device: torch.device) -> None:
    """Have memory that is freed on a CPU reused, in this process from now on.

    glibc gives a block of 32 MiB and more back to the system as soon as it is freed, and the next one is made of new
    pages, which can cost more than what is computed on them. It is told to keep them; `MemoryReleaser` gives them back.
    """
    if device.type == "cpu":
        set_malloc_options({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1})


def set_malloc_options(options: Mapping[int, int]) -> None:
    """Set options of glibc's allocator, where it is the system's."""
    set_option = _glibc("mallopt")
    if set_option is not None:
        for option, value in options.items():
            set_option(option, value)


def choose_precision(wanted: Precision, device: torch.device) -> Precision:
    """Return the precision: for `auto` bfloat16 where the device multiplies it clearly faster than float32.

    Raises:
        UserError: TF32 is asked for without a GPU.
    """
    if wanted is Precision.tf32 and device.type != "cuda":
        raise UserError(
            f"precision=tf32 needs a GPU, and this run computes on {device.type}. Allowed here: auto, fp32, bf16, fp16."
        )
    if wanted is not Precision.auto:
        return wanted
    # Older GPUs emulate bfloat16: slowly, and not in every kernel.
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return Precision.fp32
    return (
        Precision.bf16
        if _seconds(torch.float32, device) > 1.5 * _seconds(torch.bfloat16, device)
        else Precision.fp32
    )


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """Return the context in which the forward pass runs.

    On a GPU it also decides, until the next call, whether float32 products are computed in TF32: in every precision but
    fp32. The backward pass, which runs outside the context, needs the same setting.
    """
    if device.type == "cuda":
        set_tf32(precision is not Precision.fp32)
    dtype = DTYPES.get(precision)
    return torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def set_tf32(allowed: bool) -> None:
    """Set whether a GPU computes float32 products and recurrent layers in TF32; PyTorch's default is the layers alone."""
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def to_host(tensor: Tensor) -> npt.NDArray[Any]:
    """Return the values of a tensor on the host.

    On a GPU the host waits here until all operations queued so far are done. Every value that the host needs of a
    computation comes through this function, and each caller states why it needs one; an optimizer step needs none.
    """
    return tensor.detach().cpu().numpy()


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def memory_in_use(device: torch.device) -> int:
    """Return the memory in use, in bytes: on the GPU if there is one, else resident; where neither is known, 0."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return _status("VmRSS") if STATUS.is_file() else 0


def release_memory() -> None:
    """Give memory that was freed back to the system, which glibc does not do by itself.

    Batches of hundreds of shapes leave holes between what is still in use; without this the resident memory of a
    CPU run grows from epoch to epoch.
    """
    trim = _glibc("malloc_trim")
    if trim is not None:
        trim(0)


class MemoryReleaser:
    """Has memory that updates on a CPU have freed given back: now and then, and before there is more of it than at first.

    What is freed between two releases grows from epoch to epoch, as the blocks in use come to lie further apart. So that
    the memory of a run does not, the most of it in the first epoch is all there may be later.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._updates = 0
        self._most = 0  # of an update of the first epoch, bytes
        self._kept: int | None = None  # bytes after the last release

    def after_step(self, first_epoch: bool) -> None:
        """Be called after each update; `first_epoch` is that of this process."""
        if self.device.type != "cpu":
            return
        freed = 0 if self._kept is None else memory_in_use(self.device) - self._kept
        if first_epoch:
            self._most = max(self._most, freed)
        if self._updates % RELEASE_EVERY == 0 or (not first_epoch and freed > self._most):
            release_memory()
            self._kept = memory_in_use(self.device)
        self._updates += 1


def peak_memory(device: torch.device) -> int:
    """Return the most memory used since `reset_peak_memory`, in bytes: on the GPU if there is one, else resident.

    Where the system cannot reset the resident peak (macOS), it is that of the whole process.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if STATUS.is_file():
        return _status("VmHWM")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def reset_peak_memory(device: torch.device) -> None:
    """Begin a new measurement of the peak: several runs of a multirun share a process."""
    if device.type == "cuda":
        # PyTorch initializes CUDA at the first tensor; before that, resetting the counters raises an error.
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats(device)
    elif STATUS.is_file():
        Path("/proc/self/clear_refs").write_text("5")


def _glibc(name: str) -> Callable[..., int] | None:
    """Return a function of glibc's allocator, None where the system has another library."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _status(name: str) -> int:
    """Return one of the sizes that Linux notes of this process, in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _seconds(dtype: torch.dtype, device: torch.device, times: int = 10) -> float:
    """Return the time of the fastest of several matrix products."""
    size = GPU_PRODUCT_SIZE if device.type == "cuda" else PRODUCT_SIZE
    a, b = (torch.ones(size, size, dtype=dtype, device=device) for _ in range(2))
    fastest = float("inf")
    for _ in range(times):
        synchronize(device)
        start = time.perf_counter()
        torch.mm(a, b)
        synchronize(device)
        fastest = min(fastest, time.perf_counter() - start)
    return fastest
