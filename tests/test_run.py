"""Whole runs: the files they write, and how they end, resume and start from the weights of another run."""

import gc
import io
import json
import math
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch
from omegaconf import OmegaConf
from programs import compare
from reports import full_reports
from rewriting import crash_at_replacement
from rich.console import Console
from safetensors.torch import load_file
from tracking.offline_record import OfflineRun, read_offline_run

import seq2seq_lab
from seq2seq_lab import evaluate, predict, run
from seq2seq_lab.config.compose import compose_job, composer
from seq2seq_lab.config.run_folder import find_damage, read_record, read_result
from seq2seq_lab.config.schema import Config, Precision
from seq2seq_lab.data.corpus import Corpus
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.data.grammar.phrase import PHENOMENA
from seq2seq_lab.data.near_duplicates import NEAR_DUPLICATES
from seq2seq_lab.errors import Preempted, UserError
from seq2seq_lab.files import sha256
from seq2seq_lab.launching.start import resume_run
from seq2seq_lab.models.kernels.recurrent import lacks_lstm
from seq2seq_lab.reporting import run_report
from seq2seq_lab.reporting.runs import find_runs, read_finished
from seq2seq_lab.runtime.device import DTYPES
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.tasks.base import EpochPlan
from seq2seq_lab.tasks.splits import prefixes_of_tests
from seq2seq_lab.tasks.translation.task import TranslationTask
from seq2seq_lab.tracking import read_metrics
from seq2seq_lab.training import checkpoint, profiling, provenance
from seq2seq_lab.training.records import write_result
from seq2seq_lab.training.state import TrainState
from seq2seq_lab.training.step import TrainingStep
from seq2seq_lab.training.threads import restored_threads
from seq2seq_lab.training.trainer import Trainer

TINY = (
    "dataset=grammar",
    "dataset.train=40",
    "dataset.validation=16",
    "dataset.test=16",
    "dataset.test_compositional=0",
    "dataset.max_depth=1",
    "model.embedding_size=16",
    "model.hidden_size=16",
    "model.encoder_hidden_size=8",
    "trainer.max_epochs=2",
    "task.batch_size=8",
    "trainer.device=cpu",
    "trainer.precision=fp32",
    "task.samples=0",
    "logger=none",
)
STEPS = 5  # of an epoch of a tiny run
KEY = "0123456789abcdef" * 2 + "fedcba98"
SECRET = "correct-horse-battery-staple"
UNSTEADY = ("time", "train/target_tokens_per_second", "train/memory_mib", "train/peak_memory_mib")

TRANSLATION_KEYS = ["source", "reference", "hypothesis", "sentence_bleu", "source_words", "phenomena"]


@cache
def composed(overrides: tuple[str, ...]) -> tuple[Config, dict[str, Any], dict[str, str]]:
    """Return a checked configuration, its plain values and its choices."""
    with composer():
        made = compose_job([*TINY, *overrides])
    return made.config, made.plain, made.choices


def job(folder: Path, *overrides: str, resume: bool = False) -> run.Job:
    """Compose what the command line would."""
    config, plain, choices = deepcopy(composed(overrides))
    folder.mkdir(parents=True, exist_ok=True)
    if not resume:
        (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(plain)), "utf-8")
    return run.Job(config, plain, choices, folder, resume)


def run_job(job: run.Job) -> dict[str, Any]:
    with run.recorded(job, Ranks()) as stop:
        return run.experiment(job, Ranks(), stop)


def start(folder: Path, *overrides: str) -> dict[str, Any]:
    return run_job(job(folder, *overrides))


def go_on(folder: Path, *overrides: str) -> dict[str, Any]:
    return run_job(job(folder, *overrides, resume=True))


def stop_at(monkeypatch: pytest.MonkeyPatch, stop: int, error: BaseException) -> None:
    """Make training raise an error before the step with this index, once."""
    step = TrainingStep.__call__

    def stopping(training_step: TrainingStep, plan: EpochPlan, state: TrainState) -> Any:
        if state.step == stop:
            monkeypatch.setattr(TrainingStep, "__call__", step)
            raise error
        return step(training_step, plan, state)

    monkeypatch.setattr(TrainingStep, "__call__", stopping)


def result_of(folder: Path) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    result: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"), parse_constant=refuse)
    return result


def steady(result: Mapping[str, Any]) -> dict[str, Any]:
    unsteady = ("train/target_tokens_per_second", "train/seconds", "val/seconds", "peak_memory_mib")
    return {name: value for name, value in result.items() if name not in unsteady}


def assert_same_run(one: Path, other: Path) -> None:
    """Weights, optimizer, figures and scores of two runs are the same to the bit."""
    assert steady(result_of(one)) == steady(result_of(other))
    first, second = (checkpoint.newest(folder / "checkpoints") for folder in (one, other))
    assert first.name == second.name
    for file in ("model.safetensors", "optimizer.safetensors"):
        mine, theirs = load_file(first / file), load_file(second / file)
        assert mine
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items()), file
    assert checkpoint.load_state(first)["optimizer"] == checkpoint.load_state(second)["optimizer"]
    rows = [
        [
            {name: value for name, value in row.items() if name not in UNSTEADY}
            for row in read_metrics(folder / "metrics.jsonl")
        ]
        for folder in (one, other)
    ]
    assert rows[0] == rows[1]
    assert any("train/loss" in row for row in rows[0])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, OfflineRun]]:
    """One whole run by the command line, recorded by W&B, with secrets in the environment."""
    home = tmp_path_factory.mktemp("home")
    folder = tmp_path_factory.mktemp("recorded") / "run"
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
            patch.setenv(name, str(home))
        patch.setenv("NETRC", str(home / "netrc"))
        patch.setenv("WANDB_API_KEY", KEY)
        patch.setenv("MY_SECRET", SECRET)
        patch.setenv("SEQ2SEQ_LAB_CACHE", str(home / "cache"))
        overrides = [
            *TINY,
            *("dataset.train=150", "dataset.max_depth=2", "task.batch_size=32"),
            "dataset.test_compositional=16",
            "logger=wandb",
            "logger.mode=offline",
            "attention=linear",
            "task.samples=2",
            "trainer.log_every_steps=2",
            "trainer.fast_dev_run=false",
            f"hydra.run.dir={folder}",
        ]
        overrides.remove("logger=none")
        with full_reports():
            assert command_line.run(*overrides) == 0
        yield folder, read_offline_run(folder)
        import wandb

        wandb.teardown()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has ended; copy it before changing it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQ2SEQ_LAB_CACHE", str(folder.parent / "cache"))
        start(folder, "trainer.keep_checkpoints=2")
    return folder


