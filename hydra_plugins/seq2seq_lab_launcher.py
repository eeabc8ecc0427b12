"""`hydra/launcher=local`: run the jobs of a multirun side by side on this machine.

Hydra finds plugins in the namespace package `hydra_plugins`. It imports these modules at every start, so they import torch
only in methods.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict


@dataclass
class LocalLauncherConfig:
    """The settings of `LocalLauncher`."""

    _target_: str = "hydra_plugins.seq2seq_lab_launcher.LocalLauncher"
    jobs: int | None = None
    devices: list[int] | None = None


ConfigStore.instance().store(
    group="hydra/launcher", name="local", node=LocalLauncherConfig, provider="seq2seq_lab"
)


@dataclass(frozen=True)
class LocalJob:
    """A job of a multirun.

    Attributes:
        overrides: its settings.
        node: its configuration, with Hydra's section.
    """

    overrides: tuple[str, ...]
    node: DictConfig

    @property
    def folder(self) -> Path:
        """The folder of its run."""
        sweep = self.node.hydra.sweep
        return Path(str(sweep.dir), str(sweep.subdir)).absolute()


class LocalLauncher(Launcher):
    """Starts one process per job, each with its own GPUs, or its own CPU cores and threads.

    The output of a job is in `console.log` in its folder.

    Args:
        jobs: maximum number at a time; None for one per GPU, or one per two cores.
        devices: numbers of the GPUs or cores to use; None for all that this process may use.
    """

    def __init__(self, jobs: int | None, devices: Sequence[int] | None) -> None:
        self.jobs = jobs
        self.devices = devices

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Store Hydra's configuration. The jobs are commands of this program, not calls of the function."""
        self.loader = hydra_context.config_loader
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run jobs and return their results in order.

        Raises:
            UserError: a job needs more devices than there are, or data or code have changed; see `study.handle_changes`.
        """
        from seq2seq_lab.config.job_hash import without_hydra
        from seq2seq_lab.config.run_folder import SCORED
        from seq2seq_lab.config.schema import typed
        from seq2seq_lab.launching import study
        from seq2seq_lab.launching.side_by_side import side_by_side

        setup_globals()
        jobs = [self._job(number, one) for number, one in enumerate(job_overrides, initial_job_idx)]
        study.check_unchanged({job.folder: typed(without_hydra(job.node)) for job in jobs})
        left = {job.folder: job for job in jobs if study.status(job.folder) not in SCORED}
        devices = self._devices([*left.values()]) if left else None
        for job in jobs:
            job.folder.parent.mkdir(parents=True, exist_ok=True)
            study.append_entry(job.folder.parent, self._entry(job))
        commands = {self._command(job): folder for folder, job in left.items()}
        folders = {job.folder for job in jobs}
        print(f"Jobs: {len(folders)}, {len(folders) - len(left)} of them finished before.", flush=True)
        errors: dict[Path, str] = {}
        ended_ones = side_by_side([*commands], devices) if devices else ()
        for done, ended in enumerate(ended_ones, start=1):
            folder = commands[ended.command]
            outcome = study.outcome(folder, study.status(folder))
            if ended.status:
                failed = outcome.startswith("failed")
                errors[folder] = outcome if failed else f"ended with status {ended.status}"
                outcome = f"{errors[folder]}, see {ended.command.log}"
            label = self._entry(left[folder]).label
            print(f"[{done}/{len(left)}] {label}: {outcome}, {ended.seconds:.0f} s", flush=True)
        return [self._returned(job, errors.get(job.folder)) for job in jobs]

    def _job(self, number: int, overrides: Sequence[str]) -> LocalJob:
        node = self.loader.load_sweep_config(self.config, list(overrides))
        with open_dict(node):
            node.hydra.job.num, node.hydra.job.id = number, str(number)
        return LocalJob(tuple(overrides), node)

    def _command(self, job: LocalJob) -> Any:
        from seq2seq_lab.config import extensions
        from seq2seq_lab.config.command_line import setting
        from seq2seq_lab.launching.side_by_side import Command

        own = extensions.folder()
        arguments = (
            *("-m", "seq2seq_lab"),
            *(() if own is None else ("--config-dir", str(own))),
            *(str(override) for override in self.config.hydra.overrides.hydra),
            *job.overrides,
            "hydra.mode=RUN",
            setting("hydra.run.dir", job.folder),
            f"study.number={job.node.hydra.job.num}",
        )
        return Command(arguments, job.folder / "console.log", job.node.trainer.devices)

    def _devices(self, jobs: Sequence[LocalJob]) -> Any:
        import torch

        from seq2seq_lab.errors import UserError
        from seq2seq_lab.launching.side_by_side import Devices, cores
        from seq2seq_lab.runtime.device import choose_device

        kinds = sorted({choose_device(job.node.trainer.device).type for job in jobs})
        if len(kinds) > 1:
            raise UserError(
                f"trainer.device: some jobs run on {kinds[0]}, some on {kinds[1]}. Start them as two studies."
            )
        gpus = kinds == ["cuda"]
        ids: Sequence[Any] = cores()
        if gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            ids = (
                [entry.strip() for entry in visible.split(",")]
                if visible
                else range(torch.cuda.device_count())
            )
        if self.devices is not None:
            # CUDA ignores an unknown GPU, and the job would run on the CPU.
            unknown = {*map(str, self.devices)} - {*map(str, ids)}
            if unknown or len(set(self.devices)) < len(self.devices) or not self.devices:
                raise UserError(
                    f"hydra.launcher.devices={list(self.devices)}: give each device once. Allowed: "
                    f"{', '.join(map(str, ids))}."
                )
            ids = self.devices
        if self.jobs is not None and self.jobs < 1:
            raise UserError(f"hydra.launcher.jobs={self.jobs} is not allowed. Allowed: 1 or more, or null.")
        needed = max((job.node.trainer.devices for job in jobs), default=1)
        if needed > len(ids):
            raise UserError(
                f"trainer.devices={needed}: the launcher has {len(ids)} {'GPUs' if gpus else 'CPU cores'}. Allowed: "
                f"1 to {len(ids)}."
            )
        most = len(ids) if gpus else len(ids) // needed
        usual = most if gpus else max(1, len(ids) // 2)
        return Devices(kinds[0], ids, min(most, len(jobs), self.jobs or usual))

    def _returned(self, job: LocalJob, error: str | None) -> JobReturn:
        from seq2seq_lab.config.job_hash import without_hydra
        from seq2seq_lab.errors import UserError
        from seq2seq_lab.launching import study

        returned = JobReturn(
            overrides=job.overrides, cfg=without_hydra(job.node), working_dir=str(Path.cwd())
        )
        if error is None:
            returned.status = JobStatus.COMPLETED
            returned.return_value = study.score(job.folder, job.node.trainer.monitor)
        else:
            returned.status = JobStatus.FAILED
            returned.return_value = UserError(f"{self._entry(job).label} in {job.folder}: {error}")
        return returned

    def _entry(self, job: LocalJob) -> Any:
        from seq2seq_lab.config.compose import select_choices
        from seq2seq_lab.launching import study

        chosen = select_choices(job.node.hydra.runtime.choices)
        return study.make_entry(job.node, chosen, job.folder, job.node.hydra.job.num)
