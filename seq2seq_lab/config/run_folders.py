"""Finding run folders."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from seq2seq_lab.config.job_hash import is_stale
from seq2seq_lab.errors import UserError

# Folders in a run folder that are not searched for runs.
NOT_SEARCHED = ("artifacts", "checkpoints", "evaluations", "reproductions", "wandb")
RUNS = (Path("outputs"), Path("sweeps"))  # where runs are by default, in the working directory
LATEST = "latest"  # the name of the newest of them
MAX_SEARCH_DEPTH = 32  # levels of folders

log = logging.getLogger(__name__)


def named_folder(name: str | Path) -> Path:
    """Return the path of a folder that a user names: `latest` is the run in outputs and sweeps that started last.

    Raises:
        UserError: the folders contain no run.
    """
    if str(name) != LATEST or Path(name).exists():
        return Path(name)
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
    """Return settings of a command line with `latest` replaced in `resume=latest` and `init_from=latest`."""
    named = [f"{key}={LATEST}" for key in ("resume", "init_from")]
    return [
        f"{line.partition('=')[0]}={named_folder(LATEST)}" if line in named else line for line in overrides
    ]


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
