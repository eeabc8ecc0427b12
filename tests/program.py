"""The program in this process, with the run itself replaced."""

import json
import os
from pathlib import Path
from typing import Any

import command_line
import pytest
from rewriting import rewrite

from seq2seq_lab.config import extensions
from seq2seq_lab.config.run_folder import RUN_FORMAT
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.run import Job
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.runtime.signals import StopSignals

MACHINE = {"device_name": "CPU", "threads": 1, "torch": "2.13.0"}
DATA = {"fingerprint": "f", "sizes": {}, "tests": {}, "counts": {}}


class Program:
    """The program in this process; `jobs` are the runs it would have started, `trusted` the folders they trust."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.jobs: list[Job] = []
        self.trusted: list[Path | None] = []
        self.error: dict[str, Exception] = {}

    def run(self, job: Job, ranks: Ranks, stop: StopSignals) -> dict[str, Any]:
        self.jobs.append(job)
        self.trusted.append(extensions.folder())
        record = {"format": RUN_FORMAT, "choices": job.choices, "run_id": None}
        rewrite(job.folder / "run.json", json.dumps(record))
        if error := self.error.get(job.choices["attention"]):
            raise error
        origin = {
            "commit": None,
            "dirty": False,
            "data": DATA,
            "components": {},
            "source": "s",
            "machine": MACHINE,
        }
        result = {
            **{"status": "finished", "val/bleu": 20.0, "test/bleu": 19.0, "test/examples": "0000000"},
            **{"provenance": {"test_precision": "fp32", **origin}},
            **Declarations.of([Bleu()], [], "bleu").result(),
        }
        rewrite(job.folder / "result.json", json.dumps(result))
        return result

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Return (exit status, standard output, standard error)."""
        return command_line.run(*arguments), *self.capsys.readouterr()


def assert_refused(program: Program, arguments: str, *said: str) -> None:
    before = sorted(Path.cwd().rglob("*"))
    status, _, error = program(*arguments.split())
    assert status == 2
    assert error.startswith("error: ")
    assert "Traceback" not in error
    for fragment in said:
        assert fragment in error
    assert program.jobs == []
    assert sorted(Path.cwd().rglob("*")) == before
    assert not Path(os.environ["SEQ2SEQ_LAB_CACHE"]).exists()
