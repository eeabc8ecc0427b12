"""The comparison of groups of runs: means over the seeds, and the significance of differences from a baseline."""

import html
import math
import re
import shlex
import statistics
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seq2seq_lab.config.run_folders import named_folder
from seq2seq_lab.errors import UserError, did_you_mean, require, require_list
from seq2seq_lab.metrics.base import Declaration
from seq2seq_lab.metrics.registry import BUILT_IN
from seq2seq_lab.metrics.significance import LEAST_TESTED, LEVEL, MAX_SEEDS, POWER
from seq2seq_lab.reporting import baselines
from seq2seq_lab.reporting.distances import (
    ABSENT,
    DISTANCE_HEADS,
    DISTANCE_NOTE,
    LineDistances,
    line_distances,
)
from seq2seq_lab.reporting.group_tests import GroupDifference, Pair, Tests
from seq2seq_lab.reporting.naming import confounded, joint_settings
from seq2seq_lab.reporting.runs import FIRST, Group, differing, find_runs, further_tests, group_runs
from seq2seq_lab.reporting.score_tables import VALIDATION
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.notebook import html_table
from seq2seq_lab.runtime.tables import mean_and_deviation, print_table, with_spread

DIFFERENCE, P_SEEDS, SEEDS, EQUAL, P_MODELS = (
    "difference [95% CI]",
    "p, seeds",
    "seeds to decide",
    "equal",
    "p, these two models",
)
JOINT_WIDTH = 50  # characters of the names of settings in one heading
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
        base: the baseline of its test set; None if there is none.
        difference: its difference from the baseline; None for the baseline, and if one of both has a single run or a run
            without statistics.
        p_models: p-value of the difference from the baseline between the runs of median score, over the test examples:
            of these two models, not of their settings. None for the baseline and where no difference was tested.
        top: whether it has the best mean of its test set, or is not significantly worse than the best of the lines that
            were tested.
    """

    group: Group
    base: Group | None
    difference: GroupDifference | None
    p_models: float | None
    top: bool


@dataclass(frozen=True, eq=False)
class Table:
    """The result of a comparison.

    Attributes:
        lines: the groups, best first; by a metric without a direction, the greatest value first.
        metric: the name of the metric that they are sorted and tested by.
        metrics: the declarations of all metrics by name.
        comparisons: the number of comparisons that `Difference.p` is corrected for; 0 without a test.
        model_comparisons: the number of comparisons that `Line.p_models` is corrected for; None if the runs of median score
            were not to be tested.
        margin: within which two lines count as equal, in the unit of the metric; None if this is not tested.
        named: the baseline that the user named; None for the best line that can be tested.
        warnings: differences between the runs other than their settings.
        pairs: the differences of all pairs of lines, the better one first; p is corrected for all of them.
        skipped: the folders that were left out, with the reasons.
        distances: of the attention and the predictions; see `with_distances`. Empty if they were not measured.
        distance_note: the text about them below the table.
    """

    lines: tuple[Line, ...]
    metric: str
    metrics: dict[str, Declaration]
    comparisons: int
    model_comparisons: int | None
    margin: float | None
    named: Group | None
    warnings: tuple[str, ...]
    pairs: dict[Pair, GroupDifference]
    skipped: tuple[str, ...] = ()
    distances: Mapping[Group, LineDistances] = field(default_factory=dict)
    distance_note: str = ""

    def __repr__(self) -> str:
        heads, rows, _ = cells(self)
        return "\n".join("\t".join(row) for row in (heads, *rows))

    def _repr_html_(self) -> str:
        heads, rows, _ = cells(self)
        notes = (*legend(self), note(self), *self.warnings, *(f"skipped: {one}" for one in self.skipped))
        return html_table(heads, rows) + "".join(f"<p>{html.escape(text)}</p>" for text in notes)

    @property
    def groups(self) -> list[Group]:
        """The groups, best first."""
        return [line.group for line in self.lines]

    @property
    def bases(self) -> list[Group]:
        """The groups that others are tested against: one for each test set with a comparison."""
        return list(dict.fromkeys(line.base for line in self.lines if line.base is not None))

    @property
    def tests(self) -> tuple[str, ...]:
        """The headings of the columns about differences: those that have values."""
        differences = [line.difference for line in self.lines if line.difference is not None]
        shown = {
            DIFFERENCE: bool(differences),
            P_SEEDS: any(one.p is not None for one in differences),
            SEEDS: any(one.open for one in differences),
            EQUAL: any(one.equal is not None for one in differences),
            P_MODELS: bool(self.model_comparisons),
        }
        return tuple(name for name, has_values in shown.items() if has_values)

    @property
    def score(self) -> str:
        """The key in `result.json` of the metric that the groups are sorted by."""
        return f"test/{self.metric}"

    @property
    def has_best(self) -> bool:
        """Whether one direction of this metric is better."""
        return self.metrics[self.metric].higher_is_better is not None

    @property
    def split(self) -> str:
        """The prefix of the examples that are compared, in the folders of the runs; see `Run.split`."""
        return self.groups[0].runs[0].split

    @property
    def label(self) -> str:
        """The label of the metric that the groups are sorted by."""
        return self.metrics[self.metric].label


def compare_folders(
    folders: Sequence[str | Path],
    by: Sequence[str] = (),
    baseline: str | None = None,
    metric: str | None = None,
    *,
    margin: float | None = None,
    p_of_median_runs: bool = False,
    for_page: bool = False,
    test: str | None = None,
    validation: bool = False,
) -> Table:
    """Compare the finished runs in folders; see `compare`.

    Args:
        folders: of runs, studies or evaluations (RUN/evaluations/NUMBER).
        by: the settings that distinguish the rows; () for all that differ, except the seed.
        test: the name of the test set, NAME in `test/NAME/…` of `result.json`; None for the first one. Runs without it are
            skipped.
        validation: compare by the scores of the validation split, not of a test set.
        for_page: also skip runs whose outputs and attention are malformed.

    Raises:
        UserError: a folder does not exist, no run is finished, or a name is not one of these runs.
    """
    require_list("compare", "folders", folders, "folders")
    require_list("compare", "settings", by, "by")
    named = [*map(named_folder, folders)]
    require(named != [], "folders", named, "one or more folders")
    require(test is None or not validation, "--test", test, "left out with --validation")
    split = VALIDATION if validation else FIRST if test is None else f"{FIRST}/{test}"
    runs, skipped = find_runs(named, for_page, split)
    table = compare(group_runs(runs, by), baseline, metric, margin=margin, p_of_median_runs=p_of_median_runs)
    return replace(table, skipped=tuple(skipped))


def compare(
    groups: Sequence[Group],
    baseline: str | None,
    metric: str | None = None,
    *,
    margin: float | None = None,
    p_of_median_runs: bool = False,
) -> Table:
    """Return the groups, best first, with the significance of their differences from a baseline.

    The means of groups of `LEAST_TESTED` or more runs are tested; groups of two runs have a difference and an interval.
    Groups are tested against the baseline of their test set. It is the best group that can be tested, which depends on the
    scores: all pairs of groups with the same test set are tested, and the p-values corrected for their number. With a
    baseline that the user names, only groups with its test set are tested, and p is corrected for these comparisons.

    Args:
        baseline: a group's label, or a value that only one group has; None for the best.
        metric: the name of the metric to compare by; None for the primary metric of the runs' task.
        margin: also test whether two groups are equal: whether their means differ by less than this, in the unit of the
            metric.
        p_of_median_runs: also test the runs of median score.

    Raises:
        UserError: the group or the metric does not exist, or the margin is not positive.
    """
    require(
        margin is None or 0 < margin < math.inf, "--margin", margin, "a positive number, such as 0.5 for BLEU"
    )
    metrics: dict[str, Declaration] = {}
    runs = [run for group in groups for run in group.runs]
    for run in runs:
        metrics = run.declared.metrics | metrics
    metric = metric or runs[0].declared.primary
    if metric not in metrics:
        raise UserError(
            f"--metric={metric} is not a metric of these runs.{did_you_mean(metric, metrics)} Metrics: "
            f"{', '.join(metrics)}. For another test set than the first: --test NAME."
        )
    # Earlier versions recorded a direction for metrics that have none.
    if metrics[metric].built_in and metric in BUILT_IN:
        metrics[metric] = replace(metrics[metric], higher_is_better=BUILT_IN[metric].higher_is_better)
    key, sign = f"test/{metric}", 1 if metrics[metric].higher_is_better is False else -1
    ordered = sorted(groups, key=lambda group: _sort_key(group, key, sign))
    base = None if baseline is None else find_group(ordered, baseline)
    tests = Tests(metrics[metric], metric, key, ordered, base, margin)
    differences, comparisons = tests.differences()
    p_models, model_comparisons = tests.p_of_median_runs() if p_of_median_runs else ({}, None)
    tested = {base for base, _ in (*differences, *p_models)}
    top = tests.top()
    lines = []
    for group in ordered:
        own = tests.base_of(group)
        if own is None or own not in tested:
            lines.append(Line(group, None, None, None, group in top))
        else:
            pair = (own, group)
            lines.append(Line(group, own, differences.get(pair), p_models.get(pair), group in top))
    return Table(
        lines=tuple(lines),
        metric=metric,
        metrics=metrics,
        comparisons=comparisons,
        model_comparisons=model_comparisons,
        margin=margin,
        named=base,
        warnings=(
            *(f"warning: {text}" for text in (*confounded(ordered), *unshown(ordered))),
            *tests.warnings,
            *differing(ordered, metric),
        ),
        pairs=tests.all_corrected,
    )


def with_distances(
    table: Table,
    baseline: str | None,
    open_run: Callable[..., Any],
    counted: Callable[[int, int], None],
) -> Table:
    """Return a comparison with the distances of the attention and the predictions of its runs; see `line_distances`.

    Args:
        baseline: see `compare`; without one it is that of the tests, or the best line of the test set.
    """
    named = None if baseline is None else find_group(table.groups, baseline)
    bases: dict[str, Group] = {}
    for line in table.lines:
        if line.base is not None:
            bases[line.group.runs[0].test_set] = line.base
    for group in table.groups if named is None else [named, *table.groups]:
        bases.setdefault(group.runs[0].test_set, group)
    found, count = line_distances(
        {group: bases[group.runs[0].test_set] for group in table.groups}, open_run, counted
    )
    label = next(iter(bases.values())).label if len(bases) == 1 else "the first line of its test set"
    return replace(table, distances=found, distance_note=DISTANCE_NOTE.format(count=count, baseline=label))


def _sort_key(group: Group, key: str, sign: int) -> tuple[bool, float]:
    values = group.values(key)
    return not values, sign * statistics.mean(values) if values else 0.0


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
    """Return the table as texts: heads, rows, and the number of last columns that hold numbers."""
    named = settings_columns(table)
    shown = [column for column in columns(table) if column.shown]
    heads, texts = score_cells(table, shown)
    distance_heads, distances = distance_cells(table)
    rows = [
        [
            *(column.texts[index] for column in named),
            str(len(line.group.runs)),
            *scores,
            *apart,
            *(difference_cell(table, line, name) for name in table.tests),
        ]
        for index, (line, scores, apart) in enumerate(zip(table.lines, texts, distances, strict=True))
    ]
    heads = [*(column.head for column in named), "runs", *heads, *distance_heads, *table.tests]
    return heads, rows, len(heads) - len(named)


def distance_cells(table: Table) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the texts of the columns of distances that have a value."""
    if not table.distances:
        return [], [[] for _ in table.lines]
    texts = [table.distances[line.group].texts() for line in table.lines]
    shown = [i for i in range(len(DISTANCE_HEADS)) if any(row[i] != ABSENT for row in texts)]
    return [DISTANCE_HEADS[i] for i in shown], [[row[i] for i in shown] for row in texts]


