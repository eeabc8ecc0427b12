"""A copy of a run folder that is resumed is a new run; a folder that was moved is the same run."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import command_line
import pytest
from programs import runs

from seq2seq_lab.config.run_folder import read_run_json
from seq2seq_lab.reporting.runs import find_runs

SETTINGS = (
    *("dataset=grammar", "dataset.train=32", "dataset.validation=4", "dataset.test=4", "logger.mode=offline"),
    *("dataset.test_compositional=0", "model.embedding_size=8", "model.hidden_size=8"),
    *("model.encoder_hidden_size=4", "trainer.device=cpu", "trainer.precision=fp32", "task.samples=0"),
    *("task.batch_size=16", "trainer.max_epochs=1"),
)
LONGER = "trainer.max_epochs=2"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("original") / "run"
    assert command_line.run(*SETTINGS, f"hydra.run.dir={folder}") == 0
    yield folder
    import wandb

    wandb.teardown()


@pytest.fixture
def original(recorded: Path, tmp_path: Path) -> Path:
    """A run that may be changed: itself a copy that was resumed."""
    folder = Path(shutil.copytree(recorded, tmp_path / "first"))
    assert command_line.run(f"resume={folder}", LONGER) == 0
    return folder


def run_id(folder: Path) -> str:
    return str(read_run_json(folder)["run_id"])


def records(folder: Path) -> set[str]:
    """Return the ids of the records that W&B keeps in a run folder."""
    return {path.name.rpartition("-")[2] for path in folder.glob("wandb/offline-run-*")}


def test_a_copy_that_is_resumed_is_another_run(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in original.rglob("*") if path.is_file()}
    copy = Path(shutil.copytree(original, tmp_path / "copy"))
    found, skipped = find_runs([original, copy])
    assert [run.folder for run in found] == [original]
    assert skipped == [f"{copy}: a copy of {original} (run_id={run_id(original)})"]

    assert command_line.run(f"resume={copy}") == 0  # it is complete, so nothing is trained
    assert run_id(copy) == run_id(original)
    capsys.readouterr()
    assert command_line.run(f"resume={copy}", "trainer.max_epochs=3") == 0
    assert f"a copy of the run {run_id(original)}" in " ".join(capsys.readouterr().out.split())
    new = run_id(copy)
    assert new not in (run_id(original), "None")
    assert read_run_json(copy)["copy_of"] == {"run_id": run_id(original), "checkpoint": "step_00000004"}
    assert records(copy) == {*records(original), new}
    found, skipped = find_runs([original, copy])
    assert ({run.folder for run in found}, skipped) == ({original, copy}, [])
    assert {path: path.read_bytes() for path in original.rglob("*") if path.is_file()} == before
    runs.main([str(copy)])
    assert f"run {run_id(original)}, resumed from step_00000004" in " ".join(capsys.readouterr().out.split())

    assert command_line.run(f"resume={copy}", "trainer.max_epochs=4") == 0
    assert run_id(copy) == new


def test_a_folder_that_is_moved_or_restored_is_the_same_run(original: Path, tmp_path: Path) -> None:
    before, origin = run_id(original), read_run_json(original)["copy_of"]
    moved = original.rename(tmp_path / "moved")
    assert command_line.run(f"resume={moved}", "trainer.max_epochs=3") == 0
    assert run_id(moved) == before
    backup = Path(shutil.copytree(moved, tmp_path / "backup"))
    shutil.rmtree(moved)
    backup.rename(moved)
    assert command_line.run(f"resume={moved}", "trainer.max_epochs=4") == 0
    assert run_id(moved) == before
    assert read_run_json(moved)["copy_of"] == origin
