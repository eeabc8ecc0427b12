"""docs/performance.md shows the reports in docs/."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import cli, decoding, gpu, performance, training
from benchmarks.machine import Conditions, CoreTimes, conditions, conditions_line, seconds
from benchmarks.page import with_parts

ROW: dict[str, Any] = {
    **{"model": "cho", "ratio": 0.5, "name": "package, all on", "code": "package", "batches": "exact length"},
    **{"precision": "bf16", "parameters": 14219781, "tokens_per_second": 5432.1, "slowest": 5000.0},
    **{"fastest": 6000.0, "times_the_first": 5.4321, "times_lowest": 5.0, "times_highest": 6.0},
    **{"operations_per_second": 4.156e11, "peak_bytes": 3 * 2**30 // 2},
}


def test_the_page_shows_the_reports() -> None:
    ((page, parts),) = performance.pages(performance.DOCS).items()
    text = page.read_text("utf-8")
    assert with_parts(text, parts) == text, "run: python -m benchmarks.performance"


def test_a_row_of_training() -> None:
    first, other = training.Row(**ROW), training.Row(**ROW | {"parameters": 5, "operations_per_second": None})
    peaks = {"bf16": 9.1e11}
    speed = ["5,432 (5,000–6,000)", "5.43 (5.00–6.00)"]
    what = "package, all on: package, exact length, bf16"
    assert first.cells(first, peaks) == ["0.5", what, *speed, "45.7%", "1.50 GiB"]
    assert other.cells(first, peaks) == ["0.5", f"{what}, 5 parameters", *speed, "–", "1.50 GiB"]


def test_a_row_of_decoding() -> None:
    speed = {name: ROW[name] for name in ("tokens_per_second", "slowest", "fastest", "times_the_first")}
    row = decoding.Row(
        group="a model", name="package, greedy", sentences_per_second=1038.27, share=0.12, **speed
    )
    assert row.cells() == ["package, greedy", "1,038.3", "5,432 (5,000–6,000)", "5.43", "12%"]


def test_the_conditions_of_a_measurement() -> None:
    start = Conditions(100.0, CoreTimes(busy=10.0, stolen=1.0, total=100.0), own=5.0)
    quiet = Conditions(101.0, CoreTimes(busy=30.0, stolen=1.0, total=120.0), own=25.0)
    cores = max(2, os.cpu_count() or 1)
    report = conditions(
        start, quiet, cores, [{"times_the_first": 2, "times_lowest": 1.9, "times_highest": 2.1}]
    )
    assert report["warnings"] == []
    assert report["conditions"] == {"peak_after_over_before": 1.01, "steal": 0.0, "others": 0.0}
    busy = Conditions(150.0, CoreTimes(busy=28.0, stolen=3.0, total=120.0), own=15.0)
    report = conditions(start, busy, cores, [{"times_the_first": 2, "times_lowest": 1, "times_highest": 3}])
    assert report["conditions"] == pytest.approx({"peak_after_over_before": 1.5, "steal": 0.1, "others": 0.4})
    assert len(report["warnings"]) == 4
    assert len(conditions(start, busy, 1, [])["warnings"]) == 2  # CPU time is measured
    text = conditions_line(report)
    assert "steal 10%" in text
    assert "other processes 40%" in text
    assert conditions_line({}) == ""
    assert Conditions.now(torch.device("cpu")).own > 0


def test_the_report_of_a_gpu_is_shown(tmp_path: Path) -> None:
    assert gpu.COMMAND in performance.on_a_gpu(tmp_path / "gpu.json")[0]
    tables = {"A model": {"heads": ["search", "tokens/s"], "rows": [["greedy", "12,345"]], "names": 1}}
    about = {
        "command": gpu.COMMAND,
        "machine": "a GPU",
        "torch": "2.13.0",
        "commit": None,
        "changed_since": True,
    }
    parts = {
        "decoding": {"status": "finished", "seconds": 31.4, "notes": {"0": "A note."}, "tables": tables},
        "memory": {"status": "failed with status 1", "seconds": 2.0, "error": "Traceback\nValueError: x"},
        "tests": {"status": "cut off"},
    }
    (tmp_path / "gpu.json").write_text(json.dumps({**about, "parts": parts}), "utf-8")
    text = "\n".join(performance.on_a_gpu(tmp_path / "gpu.json"))
    assert "a GPU; torch 2.13.0, commit unknown with changes." in text
    assert "### Decoding speed\n\nFinished, 31 s.\n\nA note.\n\n**A model**" in text
    assert "| greedy | 12,345 |" in text
    assert "Failed with status 1, 2 s.\n\n```\nTraceback\nValueError: x\n```" in text
    assert text.endswith("### Tests on the GPU\n\nCut off, 0 s.")


def test_a_given_clock_counts_the_time_that_a_process_waits() -> None:
    def wait() -> None:
        time.sleep(0.05)

    assert seconds(wait, torch.device("cpu"), time.perf_counter) >= 0.05


def test_a_recorded_command_has_no_path() -> None:
    words = ["--multi30k=/home/x/data/", "--steps", "3", "--json=/home/x/out.json"]
    parser = training.parser()
    assert cli.command(parser, parser.parse_args([*words, "--ratios", "1", "0.3"])) == (
        "python -m benchmarks.training --json FILE --multi30k DIR --ratios 1.0 0.3 --steps 3"
    )
