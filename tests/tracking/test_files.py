import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seq2seq_lab.errors import UserError
from seq2seq_lab.tracking import FileTracker, NoTracker, Trackers, read_metrics


def test_rows_are_on_disk_before_the_file_is_closed(tmp_path: Path) -> None:
    tracker = FileTracker(tmp_path, resume_step=None)
    tracker.log_metrics({"train/loss": 2.5, "train/tokens": 7}, step=1)
    tracker.log_metrics({"val/bleu": 30.0}, step=2)
    first, second = read_metrics(tmp_path / "metrics.jsonl")
    tracker.finish(0)
    assert abs(first.pop("time") - time.time()) < 60
    assert first == {"step": 1, "train/loss": 2.5, "train/tokens": 7}
    assert (second["step"], second["val/bleu"]) == (2, 30.0)


def test_metrics_that_are_not_finite_are_valid_json_and_are_read_back(tmp_path: Path) -> None:
    tracker = FileTracker(tmp_path, resume_step=None)
    tracker.log_metrics({"a": math.nan, "b": math.inf, "c": -math.inf}, step=1)
    tracker.finish(0)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    path = tmp_path / "metrics.jsonl"
    json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    (row,) = read_metrics(path)
    assert math.isnan(row["a"])
    assert (row["b"], row["c"]) == (math.inf, -math.inf)


def test_resuming_removes_later_rows_and_an_incomplete_last_line(tmp_path: Path) -> None:
    tracker = FileTracker(tmp_path, resume_step=None)
    for step in (0, 1, 2, 3):
        tracker.log_metrics({"train/loss": math.nan if step == 1 else float(step)}, step)
    tracker.finish(1)
    path = tmp_path / "metrics.jsonl"
    kept = path.read_text(encoding="utf-8").splitlines(keepends=True)[:3]
    with path.open("a", encoding="utf-8") as file:
        file.write('{"step": 2, "train/lo')

    tracker = FileTracker(tmp_path, resume_step=2)
    assert path.read_text(encoding="utf-8") == "".join(kept)
    tracker.log_metrics({"train/loss": 9.0}, step=3)
    tracker.finish(0)
    assert [row["step"] for row in read_metrics(path)] == [0, 1, 2, 3]
    assert read_metrics(path)[-1]["train/loss"] == 9.0
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_the_old_rows_stay_when_resuming_dies_before_the_new_file_is_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = FileTracker(tmp_path, resume_step=None)
    tracker.log_metrics({"train/loss": 1.0}, step=1)
    tracker.finish(1)
    before = (tmp_path / "metrics.jsonl").read_bytes()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            FileTracker(tmp_path, resume_step=0)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_new_run_starts_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "time": 0, "train/loss": 1}\n', encoding="utf-8")
    FileTracker(tmp_path, resume_step=None).finish(0)
    assert read_metrics(tmp_path / "metrics.jsonl") == []


@pytest.mark.parametrize(
    "damage",
    [
        b"{\xff}\n",
        b"\0\0\0\n",
        b"[1]\n",
        b'{"step": null}\n',
        b'{"step": 1, "step": 1}\n',
        b'{"step": 1, "time": 0}\n',
    ],
)
def test_a_damaged_file_is_set_aside_and_its_other_rows_are_kept(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = FileTracker(tmp_path, resume_step=None)
    tracker.log_metrics({"train/loss": 1.0}, step=1)
    tracker.finish(0)
    path = tmp_path / "metrics.jsonl"
    content = path.read_bytes() + damage
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2"):
        read_metrics(path)
    FileTracker(tmp_path, resume_step=1).finish(0)
    assert [row["step"] for row in read_metrics(path)] == [1]
    assert (tmp_path / "metrics.jsonl.damaged-1").read_bytes() == content
    assert str(path) in caplog.text


def test_every_flipped_byte_of_a_row_is_found(tmp_path: Path) -> None:
    tracker = FileTracker(tmp_path, resume_step=None)
    for step in (1, 2):
        tracker.log_metrics({"train/loss": math.inf, "val/bleu": 30.25}, step)
    tracker.finish(0)
    path = tmp_path / "metrics.jsonl"
    content, rows = path.read_bytes(), read_metrics(path)
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        with pytest.raises(UserError, match=r"metrics\.jsonl"):
            read_metrics(path)
    path.write_bytes(content)
    assert read_metrics(path) == rows


def test_a_missing_file_is_named_and_started_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    FileTracker(tmp_path, resume_step=1).finish(0)
    assert str(tmp_path / "metrics.jsonl") in caplog.text
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_scores_that_are_computed_again_are_removed(tmp_path: Path) -> None:
    tracker = FileTracker(tmp_path, resume_step=None)
    tracker.log_metrics({"val/bleu": 1.0}, step=5)
    for split in ("test", "test/other"):
        tracker.log_metrics({f"{split}/bleu": 2.0}, step=5)
    tracker.finish(1)
    path = tmp_path / "metrics.jsonl"
    FileTracker(tmp_path, resume_step=5).finish(0)
    assert len(read_metrics(path)) == 3
    FileTracker(tmp_path, resume_step=5, computed_again=["test/"]).finish(0)
    (row,) = read_metrics(path)
    assert row["val/bleu"] == 1.0
    FileTracker(tmp_path, resume_step=6, computed_again=["val/"]).finish(0)
    assert read_metrics(path) == [row]
    FileTracker(tmp_path, resume_step=5, computed_again=["val/"]).finish(0)
    assert read_metrics(path) == []


class _Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> object:
        return lambda *arguments: self.calls.append((name, *arguments))


def test_several_trackers_get_everything_in_order() -> None:
    recorders = [_Recorder(), _Recorder()]
    trackers = Trackers(recorders)
    calls = [
        ("log_metrics", {"train/loss": 1.0}, 1),
        ("log_images", "val/attention", [Path("a.png")], ["a"], 2),
        ("log_table", "val/translations", ["source"], [["x"]], 3),
        ("log_artifact", "best", "model", [Path("best")], {"bleu": 1.0}),
        ("record_notes", "overrides: seed=2"),
        ("record_summary", {"test/bleu": 1.0}),
        ("finish", 0),
    ]
    for name, *arguments in calls:
        getattr(trackers, name)(*arguments)
    assert [recorder.calls for recorder in recorders] == [calls, calls]


def test_logger_none_records_nothing(tmp_path: Path) -> None:
    logger = NoTracker(tmp_path, config={}, flat={}, run_id="abc")
    logger.log_metrics({"train/loss": 1.0}, 1)
    logger.finish(0)
    assert (logger.run_id, logger.url, logger.offline, logger.sync_command()) == (None, None, False, None)
    assert list(tmp_path.iterdir()) == []


def test_without_a_logger_wandb_is_never_imported(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from seq2seq_lab.tracking import FileTracker, NoTracker, Trackers\n"
        "folder = Path(sys.argv[1])\n"
        "logger = NoTracker(folder, {}, {}, None)\n"
        "tracker = Trackers([FileTracker(folder, None), logger])\n"
        "tracker.log_metrics({'train/loss': 1.0}, 1); tracker.finish(0)\n"
        "assert 'seq2seq_lab.tracking.files' in sys.modules\n"
        "assert 'wandb' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
