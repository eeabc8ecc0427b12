"""`hydra.job.chdir=true`: input paths are those of the directory in which the command was started."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import command_line
import pytest
import yaml  # type: ignore[import-untyped]
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from seq2seq_lab.config import foreign
from seq2seq_lab.config.compose import compose, composer
from seq2seq_lab.config.input_paths import make_absolute
from seq2seq_lab.runtime import console

METRIC = """
import pathlib
from seq2seq_lab.metrics.base import Metric

class Known(Metric):
    name, label, higher_is_better = "known", "known words", True
    format, limits = ".1%", (0.0, 1.0)

    def __init__(self, lexicon: str) -> None:
        self.lexicon = lexicon

    def rows(self, outputs):
        words = set(pathlib.Path(self.lexicon).read_text().split())
        pathlib.Path("calls.txt").write_text("in the working directory")
        return [[sum(word in words for word in line.split()), 1.0] for line in outputs.scored]

    def value(self, totals_K):
        return totals_K[0] / totals_K[1]
"""
TINY = (
    *("model.embedding_size=8", "model.encoder_hidden_size=8", "model.hidden_size=8", "trainer.max_epochs=1"),
    *("task.batch_size=16", "task.samples=0", "trainer.device=cpu", "trainer.precision=fp32"),
    *("trainer.threads=1", "logger=none", "hydra.job.chdir=true"),
)
WORDS = ("one", "two", "three", "four", "five", "six")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with files of every kind that a run reads."""
    folder = tmp_path_factory.mktemp("start")
    pairs = [f"{one} {two}\t{two} {one} {three}" for one in WORDS for two in WORDS for three in WORDS[:2]]
    for name, lines in (("train", pairs), ("validation", pairs[:4]), ("test", pairs[4:8])):
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines))
        (folder / "hub").mkdir(exist_ok=True)
        rows = [dict(zip(("source", "target"), line.split("\t"), strict=True)) for line in lines]
        (folder / "hub" / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "words.vec").write_text("".join(f"{word}{' 0.5' * 8}\n" for word in WORDS))
    (folder / "lexicon.txt").write_text("one\ntwo\n")
    (folder / "mine" / "metric").mkdir(parents=True)
    (folder / "mine" / "my_known_words.py").write_text(METRIC)
    (folder / "mine" / "metric" / "known.yaml").write_text(
        "# @package metric.known\n_target_: my_known_words.Known\nlexicon: lexicon.txt\n"
    )
    return folder


def run(start: Path, *arguments: str) -> str:
    """Run a command in `start`, in this process, and return its output."""
    console.console.cache_clear()  # it writes to the standard output of its first use
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as output:
        patch.chdir(start)
        patch.setenv("SEQ2SEQ_LAB_CACHE", "cache")
        status = command_line.run(*arguments)
        assert Path.cwd() == start
    assert status == 0, output.getvalue()
    return output.getvalue()


@pytest.fixture(scope="module")
def first(start: Path) -> str:
    """The output of a run with files, word vectors, a cache folder and a custom component, below `start`.

    Its process is its own, as that of a user is.
    """
    files = [f"dataset.{name}=data/{name}.tsv" for name in ("train", "validation", "test")]
    vectors = ["embedding.source.path=words.vec"]
    settings = ["dataset=parallel", *files, *vectors, "cache_dir=my_cache", "metric=known"]
    command = [sys.executable, "-m", "seq2seq_lab", "--config-dir", "mine", *settings, *TINY]
    environment = {**os.environ, "SEQ2SEQ_LAB_CACHE": "cache", "COLUMNS": "300"}
    ended = subprocess.run(
        [*command, "hydra.run.dir=first"], cwd=start, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return ended.stdout


def result(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return loaded


@pytest.mark.slow
def test_a_run_reads_the_files_of_the_first_directory(start: Path, first: str) -> None:
    assert result(start / "first")["status"] == "finished"
    assert "test/known" in result(start / "first")
    assert (start / "my_cache").is_dir()
    assert (start / "first" / "calls.txt").is_file()  # the working directory is the run folder
    assert not (start / "calls.txt").exists()
    config = yaml.safe_load((start / "first" / "config.yaml").read_text())
    assert config["dataset"]["train"] == str(start / "data" / "train.tsv")


@pytest.mark.slow
def test_the_commands_that_it_prints_work_in_the_first_directory(start: Path, first: str) -> None:
    commands = " ".join(first.replace("\\\n", "").split())  # a long command is folded
    assert f"seq2seq_lab.predict {start / 'first'}" in commands


@pytest.mark.slow
def test_a_run_of_the_first_directory_is_the_origin_of_another_and_is_resumed(
    start: Path, first: str
) -> None:
    settings = ["init_from=first", "dataset=parallel", "dataset.hub=hub"]
    run(start, *settings, *TINY, "hydra.run.dir=second")
    assert result(start / "second")["status"] == "finished"
    assert (start / "cache").is_dir()  # $SEQ2SEQ_LAB_CACHE
    assert not (start / "second" / "cache").exists()
    steps = result(start / "second")["steps"]
    run(start, "resume=second", "trainer.max_epochs=2")
    assert result(start / "second")["steps"] == 2 * steps


@pytest.mark.slow
def test_the_same_command_resumes_a_run_of_relative_paths(start: Path) -> None:
    line = ("resume=auto", *TINY, "dataset=parallel", "hydra.run.dir=again")
    files = tuple(f"dataset.{name}=data/{name}.tsv" for name in ("train", "validation", "test"))
    assert "starting the run" in run(start, *line, *files)
    assert "resuming from the newest checkpoint" in run(start, *line, *files)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "local"])
