"""Runs beside one another: groups, table, significance, and the page in a browser."""

import base64
import csv
import gzip
import html
import io
import json
import math
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from extras import needs_plotly
from omegaconf import OmegaConf
from rewriting import rewrite

from seq2seq_lab.compare import main
from seq2seq_lab.config.run_folder import RUN_FORMAT, cover
from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Declarations, Grouping, Metric
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.metrics.chrf import Chrf
from seq2seq_lab.metrics.measurement import measure
from seq2seq_lab.metrics.registry import ALIGNMENT_METRICS
from seq2seq_lab.metrics.significance import compare_means, holm, paired_bootstrap
from seq2seq_lab.metrics.ter import Ter
from seq2seq_lab.metrics.texts import References, TextOutputs, length_groups
from seq2seq_lab.reporting import (
    comparison,
    effects,
    figures,
    frame,
    group_tests,
    page,
    run_page,
    table_files,
)
from seq2seq_lab.reporting.group_tests import GroupDifference
from seq2seq_lab.reporting.runs import find_runs, group_runs
from seq2seq_lab.reporting.score_tables import write_statistics
from seq2seq_lab.reporting.shown import page_files
from seq2seq_lab.tasks.report import Examples, Heatmaps, Report
from seq2seq_lab.tasks.translation.report import COLUMNS, HEATMAP_KEYS
from seq2seq_lab.tracking import FileTracker

PAGE = page_files(
    Report(
        examples=Examples(name="translations", rows=[], columns=COLUMNS),
        heatmaps=Heatmaps(maps=[], keys=HEATMAP_KEYS),
    ),
    "test",
    "test",
)
WORDS = [
    "the",
    "old",
    "king",
    "sees",
    "a",
    "small",
    "cat",
    "and",
    "the",
    "queen",
    "gives",
    "him",
    "two",
    "red",
    "apples",
]


class Length(Metric):
    """The share of outputs of their reference's length, a metric of the user's own."""

    name, label, higher_is_better, format = "length", "same length", True, ".1%"

    def rows(self, outputs: TextOutputs) -> Any:
        pairs = zip(outputs.hypotheses, outputs.references.streams[0], strict=True)
        return np.array([[one.count("o") == other.count("o"), 1] for one, other in pairs], float)

    def value(self, totals_K: Any) -> float:
        return totals_K[0] / totals_K[1]


METRICS = (Bleu(), Chrf(), Ter(), *ALIGNMENT_METRICS, Length())
WORD_COUNT = Grouping(
    "length",
    "words",
    Bleu(),
    lambda outputs: length_groups([len(line.split()) for line in outputs.hypotheses], [10]),
)


