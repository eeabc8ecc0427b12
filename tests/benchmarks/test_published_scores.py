"""Scores beside their published counterparts."""

from dataclasses import replace

import pytest

from benchmarks import planned
from benchmarks.published_scores import PUBLISHED_SCORES, PublishedScore, published_scores, runs_of_seeds
from benchmarks.results import RESULTS, Line, read_lines

LINE = next(line for line in read_lines(RESULTS) if line.experiment == "lium_wmt17")
by_table = pytest.mark.parametrize("score", PUBLISHED_SCORES, ids=lambda score: score.table)


def lines_of(score: PublishedScore, seeds: tuple[int, ...]) -> list[Line]:
    """Return the lines of all runs of a table.

    A score is its seed plus 0.01 for each earlier cell; the scores at the end of a run that is also evaluated are 0.
    """
    lines = []
    cells = [cell for cell in planned.cells() if cell.table == score.table]
    for seed in seeds:
        for number, cell in enumerate(cells):
            line = replace(LINE, command=planned.Run(cell, seed).command, seed=seed, evaluation=None)
            for setting in cell.evaluations:
                lines.append(replace(line, scores={score.name: 0.0}))
                line = replace(line, evaluation=planned.evaluation_command(setting))
            lines.append(replace(line, scores={score.name: seed + number / 100}))
    return lines


@by_table
def test_a_score_is_that_of_the_seeds_whose_cells_are_all_recorded(score: PublishedScore) -> None:
    lines = lines_of(score, (1, 3))
    first = 0.07 if score.table == planned.PHONES else 0.0  # the mean over 15 cells, or the first cell
    _, (_, _, row) = published_scores(lines)
    assert row.startswith(f"| {score.title} | {score.published} | ")
    assert (
        f"| {2 + first:{score.form}} ± {2**0.5:{score.form}} | 1, 3 (2 of {len(score.cells[0].seeds)} planned) |"
        in row
    )


@by_table
def test_a_seed_without_one_of_its_cells_does_not_count(score: PublishedScore) -> None:
    lines = lines_of(score, (1, 2))
    seeds = [
        {*runs_of_seeds(lines[:i] + lines[i + 1 :], score)} for i, line in enumerate(lines) if line.seed == 2
    ]
    assert seeds.count({1}) == (15 if score.table == planned.PHONES else 1)
    assert seeds.count({1, 2}) == len(seeds) - seeds.count({1})


def test_the_commit_is_that_of_the_training() -> None:
    score = next(one for one in PUBLISHED_SCORES if one.evaluation)
    trained, evaluated = (
        replace(line, commit=commit * 7)
        for line, commit in zip(lines_of(score, (1,))[:2], ("a", "b"), strict=True)
    )
    notes, _ = published_scores([trained, evaluated])
    assert "commit aaaaaaa, evaluated with bbbbbbb;" in " ".join(map(str.strip, notes))
    notes, _ = published_scores([trained, replace(evaluated, commit="a" * 7)])
    assert "commit aaaaaaa; machine" in " ".join(map(str.strip, notes))
