"""`python -m seq2seq_lab.dashboard`: a saved W&B workspace with the panels of the comparison's page."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seq2seq_lab.errors import Parser, UserError, report_errors
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.reporting.page import TRAINING_LOSS
from seq2seq_lab.tasks.translation.evaluation import METRICS, PRIMARY, groupings
from seq2seq_lab.tracking.wandb import STEP, has_api_key

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

SAMPLES = 4  # pictures of attention, as trainer.samples


def workspace(entity: str, project: str, study: str | None, by: str) -> "Workspace":
    """Return the workspace without access to the network.

    Args:
        study: the group of runs to show; None for all.
        by: the key to group curves and bars by.

    Raises:
        UserError: W&B's package for workspaces is not installed.
    """
    try:
        import wandb_workspaces.reports.v2 as panels
        import wandb_workspaces.workspaces as workspaces
    except ImportError as error:
        raise UserError(
            "The dashboard needs W&B's workspaces: pip install 'seq2seq_lab[dashboard]'."
        ) from error

    grouped: dict[str, Any] = {
        "groupby": panels.Config(by),
        "groupby_aggfunc": "mean",
        "groupby_rangefunc": "stddev",
    }
    declared = Declarations.of(METRICS, groupings([]), PRIMARY)
    curves = [
        panels.LinePlot(title=f"validation {one.label}", x=STEP, y=[f"val/{name}"], **grouped)
        for name, one in declared.metrics.items()
        if one.shown
    ]
    curves.append(panels.LinePlot(title="training loss", x=STEP, y=[TRAINING_LOSS], **grouped))
    bars = [
        panels.BarPlot(title=f"test {one.label}", metrics=[panels.SummaryMetric(f"test/{name}")], **grouped)
        for name, one in declared.metrics.items()
    ]
    columns = [
        *(
            panels.ParallelCoordinatesPlotColumn(panels.Config(key))
            for key in dict.fromkeys(("encoder", by, "seed"))
        ),
        panels.ParallelCoordinatesPlotColumn(panels.SummaryMetric(f"test/{declared.primary}")),
    ]
    sections = {
        "Curves": curves,
        "Test metrics": bars,
        "Groups of examples": [panels.MediaBrowser(media_keys=[f"test/{key}"]) for key in declared.groupings],
        "Metrics and settings": [
            panels.ParallelCoordinatesPlot(columns=columns),
            panels.RunComparer(diff_only=True),
        ],
        "Attention": [
            panels.MediaBrowser(media_keys=[f"val/attention/{number}"]) for number in range(1, SAMPLES + 1)
        ],
    }
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=f"{study or 'all runs'} by {by}",
        sections=[
            workspaces.Section(name=name, panels=shown, is_open=True) for name, shown in sections.items()
        ],
        runset_settings=workspaces.RunsetSettings(
            filters=workspaces.And(workspaces.Metric("Group") == study) if study else "",
            groupby=[workspaces.Config(by)],
        ),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Save the workspace and print its URL."""
    with report_errors():
        options = parser().parse_args(arguments)
        made = workspace(options.entity, options.project, options.study, options.by)
        if not has_api_key():
            raise UserError(
                "No W&B API key found: the workspace is saved on W&B's server. Log in with `wandb login`."
            )
        print(made.save().url)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = Parser(
        prog="python -m seq2seq_lab.dashboard",
        description="Save a W&B workspace with the panels of the comparison's page.",
    )
    made.add_argument("--entity", required=True, help="the user or team that owns the project")
    made.add_argument("--project", default="seq2seq_lab", help="as logger.project (default: seq2seq_lab)")
    made.add_argument("--study", metavar="NAME", help="show the runs of this study (default: all)")
    made.add_argument(
        "--by", metavar="KEY", default="attention", help="group by this key (default: attention)"
    )
    return made


if __name__ == "__main__":
    main()
