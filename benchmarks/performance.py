"""The tables of docs/performance.md, made from docs/training.cpu.json and docs/training.cuda.json.

python -m benchmarks.training --multi30k DIR --json docs/training.cpu.json …
python -m benchmarks.performance
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.learners import MODELS
from benchmarks.page import Part, filled, table
from benchmarks.training import PEER
from seq2seq_lab.files import write_atomically

DOCS = Path(__file__).parents[1] / "docs"
PART = Part(
    DOCS / "performance.md",
    first="<!-- speed: made from docs/training.*.json by `python -m benchmarks.performance` -->",
    last="<!-- end of the speed -->",
)
TITLES = {"cpu": "On a CPU", "cuda": "On a GPU"}
COMMANDS = {
    "cuda": "python -m benchmarks.training --device cuda --multi30k DIR --joeynmt PYTHON --steps 50 "
    "--json docs/training.cuda.json --plot docs/images/training.cuda.png"
}
HEADS = ("ratio", "code, batches, precision", "target tokens/s", "× the first", "of the peak", "peak memory")


def main() -> None:
    """Rewrite the generated part of the page."""
    text = PART.page.read_text("utf-8")
    write_atomically(PART.page, PART.replaced(text, tables(DOCS)))


def tables(folder: Path) -> list[str]:
    """Return the generated part, from the reports in a folder."""
    lines: list[str] = []
    for device, title in TITLES.items():
        path = folder / f"training.{device}.json"
        lines += ["", f"### {title}", ""]
        if path.is_file():
            lines += section(json.loads(path.read_text("utf-8")))
        else:
            lines += ["Not yet measured. The command:", "", "```", COMMANDS[device], "```"]
    return lines[1:]


def section(report: Mapping[str, Any]) -> list[str]:
    """Return what one report says: how it was made, and a table a model."""
    peaks = report["peak_flops_per_second"]
    lines = [
        "```",
        report["command"],
        "```",
        "",
        *filled(
            f"{report['data']}, batches of {report['batch_size']} sentences. {report['machine']}; "
            f"{report['threads']} threads, torch {report['torch']}, commit {report['commit'][:7]}. Matrix-product peak: "
            + ", ".join(f"{name} {peak / 1e9:,.0f} GFLOP/s" for name, peak in peaks.items())
            + f". Medians of {report['rounds']} rounds of {report['updates_a_round']} updates each, in turns; in "
            f"parentheses the slowest and the fastest round. × the first: the quotient with the first row of the same "
            f"ratio, of each round its own."
        ),
    ]
    for model in dict.fromkeys(row["model"] for row in report["rows"]):
        rows = [row for row in report["rows"] if row["model"] == model]
        title = MODELS[model].title if model in MODELS else PEER
        lines += [
            "",
            f"**{title}**, {rows[0]['parameters']:,} parameters",
            "",
            *table(HEADS, [cells(row, rows) for row in rows], 2),
        ]
    return lines


def cells(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one row of a model's table."""
    differs = row["parameters"] != rows[0]["parameters"]
    return [
        f"{row['ratio']:g}",
        f"{row['name']}: {row['code']}, {row['batches']}, {row['precision']}"
        + (f", {row['parameters']:,} parameters" if differs else ""),
        f"{row['target_tokens_per_second']:,.0f} ({row['slowest']:,.0f}–{row['fastest']:,.0f})",
        f"{row['times_the_reference']:.2f} ({row['least_times']:.2f}–{row['most_times']:.2f})",
        "–" if row["share"] is None else f"{row['share']:.1%}",
        f"{row['peak_bytes'] / 2**30:.2f} GiB",
    ]


if __name__ == "__main__":
    main()
