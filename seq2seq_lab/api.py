"""The Python interface: train a run, and open it."""

import os
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from seq2seq_lab.analysis.difference import difference as difference
from seq2seq_lab.config import compose, extensions, foreign
from seq2seq_lab.config.run_folder import read_result
from seq2seq_lab.config.run_folders import named_folder, named_folders
from seq2seq_lab.config.schema import TASK_GROUPS, Config, Device, Precision, check, typed
from seq2seq_lab.config.slots import check_slot
from seq2seq_lab.config.type_checks import wrong_type
from seq2seq_lab.errors import UserError, require, require_list, storage_errors
from seq2seq_lab.launching.evaluation import evaluate
from seq2seq_lab.launching.launch import follow
from seq2seq_lab.launching.listing import find
from seq2seq_lab.launching.start import check_run, start_run
from seq2seq_lab.models.recurrent import report_float32_lstm
from seq2seq_lab.reporting.comparison import Table, compare_folders, with_distances
from seq2seq_lab.reporting.studio_page import show
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.console import progress_bar
from seq2seq_lab.runtime.device import check_precision, choose_device, gpu_of_rank, limit_primitive_cache
from seq2seq_lab.runtime.torchrun import is_secondary_rank
from seq2seq_lab.search.base import Search
from seq2seq_lab.tasks.base import Task
from seq2seq_lab.tasks.loaded import Loaded as Loaded
from seq2seq_lab.tasks.loaded import Opening
from seq2seq_lab.tasks.loaded import Prediction as Prediction
from seq2seq_lab.tasks.parts import KINDS, build_search, build_task, check_groups
from seq2seq_lab.tasks.translation.loaded import LoadedTranslation as LoadedTranslation
from seq2seq_lab.tasks.translation.loaded import Translation as Translation
from seq2seq_lab.tasks.translation.loaded import ensemble as ensemble
from seq2seq_lab.tracking.wandb import fetch_run_folder
from seq2seq_lab.training import checkpoint as checkpoints
from seq2seq_lab.training import provenance
from seq2seq_lab.training.threads import undo_recorded_threads, use_recorded_threads

Choice = TypeVar("Choice", bound=Enum)

CHECKPOINTS = "checkpoints"  # the folder of a run
MAX_LAYERS = 1000  # of a run of someone else

runs = find


def train(
    overrides: Sequence[str] = (), folder: str | Path | None = None, config_dir: str | Path | None = None
) -> Any:
    """Train a run as the command line with the same settings does, and open it.

    Returns:
        See `load`.

    Args:
        overrides: settings as on the command line: `["model=vanilla", "trainer.max_epochs=3"]`.
        folder: the run folder; None for outputs/DATE/TIME below the working directory.
        config_dir: a folder of custom components, as `--config-dir`; its Python files are trusted.

    Raises:
        UserError: the settings or the data cannot be used.
    """
    require_list("train", "settings", overrides, split=True)
    overrides = [*overrides]
    for one in overrides:
        require(isinstance(one, str), "overrides", repr(one), "texts such as 'model=attn'")
    undo_recorded_threads()
    with extensions.using(config_dir):
        composed = compose.compose_run(named_folders(overrides))
        target = composed.run_folder if folder is None else Path(folder).absolute()
        with storage_errors():
            if is_secondary_rank():
                target = follow()
            else:
                check_run(composed.config)
                start_run(composed, target)
    return load(target, config_dir=config_dir, device=composed.config.trainer.device.value)


