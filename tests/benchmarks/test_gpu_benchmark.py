"""The GPU's report: each part finds something on a CPU, and no part takes the others with it."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu, gpu_parts
from benchmarks.gpu_parts import Figures, Work


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(torch.device("cpu"), None, time.time() + 300, {}, tmp_path, Figures(tmp_path / "part.json"))


def found(work: Work) -> dict[str, Any]:
    """What the part has written to its file."""
    return json.loads(work.figures.path.read_text("utf-8"))


@pytest.mark.parametrize(
    ("measure", "heads", "rows"),
    [
        (gpu_parts.describe_machine, "what", [4, 3]),
        (gpu_parts.measure_training, "ratio", [6]),
        (gpu_parts.measure_decoding, "search", [5]),
        (gpu_parts.profile_loops, "what", [3]),
        (gpu_parts.measure_memory, "epoch", [8]),
    ],
)
def test_a_part_on_a_cpu(work: Work, measure: Callable[[Work], None], heads: str, rows: list[int]) -> None:
    measure(work)
    tables = found(work)["tables"].values()
    assert len(tables) == len(rows)
    for table, least in zip(tables, rows, strict=True):
        assert table["heads"][0] == heads
        assert len(table["rows"]) >= least - (least == 4)
        assert all(len(row) == len(table["heads"]) for row in table["rows"])


def test_a_part_out_of_time_keeps_what_it_has(work: Work) -> None:
    late = Work(work.device, None, time.time() - 1, {"fp32": 1e9, "bf16": 1e9}, work.folder, work.figures)
    gpu_parts.measure_memory(late)
    assert found(work)["notes"] == ["Not measured, out of time: from update 1 of 8 of epoch 1 on."]


def test_without_pytest_the_tests_are_not_run(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    gpu_parts.run_tests(work)
    assert found(work)["notes"] == ["Not run: pytest is not installed."]


def test_failed_tests_fail_the_part(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.CompletedProcess([], 1, "FAILED test_x\n== 1 failed, 2 passed in 3s ==\n")
    monkeypatch.setattr(Work, "call", lambda *arguments, **environment: ended)
    with pytest.raises(RuntimeError, match="FAILED test_x"):
        gpu_parts.run_tests(work)
    assert found(work)["notes"] == ["1 failed, 2 passed in 3s."]


def test_a_gpu_is_measured_in_tf32_too(work: Work) -> None:
    on_gpu = Work(torch.device("cuda"), None, 0.0, {}, work.folder, work.figures)
    found = [way.precision.value for way in gpu_parts.ways_to_train(on_gpu)]
    assert found == ["fp32", "fp32", "tf32", "bf16"]


@pytest.mark.parametrize(
    ("losses", "same"), [({1: 2.01, 2: 1.0}, "yes"), ({1: 2.05, 2: 1.0}, "NO"), ({1: 2.0}, "NO")]
)
def test_losses_are_compared(work: Work, losses: dict[int, float], same: str) -> None:
    assert gpu_parts.compared(work, "a run", losses, {1: 2.0, 2: 1.0})[-1] == same
    assert found(work)["values"]["a run"]["same"] == (same == "yes")


def test_a_run_that_is_stopped_has_its_last_figures(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(self: Work, *arguments: str) -> None:
        (work.folder / "main").mkdir()
        rows = ({"step": 20, "time": 1.0, "train/loss": 5.0}, {"step": 30, "time": 2.0, "val/bleu": 3.0})
        (work.folder / "main" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        raise subprocess.TimeoutExpired("python", 1)

    monkeypatch.setattr(Work, "train", stopped)
    gpu_parts.run_main_command(work)
    result = found(work)["values"]["result"]
    assert (result["step"], result["train/loss"], result["val/bleu"]) == (30, 5.0, 3.0)
    assert "Stopped before its end" in found(work)["notes"][1]


def test_generated_text_has_the_size_of_multi30k(tmp_path: Path) -> None:
    gpu_parts.write_text(tmp_path / "train.tsv", 500, 1)
    pairs = [line.split("\t") for line in (tmp_path / "train.tsv").read_text("utf-8").split("\n")[:-1]]
    assert len(pairs) == 500
    means = [sum(len(pair[side].split(" ")) for pair in pairs) / 500 for side in (0, 1)]
    assert means == pytest.approx([12.4, 13.1], abs=0.6)


def script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_part_that_crashes_or_hangs_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ended = gpu.run_limited(script("import os; print(os.environ['A'])"), 60, log, {"A": "b"})
    assert (ended, log.read_text()) == ({"status": "finished"}, "b\n")
    ended = gpu.run_limited(script("raise ValueError('broken')"), 60, log, {})
    assert ended["status"] == "failed with status 1"
    assert "ValueError: broken" in ended["error"]
    ended = gpu.run_limited(script("import os; os.kill(os.getpid(), 11)"), 60, log, {})
    assert ended["status"] == "failed with status -11"
    # What it has started ends with it.
    start = "import subprocess; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    ended = gpu.run_limited(script(start), 2, log, {})
    assert ended["status"] == "failed: stopped after its 2 s"
    stat = Path("/proc", ended["error"].strip(), "stat")
    until = time.monotonic() + 20
    while (alive := stat.exists() and stat.read_text().split()[2] != "Z") and time.monotonic() < until:
        time.sleep(0.1)
    assert not alive


def options_of(folder: Path, *words: str) -> Any:
    return gpu.parser().parse_args(["--device", "cpu", "--out", str(folder), *words])


def test_a_failed_part_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def run_limited(arguments: list[str], seconds: float, log: Path, hidden: Any) -> dict[str, Any]:
        limits.append(seconds)
        if "memory" in arguments:
            return {"status": "failed with status 1", "error": "Traceback"}
        Figures(log.with_suffix(".json")).note("of this part")
        return {"status": "finished"}

    monkeypatch.setattr(gpu, "run_limited", run_limited)
    options = options_of(tmp_path, "--minutes", "2", "--parts", "machine", "memory", "main")
    report = gpu.measure(options, torch.device("cpu"))
    assert [part["status"] for part in report["parts"].values()] == [
        "finished",
        "failed with status 1",
        "finished",
    ]
    assert json.loads((tmp_path / "report.json").read_text("utf-8")) == report
    text = (tmp_path / "report.md").read_text("utf-8")
    assert text.count("of this part") == 2
    assert "python -m benchmarks.gpu --device cpu --minutes 2 --parts machine memory main" in text
    # What one part leaves over is for the next; together they have two minutes.
    assert limits[0] < limits[1] < limits[2] == pytest.approx(120, abs=5)


def test_a_report_that_is_cut_off_has_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_limited(arguments: list[str], seconds: float, log: Path, hidden: Any) -> dict[str, Any]:
        Figures(log.with_suffix(".json")).note(f"found by {log.stem}")
        if "main" in arguments:
            raise KeyboardInterrupt
        return {"status": "finished"}

    monkeypatch.setattr(gpu, "run_limited", run_limited)
    with pytest.raises(KeyboardInterrupt):
        gpu.measure(options_of(tmp_path, "--parts", "machine", "main"), torch.device("cpu"))
    parts = json.loads((tmp_path / "report.json").read_text("utf-8"))["parts"]
    assert [(part["status"], part["notes"]) for part in parts.values()] == [
        ("finished", ["found by machine"]),
        ("cut off", ["found by main"]),
    ]


def test_the_command(tmp_path: Path) -> None:
    words = ["--device", "cpu", "--out", str(tmp_path), "--parts", "machine", "tests"]
    command = [sys.executable, "-m", "benchmarks.gpu", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=gpu_parts.ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(gpu.PARTS["tests"].title):
                process.terminate()  # as a batch system does at the end of its time
    assert process.returncode == 128 + signal.SIGTERM
    parts = json.loads((tmp_path / "report.json").read_text("utf-8"))["parts"]
    assert [part["status"] for part in parts.values()] == ["finished", "cut off"]
    assert parts["machine"]["values"]["peak_flops_per_second"]["fp32"] > 0
