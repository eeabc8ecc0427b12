"""A run does not depend on its logger once it has its scores, or has failed."""

from pathlib import Path
from typing import Any

import command_line
import pytest

from seq2seq_lab import run
from seq2seq_lab.config.run_folder import read_result
from seq2seq_lab.errors import UserError
from seq2seq_lab.tracking import NoTracker
from seq2seq_lab.training.trainer import Trainer

SETTINGS = (
    *("dataset=grammar", "dataset.train=16", "dataset.validation=4", "dataset.test=4", "logger=none"),
    *("dataset.test_compositional=0", "model.embedding_size=8", "model.hidden_size=8"),
    *("model.encoder_hidden_size=4", "trainer.device=cpu", "trainer.precision=fp32", "task.samples=0"),
    "trainer.max_epochs=1",
)


def fail(*arguments: Any) -> None:
    raise AttributeError("of the logger")


@pytest.mark.parametrize("method", ["log_artifact", "record_summary", "finish"])
def test_an_error_after_the_scores_is_a_warning(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(NoTracker, method, fail)
    assert command_line.run(*SETTINGS, f"hydra.run.dir={tmp_path / 'run'}") == 0
    assert read_result(tmp_path / "run")["status"] == "finished"
    told = capsys.readouterr()
    assert "The logger has failed (AttributeError: of the logger)" in " ".join((told.out + told.err).split())
    assert "Traceback" not in told.out + told.err
    assert "in fail" in (tmp_path / "run" / "run.log").read_text("utf-8")


def test_the_error_of_the_run_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(trainer: Trainer) -> None:
        raise UserError("no memory")

    monkeypatch.setattr(NoTracker, "finish", fail)
    monkeypatch.setattr(Trainer, "fit", refuse)
    assert command_line.run(*SETTINGS, f"hydra.run.dir={tmp_path / 'run'}") == 2
    assert "no memory" in capsys.readouterr().err
    assert read_result(tmp_path / "run")["error"] == "UserError: no memory"


def test_an_error_before_the_scores_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "write_result", fail)
    with pytest.raises(AttributeError, match="of the logger"):
        command_line.run(*SETTINGS, f"hydra.run.dir={tmp_path / 'run'}")
