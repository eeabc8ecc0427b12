"""The training benchmark: reference and package compute the same function, turns alternate, rows are medians."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import turns
from benchmarks.learners import (
    MODELS,
    Data,
    Loop,
    copy_weights,
    multi30k,
    num_parameters,
    package,
    package_config,
    random_plan,
    synthetic,
)
from benchmarks.reference import Sizes
from benchmarks.training import Arm, Row, arms, measure, mixed_lengths, new_contestant, new_row, parser
from benchmarks.turns import Contestant, Turn, in_turns, median_interval
from seq2seq_lab.config.schema import Precision
from seq2seq_lab.data.batching import StepPlan, plan_epoch
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.seq2seq import build_seq2seq

CPU = torch.device("cpu")
FP32 = Precision.fp32
SMALL = Sizes(source_vocabulary=30, target_vocabulary=40, embedding=8, hidden=12)


def small_data(pairs: int = 60) -> Data:
    """Return pairs of random sentences with few words."""
    data = synthetic(pairs, seed=1)
    text = data.text
    tokens = []
    for side, vocabulary in (
        (text.source, SMALL.source_vocabulary),
        (text.target, SMALL.target_vocabulary),
    ):
        word = side.tokens > EOS
        tokens.append(
            replace(side, tokens=torch.where(word, 4 + side.tokens % (vocabulary - 4), side.tokens))
        )
    small = TokenizedText(*tokens)
    return Data("small", small, SMALL.source_vocabulary, SMALL.target_vocabulary)


def loss_curves(name: str, steps: int, bound: float | None = None) -> tuple[list[float], list[float]]:
    """Return the losses of reference and package with equal weights, batches and no dropout, in float64.

    In float32 training amplifies differences of rounding: after 300 steps two curves of the same computation may differ
    by 0.04 nats.

    Args:
        bound: draw the weights from U(-bound, bound). With the small weights of the reference, attention is nearly uniform
            and an error in the scores has little effect.
    """
    data = small_data()
    torch.manual_seed(1)
    loop = Loop(MODELS[name].reference(SMALL, 0.0), data, CPU, 1)
    if bound is not None:
        for weight in loop.model.parameters():
            torch.nn.init.uniform_(weight, -bound, bound)
    learner = package(name, data, CPU, sizes=SMALL, dropout=0.0, batch_size=16, seed=1)
    copy_weights(loop.model, learner.model)
    loop.model.double()
    learner.model.double()
    plan = plan_epoch(data.text, 16, "sentences", seed=1, epoch=0)
    curves: tuple[list[float], list[float]] = ([], [])
    for index in range(steps):
        step = plan[index % len(plan)]
        curves[0].append(float(loop.train_step(step, 1.0, FP32)))
        curves[1].append(float(learner.train_step(step, 1.0, FP32)))
    return curves


@pytest.mark.parametrize("name", MODELS)
def test_reference_and_package_have_the_same_loss_curve(name: str) -> None:
    reference, own = loss_curves(name, 5)
    assert reference[-1] < reference[0]
    np.testing.assert_allclose(own, reference, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_reference_and_package_are_one_function_of_large_weights(name: str) -> None:
    """The weights make attention sharp: without its scores the third digit of the losses differs."""
    curves = loss_curves(name, 3, bound=1.0)
    np.testing.assert_allclose(*curves, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_bundle_at_the_published_sizes_is_the_reference(name: str) -> None:
    sizes = Sizes(7853, 5893, embedding=256, hidden=512)
    with torch.device("meta"):
        package = build_seq2seq(package_config(name, sizes, 0.5, 128, 1), 7853, 5893, joint=False)
        reference = MODELS[name].reference(sizes, 0.5)
    assert num_parameters(package) == num_parameters(reference)


def test_random_pairs_have_the_lengths_of_multi30k() -> None:
    data = synthetic(20_000, seed=1)
    source, target = data.text.source.lengths - 2, data.text.target.lengths - 2
    # Multi30k's training pairs in lowercased spaCy tokens: 12.4 and 13.1 on average, deviations 4.2 and 4.1,
    # correlation 0.86.
    assert source.float().mean() == pytest.approx(12.44, abs=0.15)
    assert target.float().mean() == pytest.approx(13.11, abs=0.15)
    assert source.float().std() == pytest.approx(4.18, abs=0.15)
    assert target.float().std() == pytest.approx(4.08, abs=0.15)
    assert torch.corrcoef(torch.stack([source, target]).float())[0, 1] == pytest.approx(0.86, abs=0.03)
    assert int(data.text.source.tokens.max()) < data.source_vocabulary
    assert int(data.text.target.tokens.max()) < data.target_vocabulary
    assert (data.text.source.tokens[data.text.source.offsets[:-1]] == SOS).all()
    assert (data.text.source.tokens[data.text.source.offsets[1:] - 1] == EOS).all()
    assert PAD not in data.text.source.tokens


def test_random_batches_hold_every_sentence_once_at_most() -> None:
    plan = random_plan(small_data(70).text, 16, seed=1)
    index = np.concatenate([step[0] for step in plan])
    assert [len(step[0]) for step in plan] == [16] * 4
    assert len(set(index.tolist())) == 64
    with pytest.raises(UserError, match="--batch-size=80"):
        random_plan(small_data(70).text, 80, seed=1)


def test_few_successive_steps_are_as_long_as_all() -> None:
    data = synthetic(8_000, seed=1)
    plan = plan_epoch(data.text, 64, "sentences", seed=1, epoch=0)
    defaults = parser().parse_args([])
    starts = range(defaults.warm_up, len(plan) - defaults.steps, defaults.steps)

    def turns(steps: Sequence[StepPlan]) -> list[float]:
        tokens = [data.tokens(step).target for step in steps]
        return [float(np.mean(tokens[first : first + defaults.steps])) for first in starts]

    mixed = mixed_lengths(plan, data)
    assert sorted(map(id, mixed)) == sorted(map(id, plan))
    assert np.std(turns(mixed)) < 0.25 * np.std(turns(plan))


def test_all_real_tokens_of_micro_batches_have_the_same_weight_in_the_loop() -> None:
    data = small_data()
    torch.manual_seed(1)
    loop = Loop(MODELS["bahdanau"].reference(SMALL, 0.0), data, CPU, seed=1)
    weights = {name: weight.clone() for name, weight in loop.model.state_dict().items()}
    whole = loop.train_step([np.arange(12)], 1.0, FP32)
    loop.model.load_state_dict(weights)
    parts = loop.train_step([np.arange(3), np.arange(3, 12)], 1.0, FP32)
    torch.testing.assert_close(parts, whole)


def test_a_turn_counts_real_target_tokens_and_trains() -> None:
    data = small_data()
    learner = package("luong", data, CPU, sizes=SMALL, batch_size=16)
    before = learner.model.target_embedding.weight.clone()
    steps = plan_epoch(data.text, 16, "sentences", seed=1, epoch=0)
    arm = Arm("package", "package", "exact length", FP32)
    turn = new_contestant(learner, arm, steps, data, ratio=0.5, operations=lambda tokens: 7)(
        len(steps) - 1, 2
    )
    index = np.concatenate([*steps[-1], *steps[0]])  # after the last step the first one follows
    assert turn.tokens == int((data.text.target.lengths[torch.from_numpy(index)] - 1).sum())
    assert turn.operations == 14
    assert turn.seconds > 0
    assert learner.state.step == 3  # one is not measured
    assert not torch.equal(before, learner.model.target_embedding.weight)


def test_each_contestant_has_a_turn_per_round_after_a_warm_up() -> None:
    log: list[tuple[str, int, int]] = []

    def contestant(name: str) -> Contestant:
        def turn(first: int, count: int) -> Turn:
            log.append((name, first, count))
            return Turn(tokens=first, seconds=1.0, operations=None, peak_bytes=0)

        return turn

    turns = in_turns([contestant("a"), contestant("b")], warm_up=3, rounds=2, steps=5)
    assert log == [("a", 0, 3), ("b", 0, 3), ("a", 3, 5), ("b", 3, 5), ("a", 8, 5), ("b", 8, 5)]
    assert [[turn.tokens for turn in own] for own in turns] == [[3, 8], [3, 8]]


@pytest.mark.parametrize("reuse", [True, False])
def test_the_memory_of_a_turn_is_that_of_the_package_or_of_glibc(
    reuse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[torch.device] = []
    options: list[dict[int, int]] = []
    monkeypatch.setattr(turns, "keep_freed_memory", kept.append)
    monkeypatch.setattr(turns, "set_malloc_options", options.append)
    turns.reset_memory(CPU, reuse=reuse)
    assert (len(kept), len(options)) == ((1, 0) if reuse else (0, 1))


def test_a_row_is_the_median_of_its_turns() -> None:
    def turns(*speeds: int, operations: int | None) -> list[Turn]:
        return [Turn(speed * 2, seconds=2.0, operations=operations, peak_bytes=speed) for speed in speeds]

    def row(own: list[Turn]) -> Row:
        return new_row(
            "cho", Arm("a", "", "", FP32), own, turns(10, 30, 20, operations=60), ratio=0.5, parameters=1
        )

    first, other = row(turns(10, 30, 20, operations=60)), row(turns(100, 50, 80, operations=None))
    assert (first.slowest, first.tokens_per_second, first.fastest) == (10, 20, 30)
    assert (first.times_the_first, first.operations_per_second) == (1, 30)
    assert (other.times_the_first, other.times_lowest, other.times_highest) == (4, 50 / 30, 10)
    assert (other.operations_per_second, other.peak_bytes) == (None, 100)


def test_the_interval_of_a_median_covers_it() -> None:
    draw, covered = np.random.default_rng(0), 0
    for _ in range(200):
        lowest, highest = median_interval(draw.lognormal(size=15).tolist(), 300)
        covered += lowest <= 1 <= highest
    assert 0.9 < covered / 200 < 1


def test_a_short_run_has_a_row_for_each_way_and_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "benchmarks.training.choose_precision", lambda *_: Precision.bf16
    )  # it measures for seconds
    monkeypatch.setattr("benchmarks.turns.gc.collect", lambda: 0)  # takes long in the process of the tests
    options = argparse.Namespace(seed=1, batch_size=8, ratios=[1.0, 0.5], warm_up=1, rounds=1, steps=1)
    rows = measure("sutskever", small_data(16), options, CPU, ways=arms(CPU), sizes=SMALL)
    names = [arm.name for arm in arms(CPU)]
    assert [(row.name, row.ratio) for row in rows] == [
        (name, ratio) for ratio in (1.0, 0.5) for name in names
    ]
    assert rows[0].times_the_first == rows[len(names)].times_the_first == 1


@pytest.mark.corpora
def test_multi30k_has_the_published_vocabularies(corpora: Path) -> None:
    data = multi30k(corpora / "multi30k")
    assert (len(data.text), data.source_vocabulary, data.target_vocabulary) == (29_000, 7853, 5893)
