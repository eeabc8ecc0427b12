"""Models of translation that are exported to a folder, with a program of plain PyTorch that translates with them."""

import ast
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_models import beam_search, small_bundle, small_config, small_model

import seq2seq_lab
from seq2seq_lab import predict
from seq2seq_lab.config.run_folders import DEMO_FOLDER
from seq2seq_lab.config.schema import Config
from seq2seq_lab.data.batching import BatchMaker, plan_evaluation
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import TokenizerPair, WhitespaceTokenizer, WordTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.tasks.translation.export import export

FILES = {"README.md", "config.json", "model.safetensors", "tokenizer.json", "translate.py"}
# A program in which the package cannot be imported.
ALONE = (
    "import runpy, sys; sys.modules['seq2seq_lab'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
)
TEXT = ["the king sleeps .", "l'homme (qui) dort.", "don't!", "the (king) can't dort ."] * 2
ABOUT = {"run": "a run", "checkpoint": "step_1", "languages": "en → fr"}
GREEDY = GreedySearch(0.0, 0.29, 4)  # 0.29 · 100 is 28.999999999999996 in floating point


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "new" / "folder"
    predict.main(["demo", "--export", str(folder), "--device=cpu"])
    return folder


def sentences(count: int) -> list[str]:
    lines = (DEMO_FOLDER / "translations.test.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["source"] for line in lines[:count]]


def translated_alone(folder: Path, data: bytes) -> list[str]:
    command = [sys.executable, "-c", ALONE, str(folder / "translate.py")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}  # the program writes UTF-8 in every locale
    ended = subprocess.run(
        command, input=data, capture_output=True, cwd=folder.parent, check=False, env=environment
    )
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode().split("\n")[:-1]


def test_the_program_translates_as_predict_does_without_the_package(
    exported: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = ["", " \t", "zebras ⟦∅⟧ sleep \u2028 .\x0b", "caf\u0065\u0301 .\r", "\ufeffthe king sleeps."]
    odd += ["the king's sad nurses, who sleep, do not see him!", " ".join(["the king sleeps."] * 10)]
    data = "\n".join([*sentences(50), *odd]).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    predict.main(["demo", "--device=cpu"])
    expected = capsys.readouterr().out.split("\n")[:-1]
    assert len({*expected}) > 40
    assert translated_alone(exported, data) == expected


def test_the_folder_is_complete_and_documented(exported: Path) -> None:
    assert {path.name for path in exported.iterdir()} == FILES
    assert [path.name for path in exported.parent.iterdir()] == [exported.name]  # nothing temporary
    text = (exported / "README.md").read_text("utf-8")
    assert all(f"`{name}`" in text for name in FILES - {"README.md"})
    assert "Run demo" in text
    for name in ("config", "tokenizer"):
        keys = json.loads((exported / f"{name}.json").read_text("utf-8")).keys() - ABOUT.keys()
        assert all(f"`{key}`" in text for key in keys)
    assert {weight.dtype for weight in load_file(exported / "model.safetensors").values()} == {torch.float32}


def test_the_program_is_forty_lines_of_plain_pytorch(exported: Path) -> None:
    text = (exported / "translate.py").read_text("utf-8")
    assert len(text.splitlines()) <= 40
    nodes = [*ast.walk(ast.parse(text))]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} - sys.stdlib_module_names == {
        "regex",
        "torch",
        "safetensors",
    }


def pair(joint: bool = True, tokenizer: type[Any] = WordTokenizer, **options: Any) -> TokenizerPair:
    one = tokenizer(joint=joint, lowercase=False, min_frequency=1, max_size=None, **options)
    one.train(TEXT)
    return TokenizerPair(one, one)


def program(folder: Path) -> Callable[[str], str]:
    """Return the function of an exported program."""
    spec = util.spec_from_file_location("exported_program", folder / "translate.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    translate: Callable[[str], str] = module.translate
    return translate


def test_the_program_reads_lines_as_predict_does(tmp_path: Path) -> None:
    one = WordTokenizer(joint=True, lowercase=False, min_frequency=1, max_size=None)
    one.train([*TEXT, "café"])
    export(
        small_model(small_config(), vocabulary=one.size).eval(),
        TokenizerPair(one, one),
        GREEDY,
        tmp_path / "folder",
        ABOUT,
    )
    composed, *same, other = translated_alone(
        tmp_path / "folder", "café\ncafe\u0301\n\ufeffcafé\ncafé\r\ncafe".encode()
    )
    assert same == [composed] * 3
    assert other != composed
    translate = program(tmp_path / "folder")
    assert translate("cafe\u0301") == translate("café") == composed


def projected() -> Config:
    config = small_config(scale_embeddings=True)
    config.embedding.source.size = 5
    return config


COVERED = {
    "default": lambda: small_bundle("attn", "bigru"),
    "two layers": lambda: small_bundle("attn", "bigru", num_layers=2),
    "one direction": lambda: small_bundle("attn", "gru", num_layers=2),
    "tied": lambda: small_bundle("attn", "bigru", tied_embeddings="all"),
    "projected embeddings": projected,
    "one network": lambda: small_bundle("attn", "gru", share_layers=True, num_layers=2),
}


@pytest.mark.parametrize("kind", COVERED)
def test_covered_models_translate_as_the_search_does(kind: str, tmp_path: Path) -> None:
    tokenizers = pair()
    model = small_model(COVERED[kind](), vocabulary=tokenizers.source.size).eval()
    with torch.no_grad():  # such that <pad> and <sos> are the most probable tokens
        model.readout.linear.bias[1:3] += 100  # type: ignore[union-attr, operator, index]
    export(model, tokenizers, GREEDY, tmp_path / "folder", ABOUT)
    translate = program(tmp_path / "folder")
    lines = [*dict.fromkeys(TEXT), " ".join(["king"] * 98)]
    for line in lines:
        text = TokenizedText(Ragged.of(tokenizers.source.encode([line])), Ragged.of([[]]))
        (batch,) = map(BatchMaker(text, torch.device("cpu")), plan_evaluation(text, 1))
        (((best, *_),)) = GREEDY(model, batch, False)
        assert translate(line) == tokenizers.target.decode(best.tokens)


def rectified() -> Any:
    config = small_config()
    config.decoder["rectified_input"] = True
    return config


REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "encoder.cell=lstm": ("encoder.cell=lstm", lambda: small_config(encoder="bilstm")),
    "encoder": ("encoder=ConvolutionalEncoder", lambda: small_bundle("attn", "convolutional", bridge="mean")),
    "subclass": ("encoder=LayerNormGruEncoder", lambda: small_config(encoder="bigru_layer_norm")),
    "reversed": ("model.reverse_source=true", lambda: small_bundle("attn", "gru", reverse_source=True)),
    "decoder": ("decoder=AttendBeforeDecoder", lambda: small_config(decoder="bahdanau")),
    "decoder.cell=lstm": ("decoder.cell=lstm", lambda: small_bundle("attn", "bigru", cell="lstm")),
    "feeding": ("decoder.input_feeding=true", lambda: small_config(decoder="luong_feeding")),
    "rectified": ("decoder.rectified_input=true", rectified),
    "attention": ("attention=CoverageAttention", lambda: small_config(attention="coverage")),
    "no attention": ("attention=NoAttention", lambda: small_config(attention="none")),
    "bridge": ("model.bridge=mean", lambda: small_bundle("attn", "bigru", bridge="mean")),
    "readout": ("readout=DeepReadout", lambda: small_config(readout="deep")),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_models_are_refused_before_anything_is_written(kind: str, tmp_path: Path) -> None:
    named, config = REFUSED[kind]
    model = small_model(config(), vocabulary=(tokenizers := pair()).source.size)
    with pytest.raises(UserError, match=f"{named} cannot be exported") as caught:
        export(model, tokenizers, GREEDY, tmp_path / "folder", ABOUT)
    assert "decoder=luong" in str(caught.value)
    assert not [*tmp_path.iterdir()]


def lowercased() -> TokenizerPair:
    one = WordTokenizer(joint=True, lowercase=True, min_frequency=1, max_size=None)
    one.train(TEXT)
    return TokenizerPair(one, one)


def of_rules_2() -> TokenizerPair:
    tokenizers = pair()
    tokenizers.source.rules = 2
    return tokenizers


def with_joiner() -> TokenizerPair:
    one = WordTokenizer(joint=True, lowercase=False, min_frequency=1, max_size=None)
    one.train([*TEXT, "a ￭ b"])
    return TokenizerPair(one, one)


@pytest.mark.parametrize(
    ("named", "tokenizers"),
    [
        ("tokenizer=WhitespaceTokenizer", lambda: pair(tokenizer=WhitespaceTokenizer)),
        ("tokenizer.lowercase=true", lowercased),
        ("earlier version", of_rules_2),
        ("U\\+FFED", with_joiner),
    ],
)
def test_other_tokenizers_are_refused(
    named: str, tokenizers: Callable[[], TokenizerPair], tmp_path: Path
) -> None:
    chosen = tokenizers()
    model = small_model(small_config(), vocabulary=chosen.source.size)
    with pytest.raises(UserError, match=named):
        export(model, chosen, GREEDY, tmp_path / "folder", ABOUT)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("named", "search"),
    [
        ("search=BeamSearch", beam_search(2)),
        ("search.min_length_factor=0.5", GreedySearch(0.5, 2.0, 10)),
    ],
)
def test_other_searches_are_refused(named: str, search: Any, tmp_path: Path) -> None:
    model = small_model(small_config(), vocabulary=(tokenizers := pair()).source.size)
    with pytest.raises(UserError, match=named):
        export(model, tokenizers, search, tmp_path / "folder", ABOUT)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["search=beam"], "search=BeamSearch"),
        (["--ensemble", "demo"], "an ensemble"),
        (["--scores"], "--scores"),
        (["--attention=a.png", "--max-tokens=5"], "--attention --max-tokens"),
        (["lines.txt"], "lines.txt"),
    ],
)
def test_options_and_files_are_refused(
    arguments: list[str],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines.txt").write_text("the king sleeps.\n", "utf-8")
    with pytest.raises(SystemExit):
        predict.main(["demo", "--export", "folder", "--device=cpu", *arguments])
    assert named in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["lines.txt"]


def test_an_existing_folder_is_not_changed(tmp_path: Path) -> None:
    run = seq2seq_lab.load("demo", device="cpu")
    with pytest.raises(UserError, match="already exists"):
        run.export(tmp_path)
    assert not [*tmp_path.iterdir()]
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(UserError, match="file"):
        run.export(tmp_path / "file" / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
