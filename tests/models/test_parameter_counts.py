"""The numbers of parameters of the presets: published ones, and sums by formula."""

from pathlib import Path

import pytest
import torch
from hydra import compose

from seq2seq_lab.config.compose import composer
from seq2seq_lab.config.schema import Config, typed
from seq2seq_lab.data.tokenizers import fit_tokenizers
from seq2seq_lab.models.seq2seq import build_seq2seq
from seq2seq_lab.tasks.parts import build_dataset, build_tokenizer

GERMAN, ENGLISH = 7853, 5893


def composed(*overrides: str) -> Config:
    with composer():
        return typed(compose("config", [*overrides]))


def trainable(config: Config, source_vocabulary: int, target_vocabulary: int) -> int:
    with torch.device("meta"):
        model = build_seq2seq(config, source_vocabulary, target_vocabulary, joint=False)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


@pytest.mark.parametrize(
    ("experiment", "german", "expected"),
    [
        ("sutskever2014", 7854, 13_898_757),
        ("sutskever2014", GERMAN, 13_898_501),
        ("cho2014", GERMAN, 14_219_781),
        ("bahdanau2015", GERMAN, 20_518_405),
    ],
)
def test_published(experiment: str, german: int, expected: int) -> None:
    """The numbers are published with reimplementations of the papers and must not change."""
    assert trainable(composed(f"experiment={experiment}"), german, ENGLISH) == expected


@pytest.mark.corpora
def test_published_on_the_real_files(corpora: Path) -> None:
    config = composed("experiment=sutskever2014", f"dataset.path={corpora / 'multi30k'}")
    corpus = build_dataset(config).load()
    pair = fit_tokenizers(build_tokenizer(config), corpus.train, ("de", "en"))
    assert (pair.source.size, pair.target.size) == (GERMAN, ENGLISH)
    assert trainable(config, pair.source.size, pair.target.size) == 13_898_501


def linear(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def gru(inputs: int, size: int) -> int:
    """Three gates, each with two matrices and two biases, as in torch."""
    return 3 * size * (inputs + size + 2)


def lstm(inputs: int, size: int) -> int:
    return 4 * size * (inputs + size + 2)


V, W = 70, 50  # source and target types
LUONG = (
    256 * (V + W)
    + 2 * gru(256, 512)  # the encoder's directions
    + linear(1024, 512)  # the bridge
    + gru(256, 512)
    + 1024 * 512  # W of the bilinear score
    + (1024 + 512) * 512  # W_c
    + linear(512, W)
)
TUTORIAL = (
    256 * (V + W)
    + 2 * gru(256, 256)  # the copying bridge has none
    + (256 + 256) * (50 + 2)  # a score for each position, <sos> and <eos> among them
    + linear(256 + 256, 256)  # relu(W [e; c] + b)
    + linear(256, W)
)
TUTORIAL_PLAIN = 256 * (V + W) + 2 * gru(256, 256) + linear(256, W)
SHARED = 100 * (V + W) + 2 * lstm(100, 100) + linear(100, W)
# Both tables are frozen, and of the target's 300 numbers a projection makes 100.
SHARED_WITH_VECTORS = 300 * 100 + 2 * lstm(100, 100) + linear(100, W)
LIUM = (
    128 * (V + W)
    + 2 * 3 * 256 * (128 + 256 + 4)  # the encoder: no biases, but gains and biases of W x and of U h
    + linear(512, 256)  # the bridge
    + gru(128, 256)
    + linear(512, 512) + 256 * 512 + 512  # U and b, W, v
    + gru(512, 256)
    + linear(256 + 512 + 128, 128)
    + linear(128, W)
)  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["model=luong"], LUONG),
        (["model=luong_feeding"], LUONG + 3 * 512 * 512),  # the decoder reads s~ too
        (["model=luong", "encoder=lstm"], 256 * (V + W) + 2 * lstm(256, 512) + linear(512, 512)
         + 512 * 512 + 1024 * 512 + linear(512, W)),
        (["model=tutorial", "attention.max_length=50"], TUTORIAL),
        (["model=tutorial_plain"], TUTORIAL_PLAIN),
        (["model=shared"], SHARED),
        (["experiment=shared_lstm", "embedding.source.path=a", "embedding.target.path=b"], SHARED_WITH_VECTORS),
        (["model=lium"], LIUM),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_by_hand(overrides: list[str], expected: int) -> None:
    assert trainable(composed(*overrides), V, W) == expected


def test_luong_with_the_words_of_multi30k() -> None:
    """Not a published number: the size of the model that the benchmark compares with."""
    assert trainable(composed("experiment=luong2015"), GERMAN, ENGLISH) == 11_925_765
    assert LUONG + 256 * (GERMAN - V) + (256 + 513) * (ENGLISH - W) == 11_925_765
