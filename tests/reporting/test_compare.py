"""Runs beside one another: groups, table, significance, and the page in a browser."""

import csv
import io
import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU

from seq2seq_lab.compare import main
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import read_json_lines
from seq2seq_lab.metrics.scores import paired_bootstrap
from seq2seq_lab.reporting import comparison, page
from seq2seq_lab.reporting.runs import find_runs, group_runs

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


def make_run(
    folder: Path, attention: str, seed: int, share: float, status: str = "finished", size: int = 8
) -> None:
    """Write the folder of a run that gets about this share of its words right."""
    draw, words = random.Random(f"{attention} {seed}"), random.Random(0)
    rows = []
    for _ in range(60):
        reference = [words.choice(WORDS) for _ in range(words.randint(4, 20))]
        hypothesis = [word if draw.random() < share else "dog" for word in reference]
        rows.append(
            {
                "source": " ".join(reversed(reference)),
                "reference": " ".join(reference),
                "hypothesis": " ".join(hypothesis),
                "sentence_bleu": round(100 * draw.random(), 2),
                "source_words": len(reference),
            }
        )
    score = BLEU().corpus_score([r["hypothesis"] for r in rows], [[r["reference"] for r in rows]]).score
    groups = ("encoder", "decoder", "attention", "readout", "dataset", "tokenizer")
    choices = dict.fromkeys((*groups, "initialization", "optimizer", "schedule"), "x") | {
        "attention": attention,
        "teacher_forcing": "constant",
    }
    config = {
        "seed": seed,
        "model": {"name": "attn", "hidden_size": size},
        "encoder": {"cell": "gru"},
        "teacher_forcing": {"ratio": 1.0, "scope": "token"},
        "logger": {"folder": str(folder)},
        "study": {"number": seed},
    }
    result = {
        "status": status,
        "test/bleu": score,
        "test/chrf": 50.0,
        "num_parameters": 1234567,
        "train/target_tokens_per_second": 1000.0 + seed,
        "test/bleu_by_length": [
            {"low": 0, "high": 10, "count": 30, "bleu": score, "confidence": 4.5},
            {"low": 11, "high": None, "count": 30, "bleu": score},  # an earlier version recorded no interval
        ],
    }
    weights = [
        {"source": rows[i]["source"], "hypothesis": "b", "source_tokens": ["<sos>", "a", "<eos>"]}
        for i in (0, 1)
    ]
    attention_rows = [
        one | {"target_tokens": ["b", "<eos>"], "weights": [[0.1, 0.8, 0.1], [0, 0, 1]]} for one in weights
    ]
    metrics = [{"step": n, "time": 1.0, "train/loss": 5 / n} for n in range(1, 500)]
    metrics += [
        {"step": n, "time": 1.0, "val/bleu": n / 100, "val/loss_teacher_forced": 2.0} for n in (100, 200, 499)
    ]
    kept = folder / "wandb" / "artifacts" / "1"  # what the default logger keeps
    kept.mkdir(parents=True)
    for place in (folder, kept):
        (place / "config.yaml").write_text(json.dumps(config))
        (place / "run.json").write_text(json.dumps({"choices": choices}))
        (place / "result.json").write_text(json.dumps(result))
    for name, lines in (
        ("translations.test", rows),
        ("metrics", metrics),
        ("attention.test", [] if attention == "none" else attention_rows),
    ):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three attention functions, of which two are nearly alike, with three seeds each."""
    folder = tmp_path_factory.mktemp("study")
    for attention, share in (("additive", 0.9), ("multiplicative", 0.89), ("none", 0.5)):
        for seed in (1, 2, 3):
            make_run(folder / f"{attention}{seed}", attention, seed, share)
    make_run(folder / "dot1", "dot", 1, 0.5, status="failed")
    (folder / "none1" / ".hydra").mkdir()
    (folder / "none1" / ".hydra" / "config.yaml").write_text("{}")
    return folder


def test_runs_are_found_once_and_what_has_not_ended_is_named(study: Path) -> None:
    runs, left_out = find_runs([study, study / "none1"])
    assert len(runs) == 9
    assert left_out == [f"{study / 'dot1'}: failed"]
    with pytest.raises(UserError, match=r"no finished run lies there; .*dot1: failed"):
        find_runs([study / "dot1"])
    with pytest.raises(UserError, match="there is no such folder"):
        find_runs([study / "nothing"])


def test_groups_differ_in_more_than_the_seed(study: Path, tmp_path: Path) -> None:
    runs, _ = find_runs([study])
    groups = group_runs(runs)
    assert [group.varies for group in groups] == [
        {"attention": a} for a in ("additive", "multiplicative", "none")
    ]
    assert [run.seed for run in groups[0].runs] == ["1", "2", "3"]
    # Another size makes another group, though no key of the dashboard says so.
    make_run(tmp_path / "wide", "additive", 1, 0.9, size=16)
    more, _ = find_runs([study, tmp_path])
    assert [group.varies for group in group_runs(more)][-1] == {
        "attention": "additive",
        "model.hidden_size": "16",
    }
    assert [len(group.runs) for group in group_runs(more, ["attention"])] == [4, 3, 3]
    with pytest.raises(UserError, match=r"--by=atention: no run has that setting\. Did you mean 'attention'"):
        group_runs(more, ["atention"])


def test_significance_is_the_paired_bootstraps_corrected_by_holm(study: Path) -> None:
    found = comparison.compare(group_runs(find_runs([study])[0]), None)
    lines = found.lines
    assert lines[0].group is found.base
    assert lines[0].p is None
    assert lines[2].group.varies == {"attention": "none"}
    rows, *others = [line.group.median("test/bleu").translations for line in lines]
    systems = [[row["hypothesis"] for row in other] for other in others]
    references = [row["reference"] for row in rows]
    alone = paired_bootstrap([row["hypothesis"] for row in rows], systems, references, 1000)
    # The baseline is the best of three: three pairs.
    assert [line.p for line in lines[1:]] == pytest.approx(comparison.holm(alone, 3))
    assert "Holm-corrected for all 3 pairs of lines" in comparison.note(found)
    assert lines[1].p is not None
    assert lines[2].p is not None
    assert lines[2].p < 0.01 < 0.05 < lines[1].p
    named = comparison.compare(group_runs(find_runs([study])[0]), lines[0].group.label)
    assert [line.p for line in named.lines[1:]] == pytest.approx(comparison.holm(alone, 2))
    assert "Holm-corrected for 2 comparisons with the baseline" in comparison.note(named)
    # So many comparisons as a large study has can still be significant.
    pairs = comparison.number_of_pairs(60)
    assert comparison.holm([1 / (1 + comparison.SAMPLES_EACH * pairs)], pairs)[0] < 0.01
    assert comparison.holm([0.01, 0.04, 0.03], 3) == pytest.approx([0.03, 0.06, 0.06])
    assert comparison.holm([0.01, 0.04, 0.03], 10) == pytest.approx([0.1, 0.32, 0.27])


def test_a_baseline_is_chosen_by_name(study: Path) -> None:
    groups = group_runs(find_runs([study])[0])
    found = comparison.compare(groups, "none")
    assert found.base is not None
    assert found.base.varies == {"attention": "none"}
    assert [line.p is None for line in found.lines] == [False, False, True]
    with pytest.raises(UserError, match=r"--baseline=nune: no groups have that name\."):
        comparison.compare(groups, "nune")


def test_the_note_states_the_bounds_of_the_aer_of_one_test_set(tmp_path: Path) -> None:
    for seed, oracle in ((1, 0.045), (2, 0.045), (3, 0.05)):
        folder = tmp_path / str(seed)
        make_run(folder, "additive", seed, 0.5)
        result = json.loads((folder / "result.json").read_text())
        result |= {"test/aer": 0.1 * seed, "test/aer_oracle": oracle, "test/aer_diagonal": 0.598}
        (folder / "result.json").write_text(json.dumps(result))
    one = comparison.compare(group_runs(find_runs([tmp_path / "1", tmp_path / "2"])[0]), None)
    assert "AER with one link per target word: oracle 0.045, diagonal 0.598." in comparison.note(one)
    heads, *_ = comparison.cells(one)
    assert "AER" in heads
    assert "AER, oracle" not in heads
    assert "test/aer_oracle mean" in comparison.as_csv(one)
    several = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    assert "AER with" not in comparison.note(several)


def test_other_test_sentences_are_not_compared(study: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "other", "dot", 1, 0.5)
    path = tmp_path / "other" / "translations.test.jsonl"
    path.write_text(path.read_text().replace("king", "prince"))
    found = comparison.compare(group_runs(find_runs([study, tmp_path])[0]), None)
    assert found.base is found.lines[0].group
    of = {line.group.varies["attention"]: comparison.p_of(line, found.base) for line in found.lines}
    assert (of["additive"], of["dot"]) == ("baseline", "–")
    assert float(of["multiplicative"]) > 0.05
    assert "AER" not in comparison.note(found)
    alone = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    assert (len(alone.lines), alone.base) == (1, None)
    assert "No p" in comparison.note(alone)


def change(path: Path, **values: Any) -> None:
    """Set values of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def recorded(fingerprint: str = "a" * 64, source: str = "b" * 64, torch: str = "2.13.0") -> dict[str, Any]:
    """Return what a run records of its data, its code and its machine."""
    return {
        "precision": "fp32",
        "commit": "c" * 40,
        "dirty": False,
        "source": source,
        "data": {"fingerprint": fingerprint},
        "components": {},
        "machine": {"device_name": "EPYC", "threads": 2, "torch": torch},
    }


