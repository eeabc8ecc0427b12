"""Runs `rehearsal/rehearsal.py`, which tests the code for GPUs without a GPU: no cuDNN and no CUDA kernel."""

import os
import subprocess
import sys
from pathlib import Path

import hydra
import pytest
import torch

from seq2seq_lab.config import schema as config
from seq2seq_lab.config.compose import composer

FOLDER = Path(__file__).parent / "rehearsal"


@pytest.fixture(scope="module")
def no_op_cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a library that replaces CUDA; see `no_op_cuda.cpp`."""
    torch_folder = Path(torch.__file__).parent
    library = tmp_path_factory.mktemp("rehearsal") / "no_op_cuda.so"
    libraries = torch_folder / "lib"
    found = (
        f"-I{torch_folder / 'include'}",
        f"-L{libraries}",
        f"-Wl,-rpath,{libraries}",
        "-lc10",
        "-ltorch_cpu",
    )
    made = (
        "g++",
        "-std=c++20",
        "-shared",
        "-fPIC",
        str(FOLDER / "no_op_cuda.cpp"),
        "-o",
        str(library),
        *found,
    )
    subprocess.run(made, check=True)
    return library


@pytest.mark.slow
@pytest.mark.fake_gpu
def test_the_rehearsal(no_op_cuda: Path) -> None:
    """The process is separate because the library has to be loaded before PyTorch and applies to all tests."""
    paths = (FOLDER, FOLDER.parent, *filter(None, [os.environ.get("PYTHONPATH")]))
    command = (sys.executable, "-m", "pytest", "-q", "-n0", "-p", "fake_cuda", str(FOLDER / "rehearsal.py"))
    environment = os.environ | {
        "NO_OP_CUDA": str(no_op_cuda),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
    }
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_optimizer_is_fused() -> None:
    """A fused optimizer has one kernel for all weights, and handles float16 infinities on the device."""
    with composer():
        for name in config.group_values("optimizer"):
            assert hydra.compose("config", [f"optimizer={name}"]).optimizer.fused is True, name
