"""The cache of generated corpora."""

from pathlib import Path
from typing import Any

import pytest

from seq2seq_lab.data import grammar
from seq2seq_lab.data.corpus import Corpus
from seq2seq_lab.data.grammar import Grammar, cache

ARGUMENTS: dict[str, Any] = {
    **{"train": 60, "validation": 5, "test": 5, "test_compositional": 5},
    **{"held_out_share": 0.1, "seed": 3, "max_depth": 3},
}


def load(**changes: Any) -> Corpus:
    return Grammar(**ARGUMENTS | changes).load()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQ2SEQ_LAB_CACHE", str(tmp_path))
    return tmp_path / "grammar"


def never(*_: object) -> None:
    raise AssertionError("it generates")


def test_a_corpus_from_the_cache_is_the_generated_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generated = load()
    (file,) = folder.iterdir()
    monkeypatch.setattr(grammar.Grammar, "_generate", never)
    assert load() == generated
    assert [*folder.iterdir()] == [file]
    assert [*generated.tests] == ["test", "test_compositional"]
    with pytest.raises(AssertionError, match="it generates"):
        load(seed=4)


def test_a_damaged_file_is_written_again(folder: Path) -> None:
    generated = load()
    (file,) = folder.iterdir()
    good = file.read_bytes()
    for damaged in (good[:-10], good.replace(b"the", b"teh", 1), b"", b"\xff"):
        file.write_bytes(damaged)
        assert load() == generated
        assert file.read_bytes() == good


def test_other_code_generates_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load()
    monkeypatch.setattr(cache, "_code", lambda: "other")
    load()
    assert len([*folder.iterdir()]) == 2


def test_a_cache_that_cannot_be_written_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setenv("SEQ2SEQ_LAB_CACHE", str(tmp_path / "file"))
    assert len(load().train) == 60