def test_runs_of_other_test_sentences_or_data_share_no_line(tmp_path: Path) -> None:
    for seed in (1, 2, 3, 4):
        make_run(tmp_path / str(seed), "dot", seed, 0.5)
    path = tmp_path / "2" / "translations.test.jsonl"
    path.write_text(path.read_text().replace("king", "prince"))
    groups = group_runs(find_runs([tmp_path])[0])
    assert [[run.seed for run in group.runs] for group in groups] == [["1", "3", "4"], ["2"]]
    assert [*groups[0].varies] == ["test set"]
    assert groups[0].varies != groups[1].varies
    for seed, fingerprint in ((1, "a" * 64), (3, "d" * 64)):
        change(tmp_path / str(seed) / "run.json", **recorded(fingerprint))
    groups = group_runs(find_runs([tmp_path])[0], ["attention"])
    assert [(group.varies["data"], len(group.runs)) for group in groups] == [
        *(("aaaaaaa", 1), ("ddddddd", 1), ("unknown", 1), ("unknown", 1))
    ]
    # Runs whose data are not known share a line, with a warning that names them.
    change(tmp_path / "3" / "run.json", **recorded())
    (found, _) = group_runs(find_runs([tmp_path])[0])
    assert [run.seed for run in found.runs] == ["1", "3", "4"]
    (warning,) = [text for text in comparison.compare([found], None).warnings if "data" in text]
    assert str(tmp_path / "4") in warning
    assert str(tmp_path / "3") not in warning


