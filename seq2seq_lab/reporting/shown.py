"""Prints, writes and logs the report of an evaluation."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from seq2seq_lab import plots
from seq2seq_lab.files import write_atomically, write_json_lines
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.shades import text_lines
from seq2seq_lab.runtime.tables import records_table
from seq2seq_lab.tasks.report import Examples, Picture, Report
from seq2seq_lab.tasks.splits import dotted
from seq2seq_lab.tracking import Tracker

PAGE_DOTS_PER_INCH = 100


def show_validation(report: Report, prefix: str, folder: Path, tracker: Tracker, step: int) -> None:
    """Print and log the examples of a validation, and write its pictures."""
    examples = report.examples
    if report.lines:
        console.print_and_log(text_lines(report.lines))
    elif examples is not None and examples.rows:
        # Those that pages show, or all if pages show none.
        keys = [*examples.columns.values()] or [*examples.rows[0]]
        texts = [{key: row[key] for key in keys if isinstance(row[key], str)} for row in examples.rows]
        console.print_and_log(records_table(examples.name, texts))
    if examples is not None:
        log_examples(examples, prefix, tracker, step)
    for picture in report.pictures:
        path = folder / f"{picture.file}_step_{step:08d}.png"
        plots.save_figure(picture.figure, path)
        if picture.logged is not None:
            # One name per picture, because W&B expects pictures of one name to have one size.
            tracker.log_images(f"{prefix}/{picture.logged}", [path], [picture.title], step)


def show_end(report: Report, prefix: str, folder: Path, tracker: Tracker, step: int) -> None:
    """Write the final evaluation of a split to the run folder and the log, and that of a test set to the loggers."""
    logged, examples = prefix != "val", report.examples
    if examples is not None:
        write_json_lines(folder / f"{examples.name}.{dotted(prefix)}.jsonl", examples.rows)
    for table in report.tables:
        console.log_only(replace(table, title=f"{prefix}: {table.title}"))
        if logged:
            tracker.log_table(f"{prefix}/{table.name}", table.heads, table.rows, step)
    if report.tables:
        write_json_lines(folder / f"tables.{dotted(prefix)}.jsonl", map(asdict, report.tables))
    for picture in report.pictures:
        path = folder / f"{picture.file}.png"
        plots.save_for_print(picture.figure, path)
        if logged and picture.logged is not None:
            tracker.log_images(f"{prefix}/{picture.logged}", [path], [picture.title], step)
    if examples is not None and logged:
        drawn = {picture.title: folder / f"{picture.file}.png" for picture in report.pictures}
        log_examples(worst_first(examples), prefix, tracker, step, drawn)
    if report.heatmaps is not None and report.heatmaps.maps:
        write_json_lines(folder / f"{report.heatmaps.name}.{dotted(prefix)}.jsonl", report.heatmaps.records)
    if pictures := page_pictures(report):
        write_json_lines(folder / f"pictures.{dotted(prefix)}.jsonl", map(_encoded, pictures))
    for name, text in report.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, text)


def worst_first(examples: Examples) -> Examples:
    """Return examples in the order of their scores, those with the lowest first."""
    if (key := examples.columns.get("score")) is None:
        return examples
    scored = sorted(examples.rows, key=lambda row: (row[key] is None, row[key] or 0.0))
    return replace(examples, rows=scored)


def log_examples(
    examples: Examples, prefix: str, tracker: Tracker, step: int, drawn: Mapping[str, Path] | None = None
) -> None:
    """Log examples as a table, with a column per key.

    Args:
        drawn: pictures by the inputs that they are of; they are a further column.
    """
    if not examples.rows:
        return
    heads, rows = [*examples.rows[0]], [[*row.values()] for row in examples.rows]
    if drawn and (key := examples.columns.get("input")) is not None:
        heads.append("picture")
        for values, row in zip(rows, examples.rows, strict=True):
            values.append(drawn.get(row[key]))
    tracker.log_table(f"{prefix}/{examples.name}", heads, rows, step)


def page_pictures(report: Report) -> Sequence[Picture]:
    """Return the pictures that pages show: those of a report without heatmaps."""
    return report.pictures if report.heatmaps is None else ()


def _encoded(picture: Picture) -> dict[str, str]:
    png = plots.render_png(picture.figure, PAGE_DOTS_PER_INCH)
    return {"title": picture.title, "picture": base64.b64encode(png).decode()}


def page_files(report: Report, prefix: str, shown: str) -> dict[str, Any]:
    """Return the entries of `page` in `result.json`: the files of a split that pages show; see `reporting.runs.Run`.

    Args:
        prefix: that of the split.
        shown: the prefix of the split whose examples, heatmaps and tables are shown.
    """
    entries: dict[str, Any] = {}
    examples, heatmaps = report.examples, report.heatmaps
    if prefix == shown and examples is not None and examples.columns:
        file = f"{examples.name}.{prefix}.jsonl"
        entries["examples"] = {"file": file, "columns": dict(examples.columns), "note": examples.note}
    if prefix == shown and heatmaps is not None:
        entries["heatmaps"] = {"file": f"{heatmaps.name}.{prefix}.jsonl", "columns": dict(heatmaps.keys)}
    if prefix == shown and report.tables:
        entries["tables"] = {
            "file": f"tables.{prefix}.jsonl",
            "columns": {one: one for one in ("title", "heads", "rows")},
        }
    if page_pictures(report):
        file = f"pictures.{dotted(prefix)}.jsonl"
        entries["pictures"] = {"file": file, "columns": {"title": "title", "picture": "picture"}}
    return entries
