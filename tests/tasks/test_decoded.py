"""How outputs end, and which are the worst."""

import html
import json
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest

from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.metrics.degeneration import DecodedOutputs, Endings
from seq2seq_lab.metrics.texts import References
from seq2seq_lab.tasks.decoded import repeats_of, worst_outputs

# Of an untrained model; the limit of one token more than the source ends most outputs.
SMALL = (
    *("dataset.train=32", "dataset.validation=4", "dataset.test=8", "dataset.test_compositional=4"),
    *("trainer.max_steps=1", "model.hidden_size=8", "model.encoder_hidden_size=8", "model.embedding_size=8"),
    *("search.max_length_factor=1", "search.max_length_extra=1", "logger=none"),
)


def test_the_repeats_of_references_are_those_without_sos_and_eos() -> None:
    assert repeats_of(Ragged.of([[5, 5, 5], [], [7, 8, 7, 8, 9]])).tolist() == [3, 0, 2]


def test_the_worst_outputs_are_the_defective_ones_then_those_of_lowest_sentence_bleu() -> None:
    lines = ["a b c d e", "a b c x y", "a x x x e", "a b x y z", "a b c d"]
    outputs = DecodedOutputs(
        lines,
        References(["a b c d e"] * len(lines)),
        endings=Endings(
            np.array([1, 1, 3, 1, 1]), np.ones(5, int), np.array([True, True, True, True, False])
        ),
    )
    found = worst_outputs(outputs, count=4)
    assert [one.pair for one in found] == [2, 4, 3, 1]
    assert [(one.loop, one.at_limit) for one in found] == [
        (True, False),
        (False, True),
        *[(False, False)] * 2,
    ]
    assert len(worst_outputs(outputs, count=9)) == 4, (
        "an output that equals its reference is none of the worst"
    )


def test_a_run_records_its_worst_outputs_with_their_attention(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(*SMALL, f"hydra.run.dir={tmp_path}") == 0
    result: dict[str, Any] = json.loads((tmp_path / "result.json").read_text("utf-8"))
    translations = [
        json.loads(line) for line in (tmp_path / "translations.test.jsonl").read_text("utf-8").splitlines()
    ]
    assert result["test/at_limit"] > 0
    assert "val/worst_outputs" not in result
    for prefix in ("test", "test/compositional"):
        worst = result[f"{prefix}/worst_outputs"]
        assert len(worst) == 3
        assert worst[0]["at_limit"]
    for row in result["test/worst_outputs"]:
        assert row["hypothesis"] == translations[row["number"]]["hypothesis"]
        drawn = [json.loads(line) for line in (tmp_path / row["attention"]).read_text("utf-8").splitlines()]
        (own,) = [one for one in drawn if one["source"] == row["source"]]
        assert len(own["weights"]) == len(own["target_tokens"])
        np.testing.assert_allclose(np.array(own["weights"]).sum(1), 1, atol=0.05)
    assert (tmp_path / "attention/worst_1.png").stat().st_size > 0
    assert "at the length limit" in capsys.readouterr().out
    first, *_ = (tmp_path / "report.html").read_text("utf-8").split("<tbody>")[1].split("</tr>")
    assert result["test/worst_outputs"][0]["source"] in html.unescape(first)
    assert "ended by the length limit" in first
