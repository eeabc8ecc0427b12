"""Classification: a run from training to predictions, resumed, on two ranks, compared."""

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
import torch
from attribution_checks import check_attributions, questions_of
from extras import needs_plotly
from finished_runs import losses_of, result_of
from forked_ranks import forked_ranks
from omegaconf import OmegaConf
from programs import compare
from rewriting import rewrite
from torch.nn import functional
from tracking.offline_record import read_offline_run

import seq2seq_lab
from seq2seq_lab import api, predict
from seq2seq_lab.config.job_hash import compute_job_hash
from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.classification import METRICS
from seq2seq_lab.metrics.registry import BUILT_IN
from seq2seq_lab.reporting import comparison, page
from seq2seq_lab.reporting.runs import find_runs, group_runs
from seq2seq_lab.reporting.score_tables import score_tables
from seq2seq_lab.runtime import shades
from seq2seq_lab.runtime.shades import ShadedText
from seq2seq_lab.tasks.classification.evaluation import shading
from seq2seq_lab.tasks.classification.report import shaded_page
from seq2seq_lab.tasks.classification.task import balanced_weights, weighted_cross_entropy
from seq2seq_lab.tasks.text import Vocabulary

MACHINE = ("trainer.device=cpu", "trainer.precision=fp32", "trainer.log_every_steps=1", "task.samples=1")
LINE = (
    *("experiment=names", "dataset.names=240", "model.encoder_hidden_size=8", "model.embedding_size=8"),
    *("task.batch_size=48", "trainer.max_epochs=2", "optimizer.lr=0.02", *MACHINE),
)
SENTIMENT = (
    *("experiment=sentiment", "dataset.reviews=120", "model.encoder_hidden_size=6", "model.embedding_size=6"),
    *("task.batch_size=32", "trainer.max_epochs=1", *MACHINE),
)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a W&B record."""
    folder = tmp_path_factory.mktemp("classification") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_DIR", str(folder))
        assert command_line.run(*LINE, "logger=wandb", f"hydra.run.dir={folder}") == 0
    return folder


@pytest.fixture(scope="module")
def sentiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose data set knows the deciding words."""
    folder = tmp_path_factory.mktemp("sentiment") / "run"
    assert command_line.run(*SENTIMENT, "logger=none", f"hydra.run.dir={folder}") == 0
    return folder


def test_it_trains_and_writes_its_files(run: Path) -> None:
    result, losses = result_of(run), losses_of(run)
    assert (result["unit"], result["metrics"]["primary"]) == ("texts", "accuracy")
    assert losses[-1] < losses[0]
    assert "test/word_auc" not in result  # the data set does not know which letters decide
    rows = lines_of(run / "predictions.test.jsonl")
    correct = [row["label"] == row["prediction"] for row in rows]
    assert result["test/accuracy"] == pytest.approx(np.mean(correct))
    loss = -np.mean([np.log(max(row["probability_of_label"], 1e-4)) for row in rows])
    assert result["test/loss_classification"] == pytest.approx(loss, rel=0.01)
    assert result["test/loss_penalized"] == result["test/loss_classification"]  # no penalty
    matrix, *texts = lines_of(run / "weights.test.jsonl")
    assert np.array(matrix["weights"]).shape == (8, 8)
    assert {row["title"] for row in texts} <= {row["text"] for row in rows}
    for name in ("confusion.test.png", "confusion.test.pdf", "weights.test.png", "weights.test.html"):
        assert (run / name).is_file()
    by_class = {row["group"]: row["count"] for row in result["test/accuracy_by_class"]}
    assert sum(by_class.values()) == len(rows)


