"""The example of a custom metric: recorded, in the record of W&B, scored again, compared, and on the page."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import command_line
import numpy as np
import pytest
from extras import needs_plotly
from programs import compare
from tracking.offline_record import read_offline_run

from seq2seq_lab import evaluate
from seq2seq_lab.config.run_folder import read_result
from seq2seq_lab.files import read_json_lines
from seq2seq_lab.reporting import comparison, page
from seq2seq_lab.reporting.runs import find_runs, group_runs
from seq2seq_lab.reporting.score_tables import read_statistics

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_metric"
SETTINGS = (
    *("dataset.train=100", "dataset.validation=10", "dataset.test=30", "dataset.test_compositional=0"),
    *("dataset.max_depth=1", "model.embedding_size=8", "model.encoder_hidden_size=8", "model.hidden_size=8"),
    *("trainer.monitor=val/similar_length", "trainer.patience=1", "trainer.max_epochs=9", "optimizer.lr=0"),
    *("task.samples=0", "trainer.device=cpu", "trainer.precision=fp32"),
    *("logger.mode=offline", "logger.log_artifact=false"),
)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A study of two seeds with the metric; the working directory contains it."""
    folder = tmp_path_factory.mktemp("own_metric")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
            patch.setenv(name, str(folder / "home"))
        patch.setenv("SEQ2SEQ_LAB_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        words = ("-m", "--config-dir", str(EXAMPLE), "metric=[similar_length,accuracy]")
        assert command_line.run(*words, "seed=1,2", "study.name=own", *SETTINGS) == 0
        yield folder / "sweeps" / "own"


def test_the_result_records_the_value_its_signature_and_its_declaration(study: Path) -> None:
    for path in study.glob("*/result.json"):
        result = json.loads(path.read_text("utf-8"))
        rows = read_json_lines(path.parent / "translations.test.jsonl")
        close = [abs(len(row["hypothesis"].split()) - len(row["reference"].split())) <= 1 for row in rows]
        assert result["test/similar_length"] == pytest.approx(np.mean(close))
        assert ("test/similar_length_confidence" in result) == (len(set(close)) == 2)
        assert result["test/similar_length_signature"] == "words:whitespace|tolerance:1"
        declared = result["metrics"]["metrics"]
        assert declared["similar_length"]["label"] == "similar length"
        assert (declared["similar_length"]["built_in"], declared["accuracy"]["built_in"]) == (False, True)
        statistics = read_statistics(path.parent / "scored" / "test.npz")["similar_length"]
        assert statistics.tolist() == [[float(one), 1.0] for one in close]
        log = (path.parent / "run.log").read_text("utf-8")
        assert "Stopped early: val/similar_length" in log
        assert f"similar length {result['val/similar_length']:.1%}" in log


def test_the_record_of_wandb_has_its_best_value(study: Path) -> None:
    for path in study.glob("*/result.json"):
        record = read_offline_run(path.parent)
        values = record.values("val/similar_length")
        assert len(values) == 2  # it does not improve, so the run stops early
        assert record.summary["val/similar_length"] == {"max": max(values)}
        assert record.summary["test/similar_length"] == read_result(path.parent)["test/similar_length"]


@needs_plotly
def test_runs_are_compared_by_it_without_its_code(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.html"
    compare.main(
        [str(study), "--by", "seed", "--metric", "similar_length", "--html", str(path), "--p-of-median-runs"]
    )
    printed = capsys.readouterr().out
    assert "runs of median similar length" in printed
    assert "similar length" in path.read_text("utf-8").partition("<script")[0]
    table = comparison.compare(group_runs(find_runs([study])[0], ["seed"]), None, "similar_length")
    assert page.page_data(table)["curves"][0]["label"] == "validation similar length"


def test_a_run_is_scored_again_by_another_setting_of_it(study: Path) -> None:
    (folder, *_) = sorted(path.parent for path in study.glob("*/result.json"))
    evaluate.main([str(folder), "--config-dir", str(EXAMPLE), "metric.similar_length.tolerance=100"])
    assert read_result(folder / "evaluations" / "1")["test/similar_length"] == 1
    with pytest.raises(SystemExit):  # without the folder its code is not trusted
        evaluate.main([str(folder)])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("metric=similar_lenth",), "metric=similar_lenth"),
        (("metric=similar_length", "metric.similar_length.tolerance=-1"), "tolerance=-1"),
        (("metric=similar_length", "metric.similar_length.tolerance=x"), "metric.similar_length.tolerance=x"),
        (("metric=no_package",), "package"),
        (("metric=twice",), "name=bleu"),
        (
            ("metric=[accuracy,similar_length,same_line]",),
            "metric/similar_length.yaml and metric/same_line.yaml",
        ),
        (("experiment=both",), "metric/similar_length.yaml and metric/same_line.yaml"),
        # A file may extend another one.
        (("metric=[accuracy,extended]", "trainer.monitor=val/similar"), "val/similar_length"),
        (
            ("metric=[accuracy,similar_length]", "~metric.accuracy", "trainer.monitor=val/s"),
            "val/similar_length",
        ),
        (("metric=similar_length", "trainer.monitor=val/similar"), "val/similar_length"),
    ],
)
def test_mistakes_are_refused_before_data_is_read(
    words: tuple[str, ...], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metric").mkdir()
    text = (EXAMPLE / "metric" / "similar_length.yaml").read_text("utf-8")
    (tmp_path / "metric" / "similar_length.yaml").write_text(text)
    (tmp_path / "metric" / "no_package.yaml").write_text("\n".join(text.splitlines()[1:]))
    (tmp_path / "metric" / "same_line.yaml").write_text(text)
    (tmp_path / "metric" / "extended.yaml").write_text(
        "# @package metric.similar_length\ndefaults:\n  - similar_length\n  - _self_\ntolerance: 2\n"
    )
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "both.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /metric: [similar_length, same_line]\n"
    )
    (tmp_path / "metric" / "twice.yaml").write_text(
        "# @package metric.twice\n_target_: seq2seq_lab.metrics.bleu.Bleu\n"
    )
    (tmp_path / "my_metric.py").write_text((EXAMPLE / "my_metric.py").read_text("utf-8"))
    assert command_line.run("--config-dir", str(tmp_path), *words, f"hydra.run.dir={tmp_path / 'run'}") == 2
    assert named in capsys.readouterr().err


def test_an_unknown_metric_is_refused_with_the_values_of_both_folders(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command_line.run("--config-dir", str(EXAMPLE), "metric=[similar]", "logger=none") == 2
    error = capsys.readouterr().err
    assert "metric=similar" in error
    assert "accuracy" in error
    assert "similar_length" in error
