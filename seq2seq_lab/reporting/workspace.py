"""A saved W&B workspace with the panels of the comparison's page."""

from typing import TYPE_CHECKING, Any

from seq2seq_lab.config import foreign
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.reporting.comparison import Table
from seq2seq_lab.reporting.figures import TRAINING_LOSS
from seq2seq_lab.reporting.runs import FIRST
from seq2seq_lab.tracking.wandb import STEP, has_api_key

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

SAMPLES = 4  # pictures of attention, as task.samples


def save_workspace(table: Table, path: str) -> str:
    """Save a workspace of the runs of a comparison, and return its URL.

    It is grouped by the settings that distinguish the rows, and shows the runs of one study alone if all are of this study.

    Args:
        path: ENTITY/PROJECT.

    Raises:
        UserError: the path is malformed, W&B's package for workspaces is not installed, or no API key is known.
    """
    entity, _, project = path.partition("/")
    if not entity or not project or "/" in project:
        raise UserError(f"--wandb={path} is not the path of a project. Allowed: ENTITY/PROJECT.")
    runs = [run for group in table.groups for run in group.runs]
    studies = {foreign.load_config(run.folder / "config.yaml").logger.get("group") for run in runs}
    study = studies.pop() if len(studies) == 1 else None
    by = next(iter(table.groups[0].varies), "attention")
    view = workspace(entity, project, study, by, runs[0].declared, table.split)
    if not has_api_key():
        raise UserError(
            "No W&B API key found: the workspace is saved on W&B's server. Log in with `wandb login`."
        )
    return str(view.save().url)


def workspace(
    entity: str, project: str, study: str | None, by: str, declared: Declarations, split: str = FIRST
) -> "Workspace":
    """Return the workspace without access to the network.

    Args:
        study: the group of runs to show; None for all.
        by: the key to group curves and bars by.
        declared: the metrics to show.
        split: the prefix of the metrics in the bars.

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
            for name, panels in sections(declared, by, split).items()
        ],
        runset_settings=workspaces.RunsetSettings(
            filters=workspaces.And(workspaces.Metric("Group") == study) if study else "",
            groupby=[workspaces.Config(logged(by))],
        ),
    )


def logged(key: str) -> str:
    """Return the key under which W&B has a setting or a choice; see `WandbTracker`."""
    return f"config.{key}" if "." in key else key


def sections(declared: Declarations, by: str, split: str) -> dict[str, list[Any]]:
    """Return the panels of the workspace by section."""
    import wandb_workspaces.reports.v2 as panels

    grouped: dict[str, Any] = {
        "groupby": panels.Config(logged(by)),
        "groupby_aggfunc": "mean",
        "groupby_rangefunc": "stddev",
    }
    shown = {f"val/{name}": f"validation {one.label}" for name, one in declared.metrics.items() if one.shown}
    keys = [*dict.fromkeys(("encoder", logged(by), "seed"))]
    columns = [panels.ParallelCoordinatesPlotColumn(panels.Config(key)) for key in keys]
    primary = panels.SummaryMetric(f"{split}/{declared.primary}")
    columns.append(panels.ParallelCoordinatesPlotColumn(primary))
    return {
        "Curves": [
            panels.LinePlot(title=title, x=STEP, y=[key], **grouped)
            for key, title in {**shown, TRAINING_LOSS: "training loss"}.items()
        ],
        "Test metrics": [
            panels.BarPlot(
                title=f"{split} {one.label}", metrics=[panels.SummaryMetric(f"{split}/{name}")], **grouped
            )
            for name, one in declared.metrics.items()
        ],
        "Groups of examples": [panels.MediaBrowser(media_keys=[f"test/{key}"]) for key in declared.groupings],
        "Metrics and settings": [
            panels.ParallelCoordinatesPlot(columns=columns),
            panels.RunComparer(diff_only=True),
        ],
        "Attention": [
            panels.MediaBrowser(media_keys=[f"val/attention/{sample}"]) for sample in range(1, SAMPLES + 1)
        ],
    }
