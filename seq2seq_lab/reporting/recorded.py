"""Checks of the files of a run: one malformed run must not stop a comparison with others."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from seq2seq_lab.config.schema import FLAT_PARTS
from seq2seq_lab.config.type_checks import describe, fits
from seq2seq_lab.errors import UserError
from seq2seq_lab.reporting.score_tables import first_split

if TYPE_CHECKING:
    from seq2seq_lab.reporting.runs import Run

# The types of entries; a run may have others.
PROVENANCE: dict[str, Any] = {
    **{"commit": str | None, "dirty": bool | None, "source": str, "test_precision": str},
    **{"components": dict, "data": dict, "machine": dict},
}
MACHINE: dict[str, Any] = {"device_name": str, "threads": int, "torch": str}
ROWS: dict[str, dict[str, Any]] = {  # of the files that the page shows
    "examples": {"input": str, "reference": str, "output": str, "score": float | None},
    "heatmaps": {"title": str, "columns": list[str], "rows": list[str], "weights": list[list[float]]},
    "pictures": {"title": str, "picture": str},
    "tables": {"title": str, "heads": list[str], "rows": list[list[str]]},
}
# Entries that these rows may have.
OPTIONAL: dict[str, Any] = {"note": str | None, "source_words": int | None, "phenomena": str | None}
STEP_FILE = re.compile(r"step_(\d{1,18})\.jsonl")
BASE64 = re.compile(r"[A-Za-z0-9+/=]*")


def check_config(config: Mapping[str, Any], choices: Mapping[str, str]) -> None:
    """Refuse a configuration without the entries by which runs are grouped.

    Args:
        choices: the chosen value of each group, from `run.json`.

    Raises:
        UserError: names the entry.
    """
    for name in (*FLAT_PARTS, "teacher_forcing"):
        _check(config, {name: dict | None}, "config.yaml")
    _check(config, {"model": dict, "seed": int, "dataset": dict | None}, "config.yaml")
    _check(config["model"], {"name": str}, "config.yaml: model")
    used = [name for name in (*FLAT_PARTS, "teacher_forcing") if config[name] is not None]
    _check(choices, dict.fromkeys(("task", "optimizer", "schedule", *used), str), "run.json: choices")


def check_run(run: "Run") -> None:
    """Refuse a run whose record is malformed.

    Raises:
        UserError: names the entry.
    """
    _check(run.result, {f"{first_split(run.result)}/examples": str, "provenance": dict}, "result.json")
    record = {**run.record, **run.result["provenance"]}
    _check(record, PROVENANCE, "run.json")
    _check(record["data"], {"fingerprint": str}, "run.json: data")
    if not fits([*record["components"].values()], list[str]):
        raise UserError("run.json: components is not a mapping of texts")
    for machine in (record["machine"], *record.get("resumed_on", ())):
        _check(machine, MACHINE, "run.json: machine")
    _check(
        {"overrides": [], "changed": [], **record}, {"overrides": list[str], "changed": list[str]}, "run.json"
    )
    for change in record.get("extended", ()):
        _check(change, {"step": int}, "run.json: extended")
    check_statistics(run)
    check_page(run)


def check_statistics(run: "Run") -> None:
    """Refuse statistics that the declared metrics cannot be computed from; see `check_run`."""
    from seq2seq_lab.metrics.registry import BUILT_IN

    for name, one in run.declared.metrics.items():
        if name not in run.statistics:
            continue
        totals_1K = run.statistics[name].sum(axis=0, keepdims=True)
        if not np.isfinite(totals_1K).all() or (not one.built_in and totals_1K.shape[1] != 2):
            raise UserError(
                f"{run.statistics_file}: {name} has {totals_1K.shape[1]} columns, or values that are not finite"
            )
        try:
            if one.built_in and name in BUILT_IN:
                BUILT_IN[name].values(totals_1K)
        except (IndexError, ValueError) as error:
            raise UserError(f"{run.statistics_file}: {name} cannot be computed: {error}") from error


def differing_counts(runs: Sequence["Run"]) -> dict[int, str]:
    """Return the runs whose number of examples differs from most runs of their test set: the reason by index."""
    counts: dict[str, Counter[int]] = {}
    rows = [len(next(iter(run.statistics.values()), ())) for run in runs]
    for run, count in zip(runs, rows, strict=True):
        if count:
            counts.setdefault(run.test_set, Counter())[count] += 1
    found = {}
    for index, (run, count) in enumerate(zip(runs, rows, strict=True)):
        if count and count != (most := counts[run.test_set].most_common(1)[0][0]):
            found[index] = (
                f"{run.statistics_file} has {count:,} examples, and other runs of its test set have {most:,}"
            )
    return found


def check_page(run: "Run") -> None:
    """Refuse a run whose list of files for the page, or a name of these files, is malformed; see `check_run`."""
    page = run.result.get("page", {})
    if not isinstance(page, Mapping):
        raise UserError("result.json: page is not a mapping")
    for kind, entry in page.items():
        if kind not in ROWS:
            raise UserError(f"result.json: page has an unknown entry {kind!r}")
        _check(entry, {"file": str, "columns": dict}, f"result.json: page.{kind}")
        if missing := ROWS[kind].keys() - entry["columns"].keys():
            raise UserError(f"result.json: page.{kind}.columns has no {', '.join(sorted(missing))}")
        if not fits([*entry["columns"].values()], list[str]) or not isinstance(entry.get("note", ""), str):
            raise UserError(f"result.json: page.{kind} has a value that is not a text")
    for path in run.folder.glob("attention/step_*.jsonl"):
        if not STEP_FILE.fullmatch(path.name):
            raise UserError(f"{path}: the name is not step_NUMBER.jsonl")


def check_page_rows(run: "Run") -> None:
    """Refuse a run whose files for the page have malformed rows. It reads them.

    Raises:
        UserError: names the file and the entry.
    """
    length_bounds(run)
    validations = [row for _, rows in run.snapshots for row in rows]
    for kind, rows in (
        ("examples", run.examples),
        ("heatmaps", [*run.heatmaps, *validations]),
        ("pictures", run.pictures),
        ("tables", run.tables),
    ):
        for row in rows:
            own = {name: hint for name, hint in OPTIONAL.items() if name in row}
            _check(row, {**ROWS[kind], **own}, f"{kind} of the page")
            if kind == "heatmaps" and not all(map(math.isfinite, chain.from_iterable(row["weights"]))):
                raise UserError("heatmaps of the page: weights have a value that is not finite")
            if kind == "pictures" and not BASE64.fullmatch(row["picture"]):
                raise UserError("pictures of the page: a picture is not in base64")


def length_bounds(run: "Run") -> list[int]:
    """Return the lengths between the groups of sentences; empty for a task without them.

    Raises:
        UserError: the setting is not a list of numbers.
    """
    text = run.settings.get("task.length_bounds", "[]")
    try:
        bounds = json.loads(text)
    except ValueError:
        bounds = None
    if not fits(bounds, list[int]):
        raise UserError(f"config.yaml: task.length_bounds={text[:80]} is not a list of numbers")
    return list(bounds)


def _check(values: Any, hints: Mapping[str, Any], where: str) -> None:
    """Refuse values without these types.

    Raises:
        UserError: names the first one that is wrong.
    """
    for key, hint in hints.items():
        value = values.get(key, _MISSING) if isinstance(values, Mapping) else _MISSING
        if value is _MISSING:
            raise UserError(f"{where} has no {key}")
        if not fits(value, hint) or (isinstance(value, float) and not math.isfinite(value)):
            raise UserError(f"{where}: {key}={str(value)[:80]!r} is not {describe(hint)}")


_MISSING = object()
