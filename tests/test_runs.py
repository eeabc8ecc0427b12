"""`python -m seq2seq_lab.runs`: the list of runs, and one run."""

import json
import os
import shlex
from pathlib import Path

import pytest
from programs import runs
from rewriting import rewrite

from seq2seq_lab.config.choices import choices_of
from seq2seq_lab.config.run_folder import RUN_FORMAT
from seq2seq_lab.config.schema import CONF_DIR
from seq2seq_lab.files import LOCK, lock_folder
from seq2seq_lab.launching.study import Entry, append_entry
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.metrics.bleu import Bleu

DEFAULTS = {
    group: value for group, value in choices_of(CONF_DIR / "config.yaml").items() if "hydra" not in group
}


def run(folder: Path, status: str, ended: float, **choices: str) -> Path:
    rewrite(
        folder / "run.json",
        json.dumps({"format": RUN_FORMAT, "choices": DEFAULTS | choices, "commit": "c0ffee"}),
    )
    scores = {"val/bleu": 20.0, "test/bleu": 19.5, "train/seconds": 100.0, "val/seconds": 20.0, "steps": 7}
    declared = Declarations.of([Bleu()], [], "bleu").result()
    scored = {**scores, **declared, "test/examples": "0"}
    result = scored if status == "finished" else {"error": "UserError: no data"}
    rewrite(folder / "result.json", json.dumps({"status": status, **result}))
    for path in folder.iterdir():
        os.utime(path, (ended, ended))
    return folder


