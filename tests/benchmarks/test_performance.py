"""docs/performance.md shows what was measured."""

import json
from pathlib import Path
from typing import Any

from benchmarks import gpu, performance
from benchmarks.learners import MODELS
from benchmarks.page import with_parts
from benchmarks.training import command, parser


def report() -> dict[str, Any]:
    row = {
        "model": "cho",
        "ratio": 0.5,
        "name": "package, all on",
        "code": "package",
        "batches": "exact length",
        "precision": "bf16",
        "parameters": 14219781,
        "target_tokens_per_second": 5432.1,
        "slowest": 5000.0,
        "fastest": 6000.0,
        "times_the_reference": 5.4321,
        "least_times": 5.0,
        "most_times": 6.0,
        "operations_per_second": 4.156e11,
        "peak_bytes": 3 * 2**30 // 2,
    }
    return {
        "command": "python -m benchmarks.training --multi30k DIR",
        "data": "Multi30k",
        "batch_size": 128,
        "machine": "2 cores",
        "threads": 2,
        "torch": "2.13.0",
        "commit": "0123456789abcdef",
        "peak_flops_per_second": {"fp32": 2.1e11, "bf16": 9.1e11},
        "rounds": 4,
        "updates_a_round": 5,
        "rows": [
            row,
            row
            | {"model": "joeynmt", "name": "JoeyNMT", "operations_per_second": None, "parameters": 13000000},
        ],
    }


def test_the_page_shows_the_reports() -> None:
    for page, parts in performance.pages(performance.DOCS).items():
        text = page.read_text("utf-8")
        assert with_parts(text, parts) == text, "run: python -m benchmarks.performance"


def test_a_report_becomes_tables(tmp_path: Path) -> None:
    (tmp_path / "training.cpu.json").write_text(json.dumps(report()), "utf-8")
    text = " ".join(performance.speed(tmp_path))
    assert (
        "| 0.5 | package, all on: package, exact length, bf16 | 5,432 (5,000–6,000) | 5.43 (5.00–6.00) | 45.7% | 1.50 GiB |"
        in text
    )
    assert (
        "| 0.5 | JoeyNMT: package, exact length, bf16 | 5,432 (5,000–6,000) | 5.43 (5.00–6.00) | – | 1.50 GiB |"
        in text
    )
    assert "fp32 210 GFLOP/s, bf16 910 GFLOP/s" in text
    assert "commit 0123456." in text


def test_a_gpu_that_was_not_measured_has_the_command(tmp_path: Path) -> None:
    assert performance.on_a_gpu(tmp_path) == ["Not yet measured. The command:", "", "```", gpu.COMMAND, "```"]


def test_the_report_of_a_gpu_is_shown(tmp_path: Path) -> None:
    tables = {"A model": {"heads": ["search", "tokens/s"], "rows": [["greedy", "12,345"]], "names": 1}}
    about = {"command": gpu.COMMAND, "date": "today", "device": "a GPU", "torch": "2.13.0", "commit": None}
    parts = {
        "decoding": {"status": "finished", "seconds": 31.4, "notes": ["A note."], "tables": tables},
        "memory": {"status": "failed with status 1", "seconds": 2.0, "error": "Traceback\nValueError: x"},
        "main": {"status": "cut off"},
    }
    (tmp_path / "gpu.json").write_text(json.dumps({**about, "changed_since": True, "parts": parts}), "utf-8")
    text = "\n".join(performance.on_a_gpu(tmp_path))
    assert "a GPU; torch 2.13.0, commit unknown with changes; today." in text
    assert "### Decoding speed\n\nFinished, 31 s.\n\nA note.\n\n**A model**" in text
    assert "| greedy | 12,345 |" in text
    assert "Failed with status 1, 2 s.\n\n```\nTraceback\nValueError: x\n```" in text
    assert text.endswith("### The main command\n\nCut off, 0 s.")


def test_aims_stand_beside_what_was_reached() -> None:
    row = report()["rows"][0]
    reached = {
        ("sutskever", 1.0): 6.281,
        ("bahdanau", 1.0): 11.5,
        ("luong", 1.0): 17.8,
        ("joeynmt", 1.0): 5.3,
    }
    reached |= {(model, 0.5): 5 + number for number, model in enumerate(MODELS)}
    rows = [
        row | {"model": model, "ratio": ratio, "times_the_reference": times}
        for (model, ratio), times in reached.items()
    ]
    others = [row | {"model": "sutskever", "ratio": 1.0, "name": "reference", "times_the_reference": 1.0}]
    _, _, *lines = performance.aims(report() | {"rows": [*others, *rows]})
    assert lines[0] == "| Sutskever, ratio 1 | 10 | 6.28 (5.00–6.00) |"
    assert lines[4] == "| Cho, ratio 0.5 | 5 | 6.00 (5.00–6.00) |"
    assert lines[-2:] == [
        "| JoeyNMT's model, × JoeyNMT | 3 | 5.30 (5.00–6.00) |",
        "| Luong, ratio 1, share of the bfloat16 peak | 30% | 45.7% |",
    ]


def test_a_report_on_translating_becomes_tables(tmp_path: Path) -> None:
    row = {
        "group": "a model",
        "name": "package, greedy 1, bf16",
        "sentences_per_second": 1038.27,
        "tokens_per_second": 15028.8,
        "slowest": 14314.2,
        "fastest": 15817.0,
        "times_the_first": 26.827,
        "share": 0.1226,
    }
    rows = [row | {"name": "loop", "share": None}, row, row | {"group": "another"}]
    rates = {"bytes_per_second": {"fp32": 2.4e10, "bf16": 1.91e10}, "rows": rows}
    (tmp_path / "decoding.cpu.json").write_text(json.dumps(report() | rates), "utf-8")
    text = "\n".join(performance.translating(tmp_path))
    assert "| package, greedy 1, bf16 | 1,038.3 | 15,029 (14,314–15,817) | 26.83 | 12% |" in text
    assert "| loop | 1,038.3 | 15,029 (14,314–15,817) | 26.83 | – |" in text
    assert [text.count(f"**{group}**") for group in ("a model", "another")] == [1, 1]
    assert "Memory read at 24.0 GB/s in fp32, 19.1 GB/s in bf16." in text.replace("\n", " ")


def test_a_report_names_no_path_of_the_machine() -> None:
    words = ["--multi30k=/home/x/data/", "--joeynmt", "./python", "--steps", "4", "--ratios", "1", "0.3"]
    options = parser().parse_args([*words, "--json=/home/x/out.json", "--plot", "docs/a b.png"])
    assert command(options) == (
        "python -m benchmarks.training --ratios 1.0 0.3 --steps 4 --multi30k DIR --joeynmt PYTHON --json FILE "
        "--plot 'docs/a b.png'"
    )
