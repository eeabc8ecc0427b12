"""Words and phones: the files, their errors, and a run with one tokenizer per side."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import seq2seq_lab
from seq2seq_lab.config.slots import check_slot
from seq2seq_lab.data.corpus import Corpus
from seq2seq_lab.data.g2p import GraphemeToPhoneme
from seq2seq_lab.data.tokenizers import CharTokenizer, CharWhitespaceTokenizer, TokenizerPair, fit_tokenizers
from seq2seq_lab.data.tokenizers.turns import TurnTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import KINDS

DEFAULTS = Path(__file__).parents[2] / "conf" / "dataset" / "g2p.yaml"
PHONES = {"a": "a", "b": "b ə", "c": "tʃ", "d": "d"}
SMALL = (
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=4", "trainer.max_epochs=1"),
    *("trainer.device=cpu", "trainer.threads=1", "logger=none"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two languages; the second one has no test file."""
    words = [left + right for left in "abcd" for right in "abcd"]
    for language, splits in (("xxx", ("train", "dev", "test")), ("yyy", ("train", "dev"))):
        for split, chosen in zip(splits, (words[:10], words[10:13], words[13:]), strict=False):
            (tmp_path / split).mkdir(exist_ok=True)
            lines = "".join(f"{word}\t{' '.join(PHONES[letter] for letter in word)}\n" for word in chosen)
            (tmp_path / split / f"{language}_{split}.tsv").write_text(lines, encoding="utf-8")
    return tmp_path


def g2p(folder: Path, **changes: Any) -> Corpus:
    """Load the corpus with the defaults of the YAML file."""
    settings = {"path": str(folder), "language": "xxx"} | changes
    arguments: Any = OmegaConf.to_container(OmegaConf.load(DEFAULTS)) | settings  # type: ignore[operator]
    check_slot("dataset", arguments, KINDS)
    assert arguments.pop("_target_") == f"{GraphemeToPhoneme.__module__}.{GraphemeToPhoneme.__name__}"
    return GraphemeToPhoneme(**arguments).load()


def test_the_files_of_a_language_are_the_splits(folder: Path) -> None:
    corpus = g2p(folder)
    assert {name: len(text) for name, text in corpus.splits.items()} == {
        "train": 10,
        "validation": 3,
        "test": 3,
    }
    assert [corpus.train.source[1], corpus.train.target[1]] == ["ab", "a b ə"]
    assert (corpus.source_language, corpus.target_language) == ("xxx", "phones")
    file = folder / "dev" / "xxx_dev.tsv"
    file.with_name("xxx_dev.tsv.gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    assert g2p(folder).validation == corpus.validation


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"language": "xxy"}, "dataset.language=xxy.*Did you mean.*Values: xxx, yyy"),
        ({"language": "yyy"}, "dataset.language=yyy.*Values: xxx"),
        ({"path": "missing"}, "dataset.path=missing"),
    ],
)
def test_an_error_names_the_setting(folder: Path, changes: dict[str, str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        g2p(folder, **changes)


def test_bad_lines_are_refused_or_dropped(folder: Path) -> None:
    file = folder / "train" / "xxx_train.tsv"
    file.write_text(file.read_text("utf-8") + "word\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"xxx_train\.tsv line 11"):
        g2p(folder)
    assert len(g2p(folder, on_bad_pair="drop").train) == 10
    file.write_text("")
    with pytest.raises(UserError, match=r"xxx_train\.tsv"):
        g2p(folder)


def test_swapped_columns_are_refused(folder: Path) -> None:
    file = folder / "train" / "xxx_train.tsv"
    rows = [line.split("\t") for line in file.read_text("utf-8").splitlines()]
    file.write_text("".join(f"{phones}\t{word}\n" for word, phones in rows), encoding="utf-8")
    with pytest.raises(UserError, match=r"dataset\.path=.*swapped"):
        g2p(folder)


def make() -> CharWhitespaceTokenizer:
    return CharWhitespaceTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=None)


def test_the_sides_have_different_tokens(folder: Path, tmp_path: Path) -> None:
    corpus = g2p(folder)
    pair = fit_tokenizers(make, corpus.train, ("xxx", "phones"), make().of_source())
    assert isinstance(pair.source, CharTokenizer)
    assert isinstance(pair.target, CharWhitespaceTokenizer)
    assert pair.source.tokens(pair.source.encode(["cab"])[0]) == ["c", "a", "b"]
    (ids,) = pair.target.encode(["tʃ a b ə"])
    assert pair.target.tokens(ids) == ["tʃ", "a", "b", "ə"]
    assert pair.target.decode(ids) == "tʃ a b ə"
    pair.save(tmp_path / "tokenizer")
    loaded = TokenizerPair.load(tmp_path / "tokenizer")
    assert (type(loaded.source), type(loaded.target)) == (CharTokenizer, CharWhitespaceTokenizer)
    assert loaded.source.encode(["cab"]) == pair.source.encode(["cab"])


def test_turns_have_one_tokenizer() -> None:
    with pytest.raises(UserError, match=r"tokenizer\._target_="):
        TurnTokenizer.of(make())


def test_a_shared_vocabulary_of_different_tokens_is_refused(folder: Path, tmp_path: Path) -> None:
    settings = ("experiment=g2p", f"dataset.path={folder}", "dataset.language=xxx", "tokenizer.joint=true")
    with pytest.raises(UserError, match=r"tokenizer\.joint=true"):
        seq2seq_lab.train([*settings, *SMALL], tmp_path / "run")


def test_a_run_reads_letters_and_writes_phones(folder: Path, tmp_path: Path) -> None:
    settings = ("experiment=g2p", f"dataset.path={folder}", "dataset.language=xxx", *SMALL)
    run = seq2seq_lab.train(settings, tmp_path / "run")
    options = {
        side: json.loads((run.folder / f"tokenizer/{side}.options.json").read_text())
        for side in ("source", "target")
    }
    assert options["source"]["class"].endswith(".CharTokenizer")
    assert options["target"]["class"].endswith(".CharWhitespaceTokenizer")
    result = json.loads((run.folder / "result.json").read_text())
    assert 0 <= result["test/wer"] <= 1
    assert result["test/per"] >= 0
    (output,) = run.predict(["cab"])
    assert set(output.text.split()) <= {"a", "b", "ə", "tʃ", "d", "⁇"}
    # A run that starts from it has the same vocabularies.
    again = seq2seq_lab.train([*settings, f"init_from={run.folder}"], tmp_path / "again")
    for name in ("source", "target"):
        paths = [folder / f"tokenizer/{name}.json" for folder in (run.folder, again.folder)]
        assert paths[0].read_text() == paths[1].read_text()