def make_run(
    folder: Path,
    attention: str,
    seed: int,
    share: float,
    status: str = "finished",
    size: int = 8,
    word: str = "king",
    aer_oracle: float | None = None,
) -> None:
    """Write the folder of a run that gets about this share of its words right.

    Args:
        word: replaces "king" in the test set.
    """
    draw, words = random.Random(f"{attention} {seed}"), random.Random(0)
    rows = []
    for _ in range(60):
        reference = [words.choice(WORDS).replace("king", word) for _ in range(words.randint(4, 20))]
        hypothesis = [word if draw.random() < share else "dog" for word in reference]
        rows.append(
            {
                "source": " ".join(reversed(reference)),
                "reference": " ".join(reference),
                "hypothesis": " ".join(hypothesis),
                "sentence_bleu": round(100 * draw.random(), 2),
            }
        )
    references = References([row["reference"] for row in rows], [row["source"] for row in rows])
    outputs = Outputs([row["hypothesis"] for row in rows], references, aer_oracle)
    measurement = measure(
        METRICS,
        outputs,
        clusters=references.clusters,
        examples=references.examples,
        final=True,
        samples=5,
        groupings=[WORD_COUNT],
    )
    groups = ("task", "encoder", "decoder", "attention", "readout", "pooling", "dataset", "tokenizer")
    choices = dict.fromkeys((*groups, "initialization", "optimizer", "schedule"), "x") | {
        "attention": attention,
        "teacher_forcing": "constant",
    }
    config = {
        **{group: {} for group in (*groups, "initialization")},
        "seed": seed,
        "model": {"name": "attn", "hidden_size": size},
        "encoder": {"cell": "gru"},
        "teacher_forcing": {"ratio": 1.0, "scope": "token"},
        "logger": {"folder": str(folder), "group": "why"},
        "study": {"number": seed},
    }
    result = {
        "status": status,
        "num_parameters": 1234567,
        "train/target_tokens_per_second": 1000.0 + seed,
        "provenance": recorded(),
        "page": PAGE,
        **Declarations.of(METRICS, [WORD_COUNT], "bleu").result(),
        **measurement.result("test"),
    }
    weights = [
        {"source": rows[i]["source"], "hypothesis": "b", "source_tokens": ["<sos>", "a", "<eos>"]}
        for i in (0, 1)
    ]
    attention_rows = [
        one
        | {"target_tokens": ["b", "<eos>"], "weights": [[0.1, 0.8, 0.1], [0, 0, 1]], "gold_links": [[1, 0]]}
        for one in weights
    ]
    kept = folder / "wandb" / "artifacts" / "1"  # the copy that the default logger keeps
    kept.mkdir(parents=True)
    tracker = FileTracker(folder, None)
    for step in range(1, 500):
        tracker.log_metrics({"train/loss": 5 / step}, step)
    for step in (100, 200, 499):
        tracker.log_metrics({"val/bleu": step / 100, "val/ter": 2.0}, step)
    tracker.finish(0)
    for place in (folder, kept):
        rewrite(place / "config.yaml", json.dumps(config))
        rewrite(place / "run.json", json.dumps({"format": RUN_FORMAT, "choices": choices}))
        rewrite(place / "result.json", json.dumps(result))
    write_statistics(folder / "scored" / "test.npz", measurement)
    for name, lines in (
        ("translations.test", rows),
        ("attention.test", [] if attention == "none" else attention_rows),
        ("attention/step_00000100", [] if attention == "none" else attention_rows[:1]),
        ("attention/step_00000200", [] if attention == "none" else attention_rows[:1]),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = ["result.json", "scored", "translations.test.jsonl", "attention.test.jsonl", "attention"]
    cover(folder, "result", files)


class Outputs(TextOutputs):
    """Texts, with alignments of a known error rate if `aer_oracle` is given."""

    def __init__(self, hypotheses: list[str], references: References, aer_oracle: float | None) -> None:
        super().__init__(hypotheses, references)
        rates = {"attention": 0.2, "oracle": aer_oracle or 0.0, "diagonal": 0.6}
        self.__dict__["text"] = ParallelText([], [])
        self.__dict__["alignments"] = {}
        if aer_oracle is not None:
            self.__dict__["alignments"] = {
                kind: np.array([[1000 * (1 - rate), 1000 * (1 - rate), 1000, 1000]] * len(hypotheses))
                for kind, rate in rates.items()
            }


def recorded(fingerprint: str = "a" * 64, source: str = "b" * 64, torch: str = "2.13.0") -> dict[str, Any]:
    """Return what a run records of its data, its code and its machine."""
    return {
        "test_precision": "fp32",
        "commit": "c" * 40,
        "dirty": False,
        "source": source,
        "data": {"fingerprint": fingerprint},
        "components": {},
        "machine": {"device_name": "EPYC", "threads": 2, "torch": torch},
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three attention functions with three seeds each; two of them have nearly equal scores."""
    folder = tmp_path_factory.mktemp("study")
    for attention, share in (("additive", 0.9), ("multiplicative", 0.89), ("none", 0.5)):
        for seed in (1, 2, 3):
            make_run(folder / f"{attention}{seed}", attention, seed, share)
    make_run(folder / "dot1", "dot", 1, 0.5, status="failed")
    (folder / "none1" / ".hydra").mkdir()
    (folder / "none1" / ".hydra" / "config.yaml").write_text("{}")
    return folder


def test_runs_are_found_once_and_what_has_not_ended_is_named(study: Path) -> None:
    runs, skipped = find_runs([study, study / "none1"])
    assert len(runs) == 9
    assert skipped == [f"{study / 'dot1'}: failed"]
    with pytest.raises(UserError, match=r"no finished run found; .*dot1: failed"):
        find_runs([study / "dot1"])
    with pytest.raises(UserError, match="folder not found"):
        find_runs([study / "nothing"])


def add_test_set(folder: Path, other: Path) -> None:
    """Add the test set of another run to a run as its test set `talks`."""
    path = folder / "result.json"
    scores = json.loads((other / "result.json").read_text())
    added = {f"test/talks/{key[5:]}": value for key, value in scores.items() if key.startswith("test/")}
    rewrite(path, json.dumps(json.loads(path.read_text()) | added))
    for name in ("scored/test.npz", "translations.test.jsonl", "attention.test.jsonl"):
        shutil.copy(other / name, folder / name.replace("test", "test.talks"))
    names = [
        "scored",
        "translations.test.jsonl",
        "translations.test.talks.jsonl",
        "attention.test.talks.jsonl",
    ]
    cover(folder, "result", ["result.json", *names, "attention.test.jsonl", "attention"])


@needs_plotly
def test_runs_are_compared_on_a_further_test_set_as_if_it_were_the_first(tmp_path: Path) -> None:
    for attention, share, other in (("additive", 0.9, 0.5), ("multiplicative", 0.7, 0.8)):
        for seed in (1, 2, 3):
            run, added = (tmp_path / name / f"{attention}{seed}" for name in ("runs", "alone"))
            make_run(run, attention, seed, share)
            make_run(added, attention, seed, other, word="cat")
            add_test_set(run, added)
    alone = comparison.compare_folders([tmp_path / "alone"])
    first = comparison.compare_folders([tmp_path / "runs"])
    talks = comparison.compare_folders([tmp_path / "runs"], test="talks")
    assert [group.label for group in first.groups] == ["attention=additive", "attention=multiplicative"]
    assert comparison.cells(talks) == comparison.cells(alone) != comparison.cells(first)
    for table, text in ((first, "Other test sets: --test talks."), (talks, "Test set: talks.")):
        assert text in comparison.note(table)
    shown, expected = page.page_data(talks), page.page_data(alone)
    for key in ("groups", "groupings", "examples", "attention"):
        assert shown[key] == expected[key]
    assert [one["values"] for one in shown["axes"]] == [one["values"] for one in expected["axes"]]
    assert (shown["axes"][-1]["label"], shown["split"]) == ("test/talks BLEU", "test/talks")
    csv_text = table_files.as_csv(talks).replace("test/talks/", "test/")
    assert csv_text == table_files.as_csv(alone)
    assert "test/talks/bleu mean" in table_files.as_csv(talks)
    both = comparison.compare_folders([tmp_path], test="talks")  # a run without this test set is left out
    assert comparison.cells(both) == comparison.cells(talks)
    assert f"{tmp_path / 'alone' / 'additive1'}: no scores of test/talks" in both.skipped
    with pytest.raises(UserError, match=r"^--test=talk: .* Did you mean 'talks'\? .* first one: talks\.$"):
        comparison.compare_folders([tmp_path / "runs"], test="talk")
    with pytest.raises(UserError, match=r"^--test=talks: no run has this test set\. .* first one: none\.$"):
        comparison.compare_folders([tmp_path / "alone"], test="talks")
    latex = table_files.as_latex(talks, table_files.LatexOptions(["test/talks/bleu"]))
    assert latex == table_files.as_latex(talks, table_files.LatexOptions(["bleu"]))
    names = [path.name for path in figures.save_figures(talks, tmp_path / "figures")]
    assert "test_talks_bleu_by_length.pdf" in names
    for path in tmp_path.glob("runs/*"):
        np.savez(path / "scored" / "test.talks.npz", bleu=np.full((60, 3), np.nan), _clusters=np.arange(60))
        cover(path, "result", ["result.json", "scored"])
    with pytest.raises(UserError, match=r"no finished run found; .*scored/test\.talks\.npz: bleu"):
        comparison.compare_folders([tmp_path / "runs"], test="talks")
    with pytest.raises(UserError, match=r"^--metric=talks/bleu is not a metric .* --test NAME\.$"):
        comparison.compare_folders([tmp_path / "runs"], metric="talks/bleu")


def test_a_run_from_before_a_setting_existed_is_in_the_group_of_later_ones(
    study: Path, tmp_path: Path
) -> None:
    for seed in (1, 2):
        shutil.copytree(study / f"additive{seed}", tmp_path / str(seed))
    for seed, added in (1, {}), (2, {"pad_to": None}):
        path = tmp_path / str(seed) / "config.yaml"
        rewrite(path, json.dumps({**json.loads(path.read_text()), "trainer": {"max_epochs": 2, **added}}))
    (group,) = group_runs(find_runs([tmp_path])[0])
    assert len(group.runs) == 2


def test_settings_that_vary_together_are_all_named(tmp_path: Path) -> None:
    for name, size in (("small", 8), ("large", 16)):
        make_run(tmp_path / name, "dot", 1, 0.5, size=size)
        path = tmp_path / name / "config.yaml"
        rewrite(path, json.dumps({**json.loads(path.read_text()), "trainer": {"batch_size": 4 * size}}))
    groups = group_runs(find_runs([tmp_path])[0])
    assert [group.varies for group in groups] == [
        {"model.hidden_size": "16", "task.batch_size": "64"},
        {"model.hidden_size": "8", "task.batch_size": "32"},
    ]
    table = comparison.compare(groups, None)
    heads, rows, _ = comparison.cells(table)
    assert heads[:2] == ["task.batch_size, model.hidden_size", "runs"]
    assert sorted(row[0] for row in rows) == ["32, 8", "64, 16"]
    warned = "task.batch_size and model.hidden_size vary together"
    csv_text, latex, data = table_files.as_csv(table), table_files.as_latex(table), page.page_data(table)
    for text in ("\n".join(table.warnings), csv_text, latex.replace("\\_", "_"), page.page(table, "two")):
        assert warned in text
    assert csv_text.startswith("task.batch_size,model.hidden_size,runs,")
    assert {"model.hidden_size", "task.batch_size"} <= {one["label"] for one in data["columns"]}
    assert all("task.batch_size=" in name for name in data["runs"])


def test_many_settings_that_vary_together_are_one_narrow_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, size in (("small", 8), ("large", 16)):
        make_run(tmp_path / name, "dot", 1, 0.5, size=size)
        path = tmp_path / name / "config.yaml"
        trainer = dict.fromkeys(("batch_size", "max_steps", "eval_batch_size", "max_length"), size)
        rewrite(path, json.dumps({**json.loads(path.read_text()), "trainer": trainer}))
    table = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    heads, rows, _ = comparison.cells(table)
    assert (heads[:2], [row[0] for row in rows]) == (["A", "runs"], ["A1", "A2"])
    texts = [f"A{i}: {group.label}" for i, group in enumerate(table.groups, start=1)]
    assert comparison.legend(table) == texts
    assert texts[0].count("=") == 5
    main([str(tmp_path)])
    printed = capsys.readouterr().out
    assert all(text in printed for text in texts)
    assert all(text.replace("_", "\\_") in table_files.as_latex(table) for text in texts)
    assert all(text in page.page(table, "two") for text in texts)
    # A setting that is left out by --by is named too.
    main([str(tmp_path), "--by", "trainer.max_steps"])
    others = "task.batch_size, task.max_length, task.eval_batch_size, model.hidden_size"
    assert f"the runs also differ in {others} (not in --by)" in capsys.readouterr().out


@needs_plotly
def test_the_page_names_the_newest_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "outputs" / "newest", "dot", 1, 0.5)
    monkeypatch.chdir(tmp_path)
    main(["latest", "--html", "page.html"])
    assert "<title>outputs/newest" in Path("page.html").read_text("utf-8")


def test_steps_without_a_loss_are_left_out_of_its_curve(study: Path, tmp_path: Path) -> None:
    shutil.copytree(study / "additive1", tmp_path / "run")
    tracker = FileTracker(tmp_path / "run", None)
    for step, loss in ((1, 2.0), (2, math.nan), (3, 1.0)):
        tracker.log_metrics({"train/loss": loss}, step)
    tracker.finish(0)
    runs, _ = find_runs([tmp_path])
    (curve,) = page.curves(comparison.compare(group_runs(runs), None), runs)
    assert curve == {"label": "training loss", "lines": [{"x": [1, 3], "y": [2.0, 1.0]}]}


def test_a_reproduction_is_not_a_further_run(study: Path, tmp_path: Path) -> None:
    shutil.copytree(study / "additive1", tmp_path / "run")
    shutil.copytree(study / "additive1", tmp_path / "run" / "reproductions" / "1")
    assert len(find_runs([tmp_path])[0]) == 1


@pytest.mark.parametrize(
    ("number", "named"), [(None, "0.1"), (RUN_FORMAT - 1, "the commit c0ffee1"), (RUN_FORMAT + 1, "newer")]
)
def test_runs_of_another_format_are_skipped(
    study: Path, tmp_path: Path, number: int | None, named: str
) -> None:
    make_run(tmp_path / "old", "additive", 4, 0.9)
    (tmp_path / "old" / "config.yaml").write_text("seed: 1\n")  # without groups that are newer
    (tmp_path / "old" / "run.json").write_text(
        json.dumps({"format": number, "choices": {}, "commit": "c0ffee1"})
    )
    runs, (skipped,) = find_runs([study / "none1", tmp_path])
    assert [run.folder for run in runs] == [study / "none1"]
    assert skipped.startswith(f"{tmp_path / 'old'}: format={number} ")
    assert named in skipped


def test_groups_differ_in_more_than_the_seed(study: Path, tmp_path: Path) -> None:
    runs, _ = find_runs([study])
    groups = group_runs(runs)
    assert [group.varies for group in groups] == [
        {"attention": a} for a in ("additive", "multiplicative", "none")
    ]
    assert [run.seed for run in groups[0].runs] == ["1", "2", "3"]
    # A setting that is not a key of W&B distinguishes groups too.
    make_run(tmp_path / "wide", "additive", 1, 0.9, size=16)
    more, _ = find_runs([study, tmp_path])
    assert [group.varies for group in group_runs(more)][-1] == {
        "attention": "additive",
        "model.hidden_size": "16",
    }
    assert [len(group.runs) for group in group_runs(more, ["attention"])] == [4, 3, 3]
    listed = r"--by=atention: no run has this setting\. Did you mean 'attention'\? Settings that differ: attention, .*size"
    with pytest.raises(UserError, match=listed):
        group_runs(more, ["atention"])


def test_the_seed_of_sampling_distinguishes_groups_only_if_it_was_set(tmp_path: Path) -> None:
    for seed, of_search in ((1, 1), (2, 2), (3, 7)):
        make_run(tmp_path / str(seed), "dot", seed, 0.5)
        path = tmp_path / str(seed) / "config.yaml"
        config = OmegaConf.load(path)
        OmegaConf.update(config, "search.seed", of_search, force_add=True)
        rewrite(path, OmegaConf.to_yaml(config))
    runs, _ = find_runs([tmp_path])
    assert [len(group.runs) for group in group_runs(runs)] == [2, 1]


def p_values(table: comparison.Table) -> list[float]:
    """Return the p-values of the runs of median score."""
    return [line.p_models for line in table.lines if line.p_models is not None]


def p_over_seeds(table: comparison.Table) -> dict[str, float | None]:
    """Return the p-value of each line's mean by its attention function."""
    return {
        line.group.varies["attention"]: None if line.difference is None else line.difference.p
        for line in table.lines
    }


def test_the_test_of_median_runs_is_made_on_request_over_all_pairs(study: Path) -> None:
    groups = group_runs(find_runs([study])[0])
    assert "p, these two models" not in comparison.compare(groups, None).tests
    found = comparison.compare(groups, None, p_of_median_runs=True)
    assert found.tests[-1] == "p, these two models"
    lines = found.lines
    assert lines[0].group is lines[0].base
    assert lines[0].p_models is None
    assert lines[2].group.varies == {"attention": "none"}
    rows = [
        Bleu().rows(
            TextOutputs(
                [row["output"] for row in run.examples],
                References([row["reference"] for row in run.examples]),
            )
        )
        for group in found.groups
        if (run := group.median("test/bleu")) is not None
    ]
    alone = paired_bootstrap(Bleu().values, rows, [(0, 1), (0, 2), (1, 2)], np.arange(60), 1000)
    assert p_values(found) == pytest.approx(holm(alone)[:2])
    note = comparison.note(found)
    assert "a test of these runs, not of their settings; Holm-corrected for all 3 pairs of lines" in note
    assert p_values(found)[1] < 0.01 < 0.05 < p_values(found)[0]
    named = comparison.compare(groups, lines[0].group.label, p_of_median_runs=True)
    assert p_values(named) == pytest.approx(holm(alone[:2]))
    assert "Holm-corrected for 2 comparisons with the baseline" in comparison.note(named)
    # So many comparisons as a large study has can still be significant.
    pairs = math.comb(60, 2)
    assert pairs / (1 + group_tests.SAMPLES_EACH * pairs) < 0.01


def test_another_metric_orders_the_lines_by_its_direction_and_is_tested(study: Path) -> None:
    groups = group_runs(find_runs([study])[0])
    by_ter = comparison.compare(groups, None, "ter")
    scores = [group.values("test/ter") for group in by_ter.groups]
    assert sum(scores[0]) <= sum(scores[1]) < sum(scores[2])
    assert (p_over_seeds(by_ter)["none"] or 1) < 0.01
    assert "TER ± std" in comparison.cells(by_ter)[0]
    assert "TER ± std" not in comparison.cells(comparison.compare(groups, None))[0]
    with pytest.raises(UserError, match=r"--metric=tre"):
        comparison.compare(groups, None, "tre")


def test_equal_lines_are_both_the_best(tmp_path: Path) -> None:
    for name, share in (("additive", 0.9), ("dot", 0.9), ("none", 0.5)):
        make_run(tmp_path / name, name, 1, share)
        change(tmp_path / name / "result.json", **{"test/bleu": 100 * share})
    found = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    assert [line.top for line in found.lines] == [True, True, False]


def test_a_metric_without_a_direction_has_no_best_line(study: Path) -> None:
    runs, _ = find_runs([study])
    for run in runs:
        metrics = run.declared.metrics
        metrics["length"] = replace(metrics["length"], higher_is_better=None)
    found = comparison.compare(group_runs(runs), None, "length")
    assert not any(line.top for line in found.lines)
    assert [line.group.varies["attention"] for line in found.lines][2] == "none"  # the least value
    assert (p_over_seeds(found)["none"] or 1) < 0.05
    assert "same length has no direction" in comparison.note(found)
    assert "Bold" not in table_files.as_latex(found, table_files.LatexOptions(caption="Lengths."))
    # The demo's record has a direction.
    assert not comparison.compare_folders(["demo"], metric="length_ratio").has_best


def test_a_metric_of_the_users_own_is_tested_without_its_code(study: Path) -> None:
    groups = group_runs(find_runs([study])[0])
    found = comparison.compare(groups, None, "length", p_of_median_runs=True)
    assert [line.group.varies["attention"] for line in found.lines][2] == "none"
    assert p_values(found)[1] < 0.01
    assert found.lines[2].difference is not None
    assert found.lines[2].difference.half_width > 0
    rows = [run.statistics["length"] for group in found.groups if (run := group.median("test/length"))]
    # The difference of the means has to be far from 0 by a normal approximation too.
    difference = rows[0][:, 0] - rows[2][:, 0]
    assert difference.mean() > 2.6 * difference.std() / 60**0.5
    heads, rows, _ = comparison.cells(found)
    assert "%" in rows[0][heads.index("same length ± std")]


def test_a_mean_of_examples_that_is_not_the_metric_is_warned_of(study: Path, tmp_path: Path) -> None:
    shutil.copytree(study / "additive1", tmp_path / "run")
    found = comparison.compare(group_runs(find_runs([tmp_path])[0]), None, "length")
    assert found.warnings == ()
    change(tmp_path / "run" / "result.json", **{"test/length": 0.123})
    found = comparison.compare(group_runs(find_runs([tmp_path])[0]), None, "length")
    assert "same length are of the mean of its values per example" in found.warnings[0]


def test_means_of_lines_are_tested_over_seeds_and_examples(study: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "single", "dot", 1, 0.95)
    for seed in (1, 2):
        make_run(tmp_path / f"two{seed}", "local", seed, 0.7)
    groups = group_runs(find_runs([study, tmp_path])[0])
    found = comparison.compare(groups, None)
    several = [
        [run.statistics["bleu"] for run in group.runs] for group in found.groups if len(group.runs) == 3
    ]
    compared = compare_means(Bleu().values, several, np.arange(60))
    p = p_over_seeds(found)
    # All three pairs are computed and corrected; the table shows those with the best line that can be tested.
    assert [p["multiplicative"], p["none"]] == pytest.approx(holm(compared.p_values().tolist())[:2])
    of = {line.group.varies["attention"]: line for line in found.lines}
    assert found.lines[0] is of["dot"]  # the best, of a single run
    assert of["dot"].difference is None
    assert of["additive"].base is of["additive"].group
    assert of["local"].difference is not None  # two runs have a difference and an interval, no p-value
    assert of["local"].difference.p is None
    assert of["local"].difference.value < 0 < of["local"].difference.half_width
    assert found.comparisons == 3
    assert found.tests == ("difference [95% CI]", "p, seeds", "seeds to decide")
    heads, cells, _ = comparison.cells(found)
    rows = {row[0]: dict(zip(heads, row, strict=True)) for row in cells}
    assert (rows["dot"]["p, seeds"], rows["local"]["p, seeds"]) == ("–", "–")
    assert rows["additive"]["difference [95% CI]"] == rows["additive"]["p, seeds"] == "baseline"
    number = r"-?\d+\.\d\d"
    assert re.fullmatch(rf"-\d+\.\d\d \[{number}, {number}\]", rows["local"]["difference [95% CI]"])
    (seeds,) = compared.seeds_to_decide(3)[:1]
    assert rows["multiplicative"]["seeds to decide"] == (">100" if seeds is None else str(seeds))
    assert rows["none"]["seeds to decide"] == "–"  # its difference is significant
    assert "of lines of 3 or more runs; Holm-corrected for all 3 pairs" in comparison.note(found)
    alone = comparison.compare([group for group in groups if group.varies["attention"] != "none"], "dot")
    assert alone.tests == ()


def test_the_note_states_why_nothing_is_tested(study: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "single", "dot", 1, 0.95)
    for name, seed in (("additive", 1), ("additive", 2), ("none", 1), ("none", 2)):
        shutil.copytree(study / f"{name}{seed}", tmp_path / f"{name}{seed}")
    folders = [study, tmp_path / "single"]
    alone = comparison.note(comparison.compare_folders(folders, baseline="dot", margin=1.0))
    assert "the baseline attention=dot has 1 run, and a test needs 3" in alone
    assert "Equality within ±1.0 is not tested" in alone
    tested = comparison.note(comparison.compare_folders(folders, baseline="none", margin=1.0))
    assert "No p" not in tested
    assert "not tested" not in tested
    few = comparison.note(comparison.compare_folders([tmp_path], margin=1.0))
    assert "no two lines have 3 or more runs" in few
    assert "Equality within ±1.0 is not tested" in few


def test_lines_are_equal_within_a_margin(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "single", "dot", 1, 0.95)
    folders = [str(study), str(tmp_path)]
    found = comparison.compare_folders(folders)
    rows = [[run.statistics["bleu"] for run in group.runs] for group in found.groups if len(group.runs) == 3]
    compared = compare_means(Bleu().values, rows, np.arange(60))
    widest = abs(compared.values_P[0]) + compared.critical_values(0.1)[0] * compared.errors_P[0]
    main([*folders, "--margin", str(round(widest + 0.01, 3)), "--csv", str(tmp_path / "table.csv")])
    assert (
        f"two one-sided tests at the 5% level place the difference within ±{widest + 0.01:.3f}"
        in " ".join(capsys.readouterr().out.split())
    )
    answers = {}
    for margin in (widest - 0.01, widest + 0.01):
        heads, cells, _ = comparison.cells(comparison.compare_folders(folders, margin=margin))
        answers[margin] = {row[0]: row[heads.index("equal")] for row in cells}
    near, far = answers.values()
    assert near == {"dot": "–", "additive": "–", "multiplicative": "not shown", "none": "not shown"}
    assert far == near | {"multiplicative": "yes"}
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        written = {row["attention"]: row[f"equal within {widest + 0.01:.3f}"] for row in csv.DictReader(file)}
    assert written == {"dot": "", "additive": "", "multiplicative": "True", "none": "False"}
    for margin in ("0", "-1", "nan", "inf"):
        with pytest.raises(SystemExit):
            main([*folders, "--margin", margin])
        assert "--margin=" in capsys.readouterr().err


def test_a_named_baseline_is_compared_with_each_other_line(study: Path) -> None:
    groups = group_runs(find_runs([study])[0])
    rows = [[run.statistics["bleu"] for run in group.runs] for group in groups]
    alone = compare_means(Bleu().values, rows, np.arange(60)).p_values().tolist()
    found = comparison.compare(groups, "none")
    assert found.comparisons == 2
    p = p_over_seeds(found)
    assert [p["additive"], p["multiplicative"]] == pytest.approx(holm([alone[1], alone[2]]))
    assert all(line.difference.value > 0 for line in found.lines if line.difference is not None)
    # The bold lines are those of the comparison with the best.
    assert [line.top for line in found.lines] == [True, True, False]


def test_a_mean_with_a_run_without_statistics_is_not_tested(tmp_path: Path) -> None:
    for attention, share in (("additive", 0.9), ("dot", 0.5)):
        for seed in (1, 2, 3):
            make_run(tmp_path / f"{attention}{seed}", attention, seed, share)
    (tmp_path / "dot3" / "scored" / "test.npz").unlink()
    found = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    assert [line.difference for line in found.lines] == [None, None]
    assert "No p" in comparison.note(found)


def test_the_test_of_median_runs_is_suggested_or_its_lack_explained(tmp_path: Path) -> None:
    for seed, word in enumerate(("king", "prince"), start=1):
        make_run(tmp_path / word, "dot", seed, 0.5, word=word)
    groups = group_runs(find_runs([tmp_path])[0])
    assert "not their settings: --p-of-median-runs." in comparison.note(comparison.compare(groups, None))
    asked = comparison.note(comparison.compare(groups, None, p_of_median_runs=True))
    assert "--p-of-median-runs" not in asked
    assert "No p, these two models: no two lines have statistics of BLEU on the same examples." in asked
    named = comparison.compare(groups, groups[0].label, p_of_median_runs=True)
    assert "models: the baseline and another line do not both have statistics" in comparison.note(named)


def test_a_line_above_its_baseline_has_a_difference_and_p(tmp_path: Path) -> None:
    lines = (("additive", 0.9, 2), ("dot", 0.5, 3), ("local", 0.3, 3), ("none", 0.2, 2))
    for attention, share, runs in lines:
        for seed in range(1, runs + 1):
            make_run(tmp_path / f"{attention}{seed}", attention, seed, share)
    found = comparison.compare(group_runs(find_runs([tmp_path])[0]), None, p_of_median_runs=True)
    best, base, _, worst = found.lines
    assert [one.varies["attention"] for one in found.bases] == ["dot"]
    assert (base.difference, base.p_models) == (None, None)
    assert best.difference is not None
    assert worst.difference is not None
    means = [float(np.mean(line.group.values("test/bleu"))) for line in found.lines]
    assert best.difference.value == pytest.approx(means[0] - means[1], abs=1e-4)
    assert worst.difference.value == pytest.approx(means[3] - means[1], abs=1e-4)
    assert len(p_values(found)) == 3


def test_a_baseline_is_chosen_by_name(study: Path) -> None:
    groups = group_runs(find_runs([study])[0])
    found = comparison.compare(groups, "none")
    assert [one.varies for one in found.bases] == [{"attention": "none"}]
    assert [line.difference is None for line in found.lines] == [False, False, True]
    with pytest.raises(UserError, match=r"--baseline=nune: no groups have that name\."):
        comparison.compare(groups, "nune")


def test_the_note_states_the_bounds_of_a_metric_on_one_test_set(tmp_path: Path) -> None:
    for seed, oracle in ((1, 0.045), (2, 0.045), (3, 0.05)):
        make_run(tmp_path / str(seed), "additive", seed, 0.5, aer_oracle=oracle)
    one = comparison.compare(group_runs(find_runs([tmp_path / "1", tmp_path / "2"])[0]), None)
    assert "AER, oracle 0.045; AER, diagonal 0.600" in comparison.note(one)
    heads, *_ = comparison.cells(one)
    assert any(head.startswith("AER") for head in heads)
    assert "AER, oracle" not in heads
    assert "test/aer_oracle mean" in table_files.as_csv(one)
    several = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    assert "oracle" not in comparison.note(several)


def test_lines_are_compared_with_the_best_of_their_test_set(study: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "other", "dot", 1, 0.5, word="prince")
    found = comparison.compare(group_runs(find_runs([study, tmp_path])[0]), None)
    of = {line.group.varies["attention"]: line for line in found.lines}
    assert of["additive"].base is of["multiplicative"].base is of["additive"].group
    assert (of["dot"].base, of["dot"].difference) == (None, None)
    assert of["dot"].top  # the best of its test set
    assert (p_over_seeds(found)["multiplicative"] or 0) > 0.05
    alone = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    assert (len(alone.lines), alone.bases) == (1, [])
    assert "No p" in comparison.note(alone)
    for attention, share in (("dot", 0.5), ("local", 0.9)):
        for seed in (1, 2, 3):
            make_run(tmp_path / f"{attention}{seed}", attention, seed + 1, share, word="prince")
    found = comparison.compare(group_runs(find_runs([study, tmp_path])[0]), None)
    of = {line.group.varies["attention"]: line for line in found.lines}
    assert {one.varies["attention"] for one in found.bases} == {"additive", "local"}
    assert found.comparisons == 3 + 1
    assert of["dot"].difference is not None
    assert "from the baseline of its test set" in comparison.note(found)


def change(path: Path, **values: Any) -> None:
    """Set values of a JSON file."""
    rewrite(path, json.dumps(json.loads(path.read_text()) | values))


def test_runs_of_other_test_sentences_or_data_share_no_line(tmp_path: Path) -> None:
    for seed in (1, 2, 3, 4):
        make_run(tmp_path / str(seed), "dot", seed, 0.5, word="prince" if seed == 2 else "king")
    groups = group_runs(find_runs([tmp_path])[0])
    assert [[run.seed for run in group.runs] for group in groups] == [["1", "3", "4"], ["2"]]
    assert [*groups[0].varies] == ["test set"]
    assert groups[0].varies != groups[1].varies
    change(tmp_path / "3" / "result.json", provenance=recorded("d" * 64))
    groups = group_runs(find_runs([tmp_path])[0], ["attention"])
    assert [(group.varies["data"], len(group.runs)) for group in groups] == [
        *(("aaaaaaa", 2), ("ddddddd", 1), ("aaaaaaa", 1))
    ]


@needs_plotly
def test_differing_code_precision_and_machine_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        make_run(tmp_path / str(seed), "dot", seed, 0.5)
    main([str(tmp_path)])
    assert "warning" not in capsys.readouterr().out
    other = recorded(source="e" * 64, torch="2.14.0") | {
        "test_precision": "bf16",
        "components": {"my_attention.py": "f" * 64},
    }
    change(tmp_path / "2" / "result.json", provenance=other)
    main([str(tmp_path)])
    assert "custom components" not in capsys.readouterr().out  # only one of the runs has some
    own = recorded() | {"components": {"my_attention.py": "e" * 64}}
    change(tmp_path / "1" / "result.json", provenance=own)
    main([str(tmp_path), "--csv", str(tmp_path / "t.csv"), "--html", str(tmp_path / "t.html")])
    printed = capsys.readouterr().out
    shown = (tmp_path / "t.html").read_text()
    one, two = (tmp_path / "1", tmp_path / "2")
    for warning in (
        f"warning: code differs: ccccccc, source bbbbbbb in {one}; ccccccc, source eeeeeee in {two}",
        f"warning: custom components differ: my_attention.py eeeeeee in {one}; my_attention.py fffffff in {two}",
        f"warning: precision differs: fp32 in {one}; bf16 in {two}",
        f"warning: machine differs: EPYC, threads: 2, torch 2.13.0 in {one}; EPYC, threads: 2, torch 2.14.0 in {two}",
    ):
        assert warning in printed
        assert warning in shown
    (row,) = csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text()))
    assert row["recorded precision"] == "fp32 | bf16"
    assert (row["recorded data"], row["runs"]) == ("aaaaaaa", "2")


