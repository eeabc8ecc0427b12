"""Signals, ranks that are killed and ranks that hang: what a run leaves, and that it can be resumed without a loss."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
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
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.tasks.translation.evaluation import TranslationEvaluator
from seq2seq_lab.training import checkpoint
from seq2seq_lab.training.trainer import Trainer

SETTINGS = [
    *("dataset.train=80", "dataset.validation=8", "dataset.test=8", "dataset.test_compositional=0"),
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=4", "model.dropout=0.3"),
    *("trainer.device=cpu", "trainer.precision=fp32", "trainer.samples=0", "trainer.log_every_steps=1"),
    *("trainer.batch_size=16", "trainer.max_epochs=2", "trainer.eval_batch_size=2", "logger=none"),
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
    update = Trainer._update_weights

    def send(trainer: Trainer, loss_sum: torch.Tensor) -> Any:
        if trainer.state.step == step and trainer.compute.ranks.rank == rank:
            os.kill(os.getpid(), number)
        return update(trainer, loss_sum)

    monkeypatch.setattr(Trainer, "_update_weights", send)


def send_in_evaluation(monkeypatch: pytest.MonkeyPatch, call: int, number: int) -> None:
    """Send rank 1 a signal in an evaluation: the first two are validations, the next ones score the best checkpoint."""
    evaluate, calls = TranslationEvaluator.__call__, 0

    def send(evaluator: TranslationEvaluator, final: bool = False, counted: Any = None) -> Any:
        nonlocal calls
        if calls == call and evaluator.compute.ranks.rank == 1:
            os.kill(os.getpid(), number)
        calls += 1
        return evaluate(evaluator, final, counted)

    monkeypatch.setattr(TranslationEvaluator, "__call__", send)


@pytest.mark.parametrize(
    ("inject", "at", "number", "newest"),
    [
        (send_in_step, 2, signal.SIGTERM, (4,)),
        (send_in_evaluation, 3, signal.SIGTERM, (10,)),
    ],
)
def test_a_signal_to_one_rank_stops_both_at_the_same_step(
    inject: Any,
    at: int,
    number: int,
    newest: tuple[int],
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "cores", lambda: [0, 1])
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        inject(patch, at, number)
        with pytest.raises(Preempted) as preempted:
            train_on_ranks(folder)
    assert preempted.value.number == number
    assert status_of(folder) == "preempted"
    assert checkpoint.newest(folder / "checkpoints").name == f"step_{newest[0]:08d}"
    with forked_ranks():
        assert command_line.run(f"resume={folder}") == 0
    assert status_of(folder) == "finished"
    assert_same_run(folder, whole)


def test_with_micro_batches_the_number_of_ranks_can_change(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "cores", lambda: [0, 1])
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        send_in_step(patch, 2, signal.SIGTERM)
        with pytest.raises(Preempted):
            train_on_ranks(folder, "trainer.micro_batches=2")
    with forked_ranks():
        with monkeypatch.context() as patch:
            send_in_step(patch, 6, signal.SIGTERM, rank=0)
            assert command_line.run(f"resume={folder}", "trainer.devices=1") == 143
        assert checkpoint.newest(folder / "checkpoints").name == "step_00000007"
        assert command_line.run(f"resume={folder}", "trainer.devices=2") == 0
    assert_same_run(folder, whole)


def kill_once(monkeypatch: pytest.MonkeyPatch, step: int, rank: int, marker: Path) -> None:
    """Kill a rank between the backward pass and the update of a step, in the first start only."""
    update = Trainer._update_weights

    def kill(trainer: Trainer, loss_sum: torch.Tensor) -> Any:
        if trainer.state.step == step and trainer.compute.ranks.rank == rank and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return update(trainer, loss_sum)

    monkeypatch.setattr(Trainer, "_update_weights", kill)


def test_the_run_restarts_after_a_rank_was_killed(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "cores", lambda: [0, 1])
    kill_once(monkeypatch, 6, 0, tmp_path / "killed")
    train_on_ranks(tmp_path / "run")
    assert (tmp_path / "killed").exists()
    assert status_of(tmp_path / "run") == "finished"
    assert_same_run(tmp_path / "run", whole)
    log = (tmp_path / "run" / "run.log").read_text("utf-8")
    assert len(re.findall(r"Rank 0 failed: .*SIGKILL.*Restart 1 of 3", log)) == 1


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


@pytest.mark.parametrize(("rank", "stopped"), [(0, True), (1, False)])
def test_a_rank_that_hangs_ends_the_run(
    rank: int, stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "cores", lambda: [0, 1])
    marker = tmp_path / "hung"
    update = Trainer._update_weights

    def hang(trainer: Trainer, loss_sum: torch.Tensor) -> Any:
        if trainer.state.step == 6 and trainer.compute.ranks.rank == rank:
            time.sleep(2 * watch.INTERVAL)  # until the other rank has read what this one does
            marker.write_text(f"{os.getpid()} {time.time()}")
            if stopped:
                os.kill(os.getpid(), signal.SIGSTOP)
            threading.Event().wait()
        return update(trainer, loss_sum)

    monkeypatch.setattr(Trainer, "_update_weights", hang)
    with pytest.raises(UserError, match=rf"trainer\.timeout_seconds=4: .* rank {rank} \(step 7, backward\)"):
        train_on_ranks(tmp_path / "run", *SHORT)
    process, since = marker.read_text().split()
    assert time.time() - float(since) < 4 + SLACK
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)
    assert status_of(tmp_path / "run") == "failed"


def test_a_rank_that_skips_a_collective_operation_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "cores", lambda: [0, 1])
    skipped = tmp_path / "skipped"
    all_reduce = Ranks.all_reduce
    calls = 0

    def skip(ranks: Ranks, tensor: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 7 and ranks.rank == 1:
            skipped.write_text(str(time.time()))
            return tensor
        return all_reduce(ranks, tensor)

    monkeypatch.setattr(Ranks, "all_reduce", skip)
    with pytest.raises(RuntimeError, match=r"Rank \d failed"):
        train_on_ranks(tmp_path / "run", *SHORT)
    assert time.time() - float(skipped.read_text()) < 4 + SLACK
    assert status_of(tmp_path / "run") == "failed"


def test_the_traceback_of_a_rank_reaches_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "cores", lambda: [0, 1])

    def broken(trainer: Trainer, loss_sum: torch.Tensor) -> Any:
        if trainer.compute.ranks.rank == 1:
            raise ZeroDivisionError("of rank 1")
        trainer.compute.ranks.barrier()

    monkeypatch.setattr(Trainer, "_update_weights", broken)
    with pytest.raises(
        RuntimeError, match=r"(?s)Rank 1 failed.*Traceback.*in broken.*ZeroDivisionError: of rank 1"
    ):
        train_on_ranks(tmp_path / "run")
    assert status_of(tmp_path / "run") == "failed"
    result = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert "ZeroDivisionError: of rank 1" in result["error"]


@pytest.mark.parametrize("what", ["weight", "moment"])
def test_ranks_that_drift_apart_are_refused_at_the_next_validation(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "cores", lambda: [0, 1])
    step = Trainer.step

    def drifting(trainer: Trainer, number: int) -> Any:
        done = step(trainer, number)
        if trainer.state.step == 6 and trainer.compute.ranks.rank == 1:
            weight = next(trainer.model.parameters())
            changed = weight if what == "weight" else trainer.optimizer.state[weight]["exp_avg_sq"]
            changed.data[0, 0] += 1e-3
        return done

    monkeypatch.setattr(Trainer, "step", drifting)
    with pytest.raises(UserError, match=r"rank 1 differ from those of rank 0 at step 10.*resume="):
        train_on_ranks(tmp_path / "run")
    assert status_of(tmp_path / "run") == "failed"
    assert checkpoint.newest(tmp_path / "run" / "checkpoints").name == "step_00000005"


def test_sigterm_to_the_program(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "seq2seq_lab", *SETTINGS, "trainer.max_epochs=1000", "hydra.run.dir=run"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and not (metrics.is_file() and len(losses(folder)) > 6):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 143
    assert error == ""
    assert status_of(folder) == "preempted"
    step = losses(folder)[-1][0]
    assert checkpoint.newest(folder / "checkpoints").name == f"step_{step:08d}"
