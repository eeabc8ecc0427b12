"""The tables of docs/performance.md, made from docs/training.cpu.json, docs/decoding.cpu.json and docs/gpu.json.

python -m benchmarks.training --multi30k DIR --json docs/training.cpu.json …
python -m benchmarks.decoding --multi30k DIR --json docs/decoding.cpu.json …
python -m benchmarks.gpu && cp outputs/gpu/report.json docs/gpu.json
python -m benchmarks.performance
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import decoding, gpu
from benchmarks.learners import MODELS
from benchmarks.page import filled, table, update
from benchmarks.training import ALL_ON, HEADS, Row, cells, peaks_line, title

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "performance.md"


def main() -> None:
    """Write the tables into the page."""
    update(pages(DOCS))


def pages(folder: Path) -> dict[Path, dict[str, list[str]]]:
    """Return the generated parts of the page by name, from the reports in a folder."""
    report = json.loads((folder / "training.cpu.json").read_text("utf-8"))
    parts = {
        "speed": speed(folder),
        "aims": aims(report),
        "decoding": translating(folder),
        "gpu": on_a_gpu(folder),
    }
    return {PAGE: parts}


def speed(folder: Path) -> list[str]:
    """Return how fast models are trained on a CPU."""
    lines = section(json.loads((folder / "training.cpu.json").read_text("utf-8")))
    return [*lines, "", "![Target tokens a second of each way to train](images/training.cpu.png)"]


def on_a_gpu(folder: Path) -> list[str]:
    """Return the report of `benchmarks.gpu`, or the command that makes it."""
    path = folder / "gpu.json"
    if path.is_file():
        return gpu.markdown(json.loads(path.read_text("utf-8")))
    return ["Not yet measured. The command:", "", "```", gpu.COMMAND, "```"]


def section(report: Mapping[str, Any]) -> list[str]:
    """Return what one report says: how it was made, and a table a model."""
    lines = [
        "```",
        report["command"],
        "```",
        "",
        *filled(
            f"{report['data']}, batches of {report['batch_size']} sentences. {report['machine']}; "
            f"{report['threads']} threads, torch {report['torch']}, commit {report['commit'][:7]}. "
            f"{peaks_line(report['peak_flops_per_second'])}, measured before and after each model, of which the most. "
            f"Medians of {report['rounds']} rounds of "
            f"{report['updates_a_round']} updates each, in turns; in parentheses the slowest and the fastest round. "
            f"× the first: the quotient with the first row of the same ratio, of each round its own. Of the peak: in the "
            f"row's own precision, by the operations that the model needs for real tokens. Peak memory is the process's, "
            f"which holds reference and package at once (JoeyNMT: its own)."
        ),
    ]
    measured = [Row(**row) for row in report["rows"]]
    for model in dict.fromkeys(row.model for row in measured):
        rows = [row for row in measured if row.model == model]
        lines += [
            "",
            f"**{title(model)}**, {rows[0].parameters:,} parameters",
            "",
            *table(HEADS, [cells(row, rows[0], report["peak_flops_per_second"]) for row in rows], 2),
        ]
    return lines


def aims(report: Mapping[str, Any]) -> list[str]:
    """Return what was aimed at and what was reached of it."""
    first, peaks = Row(**report["rows"][0]), report["peak_flops_per_second"]
    measured = {
        (row["model"], row["ratio"]): cells(Row(**row), first, peaks)
        for row in report["rows"]
        if row["name"] == ALL_ON
    }
    times, share = HEADS.index("× the first"), HEADS.index("of the peak")
    return table(
        ("target tokens a second, × its own reference", "aimed at", "reached (slowest–fastest round)"),
        [
            ("Sutskever, ratio 1", "10", measured["sutskever", 1][times]),
            ("Bahdanau, ratio 1", "10", measured["bahdanau", 1][times]),
            ("Luong, ratio 1", "15", measured["luong", 1][times]),
            *((f"{name.title()}, ratio 0.5", "5", measured[name, 0.5][times]) for name in MODELS),
            ("JoeyNMT's model, × JoeyNMT", "3", measured["joeynmt", 1][times]),
            ("Luong, ratio 1, share of the bfloat16 peak", "30%", measured["luong", 1][share]),
        ],
        1,
    )


def translating(folder: Path) -> list[str]:
    """Return how fast models translate on a CPU."""
    report = json.loads((folder / "decoding.cpu.json").read_text("utf-8"))
    lines = filled(
        f"{report['data']}, batches of {report['batch_size']} sentences. {report['machine']}; {report['threads']} "
        f"threads, torch {report['torch']}, commit {report['commit'][:7]}. "
        f"{decoding.rates_line(report['bytes_per_second'])}."
    )
    rows = [decoding.Row(**row) for row in report["rows"]]
    for group in dict.fromkeys(row.group for row in rows):
        own = [decoding.cells(row) for row in rows if row.group == group]
        lines += ["", f"**{group}**", "", *table(decoding.HEADS, own, 1)]
    return lines


if __name__ == "__main__":
    main()