def test_the_same_source_at_another_commit_is_the_same_code(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / str(seed), "dot", seed, 0.5)
    other = recorded() | {"commit": "d" * 40, "dirty": True}
    change(tmp_path / "2" / "result.json", provenance=other)
    found = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    assert found.warnings == ()
    runs = [run for group in found.groups for run in group.runs]
    (column,) = [one for one in page.columns(found, runs) if one["label"] == "code"]
    assert column["shown"] == page.EVERY
    change(tmp_path / "2" / "result.json", provenance=other | {"source": "e" * 64})
    (warning,) = comparison.compare(group_runs(find_runs([tmp_path])[0]), None).warnings
    assert "ccccccc, source bbbbbbb in" in warning
    assert "ddddddd (changed), source eeeeeee in" in warning


def test_a_seed_that_occurs_twice_is_warned_of(tmp_path: Path) -> None:
    for name in ("one", "other"):
        make_run(tmp_path / name, "dot", 1, 0.5)
    (warning,) = comparison.compare(group_runs(find_runs([tmp_path])[0]), None).warnings
    assert warning == f"warning: all runs: seed=1 occurs 2 times: {tmp_path / 'one'}, {tmp_path / 'other'}"


def test_a_run_without_a_value_is_not_left_out_of_a_mean_silently(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / str(seed), "dot", seed, 0.5)
    change(tmp_path / "2" / "result.json", **{"test/ter": None})  # such as a perplexity that is infinite
    groups = group_runs(find_runs([tmp_path])[0])
    (warning,) = comparison.compare(groups, None, "ter").warnings
    assert warning == f"warning: ter has no value, and the mean is of the other runs: {tmp_path / '2'}"
    assert comparison.compare(groups, None).warnings == ()


