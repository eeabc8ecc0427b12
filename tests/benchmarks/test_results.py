"""docs/results.jsonl and the pages that show it agree; what a run has to be to be added."""

import json
import re
import shlex
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rewriting import rewrite

import seq2seq_lab
from benchmarks import explanation, length_pictures, planned, result_tables, results
from benchmarks.page import NOT_RECORDED, with_parts
from benchmarks.planned import Cell
from benchmarks.results import Line
from seq2seq_lab import evaluate
from seq2seq_lab.config.schema import CONF_DIR
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.runtime.tables import with_interval

TEXTS = {path.stem: path.read_text("utf-8") for path in (CONF_DIR / "experiment").glob("*.yaml")}
EXPERIMENTS = {
    name: text for name, text in TEXTS.items() if "Test BLEU" in text
}  # of translation, with a recorded run
LINES = results.read_lines(results.RESULTS)
CURRENT = results.current(LINES)
SETTINGS = (
    "dataset.train=20 dataset.validation=4 dataset.test=4 dataset.test_compositional=0 trainer.max_epochs=1 "
    "task.samples=0 trainer.device=cpu model.embedding_size=8 model.hidden_size=8 model.encoder_hidden_size=4"
)
COMMAND = f"python -m seq2seq_lab {SETTINGS} tokenizer=char"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
ONE = Line(
    experiment="own",
    command="python -m seq2seq_lab experiment=own dataset.path=DIR",
    commit=COMMIT,
    seed=1,
    machine="2 cores of a test",
    scores={"val/bleu": 31.0, "test/bleu": 30.0, "test/aer": 0.25},
    signatures={"test/bleu": "nrefs:1"},
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with an evaluation; copy it before changing it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seq2seq_lab.training.provenance.git_commit", lambda: COMMIT)
        patch.setattr("seq2seq_lab.training.provenance.git_is_dirty", lambda: False)
        seq2seq_lab.train([*COMMAND.split()[3:], "logger=none"], folder)
        evaluate.main([str(folder), "search=beam", "search.size=2", "--device", "cpu"])
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.jsonl")
    results.write_lines(results.RESULTS, [ONE])
    return Path(shutil.copytree(finished, tmp_path / "run"))


def add(folder: Path, command: str = COMMAND, *more: str) -> Line:
    results.main(["add", str(folder), "--command", command, "--machine", ONE.machine, *more])
    (line,) = (line for line in results.read_lines(results.RESULTS) if line != ONE)
    return line


def change(path: Path, **changes: Any) -> None:
    rewrite(path, json.dumps(json.loads(path.read_text("utf-8")) | changes))


def test_the_pages_show_the_file() -> None:
    for page, parts in result_tables.pages(LINES).items():
        text = page.read_text("utf-8")
        assert with_parts(text, parts) == text, "run: python -m benchmarks.result_tables"
        for lines in parts.values():
            if not lines[0].startswith(NOT_RECORDED):
                first_row = next(i for i, line in enumerate(lines) if line.startswith("|"))
                assert lines[first_row + 1].startswith("|---")
                assert not any(line.startswith("- machine") for line in lines[first_row:])


def rows_of(part: Sequence[str]) -> list[str]:
    return [line for line in part if line.startswith("|")]


def test_a_page_without_a_part_is_refused() -> None:
    page = "x\n<!-- a: made -->\nold\n<!-- end of a -->\ny"
    assert with_parts(page, {"a": ["new"]}) == "x\n<!-- a: made -->\n\nnew\n\n<!-- end of a -->\ny"
    with pytest.raises(UserError, match="<!-- b"):
        with_parts(page, {"b": []})


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_header_of_an_experiment_has_its_command_and_score(name: str) -> None:
    (line,) = (line for line in results.current(LINES, name) if line.seed == 1)  # as the header says
    header = EXPERIMENTS[name].split("defaults:")[0]
    assert f"# Command: {line.command}\n" in header
    lowercased = "of lowercased tokens" in header.rpartition("Test BLEU")[2]
    measure = "test/bleu_lowercased_tokenised" if lowercased else "test/bleu"
    score = " ".join(header.replace("\n#", "").split())
    assert f": {line.scores[measure]:.2f}" in score
    assert line.signatures[measure] in score
    assert ("scored as three tokens" in score) == (line.unknown is not None)


def test_the_lines_are_sorted_and_unique() -> None:
    assert sorted(LINES, key=lambda line: (line.key, line.superseded)) == LINES
    assert len({json.dumps(line.key) for line in CURRENT}) == len(CURRENT)
    of_tasks = {name for tables in result_tables.TASK_TABLES.values() for name in tables}
    commands = {cell.command for cell in planned.cells() if cell.table in of_tasks}
    translation = {line.experiment for line in CURRENT if line.task == "translation"}
    on_pages_of_tasks = {
        line.experiment for line in CURRENT if shlex.join(results.unseeded(line.command)) in commands
    }
    assert translation - {None} - on_pages_of_tasks == set(EXPERIMENTS)


@pytest.mark.parametrize("command", sorted({shlex.join(results.unseeded(line.command)) for line in CURRENT}))
def test_a_command_still_composes_the_measured_settings(command: str) -> None:
    """If this fails, an experiment or a default has changed: measure it again, or remove its line."""
    settings, experiment = results.composed(command)
    for line in CURRENT:
        if line.settings and shlex.join(results.unseeded(line.command)) == command:
            assert experiment == str(line.experiment)
            seeds = {key: line.seed for key in ("seed", "search.seed") if key in settings}
            assert results.differences(settings | seeds, line.settings) == {}


def test_every_command_has_its_seed_and_no_path() -> None:
    for line in LINES:
        for command in (line.command, *line.others):
            words = command.split()
            assert line.seed == next((int(word[5:]) for word in words if word.startswith("seed=")), 1)
            assert not any(results.OWN_PATH.search(word) for word in words)
        assert line.scores
        assert set(line.signatures) <= set(line.scores)


def test_a_new_line_supersedes_the_old_one(tmp_path: Path) -> None:
    second = replace(ONE, seed=2, command=f"{ONE.command} seed=2")
    other, new = replace(ONE, experiment="another"), replace(ONE, scores={"test/bleu": 31.0})
    lines: list[Line] = []
    for line in (second, ONE, other, new):
        lines = results.with_line(lines, line)
    assert lines == [other, new, replace(ONE, superseded=True), second]
    results.write_lines(tmp_path / "results.jsonl", lines)
    assert results.read_lines(tmp_path / "results.jsonl") == lines
    changed = replace(second, command=f"{second.command} model.dropout=0.5")
    both = results.with_line(lines, changed)  # other settings of an experiment: another line
    assert [line for line in both if line.seed == 2] == [second, changed]
    assert results.current(both, "own") == [new, second]
    old = replace(ONE, experiment=None, command="python -m seq2seq_lab model=vanilla logger=none")
    new = replace(old, command="python -m seq2seq_lab model=vanilla")
    assert results.with_line([old], new) == [new]  # the same scores


def test_a_run_is_added(run: Path) -> None:
    line = add(run)
    result = json.loads((run / "result.json").read_text("utf-8"))
    assert (line.experiment, line.seed, line.commit, line.command) == (None, 1, COMMIT, COMMAND)
    assert line.scores["test/bleu"] == pytest.approx(result["test/bleu"], abs=1e-4)
    assert {"val/chrf", "test/perplexity_free_running"} <= set(line.scores)
    assert not [name for name in line.scores if "seconds" in name or "signature" in name]
    assert line.signatures["test/bleu"] == result["test/bleu_signature"]
    assert (line.parameters, line.steps) == (result["num_parameters"], result["steps"])
    assert line.peak_memory_mib == result["peak_memory_mib"]
    assert sum(group["count"] for group in line.groups["test/bleu_by_length"]) == 4
    assert line.settings["model.hidden_size"] == 8
    assert (line.task, line.units_per_second) == ("translation", result["train/target_tokens_per_second"])
    assert line.examples == {"test": result["test/examples"]}
    assert result["test/worst_outputs"]
    assert "test/worst_outputs" not in line.groups


def test_the_statistics_per_sentence_are_kept(run: Path) -> None:
    line = add(run)
    statistics = results.read_statistics(line)
    assert statistics["test/_clusters"].shape == (4,)
    assert Bleu().value(statistics["test/bleu"].sum(0)) == pytest.approx(line.scores["test/bleu"], abs=1e-4)
    rewrite(run / "result.json", (run / "result.json").read_text("utf-8"))
    assert add(run) == line  # the same scores: no second line
    assert [path.name for path in (run.parent / "statistics").iterdir()] == [line.statistics]


def test_measures_are_added_to_the_line_of_the_same_run_only(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, planned_run = add(run), planned.Run(Cell("a table", COMMAND, 1), 1)
    monkeypatch.setattr(explanation, "RESULTS", results.RESULTS)
    explanation.write_arrays(run / explanation.MEASURED, {"test/kept_union": np.array([[1, 2], [2, 2]])})
    change(run / "result.json", **{"test/bleu": 99.0})
    with pytest.raises(UserError, match="are not those recorded"):
        explanation.add(planned_run, run)
    change(run / "result.json", **{"test/bleu": line.scores["test/bleu"]})
    explanation.add(planned_run, run)
    (added,) = (one for one in results.read_lines(results.RESULTS) if one != ONE)
    assert added.scores == line.scores | {"test/kept_union": 0.75}
    assert results.read_statistics(added)["test/kept_union"].tolist() == [[1, 2], [2, 2]]
    assert add(run) == added  # once more: what was measured is kept
    assert "test/kept_union" in results.read_statistics(added)


# Of `explanation run`; the others are metrics.
MEASURED = tuple(f"test/{name}_" for name in ("kept", "average_precision", "deletion", "aer_by"))


@pytest.mark.parametrize("line", [line for line in LINES if line.statistics], ids=lambda line: line.command)
def test_the_kept_statistics_have_the_recorded_scores(line: Line) -> None:
    for name, array in results.read_statistics(line).items():
        if name in line.scores:
            totals = array.astype(float).sum(0)
            if name.startswith(MEASURED):
                value = explanation.mean_of_sums(totals[None])[0]
            else:
                value = result_tables.metric_of(name, line.task).value(totals)
            assert value == pytest.approx(line.scores[name], abs=1e-3)


def test_an_evaluation_is_added(run: Path) -> None:
    evaluation = ("--evaluation", "python -m seq2seq_lab.evaluate RUN search=beam search.size=2")
    line = add(run / "evaluations" / "1", COMMAND, *evaluation)
    result = json.loads((run / "evaluations" / "1" / "result.json").read_text("utf-8"))
    assert (line.commit, line.seed, line.train_seconds) == (COMMIT, 1, None)
    cell = with_interval(result["test/bleu"], result.get("test/bleu_confidence"), ".2f")
    assert any(
        f"| 1 | `search=beam search.size=2` | {cell} |" in row for row in result_tables.evaluations([line])
    )
    beam = "search=beam search.size=2"
    for wrong, named in (
        ("search=beam search.size=3", "gives search.size=3"),
        (f"--ensemble RUN {beam}", "give a --member for each"),
        (f"--ensemble=RUN {beam}", "give a --member for each"),
        (f"{beam} --checkpoint last:2", "--checkpoint=last:2. The evaluation has --checkpoint=None"),
        (f"{beam} --precision fp32", "--precision=fp32. The evaluation has --precision=auto"),
        (f"{beam} --replace-unknown", "--replace-unknown=True"),
        (f"{beam} --validation", "--validation=True"),
        (f"{beam} --checkpoints last:2", "--checkpoints"),
    ):
        with pytest.raises(SystemExit, match=named):
            add(
                run / "evaluations" / "1",
                COMMAND,
                "--evaluation",
                f"python -m seq2seq_lab.evaluate RUN {wrong}",
            )
    with pytest.raises(SystemExit, match="not an evaluation"):
        add(run, COMMAND, *evaluation)


def test_an_evaluation_is_not_what_runs_show_beside_theirs(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Path] = []
    monkeypatch.setattr(results, "SHOWN_BESIDE", COMMAND)
    monkeypatch.setattr(results, "write_recorded", lambda folder, line: shown.append(folder))
    evaluation = ("--evaluation", "python -m seq2seq_lab.evaluate RUN search=beam search.size=2")
    results.add(["add", str(run), "--command", COMMAND, "--machine", ONE.machine])
    about = ["--command", COMMAND, "--machine", ONE.machine]
    results.add(["add", str(run / "evaluations" / "1"), *about, *evaluation])
    assert shown == [run]


def test_runs_that_measure_nothing_are_refused(run: Path) -> None:
    change(run / "run.json", evaluation={"run": "outputs/run"})
    with pytest.raises(SystemExit, match="--evaluation"):
        add(run)
    change(run / "result.json", status="interrupted")
    with pytest.raises(SystemExit, match="not a finished run"):
        add(run)


def test_a_refused_run_changes_no_file(run: Path) -> None:
    add(run)
    (kept,) = (run.parent / "statistics").iterdir()
    kept.write_bytes(b"of the recorded run")
    before = results.RESULTS.read_bytes()
    with pytest.raises(SystemExit, match="--command="):
        add(run, f"{COMMAND} model.dropout=0.5")
    assert results.RESULTS.read_bytes() == before
    assert [path.read_bytes() for path in kept.parent.iterdir()] == [b"of the recorded run"]


def test_a_trial_is_refused(run: Path) -> None:
    config = run / "config.yaml"
    rewrite(config, config.read_text("utf-8").replace("fast_dev_run: false", "fast_dev_run: true"))
    with pytest.raises(SystemExit, match=r"trainer\.fast_dev_run"):
        add(run)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("seq2seq-lab", "--command="),
        (f"{COMMAND} init_from=/home/me/run", "/home/me/run"),
        ("python -m seq2seq_lab experiment=luong2015", "experiment=None"),
        (COMMAND.replace("hidden_size=8", "hidden_size=16"), r"model\.hidden_size=16"),
        (f"{COMMAND} seed=2", "seed=2"),
        (f"{COMMAND} attention=dot", "attention._target_="),
    ],
)
def test_a_command_of_another_run_is_refused(run: Path, command: str, named: str) -> None:
    with pytest.raises(SystemExit, match=named):
        add(run, command)


