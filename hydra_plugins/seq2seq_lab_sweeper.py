"""`hydra/sweeper=cells`, the default: run all combinations of settings, or listed ones, called cells.

Hydra finds plugins in the namespace package `hydra_plugins` and imports these modules at every start.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


@dataclass
class CellsSweeperConfig:
    """The settings of `CellsSweeper`."""

    _target_: str = "hydra_plugins.seq2seq_lab_sweeper.CellsSweeper"
    cells: list[dict[str, Any]] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)


ConfigStore.instance().store(
    group="hydra/sweeper", name="cells", node=CellsSweeperConfig, provider="seq2seq_lab"
)


class CellsSweeper(Sweeper):
    """Runs each cell once for every combination of the other settings.

    Args:
        cells: settings that belong together, by key: `{model: attn, attention: additive}`; empty for one cell without any.
        params: settings of every cell, by key; several values are separated by commas, as on the command line.
    """

    def __init__(self, cells: Sequence[dict[str, Any]], params: dict[str, str]) -> None:
        self.cells = cells
        self.params = params

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Create the launcher. Hydra calls this before `sweep`."""
        self.hydra_context = hydra_context
        self.config = config
        self.launcher: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Sequence[JobReturn]:
        """Run all jobs and return their results in order, or raise the error of the first failed job.

        The command line has composed every value, so each job is composed only when it starts.

        Args:
            arguments: the overrides of the command line.

        Raises:
            UserError: a setting has an interval of values, which other sweepers sample from.
        """
        from seq2seq_lab.config.command_line import parse_overrides
        from seq2seq_lab.config.sweeps import combine, expand_cells, refuse_intervals

        assert self.config is not None, "Hydra calls setup first"
        cells = expand_cells(self.config.hydra.sweeper, parse_overrides(arguments))
        refuse_intervals(cells)
        jobs = [job for overrides in cells for job in combine(overrides)]
        folder = Path(self.config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        results = self.launcher.launch(jobs, initial_job_idx=0)
        for result in results:
            _ = result.return_value  # raises the error of a job that failed
        return results
