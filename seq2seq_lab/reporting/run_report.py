"""The report of a run: tables at the start, metrics at each validation, results and curves at the end."""

import logging
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import RenderableType
from torch import nn

from seq2seq_lab import plots
from seq2seq_lab.config import extensions
from seq2seq_lab.files import finite
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.models.embedding import count_trained
from seq2seq_lab.reporting import baselines, score_tables
from seq2seq_lab.reporting.figures import training_curves
from seq2seq_lab.reporting.run_page import FILE, write_run_page
from seq2seq_lab.reporting.shown import page_files, show_end, show_validation
from seq2seq_lab.reporting.snapshots import Snapshots
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.shades import text_lines
from seq2seq_lab.runtime.tables import parameter_table
from seq2seq_lab.tasks.base import Task, TaskData
from seq2seq_lab.tasks.splits import dotted
from seq2seq_lab.tracking import METRICS_FILE, Tracker, logger_errors
from seq2seq_lab.tracking.files import read_sound_metrics
from seq2seq_lab.training.profiling import components

log = logging.getLogger(__name__)

RECORDS = ("run.json", "result.json", METRICS_FILE)  # uploaded with the best checkpoint


def describe(model: nn.Module, task: Task, compute: Compute) -> None:
    """Print the parameters of the model, the device and the precision before training."""
    console.print_and_log(parameter_table(component_parameters(model)))
    task.describe()
    machine = f"{compute.device.type} in {compute.precision.value} (threads: {torch.get_num_threads()})"
    if compute.ranks.size > 1:
        machine = f"{compute.ranks.size} ranks, each {machine}"
    log.info("Computing on %s.", machine)


def component_parameters(model: nn.Module) -> list[tuple[str, int, int]]:
    """Return (component, parameters, trainable parameters) of a model, with the decoder in parts.

    A tensor that components share counts for the first one.
    """
    seen: set[int] = set()
    rows = []
    parts = components(model)
    if hasattr(model, "decoder"):
        parts.append(("decoder", model.get_submodule("decoder")))  # parameters outside these parts
    for name, module in parts:
        own = list(module.parameters())
        new = [parameter for parameter in own if id(parameter) not in seen]
        seen.update(map(id, new))
        # A readout whose only weights are the target embedding's gets a row of 0; a decoder without further weights no row.
        if new or (own and name != "decoder"):
            total = sum(parameter.numel() for parameter in new)
            rows.append((name, total, count_trained(new, module.modules())))
    return rows


class RunReport:
    """Logs and shows the metrics of a run; the task's own report adds to it.

    Args:
        folder: the run folder.
    """

    def __init__(self, task: Task, data: TaskData, folder: Path, tracker: Tracker) -> None:
        self.task = task
        self.splits = (data.validation, *data.tests)
        self.folder = folder
        self.tracker = tracker
        self.lines: Sequence[str] = ()  # to print at the end
        self.declared = Declarations.of(task.metrics, task.groupings, task.primary)
        self.warned: set[str] = set()  # names of metrics

    def snapshots(self, model: Any, compute: Compute) -> Snapshots:
        """Return what writes the attention over the training."""
        return Snapshots(self.task, self.splits[0], model, compute, self.folder)

    def validation(self, evaluation: Any, step: int) -> None:
        """Log the metrics of a validation and show them on one line."""
        warn_of_values([evaluation], self.warned)
        self.tracker.log_metrics(evaluation.values, step)
        log.info(
            "Validation at step %s: %s",
            f"{step:,}",
            score_tables.values_line(evaluation.values, self.declared),
        )
        split = self.splits[0]
        show_validation(
            self.task.report(split, evaluation, step), split.prefix, self.folder, self.tracker, step
        )

    def end(self, evaluations: Sequence[Any], step: int) -> dict[str, Any]:
        """Report the final evaluations and draw the curves of the training; return the entries of `result.json`."""
        warn_of_values(evaluations, self.warned)
        pairs = list(zip(self.splits, evaluations, strict=True))
        result, self.lines = report_evaluations(
            self.task, pairs, self.declared, folder=self.folder, tracker=self.tracker, step=step
        )
        result |= baselines.measured(self.task, self.splits[1:])
        rows = read_sound_metrics(self.folder / METRICS_FILE)
        curves = training_curves(rows, self.declared, self.task.unit)
        plots.save_for_print(curves, self.folder / "curves.png")
        return result

    def log_result(self, result: Mapping[str, Any], best: Path, run_id: str | None) -> None:
        """Log the summary of a run, and its best checkpoint with the files that open it."""
        files = [best, *(self.folder / name for name in (*self.task.files, *RECORDS))]
        about = {"step": result["steps"], **_best_scores(result)}
        with logger_errors():
            self.tracker.log_artifact(f"checkpoint-{run_id}", "model", files, about)
            self.tracker.record_summary(_summary(result))


def warn_of_values(evaluations: Sequence[Any], warned: set[str]) -> None:
    """Log a warning for each metric that is not finite although it is defined.

    Args:
        warned: the names of the metrics that there was a warning for, to which the new ones are added.
    """
    for evaluation in evaluations:
        for name in evaluation.measurement.not_finite:
            if name not in warned:
                warned.add(name)
                log.warning(
                    "The metric %s is not finite (%s). Correct its method value. If it is undefined for some sums of "
                    "rows, let its method is_defined return false for them.",
                    name,
                    evaluation.measurement.values[name],
                )


