"""The report on a GPU: each part measures on a CPU, and a part that fails does not stop the others."""

import json
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import Work
from seq2seq_lab.config.schema import Precision


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work("part", torch.device("cpu"), tmp_path, {})


def found(work: Work) -> dict[str, Any]:
    """Return the content of the part's file."""
    return json.loads((work.folder / "part.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("measure", "head", "rows"),
    [
        (gpu.describe_machine, "what", [3, 4]),
        (gpu.measure_training, "ratio", [6]),
        (gpu.measure_decoding, "search", [4]),
        (gpu.measure_memory, "epoch", [8]),
    ],
)
def test_a_part_on_a_cpu(
    work: Work,
    measure: Callable[[Work], None],
    head: str,
    rows: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.decoding.choose_precision", lambda *_: Precision.bf16)
    measure(work)
    tables = found(work)["tables"].values()
    assert all(len(table["rows"]) >= least for table, least in zip(tables, rows, strict=True))
    for table in tables:
        assert table["heads"][0] == head
        assert {len(row) for row in table["rows"]} == {len(table["heads"])}


def test_failed_tests_fail_the_part(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.CompletedProcess([], 1, "FAILED test_x\n== 1 failed, 2 passed in 3s ==\n")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: ended)
    with pytest.raises(RuntimeError, match="FAILED test_x"):
        gpu.run_tests(work)
    assert found(work)["notes"] == {"0": "1 failed, 2 passed in 3s."}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    gpu.run_tests(work)
    assert found(work)["notes"]["1"] == "Not run: pytest is not installed."


def test_a_gpu_is_also_measured_in_tf32(work: Work) -> None:
    on_gpu = Work("training", torch.device("cuda"), work.folder, {})
    assert [arm.precision.value for arm in gpu.arms(on_gpu)] == ["fp32", "fp32", "tf32", "bf16"]


def script(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


def test_a_part_that_crashes_or_hangs_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert gpu.run_limited(script("print('x')"), 60, log) == {"status": "finished"}
    ended = gpu.run_limited(script("raise ValueError('broken')"), 60, log)
    assert ended["status"] == "failed with status 1"
    assert "ValueError: broken" in ended["error"]
    assert gpu.run_limited(script("import os; os.kill(os.getpid(), 11)"), 60, log)["status"].endswith("-11")
    # The processes that it has started end with it.
    start = "import subprocess; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    ended = gpu.run_limited(script(start), 1, log)
    assert ended["status"] == "failed: stopped after its 1 s"
    stat = Path("/proc", ended["error"].strip(), "stat")
    until = time.monotonic() + 20
    while (alive := stat.exists() and stat.read_text().split()[2] != "Z") and time.monotonic() < until:
        time.sleep(0.1)
    assert not alive


def measure(folder: Path, minutes: float = 2) -> dict[str, Any]:
    options = Namespace(device="cpu", out=folder, minutes=minutes, parts=["machine", "memory", "tests"])
    return gpu.measure(options, torch.device("cpu"))


def test_a_failed_part_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def run_limited(arguments: list[str], seconds: float, log: Path) -> dict[str, Any]:
        limits.append(seconds)
        if "memory" in arguments:
            return {"status": "failed with status 1", "error": "Traceback"}
        Work(log.stem, torch.device("cpu"), tmp_path, {}).note("of this part")
        return {"status": "finished"}

    monkeypatch.setattr(gpu, "run_limited", run_limited)
    report = measure(tmp_path)
    assert [part["status"] for part in report["parts"].values()] == [
        "finished",
        "failed with status 1",
        "finished",
    ]
    assert json.loads((tmp_path / "report.json").read_text("utf-8")) == json.loads(json.dumps(report))
    assert (tmp_path / "report.md").read_text("utf-8").count("of this part") == 2
    # Time that a part does not use is left to later parts; together they have two minutes.
    assert limits[0] < limits[1] < limits[2] == pytest.approx(120, abs=5)


def test_a_report_that_is_cut_off_has_the_results_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_limited(arguments: list[str], seconds: float, log: Path) -> dict[str, Any]:
        Work(log.stem, torch.device("cpu"), tmp_path, {}).note(log.stem)
        if "memory" in arguments:
            raise KeyboardInterrupt
        return {"status": "finished"}

    monkeypatch.setattr(gpu, "run_limited", run_limited)
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path)
    parts = json.loads((tmp_path / "report.json").read_text("utf-8"))["parts"]
    assert [(part["status"], part["notes"]) for part in parts.values()] == [
        ("finished", {"0": "machine"}),
        ("cut off", {"0": "memory"}),
    ]


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    words = ["--device", "cpu", "--out", str(tmp_path), "--parts", "machine", "tests"]
    command = [sys.executable, "-m", "benchmarks.gpu", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=gpu.ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(gpu.PARTS["tests"].title):
                process.terminate()  # as a batch system does at the end of a job's time
    assert process.returncode == 128 + signal.SIGTERM
    parts = json.loads((tmp_path / "report.json").read_text("utf-8"))["parts"]
    assert [part["status"] for part in parts.values()] == ["finished", "cut off"]
    assert "Peaks" in parts["machine"]["tables"]
