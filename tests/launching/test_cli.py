"""The command line: what is refused before any work, and what the rest leads to."""

import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import command_line
import hydra
import pytest
from hostile_configs import HOSTILE_ARGUMENTS, HOSTILE_FILES, write_hostile_experiment, write_hostile_study
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from omegaconf import OmegaConf
from program import Program, assert_refused
from rewriting import rewrite

import seq2seq_lab
from seq2seq_lab.config import foreign, hydra_adapter, sweeps
from seq2seq_lab.config.command_line import parse_overrides
from seq2seq_lab.config.compose import composer
from seq2seq_lab.config.explain import EXTRAS
from seq2seq_lab.config.run_folder import RUN_FORMAT
from seq2seq_lab.config.schema import group_values, groups, plain
from seq2seq_lab.errors import UserError, report_errors
from seq2seq_lab.launching import checks, start
from seq2seq_lab.tasks import parts

MODULE = """
from torch import Tensor
from seq2seq_lab.models.attention.base import Attention

class MyAttention(Attention):
    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        return query_BTQ.mean(-1, keepdim=True) + keys_BSK.mean(-1)[:, None]
"""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("encoder.cell=${nokey}", ["encoder.cell=${nokey}", "nokey"]),
        ("model.hidden_size=${nokey}", ["model.hidden_size=${nokey}", "nokey, which is not a setting"]),
        # unknown keys
        ("trainer.max_epoch=3", ["trainer.max_epoch=3", "'trainer.max_epochs'", "micro_batches"]),
        ("+trainer.foo=1", ["+trainer.foo=1", "max_epochs, "]),
        ("+foo=1", ["+foo=1", "seed, "]),
        ("+encoder.hiden_size=3", ["encoder.hiden_size=3", "'hidden_size'", "cell, "]),
        ("encoder.hidden=3", ["encoder.hidden=3", "'encoder.hidden_size'", "cell, "]),
        ("hydra.run.dir=outputs/${nokey}", ["hydra.run.dir=outputs/${nokey} cannot be resolved", "'nokey'"]),
        ("-m seed=1,2 hydra.sweep.subdir=${hydra.job.num}", ["hydra.sweep.subdir=${hydra.job.num} cannot"]),
        ("hydra.run.dirr=x", ["hydra.run.dirr=x", "'hydra.run.dir'"]),
        ("~trainer.max_epochs", ["trainer.max_epochs"]),
        ("~attention", ["attention"]),
        ("~logger +logger.tags=[a]", ["+logger.tags=[a]", "~logger leaves out logger"]),
        ("~search +search.size=3", ["+search.size=3", "~search leaves out search"]),
        ("lr=0.001", ["'lr'", "optimizer.lr"]),
        ("epochs=3", ["epochs=3", "'trainer.max_epochs'"]),
        ("dropout=0.3", ["dropout=0.3", "model.dropout?"]),
        ("teacher_forcing_ratio=0.5", ["teacher_forcing_ratio=0.5", "teacher_forcing.ratio?"]),
        ("search.size=5", ["search.size=5", "search=beam"]),
        ("tokenizer.dropout=0.1", ["tokenizer=bpe and"]),
        # wrong types in closed sections
        ("trainer.max_epochs=many", ["trainer.max_epochs=many", "a whole number"]),
        ("trainer.max_epochs=null", ["trainer.max_epochs=null", "a whole number"]),
        ("trainer.max_epochs.x=3", ["trainer.max_epochs.x=3", "a whole number"]),
        ("trainer.clip_norm=abc", ["trainer.clip_norm=abc", "a number above 0 or null"]),
        ("trainer.precision=tf32 trainer.device=cpu", ["trainer.precision=tf32", "device is cpu", "bf16"]),
        ("trainer.test_precision=tf32 trainer.device=cpu", ["trainer.test_precision=tf32", "device is cpu"]),
        ("trainer.precision=bf17", ["trainer.precision=bf17", "'bf16'", "auto, fp32, tf32, bf16, fp16"]),
        ("task.length_bounds=[1,x]", ["task.length_bounds=[1, 'x']", "a list, each a whole number above 0"]),
        ("seed=[1,2]", ["seed=[1,2]", "a whole number"]),
        # wrong types in slots
        ("encoder.hidden_size=big", ["encoder.hidden_size=big", "a whole number"]),
        ("encoder.bidirectional=1", ["encoder.bidirectional=1", "true or false"]),
        ("encoder.cell=gur", ["encoder.cell=gur", "'gru'", "rnn, lstm, gru"]),
        ("attention.size=1.5", ["attention.size=1.5", "a whole number"]),
        ("optimizer.betas=[0.9]", ["optimizer.betas=[0.9]", "a list of 2: [a number, a number]"]),
        ("encoder.dropout=${nokey}", ["encoder.dropout=${nokey}", "nokey"]),
        # groups
        ("attention=addtive", ["attention=addtive", "'additive'", "additive, "]),
        ("atention=dot", ["atention=dot", "'attention'"]),
        ("metric=[acuracy]", ["metric=acuracy", "'accuracy'"]),
        ("hydra/launcher=foo", ["hydra/launcher=foo", "basic"]),
        ("experiment=multi30k", ["'multi30k_de_en' or 'multi30k_en_de' or 'multi30k_en_fr'"]),
        ("teacher_forcing=0.5", ["teacher_forcing=0.5", "constant"]),
        ("dataset.train=pairs.tsv", ["dataset.train=pairs.tsv", "dataset=parallel"]),
        ("model.dropout=0,3", ["model.dropout=0,3", "-m", "model.dropout=0.3"]),
        ("trainer.device=gpu", ["trainer.device=gpu", "'cuda'"]),
        ("attention=[dot,none]", ["attention=[dot,none]", "additive, "]),
        ("+attention=dot", ["+attention=dot"]),
        ("attention=additive,dot", ["attention=additive,dot", "-m"]),
        # values that no run can have, parts that do not go together
        ("teacher_forcing.ratio=1.5", ["teacher_forcing.ratio=1.5", "at least 0", "at most 1"]),
        ("trainer.monitor=val/blue", ["trainer.monitor=val/blue", "'val/bleu'", "val/ter"]),
        ("attention.size=-3", ["attention.size=-3"]),
        ("trainer.monitor=val/length_ratio", ["trainer.monitor=val/length_ratio", "trainer.monitor_mode"]),
        ("search=sampling search.temperature=1e-40", ["search.temperature=1e-40", "of at least 0.0001"]),
        ("search=beam search.length_penalty=1000", ["search.length_penalty=1000", "at most 10"]),
        ("task=captions readout=pointer", ["readout.copied_words=20", "no types for words of the source"]),
        ("readout=pointer tokenizer=bpe", ["readout.copied_words=20", "tokenizer=word, whitespace or char"]),
        ("optimizer.lr=-1", ["optimizer.lr=-1", "Invalid learning rate"]),
        ("+optimizer.foreach=true", ["optimizer.foreach=True", "`fused` and `foreach`"]),
        ("model=vanilla attention=additive", ["model=vanilla", "attention=…", "model=attn"]),
        ("model=cho attention=additive", ["model=cho", "attention=…", "model=bahdanau"]),
        ("decoder=plain", ["decoder=plain", "attention=…", "decoder=luong"]),
        ("model=vanilla trainer.monitor=val/aer", ["trainer.monitor=val/aer", "model=attn"]),
        ("task.r_drop=5 model.dropout=0", ["task.r_drop=5", "model.dropout"]),
        (
            "model=transformer model.reverse_source=true",
            ["reverse_source", "TransformerEncoder", "encoder=rnn"],
        ),
        (
            "experiment=dialogue readout=pointer tokenizer.joint=true",
            ["PointerReadout", "encoder.outputs=words"],
        ),
        ("attention=dot", ["attention=dot", "192", "384", "model.hidden_size=384"]),
        ("model.tied_embeddings=all", ["model.tied_embeddings=all", "tokenizer.joint=true"]),
        ("dataset=multi30k dataset.source=xx", ["dataset.source=xx", "de, en, fr"]),
        # the line itself
        ("trainer.max_epochs", ["trainer.max_epochs=VALUE"]),
        ("attention=[dot", ["attention=[dot"]),
        ("attention additive", ["attention=VALUE"]),
        ("attention:additive", ["attention=additive"]),
        (
            "experiment=dialogue task=translation",
            ["task=translation cannot be combined with experiment=dialogue"],
        ),
        ("gru", ["gru is not a setting. Did you mean encoder=gru?"]),
        ("logger.project=x=y", ["""logger.project="x=y\""""]),
        ("dataset.path=हिंदी", ["""'dataset.path="हिंदी"'""", "outside ASCII"]),
        ("dataset.columns=[हिंदी,english]", ["""'dataset.columns=["हिंदी",english]'"""]),
        ("-m model.dropout=interval(0,0.5)", ["model.dropout=interval(0,0.5)", "hydra/sweeper=optuna"]),
        ("--attention=additive", ["--attention", "attention=additive."]),
        ("--multi-run seed=1,2", ["--multi-run", "'--multirun'"]),
        ("--cfg", ["--cfg"]),
        ("--config-name=x", ["--config-name", "--config-dir"]),
        ("--config-path=x", ["--config-path", "--config-dir"]),
        ("--experimental-rerun=x", ["--experimental-rerun"]),
        ("--config-dir=x", ["--config-dir=x"]),
        ("-m --cfg job", ["--multirun --cfg"]),
        ("--resolve", ["--resolve", "--cfg job"]),
        # multiruns: every job is checked before the first
        ("-m attention=additive,scaled_dot,addtive", ["attention=addtive", "'additive'"]),
        ("-m seed=1,2 trainer.max_epochs=2,many", ["trainer.max_epochs=many", "a whole number"]),
        ("-m seed=range(0,100) attention=additive,addtive", ["attention=addtive"]),
        ("-m model=attn,vanilla attention=additive", ["model=vanilla", "attention=…"]),
        # what this machine does not have
        ("trainer.devices=9999", ["trainer.devices=9999", "1 to "]),
    ],
)
def test_refused_before_any_work(program: Program, arguments: str, named: list[str]) -> None:
    assert_refused(program, arguments, *named)


