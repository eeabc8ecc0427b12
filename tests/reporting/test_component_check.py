"""Custom components are evaluated before the first step: an error names the component, its file and line."""

from pathlib import Path

import command_line
import pytest

SETTINGS = (
    *("dataset.train=60", "dataset.validation=10", "dataset.test=6", "dataset.test_compositional=0"),
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=4", "logger=none"),
    *("trainer.max_steps=2", "task.batch_size=8", "trainer.device=cpu", "trainer.precision=fp32"),
)
METRIC = """
from seq2seq_lab.metrics.base import Metric
import numpy as np

class Wrong(Metric):
    name, label, higher_is_better, format = "wrong", "wrong", True, ".2f"
    when = "final"

    def rows(self, outputs):
        return np.ones((len(outputs.hypotheses), 1))

    def value(self, totals_K):
        return totals_K[0] / outputs
"""
BUILT = """
from seq2seq_lab.models.attention.base import Attention

class Wrong(Attention):
    def __init__(self, query_size, encoder_output_size):
        super().__init__()

    def score(self, query_BTQ, keys_BSK):
        return query_BTQ @ keys_BSK.mT
"""
ATTENTION = """
from seq2seq_lab.models.attention.base import Attention

class Wrong(Attention):
    def project(self, outputs_BSM):
        return outputs_BSM

    def score(self, query_BTQ, keys_BSK):
        return query_BTQ @ keys_BSK.mT[:, 1:]
"""


def write(folder: Path, group: str, code: str) -> Path:
    (folder / group).mkdir(parents=True)
    (folder / "broken.py").write_text(code)
    package = "# @package metric.wrong\n" if group == "metric" else ""
    (folder / group / "wrong.yaml").write_text(f"{package}_target_: broken.Wrong\n")
    return folder


@pytest.mark.parametrize(
    ("group", "code", "line", "said"),
    [
        ("metric", METRIC, 13, "metric.wrong=Wrong failed before the first step"),
        ("attention", BUILT, 6, "attention=Wrong failed before the first step"),
        ("attention", ATTENTION, 9, "attention=Wrong failed before the first step"),
    ],
)
def test_an_error_is_reported_before_the_first_step(
    group: str, code: str, line: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, run = write(tmp_path / "own", group, code), tmp_path / "run"
    words = ("--config-dir", str(own), f"{group}=wrong", f"hydra.run.dir={run}", *SETTINGS)
    assert command_line.run(*words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert f"{own / 'broken.py'}, line {line}: " in error
    assert "Traceback" not in error
    if code is BUILT:
        assert not run.exists()  # no data are read
    else:
        assert "Traceback" in (run / "run.log").read_text("utf-8")
        assert not (run / "checkpoints").exists()


def test_the_check_changes_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run with dropout and a metric of the user's own; nothing of the check is printed."""
    good = METRIC.replace("totals_K[0] / outputs", "float(totals_K[0])")
    own = write(tmp_path / "own", "metric", good)
    losses, printed = [], []
    for options in ((), ("--config-dir", str(own), "metric=wrong")):
        run = tmp_path / f"run_{len(losses)}"
        settings = ("model.dropout=0.3", "trainer.log_every_steps=1", f"hydra.run.dir={run}")
        assert command_line.run(*options, *settings, *SETTINGS) == 0
        rows = (run / "metrics.jsonl").read_text("utf-8").splitlines()
        losses.append([row.partition('"train/loss": ')[2].partition(",")[0] for row in rows])
        printed.append(capsys.readouterr().out.count("alignment"))
    assert losses[0] == losses[1]
    assert any(losses[0])
    assert printed[0] == printed[1]