def test_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "sweeps" / "why"
    run(study / "0a1b2c3d4e", "failed", ended=300)
    append_entry(study, Entry(0, "0a1b2c3d4e", {"attention": "dot", "seed": "1"}))
    run(tmp_path / "outputs" / "second", "finished", ended=200, model="transformer", encoder="transformer")
    run(tmp_path / "outputs" / "first", "finished", ended=100)
    folders = [str(tmp_path / name) for name in ("outputs", "sweeps")]
    runs.main([*folders, "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert [Path(one["folder"]).name for one in listed] == ["first", "second", "0a1b2c3d4e"]
    assert [one["status"] for one in listed] == ["finished", "finished", "failed"]
    assert listed[0] == {
        "folder": str(tmp_path / "outputs" / "first"),
        "status": "finished",
        "settings": "",
        "overrides": None,
        "scores": {"val BLEU": "20.00", "test BLEU": "19.50"},
        "ended": 100.0,
        "seconds": 120.0,
    }
    assert "model=transformer" in listed[1]["settings"]
    assert "encoder" not in listed[1]["settings"]
    assert listed[2]["settings"] == "attention=dot seed=1"
    runs.main([*folders, "--status", "failed"])
    table = capsys.readouterr().out
    assert "1 run" in table
    assert f"{study / '0a1b2c3d4e'}: UserError: no data" in table
    runs.main(folders)
    table = capsys.readouterr().out
    assert "2 runs" in table
    assert "0a1b2c3d4e" not in table
    assert "1 failed (--status failed lists them with their errors)" in table


def test_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(tmp_path / "run", "finished", ended=100, attention="dot")
    runs.main([str(folder)])
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("BLEU", "19.50", "attention=dot", "0:02:00", "c0ffee", "seq2seq_lab.compare", str(folder)):
        assert part in shown


def test_the_settings_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = {
        "short": ["trainer.max_steps=40", "dataset.test_compositional=0", "logger=none"],
        "default": [],
        "again": ["logger=none"],
        "unknown": None,
    }
    for ended, (name, overrides) in enumerate(lines.items()):
        folder = run(tmp_path / name, "finished", ended=ended)
        record = json.loads((folder / "run.json").read_text()) | {"source": f"{name}0000000"}
        rewrite(
            folder / "run.json", json.dumps(record | ({} if overrides is None else {"overrides": overrides}))
        )
        rewrite(folder / "config.yaml", json.dumps({"trainer": {"max_steps": None}, "logger": {"a": ended}}))
        os.utime(folder / "run.json", (ended, ended))
    found = runs.find([tmp_path])
    short = "trainer.max_steps=40 dataset.test_compositional=0"
    assert runs.named_settings(found) == [short, "the defaults", "the defaults", "not recorded"]
    assert [one.overrides for one in found] == [*lines.values()]
    # Runs with other defaults do not have one name.
    rewrite(tmp_path / "again" / "config.yaml", json.dumps({"trainer": {"max_steps": 9}}))
    named = runs.named_settings(found)
    assert named[1:3] == ["the defaults of source default", "the defaults of source again00"]
    runs.main([str(tmp_path / "short")])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"overrides {short} logger=none" in shown


def test_a_run_that_trains_is_running(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(tmp_path / "run", "preempted", ended=100)
    with lock_folder(folder):
        runs.main([str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)[0]["status"] == "running"
    runs.main([str(folder)])
    assert "resume=" not in capsys.readouterr().out  # a run without a checkpoint cannot be resumed
    (folder / "checkpoints" / "step_00000001").mkdir(parents=True)
    runs.main([str(folder)])
    assert f"resume={folder}" in capsys.readouterr().out


def test_a_command_names_a_folder_with_a_space_as_one_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for status, word in (("preempted", "resume=my run"), ("finished", "my run")):
        folder = run(Path("my run"), status, ended=100)
        (folder / "checkpoints" / "step_00000001").mkdir(parents=True, exist_ok=True)
        runs.main(["my run"])
        command = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("python"))
        assert word in shlex.split(command)


def test_a_run_with_a_damaged_record_is_listed_as_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "good", "finished", ended=100)
    for name, text in (("cut", "{"), ("other", '{"machinf": {"threads": 1}, "machine": {"thread": 1}}')):
        folder = run(tmp_path / name, "preempted", ended=200)
        (folder / "run.json").write_text(text)
        runs.main([str(folder)])
        shown = capsys.readouterr().out
        assert "damaged" in shown
        assert "run.json is damaged" in shown
    runs.main([str(tmp_path), "--json"])
    listed = {Path(one["folder"]).name: one["status"] for one in json.loads(capsys.readouterr().out)}
    assert listed == {"good": "finished", "cut": "damaged", "other": "damaged"}


def test_the_list_neither_creates_nor_waits_for_a_lock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(tmp_path / "first", "preempted", ended=100)
    with pytest.raises(SystemExit):
        runs.main([str(tmp_path), "--status", "finnished"])
    assert "--status=finnished" in capsys.readouterr().err
    runs.main([str(tmp_path), "--json", "--status", "preempted,interrupted"])
    assert len(json.loads(capsys.readouterr().out)) == 1
    assert not (folder / LOCK).exists()


def test_folders_without_runs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in ([], ["missing"], ["."]):
        with pytest.raises(SystemExit) as end:
            runs.main(arguments)
        assert end.value.code == 2
        assert "folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "needed"),
    [("--sample", "2", "--animate"), ("--output", "other", "--reproduce"), ("--config-dir", "mine", "--reproduce")],
)  # fmt: skip
def test_options_without_what_they_belong_to_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, needed: str
) -> None:
    with pytest.raises(SystemExit):
        runs.main([str(run(tmp_path / "one", "finished", ended=100)), option, value])
    assert f"{option}={value} is not allowed. Allowed: only with {needed}." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("--reproduce", "--json"), "--json=True is not allowed. Allowed: only without --reproduce."),
        (("--reproduce", "--status", "failed"), "--status=failed is not allowed"),
        (("--reproduce", "--animate", "a.gif"), "--animate=a.gif is not allowed"),
        (("--animate", "a.gif", "--json"), "--json=True is not allowed. Allowed: only without --animate."),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], refused: str
) -> None:
    with pytest.raises(SystemExit):
        runs.main([str(run(tmp_path / "one", "finished", ended=100)), *words])
    assert refused in capsys.readouterr().err


def test_a_folder_of_runs_is_not_reproduced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "one", "finished", ended=100)
    with pytest.raises(SystemExit):
        runs.main([str(tmp_path), "--reproduce"])
    assert f"{tmp_path} contains no run" in capsys.readouterr().err
