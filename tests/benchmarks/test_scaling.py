"""The scaling benchmark: what it measures on two ranks, and its arithmetic."""

import pytest

from benchmarks.scaling import Measured, Settings, efficiency, on_a_rank, on_paper, sharing_on_paper, table
from seq2seq_lab.launching.launch import spawn


def test_two_ranks_share_the_updates_of_one() -> None:
    settings = Settings("luong", 8, 3, 1, 1, "cpu", 1, pairs=60, embedding=8, hidden=8)
    (one,), (first, second) = spawn(1, on_a_rank, settings), spawn(2, on_a_rank, settings)
    assert (one.ranks, first.ranks) == (1, 2)
    assert one.target_tokens == first.target_tokens == second.target_tokens
    assert one.parameters == first.parameters
    assert one.sharing == 0
    assert min(one.seconds, one.alone, first.seconds, first.alone, first.sharing) > 0


def test_efficiency_is_one_where_twice_the_ranks_halve_the_time() -> None:
    one = Measured(1, 0.4, 0.4, 0.0, 1000.0, 10_000_000)
    assert efficiency(one, one) == 1
    assert efficiency(Measured(2, 0.2, 0.19, 0.01, 1000.0, 10_000_000), one) == pytest.approx(1)
    assert efficiency(Measured(4, 0.2, 0.19, 0.01, 1000.0, 10_000_000), one) == pytest.approx(0.5)
    assert table([one]).row_count == 1


def test_a_ring_sends_twice_the_gradients_less_a_share() -> None:
    # 10 million numbers of 4 bytes over 12.5 GB/s: 3.2 ms once, twice 63/64 of it in a ring of 64.
    assert sharing_on_paper(10_000_000, 64, 12.5) == pytest.approx(2 * 63 / 64 * 0.0032)
    assert sharing_on_paper(10_000_000, 1, 12.5) == 0
    assert on_paper(Measured(1, 0.4, 0.4, 0.0, 1000.0, 10_000_000)).row_count == 4
