"""Clusters' file systems, loggers that fail, and what is started again after an end: the same command, a copy, a job."""

import errno
import fcntl
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from faults.rig import SETTINGS, Fault, Hook, Rig, Seen, at_step, in_child, kill, losses, send, valid
from programs import compare

from seq2seq_lab import run as program
from seq2seq_lab.config.run_folder import read_run_json
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.files import read_json_object
from seq2seq_lab.launching import study
from seq2seq_lab.tracking import FileTracker, git
from seq2seq_lab.training import checkpoint, provenance

WANDB = ("logger=wandb", "logger.mode=offline")
SECRET = "0123456789abcdef"


def killed_while_set_aside(rig: Rig) -> Seen:
    """The source has changed since a job of a study, which is run again."""
    seen, original = Seen(), rig.new().parent
    line = (*SETTINGS, "-m", "seed=1", "study.name=s", "study.changed=rerun")
    ended = rig.program(original, *line)
    assert ended.status == 0, ended.output

    def change() -> None:
        provenance.source = lambda: "0" * 64  # type: ignore[assignment]

    place, status = 0, -signal.SIGKILL
    while status == -signal.SIGKILL:
        folder = rig.new().parent
        shutil.copytree(original, folder, dirs_exist_ok=True)
        (job,) = (folder / "sweeps" / "s").glob("*/")
        old = (job / "result.json").read_bytes()
        status = rig.program(folder, *line, hooks=[change, while_set_aside(place)]).status
        ended = rig.program(folder, *line, hooks=[change])
        seen.expect(ended.status == 0, f"{place}: {ended.output}")
        new = read_json_object(job / "result.json")
        seen.expect(new.get("status") == "finished", f"{place}: {new}")
        seen.expect(read_run_json(job).get("source") == "0" * 64, f"{place}: the job was not run again")
        kept = [path for path in job.parent.glob("*.stale-*/result.json") if path.read_bytes() == old]
        seen.expect(len(kept) == 1 and len(valid(kept[0].parent)) > 0, f"{place}: old results: {kept}")
        seen.count("runs")
        place += 1
    seen.expect(place > 4, f"only {place - 1} operations")
    return seen


def while_set_aside(place: int) -> Hook:
    """Kill this process after an operation on folders, counted from 0, while a job is set aside."""

    def hook() -> None:
        set_aside = study.set_aside

        def setting_aside(folder: Path) -> Path:
            count = 0

            def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
                def call(*arguments: Any, **named: Any) -> Any:
                    nonlocal count
                    result = operation(*arguments, **named)
                    if count == place:
                        kill()
                    count += 1
                    return result

                return call

            before = Path.rename, Path.mkdir
            for name in ("rename", "mkdir"):
                setattr(Path, name, counted(getattr(Path, name)))
            aside = set_aside(folder)
            Path.rename, Path.mkdir = before  # type: ignore[method-assign]
            return aside

        study.set_aside = setting_aside

    return hook


def file_systems(rig: Rig) -> Seen:
    """Locks and synchronization that are not supported, folders in use, one stale handle, and a umask."""
    seen = Seen()
    for lock, synchronize in (
        (errno.ENOLCK, errno.EINVAL),
        (errno.ENOTSUP, errno.ENOTSUP),
        (errno.ENOSYS, errno.ENOSYS),
    ):
        folder = rig.new()
        ended = rig.start(folder, hooks=[on_cluster(lock, synchronize)])
        seen.expect(ended.status == 0, ended.output)
        seen.expect("Traceback" not in ended.output, ended.output)
        for text in ("cannot be locked", "cannot be removed"):
            seen.expect(text in " ".join(ended.output.split()), f"{lock}: no warning: {text}")
        rig.check_same(seen, folder, rig.whole())
        modes = {path.stat().st_mode & 0o777 for path in folder.glob("checkpoints/*/*")}
        seen.expect(modes == {0o640}, f"modes of the files of checkpoints: {sorted(map(oct, modes))}")
        seen.count("runs")
    return seen


def on_cluster(lock: int, synchronize: int) -> Hook:
    """Let operations fail with these numbers: locks and synchronization always, others once."""

    def fail(number: int) -> Callable[..., Any]:
        def failing(*arguments: Any, **named: Any) -> Any:
            raise OSError(number, os.strerror(number))

        return failing

    def hook() -> None:
        os.umask(0o027)
        fcntl.flock = fail(lock)  # type: ignore[assignment]
        os.fsync = fail(synchronize)
        write, rmtree, calls = FileTracker._write, shutil.rmtree, {"write": 0, "remove": 0}

        def stale_once(tracker: FileTracker, line: str) -> None:
            calls["write"] += 1
            if calls["write"] == 3:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            write(tracker, line)

        def in_use(path: Path, *arguments: Any, **named: Any) -> None:
            if Path(path).name.startswith("step_00000002"):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
            rmtree(path, *arguments, **named)

        FileTracker._write = stale_once  # type: ignore[method-assign]
        checkpoint.shutil.rmtree = in_use  # type: ignore[attr-defined,assignment]

    return hook


