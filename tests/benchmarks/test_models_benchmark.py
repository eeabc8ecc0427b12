"""The benchmark of models: a row for each kind of work and model, on the same data."""

import shlex
from argparse import Namespace

import pytest
import torch

from benchmarks import cli, decoding, models
from seq2seq_lab.config.schema import Precision
from seq2seq_lab.errors import UserError

CPU = torch.device("cpu")
DATA = "dataset.train=60 dataset.validation=4 dataset.test=4 dataset.test_compositional=0"
TINY = f"{DATA} model.embedding_size=8 model.hidden_size=8 model.encoder_hidden_size=4 model.num_layers=1"


def options(*settings: str) -> Namespace:
    return Namespace(settings=[*settings], multi30k=None, batch_size=4, seed=1, rounds=1, batches=1)


def test_each_model_has_a_row_for_each_kind_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "choose_precision", lambda *_: Precision.fp32)  # it measures for seconds
    settings = (f"model=attn {TINY}", f"model=transformer {TINY} model.num_heads=2")
    rows = models.compare(options(*settings), CPU)["rows"]
    works = ["training, fp32", "greedy, fp32", "beam, fp32"]
    assert [(row["work"], row["settings"]) for row in rows] == [
        (work, name) for work in works for name in settings
    ]
    assert all(row["tokens_per_second"] > 0 for row in rows)
    assert [row["times_the_first"] for row in rows[::2]] == [1, 1, 1]


def test_the_recorded_command_parses_to_the_same_options() -> None:
    parser = models.new_parser()
    measured = parser.parse_args(["model=attn", "model=vanilla model.dropout=0", "--rounds", "3"])
    recorded = shlex.split(cli.command(parser, measured))
    assert recorded[:3] == ["python", "-m", "benchmarks.models"]
    assert parser.parse_args(recorded[3:]) == measured


def test_different_data_is_refused() -> None:
    with pytest.raises(UserError, match="dataset differs"):
        models.compare(options(f"model=attn {TINY}", f"model=attn {TINY} dataset.seed=7"), CPU)