def test_signatures_are_shown_and_compared(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / str(seed), "dot", seed, 0.5)
    found = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    (run, _) = found.groups[0].runs
    signature = run.result["test/bleu_signature"]
    assert f"BLEU: {signature}." in comparison.note(found)
    (row,) = csv.DictReader(io.StringIO(table_files.as_csv(found)))
    assert row["test/bleu signature"] == signature
    assert found.warnings == ()
    change(run.folder / "result.json", **{"test/bleu_signature": "nrefs:1|version:2.4.0"})
    found = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    (warning,) = found.warnings
    assert warning.startswith("warning: signature of bleu differs: nrefs:1|version:2.4.0 in")
    assert table_files.as_latex(found).splitlines()[-1] == f"% {warning}"
    assert signature not in comparison.note(found)


@needs_plotly
def test_hashes_that_look_like_numbers_are_texts(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / str(seed), "dot", seed, 0.5)
        change(tmp_path / str(seed) / "result.json", provenance=recorded("123e456" + "a" * 57))
    found = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    (data,) = (one for one in page.page_data(found)["columns"] if one["label"] == "data")
    assert data["values"] == ["123e456", "123e456"]
    assert all(map(math.isfinite, page.axis("x", ["inf", "1"])["tickvals"]))


def test_thinned_curves_of_different_lengths_share_steps() -> None:
    shared = []
    for count in (2000, 2200):
        points = page.thinned([(step, 0.5) for step in range(count)])
        assert len(points) <= 2 * page.MAX_POINTS + 1
        assert points[-1][0] == count - 1
        shared.append({step for step, _ in points})
    assert len(shared[0] & shared[1]) >= page.MAX_POINTS
    assert len(page.thinned([(step, 0.5) for step in range(page.MAX_POINTS)])) == page.MAX_POINTS


