"""The tables of docs/explanation.md, from runs whose scores are drawn."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import explanation, planned, results
from benchmarks.explanation import COLUMNS, METHODS, parts
from benchmarks.planned import EXPLANATION, EXPLANATION_MULTI30K, EXPLANATION_SECOND
from benchmarks.results import RESULTS, Line
from seq2seq_lab.reporting.score_tables import CLUSTERS

AP = "average_precision_"
SENTENCES = 100
WORSE = explanation.tested_cells()[1].command  # all its columns are worse


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    """All planned runs: the scores of two seeds differ by less than the margins, those of `WORSE` by more."""
    draw = np.random.default_rng(1)
    statistics: dict[str, dict[str, Any]] = {}
    made = []
    easy = {column.name: draw.uniform(0, 2, SENTENCES) for column in COLUMNS}
    for run in planned.runs():
        if run.cell.table not in (EXPLANATION, EXPLANATION_SECOND, EXPLANATION_MULTI30K):
            continue
        gold = run.cell.table != EXPLANATION_MULTI30K
        own: dict[str, Any] = {f"test/{CLUSTERS}": np.arange(SENTENCES)}
        for column in COLUMNS:
            if not gold and column.name.startswith(("aer", AP)):
                continue
            mean = 0.5 + 0.002 * draw.standard_normal() + 0.2 * (run.cell.command == WORSE)
            totals = easy[column.name] * mean
            own[f"test/{column.name}"] = np.stack([totals, easy[column.name]], 1)
        scores = {
            name: float(rows[:, 0].sum() / rows[:, 1].sum()) for name, rows in own.items() if rows.ndim == 2
        }
        if gold:
            scores |= {f"val/{AP}{method}": 0.5 + 0.1 * (method == "occlusion") for method in METHODS}
            scores |= {f"test/aer_by_{method}": 0.1 * i for i, method in enumerate(METHODS)}
        name = f"{len(made)}.npz"
        statistics[name] = own
        made.append(
            Line(None, run.command, "0" * 40, run.seed, "2 cores of a test", scores, {}, statistics=name)
        )
    monkeypatch.setattr(results, "read_statistics", lambda line: statistics[line.statistics])
    monkeypatch.setattr(explanation, "TRIALS", 200)
    monkeypatch.setattr(explanation, "PAIRS", 20)
    monkeypatch.setattr(
        explanation.Column, "values", property(lambda column: lambda s: column.scale * s[:, 0] / s[:, 1])
    )
    return made


def rows_of(part: list[str]) -> list[list[str]]:
    return [[one.strip() for one in line.strip("|").split("|")] for line in part if line.startswith("|")]


def heads_of(part: list[str]) -> list[str]:
    return rows_of(part)[0]


def test_each_pair_of_tested_cells_has_an_answer(lines: list[Line]) -> None:
    found = parts(lines)
    heads, _, *rows = rows_of(found["answers"])
    assert len(rows) == 15
    assert [head for head in heads if head.startswith("AP")] == ["AP, attention", "AP, occlusion"]
    for pair, *answers in rows:
        if "multiplicative" in pair:
            assert all(answer[0] in "+-" for answer in answers), pair
            sign = "-" if pair.startswith("luong, multiplicative") else "+"
            assert {answer[0] for answer in answers} == {sign}
        else:
            assert {*answers} == {"equal"}, pair
    columns = len(heads) - 1
    assert found["answers"][-1] == (
        f"- {15 * columns} answers: {10 * columns} equal, {5 * columns} different, 0 not decided"
    )
    assert len(rows_of(found["tested"])) == 2 + 6
    assert len(rows_of(found["described"])) == 2 + 24
    assert [row[1] for row in rows_of(found["methods"])[2:]] == [
        f"{0.1 * i:.3f}" for i in range(len(METHODS))
    ]
    for _, _, different, equal, *_ in rows_of(found["errors"])[2:]:
        assert float(different.rstrip("%")) < 10
        assert equal == "100.0% (100.0%)"
    runs = sum(len(cell.seeds) for cell in explanation.tested_cells())
    # The AER of attention is the lowest; the columns of all methods have the same distribution.
    assert [row[4] for row in rows_of(found["methods"])[2:]] == ["", *["0"] * 5]
    assert all(0 < int(row[5]) < runs for row in rows_of(found["methods"])[3:])
    of_second = rows_of(found["second"])
    assert of_second[0] == heads_of(found["tested"])
    assert [row[:2] for row in of_second[2:]] == [
        ["luong, multiplicative", "3"],
        ["conditional, additive", "3"],
    ]
    of_multi30k = rows_of(found["multi30k"])
    assert of_multi30k[0] == [
        head for head in heads_of(found["tested"]) if not head.startswith(("AER", "AP"))
    ]
    assert of_multi30k[2][:2] == ["luong, multiplicative", "3"]


def test_p_is_corrected_for_all_columns(lines: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    corrected: list[int] = []
    holm = explanation.holm
    monkeypatch.setattr(explanation, "holm", lambda p: (corrected.append(len(p)), holm(p))[1])
    heads, *_ = rows_of(parts(lines)["answers"])
    assert corrected == [15 * (len(heads) - 1)]


def test_a_run_without_the_aer_of_its_attributions_is_not_measured(lines: list[Line]) -> None:
    (line, *_) = (one for one in lines if "test/aer_by_attention" in one.scores)
    scores = {name: value for name, value in line.scores.items() if not name.startswith("test/aer_by_")}
    assert explanation.is_measured(line)
    assert not explanation.is_measured(replace(line, scores=scores))


def test_a_wide_spread_over_seeds_decides_nothing(lines: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    read = results.read_statistics

    def noisy(line: Line) -> dict[str, Any]:
        spread = 0.1 * np.random.default_rng(line.seed).standard_normal()
        own = read(line)
        return {
            name: rows if rows.ndim < 2 else rows + spread * rows[:, 1:] * [1, 0]
            for name, rows in own.items()
        }

    monkeypatch.setattr(results, "read_statistics", noisy)
    _, _, *rows = rows_of(parts(lines)["answers"])
    assert {answer for pair, *answers in rows if "multiplicative" not in pair for answer in answers} == {
        "not decided"
    }


@pytest.mark.parametrize(("seeds", "cells"), [([*range(1, 11)], 23), ([10], 24)], ids=["all", "one"])
def test_nothing_is_said_of_tested_cells_while_seeds_are_missing(
    lines: list[Line], seeds: list[int], cells: int
) -> None:
    found = parts([one for one in lines if one.command.split(" seed=")[0] != WORSE or one.seed not in seeds])
    for name in ("answers", "tested", "methods", "errors", "second", "multi30k"):
        assert found[name] == [explanation.UNFINISHED]
    assert found["described"][-1] == explanation.UNFINISHED
    assert len(rows_of(found["described"])) == 2 + cells


@pytest.mark.parametrize(("name", "word"), [("second", "dataset.seed=2"), ("multi30k", "dataset=multi30k")])
def test_other_data_are_shown_when_their_seeds_are_recorded(lines: list[Line], name: str, word: str) -> None:
    found = parts([one for one in lines if one.seed != 3 or word not in one.command])
    assert found[name] == [explanation.UNFINISHED]
    assert len(rows_of(found["tested"])) == 2 + 6


def test_the_page_has_all_parts() -> None:
    text = RESULTS.with_name("explanation.md").read_text("utf-8")
    for name in ("described", "tested", "answers", "methods", "errors", "second", "multi30k"):
        assert f"<!-- {name}: " in text
