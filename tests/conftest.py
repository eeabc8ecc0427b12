"""Shared fixtures: an isolated environment for each test, and a list of skipped tests at the end."""

import gc
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import programs  # noqa: F401  (before a test imports the modules, which would replace the functions)
import pytest
import torch
import torch.version
from program import Program
from reports import fast_reports, full_reports

import seq2seq_lab.run
from seq2seq_lab.runtime import console

gc.disable()  # until the tests are collected: that makes many objects, and little garbage

# Parallel tests, and the programs that they start, share the cores.
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if WORKERS > 1:
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // WORKERS))
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

NUMBERS = itertools.count()
CORPORA_VARIABLE = "SEQ2SEQ_LAB_CORPORA"
# The device of the tests marked `gpu`; "cpu" checks the tests without a GPU.
GPU_VARIABLE = "SEQ2SEQ_LAB_GPU_TESTS"
MARKERS = ("corpora", "gpu", "fake_gpu", "browser")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def browsers() -> list[str]:
    """Return the browsers that are installed."""
    return [path for name in BROWSERS if (path := shutil.which(name))]


def missing(marker: str) -> str | None:
    """Return why tests with this marker cannot run here, or None if they can."""
    if marker == "corpora" and CORPORA_VARIABLE not in os.environ:
        return f"set {CORPORA_VARIABLE} to a folder with multi30k/ and tatoeba/"
    if marker == "gpu" and not torch.cuda.is_available() and os.environ.get(GPU_VARIABLE) != "cpu":
        return "no CUDA device"
    if marker == "fake_gpu" and torch.version.cuda is not None:
        return "PyTorch is a build with CUDA"
    if marker == "fake_gpu" and shutil.which("g++") is None:
        return "g++ is not installed"
    if marker == "browser" and browsers() == []:
        return f"none of {', '.join(BROWSERS)} is installed"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons = {marker: reason for marker in MARKERS if (reason := missing(marker))}
    for item in items:
        for marker, reason in reasons.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"{marker}: {reason}"))


def pytest_collection_finish() -> None:
    """Collect garbage less often, and exclude the objects of imported modules, which make each collection slower."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 10, 10)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons: Counter[str] = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
    )
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {count} tests: {reason}")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Hide the user's caches, credentials and services from tests."""
    # Each test has its own name. The folder is created only if a test needs it.
    home = tmp_path_factory.getbasetemp() / "home" / str(next(NUMBERS))
    monkeypatch.setenv("SEQ2SEQ_LAB_CACHE", str(home / "cache"))
    monkeypatch.delenv("SEQ2SEQ_LAB_TRUST", raising=False)
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("NETRC", str(home / "netrc"))
    console.console.cache_clear()  # it writes to the standard output of the test that first used it


@pytest.fixture(autouse=True, scope="session")
def own_list_of_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the user's list of runs. Tests share one, because they share runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
        yield


@pytest.fixture(autouse=True, scope="session")
def runs_have_fast_reports() -> Iterator[None]:
    with fast_reports():
        yield


@pytest.fixture(autouse=True, scope="session")
def files_stay_in_memory() -> Iterator[None]:
    """Do not wait until the disk has written a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def with_full_reports() -> Iterator[None]:
    """For tests that check the figures or the intervals of a run."""
    with full_reports():
        yield


@pytest.fixture
def gpu() -> Iterator[torch.device]:
    """The device of tests marked `gpu`, with TF32 disabled."""
    allowed, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    yield torch.device(os.environ.get(GPU_VARIABLE, "cuda"))
    torch.backends.cudnn.allow_tf32 = allowed


@pytest.fixture(scope="session")
def browser() -> str:
    """A browser, for tests marked `browser`."""
    return browsers()[0]


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of the real corpora, for tests marked `corpora`."""
    return Path(os.environ[CORPORA_VARIABLE])


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Program:
    monkeypatch.chdir(tmp_path)
    made = Program(capsys)
    monkeypatch.setattr(seq2seq_lab.run, "experiment", made.run)
    return made
