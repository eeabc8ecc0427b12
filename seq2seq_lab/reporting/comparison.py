"""The comparison of groups of runs: means over the seeds, and the significance of differences from a baseline."""

import csv
import io
import math
import re
import statistics
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.metrics.base import Declaration
from seq2seq_lab.metrics.significance import Array, hierarchical_bootstrap, holm, paired_bootstrap
from seq2seq_lab.reporting import baselines
from seq2seq_lab.reporting.naming import confounded, joint_settings
from seq2seq_lab.reporting.runs import ASPECTS, Group, Run, differing
from seq2seq_lab.reporting.score_tables import CLUSTERS
from seq2seq_lab.runtime import console

SAMPLES = 1000  # of the bootstrap, at least
SAMPLES_EACH = 200  # for each comparison: a corrected p can be as small as 1 / SAMPLES_EACH
TESTS = ("p", "p, seeds")  # the headings of the p-values: of runs of median score, and of the means of lines
JOINT_WIDTH = 50  # characters of the names of settings in one heading
FACTS = ("data", *ASPECTS, "overrides")  # of the runs, in the CSV file
SPEED = re.compile(r"train/(\w+)_per_second")


@dataclass(frozen=True)
class Column:
    """A column of numbers: its key in `result.json`, its heading and its number format."""

    key: str
    head: str
    format: str
    shown: bool = True  # otherwise it is only in the CSV file


@dataclass(frozen=True, eq=False)
class Line:
    """A line of the table.

    Attributes:
        p: p-value of the difference from the baseline between the runs of median score, over the test examples; corrected
            for the number of comparisons. None for the baseline and where no difference was tested.
        p_seeds: p-value of the difference between the means of the groups, over seeds and test examples; None also if one
            of the groups has a single run.
    """

    group: Group
    p: float | None
    p_seeds: float | None


@dataclass(frozen=True, eq=False)
class Table:
    """The result of a comparison.

    Attributes:
        lines: the groups, best first.
        metric: the name of the metric that they are sorted and tested by.
        metrics: the declarations of all metrics by name.
        base: the group that the others are tested against; None if no difference is tested.
        comparisons: the numbers of comparisons that `Line.p` and `Line.p_seeds` are corrected for; 0 without a test.
        chosen: whether the user named the baseline; otherwise it is the group with the best mean.
        warnings: differences between the runs besides their settings.
    """

    lines: tuple[Line, ...]
    metric: str
    metrics: dict[str, Declaration]
    base: Group | None
    comparisons: tuple[int, int]
    chosen: bool
    warnings: tuple[str, ...]

    @property
    def groups(self) -> list[Group]:
        """The groups, best first."""
        return [line.group for line in self.lines]

    @property
    def tests(self) -> tuple[str, ...]:
        """The headings of the columns of p-values: those of the tests that were done."""
        return tuple(name for name, count in zip(TESTS, self.comparisons, strict=True) if count)

    @property
    def score(self) -> str:
        """The key in `result.json` of the metric that the groups are sorted by."""
        return f"test/{self.metric}"

    @property
    def label(self) -> str:
        """The label of the metric that the groups are sorted by."""
        return self.metrics[self.metric].label


