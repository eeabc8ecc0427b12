"""A check of the attributions of any task: gradients, occlusion and the program on one of its runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seq2seq_lab
from seq2seq_lab.analysis.attributions import Options, attribute, methods_of, quantity
from seq2seq_lab.analysis.questions import Question
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.launching.evaluation import read_data


def questions_of(folder: Path, count: int = 2) -> list[Question]:
    """The first examples of the test set; a model of texts in float64."""
    run = seq2seq_lab.load(folder, device="cpu")
    if run.reads == "lines":  # encoders of images compute in float32
        run.model.double()
    return [*map(run.questions(read_data(run, False).tests[0]), range(count))]


def value(one: Question, vectors_SE: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return quantity(one.log_probs(vectors_SE[None]), one, Options())[0].numpy()


def check_attributions(folder: Path, expected: set[str], capsys: pytest.CaptureFixture[str]) -> list[Any]:
    """Check the methods of a run, and return the questions."""
    questions = questions_of(folder)
    for one in questions:
        assert {*methods_of(one)} == expected
        found = attribute(one, methods_of(one))
        whole = value(one, one.vectors_SE)
        for name, attribution in found.items():
            assert attribution.scores_TU.shape == (one.steps, len(one.source_names)), name
            assert np.isfinite(attribution.scores_TU).all(), name
        unit = one.inner[len(one.inner) // 2]
        at = torch.from_numpy(one.source.of_token == unit)[:, None]
        without = value(one, one.vectors_SE.masked_fill(at, 0))
        np.testing.assert_allclose(found["occlusion"].scores_TU[:, unit], whole - without, atol=1e-5)
        step = 1e-6 if one.vectors_SE.dtype == torch.float64 else 1e-2
        moved = value(one, torch.where(at, one.vectors_SE * (1 + step), one.vectors_SE))
        slope = (moved - whole) / step
        np.testing.assert_allclose(found["grad_x_input"].scores_TU[:, unit], slope, rtol=1e-3, atol=1e-3)
        integrated = found["integrated_gradients"]
        assert ((integrated.gap_T <= 0.01) | (integrated.points_T == 256)).all()
    analyze.main(["attribute", str(folder), "--first", "2", "--format", "jsonl", "--methods", "occlusion"])
    *pairs, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert [pair["words"] for pair in pairs] == [one.source_names for one in questions]
    assert [pair["tokens"] for pair in pairs] == [one.target_names for one in questions]
    assert np.isfinite(last["means"]["occlusion"]["area"]["value"])
    return questions
