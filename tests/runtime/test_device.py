"""Device, precision and memory."""

import subprocess
import sys

import pytest
import torch

from seq2seq_lab.config.schema import Precision
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime import device
from seq2seq_lab.runtime.device import (
    check_precision,
    choose_precision,
    memory_in_use,
    peak_memory,
    release_memory,
    reset_peak_memory,
)

CPU = torch.device("cpu")
MIB = 2**20

linux = pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from Linux's /proc")


@linux
def test_memory_is_what_is_in_use_and_the_peak_stays() -> None:
    release_memory()  # a run in this process may have kept freed memory
    reset_peak_memory(CPU)
    before = memory_in_use(CPU)
    numbers = torch.ones(256 * MIB, dtype=torch.uint8)
    assert memory_in_use(CPU) - before > 200 * MIB
    del numbers
    release_memory()
    assert memory_in_use(CPU) - before < 100 * MIB
    assert peak_memory(CPU) - before > 200 * MIB


@linux
def test_memory_freed_between_what_is_still_in_use_goes_back_to_the_system() -> None:
    # Blocks of a size that glibc takes from its heap: the last one alone keeps the heap from shrinking.
    blocks = [torch.ones(64 * 1024, dtype=torch.uint8) for _ in range(4000)]
    full = memory_in_use(CPU)
    del blocks[:-1]
    release_memory()
    assert full - memory_in_use(CPU) > 150 * MIB
    assert blocks[-1].sum() == 64 * 1024


REUSE = """
import torch
from seq2seq_lab.runtime.device import keep_freed_memory, memory_in_use, release_memory

def freed():
    full = torch.ones(256 * 2**20, dtype=torch.uint8)
    before = memory_in_use(CPU)
    del full
    kept = before - memory_in_use(CPU) < 2**20
    release_memory()
    return "kept" if kept and before - memory_in_use(CPU) > 200 * 2**20 else "given back"

CPU = torch.device("cpu")
keep_freed_memory(torch.device("cuda"))
print(freed())
keep_freed_memory(CPU)
print(freed())
"""


@linux
def test_freed_memory_is_kept_for_the_next_block_until_it_is_released() -> None:
    """glibc keeps freed memory for a CPU run only. In a separate process, since the setting is global."""
    done = subprocess.run([sys.executable, "-c", REUSE], check=True, capture_output=True, text=True)
    assert done.stdout.split("\n") == ["given back", "kept", ""]


def test_freed_memory_is_limited_to_the_maximum_of_the_first_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"kept": 1000, "freed": 0}
    released: list[int] = []

    def release() -> None:
        released.append(held["freed"])
        held["freed"] = 0

    monkeypatch.setattr(device, "memory_in_use", lambda of: held["kept"] + held["freed"])
    monkeypatch.setattr(device, "release_memory", release)
    monkeypatch.setattr(device, "RELEASE_EVERY", 5)

    def steps(count: int, freed: int, first: bool) -> list[int]:
        released.clear()
        for _ in range(count):
            held["freed"] += freed
            bound.after_step(first)
        return list(released)

    bound = device.MemoryReleaser(torch.device("cpu"))
    assert steps(10, 10, first=True) == [10, 50]  # the first release is after the first step
    held["kept"] += 500  # memory that a validation keeps
    assert steps(1, 0, first=False) == [40]
    assert steps(10, 10, first=False) == [50, 50]
    assert steps(10, 20, first=False) == [60, 40, 60, 40]  # more per step: released earlier
    gpu = device.MemoryReleaser(torch.device("cuda"))
    gpu.after_step(first_epoch=True)
    assert len(released) == 4


def test_cuda_is_initialized_before_its_counters_are_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before that, PyTorch raises "Invalid device argument 0: did you call init?"."""
    called: list[str] = []
    monkeypatch.setattr(torch.cuda, "init", lambda: called.append("init"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: called.append("reset"))
    reset_peak_memory(torch.device("cuda", 0))
    assert called == ["init", "reset"]


@pytest.mark.parametrize(("has_bfloat16", "chosen"), [(True, Precision.bf16), (False, Precision.fp32)])
def test_precision_of_a_gpu(has_bfloat16: bool, chosen: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated bfloat16 is not chosen."""
    asked: list[bool] = []

    def supported(including_emulation: bool = True) -> bool:
        asked.append(including_emulation)
        return has_bfloat16 or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    monkeypatch.setattr(device, "_seconds", lambda dtype, _: {torch.bfloat16: 1.0, torch.float32: 2.0}[dtype])
    assert choose_precision(Precision.auto, torch.device("cuda", 0)) is chosen
    assert asked == [False]
    assert choose_precision(Precision.fp16, torch.device("cuda", 0)) is Precision.fp16


def test_float32_on_a_gpu_is_not_rounded_to_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own default computes cuDNN's recurrent layers in TF32."""
    set_to: list[bool] = []
    monkeypatch.setattr(device, "set_tf32", set_to.append)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: None)
    for precision in (Precision.fp32, Precision.tf32, Precision.bf16):
        device.autocast(precision, torch.device("cuda", 0))
    device.autocast(Precision.fp32, torch.device("cpu"))
    assert set_to == [False, True, True]


def test_tf32_is_set_for_products_and_layers() -> None:
    layers, products = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    try:
        for allowed, name in ((True, "high"), (False, "highest")):
            device.set_tf32(allowed)
            assert torch.backends.cudnn.allow_tf32 == allowed
            assert torch.get_float32_matmul_precision() == name
    finally:
        torch.backends.cudnn.allow_tf32 = layers
        torch.set_float32_matmul_precision(products)


def test_tf32_needs_a_gpu() -> None:
    with pytest.raises(UserError, match=r"^trainer\.test_precision=tf32"):
        check_precision("trainer.test_precision", Precision.tf32, torch.device("cpu"))
    check_precision("trainer.test_precision", Precision.bf16, torch.device("cpu"))
    check_precision("trainer.test_precision", Precision.tf32, torch.device("cuda", 0))
    assert choose_precision(Precision.tf32, torch.device("cuda", 0)) is Precision.tf32


@pytest.mark.parametrize(("kind", "width"), [("cpu", 512), ("cuda", 4096)])
def test_the_products_of_a_gpu_outlast_their_launch(
    kind: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, ...]] = []
    monkeypatch.setattr(torch, "ones", lambda *size, **_: made.append(size))
    monkeypatch.setattr(torch, "mm", lambda *_: None)
    monkeypatch.setattr(device, "synchronize", lambda _: None)
    device._seconds(torch.float32, torch.device(kind))
    assert made == [(width, width)] * 2