def failing_logger(rig: Rig) -> Seen:
    """After the scores, W&B can open few files, or have little memory."""
    seen = Seen()
    # With less memory the interpreter itself can crash.
    limits = [*(files_left(count) for count in (0, 1, 2)), *(memory_left(size) for size in (16, 64))]
    for limit in limits:
        folder = rig.new()
        ended = rig.start(folder, *WANDB, hooks=[after_scores(limit)])
        seen.expect(ended.status == 0, f"status {ended.status}: {ended.output}")
        seen.expect("Traceback" not in ended.output, ended.output)
        seen.expect("WARNING" in ended.output, f"no warning: {ended.output}")
        seen.worst("O", ended.orphans)
        rig.check_same(seen, folder, rig.whole())
        seen.count("runs")
    seen.expect(seen.figures["O"] == 0, f"{seen.figures['O']} processes are left")
    return seen


def after_scores(limit: Callable[[], None]) -> Hook:
    """Set a limit once `result.json` has the scores."""

    def hook() -> None:
        write = program.write_result

        def writing(folder: Path, result: Any) -> None:
            write(folder, result)
            limit()

        program.write_result = writing

    return hook


def files_left(count: int) -> Callable[[], None]:
    """Return a function that limits the files that this process can open to a number of further ones."""

    def limit() -> None:
        highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= highest:  # no free number below the limit
            pass
        os.close(descriptor)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + count, hard))

    return limit


def memory_left(mebibytes: int) -> Callable[[], None]:
    """Return a function that limits the address space of this process."""

    def limit() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + mebibytes * 2**20, hard))

    return limit


def diverged(rig: Rig) -> Seen:
    """With a high and with the usual learning rate, as a run and as the jobs of a study that is started again."""
    seen, folder = Seen(), rig.new()
    ended = rig.start(folder, "optimizer.lr=1e6")
    result = read_json_object(folder / "result.json")
    seen.expect(ended.status == 0, ended.output)
    seen.expect(result.get("status") == "diverged", f"{result.get('status')}: {result.get('error')}")
    seen.expect("The training has diverged" in ended.output, "no warning")
    seen.figures["loss"] = f"{float.fromhex(losses(folder)[-1][1]):.2g}"
    line = (*SETTINGS, "-m", "optimizer.lr=1e6,1e-3", "study.name=s")
    ended = rig.program(folder.parent, *line)
    results = sorted((folder.parent / "sweeps" / "s").glob("*/result.json"))
    statuses = sorted(str(read_json_object(path).get("status")) for path in results)
    seen.expect(ended.status == 0, ended.output)
    seen.expect(statuses == ["diverged", "finished"], f"{statuses}")
    before = [path.stat().st_mtime_ns for path in results]
    ended = rig.program(folder.parent, *line)
    seen.expect(ended.status == 0, ended.output)
    kept = sum(path.stat().st_mtime_ns == time for path, time in zip(results, before, strict=True))
    seen.figures["jobs kept"] = f"{kept} of {len(results)}"
    seen.expect(kept == 2, "a job was run again")
    return seen


def same_command(rig: Rig) -> Seen:
    """It is stopped while data are read, before the first checkpoint, and twice after it; then it ends, and starts again."""
    seen, folder = Seen(), rig.new()

    def stop_reading() -> None:
        Grammar.load = lambda _: send(signal.SIGTERM)()  # type: ignore[assignment,method-assign,return-value]

    ends: list[tuple[str, Hook, int]] = [
        ("data", stop_reading, 143),
        ("step 0", at_step(0, kill), -signal.SIGKILL),
        ("step 4", at_step(4, send(signal.SIGTERM)), 143),
        ("step 7", at_step(7, kill), -signal.SIGKILL),
    ]
    for place, hook, status in ends:
        ended = rig.start(folder, "resume=auto", hooks=[hook])
        seen.expect(ended.status == status, f"{place}: status {ended.status}: {ended.output}")
        seen.expect("resume=auto: " in ended.output, f"{place}: {ended.output}")
        seen.count("runs")
    for text in ("Resuming from step 6", "The training is complete"):
        ended = rig.start(folder, "resume=auto")
        seen.expect(ended.status == 0, ended.output)
        seen.expect(text in ended.output, f"{text!r} is not in the output: {ended.output}")
        seen.count("runs")
    rig.check_same(seen, folder, rig.whole())
    extra = {path.name for path in folder.iterdir()} - {path.name for path in rig.whole().iterdir()}
    seen.expect(not extra, f"files that an uninterrupted run lacks: {extra}")
    other = rig.start(folder, "resume=auto", "seed=2")
    seen.expect(other.status == 2 and "other settings" in " ".join(other.output.split()), other.output)
    return seen