@dataclass(frozen=True)
class SettingsColumn:
    """A column of settings that vary together: its heading, the text of each line, and the meaning of the codes."""

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
            codes = {text: f"{letter}{index}" for index, text in enumerate(dict.fromkeys(texts), start=1)}
            for text, one in zip(texts, values, strict=True):
                legend[codes[text]] = ", ".join(
                    f"{key}={value}" for key, value in zip(keys, one, strict=True)
                )
            texts, head = [codes[text] for text in texts], letter
        made.append(SettingsColumn(head, texts, legend))
    return made


def legend(table: Table) -> list[str]:
    """Return the meaning of each code in the columns of settings, one text per code."""
    return [f"{code}: {text}" for column in settings_columns(table) for code, text in column.legend.items()]


def unshown(groups: Sequence[Group]) -> list[str]:
    """Return a text if the runs differ in settings that do not separate lines."""
    others = groups[0].others
    return [f"the runs also differ in {', '.join(others)} (not in --by)"] if others else []


def score_cells(table: Table, shown: Sequence[Column]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the texts of columns of numbers: means, and the deviations of the lines that have one."""
    texts = [
        [mean_and_deviation(line.group.values(column.key), column.format) for column in shown]
        for line in table.lines
    ]
    heads = [with_spread(column.head, "std", [row[i] for row in texts]) for i, column in enumerate(shown)]
    return heads, texts


def difference_cell(table: Table, line: Line, name: str, digits: int | None = None) -> str:
    """Return the text of a line in one of the columns of `Table.tests`.

    Args:
        digits: after the decimal point of the difference; None for those of the metric.
    """
    if line.group is line.base:
        return "–" if name in (SEEDS, EQUAL) else "baseline"
    found = line.difference
    if name == P_MODELS:
        return "–" if line.p_models is None else p_text(line.p_models)
    if found is None:
        return "–"
    if name == P_SEEDS:
        return "–" if found.p is None else p_text(found.p)
    if name == SEEDS:
        return seeds_text(found)
    if name == EQUAL:
        return "–" if found.equal is None else "yes" if found.equal else "not shown"
    return difference_text(found, with_digits(table.metrics[table.metric].format, digits))


def difference_text(found: GroupDifference, form: str) -> str:
    """Return a difference with its interval, in a number format."""
    low, high = found.ends
    return f"{found.value:+{form}} [{low:{form}}, {high:{form}}]"


def seeds_text(difference: GroupDifference) -> str:
    """Return the number of seeds that would decide a difference; "–" if it is decided or not tested."""
    if not difference.open:
        return "–"
    return f">{MAX_SEEDS}" if difference.seeds is None else str(difference.seeds)


def print_comparison(table: Table) -> None:
    """Print the table with its note and its warnings."""
    heads, rows, numeric = cells(table)
    runs = sum(len(group.runs) for group in table.groups)
    print_table("1 run" if runs == 1 else f"{runs} runs", heads, rows, numeric)
    for text in (*legend(table), note(table), *table.warnings):
        console.print_prose(text)


def note(table: Table) -> str:
    """Return the text below the table."""
    reasons = [*untested(table), *([] if table.bases else untested_models(table)), *other_test_sets(table)]
    return " ".join([explanation(table, table.metrics), *reasons])


def explanation(table: Table, shown: Mapping[str, Declaration]) -> str:
    """Return what the values of the table mean.

    Args:
        shown: the metrics whose bounds and trivial baselines are included, by name.
    """
    signature = shared_signature(table)
    parts = [
        "Means; std: standard deviation over the runs of a line.",
        *split_note(table),
        *([f"{table.label}: {signature}."] if signature else []),
        *(
            []
            if table.has_best
            else [f"{table.label} has no direction: the greatest value is first, not the best."]
        ),
        *bound_notes(table, shown),
        *baselines.notes(
            [(group.label, [run.result for run in group.runs]) for group in table.groups], shown
        ),
        *([table.distance_note] if table.distances else []),
    ]
    if table.bases:
        base = table.bases[0].label if len(table.bases) == 1 else "the baseline of its test set"
        parts += [f"{table.label} differences from {base}.", *difference_notes(table)]
    return " ".join(parts)


def split_note(table: Table) -> Iterator[str]:
    """Yield which examples are compared if they are not those of the first test set."""
    if table.split == VALIDATION:
        yield "Scores of the validation split."
    elif table.split != FIRST:
        yield f"Test set: {table.split.removeprefix(f'{FIRST}/')}."


def untested(table: Table) -> Iterator[str]:
    """Yield the reason why differences are not tested, and that `Table.margin` then has no effect."""
    if P_SEEDS in table.tests:
        return
    needed = statistics_of(table)
    if table.named is not None and len(table.named.runs) < LEAST_TESTED:
        count = len(table.named.runs)
        reason = f"the baseline {table.named.label} has {count} run{'s' * (count > 1)}, and a test needs {LEAST_TESTED}"
    elif table.named is not None:
        reason = (
            f"the baseline and another line do not both have {LEAST_TESTED} or more runs, all with {needed}"
        )
    else:
        reason = f"no two lines have {LEAST_TESTED} or more runs, all with {needed}"
    yield f"No {P_SEEDS}: {reason}."
    if table.margin is not None:
        yield f"Equality within ±{table.margin} is not tested for the same reason."


def other_test_sets(table: Table) -> Iterator[str]:
    """Yield how to compare the runs on their further test sets."""
    runs = [run for group in table.groups for run in group.runs]
    names = dict.fromkeys(name for run in runs for name in further_tests(run.result))
    if table.split == FIRST and names:
        yield f"Other test sets: {', '.join(f'--test {shlex.quote(name)}' for name in names)}."


def statistics_of(table: Table) -> str:
    """Return what two lines need to be tested."""
    return f"statistics of {table.label} on the same examples"


def untested_models(table: Table) -> Iterator[str]:
    """Yield how to test the runs of median score, or why they are not tested."""
    if table.model_comparisons is None:
        yield "To compare two models, not their settings: --p-of-median-runs."
    elif table.model_comparisons == 0:
        lack = (
            "no two lines have" if table.named is None else "the baseline and another line do not both have"
        )
        yield f"No {P_MODELS}: {lack} {statistics_of(table)}."


def shared_signature(table: Table) -> str:
    """Return the signature of the metric; empty if the runs have none or several."""
    signatures = {run.signature(table.metric) for group in table.groups for run in group.runs} - {""}
    return signatures.pop() if len(signatures) == 1 else ""


def difference_notes(table: Table) -> Iterator[str]:
    """Yield an explanation of each of the columns of `Table.tests`."""

    def correction(count: int) -> str:
        if count == 1:
            return "one comparison, not corrected"
        if table.named is not None:
            return f"Holm-corrected for {count} comparisons with the baseline"
        return f"Holm-corrected for all {count} pairs of lines with the same examples"

    explained = {
        DIFFERENCE: f"{DIFFERENCE}: of the means, over seeds and examples; not corrected.",
        P_SEEDS: f"{P_SEEDS}: of lines of {LEAST_TESTED} or more runs; {correction(table.comparisons)}.",
        SEEDS: f"{SEEDS}: seeds of both lines with which a difference of this size would be found in {POWER:.0%} of cases.",
        EQUAL: f"{EQUAL}: two one-sided tests at the 5% level place the difference within ±{table.margin}, which should be "
        "chosen before the scores are seen; not corrected.",
        P_MODELS: f"{P_MODELS}: paired bootstrap of the runs of median {table.label}, a test of these runs, not of their "
        f"settings; {correction(table.model_comparisons or 0)}.",
    }
    yield from (explained[name] for name in table.tests)


def bound_notes(table: Table, shown: Mapping[str, Declaration]) -> Iterator[str]:
    """Yield the bounds of each of these metrics as text, if they are the same for all runs."""
    for one in shown.values():
        bounds = []
        for name in one.bounds:
            values = {value for group in table.groups for value in group.values(f"test/{name}")}
            if len(values) == 1:
                bounds.append(f"{table.metrics[name].label} {one.text(values.pop())}")
        if bounds and len(bounds) == len(one.bounds):
            yield f"To compare {one.label} with: {'; '.join(bounds)}."


def p_text(p: float) -> str:
    """Format a p-value, with another digit if three do not show on which side of the 5% level it is."""
    text = f"{p:.3f}"
    return "<0.001" if p < 0.001 else f"{p:.4f}" if float(text) == LEVEL else text


def with_digits(form: str, digits: int | None) -> str:
    """Return a number format with this many digits after the decimal point."""
    return form if digits is None else re.sub(r"\.\d+", f".{digits}", form)