@pytest.mark.parametrize(("value", "extra"), EXTRAS.items())
def test_the_error_names_the_extra_that_has_a_plugin_of_hydra(
    program: Program, monkeypatch: pytest.MonkeyPatch, value: str, extra: str
) -> None:
    """Hydra does not find the plugin, whether or not the extra is installed."""
    Plugins.instance()  # installed plugins add their values to the store
    group, _, name = value.removeprefix("hydra/").partition("=")
    monkeypatch.delitem(ConfigStore.instance().repo["hydra"][group], f"{name}.yaml", raising=False)
    versions = ["optuna<3", "SQLAlchemy<2"] if extra == "optuna" else []
    assert_refused(program, value, value, f"pip install 'seq2seq_lab[{extra}]'", *versions)


@pytest.mark.parametrize("arguments", HOSTILE_ARGUMENTS)
def test_nothing_a_configuration_names_is_called(
    program: Program, monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    called: list[object] = []
    monkeypatch.setattr(os, "system", lambda *given, **named: called.append((given, named)))
    assert_refused(program, arguments)
    assert called == []


@pytest.mark.parametrize(("callback", "said"), HOSTILE_FILES.items())
def test_a_hostile_experiment_file_calls_nothing(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, callback: str, said: str
) -> None:
    monkeypatch.setenv("CALLED", "os.mkdir")
    canary = tmp_path / "canary"
    folder = write_hostile_experiment(tmp_path / "mine", callback, canary)
    assert_refused(program, f"--config-dir={folder} experiment=evil", said)
    assert not canary.exists()


@pytest.mark.parametrize(
    ("key", "harmless", "settings"),
    [
        ("metric.m", "metric.m._target_: seq2seq_lab.metrics.ter.Ter, ~metric.m.filename: CANARY", ""),
        # The configuration that is checked has the setting, the one with which Hydra creates callbacks does not.
        ("optimizer.lr", "optimizer.lr: 0.1", " optimizer.lr=0.1,0.2"),
    ],
)
def test_a_hostile_study_calls_nothing(
    program: Program, tmp_path: Path, key: str, harmless: str, settings: str
) -> None:
    canary = tmp_path / "canary"
    folder = write_hostile_study(tmp_path / "mine", key, harmless, canary)
    assert_refused(
        program, f"-m hydra.searchpath=[file://{folder}] study=evil{settings}", "hydra.callbacks.x"
    )
    assert not canary.exists()


def test_references_to_scalars_in_hydras_section_are_allowed() -> None:
    values = (
        "${study.name}",
        "${seed}",
        "${trainer.device}",
        "x-${dataset._target_}",
        "${hydra.job.num}",
        "${hydra.job.name}",
        "${hydra:job.name}",
        "${hydra.sweep.dir}",
        "${hydra.run.dir}",
        "${now:%Y}",
        "${oc.env:HOME}",
    )
    keys = [f"+hydra.launcher.x{index}='{value}'" for index, value in enumerate(values)]
    command_line.check(*keys, "hydra.run.dir=${dataset._target_}", "hydra.sweep.subdir=${hydra.job.num}")


@pytest.mark.parametrize(
    "arguments",
    [
        "logger.group='${oc.env:SERVICE_API_KEY}'",
        "logger.tags=[a,'x-${oc.env:SERVICE_API_KEY}']",
        "logger.group=abcdefgh1234",
        "-m seed=1,2 logger.group='${oc.env:SERVICE_API_KEY}'",
    ],
)
def test_a_secret_of_the_environment_is_refused_and_not_printed(
    program: Program, monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", "abcdefgh1234")
    status, out, err = program(*arguments.split())
    assert status == 2
    assert "SERVICE_API_KEY" in err
    assert "abcdefgh1234" not in out + err
    assert not program.jobs


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("trainer:\n  max_epoch: 3\n", ["trainer.max_epoch ", "experiment/mine", "'trainer.max_epochs'"]),
        (
            "trainer:\n  max_epochs: many\n",
            ["trainer.max_epochs ", "experiment/mine", "'many'", "whole number"],
        ),
        ("defaults:\n  - override /attention: addtive\n", ["attention=addtive", "'additive'"]),
        ("defaults:\n  - override /atention: dot\n", ["experiment/mine", "atention"]),
        ("trainer: [\n", ["mine.yaml", "line 3"]),
    ],
)
def test_errors_in_a_file_name_the_file(
    program: Program, tmp_path: Path, content: str, said: list[str]
) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\n" + content)
    assert_refused(program, f"--config-dir={tmp_path} experiment=mine", *said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"trainer:\n  max_steps: 3\n", ["experiment/mine.yaml", "# @package _global_"]),
        (b"# @package _global_\ntrainer:\n  max_epochs: ${seed\n", ["trainer.max_epochs"]),
        ("# @package _global_\n".encode("utf-16"), ["UTF-8"]),
    ],
)
def test_a_file_without_its_first_line_and_files_that_cannot_be_read_are_refused(
    program: Program, tmp_path: Path, content: bytes, said: list[str]
) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_bytes(content)
    assert_refused(program, f"--config-dir={tmp_path} experiment=mine", *said)


