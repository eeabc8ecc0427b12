"""`python -m seq2seq_lab.dashboard`: a saved W&B workspace with the panels of the comparison's page."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.errors import Parser, UserError, report_errors
from seq2seq_lab.files import read_finished_result
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.reporting.figures import TRAINING_LOSS
from seq2seq_lab.tasks.parts import build_task
from seq2seq_lab.tracking.wandb import STEP, has_api_key

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

SAMPLES = 4  # pictures of attention, as trainer.samples


def workspace(entity: str, project: str, study: str | None, by: str, declared: Declarations) -> "Workspace":
    """Return the workspace without access to the network.

    Args:
        study: the group of runs to show; None for all.
        by: the key to group curves and bars by.
        declared: the metrics to show.

    Raises:
        UserError: W&B's package for workspaces is not installed.
    """
    try:
        import wandb_workspaces.workspaces as workspaces
    except ImportError as error:
        raise UserError(
            "The dashboard needs W&B's workspaces: pip install 'seq2seq_lab[dashboard]'."
        ) from error
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=f"{study or 'all runs'} by {by}",
        sections=[
            workspaces.Section(name=name, panels=panels, is_open=True)
            for name, panels in sections(declared, by).items()
        ],
        runset_settings=workspaces.RunsetSettings(
            filters=workspaces.And(workspaces.Metric("Group") == study) if study else "",
            groupby=[workspaces.Config(by)],
        ),
    )


def sections(declared: Declarations, by: str) -> dict[str, list[Any]]:
    """Return the panels of the workspace by section."""
    import wandb_workspaces.reports.v2 as panels

    grouped: dict[str, Any] = {
        "groupby": panels.Config(by),
        "groupby_aggfunc": "mean",
        "groupby_rangefunc": "stddev",
    }
    shown = {f"val/{name}": f"validation {one.label}" for name, one in declared.metrics.items() if one.shown}
    keys = [*dict.fromkeys(("encoder", by, "seed"))]
    columns = [panels.ParallelCoordinatesPlotColumn(panels.Config(key)) for key in keys]
    primary = panels.SummaryMetric(f"test/{declared.primary}")
    columns.append(panels.ParallelCoordinatesPlotColumn(primary))
    return {
        "Curves": [
            panels.LinePlot(title=title, x=STEP, y=[key], **grouped)
            for key, title in {**shown, TRAINING_LOSS: "training loss"}.items()
        ],
        "Test metrics": [
            panels.BarPlot(
                title=f"test {one.label}", metrics=[panels.SummaryMetric(f"test/{name}")], **grouped
            )
            for name, one in declared.metrics.items()
        ],
        "Groups of examples": [panels.MediaBrowser(media_keys=[f"test/{key}"]) for key in declared.groupings],
        "Metrics and settings": [
            panels.ParallelCoordinatesPlot(columns=columns),
            panels.RunComparer(diff_only=True),
        ],
        "Attention": [
            panels.MediaBrowser(media_keys=[f"val/attention/{number}"]) for number in range(1, SAMPLES + 1)
        ],
    }


def read_declarations(run: Path | None) -> Declarations:
    """Return the declarations of a run's metrics, or those of the default task.

    Raises:
        UserError: the folder is not that of a finished run.
    """
    if run is None:
        task = build_task(compose_run([]).config)
        return Declarations.of(task.metrics, task.groupings, task.primary)
    result = read_finished_result(run)
    if result is None:
        raise UserError(
            f"--run={run} is not the folder of a finished run. Give one, for example outputs/DATE/TIME."
        )
    return Declarations.read(result)


def main(arguments: Sequence[str] | None = None) -> None:
    """Save the workspace and print its URL."""
    with report_errors():
        options = parser().parse_args(arguments)
        declared = read_declarations(options.run)
        view = workspace(options.entity, options.project, options.study, options.by, declared)
        if not has_api_key():
            raise UserError(
                "No W&B API key found: the workspace is saved on W&B's server. Log in with `wandb login`."
            )
        print(view.save().url)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.dashboard",
        description="Save a W&B workspace with the panels of the comparison's page.",
    )
    arguments.add_argument("--entity", required=True, help="the user or team that owns the project")
    arguments.add_argument(
        "--project", default="seq2seq_lab", help="as logger.project (default: seq2seq_lab)"
    )
    arguments.add_argument("--study", metavar="NAME", help="show the runs of this study (default: all)")
    arguments.add_argument(
        "--run",
        type=Path,
        metavar="FOLDER",
        help="show the metrics of this run (default: those of the default task)",
    )
    arguments.add_argument(
        "--by", metavar="KEY", default="attention", help="group by this key (default: attention)"
    )
    return arguments


if __name__ == "__main__":
    main()
