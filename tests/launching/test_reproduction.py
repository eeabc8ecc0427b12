"""A run that is trained again has the same numbers, and a difference is found."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import command_line
import pytest
import torch
from programs import runs

from seq2seq_lab.config import foreign
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching import reproduction
from seq2seq_lab.tracking.files import METRICS_FILE, FileTracker, read_metrics

SETTINGS = (
    *("dataset.train=24", "dataset.validation=6", "dataset.test=6", "dataset.test_compositional=0"),
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=4", "logger=none"),
    *(
        "trainer.max_epochs=1",
        "task.batch_size=8",
        "trainer.log_every_steps=1",
        "trainer.deterministic=true",
    ),
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished run; copy it before changing it."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    assert command_line.run(*SETTINGS, f"hydra.run.dir={folder}") == 0
    assert torch.are_deterministic_algorithms_enabled()
    yield folder
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(recorded, tmp_path / "run"))
    foreign.remember(folder)
    return folder


def test_the_first_difference_is_reported(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = [str(run), "--reproduce", "--output"]
    with pytest.raises(SystemExit, match="0"):
        runs.main([*again, str(run.with_name("same"))])
    assert "identical" in capsys.readouterr().out
    rows = read_metrics(run / METRICS_FILE)
    rows[1]["train/loss"] += 1e-12
    tracker = FileTracker(run, None)
    for row in rows:
        tracker.log_metrics(
            {name: row[name] for name in row if name not in ("step", "time")}, int(row["step"])
        )
    tracker.finish(0)
    with pytest.raises(SystemExit, match="1"):
        runs.main([*again, str(run.with_name("other"))])
    printed = capsys.readouterr().out
    assert f"train/loss at step {rows[1]['step']}: recorded {rows[1]['train/loss']!r}" in printed


def test_measurements_are_not_compared() -> None:
    row = {"step": 1, "train/loss": 2.0, "time": 1.0, "train/target_tokens_per_second": 3.0}
    assert (
        reproduction.first_difference([row], [row | {"time": 2.0, "train/target_tokens_per_second": 4.0}])
        is None
    )
    assert reproduction.first_difference([{"a": float("nan")}], [{"a": float("nan")}]) is None
    found = reproduction.first_difference([row], [row, row | {"step": 2}])
    assert found is not None
    assert "step 2: recorded nothing" in found


def test_an_unfinished_run_is_refused(run: Path, tmp_path: Path) -> None:
    (run / "result.json").unlink()
    with pytest.raises(UserError, match="resume="):
        reproduction.reproduce(run)
    assert not (run / "reproductions").exists()


@pytest.mark.parametrize("missing", ["checkpoints", METRICS_FILE])
def test_missing_files_are_refused_before_the_training(
    missing: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path, target: Path, changes: tuple[str, ...]) -> None:
        raise AssertionError("the run was trained again")

    monkeypatch.setattr(reproduction, "repeat_run", refuse)
    path = run / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(UserError, match="best_checkpoint=step_" if missing == "checkpoints" else missing):
        reproduction.reproduce(run)
    assert not (run / "reproductions").exists()


def test_a_refused_run_leaves_no_empty_folder(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path, target: Path, changes: tuple[str, ...]) -> None:
        raise UserError("the data have changed")

    monkeypatch.setattr(reproduction, "repeat_run", refuse)
    with pytest.raises(UserError, match="data"):
        reproduction.reproduce(run)
    assert not (run / "reproductions").exists()