def load(
    folder: str | Path,
    *,
    config_dir: str | Path | None = None,
    device: str = "auto",
    precision: str = "fp32",
    changes: Sequence[str] = (),
    checkpoint: str | None = None,
) -> Any:
    """Open a run of any task, by default with the weights of its best checkpoint.

    On a CPU, this process then computes with at most the number of threads that the run was trained with: it was measured
    (`trainer.threads=auto`), and more threads may wait for each other at every small operation.

    Args:
        folder: the run folder, `latest` for the newest one in outputs and sweeps, `demo` for the run in the package, or a
            checkpoint at W&B: `ENTITY/PROJECT/checkpoint-RUN_ID:latest`.
        config_dir: the folder of custom components that the run was trained with; its Python files are trusted.
        device: auto (CUDA, then MPS, then CPU), cuda, mps or cpu.
        precision: fp32, tf32, bf16 or fp16; auto for the precision of the run's test scores (`trainer.test_precision`).
        changes: settings of `search` and `dataset` that replace those of the run: `["search=beam", "search.size=10"]`.
        checkpoint: the name of a checkpoint in `checkpoints/`. Several names, separated by commas, or `last:N` mean the
            average of their weights.

    Returns:
        An object of the task's type `Task.loaded`, such as a `LoadedTranslation`, or a `Loaded` for a task that does not set
        it.

    Raises:
        UserError: the folder contains no run with a checkpoint, or the run names a class that is not trusted.
    """
    require_list("load", "changes", changes, "changes", split=True)
    folder = named_folder(folder)
    if config_dir is not None:
        config_dir = Path(config_dir).absolute()
    if folder.parent.name == CHECKPOINTS and (folder.parents[1] / "run.json").is_file():
        raise UserError(
            f"{folder} is a checkpoint. Open its run with this checkpoint: seq2seq_lab.load({str(folder.parents[1])!r}, "
            f"checkpoint={folder.name!r}), or in a program {folder.parents[1]} --checkpoint {folder.name}."
        )
    folder = fetch_run_folder(folder)
    wanted = _choice(Precision, "precision", precision)
    # The processes of `evaluate --devices` are distributed over the GPUs.
    gpu = gpu_of_rank(int(os.environ.get("LOCAL_RANK", "0")))
    chosen_device = choose_device(_choice(Device, "device", device), gpu)
    check_precision("precision", wanted, chosen_device)
    with extensions.using(config_dir):
        limit_primitive_cache()
        config = typed(compose.compose_opened(folder, changes))
        check(config)
        task = open_task(config, changes)
        record = foreign.read_opened_record(folder)
        if wanted is Precision.auto:
            wanted = Precision(record["test_precision"])
        weights = checkpoints.named(folder / CHECKPOINTS, checkpoint)
        code = provenance.components(config)
        if not is_secondary_rank():
            provenance.warn_of_changed_components(folder, record, config)
        task.open(folder)
        if not foreign.is_own(folder):  # before memory is taken for a model of any size
            check_size(folder, config, task, weights[0])
        with torch.random.fork_rng(devices=[]):  # the initial weights are replaced
            model = task.model()
        checkpoints.load_average(weights, model)
    if chosen_device.type == "cpu":
        use_recorded_threads(record)
    compute = Compute(chosen_device, wanted)
    report_float32_lstm(model, compute)
    checksums = tuple(map(checkpoints.checksum, weights))
    absolute = folder.absolute()  # it is read again after a change of the current folder
    changes = tuple(changes)
    search = partial(build_changed_search, absolute, config_dir, changes)
    opening = Opening(
        str(folder), config_dir, precision, changes, checkpoint, evaluate, search, checksums, code, show
    )
    return task.loaded(
        folder=absolute,
        config=config,
        result=read_result(folder) or None,
        task=task,
        model=model.to(chosen_device).eval(),
        compute=compute,
        checkpoint=",".join(map(checkpoints.name_of, weights)),
        opening=opening,
    )


def compare(
    folders: Sequence[str | Path],
    by: Sequence[str] = (),
    baseline: str | None = None,
    metric: str | None = None,
    *,
    attention: bool = False,
    config_dir: str | Path | None = None,
    **options: Any,
) -> Table:
    """Compare the finished runs in folders.

    Args:
        folders, by, baseline, metric, options: see `reporting.comparison.compare_folders`.
        attention: also open the runs, in float32, and measure how far apart their attention and their predictions are.
        config_dir: for `attention`: the folder of custom components of the runs; its Python files are trusted.

    Raises:
        UserError: a folder does not exist, no run is finished, a name is not one of these runs, or a run cannot be opened.
    """
    require(attention or config_dir is None, "--config-dir", config_dir, "left out without --attention")
    table = compare_folders(folders, by, baseline, metric, **options)
    if not attention:
        return table
    with progress_bar("attention, examples") as counted:
        return with_distances(table, baseline, partial(load, config_dir=config_dir), counted)


@cache
def build_changed_search(
    folder: Path, config_dir: str | Path | None, opened: tuple[str, ...], changes: tuple[str, ...]
) -> tuple[Search, dict[str, Any]]:
    """Return the search of an opened run with changed settings, and its settings; see `Opening.search`.

    Raises:
        UserError: a setting of another group, or a value that is not allowed.
    """
    for change in changes:
        require(change.startswith(("search=", "search.")), "search", change, "settings of search=…")
    if any(change.startswith("search=") for change in changes):
        opened = tuple(one for one in opened if not one.startswith(("search=", "search.")))
    with extensions.using_in_turn(config_dir):  # the studio has threads
        config = typed(compose.compose_opened(folder, [*opened, *changes]))
        slot = config.search or {}
        check_slot("search", slot, KINDS)
        return build_search(config), {key: value for key, value in slot.items() if key != "_target_"}


def check_size(folder: Path, config: Config, task: Task, weights: Path) -> None:
    """Refuse a run of someone else whose weights do not match the model that its configuration describes.

    Raises:
        UserError: names the difference.
    """
    if config.model.num_layers > MAX_LAYERS:
        raise UserError(
            f"{folder}: model.num_layers={config.model.num_layers} is above {MAX_LAYERS}. Use another run."
        )
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        model = task.model()
    if (difference := checkpoints.mismatch(weights, model)) is not None:
        raise UserError(
            f"{folder}: the weights are not of the model in its config.yaml: {difference}. Use another run."
        )


def open_task(config: Config, changes: Sequence[str]) -> Task:
    """Return the task of a run.

    Args:
        changes: the settings that replace those of the run.

    Raises:
        UserError: the run names a class that is not trusted, or the task does not use the group of a change.
    """
    for slot in ("task", *TASK_GROUPS):
        if slot not in ("dataset", "teacher_forcing") and getattr(config, slot) is not None:
            check_slot(slot, getattr(config, slot), KINDS)
    changed = {change.partition("=")[0].partition(".")[0] for change in changes}
    check_groups(config, changed.intersection(TASK_GROUPS))
    return build_task(replace(config, metric={}))  # metrics need --config-dir, and only `evaluate` uses them


def _choice(kind: type[Choice], argument: str, value: str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        raise UserError(wrong_type(f"{argument}={value!r}", value, kind)) from None
