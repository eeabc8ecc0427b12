"""The number of threads: chosen by the time of a step, shared in a study, without an effect on the run."""

import copy
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seq2seq_lab.config.compose import compose_job, composer
from seq2seq_lab.config.schema import Precision
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.tasks.base import EpochPlan, StepInfo
from seq2seq_lab.training import threads
from seq2seq_lab.training.threads import choose_threads, fewest_fast

COMPUTE = Compute(torch.device("cpu"), Precision.fp32)
SECONDS = 0.01  # of a step with the slower number of threads


class Plan(EpochPlan):
    """Two steps of four examples."""

    def __init__(self) -> None:
        super().__init__([[np.arange(4)], [np.arange(4)]])

    def batch(self, index: Any) -> Tensor:
        return torch.ones(len(index), 3)

    def count(self, step: int) -> int:
        return 4


class Data:
    def epoch(self, number: int, device: torch.device) -> EpochPlan:
        return Plan()


class SlowWith:
    """A task whose loss takes longer with one number of threads, draws random numbers and has a state."""

    def __init__(self, slow: int) -> None:
        self.slow = slow
        self.calls = 0

    def loss(self, model: nn.Module, batch: Tensor, step: StepInfo) -> Tensor:
        self.calls += 1
        if torch.get_num_threads() == self.slow:
            time.sleep(SECONDS)
        return (model(batch) * torch.rand(4, 1)).sum()

    def state_dict(self, ranks: Ranks) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls = state["calls"]


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    with threads.restored_threads():
        torch.set_num_threads(2)
        yield


def choose(task: SlowWith, model: nn.Module | None = None, folder: Path | None = None) -> int:
    model = nn.Linear(3, 1) if model is None else model
    choose_threads(
        task, model, Data(), micro_batches=1, compute=COMPUTE, file=folder and folder / threads.FILE
    )  # type: ignore[arg-type]
    return torch.get_num_threads()


def test_exhausted_memory_is_named() -> None:
    class Large(SlowWith):
        def loss(self, model: nn.Module, batch: Tensor, step: StepInfo) -> Tensor:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with pytest.raises(
        UserError, match=r"Out of memory in a training step \(trainer\.threads=auto\).*task\.batch_size"
    ):
        choose(Large(1))


@pytest.mark.parametrize(("slow", "chosen"), [(1, 2), (2, 1)])
def test_the_faster_number_is_chosen(slow: int, chosen: int) -> None:
    assert choose(SlowWith(slow)) == chosen


def test_model_task_and_random_state_do_not_change() -> None:
    task, model = SlowWith(2), nn.Linear(3, 1)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    choose(task, model)
    assert task.calls == 0
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_the_jobs_of_a_study_use_the_number_of_the_first_one(tmp_path: Path) -> None:
    assert choose(SlowWith(2), folder=tmp_path) == 1
    assert list(json.loads((tmp_path / threads.FILE).read_text()).values()) == [1]
    torch.set_num_threads(2)
    assert choose(SlowWith(1), folder=tmp_path) == 1


def test_jobs_that_measure_at_the_same_time_use_the_number_written_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose(SlowWith(2), folder=tmp_path) == 1
    first = (tmp_path / threads.FILE).read_text()
    (tmp_path / threads.FILE).unlink()
    torch.set_num_threads(2)
    measure = threads._measure

    def slow_measure(*arguments: Any) -> dict[int, float]:
        seconds = measure(*arguments)
        (tmp_path / threads.FILE).write_text(first)
        return seconds

    monkeypatch.setattr(threads, "_measure", slow_measure)
    assert choose(SlowWith(1), folder=tmp_path) == 1
    assert (tmp_path / threads.FILE).read_text() == first


def test_later_runs_of_the_day_use_the_number_of_the_first_one(tmp_path: Path) -> None:
    with composer():
        config = compose_job([]).plain
    file = threads.file_of_today(tmp_path, config)
    assert threads.file_of_today(tmp_path, {**config, "seed": 2}) == file
    assert threads.file_of_today(tmp_path, {**config, "readout": None}) != file
    choose_threads(SlowWith(2), nn.Linear(3, 1), Data(), micro_batches=1, compute=COMPUTE, file=file)  # type: ignore[arg-type]
    assert file.is_file()
    yesterday = file.with_name(f"{file.name[:10]}-2026-01-01.json")
    file.rename(yesterday)
    assert threads.file_of_today(tmp_path, config) == file
    assert not yesterday.exists()


def test_the_number_of_an_opened_run_applies_until_the_next_one() -> None:
    torch.set_num_threads(3)
    for recorded, used in ((1, 1), (2, 2), (9, 3)):
        threads.use_recorded_threads({"machine": {"threads": recorded}})
        assert torch.get_num_threads() == used
    threads.use_recorded_threads({"machine": {"threads": 1}})
    torch.set_num_threads(2)  # the user's choice
    threads.undo_recorded_threads()
    assert torch.get_num_threads() == 2
    threads.use_recorded_threads({"machine": {"threads": 1}})
    threads.undo_recorded_threads()
    assert torch.get_num_threads() == 2


def test_several_ranks_keep_their_share_of_the_cores() -> None:
    compute = Compute(COMPUTE.device, COMPUTE.precision, Ranks(0, 2, 0))
    model = nn.Linear(3, 1)
    choose_threads(SlowWith(2), model, Data(), micro_batches=1, compute=compute, file=None)  # type: ignore[arg-type]
    assert torch.get_num_threads() == 2


def test_more_threads_must_be_worth_their_cores() -> None:
    assert fewest_fast({1: 1.0, 2: 0.9, 4: 0.8, 8: 0.7}) == 4
    assert fewest_fast({1: 1.0, 2: 1.5, 4: 0.5}) == 4
    assert fewest_fast({1: 1.0, 2: 1.0}) == 1
