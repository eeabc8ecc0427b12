"""Commands side by side: devices, threads, logs, signals."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from seq2seq_lab.launching.launch import SHUTDOWN_SECONDS
from seq2seq_lab.launching.side_by_side import TIMEOUT_SECONDS, Command, Devices, cores, side_by_side


def command_of(folder: Path, name: str, program: str, devices: int = 1) -> Command:
    lines = f"import os, sys, time\nfrom pathlib import Path\nfolder, name = Path({str(folder)!r}), {name!r}\n{program}"
    return Command(("-S", "-c", lines), folder / f"{name}.log", devices)


def test_so_many_run_at_once_and_each_has_its_status_and_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    meet = """
(folder / f"{name}.begun").touch()
while not ((folder / "a.begun").exists() and (folder / "b.begun").exists()):
    time.sleep(0.02)
print("threads", os.environ["OMP_NUM_THREADS"], "own session", os.getsid(0) == os.getpid())
time.sleep(0.3)
(folder / f"{name}.done").touch()
"""
    commands = [command_of(tmp_path, name, meet) for name in "ab"]
    commands.append(command_of(tmp_path, "bad", "sys.exit('no luck')"))
    commands.append(command_of(tmp_path, "killed", "os.kill(os.getpid(), 9)"))
    commands.append(command_of(tmp_path, "last", "print(len([*folder.glob('*.done')]) > 0)"))
    core = cores()[0]
    ended = {run.command.log.stem: run for run in side_by_side(commands, Devices("cpu", [core, core], 2))}
    assert {name: run.status for name, run in ended.items()} == {
        "a": 0,
        "b": 0,
        "bad": 1,
        "killed": -signal.SIGKILL,
        "last": 0,
    }
    assert ended["a"].seconds > 0.3
    own = "threads 1 own session True\n"
    logs = {command.log.stem: command.log.read_text("utf-8") for command in commands}
    assert logs == {"a": own, "b": own, "bad": "no luck\n", "killed": "", "last": "True\n"}


def test_a_process_ends_when_its_launcher_is_killed(tmp_path: Path) -> None:
    job = """
from seq2seq_lab.launching.side_by_side import end_with_launcher
end_with_launcher()
(folder / "pid").write_text(str(os.getpid()))
time.sleep(60)
"""
    command = command_of(tmp_path, "job", job)
    launcher = f"""
from pathlib import Path
from seq2seq_lab.launching.side_by_side import Command, Devices, side_by_side
[*side_by_side([Command({command.arguments[1:]!r}, Path({str(command.log)!r}))], Devices("cpu", [{cores()[0]}], 1))]
"""
    process = subprocess.Popen([sys.executable, "-c", launcher])
    job_id = int(wait_for(lambda: text_of(tmp_path / "pid")))
    process.kill()
    process.wait()
    wait_for(lambda: not Path(f"/proc/{job_id}").exists())


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def wait_for(value: Callable[[], Any]) -> Any:
    until = time.monotonic() + 30
    while not (found := value()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_stops_the_processes(
    tmp_path: Path, number: signal.Signals, raised: type[BaseException]
) -> None:
    work = """
try:
    (folder / "begun").touch()
    time.sleep(60)
except KeyboardInterrupt:
    (folder / "ended").touch()
"""

    def send() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    def not_caught(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"signal {number} was left to the caller")

    before = signal.signal(number, not_caught)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(raised) as stopped:
            list(
                side_by_side(
                    [command_of(tmp_path, name, work) for name in ("a", "b")], Devices("cpu", cores(), 1)
                )
            )
        assert signal.getsignal(number) is not_caught
    finally:
        sender.join()
        signal.signal(number, before)
    if isinstance(stopped.value, SystemExit):
        assert stopped.value.code == 128 + number
    assert (tmp_path / "ended").exists()
    assert not (tmp_path / "b.log").exists()


def test_ranks_have_time_to_save_before_their_job_is_killed() -> None:
    assert TIMEOUT_SECONDS > SHUTDOWN_SECONDS


def test_gpus_are_disjoint_and_as_many_as_asked_for() -> None:
    devices = Devices("cuda", range(8), at_once=8)
    first, second, third = devices.take(2), devices.take(4), devices.take(2)
    assert (first, second, third) == ((0, 1), (2, 3, 4, 5), (6, 7))
    assert devices.take(1) is None
    assert first is not None
    devices.give_back(first)
    assert devices.take(3) is None
    assert devices.take(1) == (0,)
    assert devices.environment((4, 5), 2)["CUDA_VISIBLE_DEVICES"] == "4,5"


def test_cores_are_shared_among_those_that_run_at_once() -> None:
    devices = Devices("cpu", range(10, 18), at_once=3)
    assert devices.take(1) == (10, 11)  # 8 cores, 3 at once: 2 each
    assert devices.take(4) == (12, 13, 14, 15)
    assert devices.take(1) == (16, 17)
    devices.give_back((12, 13, 14, 15))
    assert devices.take(1) == (12, 13)
    assert devices.take(1) is None  # three run
    assert devices.environment((12, 13), 1) == {"OMP_NUM_THREADS": "2"}
    assert devices.environment((12, 13, 14, 15), 4) == {"OMP_NUM_THREADS": "1"}
