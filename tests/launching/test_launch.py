"""Where the ranks of a run come from: from here, or from a launcher."""

import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import command_line
import pytest
import torch
from forked_ranks import forked_ranks
from torch import distributed

import seq2seq_lab
from seq2seq_lab import run
from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.config.schema import Backend
from seq2seq_lab.errors import ComponentError, Preempted, UserError
from seq2seq_lab.launching import launch, start
from seq2seq_lab.run import Job
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.runtime.signals import StopSignals
from seq2seq_lab.runtime.torchrun import is_external_rank, is_secondary_rank

SETTINGS = [
    *("dataset.train=60", "dataset.validation=6", "dataset.test=6", "dataset.test_compositional=0"),
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=8", "model.dropout=0"),
    *(
        "schedule=constant",
        "trainer.max_epochs=2",
        "task.batch_size=16",
        "trainer.device=cpu",
        "trainer.precision=fp32",
        "task.samples=0",
    ),
    "logger=none",
]
LOSSES = ("val/loss_teacher_forced", "test/loss_teacher_forced", "test/loss_free_running")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of one process."""
    run = seq2seq_lab.train(SETTINGS, folder=tmp_path_factory.mktemp("alone") / "run")
    assert run.result is not None
    return run.result


def same_losses(result: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(result[name] == pytest.approx(other[name], rel=1e-4) for name in LOSSES)


@pytest.mark.slow  # starts two ranks
def test_ranks_of_this_machine(
    alone: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def spawn_pickled(count: int, entry: Any, *arguments: object) -> list[Any]:
        return spawn(count, entry, *pickle.loads(pickle.dumps(arguments)))  # as for a spawned rank

    spawn = launch.spawn
    monkeypatch.setattr(launch, "spawn", spawn_pickled)
    monkeypatch.setattr(launch, "cores", lambda: [0, 1])
    half = [*SETTINGS, "trainer.devices=2", "trainer.max_steps=5"]
    with forked_ranks():
        run = seq2seq_lab.train(half, folder=tmp_path / "run")
    assert run.result is not None
    assert (run.result["ranks"], run.result["steps"]) == (2, 5)
    assert capfd.readouterr().err == ""
    assert {path.name for path in run.folder.iterdir()} >= {
        "result.json",
        "metrics.jsonl",
        "translations.test.jsonl",
    }
    # Resumed in one process, it ends with the losses of a run in one process.
    ended = resumed(run.folder, "trainer.devices=1", "trainer.max_steps=null")
    assert (ended["ranks"], ended["steps"]) == (1, alone["steps"])
    assert same_losses(ended, alone)


def test_settings_that_an_older_pytorch_lacks_are_left_out() -> None:
    @dataclass
    class OldConfig:
        run_id: str
        shutdown_timeout: int = 30

    values = launch._existing_fields(OldConfig, signals_to_handle="SIGTERM", shutdown_timeout=120)
    assert OldConfig("a", **values) == OldConfig("a", shutdown_timeout=120)


def resumed(folder: Path, *changes: str) -> dict[str, Any]:
    assert command_line.run(f"resume={folder}", *changes) == 0
    return json.loads((folder / "result.json").read_text("utf-8"))


def torchrun(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
    return subprocess.run(
        [sys.executable, *launcher, "-m", "seq2seq_lab", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.slow
def test_ranks_of_a_launcher(alone: dict[str, Any], tmp_path: Path) -> None:
    ended = torchrun(tmp_path, *SETTINGS)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("Computing on 2 ranks, each cpu in fp32") == 1
    (folder,) = (tmp_path / "outputs").glob("*/*")  # one, whatever the clock
    result = json.loads((folder / "result.json").read_text("utf-8"))
    assert result["ranks"] == 2
    assert same_losses(result, alone)


def test_a_rank_that_does_not_start_is_named() -> None:
    store = distributed.HashStore()  # type: ignore[attr-defined]
    store.set("started.2", "")
    with pytest.raises(UserError, match=r"Rank 0, 3 of 4 has not started within 0\.1 s.*WORLD_SIZE=4"):
        launch._wait_for_all(store, 1, 4, timedelta(seconds=0.1))


@pytest.mark.parametrize(("settings", "limit"), [(["resume=run"], 3600), (["resume=auto"], 300), ([], 300)])
def test_the_other_ranks_wait_longer_if_rank_0_hashes_the_files_of_a_resumed_run(
    settings: list[str], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[float] = []

    def refuse(url: str, timeout: timedelta) -> NoReturn:
        timeouts.append(timeout.total_seconds())
        raise distributed.DistError("nobody")

    monkeypatch.setattr(launch, "rendezvous", refuse)
    for name, value in launched_as("1").items():
        monkeypatch.setenv(name, value)
    assert command_line.run(*settings) == 2
    assert timeouts == [limit]


def test_a_port_that_is_in_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = used.getsockname()[1]
        for name, value in {**launched_as("0"), "MASTER_PORT": str(port)}.items():
            monkeypatch.setenv(name, value)
        assert command_line.run(*SETTINGS) == 2
    assert re.search(rf"error: .*MASTER_PORT={port}: .*in use", capfd.readouterr().err)


def test_a_rank_that_has_lost_rank_0_keeps_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(job: Job, ranks: Ranks, stop: StopSignals) -> dict[str, Any]:
        raise RuntimeError("gloo/transport/tcp/pair.cc: Connection closed by peer")

    monkeypatch.setattr("seq2seq_lab.run.experiment", lost)
    monkeypatch.setattr(launch, "watched", lambda *_: nullcontext())
    monkeypatch.setattr(launch, "LOST_SECONDS", 0.0)
    job = Job(compose_run(SETTINGS).config, {}, {}, tmp_path, resume=False)
    ranks = Ranks(1, 2, 1, store=distributed.HashStore())  # type: ignore[attr-defined]
    for recorded in ("Connection closed by peer", "of rank 0"):
        if recorded == "of rank 0":
            launch.record_failure(tmp_path, UserError(recorded))
        with pytest.raises(RuntimeError, match="closed by peer"):
            launch._run_external_rank(job, ranks)
        assert recorded in json.loads((tmp_path / "result.json").read_text("utf-8"))["error"]


def test_the_watch_of_the_ranks_keeps_a_recorded_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = "The process with the store of the ranks has ended"
    for recorded in ("No space left on device", lost):
        (tmp_path / "result.json").unlink(missing_ok=True)
        if recorded != lost:
            launch.record_failure(tmp_path, OSError(recorded))
        launch.report(tmp_path, lost)
        assert recorded in json.loads((tmp_path / "result.json").read_text("utf-8"))["error"]
        assert f"error: {lost}" in capsys.readouterr().err


FAULTY = """
import os
from seq2seq_lab.training.schedules import Schedule

