"""The training states that are nearest to a state."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from demo_models import SOURCES, TARGETS, demo, demo_with

from seq2seq_lab.analysis import neighbors as stored
from seq2seq_lab.analysis.neighbors import Store, selected
from seq2seq_lab.config import foreign
from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.tokenizers import SOS
from seq2seq_lab.errors import UserError
from seq2seq_lab.tasks.translation.task import TranslationTask

SENTENCE = "the white cow sleeps."


@pytest.fixture(autouse=True)
def four_pairs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The training data of the demo run are four pairs, and its cache is empty."""
    fingerprint = foreign.read_opened_record(demo().folder)["data"]["fingerprint"]
    monkeypatch.setattr(
        TranslationTask, "training_pairs", lambda task: (ParallelText(SOURCES, TARGETS), fingerprint)
    )
    monkeypatch.setenv("SEQ2SEQ_LAB_CACHE", str(tmp_path))


def test_the_search_is_exact() -> None:
    """Also where the rounding of the query to float16 changes the order."""
    torch.manual_seed(0)
    states_ND = torch.nn.functional.normalize(torch.randn(20_000, 16), dim=1).half()
    store = Store(states_ND, np.zeros((20_000, 4), np.int32), [("", "")], 20_000)
    for query_D in torch.randn(30, 16):
        expected_N = states_ND.float() @ torch.nn.functional.normalize(query_D, dim=0)
        order = expected_N.argsort(descending=True, stable=True)[:500].tolist()
        found = store.nearest(query_D, 500)
        assert [index for index, _ in found] == order
        assert [value for _, value in found] == pytest.approx(expected_N[order].tolist(), abs=1e-6)


@pytest.mark.parametrize("kind", stored.KINDS)
def test_neighbors_are_the_states_of_the_training_data(kind: stored.StateKind) -> None:
    run = demo()
    found = run.neighbors(SENTENCE, 2, kind, count=100)
    json.dumps(found.as_json(), allow_nan=False)
    state_D, names = state_of(run, SENTENCE, run.predict([SENTENCE])[0].text, kind)[2]
    expected = []
    for source, target in zip(SOURCES, TARGETS, strict=True):
        for position, (other_D, pair) in enumerate(state_of(run, source, target, kind)):
            similarity = torch.nn.functional.cosine_similarity(state_D, other_D, dim=0).item()
            expected.append((similarity, source, target, position, *pair))
    expected.sort(key=lambda one: -one[0])
    assert (found.word, found.next, found.states, found.limited) == (*names, len(expected), "")
    assert len(found.neighbors) == len(expected)
    assert [one.similarity for one in found.neighbors] == pytest.approx(
        [one[0] for one in expected], abs=2e-3
    )
    best, first = found.neighbors[0], expected[0]
    assert (best.source, best.target, best.position, best.word, best.next) == first[1:]
    same = [one.next == found.next for one in found.neighbors]
    assert [one.same_next for one in found.neighbors] == same
    assert found.same_next == pytest.approx(sum(same) / len(same))


def state_of(run: Any, source: str, target: str, kind: str) -> list[tuple[torch.Tensor, tuple[str, str]]]:
    """The states of a pair step by step, each with its token and the next one."""
    forced = run.forced([source], [target])
    (batch,) = map(forced.batch, forced.plan)
    tokenizers = run.tokenizers
    found = []
    with torch.no_grad():
        state, encoded = run.model.start(batch)
        if kind == "encoder":
            names = ["<sos>", *tokenizers.source.tokens(batch.source_BS[0, 1:-1].tolist()), "<eos>", ""]
            return [(one, (names[i], names[i + 1])) for i, one in enumerate(encoded.encoder_outputs_BSM[0])]
        names = ["<sos>", *tokenizers.target.tokens(batch.outputs_BT[0, :-1].tolist()), "<eos>"]
        for t, token in enumerate(batch.inputs_BT[0]):
            feature_1F, state, weights_1S = run.model.step_features(token[None], state, encoded)
            context_1M = torch.einsum("s,sm->m", weights_1S[0], encoded.encoder_outputs_BSM[0])[None]
            found.append(((feature_1F if kind == "decoder" else context_1M)[0], (names[t], names[t + 1])))
    assert batch.inputs_BT[0, 0] == SOS
    return found


def test_states_are_computed_once_for_a_checkpoint_and_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = demo()
    run.neighbors(SENTENCE, 1)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    run.neighbors(SENTENCE, 1)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == files
    assert {path.parents[2] for path in files} == {tmp_path / "demo"}
    other = replace(run, opening=replace(run.opening, checksums=("0" * 64,)))
    other.neighbors(SENTENCE, 1)
    assert len([*(tmp_path / "demo/states").iterdir()]) == 2
    monkeypatch.setattr(TranslationTask, "training_pairs", lambda task: (ParallelText([], []), "other"))
    with pytest.raises(UserError, match=r"data\.fingerprint"):
        replace(run, opening=replace(run.opening, checksums=("1" * 64,))).neighbors(SENTENCE, 1)


def test_a_limit_takes_evenly_spaced_sentences() -> None:
    found = demo().neighbors(SENTENCE, 1, limit=16)
    assert (
        found.limited == f"{found.states} of the {found.all_states} states of the training data are compared."
    )
    assert 0 < found.states <= 16 < found.all_states
    lengths = np.array([3, 5, 4, 6, 2, 5, 5, 3] * 50)
    chosen = selected(lengths, 400)
    assert 380 <= lengths[chosen].sum() <= 400
    assert np.diff(chosen).max() - np.diff(chosen).min() <= 1


def test_what_does_not_fit_is_refused() -> None:
    run = demo()
    for arguments, message in (
        ({"step": 99}, "step=99"),
        ({"step": 1, "state": "memory"}, "state=memory"),
        ({"step": 1, "count": 0}, "count=0"),
        ({"step": 1, "limit": 0}, "limit=0"),
        (
            {"step": 1, "limit": 2},
            "limit=2 is not allowed. Allowed: .* or more, the states of the first sentence",
        ),
    ):
        with pytest.raises(UserError, match=message):
            run.neighbors(SENTENCE, **arguments)
    with pytest.raises(UserError, match="no attention"):
        demo_with("plain", "none").neighbors(SENTENCE, 1, "context")


def test_a_trace_is_of_the_same_sentence_without_a_change() -> None:
    run, before = demo(), demo().trace(SENTENCE)
    assert run.neighbors(SENTENCE, 1, traced=before) == run.neighbors(SENTENCE, 1)
    with pytest.raises(UserError, match=r"^sentence=.*that of traced"):
        run.neighbors(SOURCES[0], 1, traced=before)
    with pytest.raises(UserError, match=r"^prefix=.*that of traced"):
        run.neighbors(SENTENCE, 1, traced=before, prefix="le")
    changed = run.trace(SENTENCE, change={"kind": "uniform", "step": 1}, before=before)
    with pytest.raises(UserError, match=r"^traced: .*changed attention weights"):
        run.neighbors(SENTENCE, 1, traced=changed)
