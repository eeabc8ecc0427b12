"""The example of a custom training loss: a run that predicts as another one, with other attention."""

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import command_line
import pytest
import torch
from programs import compare

import seq2seq_lab
from seq2seq_lab.reporting.distances import DISTANCE_HEADS
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.tasks.base import StepInfo

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_loss"
SETTINGS = (
    *("dataset.train=100", "dataset.validation=10", "dataset.test=20", "dataset.test_compositional=0"),
    *("dataset.max_depth=1", "task.batch_size=10", "task.samples=0", "optimizer.lr=0.01"),
    *("trainer.device=cpu", "trainer.precision=fp32", "trainer.max_epochs=2", "logger=none"),
)
SIZES = ("model.embedding_size=8", "model.encoder_hidden_size=8", "model.hidden_size=8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run `base`, and with runs `same` (λ = 0) and `apart` (λ = 2) that started from it."""
    folder = tmp_path_factory.mktemp("own_loss")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQ2SEQ_LAB_CACHE", str(folder / "cache"))
        base = folder / "base"
        assert command_line.run(*SETTINGS, *SIZES, f"hydra.run.dir={base}") == 0
        words = ("--config-dir", str(EXAMPLE), "task=apart", f"task.base={base}", f"init_from={base}")
        for name, distance in (("same", 0), ("apart", 2)):
            line = (*words, f"task.distance={distance}", f"hydra.run.dir={folder / name}")
            assert command_line.run(*line, *SETTINGS) == 0
        yield folder


def test_the_loss_is_that_of_the_paper(folder: Path) -> None:
    base, run = (seq2seq_lab.load(folder / name, config_dir=EXAMPLE) for name in ("base", "apart"))
    pairs = (["the king sleeps.", "the dog eats the apples."], ["le roi dort.", "le chien mange les pommes."])
    forced = run.forced(*pairs)
    batch = forced.batch(forced.plan[0])
    with torch.no_grad(), evaluation_context(batch, run.precision, run.device):
        found = float(run.task.loss(run.model, batch, StepInfo(0, 0)))
        p_BTV, alpha_BTS = (x.double().tolist() for x in (run.model(batch, batch.inputs_BT)))
        q_BTV, beta_BTS = (x.double().tolist() for x in (base.model(batch, batch.inputs_BT)))
    expected = 0.0
    for row, line in enumerate(forced.targets[i] for i in forced.plan[0]):
        for t in range(len(run.tokenizers.target.spans(line)) + 1):
            p_V, q_V = (torch.tensor(x[row][t]).softmax(0).tolist() for x in (p_BTV, q_BTV))
            expected += sum(abs(p - q) for p, q in zip(p_V, q_V, strict=True)) / 2
            weights = zip(alpha_BTS[row][t], beta_BTS[row][t], strict=True)
            expected -= 2 * sum(a * math.log(a / b) for a, b in weights if a > 1e-6)
    assert found == pytest.approx(expected, abs=1e-3)


def test_the_divergence_moves_the_attention_away(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    words = ["--attention", "--config-dir", str(EXAMPLE), "--baseline", "–", "--by", "task.distance"]
    compare.main([*(str(folder / name) for name in ("base", "same", "apart")), *words, "--csv", str(path)])
    with path.open(encoding="utf-8", newline="") as file:
        moved = {row["task.distance"]: row["attention_baseline_jsd"] for row in csv.DictReader(file)}
    assert moved.pop("–") == ""
    same, apart = (float(moved[key]) for key in ("0", "2"))
    assert 10 * same < 0.02 < apart


def test_the_table_has_the_columns_with_values(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--attention", "--config-dir", str(EXAMPLE), "--by", "task"]
    compare.main([*(str(folder / name) for name in ("same", "apart")), *words])
    alone = capsys.readouterr().out
    assert "attention between runs" in alone
    assert "attention to baseline" not in alone
    compare.main([*(str(folder / name) for name in ("base", "same", "apart")), *words])
    printed = capsys.readouterr().out
    for head in DISTANCE_HEADS:
        assert head in printed
    assert "on 20 examples" in " ".join(printed.split())


def test_the_baseline_is_the_line_that_is_named(folder: Path, tmp_path: Path) -> None:
    found = {}
    for baseline in ("0", "2"):
        path = tmp_path / f"{baseline}.csv"
        words = ["--attention", "--config-dir", str(EXAMPLE), "--baseline", baseline, "--by", "task.distance"]
        compare.main(
            [*(str(folder / name) for name in ("base", "same", "apart")), *words, "--csv", str(path)]
        )
        with path.open(encoding="utf-8", newline="") as file:
            rows = {row["task.distance"]: row["attention_baseline_jsd"] for row in csv.DictReader(file)}
        assert rows[baseline] == ""
        found[baseline] = rows
    assert found["0"]["2"] == found["2"]["0"] != ""
    assert found["0"]["–"] != found["2"]["–"]


def test_a_folder_of_code_is_for_attention_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compare.main([str(folder), "--config-dir", str(EXAMPLE)])
    assert "--config-dir" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ((), "task.base"),
        (("task.base=nowhere",), "nowhere"),
        (("task.base=demo",), "another vocabulary"),
        (("task.base=demo", "model=vanilla"), "model=attn"),
    ],
)
def test_a_run_that_cannot_be_the_base_is_refused(
    settings: tuple[str, ...], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--config-dir", str(EXAMPLE), "task=apart", *settings, *SETTINGS, *SIZES)
    assert command_line.run(*words, f"hydra.run.dir={tmp_path / 'run'}") == 2
    assert named in capsys.readouterr().err