def test_the_table_of_classes_has_the_worst_first(run: Path) -> None:
    result = result_of(run)
    (table,) = [
        one for one in score_tables(result) if one.title == "accuracy by true class (number of examples)"
    ]
    accuracy = {row["group"]: row["value"] for row in result["test/accuracy_by_class"]}
    assert [accuracy[row[0]] for row in table.rows] == sorted(accuracy.values())
    assert len(table.rows) == 8


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names of two languages of different sizes, with duplicates."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "Dutch.txt").write_text("\n".join(f"{a}{b}ers" for a in "ABCDE" for b in "abcdef"), "utf-8")
    czech = [f"{a}{b}vak" for a in "ABCDEFGHIJ" for b in "abcdefghij"]
    (folder / "Czech.txt").write_text("\n".join([*czech, *czech[:7]]), "utf-8")
    return folder


def test_balanced_weights_and_dropped_duplicates(files: Path, tmp_path: Path) -> None:
    settings = (*(word for word in LINE if not word.startswith("dataset.names")), f"dataset.path={files}")
    folders = [tmp_path / name for name in ("none", "balanced")]
    for folder in folders:
        weights = f"task.class_weights={folder.name}"
        assert command_line.run(*settings, weights, "logger=none", f"hydra.run.dir={folder}") == 0
    assert losses_of(folders[0]) != losses_of(folders[1])
    counts = json.loads((folders[0] / "run.json").read_text("utf-8"))["data"]["counts"]
    assert counts == {"dropped_duplicates": 7, "dropped_duplicates/Czech": 7, "names_of_several_languages": 0}
    log = (folders[0] / "run.log").read_text("utf-8")
    row = next(line for line in log.splitlines() if line.startswith("│ Czech"))
    assert [cell.strip() for cell in row.split("│")[2:6]] == ["82", "9", "9", "7"]
    assert "Counted in the corpus: 7 dropped duplicates." in log


def test_the_balanced_loss_is_that_of_torch_and_of_a_loop() -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.tensor([0, 0, 0, 0, 0, 2, 2, 1])
    logits_BC = torch.randn(8, 4, generator=generator)
    weight_C = balanced_weights(labels, 4)
    assert weight_C.tolist() == pytest.approx([8 / (3 * 5), 8 / (3 * 1), 8 / (3 * 2), 0])
    weight_B = weight_C[labels]
    assert weight_B.mean().item() == pytest.approx(1)
    ours = weighted_cross_entropy(logits_BC, labels, weight_B, 0.0)
    torch_sum = functional.cross_entropy(logits_BC, labels, weight=weight_C, reduction="sum")
    torch_mean = functional.cross_entropy(logits_BC, labels, weight=weight_C)
    assert ours.item() == pytest.approx(torch_sum.item(), rel=1e-6)
    assert ours.item() / 8 == pytest.approx(torch_mean.item(), rel=1e-6)  # the loss per text
    total = 0.0
    for row_C, label, weight in zip(logits_BC.double(), labels, weight_B, strict=True):
        log_probs = row_C - row_C.exp().sum().log()
        total += float(weight * (0.9 * -log_probs[label] + 0.1 * -log_probs.mean()))
    smoothed = weighted_cross_entropy(logits_BC, labels, weight_B, 0.1)
    assert smoothed.item() == pytest.approx(total, rel=1e-5)


