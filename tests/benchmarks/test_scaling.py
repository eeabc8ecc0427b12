"""The scaling benchmark on two ranks, and its arithmetic."""

import time
from collections.abc import Callable
from statistics import median

import pytest
import torch
from forked_ranks import forked_ranks

from benchmarks import scaling
from benchmarks.learners import synthetic
from benchmarks.scaling import Row, Settings, efficiency, on_a_rank
from seq2seq_lab.data.batching import plan_epoch
from seq2seq_lab.launching.launch import spawn
from seq2seq_lab.runtime.ranks import Ranks


def test_two_ranks_share_the_steps_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def half_a_second(work: Callable[[], object], **options: object) -> float:
        work()
        return 0.5

    monkeypatch.setattr(scaling, "seconds", half_a_second)
    settings = Settings("luong", 8, 11, 1, 1, "cpu", 1, "fp32", pairs=60, embedding=8, hidden=8)
    with forked_ranks():
        first, second = spawn(2, on_a_rank, settings)
    data = synthetic(60, 1)
    steps = plan_epoch(data.text, 8, "sentences", seed=1, epoch=0)
    # The epoch is repeated.
    counts = [data.tokens(steps[index % len(steps)]).target for index in range(1, 1 + settings.steps)]
    assert first.tokens_per_second == second.tokens_per_second == pytest.approx(2 * median(counts))
    assert (first.ranks, first.parameters) == (2, second.parameters)
    assert (first.seconds, first.without_exchange, first.exchange) == (0.5, 0.5, 0.5)


@pytest.mark.slow
def test_the_time_that_a_rank_waits_for_the_others_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    all_reduce = Ranks.all_reduce

    def late(ranks: Ranks, tensor: torch.Tensor) -> torch.Tensor:
        time.sleep(0.1)
        return all_reduce(ranks, tensor)

    monkeypatch.setattr(Ranks, "all_reduce", late)
    with forked_ranks():
        first, _ = spawn(
            2, on_a_rank, Settings("luong", 8, 1, 0, 1, "cpu", 1, "fp32", pairs=16, embedding=8, hidden=8)
        )
    assert first.exchange >= 0.1


def test_efficiency_is_one_if_twice_the_ranks_halve_the_time() -> None:
    one, two, four = (
        Row(ranks, time, time, 0.01, 1000.0, 10) for ranks, time in ((1, 0.4), (2, 0.2), (4, 0.2))
    )
    assert [efficiency(row, one) for row in (one, two, four)] == pytest.approx([1, 1, 0.5])
    assert two.cells(one) == ["2", "200.0", "1,000", "100%", "200.0", "10.0"]
