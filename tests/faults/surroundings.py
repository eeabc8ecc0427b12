"""Faults of what surrounds a run: the disk, permissions, ports, services."""

import ctypes
import json
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faults.rig import STEPS, Fault, Hook, Rig, Seen, at_step, kill, losses, session, valid
from rewriting import rewrite

from seq2seq_lab import run as program
from seq2seq_lab.config.run_folder import RUN_FORMAT
from seq2seq_lab.data import token_cache
from seq2seq_lab.data.tokenizers.word import WordTokenizer
from seq2seq_lab.files import read_json_object
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.run import Job
from seq2seq_lab.tasks.parts import data_record
from seq2seq_lab.training import provenance

CAPABILITY_VERSION = 0x20080522  # of linux/capability.h, for 64 capabilities
IGNORES_PERMISSIONS = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
JOBS = 1000  # of the large study
STUDY_LIMIT = 3600.0  # seconds for it


def limit_file_size() -> None:
    """Let the operating system refuse files that are as large as a checkpoint from now on, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, resource.RLIM_INFINITY))


def obey_permissions() -> None:
    """Make this process obey the permissions of files if it belongs to root."""

    class Sets(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]

    header, sets = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (Sets * 2)()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(header, sets) == 0, os.strerror(ctypes.get_errno())
    sets[0].effective &= ~IGNORES_PERMISSIONS
    assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())


def full_disk(rig: Rig) -> Seen:
    seen, folder = Seen(), rig.new()
    ended = rig.start(folder, hooks=[at_step(6, limit_file_size)])
    seen.expect(ended.status == 2, f"status {ended.status}: {ended.output}")
    seen.expect("Traceback" not in ended.output, ended.output)
    seen.expect(str(folder) in ended.output, f"the folder is not named: {ended.output}")
    seen.least("V", len(valid(folder)))
    seen.expect(bool(valid(folder)), "no valid checkpoint")
    seen.figures["temporary files"] = len([path for path in folder.rglob(".*") if path.name != ".lock"])
    seen.expect(seen.figures["temporary files"] == 0, "temporary files are left")
    ended = rig.resume(folder)
    seen.expect(ended.status == 0, ended.output)
    rig.check_same(seen, folder, rig.whole())
    return seen


def read_only(rig: Rig) -> Seen:
    """The folder of the run, and the one of tokenized corpora."""
    seen = Seen()
    for what in ("run", "cache"):
        folder = rig.new()
        closed = folder.parent / "closed"
        closed.mkdir(mode=0o555)
        settings = ("dataset.seed=7",)  # not in the cache
        if what == "run":
            settings += (f"hydra.run.dir={closed / 'run'}",)
        else:
            (closed / "tokenized").mkdir()
            settings += (f"cache_dir={closed}",)
            for path in (closed / "tokenized", closed):
                path.chmod(0o555)
        ended = rig.start(folder, *settings, hooks=[obey_permissions])
        seen.expect(ended.status == 2, f"{what}: status {ended.status}: {ended.output}")
        seen.expect("Traceback" not in ended.output, ended.output)
        seen.expect(str(closed) in ended.output, f"{what}: the folder is not named: {ended.output}")
        seen.expect(not losses(folder), f"{what}: a step was made")
        seen.worst("T", round(ended.seconds, 1))
        seen.expect(ended.seconds < 5, f"{what}: refused after {ended.seconds:.1f} s")
    return seen


def no_workers(rig: Rig) -> Seen:
    """A run has no worker process that could be killed: it loads its batches itself."""
    seen, folder = Seen(), rig.new()

    def count() -> None:
        (folder.parent / "processes").write_text(str(len(session(os.getsid(0)))))

    ended = rig.start(folder, hooks=[at_step(5, count)])
    seen.expect(ended.status == 0, ended.output)
    processes = int((folder.parent / "processes").read_text())
    seen.figures["processes"] = processes
    seen.expect(processes == 1, f"{processes} processes")
    return seen


def killed_while_caching(rig: Rig) -> Seen:
    """After each file of an entry of the cache of tokenized text, and after it gets its name."""
    seen, settings = Seen(), ("dataset.seed=9",)

    def killed_after(place: int) -> Hook:
        def hook() -> None:
            publish, calls, publishing = token_cache._publish, iter(range(10**6)), False

            def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
                def call(*arguments: Any, **named: Any) -> Any:
                    result = operation(*arguments, **named)
                    if publishing and next(calls) == place:
                        kill()
                    return result

                return call

            def published(*arguments: Any) -> bool:
                nonlocal publishing
                publishing = True
                done = publish(*arguments)
                publishing = False
                return done

            token_cache._publish = published
            operations = ((WordTokenizer, "save"), (np, "save"), (Path, "write_text"), (Path, "rename"))
            for owner, name in operations:
                setattr(owner, name, counted(getattr(owner, name)))

        return hook

    whole = rig.whole(*settings)  # fills the cache of the rig
    for place in range(100):
        folder = rig.new()
        cache = f"cache_dir={folder.parent / 'cache'}"
        ended = rig.start(folder, *settings, cache, hooks=[killed_after(place)])
        if ended.status == 0:
            break
        seen.expect(ended.status == -signal.SIGKILL, f"{place}: status {ended.status}: {ended.output}")
        folder = rig.new()
        again = rig.start(folder, *settings, cache)
        seen.expect(again.status == 0, f"{place}: {again.output}")
        if again.status == 0:
            rig.check_same(seen, folder, whole)
        seen.count("runs")
    seen.expect(place > 8, f"only {place} operations")
    return seen


def thousand_jobs(rig: Rig) -> Seen:
    """A study of finished jobs is started again and compared. Its runs do not train."""
    seen, folder = Seen(), rig.new()
    command = ("-m", f"seed=range(0,{JOBS})", "study.name=many", "logger=none")

    def finish(job: Job, ranks: Any, stop: Any) -> dict[str, Any]:
        record = {"choices": job.choices, "commit": None, **provenance.current(job.config, data_record)}
        rewrite(job.folder / "run.json", json.dumps({"format": RUN_FORMAT, **record}))
        machine = {"device_name": "CPU", "threads": 1, "torch": torch.__version__}
        origin = {"dirty": False, "test_precision": "fp32", "machine": machine, **record}
        scores = {"val/bleu": 10.0 + job.config.seed % 7, "test/bleu": 9.0, "test/examples": "0000000"}
        declared = Declarations.of([Bleu()], [], "bleu").result()
        result = {"status": "finished", **scores, "provenance": origin, **declared}
        rewrite(job.folder / "result.json", json.dumps(result))
        return result

    def hook() -> None:
        program.experiment = finish  # type: ignore[assignment]

    first = rig.program(folder.parent, *command, hooks=[hook], limit=STUDY_LIMIT)
    seen.expect(first.status == 0, first.output[-2000:])
    results = list(folder.parent.glob("sweeps/many/*/result.json"))
    seen.expect(len(results) == JOBS, f"{len(results)} results")
    before = {path: path.stat().st_mtime_ns for path in results}
    again = rig.program(folder.parent, *command, limit=STUDY_LIMIT)
    seen.expect(again.status == 0, again.output[-2000:])
    seen.figures["jobs kept"] = sum(path.stat().st_mtime_ns == time for path, time in before.items())
    seen.expect(seen.figures["jobs kept"] == JOBS, "jobs were run again")
    seen.figures["seconds, started again"] = round(again.seconds)
    seen.figures["per job"] = round(again.seconds / JOBS, 2)
    return seen


def port_in_use(rig: Rig) -> Seen:
    """Of ranks that a launcher has started; ranks of `trainer.devices` use a free port."""
    seen, folder = Seen(), rig.new()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])

        def hook() -> None:
            os.environ.update(RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="2")
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)

        ended = rig.start(folder, hooks=[hook])
    seen.expect(ended.status == 2, f"status {ended.status}: {ended.output}")
    seen.expect(f"MASTER_PORT={port}" in ended.output, ended.output)
    seen.figures["T"] = round(ended.seconds, 1)
    seen.expect(ended.seconds < 10, f"refused after {ended.seconds:.1f} s")
    return seen


def unreachable_service(rig: Rig) -> Seen:
    seen, folder = Seen(), rig.new()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"

    def hook() -> None:
        os.environ.update(WANDB_BASE_URL=address, WANDB_API_KEY="0" * 40)

    ended = rig.start(folder, "logger=wandb", hooks=[hook])
    seen.expect(ended.status == 0, ended.output)
    seen.expect("cannot be reached" in " ".join(ended.output.split()), "no warning")
    rig.check_same(seen, folder, rig.whole())
    return seen


def killed_service(rig: Rig) -> Seen:
    """The process that W&B starts for a run."""
    seen, folder = Seen(), rig.new()

    def kill_service() -> None:
        services, own = [], b"--pid\0%d\0" % os.getpid()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has ended
                if b"wandb-core" in (line := path.read_bytes()) and own in line:
                    services.append(int(path.parent.name))
        (folder.parent / "services").write_text(str(len(services)))
        for number in services:
            os.kill(number, signal.SIGKILL)
        time.sleep(1)

    ended = rig.start(folder, "logger=wandb", "logger.mode=offline", hooks=[at_step(5, kill_service)])
    seen.expect((folder.parent / "services").read_text() != "0", "nothing was killed")
    seen.expect(ended.status == 0, f"status {ended.status}: {ended.output}")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    steps = [row["step"] for row in rows if "train/loss" in row]
    seen.figures["rows"] = len(steps)
    seen.expect(steps == list(range(1, STEPS + 1)), f"rows of the steps {steps}")
    seen.expect(read_json_object(folder / "result.json").get("status") == "finished", "not finished")
    rig.check_same(seen, folder, rig.whole())
    return seen


def faults() -> Iterator[Fault]:
    """Return the rows of this module."""
    yield Fault("11", "disk full", "a limit on the size of files from step 7", "resume exact", full_disk)
    yield Fault(
        "12", "read-only folder", "of the run, of the cache", "refused before the first step", read_only
    )
    yield Fault("36", "worker killed", "processes counted", "no worker processes", no_workers)
    yield Fault(
        "40", "killed while caching", "SIGKILL after each operation", "the same run", killed_while_caching
    )
    yield Fault("41", "large study", f"{JOBS} finished jobs, started again", "all kept", thousand_jobs)
    yield Fault("28", "port in use", "the port of a launcher is bound", "refused, named", port_in_use)
    yield Fault("29", "W&B unreachable", "a closed port", "the same run, offline", unreachable_service)
    yield Fault("30", "W&B's process killed", "SIGKILL in step 6", "the same run", killed_service)