@needs_plotly
def test_runs_of_one_name_and_runs_without_outputs(study: Path, tmp_path: Path) -> None:
    shutil.copytree(study / "none1", tmp_path / "none1")
    (study / "additive2" / "attention.test.jsonl").rename(tmp_path / "kept")
    groups = group_runs(find_runs([study, tmp_path])[0])
    names = page.page_data(comparison.compare(groups, None))["runs"]
    (tmp_path / "kept").rename(study / "additive2" / "attention.test.jsonl")
    assert len(set(names)) == len(names) == 10
    assert f"attention=none, seed 1 ({tmp_path / 'none1'})" in names
    (tmp_path / "none1" / "translations.test.jsonl").unlink()
    found = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    assert page.page_data(found)["examples"] == []


def test_a_run_on_another_test_set_does_not_hide_the_outputs_of_the_others(
    study: Path, tmp_path: Path
) -> None:
    make_run(tmp_path / "other", "dot", 1, 0.5, word="prince")
    (study / "additive2" / "translations.test.jsonl").rename(tmp_path / "kept")
    try:
        found = comparison.compare(group_runs(find_runs([study, tmp_path])[0]), None)
        data = page.page_data(found)
    finally:
        (tmp_path / "kept").rename(study / "additive2" / "translations.test.jsonl")
    without, other = (
        next(i for i, name in enumerate(data["runs"]) if part in name)
        for part in ("additive, seed 2", "attention=dot")
    )
    large, small = sorted(data["examples"], key=lambda one: -len(one["runs"]))
    assert large["runs"] == [number for number in range(10) if number not in (without, other)]
    assert small["runs"] == [other]
    assert [len(one["outputs"]) for one in (large, small)] == [8, 1]
    assert any("prince" in text for text, _ in small["inputs"])
    assert not any("prince" in text for text, _ in large["inputs"])
    first, second = large["runs"][0], large["runs"][large["second"]]
    assert data["runs"][first].split(",")[0] != data["runs"][second].split(",")[0]


def test_the_command_prints_and_writes_tables(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(
        [
            str(study),
            "--baseline",
            "none",
            "--csv",
            str(tmp_path / "t.csv"),
            "--latex",
            str(tmp_path / "t.tex"),
        ]
    )
    printed = capsys.readouterr()
    assert "9 runs" in printed.out
    assert "1,234,567" in printed.out
    assert "│ baseline │" in printed.out
    assert f"skipped: {study / 'dot1'}: failed" in printed.err
    rows = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert [row["attention"] for row in rows][2] == "none"
    scores = [run.result["test/bleu"] for run in find_runs([study])[0] if run.settings["attention"] == "none"]
    assert float(rows[2]["test/bleu mean"]) == pytest.approx(sum(scores) / 3)
    assert (rows[2]["runs"], rows[2]["p over seeds"], rows[2]["num_parameters std"]) == ("3", "", "0.0")
    assert {row["baseline"] for row in rows} == {"attention=none"}
    assert float(rows[0]["95% CI low"]) < float(rows[0]["difference"]) < float(rows[0]["95% CI high"])
    assert "p, these two models" not in rows[0]
    latex = (tmp_path / "t.tex").read_text()
    assert latex.startswith(
        "\\begin{tabular}{lrrrrrrrr}\n\\toprule\nattention & runs & BLEU $\\pm$ std & chrF"
    )
    with pytest.raises(SystemExit):
        main([str(study / "dot1")])
    assert capsys.readouterr().err.startswith("error: ")


def test_a_row_of_latex_does_not_begin_with_an_argument_of_the_line_break(tmp_path: Path) -> None:
    for betas in ([0.9, 0.98], [0.9, 0.999]):
        folder = tmp_path / str(betas[1])
        make_run(folder, "additive", 1, 0.5)
        change(folder / "config.yaml", optimizer={"betas": betas})
    rows = table_files.as_latex(comparison.compare(group_runs(find_runs([tmp_path])[0]), None)).splitlines()
    first = rows.index("\\midrule") + 1
    assert [row.split(" & ")[0] for row in rows[first : first + 2]] == ["{}[0.9, 0.98]", "{}[0.9, 0.999]"]


def test_figures_are_written_as_pdf_with_embedded_fonts(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(study), "--figures", str(tmp_path / "figures")])
    names = ("val_bleu", "val_ter", "train_loss", "test_bleu_by_length")
    paths = [tmp_path / "figures" / f"{name}.pdf" for name in names]
    assert [*map(str, paths)] == re.findall(r"written: (.*)", capsys.readouterr().out)
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(b"%PDF")
        assert b"/Image" not in content.split(b"/ProcSet")[0]
        assert b"/FontFile2" in content
        assert b"/Type3" not in content


