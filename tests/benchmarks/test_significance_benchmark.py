"""The benchmark of the comparison's tests, with runs that are made up."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import significance
from benchmarks.significance import jackknife, measure
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
    assert rates["a and bc"][1].share > 0.8
    significance.draw(rates, tmp_path / "rates.png")
    assert (tmp_path / "rates.png").stat().st_size > 0


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(UserError, match="a has 5 runs"):
        measure([group("a", 0.5, 5)], "minimal_pairs", 3, 10)
    with pytest.raises(UserError, match="--size=1"):
        measure([group("a", 0.5, 5)], "minimal_pairs", 1, 10)


def test_the_jackknife_leaves_out_the_pairs_of_one_run() -> None:
    drawn = [{0, 1}, {1, 2}, {2, 3}, {0, 3}, {0, 2}, {1, 3}, {0, 1}, {2, 3}]
    rate = jackknife([True, *[False] * 7], drawn)
    assert rate.share == 0.125
    # The shares without run 0, 1, 2, 3: 0, 0, 1/4, 1/4.
    assert rate.highest == pytest.approx(0.125 + 1.96 * (3 / 4 * 4 * 0.125**2) ** 0.5)
    assert rate.lowest == 0
