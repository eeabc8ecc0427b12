"""Run a job in one process or in several ranks.

With `trainer.devices=N` this process starts N ranks on this machine and waits for them (PyTorch's elastic agent). A process
started by a launcher such as `torchrun` joins the launcher's other processes, on one or several machines.
"""

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
from torch import distributed
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from seq2seq_lab.config import extensions
from seq2seq_lab.config.schema import Backend, Config
from seq2seq_lab.errors import Preempted, UserError
from seq2seq_lab.files import read_result
from seq2seq_lab.launching.side_by_side import cores
from seq2seq_lab.run import Job, record_end, run
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.device import choose_device
from seq2seq_lab.runtime.ranks import TIMEOUT, Ranks
from seq2seq_lab.runtime.signals import SIGNALS
from seq2seq_lab.runtime.torchrun import is_external_rank

Result = TypeVar("Result")

FORWARDED = (*SIGNALS, signal.SIGHUP, signal.SIGQUIT)  # to the ranks
LOST_SECONDS = 2.0
SHUTDOWN_SECONDS = 120  # for ranks to write a checkpoint after a signal


def launch(job: Job) -> dict[str, Any]:
    """Run a job in this process, or in the number of ranks that it requests, and return its result.

    Raises:
        UserError: `run` raised it on any rank.
    """
    count = job.config.trainer.devices
    if is_external_rank():
        if count != 1 and not job.resume:
            raise UserError(
                f"trainer.devices={count}: a launcher has already started {os.environ['WORLD_SIZE']} processes. Leave "
                f"trainer.devices out."
            )
        with join_ranks() as ranks:
            share_job(ranks, job)
            return _run_external_rank(job, ranks)
    if count == 1:
        return _run_rank(job, Ranks())
    try:
        return spawn(count, _enter_rank, job, extensions.folder())[0]
    except (UserError, RuntimeError, KeyboardInterrupt) as error:
        recorded = read_result(job.folder)
        # Rank 0 was killed, or has recorded how the error of another rank ended it.
        own_error = str(recorded.get("error", "")).partition(": ")[2]
        another = not isinstance(error, KeyboardInterrupt) and (not own_error or own_error not in str(error))
        if not recorded or another:
            record_failure(job.folder, error)
        raise


def follow() -> Path:
    """Wait for the job of rank 0, run it on this rank, and return its folder."""
    with join_ranks() as ranks:
        job = share_job(ranks, None)
        _run_external_rank(job, ranks)
    return job.folder


def record_failure(folder: Path, error: BaseException) -> None:
    """Record in `run.log` and `result.json` an error that `run` has not recorded."""
    with console.setup_logging(folder / "run.log"):
        record_end(folder, error)


def check_devices(config: Config) -> None:
    """Refuse more ranks than this machine has devices; with gloo, ranks may share GPUs.

    Raises:
        UserError: names the number of devices.
    """
    count, device = config.trainer.devices, choose_device(config.trainer.device)
    on_gpus = device.type == "cuda"
    if count == 1 or (on_gpus and config.trainer.backend is Backend.gloo):
        return
    available = {"cuda": torch.cuda.device_count(), "cpu": len(cores())}.get(device.type, 1)
    if count > available:
        unit = "cores" if device.type == "cpu" else "devices"
        shared = ", or more with trainer.backend=gloo, which lets ranks share a GPU" if on_gpus else ""
        raise UserError(
            f"trainer.devices={count}: this machine has {available} {device.type} {unit}. Allowed: 1 to {available}{shared}."
        )


@contextmanager
def join_ranks() -> Iterator[Ranks]:
    """Join the other ranks; the environment contains their address."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    gpus = torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(local_rank % gpus)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(cores()) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    # For Python values; see `Ranks.with_backend`.
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    ranks = Ranks(rank, size, local_rank, store=PrefixStore("run", store))
    if not ranks.main:
        console.mute()
    yield ranks
    # Not after an error: the other ranks would then fail too, and their errors could hide this one.
    distributed.destroy_process_group()


def share_job(ranks: Ranks, job: Job | None) -> Job:
    """Return rank 0's job on every rank."""
    shared = ranks.broadcast(lambda: job)
    assert shared is not None, "rank 0 has composed a job"
    return shared