def test_the_commit_comes_from_the_record_or_the_option(tmp_path: Path) -> None:
    clean, dirty, unknown = ({"commit": COMMIT, "dirty": value} for value in (False, True, None))
    assert results.commit_of(tmp_path, clean, None) == COMMIT
    assert results.commit_of(tmp_path, clean, COMMIT[:7]) == COMMIT
    assert results.commit_of(tmp_path, dirty, "abcdef0") == "abcdef0"
    assert results.commit_of(tmp_path, {}, "abcdef0") == "abcdef0"
    for record, given in ((clean, "abcdef0"), (dirty, None), (unknown, None), ({}, None), ({}, "main")):
        with pytest.raises(UserError, match="--commit="):
            results.commit_of(tmp_path, record, given)


def test_scores_are_means_over_seeds_and_marked() -> None:
    runs = [replace(ONE, seed=seed, scores={"test/bleu": 29.0 + seed}) for seed in (1, 2, 3)]
    assert result_tables.score(runs, "test/bleu") == "31.00 ± 1.00"
    marked = replace(ONE, unknown="three tokens")
    assert result_tables.score([marked], "test/bleu") == "30.00 ‡"
    assert result_tables.score([marked], "test/aer") == "0.250"


def test_superseded_lines_are_only_in_their_table() -> None:
    old = replace(ONE, superseded=True, note="more dropout", scores={"val/bleu": 21.5, "test/bleu": 20.5})
    row = "| `experiment=own` | greedy | more dropout | 1 | 21.50 | – | 20.50 | – | – | 0123456 |"
    assert result_tables.earlier([ONE, old])[2:] == [row]
    assert "20.50" not in "".join(result_tables.experiments([ONE, old]))


