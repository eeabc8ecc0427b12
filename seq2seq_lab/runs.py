"""`python -m seq2seq_lab.runs [FOLDER…]`: list runs with their status, scores and age, or show one run."""

import argparse
import json
import shlex
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from seq2seq_lab.config import foreign
from seq2seq_lab.config.choices import changed_choices
from seq2seq_lab.config.job_hash import NOT_COMPUTED
from seq2seq_lab.errors import Parser, UserError, print_visible, report_errors, require
from seq2seq_lab.files import SCORED, find_damage, read_result, read_run_json
from seq2seq_lab.launching import study
from seq2seq_lab.reporting import score_tables
from seq2seq_lab.reporting.runs import run_folders
from seq2seq_lab.runtime import console
from seq2seq_lab.tracking.files import METRICS_FILE

FOLDERS = (Path("outputs"), Path("sweeps"))
FRAME = 800  # milliseconds of a picture of an animation; the last one is shown three times as long
SETTINGS_WIDTH = 60  # letters of a line of the settings of a run in the list
STATUSES = ("running", *SCORED, "failed", "preempted", "interrupted", "cut off", "damaged")
RECORDS = (METRICS_FILE, "result.json", "run.json")  # the newest of them is the end of a run so far


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `parser`."""
    with report_errors():
        options = parser().parse_args(arguments)
        folders = options.folders or [folder for folder in FOLDERS if folder.is_dir()]
        runs = find(folders)
        if options.status:
            wanted = options.status.split(",")
            for status in wanted:
                require(status in STATUSES, "--status", status, ", ".join(STATUSES))
            runs = [run for run in runs if run.status in wanted]
        if options.animate:
            if len(runs) != 1:
                raise UserError(f"--animate={options.animate} needs the folder of one run.")
            animate(Path(runs[0].folder), options.sample, options.animate)
        elif options.json:
            print_visible(json.dumps([asdict(run) for run in runs], indent=2, ensure_ascii=False))
        elif len(runs) == 1 and options.folders == [Path(runs[0].folder)]:
            show(runs[0])
        else:
            print_list(runs)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.runs",
        description="List runs, the newest last, with their status, settings, scores and age. Given the folder of one run, "
        "show all of its scores.",
        epilog="Example: python -m seq2seq_lab.runs sweeps/why --status failed,preempted",
    )
    arguments.add_argument(
        "folders",
        nargs="*",
        type=Path,
        metavar="FOLDER",
        help="runs or studies (default: outputs and sweeps)",
    )
    arguments.add_argument(
        "--status",
        metavar="STATUS,STATUS",
        help=f"only runs with these: {', '.join(STATUSES)}",
    )
    arguments.add_argument(
        "--animate",
        type=Path,
        metavar="FILE.gif",
        help="draw the attention of a sample over the validations of one run",
    )
    arguments.add_argument(
        "--sample", type=int, default=1, metavar="N", help="number of the sample of --animate (default: 1)"
    )
    arguments.add_argument("--json", action="store_true", help="print the list as JSON")
    return arguments


def find(folders: Sequence[Path]) -> list[ListedRun]:
    """Return the runs in folders, at any depth, the newest last.

    Raises:
        UserError: a folder does not exist, or no folder contains a run.
    """
    labels: dict[Path, dict[str, str]] = {}
    seen, found = set[Path](), []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: folder not found. Give folders of runs or of studies.")
        for run in run_folders(folder, seen):
            if run.parent not in labels:
                labels[run.parent] = {entry.hash: entry.label for entry in study.read_index(run.parent)}
            found.append(listed(run, labels[run.parent].get(run.name)))
    if not found:
        where = " ".join(map(str, folders)) or f"{' or '.join(map(str, FOLDERS))} in {Path.cwd()}"
        raise UserError(
            f"{where}: no run found. Start one with python -m seq2seq_lab, or give other folders."
        )
    return sorted(found, key=lambda run: run.ended)


def listed(folder: Path, label: str | None) -> ListedRun:
    """Return a run of the list.

    Args:
        label: the label of a job of a study.
    """
    result, record = read_result(folder), read_valid_record(folder)
    overrides = record.get("overrides")
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
    kept = [
        line
        for line in overrides
        if line.lstrip("+~").partition("=")[0].partition(".")[0] not in NOT_COMPUTED
    ]
    return shlex.join(kept)


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
    config: Any = OmegaConf.to_container(foreign.load_config(path))
    return {key: value for key, value in config.items() if key not in NOT_COMPUTED}


def print_list(runs: Sequence[ListedRun]) -> None:
    """Print a table of runs."""
    rows = [
        [
            *(
                run.folder,
                run.status,
                textwrap.fill(settings, SETTINGS_WIDTH, break_long_words=False, break_on_hyphens=False),
            ),
            study.outcome(Path(run.folder), run.status) if run.status in (*SCORED, "failed") else "–",
            "–" if run.seconds is None else duration(run.seconds),
            f"{age(time.time() - run.ended)} ago",
        ]
        for run, settings in zip(runs, named_settings(runs), strict=True)
    ]
    console.print_table(
        "1 run" if len(runs) == 1 else f"{len(runs)} runs",
        ["folder", "status", "settings", "scores", "time", "ended"],
        rows,
        numeric=2,
    )
    if len([run for run in runs if run.status in SCORED]) > 1:
        print("Compare finished runs: python -m seq2seq_lab.compare FOLDER…")


def show(run: ListedRun) -> None:
    """Print the scores of a run and its settings, time and machine."""
    from seq2seq_lab.training import checkpoint

    folder = Path(run.folder)
    result, record = read_result(folder), read_valid_record(folder)
    facts = {
        "status": f"{run.status}, {age(time.time() - run.ended)} ago",
        "error": record.get("error") or result.get("error"),
        "settings": None
        if run.overrides and run.settings == given(run.overrides)
        else named_settings([run])[0],
        "overrides": None if run.overrides is None else shlex.join(run.overrides) or "none",
        "steps": result.get("steps"),
        "parameters": f"{result['num_parameters']:,}" if "num_parameters" in result else None,
        "time": None if run.seconds is None else f"{duration(run.seconds)} of training and validation",
        "machine": describe_machine(record.get("machine", {})),
        "commit": record.get("commit"),
    }
    if copied := record.get("copy_of"):
        facts["copy of"] = (
            f"run {copied.get('run_id') or 'without an id'}, resumed from {copied.get('checkpoint')}"
        )
    tables = score_tables.score_tables(result, everything=True) if run.status in SCORED else []
    shown = [(label, str(text)) for label, text in facts.items() if text is not None]
    commands = {}
    if run.status in SCORED:
        commands["compare it with other runs"] = ["seq2seq_lab.compare", str(folder), "FOLDER"]
    elif run.status in ("preempted", "interrupted", "cut off") and checkpoint.any_in(folder / "checkpoints"):
        commands["resume it"] = ["seq2seq_lab", f"resume={folder}"]
    quoted = {what: ["python", "-m", *map(shlex.quote, words)] for what, words in commands.items()}
    console.console().print(console.closing_summary(tables, shown, quoted))


def describe_machine(machine: Mapping[str, Any]) -> str | None:
    """Return the device, its threads and the version of torch; None if they are not recorded."""
    return (
        f"{machine['device_name']}, {machine['threads']} threads, torch {machine['torch']}"
        if machine
        else None
    )


def animate(folder: Path, sample: int, path: Path) -> None:
    """Write the pictures of a sample's attention at each validation of a run as an animation.

    Raises:
        UserError: the name of the file does not end in .gif, or the run has no such pictures.
    """
    from PIL import Image

    if path.suffix.lower() != ".gif":
        raise UserError(f"--animate={path}: the file has to end in .gif.")
    pattern = f"sample_{sample}_step_*.png"
    pictures = sorted((folder / "attention").glob(pattern))
    if not pictures:
        raise UserError(
            f"{folder}: no pictures attention/{pattern}. The run has no attention, or fewer than {sample} samples "
            f"(trainer.samples)."
        )
    first, *others = [Image.open(picture).convert("RGB") for picture in pictures]
    path.parent.mkdir(parents=True, exist_ok=True)
    milliseconds = [FRAME] * len(others) + [3 * FRAME]
    first.save(path, save_all=True, append_images=others, duration=milliseconds, loop=0)
    print(f"written: {path}")


def duration(seconds: float) -> str:
    """Return seconds as H:MM:SS."""
    return str(timedelta(seconds=round(seconds)))


def age(seconds: float) -> str:
    """Return seconds in the largest unit that is not above them, such as "3 h"."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


if __name__ == "__main__":
    main()
