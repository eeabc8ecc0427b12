"""Whole runs with pretrained vectors, attention of limited source length, and decaying teacher forcing."""

import gzip
import logging
import re
from inspect import signature
from pathlib import Path

import command_line
import pytest
import torch

import seq2seq_lab
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.errors import UserError
from seq2seq_lab.reporting.run_report import component_parameters

TINY = [
    "dataset.train=100",
    "dataset.validation=5",
    "dataset.test=5",
    "dataset.test_compositional=0",
    "dataset.max_depth=1",
    "model.embedding_size=8",
    "model.encoder_hidden_size=8",
    "model.hidden_size=8",
    "trainer.max_epochs=1",
    "task.batch_size=16",
    "task.samples=0",
    "trainer.device=cpu",
    "trainer.precision=fp32",
    "model.scale_embeddings=false",
    "logger=none",
]
SIZE = 5


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """Vectors of two words of the corpus."""
    path = tmp_path / "vectors.txt"
    path.write_text(f"the{' 0.25' * SIZE}\nnot{' -0.5' * SIZE}\n", "utf-8")
    return path


def test_frozen_vectors_are_read_projected_and_kept(
    vectors: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    french = tmp_path / "fr.vec.gz"
    with gzip.open(french, "wt", encoding="utf-8") as file:  # fastText's format: a first line with the sizes
        file.write(f"1 {SIZE + 1}\nles{' 0.75' * (SIZE + 1)}\n")
    settings = [
        *(f"embedding.source.path={vectors}", f"embedding.source.size={SIZE}", "embedding.source.frozen=true"),
        *(f"embedding.target.path={french}", f"embedding.target.size={SIZE + 1}", "embedding.target.frozen=true"),
    ]  # fmt: skip
    with caplog.at_level(logging.INFO):
        run = seq2seq_lab.train([*TINY, *settings], tmp_path / "run")
    source, target = run.model.source_embedding.weight, run.model.target_embedding.weight
    ids = {word: run.tokenizers.source.encode([word])[0][0] for word in ("not", "the")}
    assert torch.equal(source[ids["not"]], torch.full((SIZE,), -0.5))
    assert torch.equal(source[ids["the"]], torch.full((SIZE,), 0.25))
    plural = run.tokenizers.target.encode(["les"])[0][0]
    assert torch.equal(target[plural], torch.full((SIZE + 1,), 0.75))
    frozen = run.result["num_parameters"] - run.result["num_trainable_parameters"]
    assert frozen == source.numel() + target.numel()
    text = Grammar(**{key: run.config.dataset[key] for key in signature(Grammar).parameters}).load().train
    words = [word for sentence in text.target for word in run.tokenizers.target.encode([sentence])[0]]
    share = words.count(plural) / len(words)
    log = (tmp_path / "run" / "run.log").read_text("utf-8")
    assert "embedding.source.path: 2 of" in log
    assert re.search(rf"embedding\.target\.path: 1 of .*{100 * share:.1f}%", log)
    # The run opens, and goes on, without the files.
    vectors.unlink()
    french.unlink()
    assert seq2seq_lab.load(tmp_path / "run").predict(["the king sleeps."])[0].text
    assert command_line.run(f"resume={tmp_path / 'run'}", "trainer.max_epochs=2") == 0
    again = seq2seq_lab.load(tmp_path / "run")
    assert torch.equal(again.model.source_embedding.weight, source)
    assert torch.equal(again.model.target_embedding.weight, target)
    assert again.result["steps"] == 2 * run.result["steps"]


def test_words_without_a_vector_are_trained_while_the_others_are_frozen(
    vectors: Path, tmp_path: Path
) -> None:
    settings = [
        *(
            f"embedding.source.path={vectors}",
            f"embedding.source.size={SIZE}",
            "embedding.source.frozen=known",
        ),
        "trainer.keep_checkpoints=1",
    ]
    run = seq2seq_lab.train([*TINY, *settings], tmp_path / "run")
    first_VD = run.model.source_embedding.weight.detach().clone()
    fixed = int(run.model.source_embedding.known_V.sum()) * SIZE
    assert run.result["num_parameters"] - run.result["num_trainable_parameters"] == fixed > 0
    assert sum(total - trained for _, total, trained in component_parameters(run.model)) == fixed
    vectors.unlink()
    assert command_line.run(f"resume={tmp_path / 'run'}", "trainer.max_epochs=2") == 0
    last_VD = seq2seq_lab.load(tmp_path / "run").model.source_embedding.weight.detach()
    known = [run.tokenizers.source.encode([word])[0][0] for word in ("the", "not")]
    for weight_VD in (first_VD, last_VD):
        assert weight_VD[known].equal(torch.tensor([[0.25], [-0.5]]).expand(-1, SIZE))
    changed_V = (first_VD != last_VD).any(1)
    assert changed_V.sum() > len(changed_V) / 2


def test_vectors_that_are_not_frozen_are_trained(vectors: Path, tmp_path: Path) -> None:
    settings = [f"embedding.source.path={vectors}", f"embedding.source.size={SIZE}"]
    run = seq2seq_lab.train([*TINY, *settings], tmp_path / "run")
    the = run.tokenizers.source.encode(["the"])[0][0]
    row = run.model.source_embedding.weight[the].detach()
    assert not torch.equal(row, torch.full((SIZE,), 0.25))
    torch.testing.assert_close(row, torch.full((SIZE,), 0.25), atol=0.2, rtol=0)


TIED = ["model.tied_embeddings=target", "model.embedding_size=5"]
ALL = ["model.tied_embeddings=all", "tokenizer.joint=true", "model.embedding_size=5"]
REFUSED = [
    (
        ["embedding.source.path={path}"],
        r"embedding\.source\.size=8: .* have size 5\. .*embedding\.source\.size=5",
    ),
    (
        ["embedding.target.path={path}", "model.tied_embeddings=target"],
        r"embedding\.target\.size=8: .* have size 5\. .*model\.embedding_size=5",
    ),
    (
        ["model=shared", "model.encoder_hidden_size=64"],
        r"model\.share_layers=true .*model\.encoder_hidden_size equal to",
    ),
    (["embedding.target.path=missing.vec"], r"embedding\.target\.path=missing\.vec"),
    (["embedding.target.frozen=true"], r"embedding\.target\.frozen=true .*embedding\.target\.path=FILE"),
    (["embedding.target.frozen=known"], r"embedding\.target\.frozen=known .*embedding\.target\.path=FILE"),
    (["embedding.target.frozen=1"], r"embedding\.target\.frozen=1 "),
    (
        [
            "embedding.source.frozen=known",
            "embedding.source.path={path}",
            "embedding.source.size=5",
            "optimizer=adamw",
        ],
        r"embedding\.source\.frozen=known .*optimizer\.weight_decay=0",
    ),
    (
        ["embedding.target.frozen=true", "embedding.target.path={path}", *TIED],
        r"embedding\.target=.*'frozen': True.*model\.tied_embeddings=target",
    ),
    (
        ["embedding.source.path={path}", *ALL],
        r"embedding\.source=.*model\.tied_embeddings=all.*embedding\.target",
    ),
    (
        ["model.tied_embeddings=target", "embedding.target.size=5"],
        r"embedding\.target=.*'size': 5.*embedding\.target\.size=\$\{model\.embedding_size\}",
    ),
    (
        ["attention=location", "tokenizer=bpe", "tokenizer.vocab_size=300", "tokenizer.dropout=0.1"],
        r"tokenizer\.dropout=0",
    ),
    (["attention=additive", "attention.size=0"], r"attention\.size=0 "),
    (["encoder.dropout=1.5"], r"dropout=1\.5"),
    (["embedding.target.dropout=1.5"], r"embedding\.target\.dropout=1\.5 is not allowed"),
    (["encoder.num_layers=0"], r"encoder\.num_layers=0 is not allowed"),
    (["decoder.num_layers=0", "model.bridge=mean"], r"decoder\.num_layers=0 is not allowed"),
    (["decoder.attentional_size=0"], r"decoder\.attentional_size=0 .*null"),
    (
        ["decoder=conditional", "decoder.attentional_size=0"],
        r"decoder\.attentional_size=0 ",
    ),
    (
        ["model=vanilla", "model.bridge=zero"],
        r"decoder\.bridge=zero with attention=none .*model\.bridge=tanh",
    ),
    (
        ["decoder=tutorial", "attention=none", "model.bridge=zero"],
        r"decoder\.bridge=zero with attention=none",
    ),
    (["readout=deep", "readout.size=0"], r"readout\.size=0 "),
    (
        ["decoder=bahdanau", "decoder.output=[embedding]"],
        r"decoder\.output=\['embedding'\] gives .*no access to the source",
    ),
    (
        ["decoder=bahdanau", "attention=none", "decoder.output=[context]"],
        r"decoder\.output=\['context'\] gives .*no access to the source",
    ),
    (["embedding.source.size=0"], r"embedding\.source\.size=0 is not allowed"),
    (["model.share_layers=true"], r"model\.share_layers=true .*model=shared"),
    (["attention=location", "attention.max_length=3"], r"train has \d+ tokens.*attention\.max_length=\d+"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=[settings[0] for settings, _ in REFUSED])
def test_refused_before_training(
    settings: list[str], message: str, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2seq_lab.training.trainer.Trainer.fit", None)
    settings = [setting.format(path=vectors) for setting in settings]
    with pytest.raises(UserError, match=message):
        seq2seq_lab.train([*TINY, *settings], tmp_path / "run")


def test_a_sentence_too_long_for_the_attention_is_refused_when_it_is_translated(tmp_path: Path) -> None:
    settings = ["attention=location", "decoder=tutorial", "attention.max_length=30"]
    run = seq2seq_lab.train([*TINY, *settings], tmp_path / "run")
    assert run.predict(["the king sleeps."])[0].text
    with pytest.raises(UserError, match=r"has 34 tokens.* 30 at most"):
        run.predict(["the king sleeps.", " ".join(["king"] * 34)])


def test_a_decaying_ratio_is_logged(tmp_path: Path) -> None:
    settings = ["teacher_forcing=linear", "teacher_forcing.steps=4", "trainer.log_every_steps=1"]
    run = seq2seq_lab.train([*TINY, *settings], tmp_path / "run")
    _, ratios = run.curve("train/teacher_forcing_ratio")
    assert ratios[:6] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
