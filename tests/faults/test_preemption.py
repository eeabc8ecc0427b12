"""Signals, ranks that are killed and ranks that hang: what a run leaves, and that it can be resumed without a loss."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch
from forked_ranks import forked_ranks
from safetensors.torch import load_file

import seq2seq_lab
from seq2seq_lab.errors import Preempted, UserError
from seq2seq_lab.launching import launch
from seq2seq_lab.runtime import watch
from seq2seq_lab.tasks.base import EpochPlan
from seq2seq_lab.training import checkpoint
from seq2seq_lab.training.state import TrainState
from seq2seq_lab.training.step import TrainingStep

pytestmark = pytest.mark.slow  # starts two ranks
SETTINGS = [
    *("dataset.train=80", "dataset.validation=8", "dataset.test=8", "dataset.test_compositional=0"),
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=4", "model.dropout=0.3"),
    *("trainer.device=cpu", "trainer.precision=fp32", "task.samples=0", "trainer.log_every_steps=1"),
    *("task.batch_size=16", "trainer.max_epochs=2", "task.eval_batch_size=2", "logger=none"),
]
STEPS = 10


def losses(folder: Path) -> list[tuple[int, str]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [(row["step"], float(row["train/loss"]).hex()) for row in rows if "train/loss" in row]


def last_tensors(folder: Path) -> dict[str, torch.Tensor]:
    path = checkpoint.newest(folder / "checkpoints")
    assert path.name == f"step_{STEPS:08d}"
    return {**load_file(path / "model.safetensors"), **load_file(path / "optimizer.safetensors")}


def assert_same_run(one: Path, other: Path) -> None:
    assert losses(one) == losses(other)
    tensors, others = last_tensors(one), last_tensors(other)
    assert tensors.keys() == others.keys()
    assert all(torch.equal(tensors[name], others[name]) for name in tensors)


def status_of(folder: Path) -> str:
    return str(json.loads((folder / "result.json").read_text("utf-8"))["status"])


def train_on_ranks(folder: Path, *settings: str) -> dict[str, Any]:
    with forked_ranks():
        run = seq2seq_lab.train([*SETTINGS, "trainer.devices=2", *settings], folder=folder)
    assert run.result is not None
    return run.result


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of two ranks."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "cores", lambda: [0, 1])
        train_on_ranks(folder)
    return folder


def send_in_step(monkeypatch: pytest.MonkeyPatch, step: int, number: int, rank: int = 1) -> None:
    """Send a rank a signal in a step."""
    update = TrainingStep._update_weights

    def send(training_step: TrainingStep, loss_sum: torch.Tensor, current: int) -> Any:
        if current == step and training_step.compute.ranks.rank == rank:
            os.kill(os.getpid(), number)
        return update(training_step, loss_sum, current)

    monkeypatch.setattr(TrainingStep, "_update_weights", send)


def test_a_signal_to_one_rank_stops_both_at_the_same_step(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "cores", lambda: [0, 1])
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        send_in_step(patch, 2, signal.SIGTERM)
        with pytest.raises(Preempted) as preempted:
            train_on_ranks(folder)
    assert preempted.value.number == signal.SIGTERM
    assert status_of(folder) == "preempted"
    assert checkpoint.newest(folder / "checkpoints").name == "step_00000004"
    with forked_ranks():
        assert command_line.run(f"resume={folder}") == 0
    assert status_of(folder) == "finished"
    assert_same_run(folder, whole)


def test_restarts_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "cores", lambda: [0, 1])
    send_in_step(monkeypatch, 6, signal.SIGKILL)
    with pytest.raises(launch.RankKilledError, match="SIGKILL"):
        train_on_ranks(tmp_path / "run", "trainer.max_restarts=1")
    assert status_of(tmp_path / "run") == "failed"
    assert checkpoint.newest(tmp_path / "run" / "checkpoints").name == "step_00000005"
    assert (tmp_path / "run" / "run.log").read_text("utf-8").count("Restart 1 of 1") == 1


SLACK = 10  # seconds on a busy machine; otherwise below 5
SHORT = ("trainer.start_timeout_seconds=30", "trainer.timeout_seconds=4")


def test_a_rank_that_hangs_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "cores", lambda: [0, 1])
    marker = tmp_path / "hung"
    update = TrainingStep._update_weights

    def hang(training_step: TrainingStep, loss_sum: torch.Tensor, current: int) -> Any:
        if current == 6 and training_step.compute.ranks.rank == 0:
            time.sleep(2 * watch.INTERVAL)  # until the other rank has read what this rank does
            marker.write_text(f"{os.getpid()} {time.time()}")
            os.kill(os.getpid(), signal.SIGSTOP)
        return update(training_step, loss_sum, current)

    monkeypatch.setattr(TrainingStep, "_update_weights", hang)
    with pytest.raises(UserError, match=r"timeout_seconds=4: .* on rank 0 \(step 7, backward\)"):
        train_on_ranks(tmp_path / "run", *SHORT)
    process, since = marker.read_text().split()
    assert time.time() - float(since) < 4 + SLACK
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)
    assert status_of(tmp_path / "run") == "failed"


def test_the_traceback_of_a_rank_reaches_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "cores", lambda: [0, 1])

    def broken(training_step: TrainingStep, loss_sum: torch.Tensor, current: int) -> Any:
        if training_step.compute.ranks.rank == 1:
            raise ZeroDivisionError("of rank 1")
        training_step.compute.ranks.barrier()

    monkeypatch.setattr(TrainingStep, "_update_weights", broken)
    with pytest.raises(
        RuntimeError, match=r"(?s)Rank 1 failed.*Traceback.*in broken.*ZeroDivisionError: of rank 1"
    ):
        train_on_ranks(tmp_path / "run")
    assert status_of(tmp_path / "run") == "failed"
    result = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert "ZeroDivisionError: of rank 1" in result["error"]


def test_ranks_that_drift_apart_are_refused_at_the_next_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "cores", lambda: [0, 1])
    step = TrainingStep.__call__

    def drifting(training_step: TrainingStep, plan: EpochPlan, state: TrainState) -> Any:
        done = step(training_step, plan, state)
        if state.step == 6 and training_step.compute.ranks.rank == 1:
            weight = next(training_step.model.parameters())
            training_step.optimizer.state[weight]["exp_avg_sq"].data[0, 0] += 1e-3
        return done

    monkeypatch.setattr(TrainingStep, "__call__", drifting)
    with pytest.raises(UserError, match=r"rank 1 differ from those of rank 0 at step 10.*resume="):
        train_on_ranks(tmp_path / "run")
    assert status_of(tmp_path / "run") == "failed"
    assert checkpoint.newest(tmp_path / "run" / "checkpoints").name == "step_00000005"