def test_a_sweep_has_a_row_for_each_setting() -> None:
    def line(settings: str, seed: int) -> Line:
        command = f"python -m seq2seq_lab {settings} seed={seed} logger=none"
        return replace(ONE, experiment=None, command=command, seed=seed, scores={"test/bleu": 10.0 * seed})

    lines = [*(line("decoder=luong", seed) for seed in (1, 2)), line("model=vanilla", 1)]
    lines += [
        line("dataset=multi30k", 1),
        line("trainer.max_epochs=5", 1),
        replace(lines[0], superseded=True, note="old"),
    ]
    assert rows_of(result_tables.sweep(lines, "grammar sweep"))[2:] == [
        "| `decoder=luong` | 2 | 15.00 ± 7.07 | – | 0123456 |",
        "| `model=vanilla` | 1 | 10.00 | – | 0123456 |",
    ]


def test_groups_with_statistics_are_tested_over_seeds() -> None:
    same = [line for line in CURRENT if line.statistics and "attention=multiplicative" in line.command][:3]
    other = [line for line in CURRENT if line.statistics and "model=vanilla trainer" in line.command][:3]
    found = result_tables.compare_with_best([other, same, [ONE]], "test/bleu")
    assert (found[id(same)], found[id([ONE])]) == ("best", "–")
    assert float(found[id(other)].removeprefix("<")) < 0.05
    two = [line for line in CURRENT if line.statistics and line.experiment == "multi30k_de_en"]
    multi30k = [*two, two[0]]
    with pytest.raises(UserError, match=r"experiment=multi30k_de_en .*: its test examples differ"):
        result_tables.compare_with_best([same, multi30k], "test/bleu")