def compare(groups: Sequence[Group], baseline: str | None, metric: str | None = None) -> Table:
    """Return the groups, best first, with the significance of their difference from a baseline.

    There are two tests: of the groups' runs of median score, and of the means of groups of two or more runs. Groups with
    another test set are not tested. With a baseline that the user names, the p-values are corrected for the k−1 comparisons
    of k groups. A baseline that is the best group depends on the scores: the p-values are then corrected for all k(k−1)/2
    pairs.

    Args:
        baseline: a group's label, or a value that only one group has; None for the best.
        metric: the name of the metric to compare by; None for the primary metric of the runs' task.

    Raises:
        UserError: the group or the metric does not exist.
    """
    metrics: dict[str, Declaration] = {}
    runs = [run for group in groups for run in group.runs]
    for run in runs:
        metrics = run.declared.metrics | metrics
    metric = metric or runs[0].declared.primary
    if metric not in metrics:
        raise UserError(
            f"--metric={metric} is not a metric of these runs.{did_you_mean(metric, metrics)} Metrics: {', '.join(metrics)}."
        )
    key, sign = f"test/{metric}", -1 if metrics[metric].higher_is_better else 1
    ordered = sorted(groups, key=lambda group: _sort_key(group, key, sign))
    base = ordered[0] if baseline is None else find_group(ordered, baseline)
    usable = _usable_runs(ordered, base, metric)
    medians, several = {}, {}
    for group, runs in usable.items():
        if (median := group.median(key)) in runs:
            medians[group] = median.statistics[metric]
        if len(runs) > 1 and len(runs) == len(group.values(key)):  # the means that the line shows
            several[group] = [run.statistics[metric] for run in runs]
    test = _Test(metrics[metric], metric, base, chosen=baseline is not None)
    p = test.p_values(paired_bootstrap, medians)
    p_seeds = test.p_values(hierarchical_bootstrap, several)
    return Table(
        lines=tuple(Line(group, p.get(group), p_seeds.get(group)) for group in ordered),
        metric=metric,
        metrics=metrics,
        base=base if p or p_seeds else None,
        comparisons=(test.comparisons(len(p)), test.comparisons(len(p_seeds))),
        chosen=baseline is not None,
        warnings=(
            *(f"warning: {text}" for text in (*confounded(ordered), *unshown(ordered))),
            *differing(ordered, metric),
        ),
    )


def _sort_key(group: Group, key: str, sign: int) -> tuple[bool, float]:
    values = group.values(key)
    return not values, sign * statistics.mean(values) if values else 0.0


def _usable_runs(groups: Sequence[Group], base: Group, metric: str) -> dict[Group, list[Run]]:
    """Return the runs of each group that have statistics of a metric on the baseline's test set."""
    test_set = base.runs[0].test_set
    return {
        group: [run for run in group.runs if run.test_set == test_set and metric in run.statistics]
        for group in groups
    }


@dataclass(frozen=True, eq=False)
class _Test:
    """Tests of the differences of groups from a baseline.

    A built-in metric is computed from its statistics by this package's code. Another metric is represented by the mean of
    its values per example: code that a run names is not imported.

    Attributes:
        name: of the metric.
        chosen: whether the user named the baseline.
    """

    declared: Declaration
    name: str
    base: Group
    chosen: bool

    def p_values(
        self, bootstrap: Callable[..., list[float]], rows: Mapping[Group, Any]
    ) -> dict[Group, float]:
        """Return the corrected p-value of each group but the baseline; none if the baseline has no statistics.

        Args:
            bootstrap: a test of `metrics.significance`.
            rows: the statistics of each group as this test needs them.
        """
        from seq2seq_lab.metrics.registry import BUILT_IN

        others = [group for group in rows if group is not self.base]
        if self.base not in rows or not others:
            return {}
        known = self.declared.built_in and self.name in BUILT_IN
        values = BUILT_IN[self.name].values if known else _mean_of_examples
        clusters = next(run for run in self.base.runs if run.statistics).statistics[CLUSTERS].astype(int)
        count = self.comparisons(len(others))
        samples = max(SAMPLES, SAMPLES_EACH * count)
        alone = bootstrap(values, rows[self.base], [rows[group] for group in others], clusters, samples)
        return dict(zip(others, holm(alone, count), strict=True))

    def comparisons(self, others: int) -> int:
        """Return the number of comparisons to correct for.

        Args:
            others: the number of groups besides the baseline.
        """
        return others if self.chosen else math.comb(others + 1, 2)


def _mean_of_examples(totals_SK: Array) -> Array:
    total, count = totals_SK.T
    return total / count.clip(min=1)


def find_group(groups: Sequence[Group], baseline: str) -> Group:
    """Return the group with a label, or the only one with a value.

    Raises:
        UserError: no group or several groups match.
    """
    matching = [group for group in groups if baseline == group.label or baseline in group.varies.values()]
    if len(matching) == 1:
        return matching[0]
    labels = [group.label for group in groups]
    raise UserError(
        f"--baseline={baseline}: {len(matching) or 'no'} groups have that name.{did_you_mean(baseline, labels)} Groups: "
        f"{'; '.join(labels)}."
    )


