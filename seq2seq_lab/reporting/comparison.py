"""One line a group: means over the seeds, and whether a group differs from the best by more than chance."""

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.reporting.runs import ASPECTS, Group, differing, same_test_set
from seq2seq_lab.runtime import console

SCORE = "test/bleu"
SAMPLES = 1000  # of the bootstrap, and
SAMPLES_EACH = 200  # for each comparison: a corrected p is never below their number divided by the samples


@dataclass(frozen=True)
class Measure:
    """A column of figures: its name in `result.json`, its head, its number format, whether it is more than in the CSV."""

    name: str
    head: str
    form: str
    shown: bool = True


MEASURES = (
    Measure("test/bleu", "test BLEU", ".2f"),
    Measure("test/bleu_lowercased_tokenised", "BLEU, lc tok", ".2f"),
    Measure("test/chrf", "chrF", ".2f"),
    Measure("test/ter", "TER", ".2f", shown=False),
    Measure("test/chrf_lowercased_tokenised", "chrF, lc tok", ".2f", shown=False),
    Measure("test/ter_lowercased_tokenised", "TER, lc tok", ".2f", shown=False),
    Measure("test/aer", "AER", ".3f"),
    Measure("test/aer_oracle", "AER, oracle", ".3f", shown=False),
    Measure("test/aer_diagonal", "AER, diagonal", ".3f", shown=False),
    Measure("num_parameters", "parameters", ",.0f"),
    Measure("train/target_tokens_per_second", "tokens/s", ",.0f"),
)


@dataclass(frozen=True, eq=False)
class Line:
    """A line of the table.

    Attributes:
        p: p-value of the difference from the baseline, corrected for the number of comparisons; None for the baseline and
            where nothing was tested.
    """

    group: Group
    p: float | None


@dataclass(frozen=True, eq=False)
class Table:
    """What a comparison shows.

    Attributes:
        lines: the groups, best first.
        base: the group that the others are tested against; None if nothing is tested.
        comparisons: how many comparisons the p-values are corrected for.
        chosen: whether the user named the baseline; otherwise it is the group of best score.
        warnings: what differs between the runs besides their settings.
    """

    lines: tuple[Line, ...]
    base: Group | None
    comparisons: int
    chosen: bool
    warnings: tuple[str, ...]


def compare(groups: Sequence[Group], baseline: str | None) -> Table:
    """Return the groups, best first, with the significance of their difference from a baseline.

    Each group is represented by its run of median BLEU (`scores.paired_bootstrap`). Groups of another test set are not
    tested. A baseline that is the best of k groups is not independent of the scores: the p-values are then corrected for
    all k(k−1)/2 pairs, and for the k−1 comparisons with a baseline that the user names.

    Args:
        baseline: a group's label, or a value that one group alone has; None for the best.

    Raises:
        UserError: there is no such group.
    """
    from seq2seq_lab.metrics.scores import References, paired_bootstrap

    ordered = sorted(groups, key=lambda group: -mean(group, SCORE))
    base = ordered[0] if baseline is None else named(ordered, baseline)
    first = base.median(SCORE)
    others = [group for group in ordered if group is not base and same_test_set([first, group.median(SCORE)])]
    chosen, warnings = baseline is not None, tuple(differing(ordered))
    if not others:
        return Table(tuple(Line(group, None) for group in ordered), None, 0, chosen, warnings)
    comparisons = len(others) if chosen else number_of_pairs(len(others) + 1)
    rows = first.translations
    references = References(
        [row["reference"] for row in rows], [row["source"] for row in rows], first.multi_reference
    )
    hypotheses, *systems = [
        [row["hypothesis"] for row in group.median(SCORE).translations] for group in (base, *others)
    ]
    found = paired_bootstrap(hypotheses, systems, references, max(SAMPLES, SAMPLES_EACH * comparisons))
    of_group = dict(zip(map(id, others), holm(found, comparisons), strict=True))
    lines = tuple(Line(group, of_group.get(id(group))) for group in ordered)
    return Table(lines, base, comparisons, chosen, warnings)


def number_of_pairs(groups: int) -> int:
    """Return the number of pairs of groups."""
    return groups * (groups - 1) // 2


def holm(values: Sequence[float], comparisons: int) -> list[float]:
    """Return corrected p-values (Holm 1979), in the order of `values`.

    Args:
        values: of the comparisons that are shown.
        comparisons: their total number, at least that of the values. With more, the result is an upper bound of
            Holm's p-values over all of them.
    """
    corrected, least = [0.0] * len(values), 0.0
    for rank, i in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        least = max(least, min(1.0, values[i] * (comparisons - rank)))
        corrected[i] = least
    return corrected


def named(groups: Sequence[Group], baseline: str) -> Group:
    """Return the group of a label, or that which alone has a value.

    Raises:
        UserError: there is none, or several.
    """
    fitting = [group for group in groups if baseline == group.label or baseline in group.varies.values()]
    if len(fitting) == 1:
        return fitting[0]
    labels = [group.label for group in groups]
    raise UserError(
        f"--baseline={baseline}: {len(fitting) or 'no'} groups have that name.{did_you_mean(baseline, labels)} Groups: "
        f"{'; '.join(labels)}."
    )


