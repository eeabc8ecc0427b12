"""What attention aligns to and what explains the predictions, for the planned runs of docs/explanation.md.

    python -m benchmarks.planned run FOLDER --only "what attention aligns to and explains" --path DIR=PATH
    python -m benchmarks.explanation run FOLDER --path DIR=PATH
    python -m benchmarks.planned add FOLDER --machine "2 cores of …"
    python -m benchmarks.explanation add FOLDER
    python -m benchmarks.explanation write

`explanation run` trains the tested runs that FOLDER lacks, changes the attention weights and computes attributions on the
first 100 test sentences of each; start it once for each core. `add` adds what it found to the lines of docs/results.jsonl,
`write` writes the tables into the page.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import planned, results
from benchmarks.page import filled, table, update
from benchmarks.planned import EXPLANATION, EXPLANATION_MULTI30K, EXPLANATION_SECOND, Cell, Run, cells_of
from benchmarks.result_tables import commits, facts
from benchmarks.results import RESULTS, STATISTICS, Line, read_lines, unseeded
from benchmarks.significance import jackknife, picks
from benchmarks.simulated_groups import Scenario, equal_rate, familywise_rate
from seq2seq_lab.analysis import comparison, interventions
from seq2seq_lab.config.run_folder import read_finished_result
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import FolderInUseError, lock_folder
from seq2seq_lab.launching.evaluation import read_data
from seq2seq_lab.metrics.registry import BUILT_IN
from seq2seq_lab.metrics.significance import (
    EXAMPLE_SAMPLES,
    LEVEL,
    Array,
    Differences,
    compare_scores,
    holm,
    interaction_variance,
    pairs_of,
    resample,
)
from seq2seq_lab.reporting.score_tables import CLUSTERS
from seq2seq_lab.runtime.console import progress_bar
from seq2seq_lab.runtime.tables import mean_and_deviation

FIRST = 100  # sentences
METHODS = (
    *("attention", "grad_x_input", "integrated_gradients_unknown", "occlusion", "occlusion_removed"),
    "value_zeroing",
)
KINDS = (*interventions.UNITED, "only_max")
MEASURED = "explanation.npz"  # in a run folder
TRIALS = 10_000
PAIRS = 1_000  # of groups of real runs
UNFINISHED = "Not all runs of this table are recorded."


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes:
        name: of the score in `scores` and in the statistics, after `test/`.
        scale: what the score is multiplied by.
        margin: within which two rows count as equal, in the unit of the column; None if it is not tested.
    """

    name: str
    head: str
    scale: float
    digits: int
    margin: float | None = None

    def value(self, line: Line) -> float | None:
        """Return the score of a run."""
        found = line.scores.get(f"test/{self.name}")
        return None if found is None else self.scale * found

    @property
    def values(self) -> Callable[[Array], Array]:
        """The function that computes the column from sums of statistics per sentence."""
        of_sums = BUILT_IN[self.name].values if self.name in BUILT_IN else mean_of_sums
        return lambda totals_SK: self.scale * of_sums(totals_SK)


COLUMNS = (
    Column("bleu", "BLEU", 1, 2),
    Column("loops", "loops, %", 100, 2),
    Column("aer", "AER, predicts", 1, 3, 0.02),
    Column("aer_read", "AER, reads", 1, 3),
    Column("attention_entropy", "entropy", 1, 3),
    *(
        Column(f"kept_{kind}", f"kept, {kind}, %", 100, 1, None if kind == "zero_out_max" else 4)
        for kind in (*KINDS, "union")
    ),
    *(Column(f"average_precision_{name}", f"AP, {name}", 1, 3, 0.02) for name in METHODS),
    *(Column(f"deletion_{name}", f"drop, {name}", 1, 2) for name in METHODS),
)
OF_METHODS = (  # the columns of the table of methods; the sign of an improvement
    ("aer_by", "AER", 3, -1),
    ("average_precision", "AP", 3, 1),
    ("deletion", "drop", 2, 1),
)
SHOWN = ("bleu", "loops", "aer", "aer_read", "attention_entropy")  # of rows that are only described


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure runs, add what was found, or write the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.explanation", description=__doc__.split("\n")[0]
    )
    actions = parser.add_subparsers(dest="action", required=True)
    runner = actions.add_parser("run", help="train and measure what is not recorded")
    runner.add_argument("--path", action="append", default=[], metavar="NAME=PATH", help="of DIR")
    adder = actions.add_parser("add", help="add what was measured to docs/results.jsonl")
    for one in (runner, adder):
        one.add_argument("folder", type=Path)
    actions.add_parser("write", help="write the tables into docs/explanation.md")
    options = parser.parse_args(arguments)
    lines = read_lines(RESULTS)
    try:
        if options.action == "write":
            page = RESULTS.with_name("explanation.md")
            update({page: parts(lines)})
        elif options.action == "add":
            for run in measured_runs():
                add(run, options.folder / run.name)
        else:
            paths = planned.paths_of(options.path)
            for run in measured_runs():
                if not any(run.is_of(line) and is_measured(line) for line in results.current(lines)):
                    folder = options.folder / run.name
                    planned.execute(run, folder, paths)
                    measure(run, folder)
    except UserError as error:
        sys.exit(f"error: {error}")


