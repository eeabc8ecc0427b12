"""The commit of this package."""

import os
import subprocess
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def git_commit() -> str | None:
    """Return the commit of the checkout that contains this package, or None outside a checkout."""
    commit = _git("rev-parse", "HEAD")
    return commit.strip() if commit else None


def git_is_dirty() -> bool | None:
    """Return whether tracked files differ from the commit, or None outside a checkout."""
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return None if changes is None else bool(changes)


def git_diff() -> str | None:
    """Return how tracked files differ from the commit, as a patch, or None outside a checkout."""
    return _git("diff", "HEAD")


def _git(*arguments: str) -> str | None:
    # A package can be installed inside another checkout, for example in its virtual environment. Only a checkout
    # that tracks this package's files counts.
    tracked = _run_git("ls-files", "--error-unmatch", "--", "__init__.py")
    return None if tracked is None else _run_git(*arguments)


def _run_git(*arguments: str) -> str | None:
    # Git sets GIT_DIR and similar variables for hooks and aliases. They can name another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=_PACKAGE,
            env=environment,
            capture_output=True,
            check=True,
            timeout=10,
            encoding="utf-8",
            errors="replace",
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
