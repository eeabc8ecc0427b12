"""The demo run, and runs with its vocabulary and texts and another model."""

from dataclasses import replace
from functools import cache
from typing import Any

import torch
from small_models import small_config

import seq2seq_lab
from seq2seq_lab.models.seq2seq import build_seq2seq

SOURCES = [
    "the king sleeps.",
    "the white cow eats the apples.",
    "i do not see the old queen.",
    "where does the dog sleep?",
]
TARGETS = [
    "le roi dort.",
    "la vache blanche mange les pommes.",
    "je ne vois pas la vieille reine.",
    "où dort le chien ?",
]
# A small data set of the demo run, which is generated fast: 20 test sentences, whose influences are found fast.
DATA = [
    *("dataset.train=1", "dataset.validation=1", "dataset.test=20", "dataset.test_compositional=1"),
    "dataset.max_depth=1",
]


@cache
def demo() -> Any:
    return seq2seq_lab.load("demo")


def demo_with(decoder: str, attention: str, encoder: str = "bigru", seed: int = 0, **sizes: object) -> Any:
    """The demo run with a small model of random weights."""
    run = demo()
    torch.manual_seed(seed)
    config = small_config(encoder, decoder, attention, **{"encoder_hidden_size": 5, **sizes})
    pair = run.tokenizers
    model = build_seq2seq(config, pair.source.size, pair.target.size, pair.joint)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # predictions far from uniform
    return replace(run, model=model.eval())
