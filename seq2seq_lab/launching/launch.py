"""One process or several: where the ranks of a run come from.

With `trainer.devices=N` this process starts N ranks on this machine and waits for them (PyTorch's elastic agent). Under
a launcher that has started a process for each rank already, as `torchrun` does on several machines, this one joins.
"""

import logging
import os
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
from torch import distributed

from seq2seq_lab.config import extensions
from seq2seq_lab.config.schema import Backend, Config
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import read_result
from seq2seq_lab.launching.side_by_side import cores
from seq2seq_lab.run import Job, record_end, run
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.device import choose_device
from seq2seq_lab.runtime.ranks import TIMEOUT, Ranks
from seq2seq_lab.runtime.torchrun import is_external_rank

Result = TypeVar("Result")


def launch(job: Job) -> dict[str, Any]:
    """Run a job in this process, or in as many ranks as it asks for, and return its result.

    Raises:
        UserError: what `run` raises on any rank, or there are not as many devices.
    """
    count = job.config.trainer.devices
    if is_external_rank():
        if count != 1 and not job.resume:
            raise UserError(
                f"trainer.devices={count}: a launcher has started {os.environ['WORLD_SIZE']} processes already. Leave "
                f"trainer.devices out."
            )
        with joined() as ranks:
            share_job(ranks, job)
            return _logged(job, ranks)
    if count == 1:
        return _logged(job, Ranks())
    try:
        check_devices(job.config)
        return spawn(count, _rank, job, extensions.folder())[0]
    except (UserError, RuntimeError, KeyboardInterrupt) as error:
        if not read_result(
            job.folder
        ):  # rank 0 has not recorded it: no rank has started, or rank 0 was killed
            with console.setup_logging(job.folder / "run.log"):
                record_end(job.folder, error)
        raise


def follow() -> Path:
    """Wait for the job of rank 0, run it on this rank, and return its folder."""
    with joined() as ranks:
        job = share_job(ranks, None)
        _logged(job, ranks)
    return job.folder


def check_devices(config: Config) -> None:
    """Refuse a number of ranks that the machine has no devices for; with gloo, ranks may share GPUs.

    Raises:
        UserError: says how many there are.
    """
    count, device = config.trainer.devices, choose_device(config.trainer.device)
    on_gpus = device.type == "cuda"
    if on_gpus and config.trainer.backend is Backend.gloo:
        return
    there = {"cuda": torch.cuda.device_count(), "cpu": len(cores())}.get(device.type, 1)
    if count > there:
        raise UserError(
            f"trainer.devices={count}: this machine has {there} {device.type} "
            f"{'cores' if device.type == 'cpu' else 'devices'}. Allowed: 1 to {there}"
            f"{', or more with trainer.backend=gloo, which lets ranks share a GPU' if on_gpus else ''}."
        )


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the other ranks, whose addresses stand in the environment."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    gpus = torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(local_rank % gpus)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(cores()) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    distributed.init_process_group("gloo", timeout=TIMEOUT)  # of Python values; see `Ranks.connected`
    ranks = Ranks(distributed.get_rank(), distributed.get_world_size(), local_rank)
    if not ranks.main:
        console.mute()
    yield ranks
    # Not after an error: the others would fail for want of this rank, and theirs might be told in place of it.
    distributed.destroy_process_group()


def share_job(ranks: Ranks, job: Job | None) -> Job:
    """Return rank 0's job on every rank."""
    shared = ranks.broadcast(lambda: job)
    assert shared is not None, "rank 0 has composed a job"
    return shared


def spawn(count: int, entry: Callable[..., Result], *arguments: object) -> list[Result]:
    """Call a function of a module in so many new processes of this machine, and return what each returned.

    Raises:
        UserError: what the first to fail has raised.
        RuntimeError: the first to fail has raised something else, or was killed.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    try:
        with tempfile.TemporaryDirectory() as logs, _signals_kept(), _agent_silent():
            settings = LaunchConfig(
                min_nodes=1,
                max_nodes=1,
                nproc_per_node=count,
                run_id=uuid.uuid4().hex,
                rdzv_backend="c10d",
                rdzv_endpoint="localhost:0",
                local_addr="127.0.0.1",
                max_restarts=0,
                monitor_interval=0.1,
                start_method="spawn",
                logs_specs=DefaultLogsSpecs(log_dir=logs),
            )
            results: dict[int, Result] = elastic_launch(settings, _entered)(entry, *arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        # What the rank has raised stands there as a record; of one that was killed there is a sentence.
        record: Any = failure.message
        kind, _, said = (record if isinstance(record, str) else record["message"]).partition(": ")
        if kind == UserError.__name__:
            raise UserError(said) from None
        raise RuntimeError(
            f"Rank {rank} failed. {kind}: {said}" if said else f"Rank {rank}: {kind}"
        ) from error
    except SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise SystemExit(128 + error.sigval) from None
    return [results[rank] for rank in range(count)]


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Give signals back the handlers they have now: the elastic agent sets its own, for good."""
    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in handled}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _agent_silent() -> Iterator[None]:
    """Silence the log of this process, in which nothing but the elastic agent runs: it prints tracebacks of the ranks."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def leave() -> NoReturn:
    """End this process, its work done, without more ado.

    gloo's threads outlive the process group that they belong to, where DDP has held it, and may let go of a tensor after
    Python has ended: that aborts the process, and the launcher takes the whole run for failed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _entered(entry: Callable[..., Result], *arguments: object) -> Result:
    """Be one of the processes that `spawn` starts."""
    result = entry(*arguments)
    Finalize(None, leave, exitpriority=-100)  # after the result has been handed over
    return result


def _rank(job: Job, config_dir: Path | None) -> dict[str, Any]:
    """Be one rank: what the elastic agent runs in each process that it starts."""
    with extensions.using(config_dir), joined() as ranks:
        return _logged(job, ranks)


def _logged(job: Job, ranks: Ranks) -> dict[str, Any]:
    """Run a job on this rank; rank 0's log goes to the console and to run.log, that of others nowhere."""
    if not ranks.main:
        return run(job, ranks)
    with console.setup_logging(job.folder / "run.log"):
        return run(job, ranks)
