"""Runs that diverge although their loss stays finite."""

import math
from pathlib import Path

import command_line
import pytest
from programs import compare, runs

from seq2seq_lab.config.run_folder import read_result
from seq2seq_lab.launching import study
from seq2seq_lab.training import checkpoint
from seq2seq_lab.training.divergence import LAST_STEPS, LossRecord
from seq2seq_lab.training.state import TrainState

SETTINGS = (
    *("dataset=grammar", "dataset.train=80", "dataset.validation=4", "dataset.test=4"),
    *("dataset.test_compositional=0", "model.embedding_size=8", "model.hidden_size=8"),
    *("model.encoder_hidden_size=4", "trainer.device=cpu", "trainer.precision=fp32", "task.samples=0"),
    *("task.batch_size=16", "trainer.max_epochs=2", "logger=none"),
)
UNIFORM = math.log(50)


def record(*losses: float) -> LossRecord:
    kept = LossRecord()
    for step, loss in enumerate(losses):
        kept.add(step, [loss])
    return kept


@pytest.mark.parametrize(
    ("losses", "uniform", "diverged"),
    [
        ((4.0, 3.0, 2.0), UNIFORM, False),
        ((4.0, 1e6, 7e6), UNIFORM, True),
        ((4.0, 7.9, 7.9), 3.0, False),
        ((4.0, 8.1, 8.1), 3.0, True),
        ((4.0, 8.1, 8.1), None, True),
        ((30.0, 29.0, 28.0), UNIFORM, False),  # a large initialization
        ((0.1, 0.4, 0.5), UNIFORM, False),  # pretrained weights, on other data
        ((4.0, 1e6, *[2.0] * LAST_STEPS), UNIFORM, False),  # it has recovered
        ((4.0, *[2.0] * LAST_STEPS, 1e6, 1e6), UNIFORM, False),  # two batches
        ((4.0, *[2.0] * LAST_STEPS, *[1e3] * (LAST_STEPS // 2)), UNIFORM, True),
        ((4.0, *[math.nan, math.inf, 2.0] * LAST_STEPS), UNIFORM, True),
        ((math.nan, 1e6), None, False),  # nothing to compare with
        ((), UNIFORM, False),
    ],
)
def test_the_rule(losses: tuple[float, ...], uniform: float | None, diverged: bool) -> None:
    assert (record(*losses).divergence(uniform) is not None) == diverged


def test_steps_may_be_added_together() -> None:
    losses = [*range(1, 31)]
    together = LossRecord()
    together.add(0, losses[:25])
    together.add(25, losses[25:])
    assert together == record(*losses) == LossRecord(1, losses[-LAST_STEPS:])  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diverged") / "run"
    line = (*SETTINGS, "optimizer.lr=1e6", "trainer.max_steps=9", "trainer.checkpoint_every_steps=1")
    assert command_line.run(*line, f"hydra.run.dir={folder}") == 0
    return folder


def test_a_run_that_diverges_ends_with_scores_a_warning_and_its_status(
    diverged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = read_result(diverged)
    assert result["status"] == "diverged"
    assert result["test/bleu"] < 5
    assert "The training has diverged: the median training loss of the last 9 steps" in (
        diverged / "run.log"
    ).read_text("utf-8")
    assert study.status(diverged) == "diverged"
    assert study.primary_values(diverged).keys() == {"val BLEU", "test BLEU"}
    runs.main([str(diverged.parent), "--status", "diverged"])
    assert "diverged" in capsys.readouterr().out
    runs.main([str(diverged)])
    assert "chrF" in capsys.readouterr().out
    compare.main([str(diverged)])
    assert f"warning: the training diverged: {diverged}" in " ".join(capsys.readouterr().out.split())
    assert command_line.run(f"resume={diverged}") == 0
    assert read_result(diverged) == result


def test_the_losses_are_part_of_a_checkpoint(diverged: Path) -> None:
    saved = checkpoint.load_state(checkpoint.newest(diverged / "checkpoints"))["train_state"]
    losses = TrainState.restored(saved).step_losses
    assert losses.first == pytest.approx(UNIFORM, rel=0.5)
    assert len(losses.last) == 9
    earlier = {name: value for name, value in saved.items() if name != "step_losses"}
    assert TrainState.restored(earlier).step_losses == LossRecord()


def test_a_study_does_not_repeat_a_job_that_has_diverged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ("-m", "study.name=s", "optimizer.lr=1e6,1e-3", *SETTINGS)
    assert command_line.run(*line) == 0
    folders = sorted(path for path in (tmp_path / "sweeps" / "s").iterdir() if path.is_dir())
    assert sorted(map(study.status, folders)) == ["diverged", "finished"]
    before = [(folder / "result.json").stat().st_mtime_ns for folder in folders]
    told = capsys.readouterr()
    assert "optimizer.lr=1000000.0: diverged: val BLEU" in told.out
    assert "Jobs without a result" not in told.err
    assert command_line.run(*line) == 0
    assert [(folder / "result.json").stat().st_mtime_ns for folder in folders] == before


@pytest.mark.parametrize(
    "settings",
    [
        ("trainer.fast_dev_run=true",),
        ("trainer.fast_dev_run=true", "model=transformer"),
        ("trainer.max_steps=1",),
        ("task.batch_size=1", "trainer.max_steps=40", "optimizer.lr=0.05"),
        ("teacher_forcing.ratio=0", "optimizer.lr=0.02"),
        ("initialization=normal", "initialization.std=1", "trainer.max_steps=3"),
    ],
)
def test_ordinary_short_runs_have_finished(settings: tuple[str, ...], tmp_path: Path) -> None:
    assert command_line.run(*SETTINGS, *settings, f"hydra.run.dir={tmp_path / 'run'}") == 0
    assert read_result(tmp_path / "run")["status"] == "finished"