def columns(table: Table) -> list[Column]:
    """Return the columns for which at least one run has a value."""
    results = [run.result for group in table.groups for run in group.runs]
    every = []
    for name, one in table.metrics.items():
        key = f"test/{name}"
        quiet = all(result.get(key, one.quiet_value) == one.quiet_value for result in results)
        shown = (one.compared and not quiet) or name == table.metric
        every.append(Column(key, one.label, one.format, shown))
    every.append(Column("num_parameters", "parameters", ",.0f"))
    speeds = [SPEED.fullmatch(key) for key in dict.fromkeys(key for result in results for key in result)]
    every += [Column(match[0], f"{match[1].replace('_', ' ')}/s", ",.0f") for match in speeds if match]
    return [column for column in every if any(result.get(column.key) is not None for result in results)]


def cells(table: Table) -> tuple[list[str], list[list[str]], int]:
    """Return the table as texts: heads, rows, and the number of its last columns that are numbers."""
    named = settings_columns(table)
    shown = [column for column in columns(table) if column.shown]
    heads = [*(column.head for column in named), "runs", *(column.head for column in shown), *table.tests]
    rows = [
        [
            *(column.texts[number] for column in named),
            str(len(line.group.runs)),
            *(console.mean_and_deviation(line.group.values(column.key), column.format) for column in shown),
            *(
                p_cell(line, p, table.base)
                for p, count in zip((line.p, line.p_seeds), table.comparisons, strict=True)
                if count
            ),
        ]
        for number, line in enumerate(table.lines)
    ]
    return heads, rows, len(heads) - len(named)


@dataclass(frozen=True)
class SettingsColumn:
    """A column of settings that vary together: its heading, the text of each line, and what codes stand for."""

    head: str
    texts: list[str]
    legend: dict[str, str]


def settings_columns(table: Table) -> list[SettingsColumn]:
    """Return the columns of the settings that name the lines, one for each set of settings that vary together.

    A set whose names take more than `JOINT_WIDTH` characters has a letter as heading, and codes such as A1 as texts.
    """
    made = []
    letters = iter(string.ascii_uppercase)
    for keys in joint_settings(table.groups):
        values = [[group.varies[key] for key in keys] for group in table.groups]
        texts, head, legend = [", ".join(one) for one in values], ", ".join(keys), {}
        if len(keys) > 1 and len(head) > JOINT_WIDTH and (letter := next(letters, None)):
            codes = {text: f"{letter}{number}" for number, text in enumerate(dict.fromkeys(texts), start=1)}
            for text, one in zip(texts, values, strict=True):
                legend[codes[text]] = ", ".join(
                    f"{key}={value}" for key, value in zip(keys, one, strict=True)
                )
            texts, head = [codes[text] for text in texts], letter
        made.append(SettingsColumn(head, texts, legend))
    return made


def legend(table: Table) -> list[str]:
    """Return what the codes in the columns of settings stand for, one text for each code."""
    return [f"{code}: {text}" for column in settings_columns(table) for code, text in column.legend.items()]


def unshown(groups: Sequence[Group]) -> list[str]:
    """Return a text if the runs differ in settings that do not separate lines."""
    others = groups[0].others
    return [f"the runs also differ in {', '.join(others)} (not in --by)"] if others else []


def print_comparison(table: Table) -> None:
    """Print the table with its note and its warnings."""
    heads, rows, numeric = cells(table)
    runs = sum(len(group.runs) for group in table.groups)
    console.print_table("1 run" if runs == 1 else f"{runs} runs", heads, rows, numeric)
    for text in (*legend(table), note(table), *table.warnings):
        console.console().print(text, soft_wrap=True, markup=False)