def test_differing_code_precision_and_machine_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        make_run(tmp_path / str(seed), "dot", seed, 0.5)
        change(tmp_path / str(seed) / "run.json", **recorded())
    main([str(tmp_path)])
    assert "warning" not in capsys.readouterr().out
    other = recorded(source="e" * 64, torch="2.14.0") | {
        "test_precision": "bf16",
        "components": {"my_attention.py": "f" * 64},
    }
    change(tmp_path / "2" / "run.json", **other)
    main([str(tmp_path), "--csv", str(tmp_path / "t.csv"), "--html", str(tmp_path / "t.html")])
    said = capsys.readouterr().out
    shown = (tmp_path / "t.html").read_text()
    one, two = (tmp_path / "1", tmp_path / "2")
    for warning in (
        f"warning: code differs: ccccccc, source bbbbbbb in {one}; ccccccc, source eeeeeee in {two}",
        f"warning: own components differs: none in {one}; my_attention.py fffffff in {two}",
        f"warning: precision differs: fp32 in {one}; bf16 in {two}",
        f"warning: machine differs: EPYC, 2 threads, torch 2.13.0 in {one}; EPYC, 2 threads, torch 2.14.0 in {two}",
    ):
        assert warning in said
        assert warning in shown
    (row,) = csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text()))
    assert row["recorded precision"] == "fp32 | bf16"
    assert (row["recorded data"], row["runs"]) == ("aaaaaaa", "2")


def test_a_seed_that_counts_twice_is_warned_of(tmp_path: Path) -> None:
    for name in ("one", "other"):
        make_run(tmp_path / name, "dot", 1, 0.5)
    (warning,) = comparison.compare(group_runs(find_runs([tmp_path])[0]), None).warnings
    assert warning == f"warning: all runs: seed=1 counts 2 times: {tmp_path / 'one'}, {tmp_path / 'other'}"