def test_a_run_from_before_class_weights_opens_and_its_study_continues(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    config = (folder / "config.yaml").read_text("utf-8")
    assert "  class_weights: none\n" in config
    rewrite(folder / "config.yaml", config.replace("  class_weights: none\n", ""))
    assert api.load(folder).predict(["Alu"])
    (found,) = find_runs([folder])[0]
    assert found.settings["task.class_weights"] == "none"
    before: Any = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    after: Any = OmegaConf.to_container(OmegaConf.create(config))
    assert compute_job_hash(before) == compute_job_hash(after)
    balanced = after | {"task": {**after["task"], "class_weights": "balanced"}}
    assert compute_job_hash(before) != compute_job_hash(balanced)


def test_the_record_has_its_metrics_tables_and_pictures(run: Path) -> None:
    record, result = read_offline_run(run), result_of(run)
    assert record.summary["test/accuracy"] == pytest.approx(result["test/accuracy"])
    assert record.config["pooling"] == "last"
    files = " ".join(record.files)
    assert "confusion" in files
    assert "weights" in files


def test_a_killed_run_resumes_with_identical_losses(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command_line.run_until(len(losses_of(run)) - 2, *LINE, "logger=none", f"hydra.run.dir={folder}")
    assert command_line.run(f"resume={folder}") == 0
    assert losses_of(folder) == losses_of(run)
    assert result_of(folder)["test/accuracy"] == result_of(run)["test/accuracy"]


@needs_plotly
@pytest.mark.slow  # starts two ranks
def test_two_ranks_compute_what_one_process_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    short = (
        *LINE,
        "logger=none",
        "trainer.max_epochs=1",
        "study.name=poolings",
        "pooling=last,attention",
        "-m",
    )
    with forked_ranks():
        assert command_line.run(*short, "trainer.devices=2") == 0
    assert command_line.run(*short, "trainer.micro_batches=2", "study.name=alone") == 0
    by_pooling = [
        {result_of(path.parent)["num_parameters"]: path.parent for path in Path(f"sweeps/{name}").glob("*/result.json")}
        for name in ("poolings", "alone")
    ]  # fmt: skip
    assert len(by_pooling[0]) == 2
    for size, folder in by_pooling[0].items():
        other = by_pooling[1][size]
        assert result_of(folder)["ranks"] == 2
        assert losses_of(folder) == losses_of(other)
        for name in ("accuracy", "macro_f1", "ece", "loss_classification"):
            assert result_of(folder)[f"test/{name}"] == pytest.approx(result_of(other)[f"test/{name}"])
    capsys.readouterr()
    compare.main(["sweeps/poolings", "--html", "page.html"])
    assert "pooling" in capsys.readouterr().out
    assert Path("page.html").stat().st_size > 1_000_000
    groups = group_runs(find_runs([Path("sweeps/poolings")])[0])
    (first, *_) = page.page_data(comparison.compare(groups, None))["attention"]
    assert first["title"].startswith("confusion matrix")


def test_the_weights_are_compared_with_the_deciding_words(sentiment: Path) -> None:
    result = result_of(sentiment)
    for name in ("word_auc", "word_precision", "word_recall"):
        assert 0 <= result[f"test/{name}"] <= 1
    assert result["test/loss_penalized"] > result["test/loss_classification"]
    shaded = (sentiment / "weights.test.html").read_text("utf-8")
    assert (
        shaded.count("text-decoration: underline") >= shaded.count("<p ") - 1
    )  # each review has a deciding word


def test_a_shade_is_the_same_gate_in_every_text(sentiment: Path, run: Path) -> None:
    texts = ["the script is witty", "the acting is not dull ."]
    for one in seq2seq_lab.load(sentiment).predict(texts):
        assert 0 < one.weights.max() < 1
        assert one.shades()[1] == shades.shade_words(one.tokens, one.weights.tolist())[1]
    assert "gate of the word" in (sentiment / "weights.test.html").read_text("utf-8")
    assert "gate of the word: · from 0, ░ from 0.05" in (sentiment / "run.log").read_text("utf-8")
    for weights in ([0.02, 0.01], [0.6, 0.3]):  # of attention: their sum is 1, so they depend on the length
        assert shading(np.array(weights), False)[0].tolist() == [1.0, 0.5]
    assert "weight relative to the greatest one" in (run / "weights.test.html").read_text("utf-8")


def test_predict_in_python(run: Path) -> None:
    loaded = api.load(run)
    recorded = lines_of(run / "predictions.test.jsonl")
    found = loaded.predict([row["text"] for row in recorded])
    assert [one.text for one in found] == [row["prediction"] for row in recorded]
    for one, row in zip(found, recorded, strict=True):
        assert one.probabilities[one.text] == pytest.approx(row["probability"], abs=1e-3)
        assert sum(one.probabilities.values()) == pytest.approx(1)
        assert list(one.probabilities.values()) == sorted(one.probabilities.values(), reverse=True)
        assert "".join(one.tokens).replace(UNKNOWN, "") == one.source
        assert one.weights.sum() == pytest.approx(1)
    (odd,) = loaded.predict(["al字字u字"])
    assert odd.unknown_words == ["字字", "字"]
    assert odd.tokens == ["a", "l", "字", "字⁇", "u", "字⁇"]
    assert "字⁇" in odd.shades()[0]
    assert loaded.predict([]) == []
    with pytest.raises(UserError, match="line 2"):
        loaded.predict(["Alu", ""])
    with pytest.raises(UserError, match="list of texts"):
        loaded.predict("Alu")


def test_the_program_predicts_lines(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Kovaski\nŽák\n".encode())))
    predict.main([str(run), "--device", "cpu", "--weights"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    label, probability, text = lines[0].split("\t")
    assert label in api.load(run).predict(["x"])[0].probabilities
    assert 0 < float(probability) <= 1
    assert (text, lines[1]) == ("Kovaski", "K o v a s k i")
    assert "█" in lines[2]


@pytest.mark.parametrize("bad", [b"", b"\xff", b"K" * 1001])
def test_the_lines_before_a_bad_one_are_predicted(
    bad: bytes, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = b"Kovaski\nAlu\n" + bad + b"\nAlu\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(SystemExit):
        predict.main([str(run), "--device", "cpu"])
    said = capsys.readouterr()
    assert [line.split("\t")[2] for line in said.out.splitlines()] == ["Kovaski", "Alu"]
    assert "line 3" in said.err


def test_all_classes_are_an_nbest_list(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Kovaski\n")))
    predict.main([str(run), "--device", "cpu", "--nbest", "--attention", str(tmp_path / "a.png")])
    rows = [line.split(" ||| ") for line in capsys.readouterr().out.splitlines()]
    probabilities = api.load(run).predict(["Kovaski"])[0].probabilities
    assert [label for _, label, _ in rows] == [*probabilities]
    (found,) = api.load(run).nbest(["Kovaski"], n=2)
    assert [one.text for one in found] == [*probabilities][:2]
    assert sum(float(value) for *_, value in rows) == pytest.approx(1, abs=1e-3)
    assert (tmp_path / "a.png").is_file()


def test_an_option_of_another_task_is_refused_by_name(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        predict.main([str(run), "--count", "2"])
    assert "--count: runs of ClassificationTask" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("decoder=luong", "decoder="),
        ("pooling=null", "pooling"),
        ("task.r_drop=5.0", "task.r_drop"),
        ("model.share_layers=true", "model.share_layers=true"),
        ("model.tied_embeddings=target", "model.tied_embeddings=target"),
        ("pooling=attention attention=none", "pooling=attention"),
        ("pooling=last attention=additive", "pooling=last"),
        ("dataset=grammar", "task=classification"),
        ("tokenizer=bpe_dropout", "tokenizer.dropout"),
        ("metric=wer", "metric wer needs outputs with 'scored'"),
    ],
)
def test_what_does_not_fit_is_refused(setting: str, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = LINE if "dataset" not in setting else (LINE[0], *LINE[2:])
    assert command_line.run(*sizes, "logger=none", *setting.split()) == 2
    assert key in capsys.readouterr().err


def test_labels_that_are_almost_all_different_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"the word{n}\t{n}\n" for n in range(60))
    for name in ("train", "validation", "test"):
        (tmp_path / f"{name}.tsv").write_text(f"text\tid\n{rows}", "utf-8")
    files = [f"dataset.{name}={tmp_path / name}.tsv" for name in ("train", "validation", "test")]
    line = ["task=classification", "dataset=labelled", *files, "dataset.columns=[text,id]", "logger=none"]
    assert command_line.run(*line, "trainer.device=cpu") == 2
    error = capsys.readouterr().err
    assert "60 different labels in 60 texts" in error
    assert "dataset.columns" in error


def test_init_from_keeps_the_vocabulary(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    given = (*LINE, "logger=none", "trainer.max_epochs=1", f"init_from={run}", f"hydra.run.dir={folder}")
    assert command_line.run(*given) == 0
    assert losses_of(folder)[0] < losses_of(run)[0]


def test_texts_in_another_language_than_the_vocabulary_give_a_warning(
    sentiment: Path, tmp_path: Path
) -> None:
    given = ("task=classification", "dataset=names", "dataset.names=200", "logger=none", *MACHINE)
    parts = (f"init_from={sentiment}", "init_part=[source_embedding,encoder]", "trainer.max_steps=1")
    assert command_line.run(*given, *parts, f"hydra.run.dir={tmp_path / 'run'}") == 0
    warning = "100% of the tokens of the training texts are not in the vocabulary"
    assert warning in (tmp_path / "run" / "run.log").read_text("utf-8")
    assert "are not in the vocabulary" not in (sentiment / "run.log").read_text("utf-8")


def test_a_vocabulary_without_classes_is_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "tokenizer", tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "classes.json").unlink()
    with pytest.raises(UserError, match=r"classes\.json"):
        Vocabulary.load(tmp_path / "tokenizer", "source", with_classes=True)


def test_an_unknown_label_is_named_with_some_of_many_classes(run: Path) -> None:
    tokenizer = Vocabulary.load(run / "tokenizer", "source", with_classes=True).tokenizer
    vocabulary = Vocabulary(tokenizer, "source", [f"class{i}" for i in range(1_020)])
    with pytest.raises(UserError, match=r"label='x ' of the split val .*, 'class19' and 1,000 more\."):
        vocabulary.class_indices(["class3", "x "], "val")


def test_the_comparison_computes_every_metric() -> None:
    assert {metric.name for metric in METRICS} <= BUILT_IN.keys()


def test_the_page_of_shaded_texts_has_their_directions() -> None:
    texts = [ShadedText(words, [1.0] * 3, "class", []) for words in (["זה", "ספר", "a"], ["a", "b", "זה"])]
    page = shaded_page(texts, "gate")
    assert page.index('<p dir="rtl">') < page.index("זה") < page.index('<p dir="ltr">')
    assert page.count("<bdi>class</bdi>") == 2


def test_attributions_explain_the_class(sentiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {
        *("grad_x_input", "grad_norm", "integrated_gradients", "integrated_gradients_unknown"),
        *("smooth_grad", "occlusion", "occlusion_unknown"),
    }
    (first, *_) = questions_of(sentiment)
    if "attention" in first.has:
        expected |= {"attention", "attention_norm"}
    (one, _) = check_attributions(sentiment, expected, capsys)
    assert one.target_names[0] in seq2seq_lab.load(sentiment).task.vocabulary.classes
    assert " ".join(one.source_names).split() == one.line.replace(".", " .").split()


def test_its_trace_has_one_row(sentiment: Path, run: Path) -> None:
    for folder in (sentiment, run):
        loaded = api.load(folder, device="cpu")
        (best,) = loaded.predict(["a good film"])
        traced = loaded.trace("a good film")
        json.dumps(traced.as_json(), allow_nan=False)
        assert [(one.text, one.score) for one in traced.outputs] == [*best.probabilities.items()]
        assert traced.best.attention is not None
        assert traced.best.attention.tolist() == [best.weights.tolist()]
        assert traced.source.column_names == best.tokens
        assert [one.text for one in traced.steps[0].top] == [*best.probabilities][:10]
        assert (traced.no_attention is None) == best.attends
        assert (traced.search, traced.tree) == (None, [])
        assert loaded.attribute("a good film", methods=["grad_norm"]).tokens == [best.text]
    with pytest.raises(UserError, match=r"no search.*Omit prefix\."):
        loaded.trace("a good film", "good", search=[])
    with pytest.raises(UserError, match=r"no search.*Omit search\."):
        loaded.trace("a good film", (), search=["search=beam"])
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert loaded.trace(decomposed).as_json() == loaded.trace(composed).as_json()
    assert loaded.question(decomposed).line == composed
    assert not {"sos", "eos"} & set(loaded.trace("a film").best.margins)