def measured_runs() -> Iterator[Run]:
    """Yield the planned runs whose interventions and attributions are measured."""
    measured = measured_cells()
    yield from (run for run in planned.runs() if run.cell in measured)


def measured_cells() -> list[Cell]:
    """Return the cells that are tested, and those of the second data set and of Multi30k."""
    return [*tested_cells(), *cells_of(EXPLANATION_SECOND), *cells_of(EXPLANATION_MULTI30K)]


def tested_cells() -> list[Cell]:
    """Return the cells that are tested."""
    return [
        cell
        for cell in cells_of(EXPLANATION)
        if any(f" {words} " in cell.command for words in planned.TESTED)
    ]


def measure(run: Run, folder: Path) -> None:
    """Write what a run keeps under changed attention and how well attributions explain it, unless it was done."""
    path = folder / MEASURED
    try:
        with lock_folder(folder, timeout=0):
            if read_finished_result(folder) is not None and not path.exists():
                print(folder.name, flush=True)
                write_arrays(path, measured(run, folder))
    except FolderInUseError:
        print(f"Skipped, because another process works on it: {folder}", flush=True)


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays of float32 as a compressed file."""
    results.write_statistics(path, {name: array.astype(np.float32) for name, array in arrays.items()})


def measured(run: Run, folder: Path) -> dict[str, Array]:
    """Return sums and numbers [sentences, 2] by the name of the score, with its split.

    The attributions of the validation split are those of the first seed only: they choose the best method.
    """
    import seq2seq_lab

    loaded = seq2seq_lab.load(folder, device="cpu")
    data = read_data(loaded, True)
    found = {f"test/{name}": rows for name, rows in kept(loaded, data.tests[0].first(FIRST)).items()}
    splits = {"test": data.tests[0], **({"val": data.validation} if run.seed == 1 else {})}
    for prefix, split in splits.items():
        found |= {f"{prefix}/{name}": rows for name, rows in explained(loaded, split.first(FIRST)).items()}
    return found


def kept(loaded: Any, split: Any) -> dict[str, Array]:
    """Return how many of the most probable tokens stay the same if the attention of one step is changed."""
    forced = loaded.forced([*split.text.source], [*split.text.target])
    forced = replace(forced, clusters=range(len(split.text)))  # their ids are the indices of the sentences
    found = interventions.intervene(loaded.model, forced, KINDS, ["step"], seed=1)
    by_kind = {kind: one for (kind, _), one in found.items()} | {"union": interventions.united(found)}
    return {
        f"kept_{kind}": np.stack(
            [
                np.bincount(one.cluster[one.changed], of[one.changed], len(split.text))
                for of in (one.kept, one.changed)
            ],
            axis=1,
        )
        for kind, one in by_kind.items()
    }


def explained(loaded: Any, split: Any) -> dict[str, Array]:
    """Return the drop when words are deleted, and on the grammar the AER and the average precision of the attributions."""
    text, questions = split.text, loaded.questions(split)
    influences = None
    if text.gold is not None:
        influences = loaded.task.parts.dataset().influences([*text.source], per_word=1, seed=1)
    asked = map(questions, range(len(text)))
    found = []
    with progress_bar("Attributions") as advance:
        for one in comparison.explain(asked, METHODS, gold=text.gold, influences=influences):
            found.append(one.measures)
            advance(len(found), len(text))
    names = {"average_precision": "average_precision", "area": "deletion", "aer": "aer_by"}
    return {
        f"{name}_{method}": np.array([one[method].get(measure, (0.0, 0.0)) for one in found])
        for measure, name in names.items()
        for method in METHODS
        if any(measure in one[method] for one in found)
    }


def mean_of_sums(totals_SK: Array) -> Array:
    """Return the means of S sums and numbers."""
    means: Array = totals_SK[:, 0] / totals_SK[:, 1]
    return means


def add(run: Run, folder: Path) -> None:
    """Add what was measured to the line of a run, if both exist.

    Raises:
        UserError: the run has other scores than the recorded one.
    """
    path = folder / MEASURED
    if not path.exists():
        return
    lines = read_lines(RESULTS)
    own = [line for line in results.current(lines) if run.is_of(line)]
    if not own:
        return
    (line,) = own
    with np.load(path, allow_pickle=False) as loaded:
        arrays = dict(loaded)
    scores = {name: round(float(mean_of_sums(rows.sum(0)[None])[0]), 4) for name, rows in arrays.items()}
    if line.scores.items() >= scores.items():
        return
    result = read_finished_result(folder)
    if result is None or not line.scores.items() >= results.scored(result)["scores"].items():
        raise UserError(
            f"The scores of {folder} are not those recorded for {run.command}; processors round differently. To replace "
            "the recorded ones, run: python -m benchmarks.results add"
        )
    assert line.statistics is not None
    kept = results.read_statistics(line) | {
        name: array for name, array in arrays.items() if name.startswith("test/")
    }
    results.write_statistics(RESULTS.parent / STATISTICS / line.statistics, kept)
    new = replace(line, scores=line.scores | scores)
    results.write_lines(RESULTS, [new if one is line else one for one in lines])
    print(f"added: {folder.name}")


def parts(lines: Sequence[Line]) -> dict[str, list[str]]:
    """Return the generated parts of the page by name."""
    cells = cells_of(EXPLANATION)
    groups = [runs_of(lines, cell) for cell in cells]
    recorded = [same for same in groups if same]
    missing = any(len(same) < len(cell.seeds) for same, cell in zip(groups, cells, strict=True))
    note = ["", UNFINISHED] if missing else []
    found = {"described": [*described(recorded), *note] if recorded else [UNFINISHED]}
    tested = [measured_runs_of(lines, cell) for cell in tested_cells()]
    if any(len(same) < len(cell.seeds) for same, cell in zip(tested, tested_cells(), strict=True)):
        names = ("tested", "answers", "methods", "errors", "second", "multi30k")
        return found | {name: [UNFINISHED] for name in names}
    columns = shown_columns(tested)
    control = tested[0]
    return found | {
        "tested": scores_table(tested, columns),
        "answers": answers(tested, [column for column in columns if column.margin]),
        "methods": methods_table([line for same in tested for line in same]),
        "errors": errors(tested, control, [column for column in columns if column.margin]),
        "second": described_apart(lines, EXPLANATION_SECOND, columns),
        "multi30k": described_apart(lines, EXPLANATION_MULTI30K, columns),
    }


def described_apart(lines: Sequence[Line], name: str, columns: Sequence[Column]) -> list[str]:
    """Return the table of the cells of other data, without the columns they lack: Multi30k has no gold alignments."""
    cells = cells_of(name)
    groups = [measured_runs_of(lines, cell) for cell in cells]
    if any(len(same) < len(cell.seeds) for cell, same in zip(cells, groups, strict=True)):
        return [UNFINISHED]
    return scores_table(groups, [column for column in columns if column.value(groups[0][0]) is not None])


def runs_of(lines: Sequence[Line], cell: Cell) -> list[Line]:
    """Return the recorded runs of a cell."""
    return [line for line in results.runs_of(lines, cell.command) if line.seed in cell.seeds]


def measured_runs_of(lines: Sequence[Line], cell: Cell) -> list[Line]:
    """Return the recorded runs of a cell that were measured."""
    return [line for line in runs_of(lines, cell) if is_measured(line)]


def is_measured(line: Line) -> bool:
    """Return whether everything was measured; data without gold alignments have no AER."""
    gold = "test/aer" in line.scores
    return "test/kept_union" in line.scores and ("test/aer_by_attention" in line.scores) is gold


def shown_columns(tested: Sequence[Sequence[Line]]) -> list[Column]:
    """Return the columns; of the attributions, attention and the method of the highest AP on the validation split."""
    start = "average_precision_"

    def on_validation(method: str) -> float:
        found = (line.scores.get(f"val/{start}{method}") for same in tested for line in same)
        return float(np.mean([value for value in found if value is not None]))

    kept = {"attention", max(METHODS[1:], key=on_validation)}
    return [
        column
        for column in COLUMNS
        if not column.name.startswith((start, "deletion_"))
        or column.name.removeprefix(start).removeprefix("deletion_") in kept
    ]


def described(groups: Sequence[Sequence[Line]]) -> list[str]:
    """Return a table of all cells with three seeds each, with the commits and the machines of all runs above it."""
    columns = [column for column in COLUMNS if column.name in SHOWN]
    runs = [*itertools.chain.from_iterable(groups)]
    above = [*filled(f"- commit: {commits(runs)}", "  "), *facts(runs)]
    return [
        *above,
        *scores_table([[line for line in same if line.seed in planned.SEEDS] for same in groups], columns),
    ]


def scores_table(groups: Sequence[Sequence[Line]], columns: Sequence[Column]) -> list[str]:
    """Return a table of means and standard deviations over the seeds."""
    rows = [[label(same), str(len(same)), *(cell(same, column) for column in columns)] for same in groups]
    return table(["settings, mean ± std", "seeds", *(column.head for column in columns)], rows, 1)


def methods_table(lines: Sequence[Line]) -> list[str]:
    """Return a table of the attributions over runs: means, and the number of runs in which one is better than attention."""
    rows = [
        [
            method,
            *(
                cell(lines, Column(f"{name}_{method}", head, 1, digits))
                for name, head, digits, _ in OF_METHODS
            ),
            *(better_than_attention(lines, method, name, sign) for name, _, _, sign in OF_METHODS),
        ]
        for method in METHODS
    ]
    heads = [head for _, head, *_ in OF_METHODS]
    better = [f"better {head}, runs" for head in heads]
    note = "- better: the number of runs in which a method has a lower AER, a higher AP or a larger drop than attention"
    heads = [f"method, mean ± std over {len(lines)} runs", *heads, *better]
    return [*table(heads, rows, 1), "", *filled(note, "  ")]


def better_than_attention(lines: Sequence[Line], method: str, name: str, sign: int) -> str:
    """Return in how many runs a score of a method is better than that of attention."""
    if method == METHODS[0]:
        return ""
    return str(
        sum(
            sign * (line.scores[f"test/{name}_{method}"] - line.scores[f"test/{name}_{METHODS[0]}"]) > 0
            for line in lines
        )
    )


def label(same: Sequence[Line]) -> str:
    """Return the decoder and the attention function of runs."""
    words = [word.partition("=") for word in unseeded(same[0].command)]
    return ", ".join(value for key, _, value in words if key in ("decoder", "attention"))


def cell(same: Sequence[Line], column: Column) -> str:
    """Format the mean of a column over the seeds."""
    values = [value for line in same if (value := column.value(line)) is not None]
    return mean_and_deviation(values, f".{column.digits}f")


def statistics(line: Line, column: Column) -> Array:
    """Return the statistics per sentence of a column."""
    rows: Array = results.read_statistics(line)[f"test/{column.name}"].astype(np.float64)
    return rows


def sampled(groups: Sequence[Sequence[Line]], column: Column) -> tuple[list[Array], list[Array], int]:
    """Return the scores of the runs of each group, those on bootstrap samples, and the number of clusters of sentences."""
    rows = [[statistics(line, column) for line in same] for same in groups]
    clusters = results.read_statistics(groups[0][0])[f"test/{CLUSTERS}"].astype(int)[: len(rows[0][0])]
    observed, resampled = resample(
        column.values, [*itertools.chain.from_iterable(rows)], clusters, EXAMPLE_SAMPLES
    )
    ends = np.cumsum([len(same) for same in groups])[:-1]
    return np.split(observed, ends), np.split(resampled, ends, axis=1), len(np.unique(clusters))


def answers(groups: Sequence[Sequence[Line]], columns: Sequence[Column]) -> list[str]:
    """Return a table with the answer for each pair of groups and each column; p is corrected for the whole table."""
    found = [compare_scores(*sampled(groups, column)) for column in columns]
    p_values = holm([p for one in found for p in one.p_values().tolist()])
    texts = [
        answers_of(one, column, [*of_column])
        for one, column, of_column in zip(
            found, columns, np.split(np.array(p_values), len(columns)), strict=True
        )
    ]
    pairs = zip(*pairs_of(len(groups)), strict=True)
    rows = [
        [f"{label(groups[one])} → {label(groups[other])}", *of_pair]
        for (one, other), *of_pair in zip(pairs, *texts, strict=True)
    ]
    of_all = [answer for row in rows for answer in row[1:]]
    equal, undecided = of_all.count("equal"), of_all.count("not decided")
    counted = f"- {len(of_all)} answers: {equal} equal, {len(of_all) - equal - undecided} different, {undecided} not decided"
    return [*table(["pair", *(column.head for column in columns)], rows, 1), "", counted]


def answers_of(differences: Differences, column: Column, p_values: Sequence[float]) -> list[str]:
    """Return the answer for each pair: equal within the margin, different by how much, or not decided."""
    assert column.margin is not None
    equal = differences.within(column.margin)
    return [
        "equal" if same else f"{value:+.{column.digits}f}" if p <= LEVEL else "not decided"
        for value, p, same in zip(differences.values_P, p_values, equal, strict=True)
    ]


def errors(groups: Sequence[Sequence[Line]], control: Sequence[Line], columns: Sequence[Column]) -> list[str]:
    """Return how often the test errs for equal groups: in simulations with the variances of the runs, and on real runs."""
    size = min(map(len, groups))
    chosen = picks(len(control), len(control), True, min(size, len(control) // 2), PAIRS)
    rows = []
    for column in columns:
        assert column.margin is not None
        observed, resampled, clusters = sampled([control], column)
        median, largest = scenarios_of(observed[0], resampled[0], sampled(groups, column), size)
        of_real = [
            compare_scores(
                [observed[0][[*part]] for part in pick], [resampled[0][:, [*part]] for part in pick], clusters
            )
            for pick in chosen
        ]
        drawn = [{*one, *other} for one, other in chosen]
        generator = np.random.default_rng(1)
        rows.append(
            [
                column.head,
                f"{column.margin:g}",
                f"{familywise_rate(largest, TRIALS, generator, len(columns)):.1%}",
                f"{equal_rate(median, column.margin, TRIALS):.1%} ({equal_rate(largest, column.margin, TRIALS):.1%})",
                str(jackknife([one.p_values()[0] <= LEVEL for one in of_real], drawn)),
                str(jackknife([bool(one.within(column.margin)[0]) for one in of_real], drawn)),
            ]
        )
    heads = ["column", "margin", "different, simulated", "equal, simulated", "different, real", "equal, real"]
    of_pairs = (
        f"- different, simulated: at least one of the pairs of {len(groups)} equal rows, p corrected for the pairs of all "
        "columns; equal, simulated: one pair, with the median error from the sentences over all pairs (with the largest one)"
    )
    of_real_runs = (
        f"- different and equal, real: one pair, not corrected: groups of {len(chosen[0][0])} of the {len(control)} runs of "
        f"`{label(control)}`"
    )
    return [*table(heads, rows, 1), "", *filled(of_pairs, "  "), *filled(of_real_runs, "  ")]


def scenarios_of(
    observed: Array, resampled: Array, tested: tuple[list[Array], list[Array], int], size: int
) -> list[Scenario]:
    """Return groups of equal means with the variances of real runs, and the median and the largest error from sentences."""
    found = compare_scores(*tested)
    interaction = interaction_variance(resampled)
    of_seeds = max(0.0, float(observed.var(ddof=1)) - interaction)
    groups = len(tested[0])
    of_pairs = found.variances_P3[:, 2]
    return [
        Scenario(
            counts=(size,) * groups,
            deviations=(of_seeds**0.5,) * groups,
            clusters=tested[2],
            examples=float(variance) ** 0.5,
            interaction=interaction**0.5,
        )
        for variance in (np.median(of_pairs), of_pairs.max())
    ]


if __name__ == "__main__":
    main()
