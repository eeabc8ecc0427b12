"""Measures of attention by phenomenon and by source length, from the statistics per example that a run keeps."""

import math
from collections.abc import Mapping, Sequence

from seq2seq_lab.metrics.attention import ATTENTION_MEASURES
from seq2seq_lab.metrics.measurement import GroupValue
from seq2seq_lab.metrics.registry import BUILT_IN
from seq2seq_lab.metrics.texts import length_groups, named_groups
from seq2seq_lab.reporting.recorded import length_bounds
from seq2seq_lab.reporting.runs import Run
from seq2seq_lab.runtime.tables import TextTable

MEASURES = ("aer", "aer_oracle", "aer_read", *(one.name for one in ATTENTION_MEASURES))


def groups_of(run: Run) -> dict[str, Mapping[str, Sequence[int]]]:
    """Return the groups of the examples of the test set as numbers of examples, by what they are grouped by."""
    rows, bounds = run.examples, length_bounds(run)
    found: dict[str, Mapping[str, Sequence[int]]] = {}
    if bounds and all(row.get("source_words") is not None for row in rows):
        found["source length in words"] = length_groups([row["source_words"] for row in rows], bounds)
    if phenomena := named_groups(filter(None, (row.get("phenomena") or "").split(", ")) for row in rows):
        found["phenomenon"] = phenomena
    return found


def grouped_measures(run: Run) -> dict[str, dict[str, list[GroupValue]]]:
    """Return the measures of attention of a run on its test set, by group: {grouping: {name of the metric: values}}.

    Empty without attention, without statistics, and if sentences with several references are scored once.
    """
    count = len(run.examples)
    names = [
        name
        for name in MEASURES
        if name in run.declared.metrics and len(run.statistics.get(name, ())) == count > 0
    ]
    return {
        label: {name: [_value(run, name, group, index) for group, index in groups.items()] for name in names}
        for label, groups in groups_of(run).items()
        if names
    }


def _value(run: Run, name: str, group: str, index: Sequence[int]) -> GroupValue:
    totals_K = run.statistics[name][[*index]].sum(0)
    value = BUILT_IN[name].value(totals_K) if len(index) else math.nan
    return GroupValue(group, len(index), value if math.isfinite(value) else None)


def attention_tables(run: Run) -> list[TextTable]:
    """Return the measures of attention as tables: a row for each group, a column for each measure."""
    tables = []
    for label, measured in grouped_measures(run).items():
        declared = [run.declared.metrics[name] for name in measured]
        rows = [
            [
                f"{own[0].group} ({own[0].count:,})",
                *(one.text(v.value) for one, v in zip(declared, own, strict=True)),
            ]
            for own in zip(*measured.values(), strict=True)
        ]
        heads = ["", *(one.label for one in declared)]
        tables.append(TextTable(f"attention by {label} (number of examples), test", heads, rows))
    return tables
