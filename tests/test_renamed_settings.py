"""Runs, studies and commands of versions in which the settings of tasks were keys of `trainer`."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import command_line
import pytest
from omegaconf import OmegaConf
from rewriting import rewrite

import seq2seq_lab
from seq2seq_lab import api, evaluate
from seq2seq_lab.config import compose, extensions, foreign, upgrade
from seq2seq_lab.config.job_hash import compute_job_hash
from seq2seq_lab.config.run_folder import read_record, read_result
from seq2seq_lab.config.upgrade import RENAMED, bring_up_to_date, recorded_form, renamed_settings
from seq2seq_lab.errors import UserError

EXAMPLES = Path(__file__).parents[1] / "examples" / "own_task"
# What a run of the version before recorded of the defaults.
DEFAULTS: dict[str, Any] = {
    **{
        "batch_size": 48,
        "batch_unit": "sentences",
        "max_length": 200,
        "pad_to": None,
        "label_smoothing": 0.0,
    },
    **{"r_drop": 0.0, "stop_at_eos": False, "eval_batch_size": 128, "max_eval_length": 1000, "samples": 4},
    **{"join_subwords": False, "length_bounds": [6, 10, 14, 18], "multi_reference": False},
    "bleu_tokenizer": "auto",
}
SMALL = (
    *("trainer.device=cpu", "trainer.precision=fp32", "trainer.threads=1", "trainer.max_epochs=1"),
    *("task.batch_size=20", "logger=none"),
)
LINES = {
    "translation": (
        *("dataset.train=100", "dataset.validation=10", "dataset.test=10", "dataset.test_compositional=0"),
        *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=8", "task.samples=1"),
    ),
    "classification": (
        *("task=classification", "dataset.names=100", "model.embedding_size=8"),
        *("model.encoder_hidden_size=8", "task.samples=1"),
    ),
    "repeats": (
        *("--config-dir", str(EXAMPLES), "task=repeats", "encoder=gru", "model.encoder_hidden_size=8"),
        *("task.train=100", "task.validation=10", "task.test=10"),
    ),
}


def earlier(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as a run of the version before recorded it."""
    task = {key: value for key, value in config["task"].items() if key not in DEFAULTS}
    moved = {key: config["task"].get(key, default) for key, default in DEFAULTS.items()}
    return {**config, "task": task, "trainer": {**config["trainer"], **moved}}


def make_earlier(folder: Path) -> None:
    """Change a run folder to what a run of the version before recorded."""
    config: Any = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    rewrite(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(earlier(config))))
    record = read_record(folder)
    current = {new: old for old, new in RENAMED.items()}
    given = [line.partition("=") for line in record["overrides"]]
    record["overrides"] = [f"{current.get(key, key)}={value}" for key, _, value in given]
    rewrite(folder / "run.json", json.dumps(record))
    foreign.remember(folder)


