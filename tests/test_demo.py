"""The run that the package contains, `demo`."""

import json
from pathlib import Path

import command_line
import pytest
import sacrebleu
from demo_models import DATA

import seq2seq_lab
from seq2seq_lab import evaluate, predict
from seq2seq_lab.config.run_folder import find_damage
from seq2seq_lab.config.run_folders import DEMO_FOLDER, named_folders
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.reproduction import reproduce
from seq2seq_lab.reporting.comparison import compare_folders
from seq2seq_lab.runs import main as runs
from seq2seq_lab.training import checkpoint


def files() -> dict[Path, tuple[int, int]]:
    found = [path for path in DEMO_FOLDER.rglob("*") if path.is_file()]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def rows() -> list[dict[str, str]]:
    lines = (DEMO_FOLDER / "translations.test.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_it_is_whole_and_small() -> None:
    assert find_damage(DEMO_FOLDER, "run") == find_damage(DEMO_FOLDER, "result") == {}
    assert checkpoint.damage(checkpoint.best(DEMO_FOLDER / "checkpoints")) is None
    assert sum(size for size, _ in files().values()) < 3.5e6


def test_its_recorded_outputs_are_those_of_its_weights() -> None:
    run = seq2seq_lab.load("demo", device="cpu")
    recorded = rows()[:40]
    found = run.predict([row["source"] for row in recorded])
    assert [one.text for one in found] == [row["hypothesis"] for row in recorded]


def test_its_recorded_score_is_that_of_its_recorded_outputs() -> None:
    result = json.loads((DEMO_FOLDER / "result.json").read_text("utf-8"))
    bleu = sacrebleu.corpus_bleu(
        [one["hypothesis"] for one in rows()], [[one["reference"] for one in rows()]]
    )
    assert result["test/bleu"] == pytest.approx(bleu.score)
    provenance = json.loads((DEMO_FOLDER / "provenance.json").read_text("utf-8"))
    assert provenance["scores"]["test/bleu"] == result["test/bleu"]


def test_programs_accept_its_name_and_change_nothing_in_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQ2SEQ_LAB_CACHE", str(tmp_path / "cache"))
    before = files()
    (tmp_path / "lines.txt").write_text("the king sleeps.\n", "utf-8")
    predict.main(["demo", "lines.txt", "--device=cpu"])
    assert capsys.readouterr().out == "le roi dort.\n"
    evaluate.main(["demo", *DATA, "--device=cpu"])
    assert str(tmp_path / "cache/demo/evaluations/1") in capsys.readouterr().out
    assert (tmp_path / "cache/demo/evaluations/1/result.json").is_file()
    runs(["demo"])
    assert "1,018,760" in capsys.readouterr().out
    assert len(compare_folders(["demo"]).lines) == 1
    assert files() == before


def test_it_can_be_the_start_of_a_run_but_is_not_resumed_or_reproduced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = named_folders(["init_from=demo", "seed=2"])
    assert settings == [f"init_from={DEMO_FOLDER}", "seed=2"]
    command_line.check(*settings)
    assert command_line.run("resume=demo") == 2
    assert "init_from=demo" in capsys.readouterr().err
    with pytest.raises(UserError, match="rounded to half precision"):
        reproduce(DEMO_FOLDER)


def test_a_folder_of_that_name_is_preferred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    with pytest.raises(UserError, match="demo"):
        seq2seq_lab.load("demo")
