"""The table of a comparison as CSV and as LaTeX."""

import csv
import io
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.metrics.significance import LEAST_TESTED, LEVEL
from seq2seq_lab.reporting.comparison import (
    P_MODELS,
    Column,
    Line,
    Table,
    columns,
    difference_cell,
    explanation,
    legend,
    score_cells,
    seeds_text,
    settings_columns,
    with_digits,
)
from seq2seq_lab.reporting.distances import DISTANCE_KEYS
from seq2seq_lab.reporting.naming import confounded
from seq2seq_lab.reporting.runs import ASPECTS, FIRST

FACTS = ("data", *ASPECTS, "overrides")  # of the runs, in the CSV file


def as_csv(table: Table) -> str:
    """Return the table with the mean and the deviation of each column, and the recorded facts of the runs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    keys = [column.key for column in columns(table)]
    heads = [
        *table.groups[0].varies,
        "runs",
        *(f"{recorded_key(table, key)} {end}" for key in keys for end in ("mean", "std")),
        *(DISTANCE_KEYS if table.distances else ()),
        *("baseline", "difference", "95% CI low", "95% CI high", "p over seeds", "seeds to decide"),
        *([] if table.margin is None else [f"equal within {table.margin}"]),
        *([P_MODELS] if table.model_comparisons else []),
        f"{recorded_key(table, table.score)} signature",
    ]
    warnings = " | ".join(confounded(table.groups))
    writer.writerow([*heads, *(f"recorded {aspect}" for aspect in FACTS), "not attributable"])
    for line in table.lines:
        scores: list[object] = []
        for key in keys:
            values = line.group.values(key)
            scores.append(statistics.mean(values) if values else "")
            scores.append(statistics.stdev(values) if len(values) > 1 else "")
        runs = line.group.runs
        facts = [
            " | ".join(dict.fromkeys(texts))
            for texts in (
                [run.signature(table.metric) for run in runs],
                *([run.recorded[aspect] for run in runs] for aspect in FACTS),
            )
        ]
        writer.writerow(
            [
                *(*line.group.varies.values(), len(runs), *scores),
                *(table.distances[line.group].values() if table.distances else ()),
                *(*_test_fields(table, line), *facts, warnings),
            ]
        )
    return out.getvalue()


def recorded_key(table: Table, key: str) -> str:
    """Return a key of `result.json` as it is in the folders of the runs; see `runs.of_split`."""
    return f"{table.split}{key.removeprefix(FIRST)}" if key.startswith(f"{FIRST}/") else key


def _test_fields(table: Table, line: Line) -> list[object]:
    """Return the values of a line in the columns of the CSV file about differences."""
    found = line.difference
    fields: list[object] = ["" if line.base is None else line.base.label]
    if found is None:
        fields += [""] * 5
    else:
        fields += [found.value, *found.ends, found.p, seeds_text(found).removeprefix("–")]
    if table.margin is not None:
        fields.append("" if found is None or found.equal is None else found.equal)
    return [*fields, *([line.p_models] if table.model_comparisons else [])]


@dataclass(frozen=True)
class LatexOptions:
    """The content of a LaTeX table.

    Attributes:
        columns: the names of metrics, or keys of `result.json`; None for the columns of the terminal.
        digits: the digits after the decimal point of the metrics; None for those of the terminal.
        caption: the text before the explanations; None for a table without a caption.
    """

    columns: Sequence[str] | None = None
    digits: int | None = None
    caption: str | None = None


def as_latex(table: Table, options: LatexOptions = LatexOptions()) -> str:
    """Return the table for a paper (booktabs), with the warnings about its runs as comments.

    The metric of the best line of each test set is in bold face, and that of each line that is not significantly worse.

    Raises:
        UserError: no run has a value of a column.
    """
    shown = [
        replace(column, format=with_digits(column.format, options.digits))
        if column.key.removeprefix("test/") in table.metrics
        else column
        for column in latex_columns(table, options.columns)
    ]
    heads, texts = score_cells(table, shown)
    named = settings_columns(table)
    lines = []
    for index, (line, scores) in enumerate(zip(table.lines, texts, strict=True)):
        cells = [
            rf"\textbf{{{_latex(text)}}}" if line.top and column.key == table.score else _latex(text)
            for column, text in zip(shown, scores, strict=True)
        ]
        about = [_latex(difference_cell(table, line, name, options.digits)) for name in table.tests]
        before = [*(_latex(column.texts[index]) for column in named), str(len(line.group.runs))]
        lines.append(_latex_row([*before, *cells, *about]))
    heads = [*(column.head for column in named), "runs", *heads, *table.tests]
    tabular = [
        rf"\begin{{tabular}}{{{'l' * len(named)}{'r' * (len(heads) - len(named))}}}",
        r"\toprule",
        _latex_row([*map(_latex, heads)]),
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    joint = confounded(table.groups)
    below = [*legend(table), *joint]
    if options.caption is not None:
        bold = (
            f"Bold: the best {table.label} of each test set, and lines of {LEAST_TESTED} or more runs that are not "
            f"significantly worse (p > {LEVEL})."
            if table.has_best
            else ""
        )
        keys = {column.key for column in shown}
        metrics = {name: one for name, one in table.metrics.items() if f"test/{name}" in keys}
        explained = explanation(replace(table, distances={}), metrics)  # distances are not in this table
        own = options.caption.rstrip()
        own += "." if own[-1:].isalnum() else ""
        texts_below = (own, explained, bold, *(f"{one}." for one in below))
        caption = _latex(" ".join(text for text in texts_below if text))
        tabular = [r"\begin{table}", r"\centering", *tabular, rf"\caption{{{caption}}}", r"\end{table}"]
        below = []
    comments = [
        f"% {' '.join(text.split())}"
        for text in table.warnings
        if text.removeprefix("warning: ") not in joint
    ]
    return "\n".join([*tabular, *(f"\n{_latex(text)}" for text in below), *comments, ""])


def latex_columns(table: Table, names: Sequence[str] | None) -> list[Column]:
    """Return the columns with the given names of metrics or keys, in this order; without names those of the terminal.

    Raises:
        UserError: no run has a value of a column.
    """
    known = columns(table)
    if names is None:
        return [column for column in known if column.shown]
    by_name = {column.key.removeprefix("test/"): column for column in known}
    by_name |= {recorded_key(table, column.key): column for column in known}
    for name in names:
        if name not in by_name:
            listed = ", ".join(column.key.removeprefix("test/") for column in known)
            raise UserError(
                f"--latex-columns={name}: no run has this column.{did_you_mean(name, by_name)} Columns: {listed}."
            )
    return [by_name[name] for name in names]


def _latex_row(cells: Sequence[str]) -> str:
    """Return a row of a table. The line break of the row before would take a bracket or a star as its argument."""
    row = " & ".join(cells)
    return f"{'{}' if row.startswith(('[', '*')) else ''}{row} \\\\"


def _latex(text: str) -> str:
    special: dict[str, str | int | None] = {character: f"\\{character}" for character in "&%$#_{}"}
    special |= {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "<": "$<$", ">": "$>$"}
    special |= {
        "±": r"$\pm$",
        "–": "--",
        "|": r"\textbar{}",
        "−": "$-$",
        "×": r"$\times$",
        "→": r"$\rightarrow$",
    }
    return re.sub(r"(?<![\w)])-(?=\d)", "−", text).translate(str.maketrans(special))
