"""`resume=auto`: the same command starts a run or resumes it."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch
from finished_runs import losses_of

from seq2seq_lab.config.run_folder import read_result, read_run_json
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import lock_folder, temporary_path
from seq2seq_lab.training.step import TrainingStep
from seq2seq_lab.training.trainer import Trainer

SETTINGS = (
    *("dataset=grammar", "dataset.train=80", "dataset.validation=4", "dataset.test=4"),
    *("dataset.test_compositional=0", "model.embedding_size=8", "model.hidden_size=8"),
    *("model.encoder_hidden_size=4", "trainer.device=cpu", "trainer.precision=fp32", "task.samples=0"),
    *("task.batch_size=16", "trainer.max_epochs=2", "trainer.log_every_steps=1", "logger=none"),
    "model.dropout=0.3",
)
STARTS, RESUMES = "no checkpoint, starting the run", "resuming from the newest checkpoint"


def line(folder: Path, *others: str) -> list[str]:
    return ["resume=auto", *SETTINGS, *others, f"hydra.run.dir={folder}"]


def stop_in(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    update = TrainingStep._update_weights

    def stopping(training_step: TrainingStep, loss_sum: torch.Tensor, current: int) -> Any:
        if current == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(training_step, loss_sum, current)

    monkeypatch.setattr(TrainingStep, "_update_weights", stopping)


def leave_temporary(*paths: Path) -> list[Path]:
    """Leave the temporary files of a process that was killed while it wrote these new files."""
    left = []
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        with temporary_path(path) as temporary:
            temporary.touch()
        path.rename(temporary)
        left.append(temporary)
    return left


def fail(trainer: Trainer) -> None:
    raise UserError("no memory")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert command_line.run(*line(folder)[1:]) == 0
    return folder


def test_the_same_command_starts_resumes_and_ends_a_run(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_in(patch, 6)
        assert command_line.run(*line(folder)) == 128 + signal.SIGTERM
    assert STARTS in capsys.readouterr().out
    assert read_result(folder)["status"] == "preempted"
    left = leave_temporary(folder / "page.html", folder / "attention" / "weights.jsonl")
    own = leave_temporary(folder / "wandb" / "notes")
    (similar := folder / f".notes.{'0' * 31}").touch()
    assert command_line.run(*line(folder)) == 0
    assert [path.exists() for path in (*left, *own, similar)] == [False, False, True, True]
    told = capsys.readouterr().out
    assert RESUMES in told
    assert "Resuming from step 7." in told
    assert losses_of(folder) == losses_of(whole)
    assert "resume=auto" not in read_run_json(folder)["overrides"]
    ended = read_result(folder)
    assert command_line.run(*line(folder)) == 0
    assert "The training is complete." in capsys.readouterr().out
    assert read_result(folder) == ended
    assert command_line.run(*line(folder, "trainer.max_epochs=3")) == 0
    assert read_result(folder)["steps"] == 15


def test_a_run_that_ended_before_its_first_checkpoint_starts_again(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "fit", fail)
        assert command_line.run(*line(folder)) == 2
    assert read_result(folder)["status"] == "failed"
    assert command_line.run(*line(folder)[1:]) == 2  # as without it
    capsys.readouterr()
    assert command_line.run(*line(folder)) == 0
    assert STARTS in capsys.readouterr().out
    assert losses_of(folder) == losses_of(whole)
    assert [*folder.glob("*.damaged-*")] == []


def test_a_run_that_was_stopped_while_data_are_read_starts_again(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Grammar, "load", lambda _: os.kill(os.getpid(), signal.SIGTERM))
        assert command_line.run(*line(folder)) == 128 + signal.SIGTERM
    assert read_result(folder)["status"] == "preempted"
    capsys.readouterr()
    assert command_line.run(*line(folder)) == 0
    assert "damaged" not in "".join(capsys.readouterr())
    assert {path.name for path in folder.iterdir()} == {path.name for path in whole.iterdir()}
    assert losses_of(folder) == losses_of(whole)


def test_a_run_that_patience_has_ended_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("trainer.patience=1", "trainer.max_epochs=9", "optimizer.lr=1e-30")
    assert command_line.run(*line(tmp_path / "run", *settings)) == 0
    assert command_line.run(f"resume={tmp_path / 'run'}", "trainer.max_epochs=12") == 0
    assert "trainer.patience=1 ended it. Set a greater value, or null." in capsys.readouterr().out


def test_a_finished_run_without_checkpoints_is_kept(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    shutil.rmtree(folder / "checkpoints")
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert command_line.run(*line(folder)) == 0
    assert "its checkpoints were deleted" in capsys.readouterr().out
    assert {name: (folder / name).read_bytes() for name in files} == files


def test_another_run_is_refused_and_not_changed(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert command_line.run(*line(folder, "seed=2")) == 2
    assert "other settings" in capsys.readouterr().err
    (folder / "tokenizer" / "source.json").write_bytes(b"{}")
    assert command_line.run(*line(folder)) == 2
    assert "source.json is damaged" in capsys.readouterr().err
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert [path.name for path in after if after[path] != before.get(path)] == ["source.json"]
    with lock_folder(folder):
        (folder / "tokenizer" / "source.json").write_bytes(before[folder / "tokenizer" / "source.json"])
        assert command_line.run(*line(folder)) == 2
    assert "in use by another run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("resume=auto", "logger=none"), "hydra.run.dir=FOLDER"),
        (("resume=auto", "-m", "seed=1,2", "logger=none"), "study.name=NAME"),
        (("resume=auto", "resume=other", "logger=none"), "one folder"),
    ],
)
def test_what_it_cannot_do_is_refused(
    arguments: tuple[str, ...],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command_line.run(*arguments) == 2
    assert named in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []
