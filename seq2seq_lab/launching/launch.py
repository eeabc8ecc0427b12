"""Run a job in one process or in several ranks.

With `trainer.devices=N` this process starts N ranks on this machine and waits for them (PyTorch's elastic agent). A process
started by a launcher such as `torchrun` joins the launcher's other processes, on one or several machines.
"""

import json
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from datetime import timedelta
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import torch
from torch import distributed
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from seq2seq_lab import run
from seq2seq_lab.config import extensions
from seq2seq_lab.config.run_folder import MANIFEST, read_result
from seq2seq_lab.config.schema import Backend, Config
from seq2seq_lab.errors import ComponentError, Preempted, UserError, storage_errors
from seq2seq_lab.files import remove_temporary_files
from seq2seq_lab.launching.side_by_side import cores
from seq2seq_lab.run import Job, record_end
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.device import choose_device, gpu_of_rank
from seq2seq_lab.runtime.ranks import NO_TIMEOUT, Ranks, has_lost_rank
from seq2seq_lab.runtime.signals import SIGNALS, StopSignals, is_ignored
from seq2seq_lab.runtime.torchrun import is_external_rank
from seq2seq_lab.runtime.watch import Limits, watched
from seq2seq_lab.streams import optional_output
from seq2seq_lab.training import checkpoint
from seq2seq_lab.training.records import remove_result

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

log = logging.getLogger(__name__)

Result = TypeVar("Result")

FORWARDED = (*SIGNALS, signal.SIGQUIT)  # to the ranks
JOIN_TIMEOUT = timedelta(minutes=5)  # for all ranks to start
RESUME_TIMEOUT = timedelta(hours=1)  # the same with resume=RUN: rank 0 first hashes the input files
LOST_SECONDS = 2.0  # for the rank that others have lost to be reported first
ERROR_KEY = "error"  # in the store: the rank that has failed first, and its traceback
USER_ERROR_FILE = "user_error.json"  # of a spawned rank: whether it is that of a component, and its message
SHUTDOWN_SECONDS = 120  # for ranks to write a checkpoint after a signal


class RankKilledError(RuntimeError):
    """SIGKILL, for example from the system when memory is exhausted, has ended a rank of this machine."""


def launch(job: Job) -> dict[str, Any]:
    """Run a job in this process, or in the number of ranks that it requests, and return its result.

    Raises:
        UserError: `run.experiment` raised it on any rank, or a rank made no progress.
        RankKilledError: a rank of this machine was killed, also after `trainer.max_restarts` restarts.
    """
    count = job.config.trainer.devices
    with _signal_passed_on(), optional_output():
        _prepare_folder(job)
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
            with _running(job, Ranks()) as stop:
                return run.experiment(job, Ranks(), stop)
        return _spawn_ranks(job)


@contextmanager
def _signal_passed_on() -> Iterator[None]:
    """Call the handler that this process has for the signal that has stopped a run: submitit's queues the job again."""
    try:
        yield
    except Preempted as stopped:
        handler = signal.getsignal(stopped.number)
        if callable(handler) and handler is not signal.default_int_handler:
            handler(stopped.number, None)
        raise


def _prepare_folder(job: Job) -> None:
    """Remove what an earlier start has left, and write the config.yaml of a new run.

    A resumed run writes its own after its checkpoint has been accepted.
    """
    with storage_errors(job.folder):
        remove_temporary_files(job.folder)
        if job.resume:
            return
        remove_result(job.folder)  # before the manifest that covers it
        for name in ("run.json", MANIFEST):  # of a job that failed before its first checkpoint
            (job.folder / name).unlink(missing_ok=True)
        run.write_config(job)


def _spawn_ranks(job: Job) -> dict[str, Any]:
    """Run a job in ranks on this machine. After one was killed, resume it at most `trainer.max_restarts` times."""
    settings, restarts = job.config.trainer, 0
    while True:
        try:
            return spawn(settings.devices, _enter_rank, job, extensions.folder())[0]
        except (UserError, RuntimeError, KeyboardInterrupt) as error:
            recorded = read_result(job.folder)
            # Rank 0 was killed, or has recorded how the error of another rank ended it.
            own_error = str(recorded.get("error", "")).partition(": ")[2]
            another = not isinstance(error, KeyboardInterrupt) and (
                not own_error or own_error not in str(error)
            )
            if not recorded or another:
                record_failure(job.folder, error)
            if not isinstance(error, RankKilledError) or restarts == settings.max_restarts:
                raise
            restarts += 1
            job = replace(job, resume=checkpoint.any_in(job.folder / "checkpoints"))
            with console.setup_logging(job.folder / "run.log"):
                log.warning(
                    "%s. Restart %s of %s (trainer.max_restarts), from %s.",
                    error,
                    restarts,
                    settings.max_restarts,
                    "the newest checkpoint" if job.resume else "the beginning",
                )
            _prepare_folder(job)


def follow(resumed: bool = False) -> Path:
    """Wait for the job of rank 0, run it on this rank, and return its folder.

    Args:
        resumed: whether rank 0 resumes a run.
    """
    with join_ranks(RESUME_TIMEOUT if resumed else JOIN_TIMEOUT) as ranks:
        job = share_job(ranks, None)
        _run_external_rank(job, ranks)
    return job.folder


def report(folder: Path, message: str) -> None:
    """Print an error of the watch of the ranks, and record it unless a rank has recorded how the run has ended."""
    print(f"error: {message}", file=sys.stderr)
    if not read_result(folder):
        record_failure(folder, UserError(message))


def record_failure(folder: Path, error: BaseException) -> None:
    """Record in `run.log` and `result.json` an error that `run.recorded` has not recorded."""
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
def join_ranks(timeout: timedelta = JOIN_TIMEOUT) -> Iterator[Ranks]:
    """Join the other ranks; the environment contains their address.

    Args:
        timeout: for the other ranks to start.

    Raises:
        UserError: the port is in use, a rank has not started, or LOCAL_RANK is missing where there are several GPUs.
    """
    if "LOCAL_RANK" not in os.environ and torch.cuda.device_count() > 1:
        raise UserError(
            "LOCAL_RANK is not set: the number of the rank on its machine, from 0, which chooses its GPU. Start each rank "
            "with it; see docs/parallel.md."
        )
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.device_count():
        torch.cuda.set_device(gpu_of_rank(local_rank))
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(cores()) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    try:
        store, rank, size = next(rendezvous("env://", timeout=timeout))
    except distributed.DistError as error:
        port = os.environ["MASTER_PORT"]
        raise UserError(
            f"The ranks cannot meet at MASTER_ADDR={os.environ['MASTER_ADDR']}, MASTER_PORT={port}: {error}. Choose a free "
            f"port, and check that the launcher starts {os.environ['WORLD_SIZE']} processes (WORLD_SIZE)."
        ) from None
    _wait_for_all(store, rank, size, timeout)
    # For Python values; see `Ranks.with_backend`.
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=NO_TIMEOUT)
    ranks = Ranks(rank, size, local_rank, store=PrefixStore("run", store))
    if not ranks.main:
        console.mute()
    yield ranks
    # Not after an error: the other ranks would then fail too, and their errors could hide this error.
    distributed.destroy_process_group()


def _wait_for_all(store: Store, rank: int, size: int, timeout: timedelta) -> None:
    """Wait until all ranks have started.

    Raises:
        UserError: names the ranks that have not.
    """
    keys = [f"started.{other}" for other in range(size)]
    store.set(keys[rank], "")
    try:
        store.wait(keys, timeout)
    except distributed.DistStoreError:
        missing = ", ".join(str(other) for other, key in enumerate(keys) if not store.check([key]))
        raise UserError(
            f"Rank {missing} of {size} has not started within {timeout.total_seconds():g} s. Check its machine, and "
            f"that the launcher starts {size} processes (WORLD_SIZE={size})."
        ) from None


def share_job(ranks: Ranks, job: Job | None) -> Job:
    """Return rank 0's job on every rank."""
    shared = ranks.broadcast(lambda: job)
    assert shared is not None, "rank 0 has composed a job"
    return shared


def spawn(count: int, entry: Callable[..., Result], *arguments: object) -> list[Result]:
    """Call a module-level function in `count` new processes on this machine, and return the results by rank.

    Raises:
        UserError: the first rank to fail raised it.
        RankKilledError: the first rank to fail was killed.
        RuntimeError: the first rank to fail raised something else. It contains the traceback of the rank.
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
                **_existing_fields(
                    LaunchConfig,
                    signals_to_handle=",".join(number.name for number in FORWARDED if not is_ignored(number)),
                    shutdown_timeout=SHUTDOWN_SECONDS,
                ),
            )
            results: dict[int, Result] = elastic_launch(settings, _enter_process)(entry, *arguments)
        except ChildFailedError as error:
            failed = _error_of_rank(error, Path(logs))
            raise failed from failed.__cause__
        except SignalException as error:
            for process in multiprocessing.active_children():  # after a second signal
                process.kill()
            if error.sigval in SIGNALS:
                raise Preempted(error.sigval) from None
            raise SystemExit(128 + error.sigval) from None
    return [results[rank] for rank in range(count)]


def _existing_fields(settings: type, **values: Any) -> dict[str, Any]:
    """Return the values for which a dataclass has a field."""
    # `LaunchConfig` of PyTorch 2.6 lacks fields of later versions. Its agent then uses its own signals and time limit.
    existing = {field.name for field in fields(settings)}
    return {name: value for name, value in values.items() if name in existing}


def _error_of_rank(error: "ChildFailedError", logs: Path) -> BaseException:
    """Return the error that ended the ranks."""
    rank, failure = error.get_first_failure()
    # A dict if the rank raised an exception.
    message: Any = failure.message
    text = message if isinstance(message, str) else message["extraInfo"]["py_callstack"]
    user_errors = sorted(logs.rglob(USER_ERROR_FILE), key=lambda path: path.stat().st_mtime)
    if user_errors:
        of_component, passed = json.loads(user_errors[0].read_text("utf-8"))
        return _user_error(rank, of_component, passed, text)
    # The exit code of a process that a signal has ended is the negative signal number.
    if (number := failure.exitcode - 128) in SIGNALS or (number := -failure.exitcode) in SIGNALS:
        return Preempted(number)
    if failure.exitcode == -signal.SIGKILL:
        return RankKilledError(f"Rank {rank} failed: {failure.message}")
    return RuntimeError(f"Rank {rank} failed: {text}")


def _user_error(rank: int, of_component: bool, message: str, trace: str) -> UserError:
    """Return the `UserError` of another rank. That of a component has the traceback, for `run.log`."""
    if not of_component:
        return UserError(message)
    error = ComponentError(message)
    error.__cause__ = RuntimeError(f"Rank {rank} failed: {trace}")
    return error


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


def _enter_process(entry: Callable[..., Result], *arguments: object) -> Result:
    """Entry point of a process that `spawn` starts."""
    try:
        result = entry(*arguments)
    except Preempted as preempted:
        leave(preempted.exit_status)  # this closes its connections, for which other ranks may be waiting
    except UserError as error:
        _pass_to_parent(error)
        raise
    except RuntimeError as error:
        if has_lost_rank(error):
            time.sleep(LOST_SECONDS)
        raise
    Finalize(None, leave, exitpriority=-100)  # after the agent has received the result
    return result


def _pass_to_parent(error: UserError) -> None:
    """Pass a `UserError` to the process that has spawned this rank."""
    text = json.dumps([isinstance(error, ComponentError), str(error)])
    Path(os.environ["TORCHELASTIC_ERROR_FILE"]).with_name(USER_ERROR_FILE).write_text(text, "utf-8")


def _enter_rank(job: Job, config_dir: Path | None) -> dict[str, Any]:
    """Entry point of a spawned rank."""
    with (
        extensions.using(config_dir),
        join_ranks() as ranks,
        _running(job, ranks, lambda message: _pass_to_parent(UserError(message))) as stop,
    ):
        return run.experiment(job, ranks, stop)


@contextmanager
def _running(job: Job, ranks: Ranks, report: Callable[[str], None] = print) -> Iterator[StopSignals]:
    """Watch a run on this rank and record how it ends. Only rank 0 logs, to the console and to run.log.

    Args:
        report: called with a message if a rank makes no progress.
    """
    settings = job.config.trainer
    with ExitStack() as stack:
        limits = Limits(settings.start_timeout_seconds, settings.timeout_seconds)
        stack.enter_context(watched(ranks, limits, report))
        if ranks.main:
            stack.enter_context(optional_output())
            stack.enter_context(console.setup_logging(job.folder / "run.log"))
        yield stack.enter_context(run.recorded(job, ranks))


def _run_external_rank(job: Job, ranks: Ranks) -> dict[str, Any]:
    """Run a job on a rank that a launcher has started.

    The rank that fails first records and prints its error; the other ranks end without output.
    """

    try:
        with _running(job, ranks, partial(report, job.folder)) as stop:
            return run.experiment(job, ranks, stop)
    except (Exception, Preempted) as error:
        first = _first_error(ranks, error)
        if isinstance(first, Preempted):
            leave(first.exit_status)
        # `run.recorded` records the errors of rank 0. Another rank that has lost rank 0 keeps this record.
        if ranks.main == (first is not error) and not (has_lost_rank(first) and read_result(job.folder)):
            record_failure(job.folder, first)
        if first is error:
            raise
        time.sleep(LOST_SECONDS)  # a launcher reports the rank that ends first
        leave(1)


def _first_error(ranks: Ranks, error: BaseException) -> BaseException:
    """Return the error of the rank that has failed first. If this rank is the first one, the others can read its error."""
    assert ranks.store is not None, "several ranks"
    lost = has_lost_rank(error)
    try:
        if lost or isinstance(error, Preempted):  # a launcher sends SIGTERM to the ranks that are left
            end = time.monotonic() + (LOST_SECONDS if lost else 0)
            while not ranks.store.check([ERROR_KEY]):
                if time.monotonic() >= end:
                    return error
                time.sleep(0.05)
            published = ranks.store.get(ERROR_KEY)
        else:
            by_user, of_component = isinstance(error, UserError), isinstance(error, ComponentError)
            trace = "".join(traceback.format_exception(error))
            own = json.dumps([ranks.rank, by_user, of_component, str(error), trace])
            published = ranks.store.compare_set(ERROR_KEY, "", own)
    except distributed.DistError:  # the process with the store has ended
        return error
    rank, by_user, of_component, message, trace = json.loads(published)
    if rank == ranks.rank:
        return error
    if by_user:
        return _user_error(rank, of_component, message, trace)
    return RuntimeError(f"Rank {rank} failed: {trace}")
