import errno
import inspect
import json
import math
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.image
import pytest
from omegaconf import OmegaConf
from rewriting import rewrite

from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.config.secrets import mask_secrets
from seq2seq_lab.errors import UserError
from seq2seq_lab.tracking import wandb as tracker_module
from seq2seq_lab.tracking.files import FileTracker
from seq2seq_lab.tracking.git import git_commit
from seq2seq_lab.tracking.parts import build_logger, named
from seq2seq_lab.tracking.wandb import WandbTracker, fetch_run_folder, has_api_key

from .offline_record import OfflineRun, read_offline_run, read_offline_runs

LOGGERS = Path(__file__).parents[2] / "conf" / "logger"
KEY = "0123456789abcdef" * 2 + "fedcba98"  # valid format, not a real key
SECRET = "correct-horse-battery-staple"


def _prepare(patch: pytest.MonkeyPatch, home: Path) -> None:
    """Hide this machine's keys, settings and proxies from W&B."""
    for name in list(os.environ):
        if name.startswith("WANDB_") or name.lower().endswith("_proxy"):
            patch.delenv(name)
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        patch.setenv(name, str(home / name))
    patch.setenv("NETRC", str(home / "netrc"))
    patch.setenv("WANDB_ERROR_REPORTING", "false")


@pytest.fixture(autouse=True)
def _alone(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import wandb

    _prepare(monkeypatch, tmp_path_factory.mktemp("home"))
    yield
    wandb.teardown()


@pytest.fixture
def closed_port(monkeypatch: pytest.MonkeyPatch) -> str:
    """Set W&B to an address that refuses connections, with a key."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("WANDB_BASE_URL", address)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    return address


def _build(folder: Path, **changes: Any) -> WandbTracker:
    arguments: dict[str, Any] = dict(OmegaConf.to_container(OmegaConf.load(LOGGERS / "wandb.yaml")))
    del arguments["_target_"]
    arguments |= {"folder": folder, "config": {}, "flat": {}, "run_id": None}
    return WandbTracker(**arguments | changes)


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == tracker_module.__name__]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, OfflineRun]:
    """Record one whole run offline, with secrets in the environment."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        _prepare(patch, tmp_path_factory.mktemp("home"))
        patch.setenv("WANDB_API_KEY", KEY)
        patch.setenv("MY_SECRET", SECRET)
        tracker = _build(
            folder,
            mode="offline",
            group="attention",
            tags=["grammar"],
            run_id="abcd1234",
            config={
                "dataset": {"auth_token": "hf_abcdefgh", "folder": f"/data/{SECRET}"},
                "model": {"sizes": [64, 128]},
            },
            flat={"attention": "additive", "seed": 3},
        )
        assert tracker.run_id == "abcd1234"
        assert tracker.offline
        assert tracker.url is None
        picture = folder / "attention.png"
        matplotlib.image.imsave(picture, [[0.0, 1.0], [1.0, 0.0]])
        best = folder / "checkpoints" / "best"
        best.mkdir(parents=True)
        (best / "model.bin").write_bytes(b"weights")
        rewrite(folder / "run.json", "{}")

        tracker.record_notes("overrides: seed=3")
        tracker.declare_metrics({"bleu": "max", "loss_free_running": "min", "aer": "min", "loss": "min"})
        for step, (bleu, loss) in enumerate([(10.0, 3.0), (15.0, 1.0), (12.0, 2.0)], start=1):
            tracker.log_metrics({"train/loss": loss}, step)
            tracker.log_metrics({"val/bleu": bleu, "val/loss_free_running": loss, "val/aer": loss / 4}, step)
        tracker.log_metrics({"test/bleu": 14.0}, 3)
        tracker.log_metrics(
            {"train/gradient_norm": 0.5}, 2
        )  # a smaller step than before is kept, not dropped
        tracker.log_images("val/attention", [picture], ["John aime Marie"], 3)
        tracker.log_table("val/translations", ["source", "score"], [["Jean", 1.5], ["Marie", "none"]], 3)
        tracker.log_table("test/translations", ["source", "picture"], [["Jean", picture], ["Marie", None]], 3)
        tracker.record_data("dataset-0123", {"sizes": {"train": 1}})  # W&B has lineage online only
        tracker.log_artifact("best-abcd1234", "model", [best, folder / "run.json"], {"val/bleu": 15.0})
        tracker.record_summary({"parameters": 1234})
        tracker.finish(0)
        tracker.log_metrics({"train/loss": 0.0}, 4)  # after the end: ignored without an error
        tracker.finish(1)
    run = read_offline_run(folder)
    assert tracker.sync_command() == f"wandb sync {run.path.parent}"
    return folder, run


def test_record_of_the_run_itself(recorded: tuple[Path, OfflineRun]) -> None:
    _, run = recorded
    assert run.notes == "overrides: seed=3"
    assert (run.run_id, run.project, run.group, run.job_type, run.tags, run.exit_code) == (
        "abcd1234",
        "seq2seq_lab",
        "attention",
        "train",
        ["grammar"],
        0,
    )
    assert run.resumed


def test_config_is_nested_and_flat_and_names_the_commit(recorded: tuple[Path, OfflineRun]) -> None:
    _, run = recorded
    assert run.config.pop("_wandb", None) is not None
    assert run.config == {
        "config": {"dataset": {"auth_token": "***", "folder": "***"}, "model": {"sizes": [64, 128]}},
        "attention": "additive",
        "seed": 3,
        "git_commit": git_commit(),
    }
    assert run.git_commit == (git_commit() or "")


def test_charts_have_the_step_as_their_axis(recorded: tuple[Path, OfflineRun]) -> None:
    _, run = recorded
    assert run.metrics["trainer/step"].options.hidden
    assert all(run.metrics[f"{part}/*"].step_metric == "trainer/step" for part in ("train", "val"))
    steps = [(row["trainer/step"], row["train/loss"]) for row in run.history if "train/loss" in row]
    assert steps == [(1, 3.0), (2, 1.0), (3, 2.0)]
    assert all("trainer/step" in row for row in run.history)
    assert run.values("val/bleu") == [10.0, 15.0, 12.0]
    assert run.values("test/bleu") == []  # one value: in the summary
    assert run.values("train/gradient_norm") == [0.5]


def test_summary_keeps_the_best(recorded: tuple[Path, OfflineRun]) -> None:
    _, run = recorded
    assert run.summary["val/bleu"] == {"max": 15.0}
    assert run.summary["val/loss_free_running"] == {"min": 1.0}
    assert run.summary["val/aer"] == {"min": 0.25}
    assert run.summary["train/loss"] == 2.0  # directions are of validation metrics
    assert (run.summary["parameters"], run.summary["test/bleu"]) == (1234, 14.0)


def test_the_summary_is_the_best_finite_value_also_of_a_resumed_run(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    for folder, run_id, values in (
        ("first", None, [math.nan, 3.0, math.nan, math.inf, -math.inf, 2.0, 2.5]),
        ("second", "abcd1234", [4.0, math.nan, 2.75]),
    ):
        tracker = _build(tmp_path / folder, mode="offline", run_id=run_id)
        file = FileTracker(tmp_path / folder, 7 if run_id else None)
        tracker.declare_metrics({"loss": "min", "bleu": "max"})
        for step, value in enumerate(values, start=8 if run_id else 1):
            for one in (tracker, file):
                one.log_metrics({"val/loss": value, "val/bleu": value, "val/length": value}, step)
        for one in (tracker, file):
            one.finish(0)
        if run_id is None:
            shutil.copytree(tmp_path / "first", tmp_path / "second", ignore=shutil.ignore_patterns("wandb"))
    first, second = (read_offline_run(tmp_path / folder) for folder in ("first", "second"))
    assert (first.summary["val/loss"], first.summary["val/bleu"]) == ({"min": 2.0}, {"max": 3.0})
    assert (second.summary["val/loss"], second.summary["val/bleu"]) == ({"min": 2.0}, {"max": 4.0})
    assert second.summary["val/length"] == 2.75


def test_pictures_tables_and_checkpoints(recorded: tuple[Path, OfflineRun]) -> None:
    folder, run = recorded
    (names,) = run.values("val/attention.filenames")
    assert run.values("val/attention.captions") == [["John aime Marie"]]
    (table,) = run.values("val/translations.path")
    assert run.values("val/translations.nrows") == [2]
    for name in (*names, table):
        assert name in run.files
        assert (run.path.parent / "files" / name).stat().st_size > 0
    (best,) = [artifact for artifact in run.artifacts if artifact.type == "model"]
    assert best.name == "best-abcd1234"
    kept = folder / "wandb" / "artifacts" / "1"
    assert {file.path: file.local_path for file in best.manifest.contents} == {
        path: str(kept / path)
        for path in ("checkpoints/best/model.bin", "run.json", "config.yaml", "manifest.json")
    }
    assert OmegaConf.load(kept / "config.yaml") == {
        "dataset": {"auth_token": "***", "folder": "***"},
        "model": {"sizes": [64, 128]},
    }
    assert "15.0" in best.metadata
    assert sorted(best.aliases) == ["best", "latest"]
    (with_pictures,) = [one for one in run.artifacts if "testtranslations" in one.name]
    assert [one.path for one in with_pictures.manifest.contents if one.path.startswith("media/images/")]


@pytest.mark.parametrize("is_set", [False, True])
def test_what_is_uploaded_later_is_in_the_run_folder(
    is_set: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, chosen, folder = tmp_path / "home", tmp_path / "chosen", tmp_path / "run"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.delenv("WANDB_DATA_DIR")
    if is_set:
        monkeypatch.setenv("WANDB_DATA_DIR", str(chosen))
    environment = dict(os.environ)
    tracker = _build(folder, mode="offline")
    tracker.log_table("val/translations", ["source"], [["Jean"]], 3)
    tracker.finish(0)
    assert {**os.environ, "WANDB_ERROR_REPORTING": "false"} == environment
    assert not (home / "data").exists()
    (table,) = read_offline_run(folder).artifacts
    paths = [Path(file.local_path) for file in table.manifest.contents]
    assert paths
    for path in paths:
        assert path.is_relative_to(chosen if is_set else folder / "wandb")
        assert path.is_file()


def test_the_data_set_is_an_input_of_an_online_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker, used = _build(tmp_path, mode="offline"), []
    monkeypatch.setattr(tracker._run, "use_artifact", used.append)
    tracker.offline, tracker.url = False, "an address"
    tracker.record_data("dataset-0123", {"sizes": {"train": 1}})
    tracker.offline, tracker.url = True, None
    tracker.finish(0)
    (artifact,) = used
    assert (artifact.name.partition(":")[0], artifact.type) == ("dataset-0123", "dataset")
    assert artifact.metadata == {"sizes": {"train": 1}}
    assert [*artifact.manifest.entries] == ["dataset.json"]


@pytest.mark.parametrize(
    ("overrides", "name", "group"),
    [
        ([], "defaults", "defaults"),
        (["seed=2"], "seed=2", "defaults"),
        (
            ["attention=dot", "seed=2", "hydra.run.dir=x", "logger.tags=[a]"],
            "attention=dot seed=2",
            "attention=dot",
        ),
    ],
)
def test_single_runs_have_a_name_and_the_group_of_their_seeds(
    overrides: list[str], name: str, group: str
) -> None:
    assert named({"name": None, "group": None}, overrides) == {"name": name, "group": group}
    assert named({"name": "mine", "group": ""}, overrides) == {"name": "mine", "group": group}
    assert named({"_target_": "x"}, overrides) == {"_target_": "x"}
    assert named({"name": None}, None) == {"name": None}


def test_the_environment_names_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"NAME": "mine", "RUN_GROUP": "my group", "TAGS": "a,b", "NOTES": "my notes"}
    for name, value in environment.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    folders = [tmp_path / "environment", tmp_path / "settings"]
    for folder, settings in zip(folders, ((), ("logger.name=given", "logger.tags=[c]")), strict=True):
        overrides = ("logger=wandb", "logger.mode=offline", *settings, "seed=1")
        composed = compose_run(overrides)
        logger = build_logger(
            composed.config, folder, plain={}, flat={}, run_id=None, overrides=composed.overrides
        )
        logger.record_notes("python -m seq2seq_lab seed=1")
        logger.finish(0)
    runs = [read_offline_run(folder) for folder in folders]
    assert [(run.name, run.group) for run in runs] == [("mine", "my group"), ("given", "my group")]
    assert [run.tags for run in runs] == [["a", "b"], ["c"]]
    assert [run.notes for run in runs] == ["my notes\npython -m seq2seq_lab seed=1"] * 2


def test_a_long_command_line_has_a_name_and_a_group_of_its_own() -> None:
    common = ["experiment=multi30k_de_en", f"dataset.path=/{'x' * 90}", "model.hidden_size=256"]
    given = {
        (attention, seed): named({"name": None, "group": None}, [f"seed={seed}", *common, attention])
        for attention in ("attention=additive", "attention=scaled_dot")
        for seed in (1, 2)
    }
    assert len({logger["name"] for logger in given.values()}) == 4
    groups = {(attention, logger["group"]) for (attention, _), logger in given.items()}
    assert len(groups) == len({group for _, group in groups}) == 2
    assert all(len(logger[key]) <= 100 for logger in given.values() for key in logger)
    assert given["attention=additive", 2]["name"].endswith(" seed=2")


def test_the_record_does_not_name_the_host(recorded: tuple[Path, OfflineRun]) -> None:
    _, run = recorded
    assert run.host == ""


def test_a_checkpoint_is_copied_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    best = tmp_path / "checkpoints" / "best"
    best.mkdir(parents=True)
    (best / "model.bin").write_bytes(b"weights")
    rewrite(tmp_path / "run.json", "{}")
    tracker = _build(tmp_path, mode="offline")
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        tracker.log_artifact("best", "model", [best, tmp_path / "run.json"], {})
    tracker.finish(0)
    kept = tmp_path / "wandb" / "artifacts" / "1"
    assert (kept / "checkpoints" / "best" / "model.bin").read_bytes() == b"weights"
    assert (kept / "run.json").is_file()


def test_no_secret_and_no_command_line_in_any_file(recorded: tuple[Path, OfflineRun]) -> None:
    folder, run = recorded
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert run.path in files
    for path in files:
        content = path.read_bytes()
        for secret in (KEY, SECRET, "hf_abcdefgh"):
            assert secret.encode() not in content, path
    assert not list(folder.rglob("wandb-metadata.json"))
    assert not list(folder.rglob("*.patch"))
    assert "environment" not in run.kinds


def test_an_unreachable_service_and_a_dead_process_do_not_stop_the_run(
    tmp_path: Path, closed_port: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    import wandb

    start = time.monotonic()
    tracker = _build(tmp_path)
    assert time.monotonic() - start < 5
    assert tracker.offline
    assert _warnings(caplog) == [f"W&B cannot be reached at {closed_port}. The run is recorded offline."]
    tracker.log_metrics({"train/loss": 1.0}, 1)

    process = wandb.setup().ensure_service()._proc._process
    process.kill()
    process.wait()
    caplog.clear()
    for step in range(2, 5):
        tracker.log_metrics({"train/loss": 1.0}, step)
        time.sleep(0.05)
    tracker.record_summary({"test/bleu": 1.0})
    tracker.finish(0)
    (message,) = _warnings(caplog)
    assert "continues without it" in message

    assert wandb.run is None
    tracker = _build(tmp_path, mode="offline", log_artifact=False)  # the next run in the same process
    tracker.log_metrics({"train/loss": 2.0}, 1)
    tracker.log_artifact("best", "model", [tmp_path], {})
    tracker.finish(0)
    (run,) = [run for run in read_offline_runs(tmp_path) if run.run_id == tracker.run_id]
    assert run.values("train/loss") == [2.0]
    assert run.artifacts == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("closed_port")
def test_a_run_is_offline_if_the_service_fails_during_the_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tracker_module, "find_connection_problem", lambda url: None)
    tracker = _build(tmp_path, init_timeout=0.5)
    tracker.log_metrics({"train/loss": 2.0}, 1)
    tracker.finish(0)
    (message,) = _warnings(caplog)
    assert "W&B cannot be used" in message
    assert capfd.readouterr() == ("", "")
    run = read_offline_run(tmp_path)
    assert run.run_id == tracker.run_id
    assert not run.resumed
    assert run.values("train/loss") == [2.0]


class _Service(BaseHTTPRequestHandler):
    """The part of W&B's service that a run needs to start."""

    def do_POST(self) -> None:
        query = self.rfile.read(int(self.headers["Content-Length"]))
        bucket = {"id": "eA==", "name": "abcd1234", "displayName": "n"}
        bucket["project"] = {"name": "seq2seq_lab", "entity": {"name": "someone"}}
        data = {"upsertBucket": {"bucket": bucket, "inserted": True}} if b"UpsertBucket" in query else {}
        answer = json.dumps({"data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_service_that_disappears_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Service) as service:
        threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{service.server_port}")
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        tracker = _build(tmp_path, mode="online", run_id="abcd1234", finish_timeout=0.5)
        assert (tracker.offline, tracker.run_id, tracker.sync_command()) == (False, "abcd1234", None)
        assert tracker.url == f"http://127.0.0.1:{service.server_port}/someone/seq2seq_lab/runs/abcd1234"
        service.shutdown()
    tracker.log_metrics({"train/loss": 1.0}, 1)
    start = time.monotonic()
    tracker.finish(0)
    assert time.monotonic() - start < 5
    (message,) = _warnings(caplog)
    assert f"`wandb sync --include-online {tmp_path}/wandb/run-" in message
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


class _Slow(_Service):
    """Answers late."""

    def do_POST(self) -> None:
        time.sleep(0.2)
        super().do_POST()


class _Failing(_Service):
    """Fails at every second request."""

    requests = 0

    def do_POST(self) -> None:
        _Failing.requests += 1
        if _Failing.requests % 2:
            super().do_POST()
        else:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_error(500)


class _Full(_Service):
    """Accepts no metrics."""

    def do_POST(self) -> None:
        if "file_stream" in self.path:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_error(429)
        else:
            super().do_POST()


@pytest.mark.parametrize("kind", [_Slow, _Failing, _Full])
def test_a_service_under_load_neither_stops_nor_delays_the_run(
    kind: type[_Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as service:
        threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{service.server_port}")
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        tracker = _build(tmp_path, mode="online", run_id="abcd1234", finish_timeout=0.5)
        assert not tracker.offline
        process = wandb.setup().ensure_service()._proc._process
        start = time.monotonic()
        for step in range(500):
            tracker.log_metrics({"train/loss": float(step)}, step)
        logged = time.monotonic() - start
        tracker.finish(0)
        ended = time.monotonic() - start
        process.kill()  # it still uploads
        process.wait()
        service.shutdown()
    assert logged < 2
    assert ended < 10


def test_an_active_run_of_the_user_stays_active(
    tmp_path: Path, closed_port: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb

    settings = wandb.Settings(silent=True, console="off")
    users = wandb.init(project="mine", dir=tmp_path / "user", mode="offline", settings=settings)
    process = wandb.setup().ensure_service()._proc._process
    with pytest.raises(UserError, match=r"not online .*wandb\.finish\(\).* logger\.mode=offline"):
        _build(tmp_path, mode="online")
    with pytest.raises(UserError, match=r"not online .*wandb\.finish\(\)\.$"):
        has_api_key()
    users.log({"a": 1})
    tracker = _build(tmp_path)
    assert tracker.offline  # as the user's
    tracker.log_metrics({"train/loss": 1.0}, 1)
    tracker.log_table("val/translations", ["source"], [["Jean"]], 1)
    tracker.finish(0)
    assert wandb.run is users
    wandb.log({"a": 2})
    assert wandb.setup().ensure_service()._proc._process is process
    users.finish()
    (run,) = read_offline_runs(tmp_path)
    assert (run.run_id, run.values("train/loss"), run.exit_code) == (tracker.run_id, [1.0], 0)
    (run,) = read_offline_runs(tmp_path / "user")
    assert (run.values("a"), run.exit_code) == ([1, 2], 0)
    assert _warnings(caplog) == []


@pytest.mark.usefixtures("closed_port")
def test_next_to_a_run_of_the_user_a_failed_online_start_is_offline_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb

    settings = wandb.Settings(silent=True, console="off")
    users = wandb.init(project="mine", dir=tmp_path / "user", mode="offline", settings=settings)
    monkeypatch.setattr(tracker_module, "find_connection_problem", lambda url: None)
    monkeypatch.setattr(tracker_module, "has_api_key", lambda: True)
    tracker = _build(tmp_path, mode="online", init_timeout=0.5)
    tracker.log_metrics({"train/loss": 2.0}, 1)
    tracker.finish(0)
    users.finish()
    (message,) = _warnings(caplog)
    assert "W&B cannot be used" in message
    run = read_offline_run(tmp_path)
    assert (run.run_id, run.values("train/loss")) == (tracker.run_id, [2.0])


def test_refused_data_do_not_stop_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import wandb

    tracker = _build(tmp_path, mode="offline")

    def refuse(_: wandb.Run) -> None:
        raise wandb.errors.CommError("not now")

    tracker._send(refuse)  # an artifact is refused like this after a connection error
    tracker.log_metrics({"train/loss": 2.0}, 1)
    tracker.finish(0)
    assert _warnings(caplog) == ["W&B refused data of this run: not now"]
    assert read_offline_run(tmp_path).values("train/loss") == [2.0]


def test_with_wandb_disabled_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    tracker = _build(tmp_path, mode="auto")
    (tmp_path / "best").mkdir()
    tracker.log_metrics({"train/loss": 2.0}, 1)
    tracker.log_table("val/translations", ["source"], [["a"]], 1)
    tracker.log_artifact("best", "model", [tmp_path / "best"], {})
    tracker.record_summary({"test/bleu": 1.0})
    tracker.finish(0)
    assert (tracker.url, tracker.offline, tracker.sync_command()) == (None, False, None)
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


@pytest.mark.parametrize(
    ("asked", "environment", "has_key", "reachable", "chosen"),
    [
        ("auto", None, True, True, "online"),
        ("auto", None, True, False, "offline"),
        ("auto", None, False, True, "offline"),
        ("auto", "offline", True, True, "offline"),
        ("auto", "dryrun", True, True, "offline"),
        ("auto", "disabled", True, True, "disabled"),
        ("auto", "online", True, True, "online"),
        ("offline", "online", True, True, "offline"),
        ("online", "offline", True, True, "online"),
        ("online", None, True, False, "offline"),
        ("disabled", "online", True, True, "disabled"),
    ],
)
def test_mode(
    asked: str,
    environment: str | None,
    has_key: bool,
    reachable: bool,
    chosen: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import wandb

    # Uses the real settings of W&B, without its background process.
    monkeypatch.setattr(type(wandb.setup(wandb.Settings(mode="disabled"))), "ensure_service", lambda _: None)
    wandb.teardown()
    if environment:
        monkeypatch.setenv("WANDB_MODE", environment)
    if has_key:
        monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setattr(
        tracker_module, "find_connection_problem", lambda url: None if reachable else "no way"
    )
    assert tracker_module._choose_mode(asked, tracker_module._session(asked)) == chosen


@pytest.mark.parametrize(
    ("mode", "environment", "message"),
    [
        ("online", {}, "no API key is known"),
        ("auto", {"WANDB_MODE": "online"}, "no API key is known"),
        ("auto", {"WANDB_API_KEY": "short"}, "WANDB_API_KEY invalid"),
        ("auto", {"WANDB_MODE": "sideways"}, "(?s)WANDB_.*mode"),
        ("auto", {"WANDB_BASE_URL": "nowhere"}, "(?s)WANDB_.*base_url"),
    ],
)
def test_invalid_settings_are_refused(
    mode: str, environment: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=message):
        WandbTracker.check({"mode": mode})
    with pytest.raises(UserError, match=message):
        _build(tmp_path, mode=mode)


def test_a_check_leaves_the_session_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import wandb
    from wandb.sdk import wandb_setup

    monkeypatch.setenv("WANDB_API_KEY", KEY)
    for mode in ("auto", "online", "offline", "disabled"):
        WandbTracker.check({"mode": mode})
        assert wandb_setup._singleton is None
        assert "WANDB_SERVICE" not in os.environ
    session = wandb.setup(wandb.Settings(silent=True))
    WandbTracker.check({"mode": "auto"})
    assert wandb.setup() is session
    assert capfd.readouterr() == ("", "")


def test_a_setting_that_wandb_refuses_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(?s)logger=wandb.*65"):
        _build(tmp_path, mode="offline", tags=["x" * 65])


@pytest.mark.parametrize(
    ("key", "value", "logged"),
    [
        ("api_key", "abc", "***"),
        ("apiKey", "abc", "***"),
        ("hf_token", "abc", "***"),
        ("password", 1234, "***"),
        ("credentials", {"user": "a", "key": "b"}, "***"),
        ("client_secret", ["a", "b"], "***"),
        ("url", "https://user:pass@host/data", "https://***@host/data"),
        ("note", f"it is {SECRET}", "***"),
        ("nested", {"list": [{"password": "abc", "size": 1}]}, {"list": [{"password": "***", "size": 1}]}),
        ("api_key", None, None),
        ("tokenizer", "bpe", "bpe"),
        ("max_tokens", 50, 50),
        ("keys", (1, 2), [1, 2]),
        ("author", "Bahdanau", "Bahdanau"),
        ("key_size", 64, 64),
    ],
)
def test_secrets_are_mask_secrets(
    key: str, value: object, logged: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", SECRET)
    assert mask_secrets({key: value}) == {key: logged}


def test_the_yaml_file_has_every_default() -> None:
    given = {"folder", "config", "flat", "run_id"}
    parameters = inspect.signature(WandbTracker).parameters
    assert set(OmegaConf.load(LOGGERS / "wandb.yaml")) - {"_target_"} == parameters.keys() - given
    assert all(parameter.default is parameter.empty for parameter in parameters.values())


def test_a_checkpoint_is_downloaded_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_port: str, capfd: pytest.CaptureFixture[str]
) -> None:
    import wandb

    asked: list[tuple[str, str]] = []

    class Api:
        def artifact(self, name: str, type: str) -> Any:
            asked.append((name, type))
            if "none" in name:
                raise ValueError("there is no such artifact")
            return SimpleNamespace(download=lambda: str(tmp_path / "fetched"))

    monkeypatch.setattr(wandb, "Api", Api)
    monkeypatch.delenv("WANDB_API_KEY")
    for folder in (tmp_path, tmp_path / "not there", "outputs/2026-01-01/10:30:00", Path("one")):
        assert fetch_run_folder(folder) == Path(folder)
    name = "team/project/checkpoint-abcd1234:latest"
    with pytest.raises(UserError, match=f"{name} cannot be downloaded .* no API key"):
        fetch_run_folder(name)
    monkeypatch.setenv("WANDB_API_KEY", "short")
    with pytest.raises(UserError, match="WANDB_API_KEY invalid"):
        fetch_run_folder(name)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with pytest.raises(UserError, match="cannot be reached"):
        fetch_run_folder(name)
    monkeypatch.setattr(tracker_module, "find_connection_problem", lambda url: None)
    assert fetch_run_folder(name) == tmp_path / "fetched"
    with pytest.raises(UserError, match=r"none:v1.*there is no such artifact"):
        fetch_run_folder("none:v1")
    assert asked == [(name, "model"), ("none:v1", "model")]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError()])
def test_a_run_outlives_an_artifact_that_cannot_be_recorded(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = WandbTracker.__new__(WandbTracker)
    tracker._log_artifact, tracker._folder = True, tmp_path
    tracker._run = SimpleNamespace(disabled=False)  # type: ignore[assignment]

    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("seq2seq_lab.tracking.wandb.make_numbered_folder", fail)
    tracker.log_artifact("checkpoint-1", "model", [], {})
    assert "did not record" in caplog.text


@pytest.mark.parametrize(
    "error", [OSError(24, "Too many open files"), RuntimeError("can't start new thread")]
)
def test_images_and_tables_that_cannot_be_made_are_left_out(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb

    def fail(*arguments: object, **named: object) -> None:
        raise error

    monkeypatch.setattr(wandb, "Image", fail)
    monkeypatch.setattr(wandb, "Table", fail)
    tracker = _build(tmp_path)
    tracker.log_images("val/attention", [tmp_path / "a.png"], ["a"], step=1)
    tracker.log_table("val/samples", ["source"], [["a"]], step=1)
    tracker.finish(0)
    assert caplog.text.count("W&B did not record data of this run") == 2
