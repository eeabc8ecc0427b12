"""The metrics of a run as tables, as a line, and as a file of statistics."""

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.cells import cell_len

from seq2seq_lab.data.words import graphemes
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import MAX_LINES_BYTES
from seq2seq_lab.metrics.base import Array, Declarations, GroupingDeclaration
from seq2seq_lab.metrics.measurement import Measurement
from seq2seq_lab.reporting import baselines
from seq2seq_lab.runtime.tables import TextTable, records_table

if TYPE_CHECKING:
    from rich.table import Table

# A recorded run, by python -m benchmarks.results add, whose metrics by group are shown beside those of runs on its test set.
RECORDED = Path(__file__).with_name("vanilla.json")
VALIDATION = "val"  # the prefix of the validation split
WORST_OUTPUTS = "worst_outputs"  # after the prefix of a split, in result.json
SHOWN_WORST = 2
DEFECTS = {"loop": "loop", "at_limit": "ended by the length limit"}  # by key of such an entry
WORST_WIDTH = 100  # columns of a text in their table
LOOPS = "loops"  # a metric that is shown even if it is 0
CLUSTERS = "_clusters"  # an array of the file of statistics; no metric has this name


def score_tables(result: Mapping[str, Any]) -> list[TextTable]:
    """Return tables of all metrics of a result, over all examples and by group, with a column per scored split."""
    groups = [group_table(grouping, columns) for _, grouping, columns in test_groups(result)]
    return [*overall_tables(result, everything=True), *groups]


def overall_tables(result: Mapping[str, Any], everything: bool) -> list[TextTable]:
    """Return tables of the metrics over all examples, for the model and for the trivial baselines.

    Args:
        everything: show all metrics, not only the metrics to be shown.
    """
    declared, splits = Declarations.read(result), scored_splits(result)
    bounds = {name for one in declared.metrics.values() for name in one.bounds}
    rows = [
        [label_of(declared, name), *(cell(result, declared, split, name) for split in splits)]
        for name, one in declared.metrics.items()
        if (one.shown or everything)
        and name not in bounds
        and any(f"{split}/{name}" in result for split in splits)
    ]
    results = TextTable("results", ["± 95% interval", *splits], rows)
    return [results, *baselines.tables(result, declared.metrics, splits)]


def test_groups(
    result: Mapping[str, Any],
) -> Iterator[tuple[str, GroupingDeclaration, dict[str, Sequence[Mapping[str, Any]]]]]:
    """Yield the key of each grouping of a result, the grouping, and its values by test set and of the recorded run."""
    splits = scored_splits(result)
    for key, grouping in Declarations.read(result).groupings.items():
        columns = {split: result[f"{split}/{key}"] for split in splits if f"{split}/{key}" in result}
        if columns:
            yield key, grouping, columns | recorded_groups(result, key)


def group_table(
    grouping: GroupingDeclaration, columns: Mapping[str, Sequence[Mapping[str, Any]]]
) -> TextTable:
    """Return a table of a metric by group of examples; see `group_rows`."""
    title = f"{grouping.declaration.label} by {grouping.label} (number of examples)"
    return TextTable(title, ["", *columns], group_rows(grouping, columns))


def closing_table(result: Mapping[str, Any]) -> TextTable:
    """Return a table of the metrics of a result that runs are compared by, and of the best trivial baseline."""
    declared, splits = Declarations.read(result), scored_splits(result)
    rows = []
    for name, one in declared.metrics.items():
        quiet = None if name == LOOPS else one.quiet_value
        if one.compared and any(result.get(f"{split}/{name}", quiet) != quiet for split in splits):
            cells = (cell(result, declared, split, name) for split in splits)
            rows.append([label_of(declared, name), *cells])
        if name == declared.primary and (best := baselines.best(result, declared, splits[0])):
            label, key = best
            texts = [one.text(result.get(f"{key}/{split}/{name}")) for split in splits]
            rows.append([f"{one.label}, {label}", *texts])
    return TextTable("", ["± 95% interval", *splits], rows)


