"""The profile of a few optimizer steps."""

import gzip
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import record_function

from seq2seq_lab.models.attention import NoAttention
from seq2seq_lab.models.decoders import AttendAfterDecoder
from seq2seq_lab.models.dropout import EmbeddingDropout
from seq2seq_lab.models.embedding import Embedding
from seq2seq_lab.models.encoders.base import NO_SOURCE
from seq2seq_lab.models.language_model import LanguageModel
from seq2seq_lab.models.readouts import LinearReadout
from seq2seq_lab.models.recurrent import RecurrentSpec
from seq2seq_lab.runtime.tables import time_table
from seq2seq_lab.training import profiling


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Linear(64, 64)

    def unroll(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(64, 64)
        self.decoder = Decoder()

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder.unroll(self.encoder(x))


def step(model: Model) -> None:
    with record_function("step"):
        with record_function("batch"):
            x = torch.ones(64, 64)
        with record_function("forward"):
            y = model(x).sum()
        with record_function("backward"):
            y.backward()
        with record_function("gradient norm"):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with record_function("optimizer"):
            model.zero_grad()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[str, float, float]]]:
    tables: list[list[tuple[str, float, float]]] = []
    table: Callable[..., object] = time_table

    def keep(title: str, what: str, rows: list[tuple[str, float, float]]) -> object:
        tables.append(list(rows))
        return table(title, what, rows)

    monkeypatch.setattr(profiling, "time_table", keep)
    return tables


@pytest.mark.parametrize("steps", [1, 5, 40])
def test_a_trace_and_the_parts_of_a_step(
    steps: int,
    said: list[list[tuple[str, float, float]]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Model()
    caplog.set_level(logging.INFO, "seq2seq_lab")
    with profiling.step_profile(model, tmp_path / "profile", torch.device("cpu"))(steps) as done:
        for _ in range(steps):
            step(model)
            done()
    parts, operations = said
    names = [name.strip() for name, _, _ in parts]
    assert {"batch", "forward", "encoder", "decoder.layers", "backward", "optimizer", "rest"} <= set(names)
    outer = [share for name, _, share in parts if not name.startswith(" ")]
    assert sum(outer) == pytest.approx(1.0)
    inner = {name.strip(): time for name, time, _ in parts}
    assert 0 < inner["encoder"] + inner["decoder.layers"] < inner["forward"]
    # A call of `step` has 2 linear layers forward.
    assert any(name == "aten::addmm (2 calls)" for name, _, _ in operations)
    with gzip.open(tmp_path / "profile/trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    counted = {1: 1, 5: 4, 40: profiling.STEPS}[steps]  # the one before them is the profiler's start
    assert sum(event.get("name") == "decoder.layers" and event["ph"] == "X" for event in events) == counted
    assert f"Trace of {counted} steps" in caplog.text


def test_the_layers_of_a_language_model_are_a_component() -> None:
    model = LanguageModel(
        target_embedding=Embedding(7, 3, 3, frozen=False),
        decoder=AttendAfterDecoder(
            input_size=3,
            encoder=NO_SOURCE,
            attention=NoAttention,
            recurrent=RecurrentSpec("gru", 4, 1, 0.0, False),
            attentional_size=None,
            input_feeding=False,
            rectified_input=False,
            bridge="zero",
            state_dropout=0.0,
        ),
        readout=LinearReadout(4, 7, None),
        dropout=EmbeddingDropout(0.0, locked=False, scale=1.0),
    )
    called = set()
    for name, module in profiling.components(model):
        module.register_forward_hook(lambda *_, name=name: called.add(name))
    model(torch.ones(2, 3, dtype=torch.long), None)
    assert {"target_embedding", "decoder.layers", "readout"} <= called


def test_nothing_is_left_on_the_model(tmp_path: Path) -> None:
    model = Model()

    def interrupted() -> None:
        with profiling.step_profile(model, tmp_path / "profile", torch.device("cpu"))(3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_no_profile_does_nothing() -> None:
    with profiling.no_profile(3) as done:
        done()
