"""Start a run or a job of a study, or resume a run: shared by the command line and the Python API."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seq2seq_lab.config import foreign
from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.command_line import mask_overrides
from seq2seq_lab.config.compose import Composed, compose_repeated, compose_resumed, select_given
from seq2seq_lab.config.run_folder import check_run_files, read_finished_result, read_record
from seq2seq_lab.config.upgrade import upgraded_choices
from seq2seq_lab.errors import ComponentError, UserError
from seq2seq_lab.files import LOCK, FolderInUseError, lock_folder, remove_folder
from seq2seq_lab.launching import checks, study, warm_start
from seq2seq_lab.launching.launch import check_devices, launch, record_failure
from seq2seq_lab.models.tables import check_vectors
from seq2seq_lab.run import Job
from seq2seq_lab.runtime.device import check_precisions, choose_device
from seq2seq_lab.runtime.torchrun import is_external_rank
from seq2seq_lab.tasks.parts import data_record
from seq2seq_lab.tracking.parts import check_logger
from seq2seq_lab.training import checkpoint, provenance
from seq2seq_lab.training.records import remove_result

# Files and folders of a run that could be those of something else.
WRITTEN = (
    "attention",
    "checkpoints",
    "curves.png",
    "metrics.jsonl",
    "report.html",
    "result.json",
    "tokenizer",
)


def check_parts(config: configuration.Config, resumed: bool = False, recorded: bool = False) -> None:
    """Check the components that a configuration names, and that they form a model. No data is read.

    Args:
        resumed: the checkpoint contains the weights and vectors; the files they came from are not needed.
        recorded: the configuration is that of a run; settings without an effect are not refused.

    Raises:
        UserError: names the key, the value and the remedy.
    """
    checks.check_parts(config)
    if not (resumed or recorded):
        checks.check_generated(config)
        checks.check_momentum(config)
    if not resumed:
        check_vectors(config)
        warm_start.check(config)


def check_run(config: configuration.Config, resumed: bool = False, recorded: bool = False) -> None:
    """Check the components of a run, its logger and the devices of this machine; see `check_parts`."""
    check_parts(config, resumed, recorded)
    check_logger(config)
    if not is_external_rank():  # each process of a launcher chooses its device
        check_devices(config)
        if not resumed:  # it computes with the precisions that it recorded
            check_precisions(config.trainer, choose_device(config.trainer.device))


def refuse_existing_run(folder: Path) -> None:
    """Refuse a folder that contains a run, or files that a run would replace.

    Raises:
        UserError: names the folder and the files.
    """
    if (folder / "config.yaml").exists():
        raise UserError(
            f"hydra.run.dir={folder} already contains a run. Choose another folder, or resume the run with resume={folder}."
        )
    if files := [name for name in WRITTEN if (folder / name).exists()]:
        raise UserError(
            f"hydra.run.dir={folder} contains {', '.join(files)}, which a run would replace. Choose another folder."
        )


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Create and lock the folder of a new run.

    A run that ends with a `UserError` before its training (no run.json) has nothing of value: its folder is removed, unless
    it contained files before, or its log has the traceback of an error in a component of the user.

    Raises:
        UserError: the folder contains a run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        refuse_existing_run(folder)
        files = {path.name for path in folder.iterdir()}
        try:
            yield
        except UserError as error:
            begun = (folder / "run.json").exists() or isinstance(error, ComponentError)
            if files == {LOCK} and not begun:
                remove_folder(folder)
                with suppress(OSError):  # the folder of the day has other runs
                    folder.parent.rmdir()
            raise


def start_run(composed: Composed, folder: Path) -> dict[str, Any]:
    """Run a checked configuration in a folder and return the contents of its `result.json`.

    Args:
        folder: created if it does not exist.

    Raises:
        UserError: the folder already contains a run or is in use by another process, or what `launch` raises.
    """
    with new_folder(folder):
        return launch(_job(composed, folder, composed.choices, composed.overrides))


def start_job(
    node: DictConfig, chosen: Mapping[str, str], folder: Path, entry: study.Entry, overrides: Sequence[str]
) -> float | None:
    """Run or resume a job of a study, unless it has finished or another process runs it, and return its score.

    Args:
        node: its configuration, without Hydra's section.
        chosen: the chosen value of each group.
        folder: the folder of the job, created if it does not exist.
        overrides: the settings that the job was composed with.

    Raises:
        UserError: the configuration is invalid, or the folder contains the run of another job.
    """
    study.name_in_logger(node, entry)
    plain = configuration.plain(node)
    config = configuration.typed(plain)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with lock_folder(folder):
            if config.study.number is None:  # otherwise the launcher of the study has added the entry
                study.append_entry(folder.parent, entry)
            _check_existing(folder, plain)
            study.refuse_changed(study.handle_changes(folder, config))
            if read_finished_result(folder) is None:
                remove_result(folder)
                resume = checkpoint.any_in(folder / "checkpoints")
                try:
                    check_run(config, resume)
                except UserError as error:
                    record_failure(folder, error)
                    raise
                given = select_given(overrides, node)
                launch(_job(Composed(node, config, plain), folder, chosen, given, resume))
    except FolderInUseError:
        print(f"{entry.label}: another process is running it, in {folder}", flush=True)
        return None
    print(f"{entry.label}: {study.outcome(folder, study.status(folder))}, {folder}", flush=True)
    return study.score(folder, config.trainer.monitor)


def start_or_resume_run(composed: Composed, folder: Path) -> dict[str, Any]:
    """Resume the run of a folder if it has a checkpoint, otherwise start it; return the contents of its `result.json`.

    Args:
        folder: created if it does not exist.

    Raises:
        UserError: the folder contains a run with other settings or is in use by another process, or what `launch` raises.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        found = check_existing_run(composed, folder)
        if not found and (result := read_finished_result(folder)) is not None:
            print(f"resume=auto: finished; its checkpoints were deleted, in {folder}", flush=True)
            return result
        what = "resuming from the newest checkpoint" if found else "no checkpoint, starting the run"
        print(f"resume=auto: {what}, in {folder}", flush=True)
        return launch(_job(composed, folder, composed.choices, composed.overrides, resume=found))


