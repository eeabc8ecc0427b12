"""A trained run scored again: the scores equal those of the run and of sacreBLEU's command line; other searches."""

import csv
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch
from demo_models import DATA
from programs import compare
from rewriting import rewrite

import seq2seq_lab
from seq2seq_lab import api, evaluate
from seq2seq_lab.config.run_folder import read_result
from seq2seq_lab.config.schema import Device
from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import read_json_lines
from seq2seq_lab.launching import evaluation
from seq2seq_lab.metrics.accuracy import ExactMatch
from seq2seq_lab.training.threads import restored_threads

EXAMPLES = Path(__file__).parents[1] / "examples"
SETTINGS = [
    *("dataset.train=400", "dataset.validation=10", "dataset.test=40", "dataset.test_compositional=12"),
    *(
        "dataset.max_depth=1",
        "model.embedding_size=16",
        "model.hidden_size=32",
        "model.encoder_hidden_size=16",
    ),
    *(
        "optimizer.lr=0.02",
        "schedule=constant",
        "trainer.max_epochs=4",
        "trainer.keep_checkpoints=2",
        "task.batch_size=16",
    ),
    *("task.samples=0", "logger=none", "tokenizer.min_frequency=6"),  # many words are unknown
    "trainer.precision=bf16",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> seq2seq_lab.LoadedTranslation:
    return seq2seq_lab.train(SETTINGS, folder=tmp_path_factory.mktemp("evaluated") / "run")


def scored(*arguments: str) -> dict[str, Any]:
    """Score a run and return what was written."""
    evaluate.main(arguments)
    folder = Path(arguments[0]) / "evaluations"
    newest = max(folder.iterdir(), key=lambda path: int(path.name))
    result: dict[str, Any] = json.loads((newest / "result.json").read_text("utf-8"))
    return result


@pytest.mark.slow
def test_several_processes_return_the_scores_of_one(
    run: seq2seq_lab.LoadedTranslation, tmp_path: Path
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for number, folder in enumerate(folders, start=1):
        evaluate.main(
            [str(run.folder), "task.eval_batch_size=8", f"--devices={number}", f"--output={folder}"]
        )
    # The tests draw fewer bootstrap samples in this process.
    one, two = (
        {
            name: value
            for name, value in read_result(folder).items()
            if name.startswith("test/") and isinstance(value, float) and not name.endswith("_confidence")
        }
        for folder in folders
    )
    assert two == pytest.approx(one, rel=1e-5)
    for name in ("translations.test.jsonl", "scored/test.hypotheses.txt"):
        assert (folders[0] / name).read_text("utf-8") == (folders[1] / name).read_text("utf-8")


@pytest.mark.slow
def test_each_process_has_a_gpu_of_its_own(
    run: seq2seq_lab.LoadedTranslation, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers: list[int] = []

    def chosen(device: Device, number: int = 0) -> torch.device:
        numbers.append(number)
        return torch.device("cpu")

    monkeypatch.setattr(api, "choose_device", chosen)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    for rank in ("0", "2", "3"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        seq2seq_lab.load(run.folder)
    assert numbers == [0, 2, 0]


def test_a_run_is_opened_with_its_number_of_threads(
    run: seq2seq_lab.LoadedTranslation, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(run.folder, tmp_path / "run"))
    record = json.loads((folder / "run.json").read_text("utf-8"))
    with restored_threads():
        for recorded, available, used in ((1, 3, 1), (3, 2, 2)):
            record["machine"]["threads"] = recorded
            rewrite(folder / "run.json", json.dumps(record))
            torch.set_num_threads(available)
            seq2seq_lab.load(folder, device="cpu")
            assert torch.get_num_threads() == used


def test_the_programs_that_open_a_run_keep_freed_memory(
    run: seq2seq_lab.LoadedTranslation, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[torch.device] = []
    monkeypatch.setattr("seq2seq_lab.runtime.device.keep_freed_memory", devices.append)
    options = evaluate.parser().parse_args([str(run.folder), "--device=cpu"])
    evaluate.open_run(options, [])
    assert devices == [torch.device("cpu")]


def test_evaluating_again_returns_the_scores_of_the_run(
    run: seq2seq_lab.LoadedTranslation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.result is not None
    validated, again = scored(str(run.folder), "--validation"), scored(str(run.folder))
    for result, start, precision, some in (
        (validated, "val/", "bf16", {"val/ter", "val/aer"}),
        (again, "test/", "fp32", {"test/ter", "test/bleu_confidence", "test/compositional/bleu"}),
    ):
        names = [name for name in run.result if name.startswith(start) and name != "val/seconds"]
        assert some <= {*names}
        assert {name: result[name] for name in names} == {name: run.result[name] for name in names}
        assert not any(key.startswith({"val/": "test/", "test/": "val/"}[start]) for key in result)
        assert (result["checkpoint"], result["precision"]) == (run.result["best_checkpoint"], precision)
    for result in (run.result, again):
        counts = result["provenance"]["data"]["counts"]
        assert 0 < counts["test/source_within_one_word"] <= 40
    assert again["provenance"]["data"] == run.result["provenance"]["data"]
    as_trained = scored(str(run.folder), "--precision", "bf16")
    assert as_trained["provenance"]["precision"] == "bf16"
    assert as_trained["aer_rows"] == run.result["aer_rows"]  # chosen on the validation split
    assert as_trained["test/loss_teacher_forced"] != run.result["test/loss_teacher_forced"]
    shown = capsys.readouterr().out
    assert f"{again['test/bleu']:.2f} ± {again['test/bleu_confidence']:.2f}" in shown
    assert again["test/ter_signature"] in shown


def sacrebleu(folder: Path, kind: str, *options: str) -> list[dict[str, Any]]:
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        f"test{kind}.references.txt",
        "-i",
        f"test{kind}.hypotheses.txt",
    ]
    ended = subprocess.run(
        [*command, *options, "--confidence", "-f", "json", "-w", "10"],
        cwd=folder / "scored",
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(ended.stdout)
    return said if isinstance(said, list) else [said]


def test_sacrebleu_finds_the_same_in_the_written_files(
    run: seq2seq_lab.LoadedTranslation, tmp_path: Path, with_full_reports: None
) -> None:
    folder = tmp_path / "evaluation"
    evaluate.main([str(run.folder), "--output", str(folder)])
    result = read_result(folder)
    assert "evaluated run" in (folder / "report.html").read_text("utf-8")
    bleu, chrf, ter = sacrebleu(folder, "", "-m", "bleu", "chrf", "ter")
    papers = sacrebleu(
        folder,
        ".lc.tok",
        "-m",
        "bleu",
        "chrf",
        "ter",
        "-tok",
        "none",
        "-lc",
        "--chrf-lowercase",
        "--force",
    )
    names = [f"{name}_lowercased_tokenised" for name in ("bleu", "chrf", "ter")]
    pairs = (("bleu", bleu), ("chrf", chrf), ("ter", ter), *zip(names, papers, strict=True))
    for name, found in pairs:
        assert round(result[f"test/{name}"], 10) == found["score"]
        assert round(result[f"test/{name}_confidence"], 10) == found["confidence_var"]
        signature = found["signature"].replace("bs:1000|seed:12345|", "")
        assert result[f"test/{name}_signature"].startswith(signature)


def test_pairs_of_one_source_are_scored_once_against_all_their_references(
    run: seq2seq_lab.LoadedTranslation, tmp_path: Path
) -> None:
    pairs = [
        ("the king sleeps.", "le roi dort."),
        ("the king sleeps.", "le souverain dort."),
        ("I sing.", "je chante."),
    ]
    (tmp_path / "own.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    own = ("dataset=parallel", f"dataset.test={tmp_path / 'own.tsv'}", "task.multi_reference=true")
    result = scored(str(run.folder), *own)
    assert result["test/bleu_signature"].startswith("nrefs:var|")
    assert sum(row["count"] for row in result["test/bleu_by_length"]) == 2
    newest = max((run.folder / "evaluations").iterdir(), key=lambda path: int(path.name))
    for name in ("test", "test.lc.tok"):
        written = [
            (newest / "scored" / f"{name}.{side}.txt").read_text("utf-8").split("\n")
            for side in ("hypotheses", "references", "references.2")
        ]
        assert [len(lines) for lines in written] == [3, 3, 3]
        assert [lines[0].split()[1] for lines in written[1:]] == ["roi", "souverain"]
        assert written[1][1] == written[2][1]


def test_another_search_checkpoint_and_test_set(run: seq2seq_lab.LoadedTranslation) -> None:
    assert run.result is not None
    evaluations = run.folder / "evaluations"
    before = len(list(evaluations.glob("*")))
    beam = scored(str(run.folder), "search=beam", "search.size=3", "search.length_penalty=0")
    assert (evaluations / str(before + 1)).is_dir()
    assert (beam["search"]["size"], beam["search"]["length_penalty"]) == (3, 0)
    assert "val/bleu" not in beam
    one = scored(str(run.folder), "search=beam", "search.size=1")
    assert one["test/bleu"] == run.result["test/bleu"]
    (other, *_) = sorted(path.name for path in (run.folder / "checkpoints").iterdir())
    assert scored(str(run.folder), "--checkpoint", other)["checkpoint"] == other
    fewer = scored(str(run.folder), "dataset.test=5", "dataset.test_compositional=0")
    assert sum(row["count"] for row in fewer["test/bleu_by_length"]) == 5
    assert "test/compositional/bleu" not in fewer


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["seed=3"],
            "seed=3",
        ),
        (["search=beem"], "Did you mean 'beam'?"),
        (["search=beam", "search.sise=3"], "search.sise"),
        (["~search"], "~search"),
        (["--checkpoint", "step_1"], "step_1 does not exist"),
        (["task.eval_batch_size=-1"], "task.eval_batch_size=-1"),
        (["task.length_bounds=[6,3]"], "task.length_bounds"),
        (["search=beam", "search._target_=os.system"], "os.system"),
        (["dataset._target_=os.system"], "os.system"),
    ],
)
def test_what_cannot_be_is_refused(
    run: seq2seq_lab.LoadedTranslation, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as end:
        evaluate.main([str(run.folder), *arguments])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_the_output_folder_is_a_new_one(
    run: seq2seq_lab.LoadedTranslation, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for there in (run.folder, tmp_path):
        with pytest.raises(SystemExit):
            evaluate.main([str(run.folder), "--output", str(there)])
        assert f"--output={there} already exists" in capsys.readouterr().err
    evaluate.main([str(run.folder), "search=beam", "--output", str(tmp_path / "a" / "b")])
    assert (tmp_path / "a" / "b" / "result.json").is_file()


def test_a_search_is_chosen_on_the_validation_split(
    run: seq2seq_lab.LoadedTranslation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(tmp_path / name) for name in ("beam", "wide")]
    for folder, size in zip(folders, (2, 4), strict=True):
        changes = ["search=beam", f"search.size={size}"]
        evaluate.main([str(run.folder), "--validation", *changes, "--output", folder])
    shown = capsys.readouterr().out
    assert re.search(r"± 95% interval +┃ +val ", shown)
    assert "BLEU signature" in shown
    assert " on the validation split" in (tmp_path / "beam" / "report.html").read_text("utf-8")
    assert (tmp_path / "beam" / "bleu_by_length.png").is_file()
    compare.main(
        [
            str(run.folder),
            *folders,
            "--validation",
            "--by=search,search.size",
            "--csv",
            f"{tmp_path / 'a.csv'}",
        ]
    )
    rows = [*csv.DictReader((tmp_path / "a.csv").read_text("utf-8").splitlines())]
    found = {row["search"]: row for row in rows if row["search.size"] != "4"}
    beam = json.loads((tmp_path / "beam" / "result.json").read_text("utf-8"))
    assert run.result is not None
    for search, result in (("beam", beam), ("greedy", run.result)):
        assert float(found[search]["val/bleu mean"]) == pytest.approx(result["val/bleu"])
        assert found[search]["recorded precision"] == "bf16"
    with pytest.raises(SystemExit):
        compare.main(folders)
    assert "scored on the validation split only; --validation compares such scores" in capsys.readouterr().err


def test_a_run_of_another_format_is_refused_before_its_settings_are_read(
    run: seq2seq_lab.LoadedTranslation, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    shutil.copytree(run.folder, old)
    record = json.loads((old / "run.json").read_text("utf-8"))
    del record["format"]
    rewrite(old / "run.json", json.dumps(record))
    rewrite(old / "config.yaml", "trainer: {micro_batch_size: 5}")
    with pytest.raises(UserError, match=r"format=None of run\.json.*0\.1"):
        seq2seq_lab.load(old)


def test_a_folder_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        evaluate.main([str(tmp_path)])
    assert "no config.yaml" in capsys.readouterr().err


def test_an_evaluation_in_place_of_a_run_is_refused_with_the_name_of_its_run(
    run: seq2seq_lab.LoadedTranslation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "evaluation"
    evaluate.main([str(run.folder), "--output", str(folder)])
    before = sorted(path.name for path in folder.iterdir())
    said = f"{folder} is an evaluation of {run.folder}."
    for word in (f"resume={folder}", f"init_from={folder}"):
        assert command_line.run(word) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(UserError, match=re.escape(said)):
        seq2seq_lab.load(folder)
    assert sorted(path.name for path in folder.iterdir() if path.name != ".lock") == before


def test_the_mean_of_checkpoints(
    run: seq2seq_lab.LoadedTranslation, capsys: pytest.CaptureFixture[str]
) -> None:
    names = sorted(path.name for path in (run.folder / "checkpoints").iterdir())[-2:]
    one, other, mean = (
        seq2seq_lab.load(run.folder, checkpoint=which).model.state_dict() for which in (*names, "last:2")
    )
    for name, weight in mean.items():
        torch.testing.assert_close(weight, (one[name] + other[name]) / 2)
    assert scored(str(run.folder), "--checkpoint", ",".join(names))["checkpoint"] == ",".join(names)
    with pytest.raises(SystemExit):
        evaluate.main([str(run.folder), "--checkpoint", "last:9"])
    assert "checkpoints. Values: last:1 to last:" in capsys.readouterr().err


def test_unknown_words_replaced_are_scored_apart(run: seq2seq_lab.LoadedTranslation, tmp_path: Path) -> None:
    plain = scored(str(run.folder))
    folder = tmp_path / "replaced"
    evaluate.main([str(run.folder), "--replace-unknown", "--output", str(folder)])
    again = json.loads((folder / "result.json").read_text("utf-8"))
    assert {name: again[name] for name in plain if name.startswith("test/")} == {
        name: value for name, value in plain.items() if name.startswith("test/")
    }
    for name in (
        "bleu",
        "chrf",
        "ter",
        *(f"{kind}_lowercased_tokenised" for kind in ("bleu", "chrf", "ter")),
    ):
        assert again[f"test/{name}_unknown_replaced_signature"] == again[f"test/{name}_signature"]
        assert name.startswith("ter") or again[f"test/{name}_unknown_replaced"] != again[f"test/{name}"]
    lines = folder / "scored" / "test.hypotheses.txt"
    assert UNKNOWN in lines.read_text("utf-8")
    replaced = lines.with_name("test.unknown_replaced.hypotheses.txt").read_text("utf-8")
    assert UNKNOWN not in replaced
    sources = [row["source"] for row in read_json_lines(folder / "translations.test.jsonl")]
    opened = seq2seq_lab.load(run.folder, precision="auto")
    found = opened.nbest(sources, with_attention=False, replace_unknown=True)
    assert [one.text for one, *_ in found] == replaced.splitlines()
    assert all(one.attention is None for one, *_ in found)


SIZES = ("dataset.train=40", "dataset.validation=10", "dataset.test=20", "model.embedding_size=16")
CHANNELS = ("encoder.channels=[4,6]", "encoder.strides=[2,2]")
TASKS = {
    "classification": ("experiment=names", "dataset.names=200", "model.encoder_hidden_size=16"),
    "tagging": ("experiment=tagging", "dataset.sentences=100", "model.encoder_hidden_size=16"),
    "masked_language_model": ("experiment=masked_language_model", "dataset.sentences=100"),
    "span": ("experiment=span", "dataset.questions=100", "model.encoder_hidden_size=16"),
    "language_model": ("experiment=language_model", *SIZES, "dataset.max_depth=1", "model.hidden_size=16"),
    "captions": ("experiment=captions", *SIZES, "model.hidden_size=16", *CHANNELS),
    "dialogue": ("experiment=dialogue", *SIZES, "model.hidden_size=16"),
    "a user's own": ("task=repeats", "task.train=40", "task.validation=10", "task.test=20"),
}


@pytest.mark.parametrize("settings", TASKS.values(), ids=TASKS)
def test_runs_of_every_task_are_scored_again(settings: tuple[str, ...], tmp_path: Path) -> None:
    small = ("logger=none", "trainer.max_steps=2", "trainer.validate_every=1", "trainer.precision=fp32")
    own = EXAMPLES / "own_task" if "task=repeats" in settings else None
    seq2seq_lab.train([*settings, *small], folder=tmp_path / "run", config_dir=own)
    result = read_result(tmp_path / "run")
    again = scored(str(tmp_path / "run"), *([] if own is None else [f"--config-dir={own}"]))
    names = {name for name in result if name.startswith(("test/", "baseline/"))}
    assert names == {name for name in again if name.startswith(("test/", "baseline/"))}
    for name in names:
        if isinstance(result[name], float):
            assert again[name] == pytest.approx(result[name], rel=1e-6, nan_ok=True), name
        elif not name.endswith("worst_outputs"):
            assert again[name] == result[name], name
    assert result["test/examples"] == again["test/examples"]


def test_a_metric_that_is_not_finite_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    members = {
        "name": "wrong",
        "label": "wrong",
        "value": lambda self, totals_K: math.nan,
        "__module__": "own",
    }
    wrong = type("Wrong", (ExactMatch,), members)()
    monkeypatch.setattr(evaluation, "build_metrics", lambda config: [wrong])
    seq2seq_lab.load("demo", changes=DATA).evaluate(output=tmp_path / "scored")
    assert caplog.text.count("The metric wrong is not finite (nan)") == 1


def test_an_option_that_the_task_does_not_have_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seq2seq_lab.train(
        [*TASKS["classification"], "logger=none", "trainer.max_steps=1"], folder=tmp_path / "run"
    )
    with pytest.raises(SystemExit):
        evaluate.main([str(tmp_path / "run"), "--replace-unknown"])
    assert "--replace-unknown: ClassificationTask translates nothing" in capsys.readouterr().err
    with pytest.raises(UserError, match="ClassificationTask does not use this group"):
        seq2seq_lab.load(tmp_path / "run", changes=["search=beam"])


def test_test_sets_of_ones_own_need_no_training_pairs(
    run: seq2seq_lab.LoadedTranslation,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert run.result is not None
    first, *_ = read_json_lines(run.folder / "translations.test.jsonl")
    (tmp_path / "own.tsv").write_text(f"{first['source']}\t{first['reference']}\n" * 2)
    own = ("dataset=parallel", f"dataset.test={tmp_path / 'own.tsv'}")
    result = scored(str(run.folder), *own)
    assert sum(row["count"] for row in result["test/bleu_by_length"]) == 2
    assert result["test/bleu_lowercased_tokenised_signature"].endswith("-fr")
    assert "vocabulary" not in caplog.text  # labels that name no language
    scored(str(run.folder), *own, "dataset.source=de", "dataset.target=fr")
    assert f"The vocabulary of {run.folder} is for en→fr, this data set is de→fr." in caplog.text
    with pytest.raises(SystemExit):
        evaluate.main([str(run.folder), "--validation", *own])
    assert "--validation: this data set has no validation split" in capsys.readouterr().err


def test_the_metrics_of_every_test_set_are_declared(tmp_path: Path) -> None:
    sizes = ("model=transformer", "model.num_heads=2", "model.num_layers=1", "trainer.fast_dev_run=true")
    run = seq2seq_lab.train([*SETTINGS, *sizes], folder=tmp_path / "run")
    (tmp_path / "own.tsv").write_text("the king sleeps\tle roi dort\n")
    (tmp_path / "links").write_text("0-0 1-1 2-2\n")
    files = f"dataset.test={{a:{tmp_path / 'own.tsv'},b:{tmp_path / 'own.tsv'}}}"
    result = scored(
        str(run.folder), "dataset=parallel", files, f"dataset.alignments={{a:{tmp_path / 'links'}}}"
    )
    assert "test/aer_layer_1_head_2" in result  # of the first test set
    assert "test/b/aer_layer_1_head_2" not in result
    assert "aer_layer_1_head_2" in result["metrics"]["metrics"]


def test_ensembles(
    run: seq2seq_lab.LoadedTranslation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = scored(str(run.folder))
    twice = scored(str(run.folder), "--ensemble", str(run.folder))
    assert twice["test/bleu"] == alone["test/bleu"]
    assert twice["test/loss_teacher_forced"] == pytest.approx(alone["test/loss_teacher_forced"], rel=1e-5)
    assert twice["checkpoint"].count("step_") == 2
    stranger = seq2seq_lab.train(
        [
            *(line for line in SETTINGS if not line.startswith("tokenizer.")),
            *("trainer.max_epochs=1", "trainer.fast_dev_run=true", "tokenizer=char", "model=vanilla"),
        ],
        folder=tmp_path / "stranger",
    )
    with pytest.raises(SystemExit):
        evaluate.main([str(stranger.folder), "--replace-unknown"])
    assert "replace_unknown (--replace-unknown)" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        evaluate.main([str(run.folder), "--ensemble", str(stranger.folder)])
    error = capsys.readouterr().err
    assert str(stranger.folder) in error
    assert str(run.folder) in error


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = seq2seq_lab.load("demo")
    monkeypatch.setattr(type(run.task), "evaluator", lambda *given, **named: pytest.fail("it is scored"))
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        run.evaluate(output=tmp_path / "file" / "scores")
