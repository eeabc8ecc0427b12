"""The tables of docs/performance.md, made from docs/training.cpu.json and docs/training.cuda.json.

python -m benchmarks.training --multi30k DIR --json docs/training.cpu.json …
python -m benchmarks.performance
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.page import Part, filled, table
from benchmarks.training import HEADS, Row, cells, peaks_line, title

DOCS = Path(__file__).parents[1] / "docs"
PART = Part(
    DOCS / "performance.md",
    first="<!-- speed: made from docs/training.*.json by `python -m benchmarks.performance` -->",
    last="<!-- end of the speed -->",
)
TITLES = {"cpu": "On a CPU", "cuda": "On a GPU"}


def main() -> None:
    """Rewrite the generated part of the page."""
    PART.write(tables(DOCS))


def tables(folder: Path) -> list[str]:
    """Return the generated part, from the reports in a folder."""
    lines: list[str] = []
    for device, heading in TITLES.items():
        path, picture = folder / f"training.{device}.json", f"images/training.{device}.png"
        lines += ["", f"### {heading}", ""]
        if path.is_file():
            lines += section(json.loads(path.read_text("utf-8")))
            if (folder / picture).is_file():
                lines += ["", f"![Target tokens a second of each way to train]({picture})"]
        else:
            lines += ["Not yet measured. The command:", "", "```", command_for(device), "```"]
    return lines[1:]


def command_for(device: str) -> str:
    """Return the command that measures a kind of device."""
    return (
        f"python -m benchmarks.training --device {device} --multi30k DIR --joeynmt PYTHON "
        f"--json docs/training.{device}.json --plot docs/images/training.{device}.png"
    )


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


if __name__ == "__main__":
    main()
