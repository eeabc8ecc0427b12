"""The tables of docs/performance.md, generated from docs/training.*.json, docs/decoding.*.json and docs/gpu.json.

python -m benchmarks.training --multi30k DIR --json docs/training.cpu.json …
python -m benchmarks.decoding --multi30k DIR --json docs/decoding.cpu.json …
python -m benchmarks.gpu && cp outputs/gpu/report.json docs/gpu.json
python -m benchmarks.performance
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import decoding, gpu
from benchmarks.machine import conditions_line, peaks_line
from benchmarks.page import filled, table, update
from benchmarks.training import HEADS, Row, title

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Write the tables into the page."""
    update(pages(DOCS))


def pages(folder: Path) -> dict[Path, dict[str, list[str]]]:
    """Return the generated parts of the page by name, from the reports in a folder."""
    parts = {
        "speed": in_turn(folder.glob("training.*.json"), speed),
        "decoding": in_turn(folder.glob("decoding.*.json"), decoding_speed),
        "gpu": on_a_gpu(folder / "gpu.json"),
    }
    return {folder / "performance.md": parts}


def in_turn(paths: Iterable[Path], show: Callable[[Mapping[str, Any]], list[str]]) -> list[str]:
    """Return the reports of several machines one after another."""
    lines: list[str] = []
    for path in sorted(paths):
        report = json.loads(path.read_text("utf-8"))
        lines += [
            "",
            f"### {report['machine']}, {threads(report)}, commit {report['commit'][:7]}",
            "",
            *show(report),
        ]
    return lines[1:]


def threads(report: Mapping[str, Any]) -> str:
    """Return the number of threads of a report as text."""
    return f"{report['threads']} thread{'s' * (report['threads'] > 1)}"


def on_a_gpu(path: Path) -> list[str]:
    """Return the report of `benchmarks.gpu`, or the command for it."""
    if path.is_file():
        return gpu.markdown(json.loads(path.read_text("utf-8")))
    return [f"Not yet measured. Run: `{gpu.COMMAND}`"]


def about(report: Mapping[str, Any]) -> str:
    """Return machine, software and data of a report."""
    return (
        f"{report['machine']}; {threads(report)}, torch {report['torch']}, commit {report['commit'][:7]}. "
        f"{report['data']}, batches of {report['batch_size']} sentences."
    )


def speed(report: Mapping[str, Any]) -> list[str]:
    """Return command, machine and a table per model of a training benchmark."""
    steps = report["steps_per_round"]
    rounds = f"Medians of {report['rounds']} rounds of {steps} step{'s' * (steps > 1)} of each row in turn."
    peaks = report["peak_flops_per_second"]
    lines = [
        "```",
        report["command"],
        "```",
        "",
        *filled(f"{about(report)} {rounds} {peaks_line(peaks)}.{conditions_line(report)}"),
    ]
    measured = [Row(**row) for row in report["rows"]]
    for model in dict.fromkeys(row.model for row in measured):
        rows = [row for row in measured if row.model == model]
        cells = [row.cells(rows[0], peaks) for row in rows]
        lines += ["", f"**{title(rows[0])}**", "", *table(HEADS, cells, 2)]
    return lines


def decoding_speed(report: Mapping[str, Any]) -> list[str]:
    """Return command, machine and a table per model of a decoding benchmark."""
    peaks = report.get("peak_flops_per_second")
    measured = [decoding.rates_line(report["bytes_per_second"]), *([peaks_line(peaks)] if peaks else [])]
    # The bound of earlier reports has no matrix products.
    heads = decoding.HEADS if peaks else (*decoding.HEADS[:-1], "of the memory bound")
    lines = [
        "```",
        report["command"],
        "```",
        "",
        *filled(f"{about(report)} {'. '.join(measured)}.{conditions_line(report)}"),
    ]
    rows = [decoding.Row(**row) for row in report["rows"]]
    for group in dict.fromkeys(row.group for row in rows):
        own = [row.cells() for row in rows if row.group == group]
        lines += ["", f"**{group}**", "", *table(heads, own, 1)]
    return lines


if __name__ == "__main__":
    main()
