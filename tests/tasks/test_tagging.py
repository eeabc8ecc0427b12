"""Tagging: a run from training to predictions, resumed, on two ranks, and the labels of subwords."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import command_line
import numpy as np
import pytest
import torch
from finished_runs import check_ranks, check_resumed, losses_of, result_of, rows_of
from torch.nn import functional

from seq2seq_lab import api, predict
from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.data.labelled import LabelledText
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenizers import CharTokenizer, WordTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.tasks.base import StepInfo
from seq2seq_lab.tasks.labelled import warn_of_leaks
from seq2seq_lab.tasks.parts import build_task
from seq2seq_lab.tasks.tagging.data import IGNORED, TaggedBatches, TaggedTokens, TrainingWords, first_tokens

SIZES = (
    "dataset.sentences=120",
    "dataset.max_depth=1",
    "model.encoder_hidden_size=8",
    "model.embedding_size=8",
)
LINE = (
    *("experiment=tagging", *SIZES, "trainer.max_epochs=2", "task.batch_size=8", "optimizer.lr=0.02", "logger=none"),
    *("trainer.device=cpu", "trainer.precision=fp32", "trainer.log_every_steps=1", "task.samples=1"),
)  # fmt: skip
ENTITIES = """Peter B-PER
lives O
in O
New B-LOC
York I-LOC

Mary B-PER
sleeps O

"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagging") / "run"
    assert command_line.run(*LINE, f"hydra.run.dir={folder}") == 0
    return folder


def test_it_trains_and_writes_its_files(run: Path) -> None:
    result, losses = result_of(run), losses_of(run)
    assert (result["unit"], result["metrics"]["primary"]) == ("words", "token_accuracy")
    assert losses[-1] < losses[0] - 0.5
    right = [
        found == tag
        for row in rows_of(run)
        for found, tag in zip(row["prediction"].split(), row["tags"].split(), strict=True)
    ]
    assert result["test/token_accuracy"] == pytest.approx(np.mean(right))
    assert "test/entity_f1" not in result
    for name in ("confusion.test.png", "tags.test.png", "tags.test.jsonl"):
        assert (run / name).is_file(), name


def test_the_baseline_is_the_most_frequent_tag_of_each_word(run: Path) -> None:
    corpus = api.load(run).task.corpus
    counts: dict[str, dict[str, int]] = {}
    every: dict[str, int] = {}
    for line, tags in zip(corpus.train.texts, corpus.train.labels, strict=True):
        for word, tag in zip(line.split(), tags.split(), strict=True):
            counts.setdefault(word, {})
            counts[word][tag] = counts[word].get(tag, 0) + 1
            every[tag] = every.get(tag, 0) + 1
    right, ambiguous = [], []
    for line, tags in zip(corpus.test.texts, corpus.test.labels, strict=True):
        for word, tag in zip(line.split(), tags.split(), strict=True):
            of_word = counts.get(word, every)
            right.append(max(of_word, key=of_word.__getitem__) == tag)
            if len(counts.get(word, {})) > 1:
                ambiguous.append(right[-1])
    result = result_of(run)
    assert result["baseline/most_frequent/test/token_accuracy"] == pytest.approx(np.mean(right))
    assert result["baseline/most_frequent/test/ambiguous_accuracy"] == pytest.approx(np.mean(ambiguous))


def test_a_killed_run_resumes_with_identical_losses(run: Path, tmp_path: Path) -> None:
    check_resumed(run, tmp_path / "run", *LINE)


@pytest.mark.slow  # starts two ranks
def test_two_ranks_compute_what_one_process_computes(tmp_path: Path) -> None:
    check_ranks(tmp_path, *LINE)


def test_predict_in_python_and_on_the_command_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded, recorded = api.load(run), rows_of(run)
    found = loaded.predict([row["text"] for row in recorded])
    assert [one.text for one in found] == [row["prediction"] for row in recorded]
    first = found[0]
    assert first.probabilities_WC.sum(1) == pytest.approx(np.ones(len(first.words)), abs=1e-5)
    assert first.score == pytest.approx(np.log(first.probabilities_WC.max(1)).sum())
    assert loaded.predict([]) == []
    with pytest.raises(UserError, match="line 2"):
        loaded.predict(["il dort", "  "])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"il  dort .\n")))
    predict.main([str(run), "--device", "cpu", "--attention", str(tmp_path / "a.png")])
    tags, text = capsys.readouterr().out.strip("\n").split("\t")
    assert (len(tags.split()), text) == (3, "il  dort .")
    assert (tmp_path / "a.png").is_file()


