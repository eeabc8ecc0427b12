"""The example of a custom task: one file and one YAML make a task that runs, resumes, and is studied and compared."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import command_line
import numpy as np
import pytest
from finished_runs import losses_of, result_of
from forked_ranks import forked_ranks
from programs import compare
from tracking.offline_record import read_offline_run

import seq2seq_lab
from seq2seq_lab import evaluate, predict
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.config.run_folder import read_result
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import read_json_lines
from seq2seq_lab.reporting.runs import find_runs
from seq2seq_lab.tasks.base import Task
from seq2seq_lab.tasks.examples import TensorTask

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_task"
LINE = (
    *(
        "--config-dir",
        str(EXAMPLE),
        "task=repeats",
        "encoder=gru",
        "trainer.device=cpu",
        "trainer.precision=fp32",
    ),
    *("task.train=200", "task.validation=20", "task.test=20", "model.encoder_hidden_size=12"),
    *("task.batch_size=20", "optimizer=adam_slow", "trainer.max_epochs=2", "trainer.log_every_steps=1"),
)
STEPS = 10  # of an epoch


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a W&B record."""
    folder = tmp_path_factory.mktemp("own_task") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_DIR", str(folder))
        assert command_line.run(*LINE, "logger=wandb", f"hydra.run.dir={folder}") == 0
    return folder


def test_it_trains_and_its_metric_is_the_primary_one(run: Path) -> None:
    result, losses = result_of(run), losses_of(run)
    assert (len(losses), result["steps"], result["unit"]) == (2 * STEPS, 2 * STEPS, "tokens")
    assert losses[-1] < losses[0]
    assert 0 <= result["test/repeat_f1"] <= 1
    assert result["test/repeat_f1_confidence"] > 0
    assert result["metrics"]["primary"] == "repeat_f1"


def test_its_examples_are_in_the_folder_the_record_and_on_the_page(run: Path, tmp_path: Path) -> None:
    rows = read_json_lines(run / "tags.test.jsonl")
    assert len(rows) == 20
    tags = rows[0]["reference"].split(), rows[0]["output"].split()
    assert rows[0]["score"] == np.mean([a == b for a, b in zip(*tags, strict=True)])
    (table,) = read_offline_run(run).values("test/tags.nrows")
    assert table == 20
    compare.main([str(run), "--html", str(tmp_path / "page.html")])
    (found,), _ = find_runs([run], for_page=True)
    assert [row["output"] for row in found.examples] == [row["output"] for row in rows]


def test_its_metric_is_in_the_summary_of_the_record(run: Path) -> None:
    record = read_offline_run(run)
    result = result_of(run)
    assert record.summary["test/repeat_f1"] == pytest.approx(result["test/repeat_f1"])
    assert record.summary["best/repeat_f1"] == pytest.approx(result["val/repeat_f1"])
    assert record.config["task"] == "repeats"


def test_a_killed_run_resumes_with_identical_losses(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command_line.run_until(STEPS + 3, *LINE, "logger=none", f"hydra.run.dir={folder}")
    assert command_line.run("--config-dir", str(EXAMPLE), f"resume={folder}") == 0
    assert losses_of(folder) == losses_of(run)
    assert result_of(folder)["test/repeat_f1"] == result_of(run)["test/repeat_f1"]


@pytest.mark.slow  # starts two ranks
def test_a_study_on_two_ranks_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    short = ("logger=none", "trainer.max_epochs=1", "trainer.devices=2", "study.name=cells")
    with forked_ranks():
        assert command_line.run(*LINE, *short, "-m", "encoder=gru,rnn") == 0
    assert "test F1 of repeats" in capsys.readouterr().out
    results = [result_of(path.parent) for path in Path("sweeps/cells").glob("*/result.json")]
    assert [result["ranks"] for result in results] == [2] * 2
    compare.main(["sweeps/cells"])
    assert "F1 of repeats" in capsys.readouterr().out


def test_an_unused_group_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(*LINE, "logger=none", "decoder=luong") == 2
    assert "decoder=" in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["task.r_drop=5.0", "task.batch_unit=tokens", "task.length_bounds=[3]"])