def test_the_group_with_the_fewest_errors_is_the_best() -> None:
    names = [line for line in CURRENT if line.statistics and "experiment=names encoder=" in line.command]
    groups = [[line for line in names if f"encoder={encoder} " in line.command] for encoder in ("rnn", "gru")]
    few, many = sorted(groups, key=lambda same: statistics.mean(line.scores["test/ece"] for line in same))
    assert result_tables.compare_with_best([many, few], "test/ece")[id(few)] == "best"


def test_similarity_has_a_row_for_one_and_for_all_references() -> None:
    groups = [
        {"group": "in training", "count": 35, "value": 80.0, "confidence": 4.0},
        {"group": "other", "count": 1232, "value": 40.0, "confidence": 1.0},
    ]
    one = replace(
        ONE,
        experiment="tatoeba_en_fr",
        scores={"test/bleu": 42.0, "test/bleu_confidence": 2.0},
        groups={"test/bleu_by_similarity": groups},
    )
    every = replace(
        one,
        evaluation="python -m seq2seq_lab.evaluate RUN task.multi_reference=true",
        scores={"test/bleu": 55.0, "test/bleu_confidence": 1.5},
    )
    beam = replace(one, evaluation="python -m seq2seq_lab.evaluate RUN search=beam")
    old = replace(one, groups={}, superseded=True)
    assert result_tables.by_similarity([old, beam]) == ["Not yet measured."]
    assert rows_of(result_tables.by_similarity([old, one, beam, every])) == [
        "| scored | all ± 95% CI | in training ± 95% CI | other ± 95% CI |",
        "|---|---:|---:|---:|",
        "| each pair, with its reference | 42.00 ± 2.00 | 80.00 ± 4.00 (35) | 40.00 ± 1.00 (1,232) |",
        "| each source sentence, with all of its references | 55.00 ± 1.50 | 80.00 ± 4.00 (35) | 40.00 ± 1.00 (1,232) |",
    ]