def test_the_jobs_of_a_study_read_the_files_of_the_first_directory(
    start: Path, first: str, launcher: str
) -> None:
    seeds = {"basic": "1,2", "local": "1"}[launcher]  # of `local`, each job has a process
    line = ["-m", f"study.name={launcher}", f"hydra/launcher={launcher}", f"seed={seeds}", "init_from=first"]
    line += ["dataset=parallel", "dataset.hub=hub", *TINY]
    run(start, *line)
    results = sorted((start / "sweeps" / launcher).glob("*/result.json"))
    assert [result(path.parent)["status"] for path in results] == ["finished" for _ in seeds.split(",")]
    if launcher == "basic":
        times = [path.stat().st_mtime_ns for path in results]
        run(start, *line)  # the same jobs, which have finished
        assert sorted((start / "sweeps" / launcher).glob("*/result.json")) == results
        assert [path.stat().st_mtime_ns for path in results] == times


@pytest.mark.parametrize(
    ("settings", "paths", "others"),
    [
        (
            ["dataset=parallel", "dataset.train=[a.en,a.fr]", "dataset.test={x:a.tsv,y:new.tsv}"],
            ["dataset.train[0]", "dataset.train[1]", "dataset.test.x", "dataset.test.y"],
            ["dataset.source", "dataset.format", "dataset._target_"],
        ),
        (["dataset=parallel", "dataset.hub=a/b"], ["dataset.hub"], []),
        (["dataset=parallel", "dataset.hub=c/d"], [], ["dataset.hub"]),
        (["dataset=multi30k", "dataset.path=a"], ["dataset.path"], ["dataset.hub", "dataset.source"]),
        (["dataset=tatoeba", "cache_dir=new"], ["cache_dir", "dataset.cache_dir"], ["dataset.url"]),
        (["task=captions", "dataset=image_folder", "dataset.path=a"], ["dataset.path"], ["dataset.language"]),
        (["dataset=monolingual", "task=language_model", "dataset.path=a.en"], ["dataset.path"], []),
        (["experiment=names", "dataset.path=a.en"], ["dataset.path"], []),
        (["task=dialogue", "dataset.path=a"], ["dataset.path"], []),
        (["task=classification", "dataset=sentiment", "dataset.path=a"], ["dataset.path"], []),
        (["encoder=pretrained", "encoder.path=a"], ["encoder.path"], []),
        (["embedding.source.path=a.en", "embedding.target.path=a.fr"], ["embedding.source.path"], []),
        (["init_from=new"], ["init_from"], ["study.name"]),
        (["+metric.m._target_=my.M", "+metric.m.words=a.en"], ["metric.m.words"], ["metric.m._target_"]),
        (["+metric.m._target_=my.M", "+metric.m.words=b", "+metric.m.test=x"], [], ["metric.m.words"]),
        (["cache_dir='~/cache'"], [], []),
    ],
)
def test_which_settings_are_paths(
    settings: list[str], paths: list[str], others: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    # Also files with the names of other values.
    for name in ("a.en", "a.fr", "a.tsv", "b", "de", "en", "source", "target", "auto", "word", "gru"):
        (tmp_path / name).touch()
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    with composer():
        node = compose([setting for setting in settings if not setting.startswith("init_from")])
        if settings == ["init_from=new"]:
            node.init_from = "new"  # not read here
        before = OmegaConf.create(OmegaConf.to_container(node, resolve=False))
        HydraConfig.instance().set_config(node)
        make_absolute(node)
        assert OmegaConf.to_container(node, resolve=False) == OmegaConf.to_container(before, resolve=False)
        monkeypatch.chdir(tmp_path / "run")
        monkeypatch.setenv("SEQ2SEQ_LAB_CACHE", "cache")
        make_absolute(node)
    assert os.environ["SEQ2SEQ_LAB_CACHE"] == str(tmp_path / "cache")
    for key in paths:
        assert OmegaConf.select(node, key) == str(tmp_path / OmegaConf.select(before, key))
    for key in others:
        assert OmegaConf.select(node, key) == OmegaConf.select(before, key)
    changed = {
        key
        for key, value in foreign.texts(OmegaConf.to_container(node, resolve=False), "")
        if not key.startswith("hydra.") and value.startswith(str(tmp_path))
    }
    assert len(changed) >= len(paths)
    assert changed <= {*(key.replace("[", ".").replace("]", "") for key in paths), "embedding.target.path"}