def spawn(count: int, entry: Callable[..., Result], *arguments: object) -> list[Result]:
    """Call a module-level function in `count` new processes on this machine, and return the results by rank.

    Raises:
        UserError: the first rank to fail raised it.
        RuntimeError: the first rank to fail raised something else, or was killed. It contains the traceback of the rank.
        Preempted: a signal to this process or to a rank has stopped the ranks.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    with tempfile.TemporaryDirectory() as logs, _keep_signal_handlers(), _mute_agent():
        try:
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
                signals_to_handle=",".join(number.name for number in FORWARDED),
                shutdown_timeout=SHUTDOWN_SECONDS,
            )
            results: dict[int, Result] = elastic_launch(settings, _enter_process)(logs, entry, *arguments)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            user_error = _user_error_file(logs, rank)
            if user_error.exists():
                raise UserError(user_error.read_text("utf-8")) from None
            if (number := failure.exitcode - 128) in SIGNALS:
                raise Preempted(number) from None
            # A dict if the rank raised an exception, a text if it was killed.
            message: Any = failure.message
            text = message if isinstance(message, str) else message["extraInfo"]["py_callstack"]
            raise RuntimeError(f"Rank {rank} failed: {text}") from error
        except SignalException as error:
            for process in multiprocessing.active_children():  # after a second signal
                process.kill()
            if error.sigval in SIGNALS:
                raise Preempted(error.sigval) from None
            raise SystemExit(128 + error.sigval) from None
    return [results[rank] for rank in range(count)]


@contextmanager
def _keep_signal_handlers() -> Iterator[None]:
    """Restore the signal handlers on exit: the elastic agent replaces them."""
    before = {number: signal.getsignal(number) for number in FORWARDED}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _mute_agent() -> Iterator[None]:
    """Disable logging in this process while the elastic agent runs: it logs the tracebacks of the ranks."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def leave(status: int = 0) -> NoReturn:
    """End this process without Python's finalization.

    gloo's threads can outlive their process group if DDP has used it. If one of them releases a tensor after Python has
    finalized, the process aborts and the launcher reports the run as failed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _enter_process(logs: str, entry: Callable[..., Result], *arguments: object) -> Result:
    """Entry point of a process that `spawn` starts."""
    try:
        result = entry(*arguments)
    except Preempted as preempted:
        leave(preempted.exit_status)  # this closes its connections, for which other ranks may be waiting
    except UserError as error:
        _user_error_file(logs, int(os.environ["RANK"])).write_text(str(error), "utf-8")
        raise
    except RuntimeError as error:
        if isinstance(error, distributed.DistBackendError) or "gloo/transport" in str(error):
            time.sleep(
                LOST_SECONDS
            )  # the agent reports the rank that ends first: the one that this rank has lost
        raise
    Finalize(None, leave, exitpriority=-100)  # after the agent has received the result
    return result


def _user_error_file(logs: str, rank: int) -> Path:
    """Return the file in which a spawned rank passes the message of a `UserError` to its parent."""
    return Path(logs, f"user_error.{rank}")


def _enter_rank(job: Job, config_dir: Path | None) -> dict[str, Any]:
    """Entry point of a spawned rank."""
    with extensions.using(config_dir), join_ranks() as ranks:
        return _run_rank(job, ranks)


def _run_rank(job: Job, ranks: Ranks) -> dict[str, Any]:
    """Run a job on this rank. Only rank 0 logs, to the console and to run.log."""
    if not ranks.main:
        return run(job, ranks)
    with console.setup_logging(job.folder / "run.log"):
        return run(job, ranks)


def _run_external_rank(job: Job, ranks: Ranks) -> dict[str, Any]:
    """Run a job on a rank that a launcher has started; end the process after a signal."""
    try:
        return _run_rank(job, ranks)
    except Preempted as preempted:
        leave(preempted.exit_status)
