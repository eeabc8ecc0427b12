"""Several ranks compute what one process computes."""

import math
import signal
from typing import Any

import pytest
import torch
from forked_ranks import forked_ranks
from parallel_training import (
    Trained,
    aborted_at_its_end,
    composed,
    not_finite_on_rank_1,
    on_a_rank,
    refused_on_rank_1,
    train,
)

from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.launch import spawn
from seq2seq_lab.runtime.ranks import Ranks

FORCED = "teacher_forcing.ratio=0.5"
CASES = [
    ("task.batch_size=8",),
    ("task.batch_size=1",),  # only one rank has a sentence
    (
        "task.batch_size=60",
        "task.batch_unit=tokens",
        "decoder=bahdanau",
        FORCED,
        "teacher_forcing.scope=token",
    ),
    (
        *("task.batch_size=8", "trainer.micro_batches=4", "attention=multiplicative", "encoder=bilstm"),
        *(FORCED, "teacher_forcing.scope=sequence"),
    ),
    ("task.batch_size=8", FORCED, "teacher_forcing.scope=batch"),
    ("task.batch_size=8", FORCED, "teacher_forcing.scope=step", "task.r_drop=1"),
    ("task.batch_size=8", "teacher_forcing.ratio=0", "task.stop_at_eos=true"),
]


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    return [composed(case) for case in CASES]


@pytest.fixture(scope="module")
def trained(cases: list[Any]) -> list[list[Trained]]:
    """The results of each of three ranks in each case."""
    with forked_ranks():
        return spawn(3, on_a_rank, cases)


@pytest.mark.slow  # starts three ranks
def test_ranks_train_and_score_as_one_process(cases: list[Any], trained: list[list[Trained]]) -> None:
    for number, case in enumerate(cases):
        alone = train(case, Ranks())
        ranks = [rank[number] for rank in trained]
        for rank in ranks:
            assert rank.losses == pytest.approx(alone.losses, rel=1e-9)
            assert rank.norms == pytest.approx(alone.norms, rel=1e-6)
            assert float((rank.weights - alone.weights).norm() / alone.weights.norm()) < 1e-6
            assert rank.evaluation.values == pytest.approx(alone.evaluation.values, rel=1e-6)
        first = ranks[0].evaluation  # the others have the values alone
        assert first.texts == alone.evaluation.texts
        assert first.hypotheses.keys() == alone.evaluation.hypotheses.keys() == {0, 4}
        # No sentence is lost or read twice.
        assert sorted(i for rank in ranks for i in rank.sentences) == sorted(alone.sentences) == [*range(37)]
        assert alone.losses[-1] < alone.losses[0]


def test_two_ranks_are_one_process_that_computes_in_two_parts_to_the_last_bit() -> None:
    case = ("task.batch_size=30", "model.dropout=0.3", "teacher_forcing.ratio=0.5")
    with forked_ranks():
        ranks = spawn(2, on_a_rank, [composed(case)])
    alone = train(composed((*case, "trainer.micro_batches=2")), Ranks())
    for (rank,) in ranks:
        assert torch.equal(rank.weights, alone.weights)
        assert rank.losses == alone.losses
        assert rank.norms == alone.norms
    assert set().union(*(rank.seeds for (rank,) in ranks)) == alone.seeds


@pytest.mark.slow
def test_all_ranks_skip_a_step_that_is_not_finite_on_one() -> None:
    with forked_ranks():
        ranks = spawn(2, not_finite_on_rank_1, composed(("task.batch_size=16",)), 1)
    for rank in ranks:
        assert [math.isfinite(loss) for loss in rank.losses] == [True, False, True]
        assert rank.weights.isfinite().all()
        assert torch.equal(rank.weights, ranks[0].weights)


@pytest.mark.slow  # starts three ranks
def test_each_rank_draws_dropout_of_its_own(trained: list[list[Trained]]) -> None:
    seeds = [rank[0].seeds for rank in trained]
    assert all(len(of_rank) == 5 for of_rank in seeds)  # one per step
    assert len(set().union(*seeds)) == 5 * len(seeds)


@pytest.mark.slow
def test_the_error_of_a_rank_is_the_only_output_for_the_user(capfd: pytest.CaptureFixture[str]) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(UserError, match=r"^key=value is not allowed: this rank will not\. Choose another\.$"):
        spawn(2, refused_on_rank_1)
    assert capfd.readouterr() == ("", "of rank 0\n")  # rank 0 logs; the others and the agent are silent
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def compute_with_two_threads() -> float:
    """Compute something for which PyTorch uses all threads. A process that waits for a thread for a minute is ended."""
    before = signal.alarm(60)
    torch.set_num_threads(2)
    total = float(torch.nn.functional.layer_norm(torch.ones(600, 600), (600,)).exp().sum())
    signal.alarm(before)
    return total


@pytest.mark.slow
def test_forked_ranks_compute_after_this_process_has_used_threads() -> None:
    threads = torch.get_num_threads()
    expected = compute_with_two_threads()
    with forked_ranks():
        assert spawn(2, compute_with_two_threads) == [expected, expected]
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)


@pytest.mark.slow  # starts three ranks
def test_weights_are_the_same_on_every_rank(trained: list[list[Trained]]) -> None:
    first, *others = trained
    for number in range(len(first)):
        for other in others:
            assert torch.equal(other[number].weights, first[number].weights)


@pytest.mark.slow
def test_a_rank_that_has_done_its_work_does_not_fail_by_its_end() -> None:
    assert spawn(1, aborted_at_its_end) == ["done"]
