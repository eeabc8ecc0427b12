"""`init_from=RUN init_part=NAME`: parts of another run's model as the first weights of a new one."""

import json
import shutil
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch

import seq2seq_lab
from seq2seq_lab.config import compose
from seq2seq_lab.config.run_folder import write_covered
from seq2seq_lab.errors import UserError

SMALL = (
    "trainer.device=cpu",
    "trainer.precision=fp32",
    "trainer.fast_dev_run=true",
    "logger=none",
    "task.samples=0",
)
GRAMMAR = ("dataset.train=120", "dataset.validation=8", "dataset.test=8", "dataset.max_depth=1", *SMALL)
SIZES = ("model.embedding_size=12", "model.hidden_size=10", "model.encoder_hidden_size=6")
CLASSIFY = ("task=classification", *SMALL)
BOTH = "init_part=[source_embedding,encoder]"


@pytest.fixture(scope="module")
def translation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("origin") / "run"
    settings = ("encoder=bilstm", "encoder.dropout=0.05", *SIZES, "dataset.test_compositional=0", *GRAMMAR)
    seq2seq_lab.train(settings, folder)
    return folder


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("origin") / "run"
    sizes = ("model.embedding_size=12", "model.hidden_size=12", "model.encoder_hidden_size=12")
    seq2seq_lab.train(("task=language_model", "decoder.num_layers=1", *sizes, *SMALL), folder)
    return folder


def record(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text())


def test_a_classifier_starts_from_the_encoder_of_a_translation_run(translation: Path, tmp_path: Path) -> None:
    """With its vocabulary and settings; it needs that run only at the start."""
    origin = tmp_path / "origin"
    shutil.copytree(translation, origin)
    settings = (f"init_from={origin}", BOTH, "optimizer.lr=0", "model.state_dropout=0.3", *CLASSIFY)
    run = seq2seq_lab.train(settings, tmp_path / "run")
    before = seq2seq_lab.load(translation)
    copied = {
        name: weight
        for name, weight in before.model.state_dict().items()
        if name.startswith(("encoder.", "source_embedding."))
    }
    for name, weight in copied.items():
        assert torch.equal(run.model.state_dict()[name], weight)
    assert record(run.folder)["copied_weights"] == {
        name: list(weight.shape) for name, weight in copied.items()
    }
    assert run.config.encoder == before.config.encoder
    assert run.task.vocabulary.tokenizer.tokens(range(20)) == before.tokenizers.source.tokens(range(20))
    assert set(run.task.vocabulary.classes) != set()
    shutil.rmtree(origin)
    assert seq2seq_lab.load(run.folder).predict(["the king sleeps."])[0].text in run.task.vocabulary.classes
    assert command_line.run(f"resume={run.folder}", "trainer.max_epochs=2") == 0
    assert record(run.folder)["copied_weights"].keys() == copied.keys()


def test_a_part_without_its_embedding_has_a_vocabulary_of_its_own(translation: Path, tmp_path: Path) -> None:
    settings = (f"init_from={translation}", "init_part=encoder", "optimizer.lr=0", *CLASSIFY)
    run = seq2seq_lab.train(settings, tmp_path / "run")
    before = seq2seq_lab.load(translation)
    assert run.task.vocabulary.tokenizer.size != before.tokenizers.source.size
    for name, weight in before.model.encoder.state_dict().items():
        assert torch.equal(run.model.encoder.state_dict()[name], weight)
    assert {name.partition(".")[0] for name in record(run.folder)["copied_weights"]} == {"encoder"}


def test_the_readout_of_a_classifier_is_copied_if_the_classes_are_the_same(tmp_path: Path) -> None:
    before = seq2seq_lab.train(("model.num_layers=1", *CLASSIFY), tmp_path / "before")
    settings = (f"init_from={before.folder}", "init_part=[pooling,readout]", "optimizer.lr=0", *CLASSIFY)
    with pytest.raises(UserError, match=r"init_part=pooling"):  # the default pooling has no weights
        seq2seq_lab.train(settings, tmp_path / "pooling")
    run = seq2seq_lab.train([one.replace("pooling,", "") for one in settings], tmp_path / "run")
    assert torch.equal(run.model.readout.linear.weight, before.model.readout.linear.weight)
    classes = before.folder / "tokenizer" / "classes.json"
    others = json.dumps([*reversed(json.loads(classes.read_text()))])
    write_covered(before.folder, "run", "tokenizer/classes.json", others)
    with pytest.raises(UserError, match=r"init_part=readout: the target vocabulary"):
        seq2seq_lab.train([one.replace("pooling,", "") for one in settings], tmp_path / "other")


