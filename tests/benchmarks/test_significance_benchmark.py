"""The benchmark of the comparison's tests, with runs that are made up."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import significance
from benchmarks.significance import jackknife, measure, picks
from seq2seq_lab.errors import UserError
from seq2seq_lab.reporting.score_tables import CLUSTERS


def group(label: str, share: float, count: int, spread: float = 0.0) -> Any:
    """Return runs whose accuracies vary around `share`."""
    draw = np.random.default_rng(len(label))
    runs = []
    for _ in range(count):
        right = draw.random(80) < share + spread * draw.standard_normal()
        runs.append(
            SimpleNamespace(
                folder=Path(label),
                test_set="one",
                result={"test/minimal_pairs": 100 * right.mean()},
                statistics={
                    "minimal_pairs": np.stack([right, np.ones(80)], axis=1).astype(float),
                    CLUSTERS: np.arange(80),
                },
            )
        )
    return SimpleNamespace(label=label, runs=tuple(runs))


def test_the_rates_of_equal_and_of_different_configurations(tmp_path: Path) -> None:
    rates = measure([group("a", 0.5, 8, 0.2), group("bc", 0.9, 8)], "minimal_pairs", 3, 30)
    assert list(rates) == ["two groups with a", "a and bc", "two groups with bc"]
    assert all(rates[name][1].share <= 0.1 for name in ("two groups with a", "two groups with bc"))
    assert rates["two groups with a"][0].share > 0.1  # the test of single runs does not see that runs vary
    assert rates["a and bc"][1].share > 0.5
    significance.draw(rates, tmp_path / "rates.png")
    assert (tmp_path / "rates.png").stat().st_size > 0


def test_all_pairs_of_groups_are_compared_if_they_are_few() -> None:
    every = picks(8, 8, True, 3, 280)
    assert len({frozenset(map(frozenset, pick)) for pick in every}) == 280  # 8! / (3! 3! 2!) / 2
    assert all(not {*one} & {*other} for one, other in every)
    assert [sum(run in one + other for one, other in every) for run in range(8)] == [210] * 8
    assert len(set(picks(4, 5, False, 2, 60))) == 60
    for same, count in ((True, 279), (False, 3135)):
        some = picks(8, 8, same, 3, count)
        assert len(set(some)) == count
        assert set(some) < set(picks(8, 8, same, 3, 10_000))


def test_all_pairs_give_narrower_intervals_than_random_ones() -> None:
    scores = np.random.default_rng(4).standard_normal(12)
    widths = []
    for pairs in (9240, 400):
        chosen = picks(12, 12, True, 3, pairs)
        first, second = (scores[np.array(part)] for part in zip(*chosen, strict=True))
        error = np.sqrt((first.var(1, ddof=1) + second.var(1, ddof=1)) / 3)
        found = np.abs(first.mean(1) - second.mean(1)) / error > 2.776  # a t-test at the 5% level
        rate = jackknife(found.tolist(), [{*one, *other} for one, other in chosen])
        widths.append(rate.highest - rate.share)
    assert 0 < widths[0] < 0.7 * widths[1]


def test_without_folders_the_command_simulates(capsys: pytest.CaptureFixture[str]) -> None:
    significance.main(["--trials", "20"])
    shown = capsys.readouterr().out
    assert "| 15 groups of 12 runs |" in shown
    assert "| 14 groups of 3 and 1 of 12 |" in shown
    assert "| 2 and 12 runs |" in shown
    assert shown.count("20 trials") == 3


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(UserError, match="a has 5 runs"):
        measure([group("a", 0.5, 5)], "minimal_pairs", 3, 10)
    with pytest.raises(UserError, match="--size=2"):  # two runs have no p-value
        measure([group("a", 0.5, 5)], "minimal_pairs", 2, 10)


def test_a_metric_without_statistics_is_refused() -> None:
    with pytest.raises(UserError, match="--metric=aer"):
        measure([group("a", 0.5, 6)], "aer", 3, 10)


def test_the_jackknife_leaves_out_the_pairs_of_one_run() -> None:
    drawn = [{0, 1}, {1, 2}, {2, 3}, {0, 3}, {0, 2}, {1, 3}, {0, 1}, {2, 3}]
    rate = jackknife([True, *[False] * 7], drawn)
    assert rate.share == 0.125
    # The shares without run 0, 1, 2, 3: 0, 0, 1/4, 1/4.
    assert rate.highest == pytest.approx(0.125 + 1.96 * (3 / 4 * 4 * 0.125**2) ** 0.5)
    assert rate.lowest == 0
