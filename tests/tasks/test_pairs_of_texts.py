"""Classification of pairs of texts: joined and read one by one."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import command_line
import numpy as np
import pytest
import torch
from finished_runs import losses_of, result_of
from forked_ranks import forked_ranks

from seq2seq_lab import api
from seq2seq_lab.config.compose import compose, composer
from seq2seq_lab.config.job_hash import without_hydra
from seq2seq_lab.config.schema import typed
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenizers import EOS, WordTokenizer
from seq2seq_lab.data.tokenizers.turns import TurnTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.classifier import PairClassifier, build_classifier
from seq2seq_lab.reporting.score_tables import CLUSTERS
from seq2seq_lab.tasks.classification.data import LabelledTokens, TextBatches

LINE = (
    *("experiment=entailment", "dataset.pairs=120", "model.encoder_hidden_size=6", "model.embedding_size=6"),
    *("task.batch_size=24", "trainer.max_epochs=2", "trainer.device=cpu", "trainer.precision=fp32"),
    *("trainer.log_every_steps=1", "task.samples=1", "logger=none"),
)
READINGS = ("joined", "separate")


@pytest.fixture(scope="module", params=READINGS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / "run"
    assert command_line.run(*LINE, f"task.pairs={request.param}", f"hydra.run.dir={folder}") == 0
    return folder


def test_predictions_of_a_run(run: Path, tmp_path: Path) -> None:
    assert "classify lines of two texts with a tab between them" in (run / "run.log").read_text("utf-8")
    loaded = api.load(run)
    rows = [json.loads(line) for line in (run / "predictions.test.jsonl").read_text("utf-8").splitlines()]
    found = loaded.predict([row["text"] for row in rows])
    assert [one.text for one in found] == [row["prediction"] for row in rows]
    assert all(len(one.tokens) == len(one.weights) for one in found)
    texts = 1 if loaded.task.pairs == "joined" else 2
    assert found[0].weights.sum() == pytest.approx(texts)
    with pytest.raises(UserError, match=r"one text.*one tab"):
        loaded.predict(["one text"])
    if texts == 2:
        with pytest.raises(UserError, match=r"task\.pairs=separate"):
            loaded.questions(None)
    else:
        task_data = loaded.task.load(tmp_path, run, 2)
        question = loaded.questions(task_data.tests[0])(0)
        assert "." in " ".join(question.source_names)
    names = {key.split("/")[1] for key in result_of(run) if key.startswith("baseline/")}
    assert names >= {"most_frequent"}


def test_pairs_with_one_first_text_are_resampled_together(run: Path) -> None:
    lines = [
        json.loads(line)["text"] for line in (run / "predictions.test.jsonl").read_text("utf-8").splitlines()
    ]
    premises = [line.partition("\t")[0] for line in lines]
    with np.load(run / "scored" / "test.npz") as arrays:
        clusters = arrays[CLUSTERS].tolist()
    assert len({*zip(premises, clusters, strict=True)}) == len({*premises}) == len({*clusters})
    split: Any = SimpleNamespace(text=SimpleNamespace(texts=["a\tb", "c\td", "a\te"]))
    assert api.load(run).clusters(split).tolist() == [0, 1, 0]


def test_the_baseline_of_one_text_reads_the_second_one(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    assert "baseline/second_text/test/accuracy" in result_of(run)
    task = api.load(run).task
    task.load(tmp_path, run, None)
    second = task._second(task.labelled["test"]).tokens
    lines = [line.partition("\t")[2] for line in task.corpus.test.texts]
    for i, line in enumerate(lines):
        ids = [one for one in second.tokens[second.offsets[i] : second.offsets[i + 1]].tolist() if one != EOS]
        assert ids == task.vocabulary.tokenizer.encode([line])[0]


def test_a_killed_run_resumes_with_identical_losses(run: Path, tmp_path: Path) -> None:
    folder, pairs = tmp_path / "run", api.load(run).task.pairs
    end = len(losses_of(run)) - 2
    command_line.run_until(end, *LINE, f"task.pairs={pairs}", f"hydra.run.dir={folder}")
    assert command_line.run(f"resume={folder}") == 0
    assert losses_of(folder) == losses_of(run)


@pytest.mark.slow  # starts two ranks
def test_two_ranks_compute_what_one_process_computes(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("two", "one")]
    with forked_ranks():
        assert (
            command_line.run(*LINE, "task.pairs=separate", "trainer.devices=2", f"hydra.run.dir={folders[0]}")
            == 0
        )
    one = (*LINE, "task.pairs=separate", "trainer.micro_batches=2", f"hydra.run.dir={folders[1]}")
    assert command_line.run(*one) == 0
    assert losses_of(folders[0]) == losses_of(folders[1])


def tokens_of_pairs(firsts: list[list[int]], seconds: list[list[int]]) -> LabelledTokens:
    rows = [[*a, *b] for a, b in zip(firsts, seconds, strict=True)]
    tokens = Ragged.unframed(lambda one: [*one], rows, "")  # type: ignore[arg-type, list-item]
    labels = torch.arange(len(rows)) % 3
    return LabelledTokens(tokens, labels, firsts=torch.tensor([len(a) for a in firsts]))


@pytest.mark.parametrize("setting", ["pooling=max", "pooling=attention"])
def test_the_features_of_a_pair_are_those_of_the_vectors_of_its_texts(setting: str) -> None:
    with composer():
        config = typed(without_hydra(compose(["task=classification", setting])))
    torch.manual_seed(1)
    model = build_classifier(config, 20, 3, pairs=True).eval()
    assert isinstance(model, PairClassifier)
    texts = tokens_of_pairs([[4, 5, 6], [7], [8, 9]], [[10, 11], [12, 13, 14, 15], [16]])
    batches = TextBatches(texts, torch.device("cpu"))
    logits_BC = model(batches(np.arange(3))).logits_BC
    for i, (first, second) in enumerate((([4, 5, 6], [10, 11]), ([7], [12, 13, 14, 15]), ([8, 9], [16]))):
        vectors = [
            model.pooling(model.encoder(model.embed(torch.tensor([ids])), (len(ids),)))[0][0]
            for ids in (first, second)
        ]
        u, v = vectors  # of texts without padding
        features = torch.cat([u, v, (u - v).abs(), u * v])
        assert torch.allclose(model.readout(features), logits_BC[i], atol=1e-5)
    chosen = texts.select(torch.tensor([2, 0]))
    assert chosen.texts.lengths.tolist() == [2, 1, 3, 2]
    assert texts.lengths.tolist() == [3, 4, 2]


def test_tokens_of_pairs() -> None:
    word = WordTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=None)
    joined, separate = TurnTokenizer.of(word), TurnTokenizer.of(word, separated=False)
    for tokenizer in (joined, separate):
        tokenizer.train(["a b\tc"])
    (with_eos,), (without,) = joined.encode(["a b\tc"]), separate.encode(["a b\tc"])
    assert with_eos == [*without[:2], EOS, without[2]]
    assert joined.spans("a b\tc") == [(0, 1), (2, 3), (3, 4), (4, 5)]
    assert separate.spans("a b\tc") == [(0, 1), (2, 3), (4, 5)]
    assert "separated" not in joined.options()  # of runs of dialogue


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("task.pairs=none",), "task.pairs=none"),
        (("dataset=names", "task.pairs=joined"), "task.pairs=joined"),
    ],
)
def test_what_does_not_fit_is_refused(
    settings: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [word for word in LINE if not word.startswith("dataset")]
    assert command_line.run(*line, *settings) == 2
    assert message in capsys.readouterr().err
