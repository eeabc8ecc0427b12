import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

from seq2seq_lab.training.schedules import (
    Constant,
    Cosine,
    EpochDecay,
    InverseSquareRoot,
    OneCycle,
    Plateau,
    Schedule,
    Score,
    Warmup,
    differ_before,
)


def like_torch() -> OneCycle:
    """With the figures that torch's OneCycleLR has by default, but for a tenth of warm-up."""
    return OneCycle(warmup_share=0.1, initial_factor=1 / 25, final_factor=1 / 25e4, momentum=(0.85, 0.95))


@pytest.mark.parametrize("total", [2, 5, 9, 11, 20, 100, 137])
def test_one_cycle_equals_torch(total: int) -> None:
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=2e-3, total_steps=total, pct_start=0.1, div_factor=25, final_div_factor=1e4
    )
    ours = like_torch()
    for step in range(total):
        group = optimizer.param_groups[0]
        assert 2e-3 * ours.factor(step, total, []) == pytest.approx(group["lr"], rel=1e-9)
        assert ours.momentum(step, total) == pytest.approx(group["betas"][0], rel=1e-9)
        optimizer.step()
        if step < total - 1:
            theirs.step()


class DownAtTheEnd(Schedule):
    """A custom schedule that falls in the last tenth of the run only, and reads the last score."""

    def factor(self, step: int, total: int, history: Sequence[Score]) -> float:
        return (1.0 if step < 0.9 * total else 0.1) * abs(history[-1].value)


def test_the_rates_before_a_step_can_depend_on_the_length() -> None:
    level, history = (
        OneCycle(warmup_share=0, initial_factor=1, final_factor=1, momentum=(0.85, 0.95)),
        [Score(1.0, 0.0)],
    )
    for schedule in (like_torch(), level, Cosine(warmup_share=0, final_factor=0)):
        assert differ_before(schedule, 100, (5000, 6000), history)
    for schedule in (
        *(Constant(), Warmup(10), InverseSquareRoot(10), EpochDecay(1, 0.5)),
        Plateau(factor=0.5, patience=1),
    ):
        assert not differ_before(schedule, 100, (5000, 6000), history)
    assert differ_before(DownAtTheEnd(), 5000, (5000, 6000), history)
    assert not differ_before(DownAtTheEnd(), 4000, (5000, 6000), history)


def test_one_cycle_that_leaves_momentum_alone() -> None:
    schedule = OneCycle(warmup_share=0.1, initial_factor=0.04, final_factor=0.0, momentum=None)
    assert schedule.momentum(3, 10) is None
    assert Constant().momentum(3, 10) is None


def cosine(step: int, total: int) -> float:
    """A tenth of warm-up to 1 and half a cosine down to 0.25."""
    warmup = total / 10
    if step < warmup:
        return (step + 1) / (warmup + 1)
    share = (step - warmup) / (total - 1 - warmup)
    return 0.25 + 0.75 * (1 + math.cos(math.pi * share)) / 2


def one(_step: int, _total: int) -> float:
    return 1.0


def warmup(step: int, _total: int) -> float:
    """Four steps on the way up."""
    return [1 / 5, 2 / 5, 3 / 5, 4 / 5][step] if step < 4 else 1.0


def root_from(warmup: int) -> Callable[[int, int], float]:
    return lambda step, _: (step + 1) / warmup if step < warmup else (warmup / (step + 1)) ** 0.5


def half_cosine(step: int, total: int) -> float:
    return (1 + math.cos(math.pi * step / (total - 1))) / 2


CLOSED_FORMS = [
    (Constant(), one),
    (Warmup(4), warmup),
    (Warmup(0), one),
    (InverseSquareRoot(4), root_from(4)),
    (InverseSquareRoot(1), root_from(1)),
    (Cosine(0.1, 0.25), cosine),
    (Cosine(0.0, 0.0), half_cosine),
]


