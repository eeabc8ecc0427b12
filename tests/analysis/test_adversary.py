"""Other attention weights with the same prediction."""

import json
import math

import numpy as np
import pytest
import torch
from demo_models import DATA, SOURCES, TARGETS, demo, demo_with
from torch import Tensor

from seq2seq_lab.analysis.adversary import Adversary, disagreements
from seq2seq_lab.analysis.changes import ChangedModel, Rows, keep
from seq2seq_lab.analyze import __main__ as analyze

MODELS = [
    *(("luong", "additive"), ("luong_feeding", "coverage"), ("bahdanau", "additive")),
    *(("conditional", "location_sensitive"), ("transformer", "scaled_dot")),
]
SETTINGS = {"layer": None, "head": None, "seen": True}


def slow_divergence(p: Tensor, q: Tensor) -> float:
    pairs = [*zip(p.double().tolist(), q.double().tolist(), strict=True)]
    return sum(
        one / 2 * math.log(2 * one / (one + other))
        for p, q in pairs
        for one, other in ((p, q), (q, p))
        if one
    )


@pytest.mark.parametrize(("decoder", "attention"), MODELS)
def test_the_weights_that_are_found_keep_the_prediction(decoder: str, attention: str) -> None:
    run = demo_with(decoder, attention)
    batch = run.forced(SOURCES[:3], TARGETS[:3]).batch(torch.arange(3))
    plain = ChangedModel(run.model, keep)
    with torch.no_grad():
        state, source = plain.start(batch)
        _, state, _ = plain.step(batch.inputs_BT[:, 0], state, source)
        token_B = batch.inputs_BT[:, 1]
        log_p_BV, _, _ = plain.step(token_B, state, source)
    search = Adversary(run.model, token_B, state, source, log_p_BV, 1, SETTINGS)
    divergence_B, variation_B, other_CBS = search.search(0.01, 60)
    unchanged: list[Tensor] = []

    def exchange(weights_BS: Tensor, rows: Rows) -> Tensor:
        unchanged.append(weights_BS)
        return other_CBS[rows.call]

    with torch.no_grad():
        log_q_BV, _, _ = ChangedModel(run.model, exchange).step(token_B, state, source)
    assert len(unchanged) == len(other_CBS) == (2 if decoder == "transformer" else 1)
    np.testing.assert_allclose(other_CBS.sum(2), 1, atol=1e-6)
    for row, length in enumerate(source.lengths_B.tolist()):
        assert not other_CBS[:, row, length:].any()
        moved = float((log_p_BV[row].double().exp() - log_q_BV[row].double().exp()).abs().sum() / 2)
        assert moved == pytest.approx(float(variation_B[row]), abs=1e-5)
        assert moved <= 0.01 + 1e-5
        apart = [slow_divergence(p[row], q[row]) for p, q in zip(unchanged, other_CBS, strict=True)]
        assert np.mean(apart) == pytest.approx(float(divergence_B[row]), abs=1e-5)
        assert divergence_B[row] > 0.01


def test_where_the_prediction_needs_no_attention_the_largest_divergence_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The divergence of α and α̃ is convex in α̃: it is largest where α̃ has one weight."""
    run = demo()
    batch = run.forced(SOURCES[:2], TARGETS[:2]).batch(torch.arange(2))
    plain = ChangedModel(run.model, keep)
    state, source = plain.start(batch)
    log_p_BV, _, weights_BS = plain.step(batch.inputs_BT[:, 0], state, source)
    assert weights_BS is not None
    search = Adversary(run.model, batch.inputs_BT[:, 0], state, source, log_p_BV.detach(), 1, SETTINGS)
    without = search.log_probs_MV + 0 * search.first_logits_CMS.sum()
    monkeypatch.setattr(search, "_log_probs", lambda kind: without)
    divergence_B, variation_B, _ = search.search(0.01, 300)
    assert not variation_B.any()
    for row, length in enumerate(source.lengths_B.tolist()):
        largest = max(
            slow_divergence(weights_BS[row], one) for one in torch.eye(weights_BS.shape[1])[:length]
        )
        assert float(divergence_B[row]) == pytest.approx(largest, rel=0.01)


def test_a_pair_alone_has_the_divergences_that_it_has_among_others() -> None:
    run = demo_with("bahdanau", "additive")
    found = []
    for count in (1, 3):
        forced = run.forced(SOURCES[:count], TARGETS[:count])
        batch = forced.batch(forced.plan[0])
        state, source = ChangedModel(run.model, keep).start(batch)
        token_B = batch.inputs_BT[:, 0]
        log_p_BV, _, _ = ChangedModel(run.model, keep).step(token_B, state, source)
        search = Adversary(run.model, token_B, state, source, log_p_BV.detach(), 1, SETTINGS)
        found.append(search.search(0.01, 20)[0][0])
    assert float(found[0]) == pytest.approx(float(found[1]), abs=1e-4)


def test_the_classes_are_parts_of_the_whole() -> None:
    run = demo()
    counts = []
    forced = run.forced(SOURCES[:2], TARGETS[:2])
    every, *classes = disagreements(
        run.model, forced, steps=5, counted=lambda done, total: counts.append((done, total))
    )
    tokens = [len(forced.tokenizer.spans(line)) + 1 for line in TARGETS[:2]]
    assert every.tokens == sum(one.tokens for one in classes) == sum(tokens)
    assert [one.word_class for one in classes] == ["punctuation", "end", "other"]
    assert sum(one.tokens * one.divergence for one in classes) == pytest.approx(
        every.tokens * every.divergence
    )
    assert sum(tokens for _, _, tokens, _ in every.by_largest) == every.tokens
    assert counts == [(step + 1, max(tokens)) for step in range(max(tokens))]


def test_the_program_prints_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["adversary", "demo", *DATA, "--first", "1", "--steps", "3"]
    analyze.main([*line, "--format", "jsonl"])
    found = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    assert {"content", "function", "end"} < {one["word_class"] for one in found}
    analyze.main(line)
    printed = capsys.readouterr().out
    for one in found:
        assert f"{one['divergence']:.3f} ±" in printed
    for wrong in (["--limit", "1.5"], ["--steps", "0"], ["--precision", "bf16"], ["--head", "1"]):
        with pytest.raises(SystemExit):
            analyze.main([*line, *wrong])
        assert wrong[0].lstrip("-") in capsys.readouterr().err