@pytest.fixture(scope="module", params=LINES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a task as the version before recorded it."""
    folder: Path = tmp_path_factory.mktemp("recorded") / request.param
    assert command_line.run(*LINES[request.param], *SMALL, f"hydra.run.dir={folder}") == 0
    make_earlier(folder)
    return folder


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(recorded, tmp_path / recorded.name))


def test_the_recorded_configuration_is_that_of_this_version(run: Path) -> None:
    line = [word for word in (*LINES[run.name], *SMALL) if word not in ("--config-dir", str(EXAMPLES))]
    with extensions.using(EXAMPLES):
        expected = compose.compose_run(line).plain
        found: Any = OmegaConf.to_container(foreign.load_config(run / "config.yaml"))
    assert found["trainer"] == expected["trainer"]
    assert found["task"] == expected["task"]


def test_a_run_from_before_a_setting_was_added_is_opened(run: Path) -> None:
    before = (run / "config.yaml").read_text("utf-8")
    for line in ("  pad_to: null\n", "  bleu_tokenizer: auto\n"):
        assert line in before
        before = before.replace(line, "")
    with extensions.using(EXAMPLES):
        found = foreign.load_config(run / "config.yaml")
        rewrite(run / "config.yaml", before)
        assert foreign.load_config(run / "config.yaml") == found


def test_a_recorded_run_is_opened_evaluated_and_compared(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_result(run)
    loaded = seq2seq_lab.load(run, config_dir=EXAMPLES)
    assert loaded.task.settings.batch_size == 20
    assert len(loaded.predict(["1 2 1", "2"])) == 2
    evaluate.main([str(run), f"--config-dir={EXAMPLES}", "task.eval_batch_size=3"])
    again = read_result(run / "evaluations" / "1")
    primary = f"test/{before['metrics']['primary']}"
    assert again[primary] == pytest.approx(before[primary])
    capsys.readouterr()
    print(api.compare([run, run / "evaluations" / "1"]))
    assert "trainer.batch_size" not in capsys.readouterr().out


def test_a_recorded_run_is_resumed(run: Path) -> None:
    steps = read_result(run)["steps"]
    assert command_line.run("--config-dir", str(EXAMPLES), f"resume={run}", "trainer.max_epochs=2") == 0
    assert read_result(run)["steps"] == 2 * steps
    assert "task.batch_size=20" in read_record(run)["overrides"]


def test_a_finished_study_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = (*LINES["classification"], *SMALL[:-2], "logger=none", "study.name=old", "-m")
    assert command_line.run(*line, "task.batch_size=20,40") == 0
    jobs = sorted(path.parent for path in Path("sweeps/old").glob("*/result.json"))
    assert len(jobs) == 2
    index = Path("sweeps/old/index.jsonl")
    times = {job: (job / "result.json").stat().st_mtime_ns for job in jobs}
    for job in jobs:
        make_earlier(job)
        config: Any = OmegaConf.to_container(OmegaConf.load(job / "config.yaml"))
        assert "batch_size" in config["trainer"]
    assert "task.batch_size" in index.read_text("utf-8")
    assert command_line.run(*line, "task.batch_size=20,40") == 0
    assert {job: (job / "result.json").stat().st_mtime_ns for job in jobs} == times
    assert sorted(path.parent for path in Path("sweeps/old").glob("*/result.json")) == jobs


@pytest.mark.parametrize("task", LINES)
def test_the_hash_of_a_job_is_that_of_the_version_before(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = [word for word in (*LINES[task], *SMALL) if word not in ("--config-dir", str(EXAMPLES))]
    with extensions.using(EXAMPLES):
        config = compose.compose_run(line).plain
    found, other = (
        compute_job_hash({**config, "task": {**config["task"], **change}})
        for change in ({}, {"batch_size": 21})
    )
    monkeypatch.setattr(upgrade, "recorded_form", dict)
    before = earlier(config)
    del (
        before["trainer"]["pad_to"],
        before["trainer"]["bleu_tokenizer"],
    )  # not in the hash if they are the defaults
    assert found == compute_job_hash(before) != other


def test_a_task_without_a_file_here_keeps_what_was_set() -> None:
    config = {"task": {"_target_": "mine.Task", "size": 3}, "trainer": {**DEFAULTS, "r_drop": 5.0, "x": 1}}
    current = bring_up_to_date(config)
    assert current == {"task": {"r_drop": 5.0, "_target_": "mine.Task", "size": 3}, "trainer": {"x": 1}}
    assert bring_up_to_date(current) == current
    assert recorded_form(current)["trainer"]["r_drop"] == 5.0
    assert bring_up_to_date({"trainer": 3, "task": {}}) == {"trainer": 3, "task": {}}


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
@pytest.mark.parametrize("plus", ["", "+", "++"])
def test_an_earlier_key_is_refused_with_the_new_one(old: str, new: str, plus: str) -> None:
    with pytest.raises(
        UserError, match=rf"^{plus}{old}=1: {old} is now {new}\. Write {plus}{new}=1\.".replace("+", r"\+")
    ):
        command_line.check(f"{plus}{old}=1")
    assert renamed_settings([f"{plus}{old}=1", "seed=1"]) == [f"{plus}{new}=1", "seed=1"]


def test_an_earlier_key_in_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ntrainer:\n  batch_size: 3\n", "utf-8"
    )
    assert command_line.run("--config-dir", str(tmp_path), "experiment=mine") == 2
    assert "trainer.batch_size is now task.batch_size" in capsys.readouterr().err


def test_an_evaluation_refuses_a_setting_that_the_task_does_not_have(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        evaluate.main([str(run), f"--config-dir={EXAMPLES}", "trainer.eval_batch_size=3"])
    assert "Write task.eval_batch_size=3" in capsys.readouterr().err
    if run.name != "translation":
        with pytest.raises(SystemExit):
            evaluate.main([str(run), f"--config-dir={EXAMPLES}", "task.length_bounds=[3]"])
        assert "task.length_bounds=[3]" in capsys.readouterr().err
