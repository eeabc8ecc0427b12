"""`python -m seq2seq_lab.dashboard`: a saved W&B workspace with the panels of the comparison's page."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seq2seq_lab.errors import Parser, UserError, report_errors
from seq2seq_lab.reporting.comparison import MEASURES
from seq2seq_lab.reporting.page import CURVES
from seq2seq_lab.tracking.wandb import STEP, has_api_key

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

SAMPLES = 4  # attention pictures of so many sentences, as trainer.samples has it


def workspace(entity: str, project: str, study: str | None, by: str) -> "Workspace":
    """Return the workspace, built and checked without the network.

    Args:
        study: the group of runs that is shown; None for all.
        by: the key that curves and bars are grouped by.

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
    curves = [panels.LinePlot(title=title, x=STEP, y=[name], **grouped) for name, title in CURVES.items()]
    scores = [
        panels.BarPlot(title=measure.head, metrics=[panels.SummaryMetric(measure.name)], **grouped)
        for measure in MEASURES
    ]
    columns = [
        *(
            panels.ParallelCoordinatesPlotColumn(panels.Config(key))
            for key in dict.fromkeys(("encoder", by, "seed"))
        ),
        panels.ParallelCoordinatesPlotColumn(panels.SummaryMetric("test/bleu")),
    ]
    sections = {
        "Curves": curves,
        "Scores": scores,
        "BLEU by source length": [panels.MediaBrowser(media_keys=["test/bleu_by_length"])],
        "Scores and settings": [
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
    """Save the workspace and print its address."""
    with report_errors():
        options = parser().parse_args(arguments)
        made = workspace(options.entity, options.project, options.study, options.by)
        if not has_api_key():
            raise UserError(
                "No key of W&B is known: a workspace is saved on its server. Log in with `wandb login`."
            )
        print(made.save().url)


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    made = Parser(
        prog="python -m seq2seq_lab.dashboard",
        description="Save a W&B workspace with the panels of the comparison's page.",
    )
    made.add_argument("--entity", required=True, help="the user or team whose project it is")
    made.add_argument("--project", default="seq2seq_lab", help="as logger.project (default: seq2seq_lab)")
    made.add_argument("--study", metavar="NAME", help="show the runs of this study (default: all)")
    made.add_argument(
        "--by", metavar="KEY", default="attention", help="group by this key (default: attention)"
    )
    return made


if __name__ == "__main__":
    main()
