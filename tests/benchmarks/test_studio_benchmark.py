"""The benchmark of the questions about one sentence."""

import math
from typing import Any

import pytest
from demo_models import SOURCES, TARGETS, demo

from benchmarks import studio
from benchmarks.studio import Check


def test_answers_equal_the_functions_that_they_name() -> None:
    found = studio.check_run(demo(), [(SOURCES[0], TARGETS[0])], lambda done, total: None).found
    assert {"leaves", "forced output", "log p, predict", "attribute", "intervene", "undo"} <= found.keys()
    for name, one in found.items():
        assert one.count > 0, name
        assert one.largest <= one.limit, name


@pytest.mark.parametrize(
    ("one", "other", "largest"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([1.0, math.nan], [1.0, math.nan], 0.0),
        ([1.0], [1.0, 2.0], math.inf),
        ("a", "b", math.inf),
        (["a"], ["a"], 0.0),
        (True, False, math.inf),
        ([], [], 0.0),
    ],
)
def test_a_difference_is_found(one: Any, other: Any, largest: float) -> None:
    check = Check(0.0)
    check.add(one, other)
    assert check.largest == largest
