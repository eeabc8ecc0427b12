import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from seq2seq_lab.tracking import git


def _run(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a package folder in a new repository with one commit that does not contain it."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    package = tmp_path / "checkout" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    _run(package.parent, "init", "--quiet")
    _run(package.parent, "commit", "--quiet", "--allow-empty", "--message", "empty")
    monkeypatch.setattr(git, "_PACKAGE", package)
    return package


def _commit(package: Path) -> str:
    _run(package, "add", ".")
    _run(package, "commit", "--quiet", "--message", "package")
    return _run(package, "rev-parse", "HEAD")


def test_the_commit_and_whether_it_was_changed(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = _commit(package)
    monkeypatch.setenv("GIT_DIR", str(package / "elsewhere"))  # as in a hook of another repository
    assert (git.git_commit(), git.git_is_dirty()) == (commit, False)
    (package / "untracked.txt").touch()
    assert git.git_is_dirty() is False
    (package / "__init__.py").write_text("changed", encoding="utf-8")
    assert (git.git_commit(), git.git_is_dirty()) == (commit, True)
    assert "+changed" in (git.git_diff() or "")


def test_a_checkout_without_the_package_has_no_commit(package: Path) -> None:
    assert _run(package, "rev-parse", "HEAD")
    assert (git.git_commit(), git.git_is_dirty()) == (None, None)


def test_outside_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "_PACKAGE", tmp_path)
    assert (git.git_commit(), git.git_is_dirty()) == (None, None)


def test_without_git(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _commit(package)
    monkeypatch.setenv("PATH", "")
    assert (git.git_commit(), git.git_is_dirty()) == (None, None)


def test_untracked_code_is_a_change(package: Path, tmp_path: Path) -> None:
    _commit(package)
    (package / "new.py").write_text("learning_rate = 1\n", encoding="utf-8")
    (package.parent / "conf").mkdir()
    (package.parent / "conf" / "größer.yaml").write_text("size: 2\n", encoding="utf-8")
    (package / "large.py").write_text("#" * 2**21, encoding="utf-8")
    assert git.git_is_dirty() is True
    diff = git.git_diff() or ""
    assert "+learning_rate = 1" in diff
    assert "+size: 2" in diff
    assert "Untracked, without its content: package/large.py" in diff
    patch = tmp_path / "uncommitted.diff"
    patch.write_text(diff, encoding="utf-8")
    clone = tmp_path / "clone"
    _run(tmp_path, "clone", "--quiet", str(package.parent), str(clone))
    _run(clone, "apply", str(patch))
    assert (clone / "package" / "new.py").read_text("utf-8") == "learning_rate = 1\n"
    assert (clone / "conf" / "größer.yaml").read_text("utf-8") == "size: 2\n"


def test_a_file_without_a_usable_name_is_named_only(package: Path) -> None:
    _commit(package)
    (package / os.fsdecode(b"caf\xe9.py")).touch()
    assert "Untracked, without its content: package/caf\ufffd.py" in (git.git_diff() or "")


def test_the_diff_has_no_secrets(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    _commit(package)
    (package / "__init__.py").write_text(
        "key = '0123456789abcdef'\nurl = 'https://me:word@host/x'\n", "utf-8"
    )
    diff = git.git_diff() or ""
    assert "+key = '***'" in diff
    assert "+url = 'https://***@host/x'" in diff


def test_a_checkout_of_another_owner_is_named(
    package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _commit(package)
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'fatal: detected dubious ownership in repository' >&2\nexit 128\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    git._warn_of_owner.cache_clear()
    assert (git.git_commit(), git.git_is_dirty(), git.git_diff()) == (None, None, None)
    (message,) = caplog.messages
    assert f"safe.directory {package.parent}" in message


def test_a_command_that_takes_too_long_is_named(
    package: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit, run = _commit(package), subprocess.run

    def slow_status(command: list[str], **options: Any) -> Any:
        if "status" in command:
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", slow_status)
    assert (git.git_commit(), git.git_is_dirty()) == (commit, None)
    (message,) = caplog.messages
    assert "git status" in message
