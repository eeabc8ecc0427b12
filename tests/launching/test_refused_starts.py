"""A start that is refused leaves nothing behind."""

from pathlib import Path

import command_line
import pytest

import seq2seq_lab
from seq2seq_lab.errors import UserError

MISSING = ["dataset=multi30k", "dataset.path=/nowhere"]
REFUSED = {
    "a folder of data that does not exist": MISSING,
    "a table that does not exist": ["dataset=parallel", "dataset.train=nothing.tsv"],
    "a wrong type": ["seed=one"],
    "a value out of range": ["trainer.max_epochs=0"],
    "a file of vectors that does not exist": ["embedding.source.path=nothing.vec"],
    "a run that does not exist": ["init_from=nothing"],
}


@pytest.mark.parametrize("settings", REFUSED.values(), ids=REFUSED)
def test_nothing_is_left(
    settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command_line.run("logger=none", "trainer.device=cpu", *settings) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not list(tmp_path.glob("outputs/*"))


def test_files_that_were_there_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine", "utf-8")
    assert command_line.run("logger=none", *MISSING, "hydra.run.dir=run") == 2
    assert (tmp_path / "run" / "notes.txt").read_text("utf-8") == "mine"


def test_nothing_is_left_by_the_python_api(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="/nowhere"):
        seq2seq_lab.train(["logger=none", *MISSING], folder=tmp_path / "day" / "run")
    assert not (tmp_path / "day").exists()