def resumed_copy(rig: Rig) -> Seen:
    """Of a run with a record of W&B that was killed; both are resumed, and then copied once more."""
    seen, folder = Seen(), rig.new()
    ended = rig.start(folder, *WANDB, hooks=[at_step(7, kill)])
    seen.expect(ended.status == -signal.SIGKILL, ended.output)
    other = rig.new()
    shutil.copytree(folder.parent, other.parent, dirs_exist_ok=True)
    own = read_run_json(folder)["run_id"]
    for one in (other, folder):
        ended = rig.resume(one)
        seen.expect(ended.status == 0, ended.output)
        rig.check_same(seen, one, rig.whole())
    new = read_run_json(other)
    seen.expect(read_run_json(folder)["run_id"] == own, "the original has another id")
    seen.expect(new["run_id"] not in (None, own), f"the copy has the id {new['run_id']}")
    seen.expect(new.get("copy_of", {}).get("run_id") == own, f"copy_of={new.get('copy_of')}")
    names = {path.name.rpartition("-")[2] for path in other.glob("wandb/offline-run-*")}
    seen.expect(new["run_id"] in names, f"records: {names}")
    plain = rig.new()
    shutil.copytree(folder, plain)

    def work() -> int:
        compare.main([str(one) for one in (folder, other, plain)])
        return 0

    ended = in_child(work)
    output = " ".join(ended.output.split())
    seen.expect(ended.status == 0, ended.output)
    seen.expect(output.startswith("2 runs"), ended.output)
    seen.expect(ended.output.count("a copy of") == 1, ended.output)
    seen.figures["runs compared"] = 2
    return seen


def uncommitted_code(rig: Rig) -> Seen:
    """New files with a secret in a checkout; then the checkout belongs to another user."""
    seen, folder = Seen(), rig.new()
    checkout = folder.parent / "checkout"
    package = checkout / "seq2seq_lab"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("# committed\n")
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*command, *arguments], cwd=checkout, check=True)
    (package / "new.py").write_text(f"key = {SECRET!r}\nrate = 0.5\n")

    def use() -> None:
        os.environ["WANDB_API_KEY"] = SECRET
        git._PACKAGE = package

    ended = rig.start(folder, hooks=[use])
    seen.expect(ended.status == 0, ended.output)
    record, diff = read_run_json(folder), (folder / "uncommitted.diff").read_text()
    seen.expect(
        (len(record["commit"]), record["dirty"]) == (40, True), f"{record['commit']} {record['dirty']}"
    )
    seen.expect("+rate = 0.5" in diff, f"the new file is not in the patch: {diff}")
    seen.expect("+key = '***'" in diff and SECRET not in diff, f"the secret is not masked: {diff}")
    (package / "new.py").unlink()
    applied = subprocess.run(
        ["git", "apply", str(folder / "uncommitted.diff")], cwd=checkout, capture_output=True, check=False
    )
    seen.expect(applied.returncode == 0 and (package / "new.py").is_file(), f"{applied.stderr!r}")
    rig.check_same(seen, folder, rig.whole())
    seen.count("runs")
    if os.geteuid() == 0:  # who may change the owner of a file
        for path in (checkout, *checkout.rglob("*")):
            os.chown(path, 12345, 12345)
        folder = rig.new()
        ended = rig.start(folder, hooks=[use])
        output = " ".join(ended.output.split())
        seen.expect(ended.status == 0, ended.output)
        seen.expect("has another owner" in output and "safe.directory" in output, f"no warning: {output}")
        seen.expect(read_run_json(folder)["commit"] is None, "the commit is recorded")
        rig.check_same(seen, folder, rig.whole())
        seen.count("runs")
    return seen


def faults() -> Iterator[Fault]:
    """Return the rows of this module."""
    yield Fault(
        "44",
        "killed while a job is set aside",
        "SIGKILL after each operation",
        "runs again, old files whole",
        killed_while_set_aside,
    )
    yield Fault(
        "45",
        "file systems of clusters",
        "ENOLCK, EINVAL, ENOTEMPTY, ESTALE, umask",
        "the same run, warned",
        file_systems,
    )
    yield Fault(
        "46",
        "logger fails after the scores",
        "limits of files and memory, W&B offline",
        "the same run, warned",
        failing_logger,
    )
    yield Fault("47", "diverged", "learning rate 1e6, run and study", "status diverged, warned", diverged)
    yield Fault("48", "the same command again", "SIGKILL, SIGTERM, resume=auto", "resume exact", same_command)
    yield Fault(
        "49", "copy resumed", "cp -r of a killed run, W&B offline", "two runs, resume exact", resumed_copy
    )
    yield Fault(
        "53",
        "uncommitted code",
        "a new file with a secret, another owner",
        "in the patch, masked; warned",
        uncommitted_code,
    )
