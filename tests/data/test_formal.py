"""Formal languages: targets, lengths and splits."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from seq2seq_lab.config.slots import check_slot
from seq2seq_lab.data.corpus import Corpus
from seq2seq_lab.data.formal import Formal
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import KINDS

DEFAULTS = Path(__file__).parents[2] / "conf" / "dataset" / "formal.yaml"
SIZES = {"train": 900, "validation": 80, "test": 70, "test_longer": 60}


def formal(**changes: Any) -> Corpus:
    """Load a small corpus, otherwise with the defaults of the YAML file."""
    arguments: Any = OmegaConf.to_container(OmegaConf.load(DEFAULTS)) | SIZES | changes  # type: ignore[operator]
    check_slot("dataset", arguments, KINDS)
    assert arguments.pop("_target_") == f"{Formal.__module__}.{Formal.__name__}"
    return Formal(**arguments).load()


@pytest.mark.parametrize("language", ["copy", "reversal", "counting"])
def test_the_target_follows_from_the_source(language: str) -> None:
    corpus = formal(language=language)
    assert {name: len(text) for name, text in corpus.splits.items()} == SIZES
    for text in corpus.splits.values():
        for source, target in zip(text.source, text.target, strict=True):
            letters = source.split()
            if language == "counting":
                assert set(letters) == {"a"}
                assert target == " ".join("b" * len(letters))
            else:
                assert target == " ".join(letters if language == "copy" else reversed(letters))
                assert set(letters) <= set("abcdefgh")


@pytest.mark.parametrize("language", ["reversal", "counting"])
def test_only_the_last_test_set_has_greater_lengths(language: str) -> None:
    corpus = formal(language=language, longest=7, longest_test=10, symbols=6)
    for name, text in corpus.splits.items():
        lengths = Counter(length for length, _ in text.lengths or ())
        assert set(lengths) <= ({8, 9, 10} if name == "test_longer" else set(range(1, 8)))
        assert lengths == Counter(len(source.split()) for source in text.source)
        if name in ("train", "test_longer"):
            assert max(lengths.values()) < 2 * lengths[max(lengths)]
    if language == "counting":
        assert set(corpus.validation.source) == set(corpus.train.source)


def test_sources_of_different_splits_are_different() -> None:
    corpus = formal(language="copy")
    sources = [source for text in corpus.splits.values() for source in text.source]
    assert len(set(sources)) == len(sources)
    assert formal(language="copy").splits == corpus.splits
    assert formal(language="copy", seed=2).train != corpus.train


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"longest": 20, "longest_test": 20}, "dataset.longest_test=20"),
        ({"language": "copy", "symbols": 2, "longest": 5}, "dataset.train=900"),
        ({"language": "copy", "symbols": 1, "longest": 2100, "longest_test": 2110}, "dataset.test_longer=60"),
        ({"symbols": 27}, "dataset.symbols=27"),
        ({"language": "count"}, "dataset.language=count"),
    ],
)
def test_an_error_names_the_setting(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        formal(**changes)