def test_a_curve_of_a_line_is_the_mean_at_the_steps_that_its_runs_share(study: Path, tmp_path: Path) -> None:
    curves = ({1: 2.0, 2: 5.0, 4: 1.0}, {2: 1.0, 3: 7.0, 4: 2.0})
    for seed, curve in enumerate(curves, start=1):
        shutil.copytree(study / f"none{seed}", tmp_path / str(seed))
        tracker = FileTracker(tmp_path / str(seed), None)
        for step, value in curve.items():
            tracker.log_metrics({"val/bleu": value}, step)
        tracker.finish(0)
    (group,) = group_runs(find_runs([tmp_path])[0])
    (series,) = figures.curve_series(group, "val/bleu")
    assert ([*series.x], [*series.y]) == ([2, 4], [3.0, 1.5])
    assert series.errors == pytest.approx([8**0.5, 0.5**0.5])
    assert figures.curve_series(group, "val/chrf") == []
    # Without a common step each run is a series.
    tracker = FileTracker(tmp_path / "1", None)
    tracker.log_metrics({"val/bleu": 9.0}, 9)
    tracker.finish(0)
    (group,) = group_runs(find_runs([tmp_path])[0])
    assert [one.y for one in figures.curve_series(group, "val/bleu")] == [[9.0], [1.0, 7.0, 2.0]]


def test_groups_of_examples_have_deviations_over_runs_or_the_intervals_of_one() -> None:
    rows = [
        *({"group": "a", "value": value, "count": 3, "confidence": 9.0} for value in (1.0, 3.0)),
        {"group": "b", "value": None, "count": 0},
        {"group": "c", "value": 4.0, "count": 1, "confidence": 0.5},
    ]
    series = figures.grouping_series("x", rows, ["a", "b", "c"])
    assert (series.x, series.y) == ([0, 2], [2.0, 4.0])
    assert series.errors == pytest.approx([2**0.5, 0.5])


def test_bold_face_columns_digits_and_caption_of_latex(study: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "other", "dot", 1, 0.5, word="prince")
    options = (
        "--latex-columns",
        "bleu,num_parameters",
        "--latex-digits",
        "1",
        "--latex-caption",
        "Scores & p.",
    )
    main([str(study), str(tmp_path), "--latex", str(tmp_path / "t.tex"), *options])
    latex = (tmp_path / "t.tex").read_text()
    bold = [line.split(" & ")[0] for line in latex.splitlines() if r"\textbf{" in line]
    # The best of each test set, and the one that is not significantly worse.
    assert sorted(bold) == ["additive", "dot", "multiplicative"]
    assert "chrF" not in latex
    assert "1,234,567" in latex
    assert re.search(r"\\textbf\{\d+\.\d \$\\pm\$ \d+\.\d\}", latex)
    assert re.search(r" & \$-\$\d+\.\d \[\$-\$\d+\.\d, (\$-\$)?\d+\.\d\] & ", latex)
    run = find_runs([study])[0][0]
    signature = run.signature("bleu").replace("|", r"\textbar{}")
    assert (
        rf"\caption{{Scores \& p. Means; std: standard deviation over the runs of a line. BLEU: {signature}."
        in latex
    )
    assert latex.startswith("\\begin{table}")
    with pytest.raises(SystemExit):
        main([str(study), "--latex", str(tmp_path / "t.tex"), "--latex-columns", "bleo"])
    with pytest.raises(SystemExit):
        main([str(study), "--latex", str(tmp_path / "t.tex"), "--latex-digits", "-1"])
    with pytest.raises(SystemExit):
        main([str(study), "--latex-digits", "2"])


def test_a_caption_explains_the_columns_of_its_table_only(tmp_path: Path) -> None:
    make_run(tmp_path / "1", "additive", 1, 0.5, aer_oracle=0.045)
    baseline = {"baseline/copy/label": "copy of the source", "baseline/copy/test/chrf": 20.0}
    change(tmp_path / "1" / "result.json", **baseline)
    table = comparison.compare_folders([tmp_path])
    for columns, texts in (
        (("bleu",), ()),
        (("bleu", "aer"), ("To compare AER with",)),
        (("chrf",), ("copy of the source: chrF 20.00",)),
    ):
        latex = table_files.as_latex(table, table_files.LatexOptions(columns, caption="Scores."))
        assert latex == table_files.as_latex(table, table_files.LatexOptions(columns, caption="Scores"))
        every = ("To compare AER with", "copy of the source: chrF 20.00")
        assert tuple(text for text in every if text in latex) == texts
        assert ("Trivial" in latex) == ("chrf" in columns)
        assert "No p" not in latex
        assert "median" not in latex


def test_every_spread_of_a_table_has_a_word(study: Path) -> None:
    heads, rows, _ = comparison.cells(comparison.compare(group_runs(find_runs([study])[0]), None))
    for row in rows:
        for head, text in zip(heads, row, strict=True):
            assert ("±" in text) <= head.endswith("± std")
            assert ("[" in text) <= ("95% CI" in head)


def test_without_plotly_the_extra_is_named(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)  # importing it raises ImportError
    with pytest.raises(SystemExit):
        main([str(study), "--html", str(tmp_path / "t.html")])
    assert "pip install 'seq2seq_lab[compare]'" in capsys.readouterr().err


@needs_plotly
def test_the_page_needs_nothing_else(study: Path) -> None:
    text = page.page(comparison.compare(group_runs(find_runs([study])[0]), None), "a < b")
    assert "<title>a &lt; b</title>" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")  # the name of a format
    assert "src=" not in text
    assert len(text) < 3_000_000
    packed = text.split('<script id="data" type="text/plain">')[1].split("<")[0]
    assert len(json.loads(gzip.decompress(base64.b64decode(packed)))["runs"]) == 9


def test_groups_keep_their_order_if_the_first_run_lacks_one() -> None:
    names = ("≤6", "7–10", ">10", ">18")
    rows = [
        [{"group": name, "count": 1, "value": value} for name, value in zip(names, values, strict=True)]
        for values in ((1.0, None, 2.0, None), (1.0, 3.0, 2.0, None))
    ]
    declared = Declarations.of([Bleu()], [], "bleu").metrics["bleu"]
    found = page.bars(declared, "length", rows)
    assert found["order"] == ["≤6", "7–10", ">10"]
    assert [[row["group"] for row in of_run] for of_run in found["bars"]] == [["≤6", ">10"], found["order"]]


@needs_plotly
def test_the_data_of_the_page(study: Path) -> None:
    table = comparison.compare(group_runs(find_runs([study])[0]), None)
    data = page.page_data(table)
    assert [group["runs"] for group in data["groups"]] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert [curve["label"] for curve in data["curves"]] == [
        "validation BLEU",
        "validation TER",
        "training loss",
    ]
    lines = data["curves"][2]["lines"]
    assert len(lines) == 9
    assert all(150 < len(line["x"]) < 260 and line["x"][-1] == 499 for line in lines)
    (examples,) = data["examples"]
    assert len(examples["outputs"][0]) == len(examples["inputs"]) == 60
    assert examples["score"] == "sentence bleu"
    (bars,) = data["groupings"]
    assert bars["label"] == "BLEU by words"
    assert [row["group"] for row in bars["bars"][0]] == bars["order"] == ["≤10", ">10"]
    columns = {column["label"]: column for column in data["columns"]}
    assert columns["seed"]["values"] == [1, 2, 3] * 3
    assert columns["BLEU"]["texts"][0] == f"{table.groups[0].runs[0].result['test/bleu']:.2f}"
    assert columns["attention"]["shown"] == columns["folder"]["shown"] == page.DIFFERING
    assert columns["folder"]["texts"] == [run.folder.name for group in table.groups for run in group.runs]
    assert [axis["label"] for axis in data["axes"]] == ["attention", "seed", "test BLEU"]
    assert columns["machine"]["shown"] == page.EVERY  # the same for all runs
    assert "optimizer" in data["shared"]
    assert "attention" not in data["shared"]


def test_the_effect_of_a_setting_is_the_difference_of_lines_that_share_the_others(tmp_path: Path) -> None:
    for attention, size, share in (("dot", 8, 0.9), ("dot", 16, 0.7), ("none", 8, 0.5), ("none", 16, 0.3)):
        for seed in (1, 2, 3):
            make_run(tmp_path / f"{attention}{size}{seed}", attention, seed, share, size=size)
    table = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    found = effects.effects(table)
    assert {
        (*one.keys, one.worse.varies["attention"], one.better.varies["model.hidden_size"]) for one in found
    } == {
        ("attention", "none", "8"),
        ("attention", "none", "16"),
        ("model.hidden_size", "dot", "8"),
        ("model.hidden_size", "none", "8"),
    }
    for one in found:
        low, high = (np.mean(group.values("test/bleu")) for group in (one.worse, one.better))
        assert one.difference is not None
        assert one.difference.value == pytest.approx(one.value, abs=0.01) == pytest.approx(high - low)
        assert one.value > 0
    assert [abs(one.value) for one in found] == sorted((abs(one.value) for one in found), reverse=True)
    html = page.effects_table(table)
    assert "model.hidden_size" in html
    assert found[0].cells(table)[4] in html


