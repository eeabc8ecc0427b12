"""The examples of the first test set of a run, to choose one to look at."""

from typing import Any

from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.registry import BUILT_IN
from seq2seq_lab.reporting.runs import Run

MOST = 2000  # examples
MEASURED = {
    "aer": "AER",
    "loops": "loop",
}  # metrics of single examples by name, with the names of their columns


def examples(run: Run | UserError) -> dict[str, Any]:
    """Return the recorded examples of a run as values of JSON; see `studio_page.recorded`.

    Returns:
        "rows": input, reference, output, score, source words, phenomena, and the metrics of `MEASURED`, each None if it is
        not known; "heads": the names of these columns; "total": the number of examples; "note": why there are none, else
        what a score is.
    """
    heads = ["input", "reference", "output", "score", "words", "phenomena", *MEASURED.values()]
    if isinstance(run, UserError):
        return {"heads": heads, "rows": [], "total": 0, "note": str(run)}
    found, measures = run.examples, {name: measured(run, name) for name in MEASURED}
    rows = [
        [
            *(one[key] for key in ("input", "reference", "output", "score")),
            one.get("source_words") or len(one["input"].split()),
            one.get("phenomena") or "",
            *(values[index] for values in measures.values()),
        ]
        for index, one in enumerate(found[:MOST])
    ]
    note = run.result.get("page", {}).get("examples", {}).get("note", "")
    return {
        "heads": heads,
        "rows": rows,
        "total": len(found),
        "note": note if found else "The run has no recorded outputs.",
    }


def measured(run: Run, name: str) -> list[float | None]:
    """Return a built-in metric of each example; None where it is not known."""
    rows_NK = run.statistics.get(name)
    if rows_NK is None or len(rows_NK) != len(run.examples):
        return [None] * len(run.examples)
    metric = BUILT_IN[name]
    return [
        float(value) if metric.is_defined(totals_K) else None
        for totals_K, value in zip(rows_NK, metric.values(rows_NK), strict=True)
    ]
