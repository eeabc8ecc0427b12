"""Studies: the jobs of a multirun under one name, started once and again."""

import json
import os
import shlex
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import command_line
import pytest
import torch
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf, open_dict, read_write
from rewriting import rewrite

from hydra_plugins.seq2seq_lab_launcher import LocalJob, LocalLauncher
from seq2seq_lab import run
from seq2seq_lab.config import compose, sweeps
from seq2seq_lab.config.command_line import parse_overrides
from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.config.job_hash import compute_job_hash
from seq2seq_lab.config.run_folder import RUN_FORMAT, read_result
from seq2seq_lab.config.schema import Device
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import lock_file, lock_folder
from seq2seq_lab.launching import start, study
from seq2seq_lab.launching.study import Entry, Search, Study, append_entry, read_index
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.models.seq2seq import build_seq2seq
from seq2seq_lab.reporting.runs import find_runs
from seq2seq_lab.run import Job
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.runtime.signals import StopSignals
from seq2seq_lab.tasks.parts import data_record
from seq2seq_lab.tracking.wandb import WandbTracker
from seq2seq_lab.training import checkpoint, provenance

LOAD = Grammar.load
MACHINE = {"device_name": "EPYC", "threads": 1, "torch": "2.13.0"}


class Program:
    """The command line with a run that ends at once, well or badly, on data of a few words."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.failing: set[int] = set()
        self.words = ["a", "b"]

    def load(self) -> Corpus:
        text = ParallelText(self.words, self.words)
        return Corpus("en", "fr", text, text, {"test": text})

    def run(self, job: Job, ranks: Ranks, stop: StopSignals) -> dict[str, Any]:
        if job.resume:
            run.find_checkpoint(job.folder / "checkpoints")
        self.jobs.append(job)
        if job.config.seed in self.failing:
            raise UserError("no such file: x.txt")
        record = {
            "format": RUN_FORMAT,
            "choices": job.choices,
            "commit": None,
            **provenance.current(job.config, data_record),
        }
        origin = {"dirty": False, "test_precision": "fp32", "machine": MACHINE, **record}
        rewrite(job.folder / "run.json", json.dumps(record))
        result = {
            **{"status": "finished", "val/bleu": 10.0 + job.config.seed, "test/bleu": 9.0},
            **{"provenance": origin, "test/examples": "0000000"},
            **Declarations.of([Bleu()], [], "bleu").result(),
        }
        rewrite(job.folder / "result.json", json.dumps(result))
        return result

    def __call__(self, *arguments: str) -> list[int]:
        """Run the program and return the seeds of the jobs that it ran."""
        self.jobs.clear()
        assert command_line.run(*arguments) == (2 if self.failing else 0)
        return [job.config.seed for job in self.jobs]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    made = Program()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seq2seq_lab.run.experiment", made.run)
    monkeypatch.setattr(Grammar, "load", lambda _: made.load())
    monkeypatch.setattr("seq2seq_lab.launching.checks.check_parts", lambda config: None)
    return made


def folder_of(program: Program, seed: int) -> Path:
    return next(job.folder for job in program.jobs if job.config.seed == seed)


def test_a_study_started_again_runs_the_remaining_jobs(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("-m", "seed=1,2,3", "study.name=mine")
    program.failing = {2}
    assert program(*line) == [1, 2, 3]
    said = capsys.readouterr()
    failed, cut = folder_of(program, 2), folder_of(program, 3)
    assert {path.parent for path in (failed, cut)} == {tmp_path / "sweeps" / "mine"}
    assert f"seed=2 in {failed}: no such file: x.txt" in said.err
    assert (
        f"Jobs without a result:\n  seed=2 in sweeps/mine/{failed.name}: failed: UserError: no such file: x.txt"
        in said.err
    )
    assert f"seed=1: val BLEU 11.00, test BLEU 9.00, {folder_of(program, 1)}" in said.out
    # A job that was cut off has a checkpoint and no result.
    (cut / "result.json").unlink()
    (cut / "checkpoints" / "step_00000005").mkdir(parents=True)
    monkeypatch.setattr(checkpoint, "damage", lambda folder: None)
    program.failing = set()
    assert program(*line) == [2, 3]
    assert [job.resume for job in program.jobs] == [False, True]
    assert "Jobs without a result" not in capsys.readouterr().err
    assert program(*line) == []
    told = capsys.readouterr().out
    assert len([row for row in told.splitlines() if "finished" in row]) == 3
    assert "3 runs" in told
    assert "│    3 │ 9.00 │" in told


LINE = ("-m", "seed=1,2", "study.name=mine")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two jobs that have finished; copy it before changing it."""
    folder, program = tmp_path_factory.mktemp("begun"), Program()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("seq2seq_lab.run.experiment", program.run)
        patch.setattr(Grammar, "load", lambda _: program.load())
        patch.setattr("seq2seq_lab.launching.checks.check_parts", lambda config: None)
        assert program(*LINE) == [1, 2]
    return folder


