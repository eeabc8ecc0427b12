"""A masked language model's encoder in models of other tasks, and the studies with and without it."""

from pathlib import Path
from typing import Any

import command_line
import pytest
import torch

import seq2seq_lab
from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.data.questions import context_of
from seq2seq_lab.errors import UserError
from seq2seq_lab.tasks import overlap
from seq2seq_lab.tasks.overlap import FILE, count_known, read_hashes, write_hashes
from seq2seq_lab.tasks.parts import build_task

SMALL = (
    "trainer.device=cpu",
    "trainer.precision=fp32",
    "logger=none",
    "trainer.max_steps=1",
    "task.samples=0",
)
SIZES = ("model.embedding_size=8", "model.num_heads=2", "model.feedforward_size=8", "model.num_layers=1")
PARTS = "init_part=[source_embedding,encoder]"
PAIRS = ("dataset=sentence_pairs", "dataset.pairs=60")


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained") / "run"
    pairs = ("experiment=masked_language_model", *PAIRS, "task.next_sentence=true")
    seq2seq_lab.train((*pairs, *SIZES, *SMALL), folder)
    return folder


@pytest.mark.parametrize("pairs", ["joined", "separate"])
def test_a_pair_classifier_starts_from_the_encoder(pairs: str, origin: Path, tmp_path: Path) -> None:
    settings = ("experiment=entailment", "dataset.pairs=60", f"task.pairs={pairs}", "optimizer.lr=0", *SMALL)
    run = seq2seq_lab.train((*settings, f"init_from={origin}", PARTS), tmp_path / "run")
    before, after = seq2seq_lab.load(origin).model.state_dict(), run.model.state_dict()
    copied = [name for name in before if name.startswith(("encoder.", "source_embedding."))]
    assert len(copied) > 10
    assert all(torch.equal(before[name], after[name]) for name in copied)
    ids = {
        name: opened.task.vocabulary.tokenizer.encode(["the king is seen ."])
        for name, opened in (("before", seq2seq_lab.load(origin)), ("after", run))
    }
    assert ids["before"] == ids["after"]
    text = (tmp_path / "run" / "run.log").read_text("utf-8")
    row = next(line for line in text.splitlines() if "pretraining has read" in line)
    train = seq2seq_lab.load(origin).task.corpus.train
    assert f" {len(train.lines)} " in row  # the same pairs


def test_a_span_model_starts_from_the_encoder_and_counts_the_texts_that_it_has_read(tmp_path: Path) -> None:
    questions = ("dataset=questions", "dataset.questions=60")
    origin, folder = tmp_path / "pretrained", tmp_path / "run"
    line = ("experiment=masked_language_model", *questions, "task.next_sentence=true", *SIZES, *SMALL)
    before = seq2seq_lab.train(line, origin)
    lines = before.task.corpus.train.lines
    assert lines[0].endswith("?")  # a question, and then its text
    assert [*lines[1::2]] == [
        context_of(line)
        for line in build_task(compose_run(["task=span", *questions]).config).corpus.train.texts
    ]
    run = seq2seq_lab.train(
        ("experiment=span", *questions, "optimizer.lr=0", *SMALL, f"init_from={origin}", PARTS), folder
    )
    weights, after = before.model.state_dict(), run.model.state_dict()
    copied = [name for name in weights if name.startswith(("encoder.", "source_embedding."))]
    assert len(copied) > 10
    assert all(torch.equal(weights[name], after[name]) for name in copied)
    text = (folder / "run.log").read_text("utf-8")
    row = next(line for line in text.splitlines() if "pretraining has read" in line)
    assert f" {len(lines) // 2} " in row


@pytest.mark.parametrize(
    "study", ["pretraining", "pretraining_sentiment", "pretraining_entailment", "pretraining_span"]
)
def test_jobs_without_pretraining_have_an_encoder_of_the_same_kind(
    study: str, origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outputs" / "pretrained").mkdir(parents=True)
    for name in ("tagging", "sentiment", "entailment", "span"):
        (tmp_path / "outputs" / "pretrained" / name).symlink_to(origin)
    monkeypatch.chdir(tmp_path)
    request = command_line.check(f"study={study}", "seed=1", "task.training_examples=100")
    without, pretrained = (job.config for job in request.jobs)
    assert without.init_from is None
    assert pretrained.init_part == ["source_embedding", "encoder"]
    assert without.encoder == pretrained.encoder
    assert str(pretrained.encoder["_target_"]).endswith(".TransformerEncoder")
    assert without.model.embedding_size == pretrained.model.embedding_size == 8


def test_a_whole_model_is_not_inherited_by_jobs_without_it(origin: Path) -> None:
    with pytest.raises(UserError, match="different models or tokenizers"):
        command_line.check("-m", "task=masked_language_model", f"init_from={origin},null")


@pytest.mark.parametrize("experiment", ["entailment", "tagging"])
def test_a_part_of_the_training_examples(experiment: str) -> None:
    data = PAIRS if experiment == "entailment" else ("dataset.sentences=60", "dataset.max_depth=1")

    def corpus(count: str) -> Any:
        line = [f"experiment={experiment}", *data, f"task.training_examples={count}"]
        return build_task(compose_run(line).config).corpus

    some, whole = corpus("10"), corpus("null")
    assert [*some.train.texts] == [*whole.train.texts[:10]]
    assert [*some.test.texts] == [*whole.test.texts]
    with pytest.raises(UserError, match=r"task.training_examples=99 .* at most \d+, those of the data set"):
        corpus("99")


def test_texts_that_the_pretraining_has_read_are_counted(tmp_path: Path) -> None:
    assert read_hashes(tmp_path) is None
    write_hashes(tmp_path, ["a b", "c", "c"])
    assert len((tmp_path / FILE).read_text().split()) == 2
    hashes = read_hashes(tmp_path)
    assert hashes is not None
    assert count_known(["c", "c", "a  b", "d"], hashes) == 2


def test_no_more_texts_are_read_than_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "MOST_TEXTS", 2)
    texts = iter("abbcde")
    write_hashes(tmp_path, texts)
    assert (next(texts), read_hashes(tmp_path)) == ("d", None)
