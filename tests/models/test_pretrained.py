"""Pretrained encoders, with a tiny BERT of random weights."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch
from finished_runs import losses_of
from forked_ranks import forked_ranks
from small_models import batch_of, composed
from tokenizers import Tokenizer

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed (pip install 'seq2seq_lab[pretrained]')"
)
from pretrained_encoders import save_tiny_bert  # noqa: E402

from seq2seq_lab import api  # noqa: E402
from seq2seq_lab.config.compose import compose_run  # noqa: E402
from seq2seq_lab.config.schema import typed  # noqa: E402
from seq2seq_lab.data.labelled import LabelledText  # noqa: E402
from seq2seq_lab.data.tokenizers import PretrainedTokenizer, load_tokenizer  # noqa: E402
from seq2seq_lab.errors import UserError  # noqa: E402
from seq2seq_lab.models.classifier import build_classifier  # noqa: E402
from seq2seq_lab.models.encoders import PretrainedEncoder  # noqa: E402
from seq2seq_lab.models.initialization import Xavier  # noqa: E402
from seq2seq_lab.training import checkpoint  # noqa: E402
from seq2seq_lab.training.parts import build_optimizer  # noqa: E402

TEXTS = ("a dog sleeps.", "Rain", "the old man's hat")
MACHINE = ("trainer.device=cpu", "trainer.precision=fp32", "trainer.log_every_steps=1", "logger=none")
SIZES = ("model.embedding_size=8", "model.encoder_hidden_size=8", "model.hidden_size=8")
LINE = (
    *("encoder=pretrained", "dataset.train=80", "dataset.validation=4", "dataset.test=4"),
    *(
        "dataset.test_compositional=0",
        "task.batch_size=20",
        "trainer.checkpoint_every_steps=1",
        "trainer.micro_batches=2",
        "trainer.max_epochs=1",
        "task.samples=1",
    ),
    *(
        "search=beam",
        "search.size=2",
        "search.max_length_factor=0",
        "search.max_length_extra=8",
        *MACHINE,
        *SIZES,
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny BERT."""
    return save_tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose encoder is fine-tuned, with steps in two parts as on two ranks."""
    target = tmp_path_factory.mktemp("pretrained") / "run"
    line = (*LINE, f"encoder.path={folder}", "encoder.lr=0.01")
    assert command_line.run(*line, f"hydra.run.dir={target}") == 0
    return target


def encoder_of(folder: Path, lr: float | None = None) -> PretrainedEncoder:
    torch.manual_seed(1)
    return PretrainedEncoder(input_size=3, path=str(folder), lr=lr, size=6, encoder_output_dropout=0.5)


def test_the_outputs_are_the_projected_states_of_each_text(folder: Path) -> None:
    tokenizer, encoder = PretrainedTokenizer.read(str(folder), framed=False), encoder_of(folder).eval()
    rows = tokenizer.encode(TEXTS)
    encoded = encoder.encode(batch_of(rows, rows), encoder.embed)
    bert = transformers.BertModel.from_pretrained(folder).eval()
    names = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    for number, text in enumerate(TEXTS):
        pieces = [f"##{c}" if i else c for word in _words(text) for i, c in enumerate(word)]
        ids = torch.tensor([[names[piece] for piece in ("[CLS]", *pieces, "[SEP]")]])
        with torch.no_grad():
            expected = bert(ids).last_hidden_state[0] @ encoder.projection.weight.T + encoder.projection.bias
        length = encoded.lengths[number]
        torch.testing.assert_close(encoded.outputs_BSM[number, :length], expected)
        assert encoded.outputs_BSM[number, length:].eq(0).all()
        assert encoded.final is not None
        torch.testing.assert_close(encoded.final.hidden_LBH[0, number], expected[0])


def _words(text: str) -> list[str]:
    return text.lower().replace("'", " ' ").replace(".", " .").split()


def test_the_tokenizer_is_saved_with_the_run(folder: Path, tmp_path: Path) -> None:
    read = PretrainedTokenizer.read(str(folder), framed=False)
    read.save(tmp_path, "source")
    saved = load_tokenizer(tmp_path, "source")
    assert isinstance(saved, PretrainedTokenizer)
    for tokenizer in (read, saved):
        (row,) = tokenizer.encode(["An [SEP] ét "])
        assert tokenizer.tokens(row) == ["a", "##n", "<unk>", "s", "##e", "##p", "<unk>", "e", "##t"]
        assert tokenizer.spans("An ét ") == [(0, 1), (1, 2), (3, 4), (4, 5)]
        text, spans = tokenizer.decode_spans(tokenizer.encode(["an old"])[0])
        assert text == "an old"
        assert [text[start:end].strip() for start, end in spans] == ["a", "n", "o", "l", "d"]
    framed = PretrainedTokenizer.read(str(folder), framed=True)
    assert framed.tokens(framed.encode(["a"])[0]) == ["<sos>", "a", "<eos>"]
    assert framed.spans("a") == [(0, 0), (0, 1), (1, 1)]


def test_a_frozen_encoder_is_not_trained_and_not_saved(folder: Path) -> None:
    encoder, bert = encoder_of(folder).train(), transformers.BertModel.from_pretrained(folder)
    assert encoder.training
    assert not any(module.training for module in encoder.model.modules())
    assert {name for name, weight in encoder.named_parameters() if weight.requires_grad} == {
        "projection.weight",
        "projection.bias",
    }
    assert encoder.state_dict().keys() == {"projection.weight", "projection.bias"}
    Xavier()(encoder)
    for name, weight in encoder.model.named_parameters():
        assert weight.equal(bert.state_dict()[name]), name


def test_a_fine_tuned_encoder_has_a_learning_rate_of_its_own(folder: Path) -> None:
    config = typed(composed("model=attn"))
    encoder = encoder_of(folder, lr=5e-5).train()
    before = {name: weight.clone() for name, weight in encoder.model.named_parameters()}
    Xavier()(encoder)
    assert all(weight.equal(before[name]) for name, weight in encoder.model.named_parameters())
    assert all(module.training for module in encoder.model.modules())
    assert "model.embeddings.word_embeddings.weight" in encoder.state_dict()
    model = torch.nn.ModuleDict({"encoder": encoder, "readout": torch.nn.Linear(6, 2)})
    others, pretrained = build_optimizer(config, model).param_groups
    assert [*map(id, pretrained["params"])] == [*map(id, encoder.model.parameters())]
    assert (pretrained["lr"], len(others["params"])) == (5e-5, 4)


def test_the_gates_of_words_have_the_size_of_its_embeddings(folder: Path) -> None:
    words = ("task=classification", "encoder=pretrained", f"encoder.path={folder}", "pooling=attender")
    config = compose_run([*words, "model.embedding_size=5"]).config
    classifier = build_classifier(config, vocabulary=9, classes=2)
    assert classifier.encoder.embedding_size == classifier.pooling.layers.layers[0].input_size != 5
    assert classifier(batch_of([[4, 5]], [[4]])).logits_BC.shape == (1, 2)


def test_a_run_with_a_frozen_encoder_can_be_opened(folder: Path, tmp_path: Path) -> None:
    copy, target = shutil.copytree(folder, tmp_path / "bert"), tmp_path / "run"
    assert command_line.run(*LINE, f"encoder.path={copy}", f"hydra.run.dir={target}") == 0
    run = api.load(target)
    translated = [one.text for one in run.predict(["the dog sleeps."])]
    weights = checkpoint.best(target / "checkpoints") / "model.safetensors"
    assert weights.stat().st_size < (folder / "model.safetensors").stat().st_size
    lines = [
        json.loads(line) for line in (target / "translations.test.jsonl").read_text("utf-8").splitlines()
    ]
    again = run.predict([line["source"] for line in lines])
    assert [one.text for one in again] == [line["hypothesis"] for line in lines]
    assert run.predict(["the dog sleeps."])[0].text == translated[0]

    settings = json.loads((copy / "config.json").read_text("utf-8"))
    (copy / "config.json").write_text(json.dumps(settings | {"hidden_act": "relu"}), "utf-8")
    with pytest.raises(UserError, match=r"encoder\.path=.*changed"):
        api.load(target)
    assert command_line.run(f"resume={target}", "trainer.max_epochs=2") == 2
    shutil.rmtree(copy)
    with pytest.raises(UserError, match=r"encoder\.path"):
        api.load(target)


def test_a_killed_run_resumes_with_identical_losses(run: Path, folder: Path, tmp_path: Path) -> None:
    target, line = tmp_path / "run", (*LINE, f"encoder.path={folder}", "encoder.lr=0.01")
    command_line.run_until(2, *line, f"hydra.run.dir={target}")
    assert command_line.run(f"resume={target}") == 0
    assert losses_of(target) == losses_of(run)
    assert weights_of(target).keys() == weights_of(run).keys()
    assert all(weight.equal(weights_of(run)[name]) for name, weight in weights_of(target).items())


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(checkpoint.best(run / "checkpoints") / "model.safetensors")


@pytest.mark.slow  # starts two ranks
def test_two_ranks_compute_what_one_process_computes(run: Path, folder: Path, tmp_path: Path) -> None:
    two = tmp_path / "run"
    line = (*LINE, f"encoder.path={folder}", "encoder.lr=0.01", f"hydra.run.dir={two}", "trainer.devices=2")
    with forked_ranks():
        assert command_line.run(*line) == 0
    assert losses_of(two) == pytest.approx(losses_of(run), abs=1e-6)


def test_a_classifier_reads_the_embeddings_of_the_encoder(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "run"
    line = (
        "experiment=names",
        "encoder=pretrained",
        "dataset.names=80",
        "trainer.max_epochs=1",
        "pooling=attention",
    )
    assert command_line.run(*line, *MACHINE, *SIZES, f"encoder.path={folder}", f"hydra.run.dir={target}") == 0
    run = api.load(target)
    assert run.model.source_embedding is None
    (one,) = run.predict(["Maro"])
    assert one.tokens == ["", "M", "a", "r", "o", ""]  # [CLS] and [SEP] have no letters
    assert one.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize(("pairs", "length"), [("joined", 1 + 3 + 1 + 2 + 1), ("separate", 2 + 3 + 2 + 2)])
def test_a_classifier_reads_pairs(pairs: str, length: int, folder: Path, tmp_path: Path) -> None:
    sizes = ("dataset.pairs=60", "trainer.max_epochs=1", "model.hidden_size=8", "pooling=first")
    line = ("experiment=entailment", "encoder=pretrained", f"encoder.path={folder}", *sizes, *MACHINE)
    assert command_line.run(*line, f"task.pairs={pairs}", f"hydra.run.dir={tmp_path / 'run'}") == 0
    (one,) = api.load(tmp_path / "run").predict(["abc\tde"])
    letters = [token for token in one.tokens if token]
    assert (len(one.tokens), letters) == (length, [*"abcde"])
    assert len(one.weights) == length


def test_a_tagger_reads_the_first_subwords_of_words(folder: Path, tmp_path: Path) -> None:
    sizes = ("dataset.sentences=40", "dataset.max_depth=0", "trainer.max_epochs=1", "model.hidden_size=8")
    line = ("experiment=tagging", "encoder=pretrained", f"encoder.path={folder}", *sizes, *MACHINE)
    assert command_line.run(*line, f"hydra.run.dir={tmp_path / 'run'}") == 0
    run = api.load(tmp_path / "run")
    line_ids = run.task.encode(["il dort ."])
    assert int(line_ids.lengths[0]) == 2 + len("ildort.")  # [CLS], a subword per letter, [SEP]
    positions, _ = run.task.label(
        LabelledText(["il dort ."], ["PRON.sg VERB.sg PUNCT"]), line_ids, ""
    ).of_words(0)
    assert positions.tolist() == [1, 3, 7]
    (one,) = run.predict(["il dort ."])
    assert len(one.tags) == 3


def test_answers_are_words_of_the_text_that_the_encoder_reads(folder: Path, tmp_path: Path) -> None:
    sizes = ("dataset.questions=30", "trainer.max_steps=2", "model.hidden_size=8")
    line = ("experiment=span", "encoder=pretrained", f"encoder.path={folder}", *sizes, *MACHINE)
    assert command_line.run(*line, f"hydra.run.dir={tmp_path / 'run'}") == 0
    run = api.load(tmp_path / "run")
    text = "who runs ?\tAnn runs ."
    tokens = run.task.label(LabelledText([text], ['[["Ann", 0]]']), run.task.encode([text]), "")
    # [CLS] whoruns? [SEP] annruns. [SEP], a subword per letter and [UNK] for "?"
    assert (tokens.null.tolist(), tokens.last.tolist(), tokens.answer.tolist()) == ([9], [17], [[10, 12]])
    (one,) = run.predict([text])
    assert one.weights_2S.sum(1) == pytest.approx([1.0, 1.0])
    assert len(one.tokens) == one.weights_2S.shape[1] == 9


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (("encoder.path=nothing",), "encoder.path=nothing"),
        (("encoder.path=null",), "encoder.path"),
        (("tokenizer=bpe",), "tokenizer.joint"),
        (
            ("embedding.source.path=x", "embedding.source.frozen=true", "model.scale_embeddings=false"),
            "embedding.source",
        ),
        (("task=language_model",), "encoder"),
    ],
)
def test_what_does_not_fit_is_refused(
    settings: tuple[str, ...], key: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run("encoder=pretrained", f"encoder.path={folder}", "logger=none", *settings) == 2
    assert key in capsys.readouterr().err


def test_folders_that_cannot_be_used_are_refused(folder: Path, tmp_path: Path) -> None:
    def changed(name: str, **settings: Any) -> Path:
        copy = shutil.copytree(folder, tmp_path / name)
        config = json.loads((copy / "config.json").read_text("utf-8"))
        (copy / "config.json").write_text(json.dumps(config | settings), "utf-8")
        return copy

    code = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine", "AutoModel": "mine.Mine"}}
    own_code = changed("own_code", **code)
    (own_code / "mine.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')", "utf-8")
    pickled = changed("pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    larger = changed("larger", num_hidden_layers=3)
    added = changed("added")
    tokenizer = Tokenizer.from_file(str(added / "tokenizer.json"))
    tokenizer.add_tokens(["<speaker>"])  # without a row of the embeddings
    tokenizer.save(str(added / "tokenizer.json"))
    no_tokenizer = changed("no_tokenizer")
    (no_tokenizer / "tokenizer.json").write_text('{"version": "1.0"}', "utf-8")
    for copy in (own_code, pickled, larger, added, no_tokenizer, changed("decoder", is_encoder_decoder=True)):
        with pytest.raises(UserError, match=r"encoder\.path"):
            encoder_of(copy)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("Bert", {"max_position_embeddings": 6}), ("Roberta", {"max_position_embeddings": 8})],
)
def test_a_text_that_is_too_long_is_refused(kind: str, settings: dict[str, int], tmp_path: Path) -> None:
    """RoBERTa has no text at its positions 0 and 1."""
    encoder = encoder_of(save_tiny_bert(tmp_path, kind, **settings))
    with pytest.raises(UserError, match=r"reads 6 at most.*task\.max_length=4"):
        encoder.encode(batch_of([[4] * 5], [[4]]), encoder.embed)
    encoder.encode(batch_of([[4] * 4], [[4]]), encoder.embed)


def test_a_text_to_classify_that_is_too_long_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bert = save_tiny_bert(tmp_path / "bert", max_position_embeddings=20)
    for name in ("train", "validation", "test"):
        long = "the dog " * (9 if name == "test" else 1)
        (tmp_path / f"{name}.tsv").write_text("".join(f"{long}\t{label}\n" for label in ("yes", "no")))
    files = [f"dataset.{name}={tmp_path / name}.tsv" for name in ("train", "validation", "test")]
    line = ("task=classification", "dataset=labelled", "dataset.columns=[1,2]", "encoder=pretrained")
    settings = (f"encoder.path={bert}", "logger=none", f"hydra.run.dir={tmp_path / 'run'}")
    assert command_line.run(*line, *files, *settings) == 2
    assert "A text of test has " in capsys.readouterr().err


def test_the_error_names_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"seq2seq_lab\[pretrained\]"):
        encoder_of(folder)