@pytest.mark.parametrize(("schedule", "expected"), CLOSED_FORMS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("total", [20, 101])
def test_closed_forms(schedule: Schedule, expected: Callable[[int, int], float], total: int) -> None:
    for step in range(total):
        assert schedule.factor(step, total, []) == pytest.approx(expected(step, total), abs=1e-12)


@pytest.mark.parametrize(
    ("schedule", "last"),
    [
        (like_torch(), 4e-6),
        (Cosine(0.05, 0.25), 0.25),
        (Cosine(0.05, 0.0), 0.0),
        (Warmup(3), 1.0),
        (Constant(), 1.0),
    ],
)
@pytest.mark.parametrize("total", [10, 40, 1000])
def test_the_last_step(schedule: Schedule, last: float, total: int) -> None:
    assert schedule.factor(total - 1, total, []) == pytest.approx(last, abs=1e-12)
    assert schedule.factor(total, total, []) == pytest.approx(last, abs=1e-12)


EVERY = [
    Constant(),
    Warmup(200),
    InverseSquareRoot(400),
    Cosine(0.05, 0.0),
    Cosine(0.0, 0.0),
    like_torch(),
    Plateau(0.5, 1),
]


@pytest.mark.parametrize("schedule", EVERY, ids=lambda schedule: type(schedule).__name__)
@pytest.mark.parametrize("total", [1, 2, 10, 20, 1000])
def test_the_first_step_has_a_positive_rate_and_none_exceeds_the_maximum(
    schedule: Schedule, total: int
) -> None:
    """At 10 steps, where a tenth of warm-up is the first, torch's own OneCycleLR divides by 0."""
    factors = [schedule.factor(step, total, []) for step in range(total)]
    assert factors[0] > 0
    assert all(0 <= factor <= 1 for factor in factors)


@pytest.mark.parametrize(("constant", "decay"), [(6, 1.2), (0, 2.0), (14, 1.15)])
def test_epoch_decay_divides_the_rate_after_the_constant_epochs(constant: int, decay: float) -> None:
    """Zaremba 2014, §4.1: "after 6 epochs we decrease it by a factor of 1.2 after each epoch"."""
    schedule, rate = EpochDecay(constant, 1 / decay), 1.0
    for epoch in range(39):
        if epoch + 1 > constant:
            rate /= decay
        assert schedule.epoch_factor(epoch) == pytest.approx(rate, rel=1e-12)
        assert schedule.factor(epoch, 39, []) == Constant().epoch_factor(epoch) == 1.0


HISTORIES: list[Sequence[float]] = [
    [],
    [1, 2, 3, 4],
    [4, 3, 2, 1, 0, -1, -2],
    [1, 1, 1, 1, 1, 1, 1],
    [1, 3, 2, 2, 4, 1, 1, 1, 1, 5, 0, 0, 0],
    [-5, -6, -4, -4, -4, -3, -3.5],
    [2, math.nan, math.nan, math.nan, 3],
]


@pytest.mark.parametrize("history", HISTORIES, ids=str)
@pytest.mark.parametrize("patience", [0, 1, 2])
def test_plateau_equals_torch(history: Sequence[float], patience: int) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=0.5, patience=patience, threshold=0, threshold_mode="abs", eps=0
    )
    ours = Plateau(factor=0.5, patience=patience)
    scores = [Score.of(value, None) for value in history]
    for validations in range(len(history) + 1):
        assert ours.factor(7, 100, scores[:validations]) == optimizer.param_groups[0]["lr"]
        if validations < len(history):
            theirs.step(history[validations])


def test_plateau_compares_equal_values_by_their_losses() -> None:
    values, losses = [0.0, 0.0, 1.0, 1.0, 1.0, 0.0], [3.0, 2.0, 4.0, 3.5, 3.5, 1.0]
    scores = [Score.of(value, loss) for value, loss in zip(values, losses, strict=True)]
    plateau = Plateau(factor=0.5, patience=1)
    assert [plateau.factor(7, 100, scores[:count]) for count in range(7)] == [1.0] * 6 + [0.5]
    assert Score.of(1.0, 9.0) > Score.of(1.0, None)
    assert Score.of(1.0, None) > Score.of(0.0, 9.0)
