"""What follows from a metric: values, intervals, groups, declarations."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Declarations, Grouping, Metric, digest
from seq2seq_lab.metrics.measurement import GroupValue, Measurement, measure
from seq2seq_lab.metrics.significance import confidence_interval, ratio

pytestmark = pytest.mark.usefixtures("with_full_reports")


class Share(Metric):
    """The share of the examples above 0."""

    name, label, higher_is_better, confidence = "share", "share", True, True

    def rows(self, outputs: Sequence[float]) -> Any:
        return np.array([[value > 0, 1] for value in outputs])

    def value(self, totals_K: Any) -> float:
        return totals_K[0] / totals_K[1]

    def is_defined(self, totals_K: Any) -> bool:
        return bool(totals_K[1] > 1)

    def signature(self, outputs: Sequence[float]) -> str:
        return f"n:{len(outputs)}"

    def unavailable(self, outputs: Sequence[float]) -> str | None:
        return None if any(outputs) else "all are 0"


class Late(Share):
    name, when, confidence = "late", "final", False


class PerRank(Share):
    name, per_example = "per_rank", False


def measured(outputs: Sequence[float], **options: Any) -> Measurement:
    metrics = [Share(), Late(), PerRank()]
    return measure(metrics, outputs, clusters=np.arange(len(outputs)), examples="x", **options)


def test_a_validation_measures_what_is_declared_for_it() -> None:
    found = measured([1, 0, 0, 1])
    assert found.values == {"share": 0.5, "per_rank": 0.5}
    assert found.signatures == {"share": "n:4", "per_rank": "n:4"}
    assert measured([1, 0], also=["late"]).values["late"] == 0.5
    assert measured([0, 0], final=True).values == {}


def test_a_caller_can_stop_after_each_metric() -> None:
    done: list[str] = []
    measured([1, 0], final=True, after_metric=lambda: done.append("metric"))
    assert done == ["metric"] * 3


def test_the_final_evaluation_adds_intervals_and_keeps_statistics_of_examples() -> None:
    found = measured([1, 0] * 50, final=True)
    assert set(found.values) == {"share", "share_confidence", "late", "per_rank"}
    # The standard error is 0.05, so the interval is about 0.5 ± 0.098.
    assert 0.08 < found.values["share_confidence"] < 0.12
    assert set(found.statistics) == {"share", "late"}
    assert measured([1, 0]).statistics == {}
    assert found.result("test/a")["test/a/share_signature"] == "n:100"


def test_intervals_resample_clusters() -> None:
    def interval(clusters: Any) -> float:
        return measure([Share()], [1, 0] * 50, clusters=clusters, examples="", final=True).values[
            "share_confidence"
        ]

    assert interval(np.arange(100) % 10) > 2 * interval(np.arange(100))


def test_groups() -> None:
    outputs = [1, 0, 1, 1, 0]
    grouping = Grouping("kind", "kind", Late(), lambda _: {"a": [0, 1], "b": [2, 3, 4], "c": [0], "d": []})
    found = measured(outputs, final=True, groupings=[grouping])
    assert found.groups == {
        "late_by_kind": [
            GroupValue("a", 2, 0.5),
            GroupValue("b", 3, 2 / 3),
            GroupValue("c", 1, None),  # not defined
            GroupValue("d", 0, None),
        ]
    }
    assert measured(outputs, groupings=[grouping]).groups == {}
    without = Grouping("kind", "kind", Late(), lambda _: None)
    assert measured(outputs, final=True, groupings=[without]).groups == {}
    sure = Grouping("kind", "kind", Share(), lambda _: {"a": [0, 1]})
    (row,) = measured(outputs, final=True, groupings=[sure]).groups["share_by_kind"]
    assert row.confidence == 0.5


def test_a_grouping_does_not_use_the_rows_of_another_metric_of_its_name() -> None:
    class Opposite(Share):
        def rows(self, outputs: Sequence[float]) -> Any:
            return np.array([[value <= 0, 1] for value in outputs])

    grouping = Grouping("kind", "kind", Share(), lambda _: {"a": [0, 1, 2]})
    options: dict[str, Any] = {
        "clusters": np.arange(3),
        "examples": "",
        "groupings": [grouping],
        "final": True,
    }
    found = measure([Opposite()], [1, 1, 1], **options)
    assert found.values["share"] == 0
    assert found.groups["share_by_kind"][0].value == 1


def test_an_interval_of_a_group_that_is_not_finite_is_none() -> None:
    class Ratio(Share):
        def rows(self, outputs: Sequence[float]) -> Any:
            return np.array([[value, value] for value in outputs])

        def value(self, totals_K: Any) -> float:
            return totals_K[0] / totals_K[1] if totals_K[1] else math.nan

        def is_defined(self, totals_K: Any) -> bool:
            return True

    grouping = Grouping("kind", "kind", Ratio(), lambda _: {"a": [0, 1]})
    found = measure(
        [], [1, 0], clusters=np.arange(2), examples="", groupings=[grouping], final=True, samples=100
    )
    assert found.groups == {"share_by_kind": [GroupValue("a", 2, 1.0, None)]}


@pytest.mark.parametrize("rows", [np.ones(4), np.ones((3, 1)), np.array([["a"]] * 4)])
def test_rows_that_are_no_row_of_numbers_for_each_example_are_refused(rows: Any) -> None:
    class Wrong(Share):
        def rows(self, outputs: object) -> Any:
            return rows

    with pytest.raises(UserError, match="metric share"):
        measure([Wrong()], [1, 2, 3, 4], clusters=np.arange(4), examples="")


@pytest.mark.parametrize("value", [None, "0.5", np.ones(2), [0.5, 1.0]])
def test_a_value_that_is_not_a_number_is_refused(value: Any) -> None:
    wrong = type("Wrong", (Share,), {"value": lambda self, totals_K: value})()
    with pytest.raises(UserError, match="metric share: value"):
        measure([wrong], [1, 2], clusters=np.arange(2), examples="")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_named_unless_it_is_undefined(value: float) -> None:
    wrong = type("Wrong", (Share,), {"value": lambda self, totals_K: value})()
    found = measure([wrong, Late()], [1, 2], clusters=np.arange(2), examples="", also=["late"])
    assert list(found.not_finite) == ["share"]
    assert not measure([wrong], [1], clusters=np.arange(1), examples="").not_finite


def test_statistics_of_other_metrics_are_the_values_of_the_examples() -> None:
    class Ratio(Share):
        def rows(self, outputs: Sequence[float]) -> Any:
            return np.array([[value, max(value, 0)] for value in outputs])

    found = measure([Ratio()], [2.0, 0.0, -3.0], clusters=np.arange(3), examples="", final=True, samples=1)
    assert found.statistics["share"].tolist() == [[1, 1], [0, 0], [0, 0]]  # 0/0 and -3/0 have no value


def test_declarations_survive_json() -> None:
    grouping = Grouping("kind", "kind of example", Late(), lambda _: None, ordered=False)
    declared = Declarations.of([Share(), Late()], [grouping], "share")
    text = json.dumps(declared.result())
    assert json.dumps(Declarations.read(json.loads(text)).result()) == text
    assert declared.directions() == {"share": "max", "late": "max"}
    assert not declared.metrics["share"].built_in
    assert declared.metrics["share"].text(0.123) == "0.12"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"name": "Share"}, "name=Share"),
        ({"name": "share_confidence"}, "name=share_confidence"),
        ({"name": "late"}, "name=late"),
        ({"name": "examples"}, "name=examples"),
        ({"name": "seconds"}, "name=seconds"),
        ({"name": "file"}, "name=file"),
        ({"name": "allow_pickle"}, "name=allow_pickle"),
        ({"label": None}, "label=None"),
        ({"higher_is_better": "yes"}, "higher_is_better=yes"),
        ({"format": "2 digits"}, "format=2 digits"),
        ({"when": "finaly"}, "when=finaly"),
        ({"limits": (0, math.inf)}, "limits="),
        ({"limits": (math.nan, 1.0)}, "limits="),
        ({"limits": (1.0, 1.0)}, "limits="),
        ({"limits": (0.0,)}, "limits="),
        ({"limits": 1.0}, "limits="),
        ({"bounds": ("late", "nothing")}, "bounds=.*: nothing"),
    ],
)
def test_a_metric_without_what_is_needed_is_refused(changes: dict[str, Any], named: str) -> None:
    wrong = type("Wrong", (Share,), changes)()
    with pytest.raises(UserError, match=named):
        Declarations.of([Late(), wrong], [], "late")


def test_an_entry_of_the_run_may_have_the_name_of_a_metric() -> None:
    named = type("Precision", (Late,), {"name": "precision"})()
    result = Declarations.of([named], [], "precision").result()
    Declarations.read({**result, "precision": "bf16", "test/precision": 0.5})
    with pytest.raises(UserError, match="test/precision"):
        Declarations.read({**result, "precision": "bf16", "test/precision": "bf16"})


def test_outputs_that_are_all_correct_have_no_interval() -> None:
    assert "share_confidence" not in measured([1] * 20, final=True).values
    each_has_one_of_both = np.arange(100) // 2
    found = measure([Share()], [1, 0] * 50, clusters=each_has_one_of_both, examples="", final=True)
    assert "share_confidence" not in found.values


def test_one_cluster_of_examples_has_no_interval() -> None:
    rows = np.array([[1.0, 1.0], [0.0, 1.0]])
    drawn: list[object] = []
    assert confidence_interval(drawn.append, rows, np.array([3, 3]), 10) is None  # type: ignore[arg-type]
    assert drawn == []
    assert confidence_interval(ratio, rows, np.array([3, 4]), 10) == 0.5


def test_a_metric_without_a_direction_is_not_a_primary_one() -> None:
    neither = type("Neither", (Share,), {"higher_is_better": None})()
    declared = Declarations.of([neither, Late()], [], "late")
    assert declared.directions() == {"late": "max"}
    assert Declarations.read(declared.result()) == declared
    with pytest.raises(UserError, match="higher_is_better=None"):
        Declarations.of([neither, Late()], [], "share")


def test_limits_and_bounds_are_accepted() -> None:
    given = type("Given", (Share,), {"limits": [0, 1.5], "bounds": ["late"]})()
    assert Declarations.of([given, Late()], [], "late").metrics["share"].limits == [0, 1.5]


def test_digests_differ_for_other_examples() -> None:
    assert digest([["a", "b"]]) == digest([("a", "b")]) != digest([["a", "c"]])