def test_entities_of_files_with_subwords(tmp_path: Path) -> None:
    (tmp_path / "ner.conll").write_text(ENTITIES, "utf-8")
    files = [f"dataset.{name}={tmp_path / 'ner.conll'}" for name in ("train", "validation", "test")]
    line = [word for word in LINE if word not in SIZES]
    folder = tmp_path / "run"
    settings = (
        "tokenizer=char",
        "model.encoder_hidden_size=16",
        "model.embedding_size=16",
        "trainer.max_epochs=40",
    )
    assert command_line.run(*line, *files, *settings, f"hydra.run.dir={folder}") == 0
    result = result_of(folder)
    assert result["test/entity_f1"] == 1.0  # the test is the training
    assert result["test/entity_f1_signature"].startswith("average:micro")
    assert "test/unseen_accuracy" not in result
    (one,) = api.load(folder).predict(["Mary lives in York"])
    assert len(one.tags) == 4


@pytest.mark.parametrize("tokenizer", ["char", "word"])
def test_the_tag_of_a_word_is_at_its_first_token(tokenizer: str) -> None:
    made = (
        CharTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=None)
        if tokenizer == "char"
        else WordTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=None)
    )
    line = "l' ami-e dort ."
    made.train([line])
    firsts = first_tokens(line, made, "here")
    spans = made.spans(line)
    assert [spans[i][0] for i in firsts] == [0, 3, 9, 14]
    tokens = Ragged.unframed(made.encode, [line, line], "")
    tagged = TaggedTokens.of(tokens, [firsts, firsts], torch.arange(8))
    assert tagged.units.tolist() == [4, 4]
    positions, tags = tagged.of_words(1)
    assert (positions.tolist(), tags.tolist()) == (firsts, [4, 5, 6, 7])
    chosen = tagged.select(torch.tensor([1, 0]))
    assert chosen.of_words(0)[1].tolist() == [4, 5, 6, 7]


def test_a_word_without_a_token_of_its_own_is_refused() -> None:
    joined: Any = SimpleNamespace(spans=lambda line: [(0, 3), (4, 5)])  # one token of two words
    assert first_tokens("abc d", joined, "line 1") == [0, 1]
    with pytest.raises(UserError, match="line 1: the word 'c' of 'a c d' has no token"):
        first_tokens("a c d", joined, "line 1")


def test_the_loss_is_that_of_a_loop_over_words_without_padding() -> None:
    task: Any = build_task(
        compose_run(["task=tagging", *SIZES, "model.dropout=0", "model.state_dropout=0"]).config
    )
    torch.manual_seed(1)
    model = task.build(20, 5)
    tokens = Ragged.unframed(lambda one: one, [[4, 5, 6], [7, 8], [9, 10, 11, 12]], "")  # type: ignore[arg-type, return-value]
    texts = TaggedTokens.of(tokens, [[0, 2], [1], [0, 1, 3]], torch.tensor([0, 1, 2, 3, 4, 0]))
    batches = TaggedBatches(texts, torch.device("cpu"))
    loss = task.loss(model, batches(np.arange(3)), StepInfo(0, 0))
    total = 0.0
    for i in range(3):
        logits_SC = model(batches(np.array([i])))[0]
        for position, tag in zip(*texts.of_words(i), strict=True):
            total += functional.cross_entropy(logits_SC[position], torch.tensor(tag)).item()
    assert loss.item() == pytest.approx(total, rel=1e-5)
    assert (batches(np.arange(3)).label_BS == IGNORED).sum() == 12 - 6


def test_ambiguous_and_unseen_words() -> None:
    text = LabelledText(["la voit", "la la ami"], ["P V", "D D N"])
    words = TrainingWords(text, {"P": 0, "V": 1, "D": 2, "N": 3})
    assert words.ambiguous("la ami zut").tolist() == [True, False, False]
    assert words.unseen("la ami zut").tolist() == [False, False, True]
    assert words.tags("la ami zut").tolist() == [2, 3, 2]


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("attention=additive", "attention="),
        ("pooling=last", "pooling="),
        ("dataset=names", "task=tagging"),
        ("tokenizer=bpe_dropout", "tokenizer.dropout"),
    ],
)
def test_what_does_not_fit_is_refused(setting: str, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run("task=tagging", setting, "logger=none") == 2
    assert key in capsys.readouterr().err


@pytest.mark.parametrize("leaks", [0, 1_234])
def test_a_run_warns_of_leaks(leaks: int, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_leaks({"leaked_pairs": leaks})
    assert ("1,234 texts of validation and test are also training texts" in caplog.text) == (leaks > 0)
