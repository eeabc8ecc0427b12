"""The list of planned runs: what it lists, what it runs, what it adds."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import planned, results
from benchmarks.planned import BEAM, PRESETS, cells, execute, runs
from benchmarks.result_tables import TASK_TABLES
from benchmarks.results import EVALUATE, Line
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import LOCK, lock_folder

BASE = Line(
    experiment=None,
    command="",
    commit="0" * 40,
    seed=1,
    machine="2 cores of a test",
    scores={"test/bleu": 30.0},
    signatures={},
)


def test_each_planned_command_composes_and_has_its_own_folder() -> None:
    recorded = {results.unseeded(line.command) for line in results.read_lines(results.RESULTS)}
    for cell in cells():
        if results.unseeded(cell.command) not in recorded:  # test_results.py composes the others
            settings, _ = results.composed(cell.command)
            assert settings["seed"] == 1
    assert len({run.name for run in runs()}) == len(runs())
    assert all("/" not in run.name and len(run.name) <= 255 for run in runs())


def test_a_run_is_recorded_with_its_statistics_and_a_preset_with_beam_search() -> None:
    run = runs()[0]
    line = replace(BASE, command=run.command, statistics="one.npz")
    assert run.is_recorded([line])
    for other in (replace(line, statistics=None), replace(line, superseded=True), replace(line, seed=2)):
        assert not run.is_recorded([other])
    preset = next(run for run in runs() if run.cell.table == PRESETS and run.seed == 2)
    line = replace(BASE, experiment="multi30k_de_en", command=preset.command, seed=2)
    assert not preset.is_recorded([line])
    assert preset.is_recorded([line, replace(line, evaluation=" ".join([*EVALUATE, BEAM]))])
    text = "\n".join(planned.summary([line]))
    assert "| 0 of 39 |" in text
    assert f"- `{preset.cell.command}`: seeds 1, 2, 3" in text


def test_a_run_is_started_resumed_and_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").touch()  # of a run that was stopped before its first checkpoint
    commands: list[list[str]] = []
    monkeypatch.setattr(planned, "start", lambda words: commands.append(list(words)[1:]))
    run = next(run for run in runs() if run.cell.table == PRESETS and run.seed == 2)
    with pytest.raises(UserError, match="--path DIR="):
        execute(run, folder, {})
    execute(run, folder, {"DIR": "data"})
    experiment = ["-m", "seq2seq_lab", "experiment=multi30k_de_en", "dataset.path=data", "seed=2"]
    assert commands.pop(0) == [*experiment, f"hydra.run.dir={folder}"]
    assert [path.name for path in folder.iterdir()] == [LOCK]
    made = folder / "evaluations" / "planned-1"
    assert commands.pop(0) == ["-m", "seq2seq_lab.evaluate", str(folder), BEAM, f"--output={made}"]
    monkeypatch.setattr(planned, "read_finished_result", lambda path: {} if path == made else None)
    damaged = folder / "checkpoints" / "step_1"  # an empty folder is not a valid checkpoint
    damaged.mkdir(parents=True)
    execute(run, folder, {"DIR": "data"})
    assert commands == [["-m", "seq2seq_lab", f"resume={folder}"]]
    assert damaged.is_dir()


def test_a_run_that_another_process_works_on_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planned, "lock_folder", lambda folder, timeout=0.0: lock_folder(folder, timeout=0))
    run, folder = runs()[0], tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").touch()
    commands: list[object] = []
    monkeypatch.setattr(planned, "start", commands.append)
    with lock_folder(folder):  # of a run before its first checkpoint
        execute(run, folder, {})
    assert (folder / "config.yaml").is_file()
    assert not commands

    def start_both(words: object) -> None:
        with lock_folder(folder, timeout=0):  # of the started program
            commands.append(words)
        execute(run, folder, {})  # of a second `planned run`, for example between training and evaluations

    monkeypatch.setattr(planned, "start", start_both)
    execute(run, folder, {})
    assert len(commands) == 1
    assert capsys.readouterr().out.count(f"another process works on it: {folder}") == 2


def test_each_planned_table_of_a_task_is_on_a_page_and_shows_metrics_of_the_task() -> None:
    shown = {name: scores for tables in TASK_TABLES.values() for name, scores in tables.items()}
    on_other_pages = {
        *(planned.MAIN, planned.GRAMMAR, planned.MULTI30K, planned.PRESETS, planned.TATOEBA),
        *(planned.WU, planned.LIUM),
        *(planned.EXPLANATION, planned.EXPLANATION_SECOND, planned.EXPLANATION_MULTI30K),
    }
    assert {*shown} == {*planned.tables()} - on_other_pages
    for table, scores in shown.items():
        settings, _ = results.composed(next(cell.command for cell in cells() if cell.table == table))
        metrics = {metric.name for metric in results.task_class(settings["task._target_"]).metrics}
        metrics |= {key.split(".")[1] for key in settings if key.startswith("metric.")}
        assert {name.rpartition("/")[2].partition("_by_")[0] for name in scores} <= metrics


def test_only_a_table_is_run_with_its_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(planned, "start", lambda words: commands.append(list(words)))
    monkeypatch.setattr(planned, "read_lines", lambda _: [])
    planned.main(["run", str(tmp_path), "--only", planned.WORD_VECTORS, "--path", "VECTORS=en.vec"])
    assert len(commands) == 18
    assert all("hydra.mode=RUN" in words for words in commands)  # not a placeholder of a path
    assert sum("embedding.source.path=en.vec" in words for words in commands) == 9


def test_hours_are_of_runs_that_are_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[Path] = []
    monkeypatch.setattr(planned, "read_lines", lambda _: [])
    monkeypatch.setattr(
        planned, "read_finished_result", lambda folder: {} if "seed" not in folder.name else None
    )
    monkeypatch.setattr(planned, "start", lambda words: done.append(Path(words[-1])))
    chosen = [run for run in runs() if run.cell.table == planned.WORD_LANGUAGE_MODEL]  # of 10 minutes
    paths = [f"--path={name}=text" for name in ("TRAIN", "VALID", "TEST")]
    planned.main(["run", str(tmp_path), "--only", planned.WORD_LANGUAGE_MODEL, "--hours", "0.2", *paths])
    assert [path.name for path in done] == [chosen[1].name]
    assert capsys.readouterr().out == "Not started, because of --hours: 1 (the shortest takes 10 minutes)\n"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--only", "SCAN length"], "--only=SCAN length"),
        (["--path", "DIR"], "--path=DIR has no path"),
        (
            ["--path", "COMANDS=x"],
            "--path=COMANDS=x: no planned command has COMANDS. They have: COMMANDS, DIR,",
        ),
        ([], "needs a path"),  # before the first run
    ],
)
def test_wrong_options_are_named_before_the_first_run(
    options: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned, "read_lines", lambda _: [])
    monkeypatch.setattr(planned, "start", lambda words: pytest.fail(f"started: {words}"))
    with pytest.raises(SystemExit, match=named):
        planned.main(["run", str(tmp_path), *options])


def test_a_run_that_is_refused_does_not_keep_others_from_being_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[str] = []

    def add(words: list[str]) -> None:
        if not added:
            added.append("refused")
            raise UserError("the first")
        added.append(words[1])

    monkeypatch.setattr(planned, "read_lines", lambda _: [])
    monkeypatch.setattr(planned, "read_finished_result", lambda folder: {})
    monkeypatch.setattr(results, "add", add)
    with pytest.raises(SystemExit, match="error: the first"):
        planned.main(["add", str(tmp_path), "--machine", "2 cores of a test", "--commit", "0" * 40])
    assert len(added) >= len(runs())


def test_a_failing_command_ends_the_list() -> None:
    for status, remedy in ((3, "Correct the cause"), (143, "A signal stopped it")):
        with pytest.raises(UserError, match=rf"status {status}\. {remedy}"):
            planned.start([sys.executable, "-c", f"raise SystemExit({status})"])


def test_what_has_not_finished_is_not_added(tmp_path: Path) -> None:
    before = results.RESULTS.read_bytes()
    with pytest.raises(SystemExit, match="has no finished run that is still to be recorded"):
        planned.main(["add", str(tmp_path), "--machine", "2 cores of a test"])
    assert results.RESULTS.read_bytes() == before