def test_runs_of_an_earlier_version_and_runs_of_one_name(study: Path, tmp_path: Path) -> None:
    shutil.copytree(study / "none1", tmp_path / "none1")
    path = tmp_path / "none1" / "translations.test.jsonl"
    rows = read_json_lines(path)
    path.write_text(
        "".join(json.dumps({k: v for k, v in row.items() if k != "source_words"}) + "\n" for row in rows)
    )
    (study / "additive2" / "attention.test.jsonl").rename(tmp_path / "kept")
    groups = group_runs(find_runs([study, tmp_path])[0])
    text = page.page(comparison.compare(groups, None), "page")
    (tmp_path / "kept").rename(study / "additive2" / "attention.test.jsonl")
    data = json.loads(text[text.rindex('type="application/json">') + 24 :].split("</script>")[0])
    names = data["translations"]["runs"]
    assert len(set(names)) == len(names) == 10
    assert f"attention=none, seed 1 ({tmp_path / 'none1'})" in names
    (tmp_path / "none1" / "translations.test.jsonl").unlink()
    found = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    assert "not kept translations" in page.page(found, "page")


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
    said = capsys.readouterr()
    assert "9 runs" in said.out
    assert "1,234,567" in said.out
    assert "│ baseline │" in said.out
    assert f"left out: {study / 'dot1'}: failed" in said.err
    rows = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert [row["attention"] for row in rows][2] == "none"
    scores = [run.result["test/bleu"] for run in find_runs([study])[0] if run.settings["attention"] == "none"]
    assert float(rows[2]["test/bleu mean"]) == pytest.approx(sum(scores) / 3)
    assert (rows[2]["runs"], rows[2]["p"], rows[2]["num_parameters std"]) == ("3", "baseline", "0.0")
    latex = (tmp_path / "t.tex").read_text()
    assert latex.startswith("\\begin{tabular}{lrrrrrr}\n\\toprule\nattention & runs & test BLEU & chrF")
    assert latex.count("\\textbf{") == 1
    assert "$\\pm$" in latex
    with pytest.raises(SystemExit):
        main([str(study / "dot1")])
    assert capsys.readouterr().err.startswith("error: ")


def test_the_page_needs_nothing_else(study: Path) -> None:
    found = comparison.compare(group_runs(find_runs([study])[0]), None)
    text = page.page(found, "a < b")
    assert "<title>a &lt; b</title>" in text
    head = text[: text.index("<script>")] + text[text.rindex('<script id="data"') :]
    assert "http" not in head
    assert "src=" not in head
    data = json.loads(text[text.rindex('type="application/json">') + 24 :].split("</script>")[0])
    assert set(data["curves"]) == {"val/bleu", "val/loss_teacher_forced", "train/loss"}
    curves = data["curves"]["train/loss"]["data"]
    assert len(curves) == 9
    assert sum(curve["showlegend"] for curve in curves) == 3
    assert all(150 < len(curve["x"]) < 260 and curve["x"][-1] == 499 for curve in curves)
    assert len(data["translations"]["runs"]) == 9
    assert len(data["translations"]["hypotheses"][0]) == len(data["translations"]["sentences"]) == 60
    assert {len(names) for names in data["attention"].values()} == {6}  # none has none
    bars = data["lengths"]["data"][0]
    assert bars["x"] == ["≤10", ">10"]
    assert bars["error_y"]["array"] == [4.5, None]


CLICKS = """
<script>
const told = {};
const choose = (id, index) => { at(id).selectedIndex = index; at(id).onchange(); };
told.first = at("curves").data.length + " " + at("curves").layout.yaxis.title.text;
choose("measure", 2);
told.second = at("curves").layout.yaxis.title.text;
told.bars = at("lengths").data.length;
told.rows = at("translations").rows.length;
at("filter").value = "queen"; at("filter").oninput();
told.filtered = at("translations").rows.length;
told.all = [...at("translations").rows].slice(1).every((row) => row.textContent.includes("queen"));
choose("order", 1);
told.left = at("translations").rows[0].cells[2].textContent;
choose("left", 4);
told.other = at("translations").rows[0].cells[2].textContent;
told.heat = [at("heat0").layout.title.text, at("heat1").layout.title.text];
choose("map1", 4); choose("sentence", 1);
told.heat2 = at("heat1").layout.title.text;
told.cells = document.querySelectorAll("#heat0 .heatmaplayer image").length;
document.title = "TOLD " + JSON.stringify(told);
</script>
"""


@pytest.mark.browser
def test_the_page_in_a_browser(study: Path, tmp_path: Path, browser: str) -> None:
    found = comparison.compare(group_runs(find_runs([study])[0]), None)
    text = page.page(found, "a study").replace("</body>", f"{CLICKS}</body>")
    (tmp_path / "page.html").write_text(text)
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom")
    ended = subprocess.run(
        [browser, *options, f"file://{tmp_path}/page.html"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    title = ended.stdout.split("<title>TOLD ")[1].split("</title>")[0]
    told = json.loads(title.replace("&amp;", "&"))
    assert told["first"] == "9 validation BLEU"
    assert told["second"] == "training loss (nats a token)"
    assert (told["bars"], told["rows"]) == (3, 51)  # the head and the first 50
    assert told["all"] is True
    assert 1 < told["filtered"] < 51
    assert (told["left"], told["other"]) == ("attention=additive, seed 1", "attention=multiplicative, seed 2")
    assert told["heat"] == ["attention=additive, seed 1", "attention=multiplicative, seed 1"]
    assert told["heat2"] == "attention=multiplicative, seed 2"
    assert told["cells"] == 1