def note(table: Table) -> str:
    """Return the text below the table."""
    signatures = {run.signature(table.metric) for group in table.groups for run in group.runs} - {""}
    means = " ".join(
        [
            "Means ± standard deviations over the runs of a line.",
            *([f"{table.label}: {signatures.pop()}."] if len(signatures) == 1 else []),
            *bound_notes(table),
            *baselines.notes([run.result for group in table.groups for run in group.runs], table.metrics),
        ]
    )
    if table.base is None:
        return f"{means} No p: there is one line, or no other run has statistics of {table.label} on the same test examples."
    about = (
        f"two-sided paired bootstrap over the test examples, runs of median {table.label}",
        "two-sided hierarchical bootstrap over seeds and test examples, means of the lines",
    )
    tests = []
    for name, text, count in zip(TESTS, about, table.comparisons, strict=True):
        if count == 1:
            correction = "one comparison, not corrected"
        elif table.chosen:
            correction = f"Holm-corrected for {count} comparisons with the baseline"
        else:
            correction = (
                f"Holm-corrected for all {count} pairs of lines, since the baseline is the best of them"
            )
        if count:
            tests.append(f"{name}: {text}; {correction}.")
    return f"{means} p-values of the {table.label} difference from {table.base.label}. {' '.join(tests)}"


def bound_notes(table: Table) -> Iterator[str]:
    """Yield the bounds of each metric as text, if they are the same for all runs."""
    for one in table.metrics.values():
        bounds = []
        for name in one.bounds:
            values = {value for group in table.groups for value in group.values(f"test/{name}")}
            if len(values) == 1:
                bounds.append(f"{table.metrics[name].label} {one.text(values.pop())}")
        if bounds and len(bounds) == len(one.bounds):
            yield f"To compare {one.label} with: {'; '.join(bounds)}."


def p_cell(line: Line, p: float | None, base: Group | None) -> str:
    """Return the text in a column of p-values."""
    if p is None:
        return "baseline" if line.group is base else "–"
    return p_text(p)


def p_text(p: float) -> str:
    """Format a p-value."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def as_csv(table: Table) -> str:
    """Return the table with the mean and the deviation of each column, and what the runs depended on."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    keys = [column.key for column in columns(table)]
    heads = [
        *table.groups[0].varies,
        "runs",
        *(f"{key} {end}" for key in keys for end in ("mean", "std")),
        "p",
        "p over seeds",
        f"test/{table.metric} signature",
    ]
    warnings = " | ".join(confounded(table.groups))
    writer.writerow([*heads, *(f"recorded {aspect}" for aspect in FACTS), "not attributable"])
    for line in table.lines:
        numbers: list[object] = []
        for key in keys:
            values = line.group.values(key)
            numbers.append(statistics.mean(values) if values else "")
            numbers.append(statistics.stdev(values) if len(values) > 1 else "")
        none = "baseline" if line.group is table.base else ""
        p_values = [none if p is None else p for p in (line.p, line.p_seeds)]
        runs = line.group.runs
        facts = [
            " | ".join(dict.fromkeys(texts))
            for texts in (
                [run.signature(table.metric) for run in runs],
                *([run.recorded[aspect] for run in runs] for aspect in FACTS),
            )
        ]
        writer.writerow(
            [*line.group.varies.values(), len(line.group.runs), *numbers, *p_values, *facts, warnings]
        )
    return out.getvalue()


def as_latex(table: Table) -> str:
    """Return the table for a paper: booktabs, the best mean of the metric in bold face."""
    heads, rows, numeric = cells(table)
    lines = [[_latex(cell) for cell in row] for row in rows]
    if table.label in heads:
        column = heads.index(table.label)
        lines[0][column] = rf"\textbf{{{lines[0][column]}}}"
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{'l' * (len(heads) - numeric)}{'r' * numeric}}}",
            r"\toprule",
            " & ".join(map(_latex, heads)) + r" \\",
            r"\midrule",
            *(" & ".join(line) + r" \\" for line in lines),
            r"\bottomrule",
            r"\end{tabular}",
            *(f"\n{_latex(text)}" for text in (*legend(table), *confounded(table.groups))),
            "",
        ]
    )


def _latex(text: str) -> str:
    special: dict[str, str | int | None] = {character: f"\\{character}" for character in "&%$#_{}"}
    special |= {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "<": "$<$", ">": "$>$"}
    special |= {"±": r"$\pm$", "–": "--"}
    return text.translate(str.maketrans(special))
