"""A study: the jobs of a multirun under one name, which can be continued.

Its folder is `sweeps/NAME`. A hash of the job's configuration names the folder of a job, so it stays the same when the
grid grows. A study that is started again skips finished jobs, resumes interrupted ones, and restarts failed ones. Jobs
whose data or code have changed since they began are refused or run again (`study.changed`).
"""

import errno
import math
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from seq2seq_lab.config import foreign
from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.compose import Composed, Request
from seq2seq_lab.config.job_hash import STALE, computed_settings
from seq2seq_lab.config.run_folder import SCORED, find_damage, read_finished_result, read_record, read_result
from seq2seq_lab.config.schema import Changed
from seq2seq_lab.config.upgrade import RENAMED
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import (
    LOCK,
    FolderInUseError,
    checked_line,
    is_locked,
    lock_file,
    lock_folder,
    make_numbered_folder,
    parse_checked_line,
    read_lines,
)
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.runtime.tables import print_table
from seq2seq_lab.tracking.parts import from_environment, short_name

INDEX = "index.jsonl"
INDEX_TIMEOUT = 60.0  # seconds to wait for other jobs that append to the index
NAME = re.compile(r"(?!\.{1,2}(/|$))[\w.+-]+(/(?!\.{1,2}(/|$))[\w.+-]+)*", re.ASCII)
TAG_LENGTH = 64  # characters that W&B allows
GRIDS = (  # sweepers whose jobs follow from the command
    "hydra_plugins.seq2seq_lab_sweeper.CellsSweeper",
    "hydra._internal.core_plugins.basic_sweeper.BasicSweeper",
)
SHOWN_JOBS = 5  # in an error message, for each set of changes
SPLITS = ("val", "test")  # whose primary metric is printed for each job


@dataclass(frozen=True)
class Search:
    """What a study knows about a sweeper that samples its jobs, here called trials.

    Attributes:
        direction: maximize or minimize; None if the sweeper has no such setting.
        is_stored: whether the sweeper keeps its trials, so that the same command continues the search.
    """

    direction: str | None
    is_stored: bool


@dataclass(frozen=True)
class Study:
    """A study before its jobs start.

    Attributes:
        folder: the folder of the study.
        settings: overrides that name the study in each job.
        old_entries: number of lines in its index.
        search: None for a grid.
    """

    folder: Path
    settings: tuple[str, ...]
    old_entries: int
    search: Search | None = None


@dataclass(frozen=True)
class Entry:
    """A job of a study: a line of its index.

    Attributes:
        number: the index of the job in the multirun that last started it.
        hash: the name of its folder.
        varies: this job's values of the keys that differ between the jobs.
    """

    number: int
    hash: str
    varies: dict[str, str]

    @property
    def settings(self) -> list[str]:
        """The settings that distinguish the job from the others."""
        return [f"{key}={value}" for key, value in self.varies.items()]

    @property
    def label(self) -> str:
        """These settings as one text, or the name of the folder if there are none."""
        return " ".join(self.settings) or self.hash


def plan(request: Request) -> Study:
    """Return the study of a multirun, and set its name in each job.

    Raises:
        UserError: the name is not allowed.
    """
    node = request.jobs[0].node
    name = node.study.name or datetime.now().strftime("%Y-%m-%d/%H-%M-%S-%f")
    if "study.name" in request.varies or not NAME.fullmatch(name):
        raise UserError(
            f"study.name={name} is not allowed: all jobs share one name, which is a folder below sweeps/. Allowed: letters, "
            f"digits and _ . + -, and / between folders."
        )
    for job in request.jobs:
        with read_write(job.node):
            job.node.study.name = name
    folder = request.jobs[0].sweep_folder
    settings = (f"study.name={name}", f"study.varies=[{','.join(request.varies)}]")
    return Study(folder, settings, len(_read_index_lines(folder)), _find_search(node))


def _find_search(node: DictConfig) -> Search | None:
    if OmegaConf.select(node, "hydra.sweeper._target_") in GRIDS:
        return None
    names = ("hydra.sweeper.storage", "hydra.sweeper.study_name")
    return Search(_direction(node), all(OmegaConf.select(node, name) is not None for name in names))