def worst_outputs(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the entries of the worst outputs of `first_split`."""
    found: Sequence[Mapping[str, Any]] = result.get(f"{first_split(result)}/{WORST_OUTPUTS}", ())
    return found


def defects(row: Mapping[str, Any]) -> list[str]:
    """Return the defects at the end of one of the worst outputs."""
    return [text for key, text in DEFECTS.items() if row[key]]


def worst_table(result: Mapping[str, Any]) -> list["Table"]:
    """Return a table of the worst outputs of `first_split`: their texts, shortened, and their defects."""
    records = []
    for row in worst_outputs(result)[:SHOWN_WORST]:
        about = [*defects(row), f"sentence BLEU {row['sentence_bleu']:.1f}"]
        texts = {name: value for name, value in row.items() if isinstance(value, str) and name != "attention"}
        shortened = {name: without_middle(text, WORST_WIDTH) for name, text in texts.items()}
        records.append({**shortened, "": ", ".join(about)})
    return [records_table("worst outputs of test", records)] if records else []


def without_middle(text: str, width: int) -> str:
    """Return a text of at most `width` columns: without its middle if it is longer. A loop is at the end of an output."""
    if cell_len(text) <= width:
        return text
    letters, start = graphemes(text), width // 3
    first = sum(end <= start for end in accumulate(map(cell_len, letters)))
    last = sum(end <= width - start - 3 for end in accumulate(map(cell_len, reversed(letters))))
    return f"{''.join(letters[:first])} … {''.join(letters[len(letters) - last :])}"


def scored_splits(result: Mapping[str, Any]) -> list[str]:
    """Return the prefixes of a result's test sets, in their order; that of the validation split if it alone is scored."""
    tests = [
        name.removesuffix("/examples")
        for name in result
        if name.startswith("test/") and name.endswith("/examples")
    ]
    return tests or [VALIDATION]


def first_split(result: Mapping[str, Any]) -> str:
    """Return the prefix of the examples whose outputs pages show; see `scored_splits`."""
    return scored_splits(result)[0]


def split_text(split: str) -> str:
    """Return what a first split is called in sentences."""
    return "the validation split" if split == VALIDATION else "the test set"


def label_of(declared: Declarations, name: str) -> str:
    """Return the label of a metric, with those of its bounds."""
    one = declared.metrics[name]
    bounds = [declared.metrics[bound].label.removeprefix(f"{one.label}, ") for bound in one.bounds]
    return f"{one.label} ({', '.join(bounds)})" if bounds else one.label


def cell(result: Mapping[str, Any], declared: Declarations, split: str, name: str) -> str:
    """Return the value of a metric as text, with its interval and its bounds if it has them."""
    one = declared.metrics[name]
    text = baselines.value_text(result, f"{split}/{name}", one)
    bounds = [one.text(result[f"{split}/{bound}"]) for bound in one.bounds if f"{split}/{bound}" in result]
    return f"{text} ({', '.join(bounds)})" if bounds else text


def recorded_groups(result: Mapping[str, Any], key: str) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Return the groups of the recorded run by its label; empty if it has another test set."""
    recorded = json.loads(RECORDED.read_text("utf-8"))
    if recorded["test/examples"] != result.get("test/examples") or key not in recorded["groups"]:
        return {}
    return {recorded["label"]: recorded["groups"][key]}


def group_rows(
    grouping: GroupingDeclaration, columns: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[list[str]]:
    """Return the values of a grouping as texts, a row per group.

    Groups without an order are sorted by the value in the first column, the worst first.
    """
    one = grouping.declaration
    found = {head: {row["group"]: row for row in rows} for head, rows in columns.items()}
    names = list(dict.fromkeys(name for rows in found.values() for name in rows))
    if not grouping.ordered:
        first = {name: next(rows[name] for rows in found.values() if name in rows)["value"] for name in names}
        names.sort(
            key=lambda name: (
                first[name] is None,
                (first[name] or 0) * (-1 if one.higher_is_better is False else 1),
            )
        )

    def text(row: Mapping[str, Any] | None) -> str:
        return "–" if row is None else f"{one.text(row['value'])} ({row['count']:,})"

    return [[name, *(text(rows.get(name)) for rows in found.values())] for name in names]


def signatures(result: Mapping[str, Any], everything: bool) -> list[tuple[str, str]]:
    """Return (label, signature) of the metrics that have a signature on `first_split`.

    Args:
        everything: return all signatures, not only that of the primary metric.
    """
    declared, split = Declarations.read(result), first_split(result)
    return [
        (one.label, result[f"{split}/{name}_signature"])
        for name, one in declared.metrics.items()
        if (everything or name == declared.primary) and f"{split}/{name}_signature" in result
    ]


def values_line(values: Mapping[str, float], declared: Declarations) -> str:
    """Return the metrics of a validation that are to be shown on one line."""
    return ", ".join(
        f"{one.label} {one.text(values[f'val/{name}'])}"
        for name, one in declared.metrics.items()
        if one.shown and values.get(f"val/{name}", one.quiet_value) != one.quiet_value
    )


def write_statistics(path: Path, measurement: Measurement) -> None:
    """Write the statistics per example of a split, from which the comparison computes its significance tests."""
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, **{CLUSTERS: measurement.clusters, **measurement.statistics})  # type: ignore[arg-type]


def read_statistics(path: Path) -> dict[str, Array]:
    """Return the arrays that `write_statistics` wrote: by the metric's name, and the clusters.

    Raises:
        UserError: the file contains something else, or more than `MAX_LINES_BYTES`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MAX_LINES_BYTES:
            raise ValueError(f"its arrays have {size:,} bytes")
        with np.load(path, allow_pickle=False) as arrays:
            found = dict(arrays)
        for name, array in found.items():
            if array.dtype.kind not in "biuf" or array.ndim != (1 if name == CLUSTERS else 2):
                raise ValueError(f"{name} has {array.ndim} axes of type {array.dtype}")
        if len({len(array) for array in found.values()}) > 1 or CLUSTERS not in found:
            raise ValueError("its arrays do not have one row for each example")
    except (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} is not a file of statistics: {error}. Restore it from a copy.") from error
    return found
