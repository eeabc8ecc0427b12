"""The commit of this package, and how its checkout differs from it."""

import logging
import os
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

from seq2seq_lab.config.secrets import mask_text

logger = logging.getLogger(__name__)

_PACKAGE = Path(__file__).resolve().parents[1]
_CODE = (":(top)*.py", ":(top)conf/*.yaml")  # untracked files that a run can use
_LARGEST = 2**20  # bytes of an untracked file whose content is recorded
_MOST = 100  # untracked files whose content is recorded
_SECONDS = 10  # at most, of a command
_tracked: set[Path] = set()  # packages whose files a checkout tracks


def git_commit() -> str | None:
    """Return the commit of the checkout that contains this package, or None outside a checkout."""
    commit = _git("rev-parse", "HEAD")
    return commit.strip() if commit else None


def git_is_dirty() -> bool | None:
    """Return whether the code differs from the commit, or None outside a checkout.

    Untracked Python files, and untracked YAML files of `conf/`, count as code.
    """
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return None if changes is None else bool(changes or _untracked())


def git_diff() -> str | None:
    """Return how the code differs from the commit, as a patch with masked secrets, or None outside a checkout.

    Untracked code is new files of the patch, see `git_is_dirty`. Of a file of more than 1 MiB, and of each file after the
    first 100, only the name is in the patch, as a line that `git apply` skips.
    """
    if (diff := _git("diff", "HEAD")) is None:
        return None
    parts = [diff]
    top = Path((_run_git("rev-parse", "--show-toplevel") or "").removesuffix("\n"))
    for index, name in enumerate(_untracked()):
        new = None
        with suppress(OSError):  # the file has vanished, or its name is not UTF-8
            if index < _MOST and (top / name).lstat().st_size <= _LARGEST:
                new = _run_git("diff", "--no-index", "--", os.devnull, name, folder=top, allowed=(0, 1))
        parts.append(new or f"Untracked, without its content: {name}\n")
    return mask_text("".join(parts))


def _untracked() -> list[str]:
    """Return the untracked code, relative to the top of the checkout."""
    names = _git("ls-files", "-z", "--others", "--exclude-standard", "--full-name", "--", *_CODE)
    return [name for name in (names or "").split("\0") if name]


def _git(*arguments: str) -> str | None:
    # A package can be installed inside another checkout, for example in its virtual environment. Only a checkout
    # that tracks this package's files counts.
    if _PACKAGE not in _tracked and _run_git("ls-files", "--error-unmatch", "--", "__init__.py") is not None:
        _tracked.add(_PACKAGE)
    return _run_git(*arguments) if _PACKAGE in _tracked else None


def _run_git(*arguments: str, folder: Path | None = None, allowed: tuple[int, ...] = (0,)) -> str | None:
    # Git sets GIT_DIR and similar variables for hooks and aliases. They can name another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=folder or _PACKAGE,
            env={**environment, "LC_ALL": "C"},
            capture_output=True,
            check=False,
            timeout=_SECONDS,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        logger.warning(
            "git %s has not ended after %s s: what it returns is not recorded.", arguments[0], _SECONDS
        )
        return None
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode not in allowed:
        if "dubious ownership" in done.stderr:
            _warn_of_owner()
        return None
    return done.stdout


@cache
def _warn_of_owner() -> None:
    logger.warning(
        "The commit is not recorded: the checkout at %s has another owner, and git refuses to read it. To allow it: "
        "git config --global --add safe.directory %s",
        _PACKAGE.parent,
        _PACKAGE.parent,
    )