def _direction(node: DictConfig) -> str | None:
    direction = OmegaConf.select(node, "hydra.sweeper.direction")
    return getattr(direction, "name", direction)


def make_entry(node: DictConfig, chosen: Mapping[str, str], folder: Path, number: int) -> Entry:
    """Return a job's entry in the index.

    Args:
        chosen: the chosen value of each group.
        number: the index of the job in the multirun.
    """
    varies = {
        key: chosen[key] if key in chosen else str(OmegaConf.select(node, key)) for key in node.study.varies
    }
    return Entry(number, folder.name, varies)


def name_in_logger(node: DictConfig, entry: Entry) -> None:
    """Set the logger's name, group and tags where it has them and they are empty: to those of the environment, else of the
    study.
    """
    given: dict[str, Any] = {
        "name": short_name(entry.settings) or entry.hash,
        "group": short_name([node.study.name]),
        "tags": [short_name([setting], TAG_LENGTH) for setting in entry.settings],
    }
    given |= from_environment(node.logger)
    with read_write(node), open_dict(node):
        for key, value in given.items():
            if key in node.logger and not node.logger[key]:
                node.logger[key] = value


def append_entry(folder: Path, entry: Entry) -> None:
    """Append an entry to the index of a study, which is locked: jobs on several machines append to it."""
    with (folder / INDEX).open("a+b") as file:
        lock_file(file, INDEX_TIMEOUT)
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        cut_off = file.read() not in (b"", b"\n")  # a crash truncated the last line
        file.write((("\n" if cut_off else "") + checked_line(asdict(entry))).encode())


def read_index(folder: Path, first: int = 0, *, is_search: bool = False) -> list[Entry]:
    """Return the jobs of a study, sorted by number, with the last entry of each job.

    Args:
        first: index of the first line to read.
        is_search: whether to number the jobs in the order of their first entries: each command of a search starts at 0.
    """
    entries = {}
    for line in _read_index_lines(folder)[first:]:
        try:
            entry = Entry(**parse_checked_line(line))
        except (ValueError, TypeError):
            continue  # truncated by a crash, or damaged: the job adds its entry again when it starts
        varies = {RENAMED.get(key, key): value for key, value in entry.varies.items()}
        entries[entry.hash] = replace(entry, varies=varies)
    if is_search:
        return [replace(entry, number=number) for number, entry in enumerate(entries.values())]
    return sorted(entries.values(), key=lambda entry: entry.number)


def _read_index_lines(folder: Path) -> list[bytes]:
    path = folder / INDEX
    return read_lines(path) if path.is_file() else []


def status(folder: Path) -> str:
    """Return the status of a job: "not begun", "running", "cut off", "damaged" or what its `result.json` records."""
    if not folder.is_dir():
        return "not begun"
    if (known := read_result(folder).get("status")) in SCORED:
        return "damaged" if find_damage(folder, "run") else str(known)
    return "running" if is_locked(folder) else known or "cut off"


