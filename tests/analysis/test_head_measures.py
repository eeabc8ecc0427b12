"""Measures of attention by layer and head: against a loop over tokens, and against those of an evaluation."""

import json
import math
from pathlib import Path

import pytest
import torch
from demo_models import DATA, SOURCES, TARGETS, demo_with

import seq2seq_lab
from seq2seq_lab.analysis.head_measures import measures_of_heads
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.errors import UserError


def test_each_layer_and_head_has_its_own_measures() -> None:
    run = demo_with("transformer", "scaled_dot", num_layers=2)
    layers, heads = run.model.decoder.heads
    found = {
        (one.layer, one.head): one.values
        for one in measures_of_heads(run.model, run.forced(SOURCES, TARGETS))
    }
    assert [*found] == [(layer, head) for layer in range(layers) for head in (None, *range(heads))]
    entropies: dict[tuple[int, int | None], list[float]] = {}
    for i in range(len(SOURCES)):  # one pair at a time: without padding
        forced = run.forced([SOURCES[i]], [TARGETS[i]])
        batch = forced.batch([0])
        with torch.no_grad():
            maps_LATS = run.model.attention_maps(batch, batch.inputs_BT)["cross"][0]
        for layer, maps_ATS in enumerate(maps_LATS):
            for head, weights_TS in [(None, maps_ATS.mean(0)), *enumerate(maps_ATS)]:
                for row in weights_TS.tolist():
                    entropy = -sum(weight * math.log(weight) for weight in row if weight)
                    entropies.setdefault((layer, head), []).append(entropy)
    for key, values in entropies.items():
        mean = found[key]["attention_entropy"]
        assert mean is not None
        assert mean.count == len(values)
        assert mean.value == pytest.approx(sum(values) / len(values), abs=1e-5)
    assert len({mean.value for values in found.values() if (mean := values["attention_entropy"])}) == len(
        found
    )


def test_without_heads_they_are_those_of_an_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    analyze.main(["measures", "demo", "--format", "jsonl", *DATA])  # settings after an option
    (line,) = capsys.readouterr().out.splitlines()
    values = json.loads(line)["values"]
    result = seq2seq_lab.load("demo", changes=DATA).evaluate(output=tmp_path / "evaluation")
    for name, mean in values.items():
        assert mean["value"] == pytest.approx(result[f"test/{name}"], abs=1e-5), name
    analyze.main(["measures", "demo", *DATA])
    assert f"{values['attention_entropy']['value']:.3f}" in capsys.readouterr().out


def test_a_model_without_attention_is_refused() -> None:
    run = demo_with("plain", "none")
    with pytest.raises(UserError, match="no attention to words"):
        measures_of_heads(run.model, run.forced(SOURCES, TARGETS))