def test_a_module_the_user_trusts(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("path")
    (folder / "mymodule_of_test_cli.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)
    chosen = "attention=multiplicative attention._target_=mymodule_of_test_cli.MyAttention"
    assert_refused(program, chosen, "SEQ2SEQ_LAB_TRUST=mymodule_of_test_cli")
    monkeypatch.setenv("SEQ2SEQ_LAB_TRUST", "other,mymodule_of_test_cli")
    assert program(*chosen.split())[0] == 0
    assert len(program.jobs) == 1
    # A trusted module vouches for its own classes, not for what it imports.
    status, _, error = program("attention._target_=mymodule_of_test_cli.Tensor")
    assert status == 2
    assert "refused" in error


def test_help_lists_every_group_and_value(program: Program, tmp_path: Path) -> None:
    status, out, _ = program("--help")
    assert status == 0
    for group in groups():
        (values,) = re.findall(rf"^{group}: (.*(?:\n  .*)*)", out, re.MULTILINE)
        assert set(group_values(group)) == set(re.split(r"[,\s]+", values))
    assert len(out.splitlines()) <= 80
    assert "resume=" in out
    assert list(tmp_path.iterdir()) == []


def test_every_command_in_the_help_composes(program: Program) -> None:
    _, out, _ = program("--help")
    commands = re.findall(r"^ +python -m seq2seq_lab(?: (.*))?$", out, re.MULTILINE)
    assert len(commands) > 5
    for command in commands:
        if "resume=" not in command:
            command_line.check(*command.split(), *([] if "seed=" in command else ["seed=1"]))


def test_cfg_job_prints_the_configuration(program: Program, tmp_path: Path) -> None:
    status, out, _ = program("--cfg", "job", "trainer.max_epochs=77")
    assert status == 0
    assert OmegaConf.create(out).trainer.max_epochs == 77
    assert program.jobs == []
    assert list(tmp_path.iterdir()) == []


def test_a_run_gets_its_folder_configuration_and_choices(program: Program, tmp_path: Path) -> None:
    assert program("attention=linear", "seed=3", "encoder=lstm")[0] == 0
    (job,) = program.jobs
    assert (job.config.seed, job.plain["seed"], job.resume) == (3, 3, False)
    assert (job.choices["attention"], job.choices["encoder"]) == ("linear", "lstm")
    assert job.folder.parts[:-2] == (tmp_path / "outputs").parts
    assert OmegaConf.to_container(OmegaConf.load(job.folder / "config.yaml")) == job.plain
    assert job.plain["decoder"]["cell"] == "lstm"


def test_a_multirun_runs_every_combination(program: Program) -> None:
    assert program("-m", "attention=additive,multiplicative", "seed=1,2")[0] == 0
    ran = [(job.plain["attention"]["_target_"].rpartition(".")[2], job.plain["seed"]) for job in program.jobs]
    functions = ("AdditiveAttention", "MultiplicativeAttention")
    assert ran == [(function, seed) for function in functions for seed in (1, 2)]
    assert len({job.folder for job in program.jobs}) == 4


def test_two_jobs_do_not_share_a_folder(program: Program) -> None:
    status, _, error = program("-m", "seed=1,2", "hydra.sweep.subdir=same")
    assert status == 2
    assert "sweeps/" in error
    assert "hydra.sweep.subdir" in error
    assert [job.plain["seed"] for job in program.jobs] == [1]


def test_a_failing_job_of_a_multirun_is_reported_and_the_others_run(program: Program) -> None:
    program.error["multiplicative"] = UserError("no such file: x.txt")
    status, _, error = program("-m", "attention=additive,multiplicative,scaled_dot")
    assert status == 2
    assert len(program.jobs) == 3
    assert f"attention=multiplicative in {program.jobs[1].folder}: no such file: x.txt" in error
    assert "no such file" in (program.jobs[1].folder / "run.log").read_text()
    assert error.count("Jobs without a result:") == 1


def test_an_error_within_a_run_shows_its_message_only(program: Program) -> None:
    program.error["additive"] = UserError("no such file: x.txt")
    status, out, error = program()
    assert (status, out) == (2, "")
    assert error.endswith("error: no such file: x.txt\n")
    assert "Error executing job" not in error
    assert "Traceback" not in error
    assert (
        "ERROR seq2seq_lab.run: The run failed. UserError: no such file: x.txt"
        in (program.jobs[0].folder / "run.log").read_text()
    )


def test_a_fault_of_the_program_shows_its_traceback(program: Program) -> None:
    program.error["additive"] = KeyError("fault")
    with pytest.raises(KeyError, match="fault"):
        program()


def test_a_sweep_of_a_configuration_file(program: Program, tmp_path: Path) -> None:
    experiments = tmp_path / "mine" / "experiment"
    experiments.mkdir(parents=True)
    (experiments / "grid.yaml").write_text(
        "# @package _global_\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      seed: 1,2\n"
    )
    assert program(f"--config-dir={tmp_path / 'mine'}", "experiment=grid")[0] == 0
    assert [job.plain["seed"] for job in program.jobs] == [1, 2]
    program.jobs.clear()
    (experiments / "grid.yaml").write_text(
        "# @package _global_\nhydra:\n  mode: MULTIRUN\n  sweeper: {params: {attention: 'dot,addtive'}}\n"
    )
    assert_refused(
        program,
        f"--config-dir={tmp_path / 'mine'} experiment=grid model.hidden_size=512",
        "attention=addtive",
    )


def test_jobs_beyond_the_bound_still_show_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = parse_overrides(["seed=range(0,50)", "trainer.max_epochs=1,2,3", "attention=dot"])
    jobs = list(sweeps.select_jobs_to_check([overrides]))
    assert {line for job in jobs for line in job} == {
        *(f"seed={seed}" for seed in range(50)),
        *(f"trainer.max_epochs={epochs}" for epochs in (1, 2, 3)),
        "attention=dot",
    }
    assert len(jobs) == sweeps.MAX_CHECKED_JOBS + 49 + 2
    monkeypatch.setattr(sweeps, "MAX_CHECKED_JOBS", 150)
    assert len(list(sweeps.select_jobs_to_check([overrides]))) == 150
    assert len(list(sweeps.select_jobs_to_check([overrides] * 5))) == 5 * (150 // 5 + 49 + 2)
    (interval,) = parse_overrides(["model.dropout=interval(0.1,0.5)"])
    assert sweeps.split_values(interval) == ["model.dropout=0.1"]


@pytest.fixture(scope="module")
def configuration_of_a_run() -> str:
    with composer():
        return OmegaConf.to_yaml(OmegaConf.create(plain(hydra.compose("config", ["seed=5"]))))


@pytest.fixture
def finished(configuration_of_a_run: str, tmp_path: Path) -> Path:
    """The folder of a run that has ended."""
    folder = tmp_path / "outputs" / "run"
    rewrite(folder / "config.yaml", configuration_of_a_run)
    (folder / ".lock").touch()
    record = {"format": RUN_FORMAT, "choices": {"attention": "additive"}, "run_id": None}
    rewrite(folder / "run.json", json.dumps(record))
    foreign.remember(folder)
    return folder


def test_resume_continues_a_run(program: Program, finished: Path) -> None:
    changes = ("trainer.max_epochs=9", "trainer.patience=null", "logger.tags=[a]")
    assert program(f"resume={finished}", *changes)[0] == 0
    (job,) = program.jobs
    assert job.resume
    assert job.folder == finished
    assert (job.config.seed, job.config.trainer.max_epochs, job.config.logger["tags"]) == (5, 9, ["a"])
    assert job.choices["attention"] == "additive"
    # The folder keeps its configuration until the run has accepted its checkpoint.
    assert OmegaConf.load(finished / "config.yaml").trainer.max_epochs != 9


def test_the_settings_of_the_command_line_are_passed_to_the_job(program: Program, finished: Path) -> None:
    lines = ("attention=linear", "trainer.max_steps=40")
    for line in (lines, ()):
        assert program(*line, f"hydra.run.dir=run_{len(line)}")[0] == 0
        assert program.jobs[-1].overrides == line
    assert program("-m", "study.name=two", "attention=linear", "seed=1,2")[0] == 0
    for seed, job in enumerate(program.jobs[-2:], start=1):
        assert job.overrides is not None
        assert sorted(job.overrides) == ["attention=linear", f"seed={seed}", "study.name=two"]
    # A resumed run adds its changes; the settings of an older run are unknown.
    assert program(f"resume={finished}", "trainer.max_epochs=9")[0] == 0
    assert program.jobs[-1].overrides is None
    record = json.loads((finished / "run.json").read_text())
    rewrite(finished / "run.json", json.dumps({**record, "overrides": ["seed=5", "trainer.max_epochs=7"]}))
    assert program(f"resume={finished}", "trainer.max_epochs=9", "trainer.patience=null")[0] == 0
    assert program.jobs[-1].overrides == ("seed=5", "trainer.max_epochs=9", "trainer.patience=null")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("trainer.max_epoch=5", ["trainer.max_epoch=5", "'trainer.max_epochs'", "trainer.max_steps"]),
        ("trainer.max_epochsx=5", ["trainer.max_epochsx=5", "'trainer.max_epochs'"]),
        ("trainer.max_epochs=many", ["trainer.max_epochs=many", "a whole number"]),
        ("trainer.max_epochs=0", ["trainer.max_epochs=0", "above 0"]),
        ("trainer.max_epochs=1,2", ["trainer.max_epochs=1,2", "several values", "trainer.max_epochs=VALUE"]),
        ("~trainer.patience", ["~trainer.patience", "trainer.patience=VALUE"]),
        ("logger=none", ["logger=none", "logger.mode=disabled"]),
        ("seed=2", ["seed=2", "trainer.max_epochs", "logger.tags", "init_from="]),
        ("model=vanilla", ["model=vanilla", "trainer.max_epochs"]),
        ("logger.tag=[a]", ["logger.tag=[a]", "'logger.tags'"]),
        ("logger._target_=os.system", ["logger._target_=os.system"]),
        ("trainer.max_epochs", ["Write key=value"]),
        ("-m", ["--multirun", "resume="]),
        ("--cfg job", ["--cfg", "resume="]),
        ("resume=other", ["resume=other", "one folder"]),
    ],
)
def test_resume_refuses(program: Program, finished: Path, arguments: str, said: list[str]) -> None:
    before = (finished / "config.yaml").read_text()
    assert_refused(program, f"resume={finished} {arguments}", *said)
    assert (finished / "config.yaml").read_text() == before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("seed: [", ["config.yaml"]),
        ("seed: 1\nfoo: 2\n", ["foo"]),
        ("seed: 1\n", ["is missing"]),
        ("seed: many\n", ["seed", "a whole number"]),
    ],
)
def test_resume_refuses_a_configuration_that_is_none(
    program: Program, finished: Path, content: str, said: list[str]
) -> None:
    rewrite(finished / "config.yaml", content)
    assert_refused(program, f"resume={finished}", *said)


