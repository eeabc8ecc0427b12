"""The list of runs: their status, settings, scores and age."""

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq_lab.config import foreign
from seq2seq_lab.config.choices import changed_choices
from seq2seq_lab.config.job_hash import NOT_COMPUTED, computing_lines
from seq2seq_lab.config.run_folder import SCORED, find_damage, read_result, read_run_json
from seq2seq_lab.config.run_folders import RUNS, named_folder, run_folders
from seq2seq_lab.config.upgrade import renamed_settings
from seq2seq_lab.errors import UserError, require, require_list
from seq2seq_lab.launching import study
from seq2seq_lab.runtime.console import age, duration
from seq2seq_lab.runtime.notebook import html_table
from seq2seq_lab.tracking.files import METRICS_FILE

STATUSES = ("running", *SCORED, "failed", "preempted", "interrupted", "cut off", "damaged")
RECORDS = (METRICS_FILE, "result.json", "run.json")  # the newest of them is the end of a run so far
HEADS = ("folder", "status", "settings", "scores", "time", "ended")


@dataclass(frozen=True)
class ListedRun:
    """A run of the list.

    Attributes:
        folder: the folder of the run.
        status: see `study.status`.
        settings: for a job of a study, the settings that differ between its jobs; for another run, those of its command
            line, or `changed_groups` if they are not recorded.
        overrides: the settings of its command line; None if they are not recorded.
        scores: the primary metric on validation and test, by label.
        ended: when the run last wrote a file, in seconds since the epoch.
        seconds: the duration of training and validation; None for a run that has not finished.
    """

    folder: str
    status: str
    settings: str
    overrides: list[str] | None
    scores: dict[str, str]
    ended: float
    seconds: float | None


class RunList(list[ListedRun]):
    """Runs, the newest last, which a notebook shows as a table."""

    def cells(self) -> list[list[str]]:
        """Return the texts of the table, a row for each run, under `HEADS`."""
        now = time.time()
        return [
            [
                run.folder,
                run.status,
                settings,
                study.outcome(Path(run.folder), run.status) if run.status in SCORED else "–",
                "–" if run.seconds is None else duration(run.seconds),
                f"{age(now - run.ended)} ago",
            ]
            for run, settings in zip(self, named_settings(self), strict=True)
        ]

    def _repr_html_(self) -> str:
        return html_table(HEADS, self.cells())


def find(folders: Sequence[str | Path] = (), statuses: Sequence[str] = ()) -> RunList:
    """Return the runs in folders, at any depth, the newest last.

    Args:
        folders: runs or studies; () for outputs and sweeps in the working directory.
        statuses: only runs with these; () for all. They are `STATUSES`.

    Raises:
        UserError: a folder does not exist, no folder contains a run, or a status is not one of `STATUSES`.
    """
    require_list("runs", "folders", folders, "folders")
    require_list("runs", "statuses", statuses, "statuses")
    for status in statuses:
        require(status in STATUSES, "--status", status, ", ".join(STATUSES))
    labels: dict[Path, dict[str, str]] = {}
    seen, found = set[Path](), []
    searched = [named_folder(one) for one in folders] or [folder for folder in RUNS if folder.is_dir()]
    for folder in searched:
        if not folder.is_dir():
            raise UserError(f"{folder}: folder not found. Give folders of runs or of studies.")
        for run in run_folders(folder, seen):
            if run.parent not in labels:
                labels[run.parent] = {entry.hash: entry.label for entry in study.read_index(run.parent)}
            found.append(listed(run, labels[run.parent].get(run.name)))
    if not found:
        where = " ".join(map(str, folders)) or f"{' or '.join(map(str, RUNS))} in {Path.cwd()}"
        raise UserError(
            f"{where}: no run found. Start one with python -m seq2seq_lab, or give other folders."
        )
    kept = [run for run in found if not statuses or run.status in statuses]
    return RunList(sorted(kept, key=lambda run: run.ended))


def listed(folder: Path, label: str | None) -> ListedRun:
    """Return a run of the list.

    Args:
        label: the label of a job of a study.
    """
    result, record = read_result(folder), read_valid_record(folder)
    overrides = renamed_settings(record["overrides"]) if "overrides" in record else None
    seconds = [result[key] for key in ("train/seconds", "val/seconds") if key in result]
    try:
        scores, problem = study.primary_values(folder), record.get("error")
    except UserError as error:
        scores, problem = {}, str(error)
    settings = label or (changed_groups(record.get("choices", {})) if overrides is None else given(overrides))
    return ListedRun(
        folder=str(folder),
        status="damaged" if problem else study.status(folder),
        settings=settings if problem is None else problem,
        overrides=overrides,
        scores=scores,
        ended=max(
            (path.stat().st_mtime for name in RECORDS if (path := folder / name).is_file()), default=0.0
        ),
        seconds=sum(seconds) if seconds else None,
    )


def read_valid_record(folder: Path) -> dict[str, Any]:
    """Return the content of `run.json`, empty if it does not exist, only "error" if it is damaged."""
    if not (folder / "run.json").is_file():
        return {}
    for name, problem in find_damage(folder, "run", "run.json").items():
        return {"error": f"{name} {problem}"}
    try:
        return read_run_json(folder)
    except UserError as error:
        return {"error": str(error)}


def given(overrides: Sequence[str]) -> str:
    """Return the settings of a command line that change what a run computes, as one text."""
    return shlex.join(computing_lines(overrides))


def changed_groups(choices: Mapping[str, str]) -> str:
    """Return the groups whose values are neither the defaults nor set by another group, such as the experiment."""
    return " ".join(f"{group}={value}" for group, value in changed_choices(choices).items())


def named_settings(runs: Sequence[ListedRun]) -> list[str]:
    """Return the settings of each run as text. If several have the defaults and these differ, the text names their code."""
    unnamed = [run for run in runs if not run.settings and run.overrides is not None]
    configs = {run.folder: computed_config(Path(run.folder)) for run in unnamed}
    differ = len({json.dumps(config, sort_keys=True) for config in configs.values()}) > 1
    texts = []
    for run in runs:
        text = run.settings
        if not text and run.overrides is None:
            text = "not recorded"
        elif not text:
            source = read_valid_record(Path(run.folder)).get("source", "unknown")
            text = f"the defaults of source {source[:7]}" if differ else "the defaults"
        texts.append(text)
    return texts


def computed_config(folder: Path) -> dict[str, Any]:
    """Return the sections of `config.yaml` that determine what a run computes; {} if the file is missing or damaged."""
    path = folder / "config.yaml"
    if not path.is_file() or find_damage(folder, "run", path.name):
        return {}
    return {key: value for key, value in foreign.load_plain(path).items() if key not in NOT_COMPUTED}