class Faulty(Schedule):
    def factor(self, step, total, history):
        if step == 2 and os.environ["RANK"] == "1":
            raise ZeroDivisionError("of rank 1")
        return 1.0
"""


@pytest.mark.slow
def test_the_error_of_a_component_on_a_rank_of_a_launcher_reaches_the_user(tmp_path: Path) -> None:
    (tmp_path / "own" / "schedule").mkdir(parents=True)
    (tmp_path / "own" / "faulty.py").write_text(FAULTY, "utf-8")
    (tmp_path / "own" / "schedule" / "faulty.yaml").write_text("_target_: faulty.Faulty\n", "utf-8")
    small = [setting for setting in SETTINGS if setting != "schedule=constant"]
    ended = torchrun(tmp_path, "--config-dir=own", *small, "schedule=faulty", "hydra.run.dir=run")
    assert ended.returncode == 1
    assert "error: schedule=Faulty failed: " in ended.stderr
    assert ended.stderr.count("ZeroDivisionError: of rank 1, in factor") == 1
    assert ended.stderr.count("faulty.py") == 1  # without the traceback
    assert "gloo" not in ended.stderr  # rank 0 has lost rank 1
    result = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert result["status"] == "failed"
    assert "schedule=Faulty failed" in result["error"]
    log = (tmp_path / "run" / "run.log").read_text("utf-8")
    assert 'raise ZeroDivisionError("of rank 1")' in log  # the traceback


def fail(message: str) -> NoReturn:
    raise RuntimeError(message)


def test_an_error_of_a_component_is_named_on_each_rank_but_not_the_loss_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "seq2seq_lab.config.slots.custom_components", lambda _: {Path("own.py"): {"Own": "attention=Own"}}
    )
    job = Job(compose_run(SETTINGS).config, {}, {}, tmp_path, resume=False)
    ranks = Ranks(0, 2, 0, store=distributed.HashStore())  # type: ignore[attr-defined]
    for message, kind in (("a wrong shape", ComponentError), ("gloo/transport/tcp/pair.cc", RuntimeError)):
        with pytest.raises(kind, match=message) as caught, run.recorded(job, ranks):
            ranks.broadcast(partial(fail, message))
        assert type(caught.value) is kind


def test_the_error_of_a_component_on_another_rank_has_its_traceback() -> None:
    error = launch._user_error(1, True, "attention=Own failed", "Traceback …")
    assert isinstance(error, ComponentError)
    assert str(error.__cause__) == "Rank 1 failed: Traceback …"
    assert launch._user_error(1, False, "dataset.train=x", "Traceback …").__cause__ is None


@pytest.mark.parametrize(
    ("rank", "arguments", "said"),
    [
        ("0", ["-m", "seed=1,2"], "error: --multirun under a launcher"),
        ("1", ["-m", "seed=1,2"], None),
        ("0", ["trainer.devices=2"], "Leave trainer.devices out"),
    ],
)
def test_an_error_under_a_launcher_is_printed_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    rank: str,
    arguments: list[str],
    said: str | None,
) -> None:
    for name, value in launched_as(rank).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    assert command_line.run(*SETTINGS, *arguments) == 2
    out, err = capfd.readouterr()
    assert (said in err) if said else (out + err == "")


def test_what_ends_without_a_run_is_printed_by_rank_0_alone(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "seq2seq_lab", *SETTINGS, "--cfg", "job"],
        cwd=tmp_path,
        env={**os.environ, **launched_as("1")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


def launched_as(rank: str) -> dict[str, str]:
    """Return what a launcher sets for one of two ranks."""
    return {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def test_more_ranks_than_devices_are_refused_before_there_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "cores", lambda: [0, 1, 2])
    said = r"trainer\.devices=4: this machine has 3 cpu cores\. Allowed: 1 to 3\."
    with pytest.raises(UserError, match=said):
        seq2seq_lab.train([*SETTINGS, "trainer.devices=4"], folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_rank_that_is_killed_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*arguments: object) -> list[dict[str, Any]]:
        raise RuntimeError("Rank 1: Signal 9 (SIGKILL) received by PID 77")

    monkeypatch.setattr(launch, "cores", lambda: [0, 1])
    monkeypatch.setattr(launch, "spawn", killed)
    with pytest.raises(RuntimeError):
        seq2seq_lab.train([*SETTINGS, "trainer.devices=2"], folder=tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert result["error"] == "RuntimeError: Rank 1: Signal 9 (SIGKILL) received by PID 77"
    assert "SIGKILL" in (tmp_path / "run" / "run.log").read_text("utf-8")


def test_gpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(launch, "choose_device", lambda wanted: torch.device("cuda"))
    with pytest.raises(
        UserError, match=r"trainer\.devices=5: this machine has 4 cuda devices\. Allowed: 1 to 4"
    ):
        start.check_run(compose_run([*SETTINGS, "trainer.devices=5"]).config)


@pytest.mark.parametrize(
    ("missing", "size", "joined"), [(None, "2", True), ("MASTER_PORT", "2", False), (None, "1", False)]
)
def test_a_launcher_is_known_by_its_variables(
    monkeypatch: pytest.MonkeyPatch, missing: str | None, size: str, joined: bool
) -> None:
    said = {"RANK": "1", "WORLD_SIZE": size, "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    for name, value in said.items():
        if name == missing:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert is_external_rank() == is_secondary_rank() == joined


def test_a_launcher_has_to_choose_among_several_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match=r"LOCAL_RANK is not set"), launch.join_ranks():
        pass


def test_a_rank_with_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(ranks: Ranks, value: Any) -> list[Any]:
        """Return this rank's value, and that of a rank whose code differs."""
        if isinstance(value, tuple):
            identity, record = value
            return [value, (identity, record | {"source": "other"})]
        return [value]

    monkeypatch.setattr(Ranks, "gather", gather)
    with pytest.raises(UserError, match="Rank 1 differs from rank 0: source of seq2seq_lab"):
        seq2seq_lab.train(SETTINGS, folder=tmp_path / "run")