def test_an_unused_setting_is_refused(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(*LINE, "logger=none", setting) == 2
    error = capsys.readouterr().err
    assert f"{setting}: " in error
    assert "Settings in task: batch_size, eval_batch_size, train" in error


def test_it_is_opened_and_scored_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = seq2seq_lab.load(run, config_dir=EXAMPLE)
    assert type(loaded) is seq2seq_lab.Loaded
    assert type(loaded.task).__name__ == "RepeatTagging"
    steps, values = loaded.curve("val/repeat_f1")
    assert len(steps) == len(values) > 0
    batch = loaded.task.splits["test"].batches(loaded.device)(np.arange(3))
    assert loaded.model(batch).shape == (*batch.tokens_NS.shape, 2) == (3, 12, 2)
    evaluate.main([str(run), f"--config-dir={EXAMPLE}"])
    again = read_result(run / "evaluations" / "1")
    assert again["test/repeat_f1"] == loaded.result["test/repeat_f1"]


def test_it_predicts(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "1 2 1 3 2\n4 4\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    predict.main([str(run), f"--config-dir={EXAMPLE}"])
    printed = capsys.readouterr().out.splitlines()
    assert [len(line.split()) for line in printed] == [5, 2]
    assert set(" ".join(printed).split()) <= {"new", "repeated"}
    loaded = seq2seq_lab.load(run, config_dir=EXAMPLE)
    assert [one.text for one in loaded.predict(lines.splitlines())] == printed
    with pytest.raises(UserError, match="predicts nothing"):
        Task.predict(loaded.task, loaded.model, ["1"], loaded.compute)
    for wrong in ("3 x 3", "3 99 3", "3 -1 3"):
        with pytest.raises(UserError, match=f"{wrong}.*from 0 to 11"):
            loaded.predict([wrong])


def test_questions_about_texts_are_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for question in ("aer", "intervene", "attribute", "counterfactuals"):
        with pytest.raises(SystemExit):
            analyze.main([question, str(run), f"--config-dir={EXAMPLE}"])
        assert f"{question} needs a test set of texts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ('uses = frozenset({"encoders"})', "'encoders'"),
        ('uses = "encoder"', "uses='encoder'"),
        ("uses = None", "uses=None"),
        ("metrics = (RepeatF1,)", "RepeatF1"),
        ("metrics = RepeatF1()", "is not a sequence"),
        ('primary = "f1"', "primary=f1"),
        ('default_monitor = "f1"', "default_monitor=f1"),
    ],
)
def test_a_wrong_attribute_of_the_task_is_named(
    body: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (EXAMPLE / "my_task.py").read_text("utf-8")
    (tmp_path / "my_task.py").write_text(f"{code}\n\nclass Wrong(RepeatTagging):\n    {body}\n")
    (tmp_path / "task").mkdir()
    text = (EXAMPLE / "task" / "repeats.yaml").read_text("utf-8")
    (tmp_path / "task" / "repeats.yaml").write_text(text.replace("my_task.RepeatTagging", "my_task.Wrong"))
    line = ("--config-dir", str(tmp_path), *LINE[2:], "logger=none", f"hydra.run.dir={tmp_path / 'run'}")
    assert command_line.run(*line) == 2
    error = capsys.readouterr().err
    assert "Wrong: " in error
    assert named in error


def test_an_empty_split_is_refused() -> None:
    task: Any = SimpleNamespace()
    splits: Any = {"train": [], "val": ["an example"]}
    with pytest.raises(UserError, match="the split train has no examples"):
        TensorTask.__init__(task, splits, parts=task, seed=1, settings=task)


def test_an_unknown_metric_is_refused_before_data_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(*LINE, "logger=none", "trainer.monitor=val/repeat_f2") == 2
    assert "Did you mean 'val/repeat_f1'" in capsys.readouterr().err