def test_resume_refuses_a_hostile_folder(program: Program, finished: Path) -> None:
    saved = (finished / "config.yaml").read_text()
    hostile = saved.replace("seq2seq_lab.data.grammar.Grammar", "os.system")
    assert hostile != saved
    rewrite(finished / "config.yaml", hostile)
    assert_refused(program, f"resume={finished}", "dataset._target_=os.system")


def test_resume_refuses_folders_without_a_run(program: Program, finished: Path) -> None:
    assert_refused(program, "resume=nowhere", "resume=nowhere", "outputs/DATE/TIME")
    (finished / "run.json").unlink()
    assert_refused(program, f"resume={finished}", "no run.json")


def test_a_folder_holds_one_run_at_a_time(program: Program, finished: Path) -> None:
    with (finished / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert_refused(program, f"resume={finished}", str(finished), "is in use")
    assert program(f"resume={finished}")[0] == 0


def test_a_run_that_began_before_the_folder_was_locked_is_not_overwritten(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_folder = start.lock_folder

    @contextmanager
    def lock_late(folder: Path) -> Iterator[None]:
        with lock_folder(folder):
            (folder / "config.yaml").touch()
            yield

    monkeypatch.setattr(start, "lock_folder", lock_late)
    assert program("hydra.run.dir=run")[0] == 2
    assert program.jobs == []
    assert {path.name for path in (tmp_path / "run").iterdir()} == {".lock", "config.yaml"}
    assert (tmp_path / "run" / "config.yaml").read_text() == ""


def test_a_run_does_not_overwrite_another(program: Program, finished: Path) -> None:
    assert_refused(program, f"hydra.run.dir={finished}", f"hydra.run.dir={finished}", f"resume={finished}")


def run_module(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_help_and_misspellings_do_not_wait_for_torch(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom seq2seq_lab.launching import cli\nsys.argv[1:] = {!r}\n"
        "try:\n    cli.main()\nexcept SystemExit as end:\n    print(end.code, 'torch' in sys.modules)\n"
    )
    assert run_module("-c", code.format(["--help"]), cwd=tmp_path).stdout.endswith("0 False\n")
    assert run_module("-c", code.format(["sed=3"]), cwd=tmp_path).stdout.endswith("2 False\n")


def test_the_package_shows_its_public_names_and_imports_torch_for_none_but_them(tmp_path: Path) -> None:
    code = "import sys, seq2seq_lab\nprint(dir(seq2seq_lab), 'torch' in sys.modules)"
    names = sorted([*seq2seq_lab.__all__, "__version__"])
    assert run_module("-c", code, cwd=tmp_path).stdout == f"{names} False\n"
    code = "import seq2seq_lab\nhelp(seq2seq_lab)"
    shown = run_module("-c", code, cwd=tmp_path).stdout
    assert "class LoadedTranslation" in shown
    assert "train(" in shown
    assert "TYPE_CHECKING" not in shown
    assert "import_module" not in shown


def test_python_m(tmp_path: Path) -> None:
    ended = run_module("-m", "seq2seq_lab", "attention=addtive", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(r"error: attention=addtive .*'additive'.*\n", ended.stderr)
    assert list(tmp_path.iterdir()) == []


def test_the_console_script_is_the_same_program(program: Program, tmp_path: Path) -> None:
    script = str(Path(sys.executable).with_name("seq2seq-lab"))
    shown, refused = (
        subprocess.run([script, option], cwd=tmp_path, capture_output=True, text=True, check=False)
        for option in ("--help", "--nothing")
    )
    assert (shown.returncode, shown.stdout) == program("--help")[:2]
    assert "scaled_dot" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert (refused.returncode, refused.stderr) == program("--nothing")[::2]
    assert refused.stderr.startswith("error: --nothing is not an option.")


def test_the_version_is_that_of_the_program(program: Program) -> None:
    status, out, _ = program("--version")
    assert status == 0
    assert re.fullmatch(
        rf"seq2seq_lab {seq2seq_lab.__version__} \(Python 3\.[\d.]+, torch 2\.\S+, .*\)\n", out
    )


@pytest.mark.parametrize(
    "command", ["seq2seq_lab --help", "seq2seq_lab --cfg job", "seq2seq_lab.evaluate --help"]
)
def test_a_reader_that_stops_ends_the_program_without_a_traceback(command: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (ended.returncode in (0, 1), ended.stderr) == (True, "")


def test_another_broken_pipe_is_not_taken_for_a_reader_that_stops() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError), report_errors():
        os.write(writer, b"to a process that ended")
    os.close(writer)


def test_options_between_settings_are_accepted(program: Program, tmp_path: Path) -> None:
    assert (
        program("seed=3", "--config-dir", str(tmp_path), "encoder=gru", "-m", "attention=additive,dot")[0]
        == 0
    )
    assert [(job.config.seed, job.choices["attention"]) for job in program.jobs] == [
        (3, "additive"),
        (3, "dot"),
    ]


def test_a_plain_run_composes_and_checks_once(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def count(owner: object, name: str) -> None:
        function = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *args, **kwargs: (calls.append(name), function(*args, **kwargs))[1]
        )

    monkeypatch.setattr(hydra_adapter, "TEMPLATES", {})
    count(ConfigLoaderImpl, "load_configuration")
    count(checks, "check_parts")
    count(parts, "build_seq2seq")
    assert program("seed=3")[0] == 0
    assert sorted(calls) == ["build_seq2seq", "check_parts", "load_configuration"]


@pytest.mark.parametrize("name", ["dangling", "dangling/below", "file", "file/below", "loop", "n" * 300])
def test_a_run_folder_that_cannot_exist_is_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    assert command_line.run("logger=none", f"hydra.run.dir={tmp_path / name}") == 2
    message = capsys.readouterr().err
    assert str(tmp_path / name.partition("/")[0]) in message
    assert "Choose" in message
