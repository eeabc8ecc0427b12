"""A start that is refused leaves nothing behind."""

from pathlib import Path

import command_line
import pytest

import seq2seq_lab
from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching import start
from seq2seq_lab.tracking.wandb import WandbTracker

MISSING = ["dataset=multi30k", "dataset.path=/nowhere"]
NO_DECAY = ["~optimizer.weight_decay", "~optimizer.fused"]
NO_BETAS = ["~optimizer.betas", "~optimizer.eps"]
REFUSED = {
    "a folder of data that does not exist": MISSING,
    "a table that does not exist": ["dataset=parallel", "dataset.train=nothing.tsv"],
    "a wrong type": ["seed=one"],
    "a value out of range": ["trainer.max_epochs=0"],
    "a file of vectors that does not exist": ["embedding.source.path=nothing.vec"],
    "a run that does not exist": ["init_from=nothing"],
    "a beta that the schedule replaces": ["optimizer.betas=[0.8,0.98]"],
    "an optimizer of sparse gradients": ["optimizer._target_=torch.optim.SparseAdam", *NO_DECAY],
    "an optimizer whose step needs a function": [
        "optimizer._target_=torch.optim.LBFGS",
        *NO_DECAY,
        *NO_BETAS,
    ],
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


def test_a_beta_is_allowed_where_it_has_an_effect() -> None:
    for settings in (
        ["optimizer.betas=[0.8,0.98]", "schedule=constant"],
        ["optimizer.betas=[0.8,0.98]", "schedule.momentum=null"],
    ):
        start.check_parts(compose_run(settings).config)


def test_the_first_beta_of_a_file_is_not_one_that_the_user_has_set() -> None:
    start.check_parts(compose_run(["optimizer=adam_defaults", "optimizer.betas=[0.9,0.95]"]).config)


@pytest.mark.parametrize("target", ["NAdam", "Adam"])
def test_an_optimizer_with_steps_on_a_gpu_only_is_not_tried_here(target: str) -> None:
    settings = [f"optimizer._target_=torch.optim.{target}", "~optimizer.fused", "+optimizer.capturable=true"]
    start.check_parts(compose_run(settings).config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["optimizer.betas=[0.8,0.98]"],
            r"schedule\.momentum=\[0\.85, 0\.95\] replaces it.*schedule\.momentum=null",
        ),
        (["optimizer._target_=torch.optim.RMSprop"], r"Remove .*: ~optimizer\.betas ~optimizer\.fused\."),
        (["optimizer._target_=torch.optim.SGD"], r"Choose optimizer=sgd\."),
        (
            ["optimizer=sgd", "+optimizer.betas=[0.9,0.98]"],
            r"setting of optimizer=adam or optimizer=adamw\. Allowed",
        ),
        (["optimizer._target_=torch.optim.LBFGS", *NO_DECAY, *NO_BETAS], r"its step failed: .*closure"),
        (["optimizer._target_=torch.optim.SparseAdam", *NO_DECAY], r"its step failed: .*dense gradients"),
    ],
)
def test_the_message_of_an_optimizer_has_a_remedy(settings: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        start.check_parts(compose_run(settings).config)


def test_files_that_were_there_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine", "utf-8")
    assert command_line.run("logger=none", *MISSING, "hydra.run.dir=run") == 2
    assert (tmp_path / "run" / "notes.txt").read_text("utf-8") == "mine"


@pytest.mark.parametrize("study", [(), ("-m", "seed=1,2", "study.name=mine")], ids=["run", "study"])
def test_a_logger_without_its_key_is_refused_before_data_is_read(
    study: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checked: list[object] = []
    check = WandbTracker.check
    monkeypatch.setattr(WandbTracker, "check", lambda settings: checked.append(settings) or check(settings))
    monkeypatch.setattr("seq2seq_lab.run.experiment", lambda *_: pytest.fail("a run begins"))
    monkeypatch.chdir(tmp_path)
    assert command_line.run("logger=wandb", "logger.mode=online", "trainer.device=cpu", *study) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: W&B's mode is online (logger.mode or WANDB_MODE), but no API key")
    assert len(checked) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_nothing_is_left_by_the_python_api(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="/nowhere"):
        seq2seq_lab.train(["logger=none", *MISSING], folder=tmp_path / "day" / "run")
    assert not (tmp_path / "day").exists()
