"""Real runs, recorded by the default logger and trained on text with odd line separators, compared."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import command_line
import pytest
from extras import needs_plotly

import seq2seq_lab
from seq2seq_lab import evaluate
from seq2seq_lab.compare import main
from seq2seq_lab.reporting import comparison, distances, page
from seq2seq_lab.reporting.runs import find_runs, group_runs

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
SETTINGS = (
    *(
        "dataset=parallel",
        "dataset.train=pairs.tsv",
        "dataset.validation=pairs.tsv",
        "dataset.test=pairs.tsv",
    ),
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=8", "trainer.device=cpu"),
    *("trainer.max_epochs=1", "task.samples=0", "trainer.precision=fp32", "optimizer.lr=0.05"),
)


def write_pairs(path: Path) -> None:
    """Write sentence pairs whose text holds U+2028 and U+0085, which end no line."""
    rows = [[WORDS[(i + j) % 8] for j in range(3 + i % 4)] for i in range(40)]
    lines = ["\u2028".join(row) + "\t" + " ".join(row[::-1]) + "\x85." for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a study of two seeds, `sweeps/mine`, recorded by W&B offline; made the working directory."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
            patch.setenv(name, str(folder / "home"))
        patch.setenv("NETRC", str(folder / "home" / "netrc"))
        patch.setenv("SEQ2SEQ_LAB_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        write_pairs(folder / "pairs.tsv")
        with (folder / "console.txt").open("w") as console:
            patch.setattr("sys.stdout", console)
            assert command_line.run("-m", "seed=1,2", "study.name=mine", *SETTINGS) == 0
        yield folder
        import wandb

        wandb.teardown()


def test_a_study_counts_each_run_once(recorded: Path) -> None:
    assert len([*recorded.glob("sweeps/mine/*/wandb/artifacts/*/config.yaml")]) == 2
    runs, skipped = find_runs([recorded / "sweeps"])
    assert [run.seed for run in runs] in (["1", "2"], ["2", "1"])
    assert skipped == []
    assert "\n2 runs" in (recorded / "console.txt").read_text("utf-8")
    # The copy that W&B keeps counts as a run only if it is given alone.
    (copy, *_) = recorded.glob("sweeps/mine/*/wandb/artifacts/1")
    assert len(find_runs([copy])[0]) == 1
    runs, skipped = find_runs([copy, recorded / "sweeps"])
    assert len(runs) == 2
    assert all(run.examples and run.statistics for run in runs)
    assert skipped == [f"{copy}: a copy of {copy.parents[2]} (run_id={runs[0].record['run_id']})"]


def test_a_copy_of_a_run_without_a_logger_is_no_further_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "pairs.tsv")
    for seed in (1, 2):
        seq2seq_lab.train([*SETTINGS, f"seed={seed}", "logger=none"], folder=tmp_path / "runs" / str(seed))
    shutil.copytree(tmp_path / "runs", tmp_path / "copies")
    seq2seq_lab.load(tmp_path / "copies" / "2").evaluate()
    runs, skipped = find_runs([tmp_path / "runs", tmp_path / "copies"])
    assert [run.folder.parent.name for run in runs] == ["runs"] * 2
    assert skipped == [
        f"{tmp_path / 'copies' / name}: a copy of {tmp_path / 'runs' / name}" for name in ("1", "2")
    ]
    # Its evaluation is another run, and reads the weights of the copy.
    moved = (tmp_path / "copies").rename(tmp_path / "moved")
    (evaluation,), _ = find_runs([moved / "2" / "evaluations" / "1"])
    assert distances.opened(evaluation, seq2seq_lab.load).folder == moved / "2"


@needs_plotly
def test_the_page_shows_each_run_once(recorded: Path) -> None:
    found = comparison.compare(
        group_runs(find_runs([recorded / "sweeps"])[0], ["seed"]), None, p_of_median_runs=True
    )
    assert found.bases == [found.groups[0]]
    assert found.warnings == ()
    data = page.page_data(found)
    (loss,) = (curve["lines"] for curve in data["curves"] if curve["label"] == "training loss")
    assert len(loss) == len(data["runs"]) == 2
    assert len(data["examples"][0]["inputs"]) == 40


def test_the_command_reads_text_with_odd_line_separators(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(recorded / "sweeps"), "--by", "seed"])
    assert "2 runs" in capsys.readouterr().out
    for run in find_runs([recorded / "sweeps"])[0]:
        assert len(run.examples) == 40
        assert "\u2028" in run.examples[0]["input"]
        assert "\x85" in run.examples[0]["reference"]


@needs_plotly
def test_evaluations_are_compared_when_named(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = sorted(recorded.glob("sweeps/mine/*/"))
    evaluate.main([str(first), "search=beam", "search.size=2"])
    evaluate.main([str(first), "--ensemble", str(second)])
    evaluate.main([str(first), "--checkpoint", "last:1", "--precision", "bf16"])
    assert len(find_runs([recorded / "sweeps"])[0]) == 2
    greedy, beam = group_runs(find_runs([first, first / "evaluations" / "1"])[0])
    assert (greedy.varies, beam.varies) == (
        {"search": "greedy", "search.size": "–"},
        {"search": "beam", "search.size": "2"},
    )
    found = comparison.compare([greedy, beam], "greedy", p_of_median_runs=True)
    assert found.bases == [greedy]
    assert [line.p_models is None for line in found.lines].count(True) == 1
    assert found.warnings == ()
    assert "one comparison, not corrected" in comparison.note(found)
    page.page_data(found)
    single, ensemble = group_runs(find_runs([first, first / "evaluations" / "2"])[0])
    assert single.varies == {"ensemble": "no"}
    assert ensemble.varies == {"ensemble": f"{first.name}+{second.name}"}
    capsys.readouterr()
    main([str(first), str(first / "evaluations")])
    said = capsys.readouterr().out
    assert "4 runs" in said
    assert "last:1" in said
    assert f"warning: precision differs: fp32 in {first}" in said
