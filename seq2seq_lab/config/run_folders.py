"""Finding run folders."""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from seq2seq_lab.config.job_hash import is_stale
from seq2seq_lab.errors import UserError, require

# Folders in a run folder that are not searched for runs.
NOT_SEARCHED = ("artifacts", "checkpoints", "evaluations", "reproductions", "wandb")
RUNS = (Path("outputs"), Path("sweeps"))  # where runs are by default, in the working directory
LATEST = "latest"  # the name of the newest of them
DEMO = "demo"  # the name of the run that the package contains
DEMO_FOLDER = Path(__file__).parents[1] / "demo"  # written by benchmarks.demo
MAX_SEARCH_DEPTH = 32  # levels of folders

log = logging.getLogger(__name__)


def named_folder(name: str | Path) -> Path:
    """Return the path of a folder that a user names.

    `latest` is the run in outputs and sweeps that started last, `demo` the run that the package contains.

    Raises:
        UserError: the folders contain no run, or `name` is not a path.
    """
    require(
        isinstance(name, str | os.PathLike) and str(name) != "", "folder", repr(name), "the path of a folder"
    )
    if str(name) not in (LATEST, DEMO) or Path(name).exists():
        return Path(name)
    if str(name) == DEMO:
        return DEMO_FOLDER
    seen = set[Path]()
    runs = [run for folder in RUNS if folder.is_dir() for run in run_folders(folder, seen)]
    started = {run: path.stat().st_mtime for run in runs if (path := run / "run.json").is_file()}
    if not started:
        raise UserError(
            f"{LATEST}: {' and '.join(map(str, RUNS))} in {Path.cwd()} contain no run. Start one with python -m "
            f"seq2seq_lab, or give the folder of a run."
        )
    return max(started, key=lambda run: started[run])


def named_folders(overrides: Sequence[str]) -> list[str]:
    """Return settings of a command line with the names `latest` and `demo` replaced in `resume=` and `init_from=`.

    Raises:
        UserError: `resume=demo`: the run has no state of the optimizer.
    """
    settings = []
    for line in overrides:
        key, _, name = line.partition("=")
        if key in ("resume", "init_from") and name in (LATEST, DEMO):
            line = f"{key}={named_folder(name)}"
        if line == f"resume={DEMO_FOLDER}":
            raise UserError(
                "resume=demo: the run of the package cannot be resumed. Start from its weights: init_from=demo."
            )
        settings.append(line)
    return settings


def output_parent(folder: Path, cache: Path) -> Path:
    """Return the folder for what programs write about a run: the run folder, or for `demo` a folder in the cache.

    Args:
        cache: the user's folder of cached data.
    """
    return cache / DEMO if is_demo(folder) else folder


def is_demo(folder: Path) -> bool:
    """Return whether a folder is that of the run that the package contains."""
    return folder.resolve() == DEMO_FOLDER.resolve()


def run_folders(folder: Path, seen: set[Path]) -> Iterator[Path]:
    """Yield the run folders in a folder, at any depth, or the folder itself.

    The search skips a run's checkpoints, evaluations and the copies that its logger keeps, the files of a study's job that
    were set aside, links in run folders, and folders that cannot be read.

    Args:
        seen: resolved paths of the folders that were searched; they are skipped, and new ones added.
    """
    waiting = [(folder, False, 0)]
    while waiting:
        folder, inside, depth = waiting.pop()
        if (resolved := folder.resolve()) in seen:
            continue
        seen.add(resolved)
        try:
            inner = sorted(path for path in folder.iterdir() if path.is_dir())
        except OSError as error:
            log.warning("%s is not searched for runs: %s.", folder, error.strerror)
            continue
        if depth == MAX_SEARCH_DEPTH:
            log.warning("%s is not searched for runs: it is %s levels deep.", folder, depth)
            continue
        is_run = any((folder / name).is_file() for name in ("run.json", "result.json"))
        if is_run:
            yield folder
        inside |= is_run
        waiting += [
            (path, inside, depth + 1)
            for path in reversed(inner)
            if not (
                path.name.startswith(".")
                or is_stale(path)
                or (is_run and path.name in NOT_SEARCHED)
                or (inside and path.is_symlink())
            )
        ]
