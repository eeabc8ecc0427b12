import subprocess
from pathlib import Path

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