def mean(group: Group, name: str) -> float:
    """Return the mean of a figure over a group's runs; 0 where none has it."""
    values = group.figures(name)
    return statistics.mean(values) if values else 0.0


def measured(groups: Sequence[Group]) -> list[Measure]:
    """Return the measures that at least one run has."""
    return [measure for measure in MEASURES if any(group.figures(measure.name) for group in groups)]


def cells(table: Table) -> tuple[list[str], list[list[str]], int]:
    """Return the table as texts: heads, rows, and how many of the last columns are figures."""
    lines, base = table.lines, table.base
    groups = [line.group for line in lines]
    keys = list(groups[0].varies)
    measures = [measure for measure in measured(groups) if measure.shown]
    heads = [*keys, "runs", *(measure.head for measure in measures), *(["p"] if base else [])]
    rows = [
        [
            *line.group.varies.values(),
            str(len(line.group.runs)),
            *(
                console.mean_and_deviation(line.group.figures(measure.name), measure.form)
                for measure in measures
            ),
            *([p_of(line, base)] if base else []),
        ]
        for line in lines
    ]
    return heads, rows, len(heads) - len(keys)


def tell(table: Table) -> None:
    """Print the table."""
    heads, rows, figures = cells(table)
    runs = sum(len(line.group.runs) for line in table.lines)
    console.print_table("1 run" if runs == 1 else f"{runs} runs", heads, rows, numeric=figures)
    for text in (note(table), *table.warnings):
        console.console().print(text, soft_wrap=True, markup=False)


def note(table: Table) -> str:
    """Return the text below the table."""
    means = "Means ± standard deviations over the runs of a line." + aer_note(table)
    if table.base is None:
        return (
            f"{means} No p: there is one line, or no other has kept translations of the same test sentences."
        )
    if table.comparisons == 1:
        correction = "one comparison, not corrected"
    elif table.chosen:
        correction = f"Holm-corrected for {table.comparisons} comparisons with the baseline"
    else:
        correction = f"Holm-corrected for all {table.comparisons} pairs of lines, since the baseline is the best of them"
    return (
        f"{means} p: p-value of the BLEU difference from {table.base.label} (two-sided paired bootstrap over the test "
        f"sentences, runs of median BLEU), {correction}."
    )


def aer_note(table: Table) -> str:
    """Return what the AER is to be compared with; empty if no run has it, or their test sets differ."""
    bounds = []
    for name in ("oracle", "diagonal"):
        values = {value for line in table.lines for value in line.group.figures(f"test/aer_{name}")}
        if len(values) != 1:
            return ""
        bounds.append(f"{name} {values.pop():.3f}")
    return f" AER with one link per target word: {', '.join(bounds)}."


def p_of(line: Line, base: Group) -> str:
    """Return what stands in the column of p-values."""
    if line.p is None:
        return "baseline" if line.group is base else "–"
    return "<0.001" if line.p < 0.001 else f"{line.p:.3f}"


def as_csv(table: Table) -> str:
    """Return the table with a column for each mean, deviation and number of runs, and what the runs depended on."""
    groups = [line.group for line in table.lines]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [measure.name for measure in measured(groups)]
    ends = ("mean", "std")
    heads = [*groups[0].varies, "runs", *(f"{name} {end}" for name in names for end in ends), "p"]
    writer.writerow([*heads, *(f"recorded {aspect}" for aspect in ("data", *ASPECTS))])
    for line in table.lines:
        figures: list[object] = []
        for name in names:
            values = line.group.figures(name)
            figures.append(statistics.mean(values) if values else "")
            figures.append(statistics.stdev(values) if len(values) > 1 else "")
        p = ("baseline" if line.group is table.base else "") if line.p is None else line.p
        facts = [
            " | ".join(dict.fromkeys(run.recorded[aspect] for run in line.group.runs))
            for aspect in ("data", *ASPECTS)
        ]
        writer.writerow([*line.group.varies.values(), len(line.group.runs), *figures, p, *facts])
    return out.getvalue()


def as_latex(table: Table) -> str:
    """Return the table for a paper: booktabs, the best mean of the test BLEU in bold face."""
    heads, rows, figures = cells(table)
    column = heads.index(next(measure.head for measure in MEASURES if measure.name == SCORE))
    written = [[_latex(cell) for cell in row] for row in rows]
    written[0][column] = rf"\textbf{{{written[0][column]}}}"
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{'l' * (len(heads) - figures)}{'r' * figures}}}",
            r"\toprule",
            " & ".join(map(_latex, heads)) + r" \\",
            r"\midrule",
            *(" & ".join(row) + r" \\" for row in written),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _latex(text: str) -> str:
    special: dict[str, str | int | None] = {character: f"\\{character}" for character in "&%$#_{}"}
    special |= {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "<": "$<$", ">": "$>$"}
    special |= {"±": r"$\pm$", "–": "--"}
    return text.translate(str.maketrans(special))