def check_existing_run(composed: Composed, folder: Path) -> bool:
    """Check a run for a folder that may contain its beginning, and return whether it has a checkpoint.

    Raises:
        UserError: the folder contains a run with other settings or damaged files, or what `check_run` raises.
    """
    _check_existing(folder, composed.plain)
    found = checkpoint.any_in(folder / "checkpoints")
    check_run(composed.config, found)
    return found


def _check_existing(folder: Path, plain: Mapping[str, Any]) -> None:
    """Refuse a folder with a run that has damaged files or other settings."""
    if (folder / "run.json").is_file():
        check_run_files(folder)
    study.check_folder(folder, plain)


def resume_run(folder: Path, changes: Sequence[str]) -> dict[str, Any]:
    """Resume a run from its config.yaml and its newest checkpoint, and return the contents of its `result.json`.

    Raises:
        UserError: the folder contains no run, another process is running it, or a change is not allowed.
    """
    for name in ("config.yaml", "run.json"):
        if not (folder / name).is_file():
            raise UserError(
                f"resume={folder} contains no run that has begun to train (no {name}). Start a new run, or give "
                f"the folder of another run, such as outputs/DATE/TIME."
            )
    with lock_folder(folder):
        composed = compose_resumed(folder, changes)
        check_run(composed.config, resumed=True)
        record = read_record(folder)
        overrides = record.get("overrides")
        if overrides is not None:
            given = {line.partition("=")[0]: line for line in (*overrides, *changes)}
            overrides = [*given.values()]
        choices = upgraded_choices(record["choices"])
        return launch(_job(composed, folder.resolve(), choices, overrides, resume=True))


def repeat_run(folder: Path, target: Path, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Train a run again from its config.yaml, in another folder, and return the contents of the new `result.json`.

    The new run has the precision and the numbers of ranks and threads that run.json records, and no logger.

    Args:
        target: created if it does not exist.
        changes: files and folders that replace recorded ones, `KEY=VALUE`.

    Raises:
        UserError: the data have changed, or what `start_run` raises.
    """
    record = foreign.read_opened_record(folder)
    machine = record["machine"]
    composed = compose_repeated(
        folder,
        {
            "trainer.precision": record["precision"],
            "trainer.test_precision": record["test_precision"],
            "trainer.devices": machine["ranks"],
            "trainer.threads": machine["threads"],
        },
        changes,
    )
    check_run(composed.config, recorded=True)
    differing = provenance.differences(record, provenance.current(composed.config, data_record))
    if "data" in differing:
        raise UserError(f"{folder}: the run was trained on other {differing['data']}. Restore the data.")
    for what in differing.values():
        print(f"Changed since the run: {what}.", file=sys.stderr)
    with new_folder(target):
        chosen = upgraded_choices(record["choices"]) | {"logger": "none"}
        return launch(_job(composed, target, chosen, record.get("overrides")))


def _job(
    composed: Composed,
    folder: Path,
    chosen: Mapping[str, str],
    overrides: Sequence[str] | None,
    resume: bool = False,
) -> Job:
    """Return a job, with secrets masked in the settings of its command line."""
    masked = None if overrides is None else tuple(mask_overrides(overrides))
    return Job(composed.config, composed.plain, dict(chosen), folder, resume, masked)
