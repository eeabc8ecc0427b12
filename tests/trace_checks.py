"""Checks of a traced search that hold for runs of every task that decodes."""

import json
from typing import Any

import pytest

from seq2seq_lab.analysis.traced import Traced


def check_trace(run: Any, given: str, best: Any) -> Traced:
    """Check the trace of an input against `best`, the prediction of the run for it; return the trace."""
    traced: Traced = run.trace(given)
    json.dumps(traced.as_json(), allow_nan=False)
    assert (traced.best.text, traced.best.score) == (best.text, best.score)
    finished = [node.output for node in traced.tree if node.state == "finished"]
    assert sorted(finished) == [*range(len(traced.outputs))]
    assert sum(traced.best.log_probs) == pytest.approx(traced.best.log_prob, abs=1e-4)
    assert [step.token for step in traced.steps] == [token.id for token in traced.best.tokens]
    again = run.trace(given, [token.id for token in traced.best.tokens])
    assert again.best.text == traced.best.text
    assert again.best.log_probs == pytest.approx(traced.best.log_probs, abs=1e-4)
    assert len(run.alternatives(traced, 1)) == len(traced.steps[1].top)
    return traced