def test_the_next_steps_of_a_comparison_are_commands(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = comparison.compare(group_runs(find_runs([study])[0]), None)
    reasons = {one.reason: one.command for one in effects.next_steps(table)}
    run = table.lines[0].group.median("test/bleu")
    assert run is not None
    assert f"python -m seq2seq_lab.predict {run.folder} --weights" in reasons.values()
    opened = [text for text in reasons if "is not decided" in text]
    assert opened
    lines = table.lines[0].group, table.lines[-1].group
    difference = GroupDifference(0.1, 0.2, 0.3, seeds=8)
    assert effects._undecided(table, *lines, difference).command == ""  # these runs record no command
    monkeypatch.setattr(effects, "training_command", lambda _, *words: " ".join(words))
    for more, fewer in (lines, lines[::-1]):
        unequal = [replace(more, runs=[*more.runs] * 3), fewer]  # a repeated seed counts once
        commands = effects._undecided(table, *unequal, difference).command.split(" && ")
        assert [sorted(command.rpartition("seed=")[2].split(",")) for command in commands] == [
            sorted({*map(str, range(1, 9))} - {run.seed for run in group.runs}) for group in unequal
        ]
    enough = [replace(group, runs=[SimpleNamespace(seed=str(i)) for i in range(9)]) for group in lines]
    assert effects._undecided(table, *enough, difference).command == ""
    single = comparison.compare(group_runs(find_runs([study / "none1", study / "additive1"])[0]), None)
    assert "2 of 2 lines have fewer than 3 runs" in next(effects.next_steps(single)).reason


def test_a_page_has_as_much_attention_as_fits() -> None:
    examples = [{"title": str(i), "maps": {"0": {"frames": [i] * 100}}} for i in range(5)]
    size = len(frame.packed(frame.as_json(examples[0])))
    assert page.fitting(examples, 3 * size) == examples[:3]
    assert page.fitting(examples, 0) == []
    assert "3 of the 5" in page.attention_note(3, 5)


@needs_plotly
def test_settings_that_all_runs_share_have_no_axis(study: Path) -> None:
    (group,) = group_runs(find_runs([study / "none1"])[0])
    data = page.page_data(comparison.compare([group], None))
    assert [axis["label"] for axis in data["axes"]] == ["test BLEU"]


@needs_plotly
def test_the_page_has_the_attention_of_every_validation(study: Path) -> None:
    first, *_, last = page.page_data(comparison.compare(group_runs(find_runs([study])[0]), None))["attention"]
    assert len(first["maps"]) == 6  # none has none
    (frame,) = first["maps"][0]["frames"]
    assert frame["links"] == [[1, 0]]
    assert last["title"].startswith("validation: ")
    assert [frame["step"] for frame in last["maps"][0]["frames"]] == [100, 200]


CLICKS = """
<script>
const seen = {};
const texts = (query) => [...document.querySelectorAll(query)].map((one) => one.textContent);
const choose = (id, index) => { at(id).selectedIndex = index; at(id).onchange(); };
const type = (id, text) => { at(id).value = text; at(id).oninput(); };
const key = (span, name) => span.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
async function click() {
  while (!document.documentElement.dataset.ready) await new Promise((next) => setTimeout(next, 20));
  const wide = (one) => one.scrollWidth > one.clientWidth;
  seen.overflow = wide(document.documentElement) || wide(document.querySelector("nav"));
  seen.traces = at("curve").data.length;
  at("single").click();
  seen.single = at("curve").data.length;
  choose("metric", 2);
  seen.axis = at("curve").layout.yaxis.title.text;
  at("legend").children[0].click();
  seen.without = [at("curve").data.length, at("bars").data.length];
  at("legend").children[0].click();
  const high = at("bars").data.map((bar) => bar.y.map((y, i) => y + bar.error_y.array[i])).flat();
  seen.inside = Math.max(...high) <= 100;
  type("filter", "seed=2 & attention=none");
  seen.filtered = [texts("#table tbody tr").length, at("curve").data.length];
  type("filter", "");
  document.querySelector("#table th:nth-child(3) button").click();
  seen.sorted = texts("#table tbody td:nth-child(3)").map(Number);
  const narrow = texts("#table th").length;
  choose("columns", 1);
  seen.wider = texts("#table th").length > narrow;
  seen.heads = texts("#heat0 table.cells thead th");
  seen.link = document.querySelectorAll("#heat0 td.link").length;
  const word = document.querySelector("#heat0 .sentence span");
  word.focus();
  seen.attended = document.querySelector("#heat0 .values").textContent;
  key(word, "ArrowRight");
  seen.next = document.activeElement.textContent;
  choose("example", data.attention.length - 1);
  seen.slider = [at("slider").hidden, at("steps").textContent];
  at("step").value = 0; at("step").oninput();
  seen.step = at("steps").textContent;
  seen.rows = texts("#texts tbody tr").length;
  at("more").click();
  seen.more = texts("#texts tbody tr").length;
  type("words", "queen");
  seen.queens = texts("#texts tbody tr").every((text) => text.includes("queen"));
  seen.marked = different("a b c d".split(" "), "a c x d".split(" ")).size;
  choose("order", 1);
  seen.sets = at("sets").hidden;
  choose("left", 4);
  seen.left = document.querySelector("#texts th:nth-child(3)").textContent;
  document.title = "SEEN " + JSON.stringify(seen);
}
click().catch((error) => { document.title = "SEEN " + JSON.stringify({ error: String(error.stack) }); });
</script>
"""


def open_page(browser: str, folder: Path, text: str, script: str) -> Any:
    """Return what a script on the page, in a window of the width of a phone, writes to the title after "SEEN "."""
    (folder / "page.html").write_text(text.replace("</body>", f"{script}</body>"))
    (folder / "frame.html").write_text(
        "<iframe src='page.html' width='400' height='800' onload='setInterval(() => "
        "{ document.title = this.contentDocument.title; }, 20)'></iframe>"
    )
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        "--virtual-time-budget=20000",
        f"--user-data-dir={folder}",
        "--dump-dom",
    )
    ended = subprocess.run(
        [browser, *options, f"file://{folder}/frame.html"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    title = ended.stdout.split("<title>SEEN ")[1].split("</title>")[0]
    seen = json.loads(html.unescape(title))
    assert "error" not in seen, seen["error"]
    return seen


@pytest.mark.slow
@pytest.mark.browser
@needs_plotly
def test_the_page_in_a_browser(study: Path, tmp_path: Path, browser: str) -> None:
    found = comparison.compare(group_runs(find_runs([study])[0]), None)
    seen = open_page(browser, tmp_path, page.page(found, "a study"), CLICKS)
    assert seen["overflow"] is False
    assert (seen["traces"], seen["single"], seen["axis"]) == (
        9,
        9,
        "training loss",
    )  # a mean and two edges per group
    assert seen["without"] == [6, 2]
    assert seen["inside"] is True
    assert seen["filtered"] == [1, 1]
    assert seen["sorted"] == sorted(seen["sorted"], reverse=True)
    assert seen["wider"] is True
    assert seen["heads"] == ["<sos>", "a", "<eos>"]
    assert seen["link"] == 1
    assert (seen["attended"], seen["next"]) == ("<sos> ← b 0.10", "a")
    assert (seen["slider"], seen["step"]) == ([False, "200"], "100")
    assert (seen["rows"], seen["more"], seen["queens"], seen["marked"]) == (50, 60, True, 1)
    assert seen["left"] == "attention=multiplicative, seed 2"
    assert seen["sets"] is True


def looking(body: str, result: str = "seen") -> str:
    """Return a script that runs once the page is ready, and writes `result` or its error to the title."""
    return f"""
<script>
async function look() {{
  while (!document.documentElement.dataset.ready) await new Promise((next) => setTimeout(next, 20));
{body}
  document.title = "SEEN " + JSON.stringify({result});
}}
look().catch((error) => {{ document.title = "SEEN " + JSON.stringify({{ error: String(error.stack) }}); }});
</script>
"""


FILTERS = looking("""
  const seen = { kept: {}, problems: {} };
  for (const text of TEXTS) {
    at("filter").value = text; at("filter").oninput();
    seen.kept[text] = [...visible];
    seen.problems[text] = at("problem").hidden ? "" : at("problem").textContent;
  }
""")


@pytest.mark.slow
@pytest.mark.browser
@needs_plotly
def test_the_operators_of_the_filter_in_a_browser(study: Path, tmp_path: Path, browser: str) -> None:
    found = comparison.compare(group_runs(find_runs([study])[0]), None)
    names = [group.varies["attention"] for group in found.groups for _ in group.runs]
    bleu = [run.result["test/bleu"] for group in found.groups for run in group.runs]
    middle = sorted(bleu)[4]
    kept = {
        "": [*range(9)],
        f"bleu>{middle} & seed=1": [i for i in range(0, 9, 3) if bleu[i] > middle],
        f"BLEU<={middle}": [i for i in range(9) if bleu[i] <= middle],
        "attention!=none seed=2": [i for i in range(1, 9, 3) if names[i] != "none"],
        "attention=none | seed=3": [i for i in range(9) if names[i] == "none" or i % 3 == 2],
        "!(attention=none | seed=3)": [i for i in range(9) if names[i] != "none" and i % 3 != 2],
        "attention~multi": [i for i in range(9) if names[i] == "multiplicative"],
        "~multi": [i for i in range(9) if names[i] == "multiplicative"],
        '"number of nothing"': [],
        "same_length<200%": [*range(9)],
    }
    wrong = {
        "seed=": "after =",
        "bleu>high": "high is not a number",
        "blue>3": "blue is not a column. Columns: attention, seed",
        "(seed=1": "closing parenthesis",
        "seed=1)": "not open",
        '"seed': "not closed",
        "& seed=1": "after the start",
    }
    script = FILTERS.replace("TEXTS", json.dumps([*kept, *wrong]))
    seen = open_page(browser, tmp_path, page.page(found, "a study"), script)
    for text, runs in kept.items():
        assert (seen["kept"][text], seen["problems"][text]) == (runs, ""), text
    for text, problem in wrong.items():
        assert problem in seen["problems"][text], text
        assert "optimizer" not in seen["problems"][text], "only the columns that differ are listed"
        assert seen["kept"][text] == seen["kept"]["same_length<200%"], "the last filter without a mistake"


VIEW = looking("""
  const seen = {}, texts = (query) => [...document.querySelectorAll(query)].map((one) => one.textContent);
  const state = () => ({
    runs: texts("#table tbody tr").length, sorted: document.querySelector("#table [aria-sort=ascending]")?.textContent,
    hidden: [...hidden], left: valueOf(at("left")), example: valueOf(at("example")), map: valueOf(at("map1")),
    step: at("steps").textContent,
  });
  seen.fresh = [location.hash, JSON.stringify(state())];
  const set = (id, change) => { change(at(id)); at(id).dispatchEvent(new Event("input", { bubbles: true }));
    at(id).dispatchEvent(new Event("change", { bubbles: true })); };
  set("filter", (one) => { one.value = "seed=2 | seed=3"; });
  document.querySelector("#table th:nth-child(3) button").click();
  document.querySelector("#table th:nth-child(3) button").click();
  at("legend").children[1].click();
  set("left", (one) => { one.selectedIndex = 4; });
  set("example", (one) => { one.selectedIndex = one.options.length - 1; });
  set("map1", (one) => { one.selectedIndex = 2; });
  set("step", (one) => { one.value = 0; });
  seen.chosen = JSON.stringify(state());
  const address = location.hash;
  location.hash = "";
  await new Promise((next) => setTimeout(next, 100));
  seen.cleared = JSON.stringify(state());
  location.hash = address;
  await new Promise((next) => setTimeout(next, 100));
  seen.opened = JSON.stringify(state());
  location.hash = "runs"; // a link to a section
  await new Promise((next) => setTimeout(next, 100));
  seen.kept = JSON.stringify(state());
  seen.address = location.hash;
  location.hash = "left=unknown";
  await new Promise((next) => setTimeout(next, 100));
  seen.unknown = at("view").textContent;
  location.hash = "";
  await new Promise((next) => setTimeout(next, 100));
  const link = document.querySelector("#texts button.link"), input = data.examples[0].inputs.find(([one]) =>
    data.attention.some(({ title }) => title === one))[0];
  set("words", (one) => { one.value = input; });
  document.querySelector("#texts button.link").click();
  seen.attention = [valueOf(at("example")) === input, document.activeElement.id];
  set("words", (one) => { one.value = ""; });
  at("to-output").click();
  seen.output = [at("words").value === input, document.activeElement.id];
  set("diff1", (one) => { one.selectedIndex = 8; });
  seen.diff = texts("#diff tbody tr").map((row) => row);
  const last = data.attention[0].maps[0].frames[0];
  seen.svg = heatmapSvg(last, "a < b").slice(0, 4);
  seen.cells = heatmapSvg(last, "").split("<rect").length - 2;
  const wide = { ...last, x: ["a"], y: ["W".repeat(20)], z: [[1]], links: [] };
  seen.width = Number(/width="([^"]+)"/.exec(heatmapSvg(wide, ""))[1]);
  seen.png = (await pngOf(heatmapSvg(last, "a < b"))).type;
  seen.plot = (await plotSvg("curve")).slice(0, 4);
  seen.bars = document.querySelectorAll(".saving").length;
  seen.rows = texts("#heat0 details tbody tr");
""")


@pytest.mark.slow
@pytest.mark.browser
@needs_plotly
def test_the_address_keeps_the_view_in_a_browser(study: Path, tmp_path: Path, browser: str) -> None:
    found = comparison.compare(group_runs(find_runs([study])[0]), None)
    seen = open_page(browser, tmp_path, page.page(found, "a study"), VIEW)
    address, fresh = seen["fresh"]
    assert address == ""
    assert seen["cleared"] == fresh
    assert seen["opened"] == seen["kept"] == seen["chosen"] != fresh
    state = json.loads(seen["opened"])
    assert (state["runs"], state["sorted"], state["hidden"], state["step"]) == (6, "BLEU ↑", [1], "100")
    assert seen["address"].startswith("#section=runs&filter=")
    assert "left=unknown" in seen["unknown"]
    assert seen["attention"] == [True, "example"]
    assert seen["output"] == [True, "left"]
    assert [row.split("none")[0] for row in seen["diff"]][:1] == ["attentionadditive"]
    assert (seen["svg"], seen["cells"], seen["png"], seen["plot"]) == ("<svg", 6 + 2, "image/png", "<svg")
    assert seen["width"] > 20 * 11  # W is the widest letter of sans-serif fonts
    assert seen["bars"] == 5  # three plots, two heatmaps
    assert seen["rows"][0] == "1ba (0.80)aright"


SETS = looking(
    """
  const seen = [];
  for (const set of [0, 1]) {
    at("set").selectedIndex = set;
    at("set").onchange();
    const words = at("texts").textContent;
    seen.push([at("sets").hidden, at("left").options.length, words.includes("king"), words.includes("prince")]);
  }
""",
    "{ sets: seen }",
)


@pytest.mark.slow
@pytest.mark.browser
@needs_plotly
def test_the_outputs_of_each_test_set_in_a_browser(study: Path, tmp_path: Path, browser: str) -> None:
    make_run(tmp_path / "other", "additive", 4, 0.01, word="prince")
    found = comparison.compare(group_runs(find_runs([study, tmp_path])[0]), None)
    seen = open_page(browser, tmp_path, page.page(found, "two test sets"), SETS)
    assert seen["sets"] == [[False, 9, True, False], [False, 1, False, True]]


DIRECTIONS = looking("""
  const seen = {}, left = (query) => [...document.querySelectorAll(query)].map((one) => one.getBoundingClientRect().left);
  const x = ["<sos>", "זה", "ספר", "<eos>"], y = ["this", "book"], z = [[1, 0, 0, 0], [0, 0, 1, 0]];
  at("heat0").replaceChildren(...heatmap({ x, y, z, links: [], directions: ["rtl", "ltr"] }));
  seen.heads = left("#heat0 thead th");
  seen.cells = left("#heat0 tbody tr:first-child td");
  seen.names = left("#heat0 tbody th");
  [seen.source, seen.target] = [1, 2].map((number) => left(`#heat0 .sentence:nth-child(${number}) span`));
  const word = document.querySelector("#heat0 .sentence span");
  word.focus();
  word.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true }));
  seen.next = document.activeElement.textContent;
  const { inputs, outputs } = data.examples[0];
  inputs[0] = ["זה ספר.", "这是一本书。"];
  outputs[0][0] = "这是一个 书。";
  outputs[at("right").value][0] = "كتاب!";
  at("order").value = "place";
  showOutputs();
  const cells = [...document.querySelectorAll("#texts tbody tr:first-child td")];
  seen.directions = cells.map((cell) => getComputedStyle(cell).direction);
  seen.texts = cells.map((cell) => cell.textContent);
  seen.marks = [...cells[2].querySelectorAll("mark")].map((one) => one.textContent);
""")


@pytest.mark.slow
@pytest.mark.browser
@needs_plotly
def test_the_page_follows_the_direction_of_texts_in_a_browser(
    study: Path, tmp_path: Path, browser: str
) -> None:
    found = comparison.compare(group_runs(find_runs([study])[0]), None)
    seen = open_page(browser, tmp_path, page.page(found, "a study"), DIRECTIONS)
    for places in (seen["heads"], seen["cells"], seen["source"]):
        assert len(places) == 4
        assert places == sorted(places, reverse=True)
    np.testing.assert_allclose(seen["heads"], seen["cells"], atol=1)
    assert min(seen["names"]) > max(seen["cells"])
    assert seen["target"] == sorted(seen["target"])
    assert seen["next"] == "זה"
    assert seen["directions"] == ["rtl", "ltr", "ltr", "rtl"]
    assert seen["texts"][2].startswith("这是一个 书。 (")
    assert seen["marks"] == ["个"], "in scripts without spaces, letters are marked"


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0009, "<0.001"), (0.0494, "0.049"), (0.0496, "0.0496"), (0.0504, "0.0504"), (0.0506, "0.051")],
)
def test_a_p_value_shows_on_which_side_of_the_level_it_is(p: float, text: str) -> None:
    assert comparison.p_text(p) == text


def test_a_heatmap_has_the_directions_of_its_texts() -> None:
    row = {"columns": ["<sos>", "זה", "<eos>"], "rows": ["this", "<eos>"], "weights": []}
    assert run_page.heatmap_frame(row)["directions"] == ["rtl", "ltr"]


@pytest.mark.slow  # starts the program
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that refuses output")
def test_the_files_are_written_if_the_table_cannot_be_printed(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "seq2seq_lab.compare", "demo", "--csv", str(tmp_path / "table.csv")]
        subprocess.run(command, stdout=full, check=False)
    assert "test/bleu" in (tmp_path / "table.csv").read_text("utf-8")
