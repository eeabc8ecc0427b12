"""One line a group: means over the seeds, and whether a group differs from the best by more than chance."""

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seq2seq_lab import report
from seq2seq_lab.compare.runs import Group, same_test_set
from seq2seq_lab.errors import UserError, did_you_mean

SCORE = "test/bleu"
SAMPLES = 1000  # of the bootstrap, and
SAMPLES_EACH = 200  # for each comparison: a corrected p is never below their number divided by the samples


@dataclass(frozen=True)
class Measure:
    """A column of figures: its name in `result.json`, its head, its number format."""

    name: str
    head: str
    form: str


MEASURES = (
    Measure("test/bleu", "test BLEU", ".2f"),
    Measure("test/bleu_lowercased_tokenised", "BLEU, lc tok", ".2f"),
    Measure("test/chrf", "chrF", ".2f"),
    Measure("test/aer", "AER", ".3f"),
    Measure("num_parameters", "parameters", ",.0f"),
    Measure("train/target_tokens_per_second", "tokens/s", ",.0f"),
)


@dataclass(frozen=True, eq=False)
class Line:
    """A line of the table.

    Attributes:
        p: probability, corrected for the number of comparisons, that a difference from the baseline as large as that
            found comes of chance alone; None for the baseline, and where nothing was compared.
    """

    group: Group
    p: float | None


def compare(groups: Sequence[Group], baseline: str | None) -> tuple[list[Line], Group | None]:
    """Return the groups, best first, with the significance of their distance from a baseline, and the baseline.

    Of each group the run of median BLEU stands for it (paired bootstrap resampling of the test set's sentences: Koehn
    2004; Holm's correction). Groups of another test set are not compared.

    Args:
        baseline: a group's label, or a value that one group alone has; None for the best.

    Raises:
        UserError: there is no such group.
    """
    ordered = sorted(groups, key=lambda group: -mean(group, SCORE))
    base = ordered[0] if baseline is None else named(ordered, baseline)
    others = [
        group
        for group in ordered
        if group is not base and same_test_set([base.median(SCORE), group.median(SCORE)])
    ]
    if not others:
        return [Line(group, None) for group in ordered], None
    shown = [group.median(SCORE) for group in (base, *others)]
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.significance import PairedTest

    references = [[row["reference"] for row in shown[0].translations]]
    samples = max(SAMPLES, SAMPLES_EACH * len(others))
    systems = [
        (str(number), [row["hypothesis"] for row in run.translations]) for number, run in enumerate(shown)
    ]
    test: Any = PairedTest(systems, {"BLEU": BLEU(references=references)}, None, "bs", samples)  # type: ignore[arg-type]
    _, found = test()
    found_p = [float(result.p_value) for result in found["BLEU"][1:]]
    of_group = dict(zip(map(id, others), holm(found_p), strict=True))
    return [Line(group, of_group.get(id(group))) for group in ordered], base


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979), in their order."""
    corrected, least = [0.0] * len(values), 0.0
    for rank, i in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        least = max(least, min(1.0, values[i] * (len(values) - rank)))
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


def cells(lines: Sequence[Line], base: Group | None) -> tuple[list[str], list[list[str]], int]:
    """Return the table as texts: heads, rows, and how many of the last columns are figures."""
    groups = [line.group for line in lines]
    keys, measures = list(groups[0].varies), measured(groups)
    heads = [*keys, "runs", *(measure.head for measure in measures), *(["p"] if base else [])]
    rows = [
        [
            *line.group.varies.values(),
            str(len(line.group.runs)),
            *(report.spread(line.group.figures(measure.name), measure.form) for measure in measures),
            *([p_of(line, base)] if base else []),
        ]
        for line in lines
    ]
    return heads, rows, len(heads) - len(keys)


def tell(lines: Sequence[Line], base: Group | None) -> None:
    """Print the table."""
    heads, rows, figures = cells(lines, base)
    report.print_grid(f"{sum(len(line.group.runs) for line in lines)} runs", heads, rows, figures)
    report.console().print(note(base), soft_wrap=True)


def note(base: Group | None) -> str:
    """Return what stands below the table."""
    means = "Means ± standard deviations over the runs of a line."
    if base is None:
        return (
            f"{means} No p: there is one line, or no other has kept translations of the same test sentences."
        )
    return (
        f"{means} p: of a difference in BLEU from {base.label} as large as that found, if there were none (paired "
        f"bootstrap over the test sentences, runs of median BLEU, Holm's correction)."
    )


def p_of(line: Line, base: Group) -> str:
    """Return what stands in the column of p-values."""
    if line.p is None:
        return "baseline" if line.group is base else "–"
    return "<0.001" if line.p < 0.001 else f"{line.p:.3f}"


def as_csv(lines: Sequence[Line], base: Group | None) -> str:
    """Return the table with a column for each mean, deviation and number of runs."""
    groups = [line.group for line in lines]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [measure.name for measure in measured(groups)]
    ends = ("mean", "std")
    writer.writerow([*groups[0].varies, "runs", *(f"{name} {end}" for name in names for end in ends), "p"])
    for line in lines:
        figures: list[object] = []
        for name in names:
            values = line.group.figures(name)
            figures.append(statistics.mean(values) if values else "")
            figures.append(statistics.stdev(values) if len(values) > 1 else "")
        p = ("baseline" if line.group is base else "") if line.p is None else line.p
        writer.writerow([*line.group.varies.values(), len(line.group.runs), *figures, p])
    return out.getvalue()


def as_latex(lines: Sequence[Line], base: Group | None) -> str:
    """Return the table for a paper: booktabs, the best mean of the test BLEU in bold face."""
    heads, rows, figures = cells(lines, base)
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
