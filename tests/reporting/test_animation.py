"""The attention over the training: which steps it has, the animation and the sliders of a page."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from programs import runs
from reporting.test_compare import make_run

from seq2seq_lab.config.run_folder import cover
from seq2seq_lab.config.schema import Precision
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.metrics.measurement import Measurement
from seq2seq_lab.metrics.registry import ALIGNMENT_METRICS
from seq2seq_lab.metrics.ter import Ter
from seq2seq_lab.reporting import run_page
from seq2seq_lab.reporting.runs import Run, find_runs
from seq2seq_lab.reporting.snapshots import Snapshots, is_due
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.tasks.evaluation import Evaluation, SplitEvaluator
from seq2seq_lab.tasks.report import Heatmap, Heatmaps
from seq2seq_lab.tasks.splits import TextSplit
from seq2seq_lab.tasks.translation.report import HEATMAP_KEYS

FILES = ["result.json", "scored", "translations.test.jsonl", "attention.test.jsonl", "attention"]


def read(folder: Path) -> Run:
    (found,), _ = find_runs([folder], for_page=True)
    return found


class Scores(SplitEvaluator[int]):
    """An evaluator whose score is the number of its calls."""

    calls = 0

    def score(self, index: Any, final: bool) -> Any:
        raise NotImplementedError

    def outputs(self, results: Any) -> Any:
        raise NotImplementedError

    def __call__(self, final: bool = False, counted: Any = None) -> Any:
        self.calls += 1
        return Evaluation({"val/bleu": float(self.calls), "val/ter": 3.0}, Measurement({}), None)


class Shown:
    """A task with snapshots of the first two examples."""

    primary, snapshot_metrics = "bleu", ("aer",)

    def snapshot(self, split: Any, model: Any) -> Any:
        return None if model is None else replace(split, text=split.text[:2])

    def snapshot_heatmaps(self, split: Any, evaluation: Any) -> Heatmaps:
        maps = [Heatmap(title=one, columns=["a"], rows=["b"], weights=[[1.0]]) for one in split.text]
        return Heatmaps(maps=maps, keys=HEATMAP_KEYS)

    def evaluator(self, split: Any, model: Any, compute: Any, also: Any) -> Scores:
        assert also == ("bleu", "aer")
        return Scores(
            model, split, compute, plan=[], examples="", metrics=(Bleu(), Ter(), *ALIGNMENT_METRICS)
        )


def test_snapshots_are_written_once_with_the_metrics_of_their_examples(tmp_path: Path) -> None:
    split = TextSplit[Any, Any]("val", ["one", "two", "three"], None)
    task: Any = Shown()
    snapshots = Snapshots(task, split, "model", Compute(torch.device("cpu"), Precision.fp32), tmp_path)
    for step, always in ((0, True), (1, False), (2, False), (3, True), (3, False), (7, True)):
        snapshots(step, always)
    written = sorted((tmp_path / "attention").iterdir())
    assert [path.name for path in written] == [f"step_{step:08d}.jsonl" for step in (0, 1, 3, 7)]
    rows = [json.loads(line) for line in written[2].read_text().splitlines()]
    assert [row["source"] for row in rows] == ["one", "two"]
    assert rows[0]["note"] == "step 3: BLEU 3.00 (2 validation examples)"
    without = Snapshots(task, split, None, Compute(torch.device("cpu"), Precision.fp32), tmp_path / "none")
    without(0, True)
    assert not (tmp_path / "none").exists()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with a picture from before the training, whose output is one word longer."""
    folder = tmp_path / "run"
    make_run(folder, "dot", 1, 0.9)
    path = folder / "attention/step_00000100.jsonl"
    row = json.loads(path.read_text().splitlines()[0])
    longer = {
        **row,
        "target_tokens": ["x", "x", "<eos>"],
        "weights": [[0.3, 0.3, 0.4]] * 3,
        "note": "step 0: BLEU 0.00, AER 0.900 (16 validation examples)",
    }
    (folder / "attention/step_00000000.jsonl").write_text(json.dumps(longer) + "\n")
    cover(folder, "result", FILES)
    return folder


def test_snapshots_have_equal_ratios_and_begin_before_the_first_step() -> None:
    assert [step for step in range(4000) if is_due(step)] == [0, 1, 3, 10, 30, 100, 300, 1000, 3000]


def test_an_animation_shows_a_sample_at_every_step_in_one_size(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.main([str(folder), "--animate", str(tmp_path / "one.gif")])
    assert "written: " in capsys.readouterr().out
    with Image.open(tmp_path / "one.gif") as animation:
        assert (animation.n_frames, animation.info["loop"]) == (3, 0)


@pytest.mark.parametrize("options", [["--animate", "one.png"], ["--animate", "one.gif", "--sample", "2"]])
def test_an_animation_that_cannot_be_made_is_refused(
    folder: Path, tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        runs.main([str(folder), *options])
    assert not (tmp_path / "one.gif").exists()


def test_pictures_of_validations_are_joined_if_the_attention_is_no_matrix(
    folder: Path, tmp_path: Path
) -> None:
    for path in folder.glob("attention/step_*.jsonl"):
        path.unlink()
    for step, color in ((10, "red"), (20, "blue")):
        Image.new("RGB", (4, 4), color).save(folder / f"attention/sample_1_step_{step:08d}.png")
    cover(folder, "result", FILES)
    runs.main([str(folder), "--animate", str(tmp_path / "one.gif")])
    with Image.open(tmp_path / "one.gif") as animation:
        assert (animation.n_frames, animation.size) == (2, (4, 4))


def test_a_page_has_a_slider_over_the_training(folder: Path) -> None:
    html = run_page.sliders(read(folder))
    data = json.loads(html.split('type="application/json">')[1].split("</script>")[0])
    assert [one["note"] for one in data["frames"]] == [
        "step 0: BLEU 0.00, AER 0.900 (16 validation examples)",
        "step 100",
        "step 200",
    ]
    assert [len(one["y"]) for one in data["frames"]] == [3, 2, 2]
    assert data["frames"][1]["links"] == [[1, 0]]


def test_weights_of_a_diverged_model_are_not_written() -> None:
    maps = [
        Heatmap(title=str(weight), columns=["a"], rows=["b"], weights=[[weight]])
        for weight in (0.5, math.nan, math.inf)
    ]
    assert [one["title"] for one in Heatmaps(maps=maps).records] == ["0.5"]