def test_the_runs_of_the_readme_have_the_same_test_sets() -> None:
    attn, vanilla, longer = result_tables.readme_runs(LINES).values()
    groups = vanilla.groups | {"test/bleu_by_length": vanilla.groups["test/bleu_by_length"][1:]}
    with pytest.raises(UserError, match="different groups"):
        result_tables.readme_runs([attn, replace(vanilla, groups=groups), longer])
    with pytest.raises(UserError, match="model=vanilla"):
        result_tables.readme_runs([attn])


SMALL = "trainer.max_epochs=1 task.samples=0 trainer.device=cpu"
TINY = f"{SMALL} model.encoder_hidden_size=8"
SPLITS = "dataset.train=20 dataset.validation=8 dataset.test=8"
OTHER_TASKS = {  # the task: the settings of a small run, and a score that is kept for each example
    "classification": (f"experiment=names dataset.names=80 {TINY}", "macro_f1"),
    "language_model": (
        f"experiment=language_model {SPLITS} model.embedding_size=8 model.hidden_size=8 {SMALL}",
        "perplexity_per_word",
    ),
}


@pytest.mark.parametrize("task", OTHER_TASKS)
def test_a_run_of_another_task_is_added_and_shown(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.jsonl")
    monkeypatch.setattr("seq2seq_lab.training.provenance.git_commit", lambda: COMMIT)
    monkeypatch.setattr("seq2seq_lab.training.provenance.git_is_dirty", lambda: False)
    results.write_lines(results.RESULTS, [ONE])
    settings, kept = OTHER_TASKS[task]
    seq2seq_lab.train([*settings.split(), "logger=none"], tmp_path / "run")
    line = add(tmp_path / "run", f"python -m seq2seq_lab {settings}")
    result = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert (line.task, line.examples) == (task, {"test": result["test/examples"]})
    assert line.units_per_second == result[f"train/{result['unit']}_per_second"]
    assert all("group" in row for rows in line.groups.values() for row in rows)
    statistics = results.read_statistics(line)[f"test/{kept}"].astype(float)
    value = result_tables.metric_of(kept, task).value(statistics.sum(0))
    assert value == pytest.approx(line.scores[f"test/{kept}"], abs=1e-3)
    assert line.statistics is not None
    assert (tmp_path / "statistics" / line.statistics).stat().st_size < 4000
    monkeypatch.setattr(planned, "cells", lambda: iter([Cell("own", line.command, 1)]))
    rows = result_tables.task_table([line], "own", [f"test/{kept}", *line.groups])
    metric = result_tables.metric_of(kept, task)
    shown = re.compile(
        rf"\| {re.escape(result_tables.title(kept, task))}( ± 95% CI)? \| {value:{metric.format}}"
    )
    assert any(map(shown.match, rows))
    assert "- machine: 2 cores of a test" in rows
    for name in (name for name in line.groups if name.startswith("test/")):
        for group in line.groups[name]:
            assert any(f": {group['group']} ({group['count']}) |" in row for row in rows)


def of_names(encoder: str, seed: int, accuracy: float, **changes: Any) -> Line:
    """A line of a run on names."""
    command = f"python -m seq2seq_lab experiment=names encoder={encoder} seed={seed}"
    scores = {"test/accuracy": accuracy, "test/accuracy_confidence": 0.02, "test/loops": 0.0}
    line = replace(ONE, experiment="names", command=command, seed=seed, task="classification", scores=scores)
    return replace(line, **changes)


def test_a_table_of_planned_runs_has_means_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    start = "python -m seq2seq_lab experiment=names"
    cells = [Cell("own", f"{start} encoder={name}", 1) for name in ("rnn", "gru", "lstm")]
    cells.append(Cell("other", f"{start} dataset.path=DIR", 1))
    monkeypatch.setattr(planned, "cells", lambda: iter(cells))
    lines = [
        *(of_names("rnn", seed, 0.9 + seed / 100) for seed in (1, 2, 3)),
        of_names("gru", 1, 0.95),
        of_names("gru", 1, 0.5, superseded=True),
        of_names("birnn", 1, 0.5),  # not planned
    ]
    part = result_tables.task_table(lines, "own", ["test/accuracy", "test/loops", "test/ece"])
    rows = rows_of(part)
    assert rows == [
        "| settings | seeds | accuracy ± std | parameters | training, min | commit |",
        "|---|---:|---:|---:|---:|---:|",
        "| `encoder=rnn` | 1, 2, 3 | 92.0% ± 1.0% | – | – | 0123456 |",
        "| `encoder=gru` | 1 | 95.0% | – | – | 0123456 |",
    ]
    above, below = (
        " ".join(" ".join(lines).split())
        for lines in (part[: part.index(rows[0])], part[part.index(rows[-1]) + 1 :])
    )
    assert f"command: `{start}` with the settings of a row" in above
    assert f"machine: {ONE.machine}" in above
    assert (
        "not recorded: `encoder=gru`, seeds 2, 3; `encoder=lstm`. `python -m benchmarks.planned run FOLDER --only own` runs"
        in below
    )
    assert "- std: standard deviation over the seeds" in below
    single = result_tables.task_table(lines[3:], "own", ["test/accuracy"])
    assert "| accuracy ± 95% CI |" in rows_of(single)[0]
    assert rows_of(single)[2] == "| `encoder=gru` | 1 | 95.0% ± 2.0% | – | – | 0123456 |"
    assert "- 95% CI: half of the 95% bootstrap interval over the test examples" in single
    (sentence,) = result_tables.task_table(lines, "other", ["test/accuracy"])
    assert sentence == (
        f"{NOT_RECORDED} `python -m benchmarks.planned run FOLDER --only other --path DIR=PATH` "
        "runs what is missing."
    )


def test_scores_by_length_have_own_rows_and_a_line_of_every_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "SCAN, length"
    command = "python -m seq2seq_lab experiment=scan_{} dataset.split=length"
    cells = [Cell(name, command.format(model), 1) for model in ("lstm", "gru")]
    monkeypatch.setattr(planned, "cells", lambda: iter(cells))

    def line(seed: int, values: Sequence[float]) -> Line:
        groups = [
            {"group": group, "count": 5, "value": value}
            for group, value in zip(("9", "24"), values, strict=True)
        ]
        return replace(
            ONE,
            command=f"{command.format('lstm')} seed={seed}",
            seed=seed,
            scores={"test/accuracy": 0.5},
            groups={"test/accuracy_by_target_length": groups},
        )

    lines = [line(1, (0.5, 0.1)), line(2, (0.5, 0.3))]
    scores = ("test/accuracy", "test/accuracy_by_target_length")
    rows = result_tables.task_table(lines, name, scores)
    heads, _, _, *by_length = rows_of(rows)
    assert "target length" not in heads
    assert by_length == [
        "| accuracy by target length | examples | `experiment=scan_lstm` ± std |",
        "|---|---:|---:|",
        "| 9 | 5 | 50.0% |",
        "| 24 | 5 | 20.0% ± 14.1% |",
    ]
    assert "![Exact match by length](images/scan_length.png)" in rows
    assert "`experiment=scan_lstm`, seed 3; `experiment=scan_gru`" in " ".join(rows)
    figure = length_pictures.draw(lines, name, scores[1:])
    assert figure is not None
    drawn = [np.asarray(one.get_xydata()).tolist() for one in figure.axes[0].lines]
    assert drawn == [[[9, 0.5], [24, 0.1]], [[9, 0.5], [24, 0.3]]]
    assert length_pictures.draw([], name, scores[1:]) is None


def test_rows_without_statistics_are_marked_where_differences_are_tested() -> None:
    lines = [line for line in CURRENT if line.statistics and "attention=multiplicative" in line.command][:3]
    groups = [
        lines,
        [line for line in CURRENT if line.statistics and "model=vanilla trainer" in line.command][:3],
    ]
    groups += [[replace(ONE, statistics=None)], lines[:1]]
    columns, below = result_tables.tested_column(groups, "test/bleu")
    assert [columns["p, seeds"](same) for same in groups][2:] == ["– §", "–"]
    assert below[-1].startswith("- § not tested")
    assert "§" not in "".join(result_tables.tested_column(groups[:2], "test/bleu")[1])
    assert result_tables.tested_column([groups[0], groups[2]], "test/bleu") == ({}, [])


def test_runs_on_other_examples_are_not_compared() -> None:
    runs = [replace(ONE, examples=examples) for examples in ({}, {"test": "a"}, {"test": "a"}, {"test": "b"})]
    result_tables.check_examples(runs[:3], [{}] * 3)
    with pytest.raises(UserError, match="test examples differ"):
        result_tables.check_examples(runs, [{}] * 4)


def test_superseded_lines_of_other_tasks_show_their_primary_score() -> None:
    lines = [replace(of_names("rnn", 1, 0.9), superseded=True), replace(ONE, superseded=True)]
    head, _, *rows = result_tables.earlier(lines)
    assert "| primary score of another task |" in head
    assert [row.split(" | ")[-2] for row in rows] == ["accuracy 90.0%", "–"]
    assert result_tables.by_experiment([*map(current, lines)]) == [[current(lines[1])]]


def current(line: Line) -> Line:
    """The line, not superseded."""
    return replace(line, superseded=False)
