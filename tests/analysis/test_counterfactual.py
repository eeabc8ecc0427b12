import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from demo_models import DATA
from hypothesis import given
from hypothesis import strategies as st

from seq2seq_lab.analysis.counterfactual import (
    Changes,
    auc,
    average_precision,
    changed_words,
    count_changes,
    rank,
    split_words,
)
from seq2seq_lab.analysis.dependence import dependences
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.analyze.common import influences_of
from seq2seq_lab.analyze.counterfactuals import changed_outputs
from seq2seq_lab.data.corpus import Gold
from seq2seq_lab.data.counterfactuals import Counterfactual, Influence
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.tables import with_interval

CELLS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0, -3.0, 7.5]), st.booleans()), min_size=1, max_size=40
)


def arrays(cells: list[tuple[float, bool]]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    return np.array([score for score, _ in cells]), np.array([flag for _, flag in cells])


def slow_average_precision(cells: list[tuple[float, bool]]) -> float:
    positives = sum(flag for _, flag in cells)
    total = recall = 0.0
    for threshold in sorted({score for score, _ in cells}, reverse=True):
        chosen = [flag for score, flag in cells if score >= threshold]
        total += (sum(chosen) / positives - recall) * sum(chosen) / len(chosen)
        recall = sum(chosen) / positives
    return total


def slow_auc(cells: list[tuple[float, bool]]) -> float:
    pairs = [(a, b) for a, flag in cells if flag for b, other in cells if not other]
    return sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs)


@given(CELLS)
def test_scores_equal_a_slow_reference(cells: list[tuple[float, bool]]) -> None:
    flags = {flag for _, flag in cells}
    if True in flags:
        assert average_precision(*arrays(cells)) == pytest.approx(slow_average_precision(cells), abs=1e-12)
    else:
        assert math.isnan(average_precision(*arrays(cells)))
    if len(flags) == 2:
        assert auc(*arrays(cells)) == pytest.approx(slow_auc(cells), abs=1e-12)
    else:
        assert math.isnan(auc(*arrays(cells)))


@pytest.mark.parametrize("decimals", [1, 6])
def test_scores_equal_scikit_learn(decimals: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(decimals)
    for size in (2, 5, 30, 300):
        scores, flags = random.normal(size=size).round(decimals), np.arange(size) % 3 == 0
        assert average_precision(scores, flags) == pytest.approx(
            metrics.average_precision_score(flags, scores)
        )
        assert auc(scores, flags) == pytest.approx(metrics.roc_auc_score(flags, scores))


def pair(source: str, target: str, links: set[tuple[int, int]] = frozenset()) -> Gold:  # type: ignore[assignment]
    return Gold(tuple(source.split()), tuple(target.split()), frozenset(links))


def cow() -> Influence:
    """The cow sleeps, with three of its counterfactuals; the full stop has none."""
    gold = pair("the cow sleeps .", "la vache dort .", {(0, 0), (1, 1), (2, 2), (3, 3)})

    def change(source: str, target: str, replaced: int, changed: set[int]) -> Counterfactual:
        agreement = frozenset(changed - {replaced})
        text = target.replace(" .", ".")
        return Counterfactual(
            source, text, pair(source, target), (replaced,), frozenset(changed), agreement, False
        )

    counterfactuals = (
        change("a cow sleeps .", "une vache dort .", 0, {0}),
        change("the dog sleeps .", "le chien dort .", 1, {0, 1}),
        change("the cow eats .", "la vache mange .", 2, {2}),
    )
    matrix = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]], np.bool_)
    return Influence(gold, matrix, np.array([True, True, True, False]), counterfactuals)


def test_columns_without_a_known_influence_are_left_out() -> None:
    influence = cow()
    diagonal = np.eye(4)
    other = diagonal.copy()
    other[:, 3] = 9
    for scores in (diagonal, other):
        ranking = rank([scores], [influence])
        assert ranking.average_precision_N.tolist() == [ranking.average_precision]
        # The three cells of the diagonal first, then one of the nine others: 3/4 + 1/4 * 4/12.
        assert ranking.average_precision == pytest.approx(3 / 4 + 1 / 4 * 4 / 12)
        assert ranking.auc == pytest.approx((3 + 0.5) / 4)
        assert ranking.share == pytest.approx(4 / 12)
    perfect = rank([influence.influence_TS * 0.1], [influence])
    assert (perfect.average_precision, perfect.auc) == (1, 1)


def test_pooled_scores_are_compared_across_sentences() -> None:
    influence = cow()
    ranking = rank([influence.influence_TS * 1.0, influence.influence_TS - 5.0], [influence] * 2)
    assert ranking.average_precision_N.tolist() == [1, 1]
    assert ranking.average_precision < 1


def test_changed_words_do_not_include_moved_ones() -> None:
    def changed(first: str, second: str) -> set[int]:
        return set(changed_words(first.split(), second.split()))

    assert changed("la vache dort .", "le chien dort .") == {0, 1}
    assert changed("le chien noir dort", "le petit chien dort") == {2}
    assert changed("chien noir dort", "noir chien dort") == set()
    assert changed("il a dormi", "il dort") == {1, 2}
    assert changed("il dort", "il a dormi") == {1}
    assert changed("a b", "") == {0, 1}
    assert changed("a a b", "a b") in ({0}, {1})