@pytest.fixture
def jobs(begun: Path, program: Program, tmp_path: Path) -> list[Path]:
    """The folders of copies of both jobs, in the working directory."""
    shutil.copytree(begun / "sweeps", tmp_path / "sweeps")
    study_folder = tmp_path / "sweeps" / "mine"
    return [study_folder / entry.hash for entry in read_index(study_folder)]


class TestChanged:
    """Jobs that have begun, started again after their data or code changed."""

    def refused(self, *arguments: str) -> None:
        assert command_line.run(*LINE, *arguments) == 2

    def test_other_data_is_refused_before_any_job_and_rerun_on_request(
        self, program: Program, jobs: list[Path], capsys: pytest.CaptureFixture[str]
    ) -> None:
        first = jobs[0]
        (first / "old").write_text("")
        program.words = ["a", "c", "d"]
        self.refused("seed=3,1,2")
        assert program.jobs == []
        said = capsys.readouterr()
        assert "study.changed=refuse: some jobs" in said.err
        assert f"test: 2 examples, now 3): seed=1 in sweeps/mine/{first.name}, seed=2 in " in said.err
        assert "mean" not in said.out
        assert program(*LINE, "study.changed=rerun") == [1, 2]
        assert sorted(path.name for path in first.iterdir() if path.name[0] != ".") == [
            "config.yaml",
            "manifest.json",
            "result.json",
            "run.json",
            "run.log",
        ]
        aside = first.with_name(f"{first.name}.stale-1")
        assert {path.name for path in aside.iterdir()} >= {"config.yaml", "result.json", "run.json", "old"}
        said = capsys.readouterr()
        assert f"run again; its old files are in sweeps/mine/{aside.name}" in said.out
        assert [row.split("│")[1:3] for row in said.out.splitlines() if "11.00" in row and "│" in row]
        assert "    2 │" in said.out  # the runs of the comparison
        assert {run.folder for run in find_runs([first.parent])[0]} == {*jobs}
        assert program(*LINE) == []
        program.words = ["a"]
        assert program(*LINE, "study.changed=rerun") == [1, 2]
        assert first.with_name(f"{first.name}.stale-2").is_dir()

    def test_keep_accepts_results_and_reads_no_data(
        self, program: Program, jobs: list[Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program.words = ["x"]
        monkeypatch.setattr(program, "load", lambda: pytest.fail("it loads the data"))
        assert program(*LINE, "study.changed=keep") == []

    def test_an_interrupted_job_is_refused_too(self, program: Program, jobs: list[Path]) -> None:
        line, folder = ("-m", "seed=2", "study.name=mine"), jobs[1]
        (folder / "result.json").unlink()
        (folder / "checkpoints" / "step_00000005").mkdir(parents=True)
        program.words = ["x"]
        assert command_line.run(*line) == 2
        assert program.jobs == []
        assert program(*line, "study.changed=rerun") == [2]
        assert not program.jobs[0].resume

    def test_a_job_that_was_not_checked_beforehand_is_refused_when_it_starts(
        self,
        program: Program,
        jobs: list[Path],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        shutil.rmtree(jobs[0])
        monkeypatch.setattr(study, "check_unchanged", lambda jobs: None)
        monkeypatch.setattr(provenance, "source", lambda: "other")
        self.refused()
        assert [job.config.seed for job in program.jobs] == [1]
        assert "source of seq2seq_lab: seed=2 in " in capsys.readouterr().err
        assert program(*LINE, "study.changed=rerun") == [2]

    def test_an_edited_component_is_refused_for_the_jobs_that_use_it(
        self, program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        own = tmp_path / "own"
        (own / "attention").mkdir(parents=True)
        text = (
            "from seq2seq_lab.models.attention import AdditiveAttention\n\n"
            "class Mine(AdditiveAttention):\n    factor = 1\n"
        )
        (own / "my_changed_part.py").write_text(text)
        yaml = "_target_: my_changed_part.Mine\n"
        (own / "attention" / "mine.yaml").write_text(f"{yaml}size: 4\n")
        line = ("-m", f"--config-dir={own}", "attention=mine,multiplicative", "study.name=mine")
        program(*line)
        (own / "my_changed_part.py").write_text(text.replace("= 1", "= 2"))
        program.jobs.clear()
        assert command_line.run(*line) == 2
        assert program.jobs == []
        said = capsys.readouterr().err
        assert "multiplicative" not in said
        assert "custom components (my_changed_part.py): attention=mine in " in said
        program(*line, "study.changed=rerun")
        assert [job.choices["attention"] for job in program.jobs] == ["mine"]

    def test_a_job_of_another_format_is_refused(
        self, program: Program, jobs: list[Path], capsys: pytest.CaptureFixture[str]
    ) -> None:
        record = json.loads((jobs[0] / "run.json").read_text("utf-8"))
        del record["format"]
        rewrite(jobs[0] / "run.json", json.dumps(record))
        self.refused()
        assert f"{jobs[0].name}: format=None of run.json" in capsys.readouterr().err

    def test_a_job_that_another_process_runs_is_left_to_it(
        self, program: Program, jobs: list[Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(start, "lock_folder", partial(lock_folder, timeout=0.1))
        program.words = ["x"]
        with lock_folder(jobs[0]), lock_folder(jobs[1]):
            assert program(*LINE) == []

    def test_the_launcher_of_processes_refuses_before_it_starts_any(
        self, program: Program, jobs: list[Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(study, "check_unchanged", partial(after_the_first, study.check_unchanged, []))
        monkeypatch.setattr(
            "seq2seq_lab.launching.side_by_side.side_by_side", lambda *_: pytest.fail("it starts jobs")
        )
        program.words = ["x"]
        self.refused("hydra/launcher=local")

    def test_the_launcher_of_processes_does_not_read_the_data_again(
        self, program: Program, jobs: list[Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loads: list[Corpus] = []
        load = program.load
        monkeypatch.setattr(program, "load", lambda: loads.append(load()) or loads[-1])
        assert program(*LINE, "hydra/launcher=local") == []
        assert len(loads) == 1


def after_the_first(function: Any, calls: list[Any], *arguments: Any) -> None:
    """Call a function, but not the first time."""
    calls.append(arguments)
    if len(calls) > 1:
        function(*arguments)


def test_a_grid_that_grows_runs_the_new_jobs_alone(program: Program, tmp_path: Path) -> None:
    program("-m", "seed=2,3", "study.name=mine")
    before = {job.config.seed: job.folder for job in program.jobs}
    assert program("-m", "seed=1,2,3", "attention=additive,linear", "study.name=mine", "logger=none") == [1]
    index = {entry.hash: entry for entry in read_index(tmp_path / "sweeps" / "mine")}
    assert len(index) == 3  # linear is another name of additive
    assert index[before[2].name].varies == {"seed": "2", "attention": "linear"}
    assert [entry.number for entry in index.values()] == [1, 3, 5]
    assert Entry(3, "abc", {"seed": "2", "attention": "dot"}).label == "seed=2 attention=dot"


def test_a_job_that_another_process_runs_is_left_to_it(
    program: Program, jobs: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "lock_folder", partial(lock_folder, timeout=0.1))
    folder = jobs[0]
    (folder / "result.json").unlink()
    with lock_folder(folder):
        assert program(*LINE) == []
        said = capsys.readouterr()
        assert f"seed=1: another process is running it, in {folder}" in said.out
        assert "running" in said.out
        assert "failed" not in said.err
    assert program(*LINE) == [1]


def test_a_look_at_a_job_does_not_keep_it_from_running(program: Program, jobs: list[Path]) -> None:
    (jobs[0] / "result.json").unlink()
    holding = lock_folder(jobs[0])
    holding.__enter__()
    threading.Timer(0.5, holding.__exit__, (None, None, None)).start()
    assert program(*LINE) == [1]


def test_what_a_crash_leaves_half_written_stops_no_study(program: Program, tmp_path: Path) -> None:
    program.failing = {2}
    program("-m", "seed=1,2", "study.name=mine")
    index = tmp_path / "sweeps" / "mine" / "index.jsonl"
    index.write_text(index.read_text() + '{"number": 1, "ha')
    program.failing = set()
    assert program("-m", "seed=1,2", "study.name=mine") == [2]
    assert [job.resume for job in program.jobs] == [False]


def test_a_job_without_a_sound_checkpoint_is_refused_and_the_others_run(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ("-m", "seed=1,2,3", "study.name=mine")
    program(*line)
    folders = [folder_of(program, seed) for seed in (1, 2, 3)]
    (folders[0] / "checkpoints" / "step_00000005").mkdir(parents=True)  # damaged: it is empty
    (folders[0] / "result.json").unlink()
    (folders[1] / "result.json").write_text("{")
    (folders[2] / "run.json").write_text("{")
    capsys.readouterr()
    assert command_line.run(*line) == 2
    assert [job.config.seed for job in program.jobs] == [1, 2, 3, 2]
    said = capsys.readouterr()
    assert f"seed=1 in {folders[0]}: " in said.err
    assert f"move {folders[0]} away" in said.err
    assert f"{folders[2]}/run.json is damaged" in said.err
    assert (folders[1] / "result.json.damaged-1").read_text() == "{"
    unfinished = said.err.partition("Jobs without a result:\n")[2]
    assert f"{folders[0].name}: failed: UserError" in unfinished
    assert f"{folders[2].name}: damaged" in unfinished


@pytest.mark.parametrize(
    ("monitor", "wanted", "other"),
    [("null", "maximize", "minimize"), ("val/loss_teacher_forced", "minimize", "maximize")],
)
def test_a_search_for_the_worst_value_is_refused(monitor: str, wanted: str, other: str) -> None:
    for direction in (wanted, SimpleNamespace(name=wanted), other, None):
        composed = compose_run((f"trainer.monitor={monitor}",))
        with read_write(composed.node), open_dict(composed.node):
            composed.node.hydra = {"sweeper": {"direction": getattr(direction, "name", direction)}}
        if direction == other:
            with pytest.raises(UserError, match=rf"direction={other} .*direction={wanted}"):
                study.check_direction(composed)
        else:
            study.check_direction(composed)


def test_a_setting_with_a_line_separator_is_one_line_of_the_index(tmp_path: Path) -> None:
    entry = Entry(0, "abc", {"dataset.train": "a\u2028b\x85c"})
    append_entry(tmp_path, entry)
    assert read_index(tmp_path) == [entry]
    assert read_index(tmp_path, first=1) == []


def test_an_entry_waits_until_another_job_has_appended_its_own(tmp_path: Path) -> None:
    first, second = (Entry(number, f"job{number}", {}) for number in (0, 1))
    append_entry(tmp_path, first)
    whole = (tmp_path / study.INDEX).read_bytes()
    with (tmp_path / study.INDEX).open("ab") as file:
        lock_file(file, timeout=0)
        other = threading.Thread(target=append_entry, args=(tmp_path, second))
        other.start()
        other.join(0.3)
        assert other.is_alive()
        assert (tmp_path / study.INDEX).read_bytes() == whole
    other.join(10)
    assert read_index(tmp_path) == [first, second]


def test_an_entry_after_a_truncated_line_is_a_line_of_its_own(tmp_path: Path) -> None:
    entry = Entry(0, "abc", {})
    append_entry(tmp_path, entry)
    with (tmp_path / study.INDEX).open("ab") as file:
        file.write(b'{"number": 1, "ha')
    append_entry(tmp_path, replace(entry, hash="def"))
    assert [one.hash for one in read_index(tmp_path)] == ["abc", "def"]


def test_a_job_that_was_extended_by_hand_is_still_the_studys(program: Program, jobs: list[Path]) -> None:
    config = jobs[0] / "config.yaml"
    rewrite(config, config.read_text().replace("max_epochs: 5", "max_epochs: 9"))
    (jobs[0] / "result.json").unlink()
    assert program(*LINE) == [1]


def test_without_a_name_a_study_is_named_by_its_time(program: Program, tmp_path: Path) -> None:
    for _ in range(2):
        assert program("-m", "seed=1,2") == [1, 2]
        assert folder_of(program, 1).parts[:-3] == (tmp_path / "sweeps").parts


def test_the_logger_receives_group_name_and_tags(program: Program) -> None:
    cells = "{seed: 2, attention: multiplicative}, {seed: 1, attention: additive}"
    program("-m", f"hydra.sweeper.cells=[{cells}]", "study.name=mine", "logger=wandb")
    logger = program.jobs[1].config.logger
    assert (logger["group"], logger["name"]) == ("mine", "seed=1 attention=additive")
    assert logger["tags"] == ["seed=1", "attention=additive"]
    program("-m", "seed=3,4", "study.name=mine", "logger=wandb", "logger.group=g", "logger.tags=[t]")
    logger = program.jobs[1].config.logger
    assert (logger["group"], logger["name"], logger["tags"]) == ("g", "seed=4", ["t"])
    program("seed=5", "logger=wandb")
    assert [program.jobs[0].config.logger[key] for key in ("group", "name")] == [None, None]


def test_long_settings_and_names_differ_in_the_logger_too() -> None:
    given = []
    for end in "ab":
        logger = {"_target_": "seq2seq_lab.tracking.none.NoTracker", "name": None, "group": None, "tags": []}
        node = OmegaConf.create({"study": {"name": "x" * 120 + end}, "logger": logger})
        study.name_in_logger(node, Entry(0, "abc", {"dataset.path": "x" * 120 + end, "seed": "3"}))
        given.append(node.logger)
    for key in ("name", "group"):
        assert given[0][key] != given[1][key]
        assert len(given[0][key]) == 100
    assert given[0].name.endswith(" seed=3")
    assert given[0].tags[0] != given[1].tags[0]
    assert [len(tag) for tag in given[0].tags] == [64, len("seed=3")]


def test_the_environment_names_the_record_instead_of_the_study(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_RUN_GROUP", "mine")
    monkeypatch.setenv("WANDB_TAGS", "a,b")
    program("-m", "seed=1,2", "study.name=why", "logger=wandb")
    logger = program.jobs[0].config.logger
    assert (logger["name"], logger["group"], logger["tags"]) == ("seed=1", "mine", ["a", "b"])


def test_only_jobs_without_a_result_need_the_logger(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Any] = []
    monkeypatch.setattr(WandbTracker, "check", checked.append)
    line = ("-m", "study.name=mine", "logger=wandb")
    program(*line, "seed=1")
    before = len(checked)
    assert before
    assert program(*line, "seed=1", "logger.mode=online", "study.changed=keep") == []
    assert len(checked) == before
    assert program(*line, "seed=1,2", "logger.mode=online", "study.changed=keep") == [2]
    assert {one["mode"] for one in checked[before:]} == {"online"}


@pytest.mark.parametrize("name", ["../x", "a//b", "/x", "a b", "x/..", ".", "é"])
def test_names_that_are_no_folder_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"study\.name=.* is not allowed"):
        study.plan(command_line.check("-m", "seed=1,2", f"study.name='{name}'"))


def test_a_study_has_one_name() -> None:
    with pytest.raises(UserError, match=r"study\.name="):
        study.plan(command_line.check("-m", "study.name=a,b"))


def test_the_hash_is_of_what_a_job_computes() -> None:
    config = {
        "seed": 1,
        "model": {"a": 1, "b": [2]},
        "logger": {"x": 1},
        "study": {"number": 1},
        "cache_dir": None,
    }
    same = {"model": {"b": [2], "a": 1}, "seed": 1, "logger": {}, "study": {}, "cache_dir": "x"}
    assert compute_job_hash(config) == compute_job_hash(same)
    assert compute_job_hash(config) != compute_job_hash(config | {"seed": 2})
    assert compute_job_hash(config) == compute_job_hash(config | {"seed": 1.0})
    assert compute_job_hash(config) != compute_job_hash(config | {"seed": True})
    assert len(compute_job_hash(config)) == 10
    tatoeba = (config | {"dataset": {"path": "x", "cache_dir": cache}} for cache in (None, "/a", "/b"))
    assert len(set(map(compute_job_hash, tatoeba))) == 1
    before, default, other = (
        config | {"trainer": {"x": 1}, "task": {"y": 1, **new}}
        for new in ({}, {"pad_to": None}, {"pad_to": 4})
    )
    # Studies from before this setting existed continue.
    assert compute_job_hash(before) == compute_job_hash(default)
    assert compute_job_hash(before) != compute_job_hash(other)


NEUTRAL = (
    *("trainer.start_timeout_seconds=600", "trainer.timeout_seconds=600", "trainer.max_restarts=0"),
    *("trainer.keep_checkpoints=5", "trainer.checkpoint_every_minutes=null", "trainer.profile=true"),
)


def test_settings_that_do_not_change_the_results_do_not_rename_the_jobs(
    program: Program, jobs: list[Path]
) -> None:
    assert program(*LINE, *NEUTRAL) == []
    default, other = (compose.compose_run(settings).plain for settings in ((), NEUTRAL))
    # Studies of earlier versions have this name. It changes when a default that is part of the hash changes.
    assert compute_job_hash(default) == compute_job_hash(other) == "c0689e0b9b"


def test_jobs_that_differ_only_in_such_a_setting_have_different_folders(program: Program) -> None:
    some = NEUTRAL[2:4]
    cells = ",".join(f"{{{setting.replace('=', ':')}}}" for setting in ("seed=1", *some))
    line = ("-m", f"hydra.sweeper.cells=[{cells}]", "study.name=mine")
    assert program(*line) == [1] * (1 + len(some))
    assert len({job.folder for job in program.jobs}) == len(program.jobs)
    default, *others = ({**job.plain, "study": None} for job in program.jobs)
    assert len({str(other) for other in others if other != default}) == len(some)
    assert program(*line) == []


def test_jobs_of_experiments_that_differ_only_in_such_a_setting_have_different_folders(
    program: Program, tmp_path: Path
) -> None:
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    for name, minutes in (("a", 1), ("b", 2)):
        text = f"# @package _global_\ntrainer:\n  checkpoint_every_minutes: {minutes}\n"
        (tmp_path / "mine" / "experiment" / f"{name}.yaml").write_text(text)
    program(f"--config-dir={tmp_path / 'mine'}", "-m", "experiment=a,b", "study.name=mine")
    assert len({job.folder for job in program.jobs}) == 2


@pytest.mark.parametrize(
    ("line", "count", "varies"),
    [
        ("study=attention", 18, "model,attention,seed"),
        ("study=encoder", 18, "encoder,seed"),
        ("study=teacher_forcing", 15, "teacher_forcing.ratio,seed"),
        ("study=attention seed=7", 6, "model,attention"),
        ("study=attention attention=additive,dot encoder=gru", 6, "seed,attention"),
        ("study=attention model=luong", 3, "seed"),
    ],
)
def test_the_ready_studies(line: str, count: int, varies: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "seq2seq_lab.launching.checks.check_parts", lambda config: None
    )  # test_composition checks each value
    monkeypatch.setattr(sweeps, "MAX_CHECKED_JOBS", 0)  # each value alone
    monkeypatch.setattr(compose, "select_jobs_to_check", jobs_of_the_first_seed)
    assert len(jobs_of_study(line)) == count
    planned = study.plan(command_line.check(*line.split()))
    assert planned.settings[1] == f"study.varies=[{varies}]"
    assert planned.folder == Path("sweeps") / line.split()[0].removeprefix("study=")


def test_the_study_of_everything_combines_values_of_the_other_studies() -> None:
    jobs = jobs_of_study("study=everything")
    assert len(jobs) == 180
    others = [
        job for name in ("attention", "encoder", "teacher_forcing") for job in jobs_of_study(f"study={name}")
    ]
    assert {*chain(*jobs)} - {*chain(*others)} == {"study=everything"}
    keys = ["model", "attention", "encoder", "teacher_forcing.ratio", "seed", "study"]
    assert [one.partition("=")[0] for one in jobs[-1]] == keys
    with compose.composer():
        assert compose.compose(["study=everything"]).study.name == "everything"


def jobs_of_study(line: str) -> list[list[str]]:
    with compose.composer():
        sweeper = compose.compose(line.split()[:1]).hydra.sweeper
    cells = sweeps.expand_cells(sweeper, parse_overrides(line.split()))
    return [job for overrides in cells for job in sweeps.combine(overrides)]


def jobs_of_the_first_seed(cells: Sequence[Sequence[Override]]) -> Iterator[list[str]]:
    return (job for job in sweeps.select_jobs_to_check(cells) if not {"seed=2", "seed=3"} & {*job})


@pytest.mark.usefixtures("program")  # which checks no parts
def test_the_cells_of_a_study_are_its_jobs() -> None:
    request = command_line.check("study=attention", "seed=7", "encoder=gru")
    jobs = [(job.choices["model"], job.choices["attention"], job.config.seed) for job in request.jobs]
    functions = ["additive", "multiplicative", "scaled_dot", "location"]
    models = [("vanilla", "none"), ("vanilla_wide", "none"), *(("attn", name) for name in functions)]
    assert jobs == [(*model, 7) for model in models]
    assert {job.choices["encoder"] for job in request.jobs} == {"gru"}


def test_a_signal_after_the_last_check_of_a_job_stops_the_study(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(job: Job, ranks: Ranks, stop: StopSignals) -> None:
        program.run(job, ranks, stop)
        stop.deferred = True
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("seq2seq_lab.run.experiment", run)
    assert command_line.run("-m", "seed=1,2,3") == 143
    (job,) = program.jobs
    assert read_result(job.folder)["status"] == "finished"


def test_null_in_a_cell_is_null() -> None:
    sweeper = OmegaConf.create({"cells": [{"embedding.source.path": None, "model.scale_embeddings": True}]})
    (cell,) = sweeps.expand_cells(sweeper, [])
    assert [override.value() for override in cell] == [None, True]


def test_a_key_that_the_cells_set_replaces_them(program: Program) -> None:
    program("study=attention", "seed=7", "attention=dot,none", "encoder=gru")
    assert [job.choices["attention"] for job in program.jobs] == ["dot", "none"]
    assert {job.choices["model"] for job in program.jobs} == {"attn"}


def test_a_mistake_in_a_cell_is_refused_before_any_job(program: Program) -> None:
    line = [
        "-m",
        "study.name=mine",
        "hydra.sweeper.cells=[{model: vanilla}, {attention: aditive}]",
    ]
    assert command_line.run(*line) == 2
    assert program.jobs == []


def test_the_wide_baseline_has_as_many_parameters_as_the_attention_models() -> None:
    def parameters(*choices: str) -> int:
        with compose.composer():
            config = compose.compose_job(choices).config
        model = build_seq2seq(config, 700, 700, False)
        return sum(parameter.numel() for parameter in model.parameters())

    functions = ("additive", "multiplicative", "scaled_dot", "location")
    attending = [parameters(f"attention={name}") for name in functions]
    assert min(attending) < parameters("model=vanilla_wide") < max(attending)
    assert parameters("model=vanilla") < min(attending)


def jobs_of(*devices: tuple[Device, int]) -> list[LocalJob]:
    return [
        LocalJob((), OmegaConf.create({"trainer": {"device": device, "devices": count}}))
        for device, count in devices
    ]


def test_the_launchers_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2seq_lab.runtime.device.choose_device", lambda wanted: torch.device(wanted.value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus = jobs_of((Device.cuda, 2), (Device.cuda, 1))
    found = LocalLauncher(None, None)._devices(gpus)
    assert (found.kind, list(found.ids), found.at_once) == ("cuda", [0, 1, 2, 3], 2)
    monkeypatch.setattr("seq2seq_lab.launching.side_by_side.cores", lambda: [*range(16)])
    assert found.environment(found.take(2), 2) == {"CUDA_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "4"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7,8")
    found = LocalLauncher(2, None)._devices(gpus)
    assert (list(found.ids), found.at_once) == (["5", "7", "8"], 2)
    assert found.environment(found.take(2), 2)["CUDA_VISIBLE_DEVICES"] == "5,7"
    assert list(LocalLauncher(None, [7])._devices(gpus[1:]).ids) == [7]
    with pytest.raises(UserError, match=r"trainer\.devices=2: .*1 GPUs"):
        LocalLauncher(None, [7])._devices(gpus)
    with pytest.raises(UserError, match=r"trainer\.device: .*cpu.*cuda"):
        LocalLauncher(None, None)._devices([*gpus, *jobs_of((Device.cpu, 1))])


@pytest.mark.parametrize(
    ("visible", "allowed"), [(None, "0, 1"), ("2,5", "2, 5")], ids=["all GPUs", "visible GPUs"]
)
def test_a_gpu_that_the_launcher_does_not_have_is_refused(
    visible: str | None, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2seq_lab.runtime.device.choose_device", lambda wanted: torch.device(wanted.value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    first = int(allowed[0])
    with pytest.raises(UserError, match=rf"hydra\.launcher\.devices=\[{first}, 7\].*Allowed: {allowed}\."):
        LocalLauncher(None, [first, 7])._devices(jobs_of((Device.cuda, 1)))


def test_the_launchers_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2seq_lab.launching.side_by_side.cores", lambda: [*range(8)])
    cpu = jobs_of(*[(Device.cpu, 1)] * 9)
    assert [LocalLauncher(jobs, None)._devices(cpu).at_once for jobs in (None, 3, 20)] == [4, 3, 8]
    assert LocalLauncher(None, None)._devices(cpu[:1]).take(1) == tuple(range(8))  # one job has them all
    assert LocalLauncher(8, None)._devices(jobs_of(*[(Device.cpu, 3)] * 5)).at_once == 2
    for launcher in (LocalLauncher(None, [0, 0]), LocalLauncher(None, [99]), LocalLauncher(None, [])):
        with pytest.raises(UserError, match=r"give each device once\. Allowed: 0, 1, 2, 3, 4, 5, 6, 7\."):
            launcher._devices(cpu)
    with pytest.raises(UserError, match=r"hydra\.launcher\.jobs=0"):
        LocalLauncher(0, None)._devices(cpu)


@pytest.mark.slow
def test_jobs_side_by_side_in_processes_of_their_own(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Grammar, "load", LOAD)
    settings = [
        *(
            "dataset.train=40",
            "dataset.validation=4",
            "dataset.test=4",
            "dataset.test_compositional=0",
            "logger=none",
        ),
        *(
            "model.embedding_size=8",
            "model.hidden_size=8",
            "model.encoder_hidden_size=8",
            "trainer.device=cpu",
        ),
        *(
            "trainer.fast_dev_run=true",
            "task.samples=0",
            "study.name=side",
            "hydra/launcher=local",
            "hydra.launcher.jobs=2",
        ),
    ]

    # No pair is as short as the first.
    assert command_line.run(*settings, "-m", "task.max_length=1,50") == 2
    assert program.jobs == []
    said = capsys.readouterr()
    assert "Jobs: 2, 0 of them finished before." in said.out
    assert "] task.max_length=50: val BLEU " in said.out
    assert "] task.max_length=1: failed: UserError: " in said.out
    assert "Jobs without a result:\n  task.max_length=1 in sweeps/side/" in said.err
    (folder,) = {path.parent for path in tmp_path.glob("sweeps/side/*/translations.test.jsonl")}
    assert "± 95% interval" in (folder / "console.log").read_text("utf-8")
    record = json.loads((folder / "run.json").read_text("utf-8"))
    assert record["choices"]["logger"] == "none"
    kept = [word for word in settings if not word.startswith("hydra")]
    assert sorted(record["overrides"]) == sorted([*kept, "task.max_length=50"])
    assert "overrides" not in json.loads((folder / "result.json").read_text("utf-8"))["provenance"]
    assert [entry.number for entry in read_index(tmp_path / "sweeps" / "side")] == [0, 1]
    assert program(*settings, "-m", "task.max_length=50") == []
    again = capsys.readouterr().out
    assert "Jobs: 1, 1 of them finished before." in again
    assert "] task.max_length=" not in again


@pytest.mark.parametrize("name", [(), ("study.name=mine",)])
def test_an_interrupted_study_names_the_command_that_continues_it(
    name: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seq2seq_lab.launching.start.start_job", interrupted)
    line = ("-m", "seed=1,2", *name)
    assert command_line.run(*line) == 130
    message = capsys.readouterr().err.splitlines()
    assert message.pop() == "interrupted"
    assert message[0].startswith("Repeat the command to continue the study")
    assert max(map(len, message)) <= 80
    words = shlex.split(" ".join(message[1:]).replace("\\ ", ""))
    assert words[: 3 + len(line)] == ["python", "-m", "seq2seq_lab", *line]
    assert len([word for word in words if word.startswith("study.name=")]) == 1


@pytest.mark.parametrize(
    ("sweeper", "search"),
    [
        ({"_target_": "hydra_plugins.seq2seq_lab_sweeper.CellsSweeper"}, None),
        ({"_target_": "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"}, None),
        ({"_target_": "x.OptunaSweeper", "direction": "maximize", "storage": None}, ("maximize", False)),
        ({"_target_": "x.OptunaSweeper", "direction": "minimize", "storage": "x"}, ("minimize", False)),
        (
            {"_target_": "x.OptunaSweeper", "direction": "minimize", "storage": "x", "study_name": "y"},
            ("minimize", True),
        ),
        ({"_target_": "x.Other"}, (None, False)),
    ],
)
def test_a_sweeper_that_samples_is_a_search(
    sweeper: dict[str, Any], search: tuple[str | None, bool] | None
) -> None:
    request = command_line.check("-m", "seed=1,2", "study.name=mine")
    with read_write(request.jobs[0].node), open_dict(request.jobs[0].node):
        request.jobs[0].node.hydra.sweeper = sweeper
    assert study.plan(request).search == (None if search is None else Search(*search))


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_search_that_was_interrupted_can_be_repeated_for_further_trials(is_stored: bool) -> None:
    search = Study(Path("sweeps/s"), ("study.name=s",), 0, Search("maximize", is_stored))
    lines = study.format_continue_command(search, ["-m", "hydra/sweeper=optuna"]).splitlines()
    assert "further trials" in lines[0]
    assert "resume=FOLDER" in lines[2]
    assert [line for line in lines if "hydra.sweeper.storage" in line] == ([] if is_stored else lines[3:])
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(("direction", "best"), [("maximize", "lr=2"), ("minimize", "lr=1"), (None, None)])
def test_the_trials_of_a_repeated_search_are_numbered_in_order_and_the_best_one_is_named(
    direction: str | None, best: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"a": "NaN", "b": 1.5, "c": 2.5, "d": None}
    for number, (name, value) in zip((0, 1, 0, 1), values.items(), strict=True):
        append_entry(tmp_path, Entry(number, name, {"lr": str(list(values).index(name))}))
        (tmp_path / name).mkdir()
        if value is not None:
            result = {"status": "finished", "monitor": "val/bleu", "val/bleu": value}
            rewrite(tmp_path / name / "result.json", json.dumps(result))
    append_entry(tmp_path, Entry(2, "a", {"lr": "0"}))
    entries = read_index(tmp_path, is_search=True)
    assert [(entry.number, entry.hash) for entry in entries] == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    study.print_best(tmp_path, entries, Search(direction, True))
    value = {"lr=2": 2.5, "lr=1": 1.5}.get(best)
    expected = f"Best trial: {value}: {best} in {tmp_path}/{'bc'[best == 'lr=2']}\n"
    assert capsys.readouterr().out == (expected if best else "")