def check_folder(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse to run a job in the folder of another job. Settings that may change on resume are ignored.

    Args:
        config: the job's plain configuration.

    Raises:
        UserError: the folder contains another configuration.
    """
    path = folder / "config.yaml"
    existing = foreign.load_plain(path) if path.exists() else config
    if computed_settings(existing) != computed_settings(config):
        raise UserError(
            f"{folder} already contains a run with other settings. In a study, leave hydra.sweep.subdir unchanged, or give "
            f"it another name with study.name=NAME. For a single run, choose another folder with hydra.run.dir=FOLDER."
        )


def check_direction(composed: Composed) -> None:
    """Refuse Optuna's sweeper if it would search for the worst value of the monitored metric; it minimizes by default.

    Raises:
        UserError: names the key and the remedy.
    """
    from seq2seq_lab.tasks.parts import build_task
    from seq2seq_lab.training.parts import trainer_settings

    if (given := _direction(composed.node)) is None:
        return
    settings = trainer_settings(composed.config, build_task(composed.config))
    wanted = "maximize" if settings.higher_is_better else "minimize"
    if given != wanted:
        raise UserError(
            f"hydra.sweeper.direction={given} would search for the worst {settings.monitor}. Set "
            f"hydra.sweeper.direction={wanted}, or another trainer.monitor."
        )


def check_unchanged(jobs: Mapping[Path, configuration.Config]) -> None:
    """Call `handle_changes` for all jobs that have begun, before any job starts. Running and damaged jobs are skipped.

    Raises:
        UserError: data or code of a job have changed, and `study.changed` is `refuse`.
    """
    from seq2seq_lab.tasks.parts import data_record
    from seq2seq_lab.training import checkpoint, provenance

    found: dict[Path, list[str]] = {}
    for folder, config in jobs.items():
        if config.study.changed is Changed.keep:
            continue
        if read_finished_result(folder) is None and not checkpoint.any_in(folder / "checkpoints"):
            continue
        if find_damage(folder, "run"):
            continue  # the job is refused when it starts; the others run
        # Before the lock: loading a large data set takes a while.
        provenance.current(config, data_record)
        with suppress(FolderInUseError), lock_folder(folder, timeout=0):
            found |= handle_changes(folder, config)
    refuse_changed(found)


def handle_changes(folder: Path, config: configuration.Config) -> dict[Path, list[str]]:
    """Compare the data and code of a finished or interrupted job with the current ones.

    If they differ, `study.changed=rerun` moves the job's files to another folder. The folder has to be locked.

    Returns:
        the folder and what differs, if `study.changed=refuse`.
    """
    from seq2seq_lab.tasks.parts import data_record
    from seq2seq_lab.training import checkpoint, provenance

    changed = config.study.changed
    begun = read_finished_result(folder) is not None or checkpoint.any_in(folder / "checkpoints")
    if changed is Changed.keep or not begun:
        return {}
    record = read_record(folder)
    differing = [*provenance.differences(record, provenance.current(config, data_record)).values()]
    if not differing:
        return {}
    if changed is Changed.refuse:
        return {folder: differing}
    aside = set_aside(folder)
    print(f"{folder}: run again; its old files are in {aside}. Changed: {'; '.join(differing)}", flush=True)
    return {}


def set_aside(folder: Path) -> Path:
    """Move a job to a new folder, FOLDER.stale-N, and return it. The job's folder is then empty and still locked.

    The job moves in one rename: after a crash it is in one of the two folders. The new folder of the job has the lock of
    this process from its beginning.

    Raises:
        FolderInUseError: another process has started the job between the two renames.
    """
    aside = make_numbered_folder(folder.parent, f"{folder.name}{STALE}")
    folder.rename(aside)  # which replaces the empty folder
    new = aside / "new"
    new.mkdir()
    (aside / LOCK).rename(new / LOCK)  # the lock stays with the file
    try:
        new.rename(folder)  # this also replaces a folder that is empty
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise FolderInUseError(f"{folder} is in use by another run. Wait until it ends.") from error
    return aside


def refuse_changed(found: Mapping[Path, Sequence[str]]) -> None:
    """Refuse jobs whose data or code have changed.

    Raises:
        UserError: lists the jobs and what has changed, if there are any.
    """
    if not found:
        return
    labels = {
        entry.hash: entry.label for folder in {job.parent for job in found} for entry in read_index(folder)
    }
    same: dict[str, list[str]] = {}
    for folder, differing in found.items():
        label = labels.get(folder.name)
        same.setdefault("; ".join(differing), []).append(f"{label} in {folder}" if label else str(folder))
    lines = []
    for differing, jobs in same.items():
        more = f", and {len(jobs) - SHOWN_JOBS} more" if len(jobs) > SHOWN_JOBS else ""
        lines.append(f"\n  {differing}: {', '.join(jobs[:SHOWN_JOBS])}{more}")
    raise UserError(
        f"study.changed=refuse: some jobs of this study were computed with other data or code."
        f"{''.join(lines)}\nRestore what changed, run these jobs again with study.changed=rerun (their old files move to "
        f"HASH{STALE}N), use their results with study.changed=keep, or give the study another name with study.name=NAME."
    )


def format_continue_command(study: Study, arguments: Sequence[str]) -> str:
    """Return what continues an interrupted study: the command that started it, with the study's name.

    The same command of a search adds trials.
    """
    from seq2seq_lab.runtime import console

    named = any(argument.startswith("study.name=") for argument in arguments)
    words = ["python", "-m", "seq2seq_lab", *arguments, *(() if named else study.settings[:1])]
    lines = console.wrap_command([shlex.quote(word) for word in words])
    if study.search is None:
        return "\n".join(["Repeat the command to continue the study; finished jobs are kept:", *lines])
    notes = ["Finish an interrupted trial with: python -m seq2seq_lab resume=FOLDER"]
    if not study.search.is_stored:
        notes.append("Without hydra.sweeper.storage and study_name, it starts a new search.")
    return "\n".join(["Repeat the command for further trials; finished trials are kept:", *lines, *notes])


def shown_values(folder: Path) -> dict[str, str]:
    """Return what `primary_values` returns; nothing for a job whose `result.json` is not what a run records."""
    try:
        return primary_values(folder)
    except UserError as error:
        print(f"{folder}: {error}", flush=True)
        return {}


def print_summary(study: Study) -> None:
    """Print tables of a study's jobs and their scores, and list the jobs without a result."""
    if not (entries := read_index(study.folder, is_search=study.search is not None)):
        return
    started = {entry.hash for entry in read_index(study.folder, study.old_entries)}
    keys = list(dict.fromkeys(key for entry in entries for key in entry.varies))
    rows, finished, failed = [], [], []
    scores = [shown_values(study.folder / entry.hash) for entry in entries]
    labels = list(dict.fromkeys(label for values in scores for label in values))
    for entry, values in zip(entries, scores, strict=True):
        folder = study.folder / entry.hash
        state = status(folder)
        varies = (entry.varies.get(key, "–") for key in keys)
        metrics = (values.get(label, "–") for label in labels)
        rows.append([str(entry.number), entry.hash, *varies, state, *metrics])
        if state in SCORED:
            finished.append(folder)
        elif entry.hash in started and state not in ("running", "not begun"):
            failed.append(f"{entry.label} in {folder}: {outcome(folder, state)}")
    heads = ["job", "folder", *keys, "status", *labels]
    print_table(str(study.folder), heads, rows, numeric=len(labels))
    if study.search is not None:
        print_best(study.folder, entries, study.search)
    if len(finished) > 1:
        from seq2seq_lab.reporting import comparison, runs

        comparison.print_comparison(comparison.compare(runs.group_runs(runs.find_runs(finished)[0]), None))
    if failed:
        print("Jobs without a result:", *failed, sep="\n  ", file=sys.stderr)


def print_best(folder: Path, entries: Sequence[Entry], search: Search) -> None:
    """Print the finished trial of a search that has the best monitored metric, if the sweeper has a direction.

    Args:
        folder: the folder of the study.
    """
    scored = []
    for entry in entries:
        value = score(folder / entry.hash, None)
        if value is not None and math.isfinite(value):
            scored.append((value, f"{value:.5g}: {entry.label} in {folder / entry.hash}"))
    if search.direction is not None and scored:
        choose = max if search.direction == "maximize" else min
        print(f"Best trial: {choose(scored, key=lambda pair: pair[0])[1]}")


def primary_values(folder: Path) -> dict[str, str]:
    """Return the primary metric of a finished job on each split as text, by label such as "test BLEU"; {} for other jobs."""
    result = read_finished_result(folder)
    if result is None:
        return {}
    declared = Declarations.read(result)
    metric = declared.metrics[declared.primary]
    return {
        f"{split} {metric.label}": metric.text(result.get(f"{split}/{declared.primary}")) for split in SPLITS
    }


def outcome(folder: Path, state: str) -> str:
    """Describe the result of a job that has this status."""
    if state in SCORED:
        scores = ", ".join(f"{label} {value}" for label, value in primary_values(folder).items())
        return scores if state == "finished" else f"{state}: {scores}"
    return f"failed: {read_result(folder)['error']}" if state == "failed" else state


def score(folder: Path, monitor: str | None) -> float | None:
    """Return the monitored metric of a finished job's best checkpoint; None for other jobs.

    Args:
        monitor: the configured name of the metric. The result contains the name that null means. In a
            result of an earlier version, which does not contain it, null is the primary metric.
    """
    result = read_finished_result(folder)
    if result is None:
        return None
    value = result.get(result.get("monitor") or monitor or f"val/{Declarations.read(result).primary}")
    return None if value is None else float(value)
