"""Two starts of a run at the same moment, in processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

SETTINGS = (
    *("dataset.train=24", "dataset.validation=4", "dataset.test=4", "dataset.test_compositional=0"),
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=4", "logger=none"),
    *("trainer.device=cpu", "trainer.precision=fp32", "trainer.samples=0", "trainer.max_epochs=1"),
)


def test_of_two_starts_at_the_same_moment_one_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seq2seq_lab", *SETTINGS, "hydra.run.dir=run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    ended = [(*process.communicate(), process.returncode) for process in processes]
    assert sorted(status for *_, status in ended) == [0, 2]
    (refused,) = [error for _, error, status in ended if status == 2]
    assert refused.startswith("error: ")
    assert "hydra.run.dir=" in refused or "is in use" in refused
    assert json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))["status"] == "finished"