@pytest.fixture
def ended(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "ended"))


class TestFolder:
    def test_it_holds_everything(self, recorded: tuple[Path, OfflineRun]) -> None:
        folder, _ = recorded
        names = {path.name for path in folder.iterdir()} - {".lock", "uncommitted.diff"}
        assert names == {
            *(
                "config.yaml",
                "manifest.json",
                "run.json",
                "run.log",
                "metrics.jsonl",
                "attention",
                "tokenizer",
            ),
            *("checkpoints", "result.json", "translations.test.jsonl", "translations.val.jsonl", "wandb"),
            *(
                "bleu_by_length.png",
                "bleu_by_length.pdf",
                "curves.png",
                "curves.pdf",
                "scored",
                "report.html",
            ),
            "translations.test.compositional.jsonl",
            *(f"attention.{split}.jsonl" for split in ("val", "test", "test.compositional")),
        }
        assert {path.name for path in (folder / "attention").iterdir()} == {
            *(f"worst_{number}{ending}" for number in (1, 2, 3) for ending in (".png", ".pdf")),
            *(f"step_{step:08d}.jsonl" for step in (0, 1, 3, STEPS, 2 * STEPS)),
            *(
                f"sample_{number}{ending}"
                for number in (1, 2)
                for ending in (".png", ".pdf", *(f"_step_{step:08d}.png" for step in (STEPS, 2 * STEPS)))
            ),
        }
        lines = (folder / "translations.test.jsonl").read_text("utf-8").splitlines()
        assert len(lines) == 16
        assert [*json.loads(lines[0])] == TRANSLATION_KEYS
        (row, *_) = map(json.loads, (folder / "attention.test.jsonl").read_text("utf-8").splitlines())
        assert len(row["weights"]) == len(row["target_tokens"])
        for weights in row["weights"]:
            assert len(weights) == len(row["source_tokens"])
            assert sum(weights) == pytest.approx(1, abs=0.01)
        log = (folder / "run.log").read_text("utf-8")
        assert "wandb sync " in log
        assert "results" in log

    def test_result_is_flat_and_strict_json(self, recorded: tuple[Path, OfflineRun]) -> None:
        result = result_of(recorded[0])
        assert (result["format"], result["status"], result["precision"]) == (1, "finished", "fp32")
        errors = {"attention": result["val/aer"], "read": result["val/aer_read"]}
        assert errors[result["aer_rows"]] == min(errors.values())
        measures = ("bleu", "chrf", "loss_teacher_forced", "loss_free_running", "aer")
        for split in ("val", "test"):
            for measure in measures:
                assert math.isfinite(result[f"{split}/{measure}"])
            assert "version:" in result[f"{split}/bleu_signature"]
            assert result[f"{split}/bleu_lowercased_tokenised"] >= 0
            assert result[f"{split}/bleu_lowercased_tokenised_signature"].endswith("-fr")
            bins = result[f"{split}/bleu_by_length"]
            assert [item["group"] for item in bins] == ["≤6", "7–10", "11–14", "15–18", ">18"]
            assert sum(item["count"] for item in bins) == 16
            assert set(bins[0]) == {"group", "count", "value", "confidence"}
            (row, *_) = result[f"{split}/accuracy_by_phenomenon"]
            assert set(row) == set(bins[0])
        flat = {
            name: value
            for name, value in result.items()
            if "_by_" not in name
            and name not in ("provenance", "metrics", "page")
            and not name.endswith("/worst_outputs")
        }
        assert not any(isinstance(value, dict | list) for value in flat.values())
        weights = load_file(recorded[0] / "checkpoints" / result["best_checkpoint"] / "model.safetensors")
        assert result["num_parameters"] == sum(tensor.numel() for tensor in weights.values())
        assert result["num_trainable_parameters"] == result["num_parameters"]

    def test_no_secret_is_in_any_file(self, recorded: tuple[Path, OfflineRun]) -> None:
        files = [path for path in recorded[0].rglob("*") if path.is_file()]
        assert len(files) > 15
        for path in files:
            data = path.read_bytes()
            assert KEY.encode() not in data, path
            assert SECRET.encode() not in data, path

    def test_run_is_relocatable(self, ended: Path, finished: Path, tmp_path: Path) -> None:
        for name in ("run.json", "result.json", "metrics.jsonl"):
            assert str(finished) not in (finished / name).read_text("utf-8")
        for path in (finished / "checkpoints").rglob("*.json"):
            assert str(finished) not in path.read_text("utf-8")
        moved = ended.rename(tmp_path / "moved")
        assert go_on(moved, "trainer.keep_checkpoints=2", "trainer.max_epochs=3")["steps"] == 3 * STEPS

    def test_it_records_data_code_and_machine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(provenance, "git_commit", lambda: "abc1234")
        monkeypatch.setattr(provenance, "git_is_dirty", lambda: False)
        result = start(tmp_path, "trainer.fast_dev_run=true", "seed=3")
        record = read_record(tmp_path)
        assert (record["seed"], record["commit"], record["dirty"]) == (3, "abc1234", False)
        assert record["data"]["sizes"] == {"train": 40, "validation": 16, "test": 16}
        assert record["data"]["tests"].keys() == {"test"}
        counted = {f"{split}/{what}" for split in ("validation", "test") for what in NEAR_DUPLICATES}
        assert record["data"]["counts"].keys() == counted  # of a grammar nothing else is counted
        assert (record["components"], len(record["source"])) == ({}, 64)
        machine = record["machine"]
        assert (machine["device"], machine["ranks"], machine["torch"]) == ("cpu", 1, torch.__version__)
        assert machine["threads"] == torch.get_num_threads()
        assert machine["device_name"]
        kept = {
            name: value
            for name, value in record.items()
            if name not in ("format", "choices", "run_id", "folder")
        }
        assert kept == result["provenance"] == result_of(tmp_path)["provenance"]

    @pytest.mark.parametrize(
        ("schedule", "extended"), [("one_cycle", [{"step": 2, "steps": [2, 3]}]), ("constant", None)]
    )
    def test_an_extended_run_records_that_its_rates_changed(
        self, schedule: str, extended: list[Any] | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        start(tmp_path, f"schedule={schedule}", "trainer.max_steps=2")
        # The length stays that of `max_steps`.
        go_on(tmp_path, f"schedule={schedule}", "trainer.max_steps=2", "trainer.max_epochs=9")
        assert "extended" not in read_record(tmp_path)
        go_on(tmp_path, f"schedule={schedule}", "trainer.max_steps=3", "trainer.max_epochs=9")
        assert read_record(tmp_path).get("extended") == extended
        assert "changed" not in read_record(tmp_path)
        assert ("had a length of 2 steps and now has 3" in caplog.text) == (extended is not None)
        code = read_finished(tmp_path, for_page=False).recorded["code"]
        assert ("length changed at step 2" in code) == (extended is not None)
        go_on(tmp_path, f"schedule={schedule}", "trainer.max_steps=4", "trainer.max_epochs=9")
        assert len(read_record(tmp_path).get("extended", ())) == (2 if extended else 0)

    def test_a_resumed_run_keeps_the_record_and_warns_of_other_code(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def score_again(folder: Path) -> None:
            (folder / "result.json").unlink()
            go_on(folder, "trainer.fast_dev_run=true")

        monkeypatch.setattr(provenance, "git_commit", lambda: "abc1234def")
        start(tmp_path, "trainer.fast_dev_run=true")
        record = read_record(tmp_path)
        monkeypatch.setattr(provenance, "git_commit", lambda: "def5678")
        with restored_threads():
            torch.set_num_threads(2)
            score_again(tmp_path)
        assert read_record(tmp_path) == record
        assert "change" not in caplog.text
        monkeypatch.setattr(provenance, "source", lambda: "0" * 64)
        score_again(tmp_path)
        assert "source of seq2seq_lab (recorded at commit abc1234)" in caplog.text
        assert read_record(tmp_path) == record | {"changed": ["source"]}
        monkeypatch.setattr(provenance, "device_name", lambda _: "another processor")
        for _ in range(2):
            score_again(tmp_path)
        other = record["machine"] | {"device_name": "another processor"}
        assert read_record(tmp_path)["resumed_on"] == [other]

    def test_without_attention_there_are_no_pictures_and_no_aer(self, tmp_path: Path) -> None:
        result = start(tmp_path, "model=vanilla", "task.samples=1", "trainer.fast_dev_run=true")
        assert not (tmp_path / "attention").exists()
        assert {"test/bleu", "test/bleu_lowercased_tokenised"} <= set(result)
        assert not [name for name in result if "aer" in name or "alignment" in name]


class TestWandb:
    def test_config(self, recorded: tuple[Path, OfflineRun]) -> None:
        config = recorded[1].config
        assert config["config"]["task"]["batch_size"] == 32
        expected = {
            "attention": "additive",
            "encoder": "bigru",
            "decoder": "luong",
            "cell": "gru",
            "dataset": "grammar",
            "tokenizer": "word",
            "teacher_forcing_ratio": 1.0,
            "seed": 1,
        }
        assert {name: config[name] for name in expected} == expected
        assert recorded[1].git_commit == (config["git_commit"] or "")

    def test_history(self, recorded: tuple[Path, OfflineRun]) -> None:
        _, record = recorded
        names = ("loss", "gradient_norm", "learning_rate", "teacher_forcing_ratio", "memory_mib")
        for name in (*names, "peak_memory_mib", "target_tokens_per_second"):
            assert len(record.values(f"train/{name}")) == STEPS, name
        for name in ("val/bleu", "val/loss_teacher_forced", "val/loss_free_running", "val/aer"):
            assert len(record.values(name)) == 2, name
        assert record.values("test/bleu") == []  # one value: in the summary
        assert {"train/*", "val/*", "val/bleu", "val/loss_teacher_forced"} <= set(record.metrics)

    def test_pictures_each_under_its_own_name(self, recorded: tuple[Path, OfflineRun]) -> None:
        folder, record = recorded
        for number in (1, 2):
            assert record.values(f"val/attention/{number}.count") == [1, 1]
        assert "sizes do not match" not in (folder / "run.log").read_text("utf-8")

    def test_tables(self, recorded: tuple[Path, OfflineRun]) -> None:
        folder, record = recorded
        (path,) = record.values("test/translations.path")
        content = json.loads(next(folder.glob(f"wandb/*/files/{path}")).read_text("utf-8"))
        assert content["columns"] == [*TRANSLATION_KEYS, "picture"]
        assert len(content["data"]) == 16
        scores = [row[3] for row in content["data"]]
        assert scores == sorted(scores)  # the worst first
        (path,) = record.values("test/scores.path")
        content = json.loads(next(folder.glob(f"wandb/*/files/{path}")).read_text("utf-8"))
        assert content["columns"] == ["metric", "test", "test/compositional"]
        assert "BLEU" in [row[0] for row in content["data"]]
        assert len(record.values("val/translations.path")) == 2

    def test_artifact_summary_and_end(self, recorded: tuple[Path, OfflineRun]) -> None:
        folder, record = recorded
        result = result_of(folder)
        (artifact,) = [artifact for artifact in record.artifacts if artifact.type == "model"]
        best = f"checkpoints/{result['best_checkpoint']}"
        assert {entry.path for entry in artifact.manifest.contents} == {
            *(f"{best}/{name}" for name in (*checkpoint.FILES, "manifest.json")),
            *("config.yaml", "manifest.json", "run.json", "result.json", "metrics.jsonl"),
            *(
                f"tokenizer/{side}{end}"
                for side in ("source", "target")
                for end in (".json", ".options.json")
            ),
        }
        fetched, original = (
            seq2seq_lab.load(of).predict(["the king sleeps."])[0].log_prob
            for of in (folder / "wandb" / "artifacts" / "1", folder)
        )
        assert fetched == original
        assert record.summary["best/bleu"] == result["val/bleu"]
        assert record.summary["test/bleu"] == result["test/bleu"]
        assert record.summary["num_parameters"] == result["num_parameters"]
        # W&B's own summary of the curve stays: its greatest value.
        assert record.summary["val/bleu"] == {"max": result["val/bleu"]}
        assert record.exit_code == 0


def test_complete_collections_do_not_visit_what_the_start_has_made() -> None:
    gc.unfreeze()
    run.collect_garbage()
    assert gc.get_freeze_count() == 0, "the garbage of earlier runs of this process would stay"
    gc.disable()
    try:
        run.collect_garbage()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.enable()


@pytest.mark.slow
def test_neither_wandb_nor_datasets_is_imported_where_they_are_not_used(tmp_path: Path) -> None:
    for split, count in (("train", 40), ("val", 4), ("test2016", 4)):
        lines = [f"a b c d e{n}" for n in range(count)]
        for language in ("de", "en"):
            (tmp_path / f"{split}.{language}").write_text("\n".join([*lines, ""]), "utf-8")
    overrides = [line for line in TINY if not line.startswith("dataset")]
    overrides += ["dataset=multi30k", f"dataset.path={tmp_path}", "trainer.fast_dev_run=true"]
    program = (
        "import sys; from seq2seq_lab.launching import cli; cli.main(); "
        "assert 'seq2seq_lab.training.trainer' in sys.modules; "
        "print('imported:', sorted({'wandb', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *overrides, f"hydra.run.dir={tmp_path / 'run'}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("imported: []\n")


class TestResume:
    DROPOUT = (
        *("model.dropout=0.3", "trainer.log_every_steps=3", "trainer.checkpoint_every_steps=2"),
        *("dataset.validation=8", "dataset.test=4", "dataset.test_compositional=4"),
    )

    @pytest.mark.parametrize(
        "overrides",
        [
            pytest.param(("schedule=one_cycle", "teacher_forcing.ratio=0.5"), id="one_cycle-forcing"),
            pytest.param(
                ("schedule=plateau", "schedule.patience=0", "trainer.validate_every=0.4"), id="plateau"
            ),
            pytest.param(
                ("schedule=inverse_sqrt", "schedule.warmup_steps=3", "model.tied_embeddings=target"),
                id="inverse_sqrt-tied",
            ),
            pytest.param(
                ("schedule=cosine", "optimizer=sgd", "optimizer.momentum=0.9", "trainer.micro_batches=3"),
                id="cosine-sgd-micro",
            ),
            pytest.param(("model=transformer", "model.num_heads=2", "model.num_layers=1"), id="transformer"),
        ],
    )
    def test_stopped_and_resumed_is_the_same_to_the_bit(
        self, overrides: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start(tmp_path / "whole", *self.DROPOUT, *overrides)
        # Update 4 is saved between two log lines (3 and 6) and within the epoch; 5 is done again.
        stop_at(monkeypatch, 5, RuntimeError("power cut"))
        with pytest.raises(RuntimeError, match="power cut"):
            start(tmp_path / "parts", *self.DROPOUT, *overrides)
        stop_at(monkeypatch, 9, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            go_on(tmp_path / "parts", *self.DROPOUT, *overrides)
        go_on(tmp_path / "parts", *self.DROPOUT, *overrides)
        assert_same_run(tmp_path / "whole", tmp_path / "parts")

    def test_run_cannot_end_before_where_it_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        stop_at(monkeypatch, 3, RuntimeError("power cut"))
        with pytest.raises(RuntimeError, match="power cut"):
            start(tmp_path, "trainer.checkpoint_every_steps=2")
        with pytest.raises(UserError, match=r"completed 2 steps.*trainer\.max_steps"):
            go_on(tmp_path, "trainer.checkpoint_every_steps=2", "trainer.max_steps=1")
        assert go_on(tmp_path, "trainer.checkpoint_every_steps=2")["status"] == "finished"

    def test_a_finished_run_cannot_be_made_shorter(self, ended: Path) -> None:
        with pytest.raises(UserError, match=rf"completed {2 * STEPS} steps.*end at step {STEPS}"):
            go_on(ended, "trainer.keep_checkpoints=2", "trainer.max_epochs=1")

    def test_more_epochs_extend_a_run(self, tmp_path: Path) -> None:
        more = ("trainer.keep_checkpoints=2", "trainer.max_epochs=3", "schedule=constant")
        start(tmp_path / "short", *more, "trainer.max_epochs=1")
        go_on(tmp_path / "short", *more)
        start(tmp_path / "long", *more)
        weights = [
            load_file(checkpoint.newest(tmp_path / name / "checkpoints") / "model.safetensors")
            for name in ("short", "long")
        ]
        assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())

    def test_finished_run_ends_at_once_with_the_same_result(
        self, ended: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = ("result.json", "metrics.jsonl", "run.json", "manifest.json")
        before = {ended / name: (ended / name).read_bytes() for name in names}
        monkeypatch.setattr(provenance, "source", lambda: "0" * 64)  # newer code computes nothing of this run
        monkeypatch.setattr(Trainer, "fit", lambda _: pytest.fail("it trains"))
        monkeypatch.setattr(run, "build_logger", lambda *_: pytest.fail("it opens the logger"))
        assert go_on(ended, "trainer.keep_checkpoints=2") == json.loads(before[ended / "result.json"])
        assert before == {path: path.read_bytes() for path in before}

    def test_damaged_newest_checkpoint_falls_back_to_the_one_before(
        self, ended: Path, finished: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = ended / "checkpoints" / f"step_{2 * STEPS:08d}" / "optimizer.safetensors"
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
        (ended / "result.json").unlink()
        go_on(ended, "trainer.keep_checkpoints=2")
        assert "optimizer.safetensors is damaged" in caplog.text
        assert_same_run(ended, finished)

    def test_a_checkpoint_that_a_killed_run_was_replacing_is_restored(
        self, ended: Path, finished: Path
    ) -> None:
        newest = ended / "checkpoints" / f"step_{2 * STEPS:08d}"
        newest.rename(newest.with_name(f".{newest.name}.replaced"))
        (ended / "result.json").unlink()
        go_on(ended, "trainer.keep_checkpoints=2")
        assert_same_run(ended, finished)

    def test_what_a_killed_run_had_not_yet_removed_is_removed(self, ended: Path, finished: Path) -> None:
        checkpoints = ended / "checkpoints"
        shutil.copytree(checkpoints / f"step_{STEPS:08d}", checkpoints / "step_00000001")
        (checkpoints / f".step_{2 * STEPS:08d}.writing").mkdir()
        (ended / "result.json").unlink()
        go_on(ended, "trainer.keep_checkpoints=2")
        assert {path.name for path in checkpoints.iterdir()} == {
            path.name for path in finished.glob("checkpoints/*")
        }
        assert_same_run(ended, finished)

    def test_no_checkpoint_is_no_silent_restart(self, ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Grammar, "load", lambda self: pytest.fail("it reads the data"))
        for path in ended.glob("checkpoints/*/manifest.json"):
            path.unlink()
        before = (ended / "result.json").read_bytes()
        with pytest.raises(UserError, match=r"manifest\.json is missing.*start a new run.*move .* away"):
            go_on(ended)
        assert (ended / "result.json").read_bytes() == before

    @pytest.mark.parametrize(
        "name", ["config.yaml", "run.json", "tokenizer/source.json", "tokenizer/target.options.json"]
    )
    def test_no_program_opens_a_run_with_a_damaged_file(self, ended: Path, name: str) -> None:
        path = ended / name
        path.write_bytes(path.read_bytes().replace(b"e", b"d", 1))
        for opening in (
            lambda: seq2seq_lab.load(ended),
            lambda: resume_run(ended, []),
            lambda: seq2seq_lab.train([f"init_from={ended}"]),
            lambda: find_runs([ended]),
            lambda: evaluate.evaluate(evaluate.parser().parse_args([str(ended)])),
            lambda: predict.predict(predict.parser().parse_args([str(ended)])),
        ):
            with pytest.raises(UserError, match=re.escape(name)):
                opening()

    def test_a_flipped_byte_of_any_file_is_found(self, ended: Path) -> None:
        harmless = {".png", ".pdf", ".html", ".log", ".lock", ".diff"}
        rng = random.Random(1)
        paths = [path for path in ended.rglob("*") if path.is_file() and path.suffix not in harmless | {""}]
        assert {"config.yaml", "metrics.jsonl", "state.json", "source.json", "test.npz"} <= {
            p.name for p in paths
        }

        def damaged() -> bool:
            try:
                read_metrics(ended / "metrics.jsonl")
            except UserError:
                return True
            return bool(
                find_damage(ended, "run")
                or find_damage(ended, "result")
                or any(checkpoint.damage(one) for one in ended.glob("checkpoints/step_*"))
            )

        assert not damaged()
        for path in paths:
            content = path.read_bytes()
            for _ in range(4):
                place = rng.randrange(len(content) - 1)
                flipped = bytes([content[place] ^ 1 << rng.randrange(8)])
                path.write_bytes(content[:place] + flipped + content[place + 1 :])
                assert damaged(), (path, place)
            path.write_bytes(content)

    def test_a_damaged_result_is_set_aside_and_computed_again(
        self, ended: Path, finished: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = ended / "result.json"
        content = path.read_bytes().replace(b"finished", b"finishdd")
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"result\.json is damaged"):
            find_runs([ended])
        go_on(ended, "trainer.keep_checkpoints=2")
        assert path.with_name("result.json.damaged-1").read_bytes() == content
        assert str(path) in caplog.text
        assert_same_run(ended, finished)

    def test_damaged_statistics_are_not_compared(self, ended: Path) -> None:
        with (ended / "scored" / "test.npz").open("r+b") as file:
            file.seek(-30, os.SEEK_END)
            file.write(b"x")
        (one,), skipped = find_runs([ended])
        assert one.statistics == {}
        assert skipped == [f"{ended / 'scored/test.npz'}: is damaged"]

    def test_test_scores_after_which_a_run_was_killed_are_recorded_once(
        self, ended: Path, finished: Path
    ) -> None:
        (ended / "result.json").unlink()  # it is written after the rows of the test scores
        go_on(ended, "trainer.keep_checkpoints=2")
        assert_same_run(ended, finished)

    def test_the_batch_size_of_evaluations_may_change(
        self, ended: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load_state = checkpoint.load_state

        def of_an_earlier_version(path: Path) -> dict[str, Any]:
            saved = load_state(path)
            saved["identity"]["trainer.eval_batch_size"] = "128"
            return saved

        monkeypatch.setattr(checkpoint, "load_state", of_an_earlier_version)
        (ended / "result.json").unlink()
        go_on(ended, "trainer.keep_checkpoints=2", "task.eval_batch_size=3")
        assert read_result(ended)["test/bleu"] == pytest.approx(read_result(finished)["test/bleu"], abs=1e-6)

    def test_changed_data_and_precision_are_refused(self, ended: Path) -> None:
        before = {path: path.read_bytes() for path in ended.rglob("*.json")}
        with pytest.raises(UserError, match=r"other data \(test: other examples\)"):
            go_on(ended, "dataset.seed=2")
        with pytest.raises(UserError, match="the data or the tokenizer was"):
            go_on(ended, "tokenizer.lowercase=true")
        with pytest.raises(UserError, match=r"trainer\.precision was fp32 and is now bf16"):
            go_on(ended, "trainer.precision=bf16")
        assert before == {path: path.read_bytes() for path in ended.rglob("*.json")}

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ("optimizer.lr=0.5", r"optimizer\.lr was 0\.\d+ and is now 0\.5"),
            ("seed=2", r"seed was 1 and is now 2"),
            ("+optimizer.decoupled_weight_decay=true", r"weight_decay was not set and is now true"),
        ],
    )
    def test_a_changed_setting_is_refused(self, ended: Path, changed: str, said: str) -> None:
        with pytest.raises(UserError, match=said):
            go_on(ended, "trainer.keep_checkpoints=2", changed)

    def test_a_refused_resume_changes_no_record(self, ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shutil.rmtree(ended / "checkpoints" / f"step_{2 * STEPS:08d}")  # there are metrics of later steps
        before = {path: path.read_bytes() for path in ended.rglob("*") if path.is_file()}
        monkeypatch.setattr(run, "build_logger", lambda *_: pytest.fail("it opens the logger"))
        with pytest.raises(UserError, match="seed was 1"):
            go_on(ended, "seed=2", "trainer.keep_checkpoints=2")
        changed = {path.name for path, content in before.items() if path.read_bytes() != content}
        assert changed <= {"config.yaml"}  # which `job` writes

    # The first validation has the greatest loss, which makes its checkpoint the best.
    WORST = (
        *("trainer.monitor=val/loss_teacher_forced", "trainer.monitor_mode=max", "optimizer.lr=0.01"),
        "trainer.checkpoint_every_steps=2",
    )

    def test_a_lost_best_checkpoint_is_replaced_when_a_run_is_resumed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        best, last = f"step_{STEPS:08d}", f"step_{2 * STEPS:08d}"
        assert start(tmp_path / "whole", *self.WORST)["best_checkpoint"] == best
        stop_at(monkeypatch, 8, RuntimeError("power cut"))
        with pytest.raises(RuntimeError, match="power cut"):
            start(tmp_path / "parts", *self.WORST)
        (tmp_path / "parts" / "checkpoints" / best / "model.safetensors").unlink()
        result = go_on(tmp_path / "parts", *self.WORST)
        assert "model.safetensors is missing" in caplog.text
        assert (result["best_checkpoint"], result["lost_checkpoints"]) == (last, [best])
        weights = [
            load_file(tmp_path / name / "checkpoints" / last / "model.safetensors")
            for name in ("whole", "parts")
        ]
        assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())

    def test_a_finished_run_keeps_its_lost_best_checkpoint(self, tmp_path: Path) -> None:
        """Its result is that of the lost checkpoint, which can be restored."""
        result = start(tmp_path, *self.WORST)
        lost = tmp_path / "checkpoints" / str(result["best_checkpoint"])
        lost.rename(tmp_path / "away")
        assert go_on(tmp_path, *self.WORST)["best_checkpoint"] == lost.name
        with pytest.raises(UserError, match="is missing"):
            seq2seq_lab.load(tmp_path)
        (tmp_path / "away").rename(lost)
        assert seq2seq_lab.load(tmp_path).checkpoint == result["best_checkpoint"]

    def test_a_best_checkpoint_lost_during_training_is_replaced_at_the_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fit = Trainer.fit

        def losing(trainer: Trainer) -> None:
            fit(trainer)
            shutil.rmtree(trainer.checkpoints.folder / str(trainer.state.best))

        monkeypatch.setattr(Trainer, "fit", losing)
        result = start(tmp_path, *self.WORST)
        assert result["best_checkpoint"] == f"step_{2 * STEPS:08d}"
        assert result["lost_checkpoints"] == [f"step_{STEPS:08d}"]
        (row,) = [
            row
            for row in read_metrics(tmp_path / "metrics.jsonl")
            if row["step"] == 2 * STEPS and "val/bleu" in row
        ]
        assert result["val/loss_teacher_forced"] == row["val/loss_teacher_forced"]
        assert seq2seq_lab.load(tmp_path).checkpoint == result["best_checkpoint"]

    def test_precision_auto_is_measured_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        auto = ("trainer.precision=auto", "trainer.fast_dev_run=true")
        monkeypatch.setattr(run, "choose_precision", lambda *_: Precision.fp32)
        start(tmp_path, *auto)
        assert read_record(tmp_path)["precision"] == "fp32"
        (tmp_path / "result.json").unlink()
        monkeypatch.setattr(run, "choose_precision", lambda *_: Precision.bf16)
        assert go_on(tmp_path, *auto)["precision"] == "fp32"

    def test_the_test_sets_are_scored_in_fp32_and_validation_as_in_training(self, tmp_path: Path) -> None:
        short = ("trainer.precision=bf16", "trainer.max_epochs=1")
        result = start(tmp_path / "default", *short)
        as_trained = start(tmp_path / "auto", *short, "trainer.test_precision=auto")
        assert [(one["precision"], one["test_precision"]) for one in (result, as_trained)] == [
            ("bf16", "fp32"),
            ("bf16", "bf16"),
        ]
        assert result["test/loss_teacher_forced"] != as_trained["test/loss_teacher_forced"]
        (row,) = [row for row in read_metrics(tmp_path / "default" / "metrics.jsonl") if "val/bleu" in row]
        monitored = {name: value for name, value in row.items() if name.startswith("val/")}
        assert {name: result[name] for name in monitored} == monitored

    def test_run_that_never_began(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"no run\.json"):
            go_on(tmp_path)


class TestInitFrom:
    def test_it_starts_from_the_best_weights_with_their_vocabulary(
        self, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        origin = Path(shutil.copytree(finished, tmp_path / "origin"))
        loaded = []
        load = checkpoint.load_weights

        def record(path: Path, model: torch.nn.Module) -> None:
            loaded.append(path)
            load(path, model)

        monkeypatch.setattr(checkpoint, "load_weights", record)
        other = (f"init_from={origin}", "dataset.seed=7", "dataset.train=90", "trainer.fast_dev_run=true")
        start(tmp_path / "new", *other)
        assert loaded[0] == origin / "checkpoints" / result_of(origin)["best_checkpoint"]
        weights = sha256(loaded[0] / "model.safetensors")
        for name in ("source.json", "target.json"):
            assert (tmp_path / "new/tokenizer" / name).read_bytes() == (
                origin / "tokenizer" / name
            ).read_bytes()
        # A resumed one has all it needs in its own folder.
        for path in origin.glob("checkpoints/*/model.safetensors"):
            path.unlink()
        (tmp_path / "new" / "result.json").unlink()
        assert go_on(tmp_path / "new", *other)["status"] == "finished"
        record = read_record(tmp_path / "new")
        assert (record["weights"], record.get("changed")) == (weights, None)
        evaluate.evaluate(evaluate.parser().parse_args([str(tmp_path / "new")]))
        assert read_record(tmp_path / "new" / "evaluations" / "1")["weights"] == weights


class TestEnd:
    @pytest.mark.parametrize(
        ("error", "status"), [(RuntimeError("boom"), "failed"), (KeyboardInterrupt(), "interrupted")]
    )
    def test_what_a_run_cut_off_leaves(
        self,
        error: BaseException,
        status: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        codes = []
        monkeypatch.setattr(
            "seq2seq_lab.tracking.none.NoTracker.finish", lambda _, exit_code: codes.append(exit_code)
        )
        stop_at(monkeypatch, STEPS + 1, error)
        with pytest.raises(type(error)):
            start(tmp_path)
        assert codes == [1]
        result = result_of(tmp_path)
        assert (set(result), result["status"]) == ({"format", "status", "error"}, status)
        if status == "failed":
            assert result["error"] == "RuntimeError: boom"
            assert "Traceback" in caplog.text
        assert go_on(tmp_path)["status"] == "finished"
        assert codes == [1, 0]

    def test_nothing_is_resumed_before_the_first_checkpoint(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        run.record_end(tmp_path, Preempted(signal.SIGTERM))
        text = "Stopped by SIGTERM before the first checkpoint. Start the run again"
        assert (result_of(tmp_path)["status"], result_of(tmp_path)["error"]) == ("preempted", text)
        assert text in caplog.text
        assert "resume" not in caplog.text

    def test_a_crash_while_the_result_is_replaced_leaves_a_valid_one(self, tmp_path: Path) -> None:
        seen = []
        for number in range(5):
            write_result(tmp_path, {"status": "failed"})
            with suppress(KeyboardInterrupt), crash_at_replacement(number):
                write_result(tmp_path, {"status": "finished"})
            seen.append(read_result(tmp_path)["status"])
        assert seen == ["failed"] * 3 + ["finished"] * 2

    def test_the_diff_of_a_start_that_failed_is_not_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(run, "git_diff", lambda: "a change")
        stop_at(monkeypatch, 0, RuntimeError("boom"))
        with pytest.raises(RuntimeError, match="boom"):
            start(tmp_path)
        assert (tmp_path / "uncommitted.diff").read_text("utf-8") == "a change"
        monkeypatch.setattr(run, "git_diff", lambda: None)
        start(tmp_path, "trainer.fast_dev_run=true")
        assert not (tmp_path / "uncommitted.diff").exists()

    def test_diverged_training_is_an_error_and_not_saved(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        step = TrainingStep.__call__

        def diverging(training_step: TrainingStep, plan: EpochPlan, state: TrainState) -> Any:
            result = step(training_step, plan, state)
            return result._replace(loss_sum=result.loss_sum * math.nan)

        monkeypatch.setattr(TrainingStep, "__call__", diverging)
        with pytest.raises(UserError, match=r"max_skipped_steps=3.*optimizer\.lr.*clip_norm.*precision=fp32"):
            start(tmp_path, "trainer.max_skipped_steps=3")
        assert not (tmp_path / "checkpoints").exists()

    def test_infinite_metrics_are_null_in_the_result(self, tmp_path: Path) -> None:
        write_result(tmp_path, {"a": math.inf, "b": math.nan, "c": 1.5})
        assert result_of(tmp_path) == {"a": None, "b": None, "c": 1.5}


class TestSettings:
    def test_a_profile_names_the_parts_of_the_model(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tables: list[list[tuple[str, float, float]]] = []
        monkeypatch.setattr(profiling, "time_table", lambda title, what, rows: tables.append(rows) or title)
        start(tmp_path, "trainer.fast_dev_run=true", "trainer.profile=true", "task.batch_size=2")
        parts, operations = tables
        names = {name.strip(): time for name, time, _ in parts}
        for part in (
            "batch",
            "encoder",
            "decoder.attention",
            "readout",
            "loss",
            "choose inputs",
            "optimizer",
        ):
            assert names[part] > 0, part
        assert operations
        assert (tmp_path / "profile" / "trace.json.gz").is_file()

    def test_a_data_set_without_a_test_set_is_refused_before_training(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load = Grammar.load
        monkeypatch.setattr(Grammar, "load", lambda self: replace(load(self), tests={}))
        with pytest.raises(UserError, match="at least one test set"):
            start(tmp_path)

    @pytest.mark.parametrize(
        ("monitor", "model", "evaluated"),
        [
            (None, "attn", []),
            ("val/loss_teacher_forced", "attn", []),
            ("val/aer", "attn", [8]),
            ("val/aer", "vanilla", [8, 16]),
        ],
    )
    def test_a_monitored_metric_is_checked_before_training_if_it_can_be_missing(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        monitor: str | None,
        model: str,
        evaluated: list[int],
    ) -> None:
        sizes = []
        evaluator = TranslationTask.evaluator

        def record(task: Any, split: Any, *arguments: Any, **settings: Any) -> Any:
            made = evaluator(task, split, *arguments, **settings)

            def evaluate(**options: Any) -> Any:
                sizes.append(len(split.text))
                return made(**options)

            return evaluate

        monkeypatch.setattr(TranslationTask, "evaluator", record)
        stop_at(monkeypatch, 0, RuntimeError("the first step"))
        expected = (
            r"trainer\.monitor=val/aer: .* Values: .*val/bleu" if model == "vanilla" else "the first step"
        )
        settings = () if monitor is None else (f"trainer.monitor={monitor}",)
        with pytest.raises((UserError, RuntimeError), match=expected):
            start(tmp_path, f"model={model}", "model.encoder_hidden_size=16", *settings)
        assert sizes == evaluated

    def test_test_sets_never_share_a_name(self) -> None:
        prefixes = prefixes_of_tests(["a", "x", "test_x", "test_y"])
        assert [*prefixes.values()] == ["test", "test/x", "test/test_x", "test/y"]

    def test_fast_dev_run_is_a_few_batches_of_everything(self, tmp_path: Path) -> None:
        result = start(tmp_path, "trainer.fast_dev_run=true", "dataset.test=40")
        assert result["steps"] == 3
        assert result["train/target_tokens_per_second"] is None
        lines = (tmp_path / "translations.test.jsonl").read_text("utf-8").splitlines()
        assert len(lines) == run.DEV_RUN_EXAMPLES

    def test_several_test_sets(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        load = Grammar.load

        def two_tests(grammar: Grammar) -> Corpus:
            corpus = load(grammar)
            return replace(corpus, tests={"one": corpus.tests["test"], "other": corpus.validation})

        monkeypatch.setattr(Grammar, "load", two_tests)
        result = start(tmp_path)
        assert result["test/loss_teacher_forced"] != result["test/other/loss_teacher_forced"]
        assert result["test/other/loss_free_running"] == result["val/loss_free_running"]
        assert {path.name for path in tmp_path.glob("translations.*")} == {
            *("translations.val.jsonl", "translations.test.jsonl", "translations.test.other.jsonl")
        }
        (row,) = [row for row in read_metrics(tmp_path / "metrics.jsonl") if "test/other/bleu" in row]
        assert row["step"] == 2 * STEPS

    def test_result_is_of_the_best_checkpoint(self, tmp_path: Path) -> None:
        worst = ("trainer.monitor=val/loss_teacher_forced", "trainer.monitor_mode=max")
        result = start(tmp_path, *worst, "optimizer.lr=0.01")
        assert result["best_checkpoint"] == f"step_{STEPS:08d}"
        rows = [row for row in read_metrics(tmp_path / "metrics.jsonl") if "val/bleu" in row]
        assert result["val/loss_teacher_forced"] == rows[0]["val/loss_teacher_forced"]
        assert rows[0]["val/loss_teacher_forced"] > rows[1]["val/loss_teacher_forced"]

    @pytest.mark.parametrize("precision", ["fp16", "bf16"])
    def test_half_precision_runs_on_a_cpu(self, precision: str, tmp_path: Path) -> None:
        half = (f"trainer.precision={precision}", "trainer.fast_dev_run=true", "task.samples=1")
        result = start(tmp_path, *half)
        assert result["precision"] == precision
        (tmp_path / "result.json").unlink()
        assert steady(go_on(tmp_path, *half)) == steady(result)

    @pytest.mark.parametrize("precision", ["fp16", "bf16"])
    def test_an_lstm_runs_in_half_precision_on_every_cpu(
        self, precision: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Where PyTorch has no such LSTM, the layers compute in float32, which the run records and logs once."""
        half = (f"trainer.precision={precision}", "trainer.test_precision=auto", "trainer.fast_dev_run=true")
        result = start(tmp_path, *half, "encoder.cell=lstm", "decoder.cell=lstm")
        lacking = [precision] if lacks_lstm("cpu", DTYPES[Precision(precision)]) else []
        assert result["provenance"].get("float32_lstm", []) == lacking
        assert caplog.text.count(f"PyTorch has no LSTM in {precision}") == len(lacking)
        seq2seq_lab.load(tmp_path, precision=precision)
        assert caplog.text.count(f"PyTorch has no LSTM in {precision}") == 2 * len(lacking)

    def test_a_held_out_pair_that_is_too_long_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        short, long = "a b\tb a\n", f"a\tb\na b\tb a\nb\t{'b ' * 10_000}\n{'a ' * 20_000}\tb\n"
        for name, text in (("train", short), ("validation", long), ("test", short)):
            (tmp_path / f"{name}.tsv").write_text(text, "utf-8")
        files = [f"dataset.{name}={tmp_path / name}.tsv" for name in ("train", "validation", "test")]
        assert (
            command_line.run(f"hydra.run.dir={tmp_path / 'run'}", "dataset=parallel", *files, "logger=none")
            == 2
        )
        error = capsys.readouterr().err
        assert f"validation: the target of {tmp_path / 'validation.tsv'} line 3 has 10,000 tokens" in error
        assert "task.max_eval_length=1000" in error
        assert "too long: 2" in error
        assert "dataset.max_tokens=N" in error

    def test_too_long_pairs_are_left_out(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", "seq2seq_lab")
        start(tmp_path, "task.max_length=12", "trainer.fast_dev_run=true")
        assert "training pairs of more than 12 tokens are left out" in caplog.text
        with pytest.raises(UserError, match=r"task\.max_length=2\b"):
            start(tmp_path / "none", "task.max_length=2")


def test_the_command_that_sends_a_record_is_whole_where_a_path_has_spaces(
    recorded: tuple[Path, OfflineRun], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorded_folder, _ = recorded
    folder = tmp_path / "one two" / "a name of several words, long enough for a second line of a terminal"
    shutil.copytree(recorded_folder, folder)
    monkeypatch.chdir(tmp_path)
    terminal = Console(file=io.StringIO(), width=80, force_terminal=False)
    monkeypatch.setattr(run_report.console, "console", lambda: terminal)
    sync = f"wandb sync {shlex.quote(str(folder / 'wandb'))}"
    run_report.print_result(result_of(folder), [], commands={}, folder=folder, sync=sync, url=None)
    assert isinstance(terminal.file, io.StringIO)
    (command,) = [
        line.removeprefix("W&B ") for line in terminal.file.getvalue().splitlines() if line.startswith("W&B ")
    ]
    words = subprocess.run(
        ["bash", "-c", f"printf '%s\n' {command}"], capture_output=True, text=True, check=True
    ).stdout
    assert words.split("\n")[:-1] == ["wandb", "sync", str(folder.relative_to(tmp_path) / "wandb")]


def test_the_end_of_a_run_is_short_and_its_commands_run(
    recorded: tuple[Path, OfflineRun], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorded_folder, _ = recorded
    folder = tmp_path / "outputs" / "2026-11-22" / "16-08-21-123456"
    shutil.copytree(recorded_folder, folder)
    monkeypatch.chdir(tmp_path)
    terminal = Console(file=io.StringIO(), width=80, force_terminal=False)
    monkeypatch.setattr(run_report.console, "console", lambda: terminal)
    sync = f"wandb sync {folder}/wandb/offline-run-20261122_160821-51d3938c"
    with run_report.console.setup_logging(tmp_path / "run.log"):
        run_report.print_result(
            result_of(folder),
            ["attention"],
            commands=TranslationTask.commands,
            folder=folder,
            sync=sync,
            url=None,
        )
    assert isinstance(terminal.file, io.StringIO)
    text, log = terminal.file.getvalue(), (tmp_path / "run.log").read_text("utf-8")
    lines = text.splitlines()
    assert lines[0] == "attention"
    assert len(lines) <= 22
    assert [line for line in lines if len(line) > 80 and not line.startswith("W&B")] == []
    assert lines[4].split()[1:2] == ["BLEU"]  # the first score
    assert "│ BLEU, copy of the source" in lines[5]
    assert any(line.startswith("│ loops ") for line in lines)
    assert result_of(folder)["test/bleu_lowercased_tokenised_signature"] in log
    assert "page  outputs/2026-11-22/16-08-21-123456/report.html" in lines
    page = (folder / "report.html").read_text("utf-8")
    assert len(page.encode()) < 1e6
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)  # nothing from a network
    for name in set(PHENOMENA) & {
        row["group"]
        for split in ("test", "test/compositional")
        for row in result_of(folder)[f"{split}/accuracy_by_phenomenon"]
    }:
        assert f"│ {name} " in log
        assert f">{name}<" in page
    assert "alignment precision" in log
    assert "alignment precision" not in text
    shown = "outputs/2026-11-22/16-08-21-123456"
    commands = [
        shlex.split(command, comments=True)
        for command in text.replace(" \\\n ", " ").splitlines()
        if shown in command
    ]
    commands = [[*filter(None, words)] for words in commands if words[:1] == ["python"]]
    assert commands == [
        ["python", "-m", "seq2seq_lab.predict", shown],
        ["python", "-m", "seq2seq_lab.evaluate", shown, "search=beam"],
        ["python", "-m", "seq2seq_lab.compare", shown, "OTHER_RUN"],
    ]
    assert f"W&B   wandb sync {shown}/wandb/offline-run-20261122_160821-51d3938c" in lines
    for program, words in ((predict, commands[0]), (evaluate, commands[1]), (compare, commands[2])):
        program.parser().parse_intermixed_args(words[3:])
    shutil.copytree(recorded_folder, folder.with_name("other"))
    compared = run_report.next_commands(TranslationTask.commands, folder, Path(shown))["compare it"]
    assert compared[3] == "outputs/2026-11-22"
