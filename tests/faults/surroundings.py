"""Faults of what surrounds a run: the disk, permissions, ports, services."""

import ctypes
import json
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from faults.rig import STEPS, Fault, Rig, Seen, at_step, losses, valid

from seq2seq_lab.files import read_json_object

CAPABILITY_VERSION = 0x20080522  # of linux/capability.h, for 64 capabilities
IGNORES_PERMISSIONS = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


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
    """The folder of the run, and the one of tokenised corpora."""
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
    yield Fault("28", "port in use", "the port of a launcher is bound", "refused, named", port_in_use)
    yield Fault("29", "W&B unreachable", "a closed port", "the same run, offline", unreachable_service)
    yield Fault("30", "W&B's process killed", "SIGKILL in step 6", "the same run", killed_service)
