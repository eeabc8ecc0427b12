"""Figures beside their published counterparts."""

from dataclasses import replace

import pytest

from benchmarks import planned
from benchmarks.published_figures import FIGURES, Figure, published_figures, scores_of_seeds
from benchmarks.results import RESULTS, Line, read_lines

LINE = next(line for line in read_lines(RESULTS) if line.experiment == "lium_wmt17")
by_table = pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.table)


def lines_of(figure: Figure, seeds: tuple[int, ...]) -> list[Line]:
    """Return a line for each run of a figure and its evaluation; the scores are 0.01 times the seed."""
    lines = []
    for run in planned.runs():
        if run.cell.table == figure.table and run.seed in seeds:
            evaluations = [None, *map(planned.evaluation_command, run.cell.evaluations)]
            lines += [
                replace(
                    LINE,
                    command=run.command,
                    seed=run.seed,
                    evaluation=one,
                    scores={figure.score: run.seed / 100},
                )
                for one in evaluations
            ]
    return lines


@by_table
def test_a_figure_is_the_mean_of_the_seeds_whose_cells_are_all_recorded(figure: Figure) -> None:
    lines = lines_of(figure, (1, 3))
    assert scores_of_seeds(lines, figure) == pytest.approx({1: 0.01, 3: 0.03})
    (row,) = published_figures(lines)[2:]
    assert row.startswith(f"| {figure.name} | {figure.published} | ")
    assert row.endswith(" | 1, 3 |")
    assert ("2.0% ± 1.4%" if figure.form.endswith("%") else "0.02 ± 0.01") in row


@by_table
def test_a_seed_without_one_of_its_cells_does_not_count(figure: Figure) -> None:
    lines = lines_of(figure, (1, 2))
    found = [
        {*scores_of_seeds(lines[:i] + lines[i + 1 :], figure)}
        for i, line in enumerate(lines)
        if line.seed == 2
    ]
    assert found.count({1}) == (15 if figure.table == planned.PHONES else 1)
    assert found.count({1, 2}) == len(found) - found.count({1})