def test_a_translation_run_starts_from_the_decoder_of_a_language_model(
    language_model: Path, tmp_path: Path
) -> None:
    parts = (f"init_from={language_model}", "init_part=[target_embedding,decoder.layers]", "optimizer.lr=0")
    rest = (
        "decoder=plain",
        "attention=none",
        "model.hidden_size=12",
        "decoder.num_layers=1",
        "decoder.bridge=mean",
    )
    run = seq2seq_lab.train((*parts, *rest, "dataset.test_compositional=0", *GRAMMAR), tmp_path / "run")
    before = seq2seq_lab.load(language_model).model
    assert torch.equal(run.model.target_embedding.weight, before.target_embedding.weight)
    for name, weight in before.decoder.layers.state_dict().items():
        assert torch.equal(run.model.decoder.layers.state_dict()[name], weight)
    assert run.tokenizers.target.size == len(before.target_embedding.weight) != run.tokenizers.source.size


def test_what_is_given_wins_over_what_is_inherited(translation: Path) -> None:
    line = (f"init_from={translation}", BOTH, *CLASSIFY)
    composed = compose.compose_run([*line, "encoder.dropout=0.4"])
    assert composed.choices["encoder"] == "bilstm"
    assert composed.plain["encoder"]["hidden_size"] == 6
    assert (composed.plain["encoder"]["dropout"], composed.plain["model"]["embedding_size"]) == (0.4, 12)
    assert composed.plain["model"]["hidden_size"] != 10  # it does not belong to these parts
    assert compose.compose_run([*line, "encoder=gru"]).choices["encoder"] == "gru"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((BOTH.replace("encoder]", "encodr]"),), ["init_part=encodr", "Did you mean 'encoder'?", "source_embedding"]),
        ((), ["init_from=", "ClassificationTask does not use decoder", "init_part=[source_embedding,encoder]"]),
        (("init_part=decoder",), ["init_part=decoder is not a part of the model of ClassificationTask"]),
        (
            ("init_part=target_embedding",),
            ["init_part=target_embedding is not a part of this model", "Parts: encoder, readout, source_embedding"],
        ),
        ((BOTH, "tokenizer.lowercase=true"), ["init_part=source_embedding,encoder", "tokenizer"]),
        ((BOTH, "encoder.hidden_size=9"), ["init_part=source_embedding,encoder", "encoder.layers", "(24,)", "(36,)"]),
        (("init_part=readout",), ["init_part=readout", "target vocabulary", "out of init_part"]),
        (("init_part=3",), ["init_part=3", "init_part=[source_embedding,encoder]"]),
        (("init_part=encoder", "init_from=null"), ["init_part=encoder", "init_from=RUN"]),
    ],
)  # fmt: skip
def test_what_cannot_be_copied_is_refused(
    translation: Path,
    tmp_path: Path,
    given: tuple[str, ...],
    named: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = (f"init_from={translation}", *given, *CLASSIFY, f"hydra.run.dir={tmp_path / 'run'}")
    assert command_line.run(*line) == 2
    error = capsys.readouterr().err
    for word in named:
        assert word in error


def test_the_parts_that_the_task_uses_are_named(
    translation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(f"init_from={translation}", "task=language_model", *SMALL) == 2
    error = capsys.readouterr().err
    assert "LanguageModelTask does not use encoder" in error
    assert "init_part=[target_embedding,decoder.layers]" in error


def test_a_study_varies_the_parts(translation: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If every job inherits the same settings."""
    line = ("-m", f"init_from={translation}", *CLASSIFY)
    assert command_line.run(*line, "init_part=encoder,[source_embedding,encoder]") == 2
    assert "Start one command for each" in capsys.readouterr().err