def test_the_changes_of_a_model_that_outputs_the_references() -> None:
    influence = cow()
    references = [change.target for change in influence.counterfactuals]
    changes = count_changes(influence, "la vache dort.", references)
    assert (changes.counterfactuals, changes.correct, changes.expected, changes.expected_agreement) == (
        3,
        3,
        4,
        1,
    )
    assert (changes.recall, changes.agreement_recall, changes.precision) == (1, 1, 1)


def test_the_changes_of_a_model_that_ignores_agreement_and_of_one_that_ignores_the_source() -> None:
    influence = cow()
    outputs = ["une vache dort.", "la chien dort.", "la vache mange vite."]
    changes = count_changes(influence, "la vache dort.", outputs)
    assert (changes.correct, changes.expected, changes.found, changes.output) == (1, 4, 3, 3)
    assert (changes.recall, changes.agreement_recall, changes.precision) == (0.75, 0, 1)
    constant = count_changes(influence, "le roi chante.", ["le roi chante."] * 3)
    assert (constant.correct, constant.recall) == (0, 0)
    assert math.isnan(constant.precision)


def test_a_model_that_outputs_the_references_of_the_grammar() -> None:
    dataset = Grammar(
        train=1, validation=1, test=60, test_compositional=0, held_out_share=0.0, seed=5, max_depth=3
    )
    text = dataset.load().tests["test"]
    for target, influence in zip(
        text.target, dataset.influences(text.source, per_word=4, seed=0), strict=True
    ):
        assert tuple(split_words(target)) == influence.gold.target_words
        changes = count_changes(influence, target, [change.target for change in influence.counterfactuals])
        assert changes.counterfactuals == changes.correct == len(influence.counterfactuals)
        assert changes.found == changes.expected == changes.output > 0
        assert changes.found_agreement == changes.expected_agreement


def test_the_measures_of_a_group_are_ratios_of_sums() -> None:
    changes = [Changes(4, 3, 10, 9, 4, 2, 12), Changes(2, 2, 5, 5, 0, 0, 5), Changes(1, 0, 1, 0, 0, 0, 1)]
    found = {one.group: one for one in dependences(changes, [["b"], ["b", "a"], []])}
    assert [*found] == ["all", "a", "b"]
    assert [(one.sentences, one.counterfactuals) for one in found.values()] == [(3, 7), (1, 2), (2, 6)]
    values = {name: mean.value for name, mean in found["all"].means.items()}
    assert values == {"recall": 14 / 16, "agreement_recall": 0.5, "precision": 14 / 18, "correct": 5 / 7}
    assert {name: mean.value for name, mean in found["a"].means.items()} == {
        **{"recall": 1, "precision": 1, "correct": 1}
    }
    assert found["b"].means["agreement_recall"].confidence is None  # one of the two sentences has none
    assert found["b"].means["agreement_recall"].text(".1%") == "50.0%"
    assert dependences(changes)[0] == found["all"]


def test_a_model_that_outputs_the_references_depends_on_what_they_depend_on() -> None:
    dataset = Grammar(
        train=1, validation=1, test=5, test_compositional=0, held_out_share=0.0, seed=5, max_depth=3
    )
    text = dataset.load().tests["test"]
    influences = dataset.influences(text.source, per_word=2, seed=0)
    references = dict(zip(text.source, text.target, strict=True))
    references |= {change.source: change.target for one in influences for change in one.counterfactuals}
    run = SimpleNamespace(
        task=SimpleNamespace(eval_batch_size=2),
        nbest=lambda lines, with_attention: [[SimpleNamespace(text=references[line])] for line in lines],
    )
    records = [*changed_outputs(run, text.source, influences)]
    assert [one["index"] for one in records] == [0, 1, 2, 3, 4]
    assert [one["output"] for one in records] == [*text.target]
    assert all(
        change["output"] == change["reference"] for one in records for change in one["counterfactuals"]
    )
    (found, *_) = dependences([Changes(**one["counts"]) for one in records])
    assert {name: mean.value for name, mean in found.means.items()} == dict.fromkeys(found.means, 1)


def test_the_program_prints_the_same_numbers_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["counterfactuals", "demo", *DATA, "dataset.max_depth=2", "--first", "2"]
    analyze.main([*line, "--format", "jsonl"])
    lines = capsys.readouterr().out.splitlines()
    assert not any("Infinity" in one or "NaN" in one for one in lines)
    records = [json.loads(one) for one in lines]
    sentences, (total, *groups) = records[:2], records[2:]
    assert (total["group"], total["sentences"]) == ("all", 2)
    assert groups
    counts = [one["counts"] for one in sentences]
    assert total["counterfactuals"] == sum(len(one["counterfactuals"]) for one in sentences)
    recall = sum(one["found"] for one in counts) / sum(one["expected"] for one in counts)
    assert total["means"]["recall"]["value"] == pytest.approx(recall)
    assert recall > 0.8
    right = [
        change["output"] == change["reference"] for one in sentences for change in one["counterfactuals"]
    ]
    assert total["means"]["correct"]["value"] == pytest.approx(sum(right) / len(right))
    analyze.main(line)
    shown = with_interval(recall, total["means"]["recall"]["confidence"], ".1%")
    assert f" {shown} " in capsys.readouterr().out


def test_data_without_counterfactuals_is_refused() -> None:
    run = SimpleNamespace(task=SimpleNamespace(parts=SimpleNamespace(dataset=lambda: object())))
    split = SimpleNamespace(text=SimpleNamespace(gold=[], source=[]))
    with pytest.raises(UserError, match="dataset=grammar"):
        influences_of(run, split, 1, 1)
