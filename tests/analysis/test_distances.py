"""How far apart the attention and the predictions of two models are."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from demo_models import SOURCES, TARGETS, demo, demo_with

from seq2seq_lab.analysis.distances import Distances, Reading, apart, measure_distances, unit_weights
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.attention import Units
from seq2seq_lab.reporting.distances import opened, recorded_examples
from seq2seq_lab.tasks.loaded import Loaded

PAIR = {"pair": [(0, 1)]}


def between(one: Any, other: Any, count: int = len(SOURCES)) -> Distances:
    return measure_distances([one, other], PAIR, SOURCES[:count], TARGETS[:count])["pair"]


def slow_divergence(p: list[float], q: list[float]) -> float:
    return sum(
        one / 2 * math.log(2 * one / (one + other))
        for pair in zip(p, q, strict=True)
        for one, other in (pair, pair[::-1])
        if one
    )


def test_distances_are_those_of_a_slow_reference() -> None:
    runs = [demo_with("luong", "additive", seed=seed) for seed in (0, 1)]
    found = between(*runs)
    divergence, variation, count = 0.0, 0.0, 0
    for source, target in zip(SOURCES, TARGETS, strict=True):
        read = []
        for run in runs:
            forced = run.forced([source], [target])
            with torch.no_grad():
                logits_1TV, weights_1TS = run.model(batch := forced.batch([0]), batch.inputs_BT)
            read.append((logits_1TV[0].double().softmax(1), weights_1TS[0].double()))
        (p_TV, alpha_TS), (q_TV, beta_TS) = read
        variation += float((p_TV - q_TV).abs().sum()) / 2
        divergence += sum(map(slow_divergence, alpha_TS.tolist(), beta_TS.tolist()))
        count += len(p_TV)
    assert found.attention is not None
    assert found.predictions is not None
    assert found.attention.count == found.predictions.count == count
    assert found.attention.value == pytest.approx(divergence / count, rel=1e-5)
    assert found.predictions.value == pytest.approx(variation / count, rel=1e-5)


def test_the_mean_is_over_the_pairs_of_runs() -> None:
    runs = [demo_with("luong", "additive", seed=seed) for seed in range(3)]
    pairs = {"all": [(0, 1), (0, 2), (1, 2)], **{f"{i}{j}": [(i, j)] for i, j in ((0, 1), (0, 2), (1, 2))}}
    found = measure_distances(runs, pairs, SOURCES, TARGETS)
    whole = found.pop("all")
    for kind in ("attention", "predictions"):
        values = [getattr(one, kind).value for one in found.values()]
        assert getattr(whole, kind).value == pytest.approx(np.mean(values), rel=1e-6)
        assert getattr(whole, kind).confidence > 0


def test_a_run_is_at_no_distance_from_itself() -> None:
    found = between(demo(), demo())
    assert found.attention is not None
    assert found.predictions is not None
    assert found.attention.value == pytest.approx(0, abs=1e-7)
    assert found.predictions.value == 0


def test_sentences_alone_are_as_in_a_batch() -> None:
    runs = [demo_with("transformer", "scaled_dot", seed=seed) for seed in (0, 1)]
    singles = [measure_distances(runs, PAIR, [s], [t])["pair"] for s, t in zip(SOURCES, TARGETS, strict=True)]
    for kind in ("attention", "predictions"):
        means = [getattr(one, kind) for one in singles]
        total = sum(mean.value * mean.count for mean in means) / sum(mean.count for mean in means)
        assert getattr(between(*runs), kind).value == pytest.approx(total, rel=1e-5)


def test_without_attention_or_with_another_vocabulary_there_is_no_distance() -> None:
    found = between(demo(), demo_with("plain", "none"))
    assert found.attention is None
    assert found.predictions is not None
    one = Reading(torch.eye(2), torch.full((2, 2), 0.5), [0, 1], 0)
    assert apart(one, replace(one, probs_TV=torch.eye(2))) == [(0, 2), (1, 2)]
    assert apart(one, replace(one, vocabulary=1)) == [(0, 2), (0, 0)]
    assert apart(one, replace(one, weights_TS=torch.eye(3))) == [(0, 0), (0, 2)]


def test_weights_of_subwords_are_joined_and_rows_divided_by_their_sum() -> None:
    # "<sos> the king <eos>" with "king" in two tokens; the output "le roi" with "roi" in two tokens.
    source = Units.of("the king", [(0, 3), (4, 6), (6, 8)], 1)
    target = Units.of("le roi", [(0, 2), (3, 5), (5, 6)], 0)
    weights_TS = torch.tensor(
        [
            [0.1, 0.5, 0.2, 0.1, 0.1],
            [0.0, 0.2, 0.2, 0.2, 0.4],
            [0.0, 0.0, 0.4, 0.4, 0.2],
            [0.0, 0.0, 0.0, 0.3, 0.2],
        ]
    )
    expected = [[0.1, 0.5, 0.3, 0.1], [0.0, 0.1, 0.6, 0.3], [0.0, 0.0, 0.6, 0.4]]
    np.testing.assert_allclose(unit_weights(weights_TS, source, target), expected, atol=1e-7)


def test_runs_that_read_no_given_texts_are_refused() -> None:
    loaded = type("LoadedClassifier", (), {"forced": Loaded.forced, "reads": "lines", "task": object()})()
    run = SimpleNamespace(is_evaluation=False, folder="RUN")
    with pytest.raises(UserError, match=r"--attention: RUN is a run of object\. Give runs of translation"):
        opened(run, lambda folder: loaded)
    evaluation = SimpleNamespace(
        is_evaluation=True, folder="RUN/evaluations/1", record={"evaluation": {"ensemble": ["a", "b"]}}
    )
    with pytest.raises(UserError, match="RUN/evaluations/1 is an evaluation of an ensemble"):
        opened(evaluation, lambda folder: loaded)


def test_runs_without_recorded_outputs_are_refused() -> None:
    runs: list[Any] = [
        SimpleNamespace(folder="RUN", examples=rows) for rows in ([], [{"input": "a", "reference": None}])
    ]
    with pytest.raises(UserError, match="--attention: RUN has no file of outputs"):
        recorded_examples(runs)
    whole = SimpleNamespace(folder="OTHER", examples=[{"input": "a", "reference": "b"}])
    assert recorded_examples([*runs, whole]) == (["a"], ["b"])