def test_gloo_lets_ranks_share_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(launch, "choose_device", lambda wanted: torch.device("cuda"))
    settings = compose_run([*SETTINGS, "trainer.devices=3", "trainer.backend=gloo"]).config
    launch.check_devices(settings)
    assert [Ranks(rank, 3, rank).gpu_index(settings.trainer.backend) for rank in range(3)] == [0, 1, 0]
    assert Ranks(2, 3, 2).gpu_index(Backend.auto) == 2
    settings.trainer.backend = Backend.nccl
    with pytest.raises(UserError, match=r"trainer\.devices=3: .* 2 cuda devices.*trainer\.backend=gloo"):
        launch.check_devices(settings)


def test_nccl_needs_gpus(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"trainer\.backend=nccl"):
        seq2seq_lab.train([*SETTINGS, "trainer.backend=nccl"], folder=tmp_path / "run")


@pytest.mark.parametrize(
    ("backend", "device", "made"),
    [
        (Backend.auto, "cuda", ["nccl"]),
        (Backend.nccl, "cuda", ["nccl"]),
        (Backend.gloo, "cuda", []),
        (Backend.auto, "cpu", []),
    ],
)
def test_the_backend_adds_up_tensors(
    backend: Backend, device: str, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(distributed, "new_group", lambda backend, timeout: asked.append(backend) or "group")
    added: list[object] = []
    monkeypatch.setattr(distributed, "all_reduce", lambda tensor, group: added.append(group))
    ranks = Ranks(0, 2, 0).with_backend(backend, torch.device(device))
    ranks.all_reduce(torch.ones(1))
    assert (asked, added) == (made, ["group"] if made else [None])


def test_the_handler_of_the_process_gets_the_signal_that_has_stopped_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    composed = compose_run([*SETTINGS, f"hydra.run.dir={tmp_path / 'run'}"])
    (tmp_path / "run").mkdir()
    job = Job(composed.config, composed.plain, dict(composed.choices), tmp_path / "run", False)
    monkeypatch.setattr(run, "experiment", lambda *_: signal.raise_signal(signal.SIGUSR2))
    received: list[str] = []

    def queue_again(number: int, _: object) -> None:
        received.append(json.loads((tmp_path / "run" / "result.json").read_text())["status"])
        raise SystemExit(number)

    before = signal.signal(signal.SIGUSR2, queue_again)
    try:
        with pytest.raises(SystemExit):
            launch.launch(job)
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        with pytest.raises(Preempted):
            launch.launch(job)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert received == ["preempted"]