def _best_scores(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validation metrics of the best checkpoint as `best/…`; a logger's summary uses `val/…` for curves."""
    return {
        f"best/{name.removeprefix('val/')}": value
        for name, value in result.items()
        if name.startswith("val/") and name != "val/seconds"
    }


def _summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary of a run for a logger."""
    others = {
        name: value
        for name, value in result.items()
        if not name.startswith("val/")
        and name not in ("provenance", "metrics", "page")
        and not name.endswith(f"/{score_tables.WORST_OUTPUTS}")
    }
    return {**others, "val_seconds": result["val/seconds"], **_best_scores(result)}


def report_evaluations(
    task: Task,
    evaluations: Sequence[tuple[Any, Any]],
    declared: Declarations,
    *,
    folder: Path,
    tracker: Tracker,
    step: int,
) -> tuple[dict[str, Any], Sequence[str]]:
    """Log the metrics of final evaluations and write their files.

    Args:
        evaluations: pairs of a split and its evaluation.

    Returns:
        The entries of `result.json`, all finite, and the lines of the validation split to print.
    """
    lines: Sequence[str] = ()
    result: dict[str, Any] = {**declared.result(), "page": {}}
    for split, evaluation in evaluations:
        prefix = split.prefix
        result |= evaluation.measurement.result(prefix)
        score_tables.write_statistics(folder / "scored" / f"{dotted(prefix)}.npz", evaluation.measurement)
        if prefix != "val":
            tracker.log_metrics(evaluation.values, step)
    by_prefix = {split.prefix: evaluation for split, evaluation in evaluations}
    shown = "test" if "test" in by_prefix else "val"  # on pages
    for split, evaluation in evaluations:
        report = task.report(split, evaluation, None)
        show_end(report, split.prefix, folder, tracker, step)
        lines = lines or report.lines
        result["page"] = page_files(report, split.prefix, shown) | result["page"]
        result |= report.entries
        if report.worst:
            result[f"{split.prefix}/{score_tables.WORST_OUTPUTS}"] = report.worst
    for key, grouping in declared.groupings.items():
        tests = {
            prefix: evaluation.measurement.groups[key]
            for prefix, evaluation in by_prefix.items()
            if (prefix != "val" or prefix == shown) and key in evaluation.measurement.groups
        }
        if tests and grouping.ordered:
            picture = folder / f"{key}.png"
            plots.save_for_print(plots.draw_groups(tests, grouping), picture)
            title = f"{grouping.declaration.label} by {grouping.label}"
            tracker.log_images(f"test/{key}", [picture], [title], step)
    result = finite(result)
    scores = score_tables.overall_tables(result, everything=True)[0]
    tracker.log_table("test/scores", ["metric", *scores.heads[1:]], scores.rows, step)
    return result, lines


def resume_command(folder: Path) -> str:
    """Return the command that resumes a run."""
    trust = extensions.option()
    return shlex.join(["python", "-m", "seq2seq_lab", *trust, f"resume={folder}"])


def print_result(
    result: Mapping[str, Any],
    lines: Sequence[str],
    *,
    commands: Mapping[str, Sequence[str]],
    folder: Path,
    sync: str | None,
    url: str | None,
) -> None:
    """Write the page of a run, and print what fits on one screen: the page and the log have all metrics.

    Args:
        lines: of the task's report, such as the attention of a sentence.
        commands: see `Task.commands`.
    """
    cwd = Path.cwd()
    is_below = folder != cwd and folder.is_relative_to(cwd)  # not with hydra.job.chdir=true
    shown = folder.relative_to(cwd) if is_below else folder
    words = next_commands(commands, folder, shown)
    write_run_page(folder, words)
    facts: list[tuple[str, str | Path]] = [("page", shown / FILE)]
    if url:
        facts.append(("W&B", url))
    elif sync is not None:
        facts.append(("W&B", sync.replace(f"{cwd}/", "") if is_below else sync))
    signatures = score_tables.signatures(result, everything=True)
    tables: list[RenderableType] = [
        *score_tables.worst_table(result),
        *score_tables.score_tables(result),
    ]
    console.log_only(console.closing_summary(tables, signatures, {}))
    ended: list[RenderableType] = [text_lines(lines), score_tables.closing_table(result)]
    console.print_and_log(console.closing_summary(ended, facts, words))


def next_commands(commands: Mapping[str, Sequence[str]], folder: Path, shown: Path) -> dict[str, list[str]]:
    """Return commands to continue with after a run, by purpose.

    Args:
        commands: see `Task.commands`.
        shown: the run folder as the commands name it.
    """
    trust = extensions.option()
    others = [path.parent for path in folder.parent.glob("*/result.json") if path.parent != folder]
    compared = [str(shown.parent)] if others else [str(shown), "OTHER_RUN"]
    words = {
        **{
            purpose: [*(str(shown) if word == "RUN" else word for word in command), *trust]
            for purpose, command in commands.items()
        },
        "compare it": ["seq2seq_lab.compare", *compared],
    }
    return {purpose: ["python", "-m", *map(shlex.quote, command)] for purpose, command in words.items()}
