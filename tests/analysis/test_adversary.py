"""Other attention weights with the same prediction."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from demo_models import DATA, SOURCES, TARGETS, demo, demo_with
from torch import Tensor

import seq2seq_lab
from seq2seq_lab.analysis.adversary import Adversary, adversarial_attention
from seq2seq_lab.analysis.changes import ChangedModel, Rows, keep
from seq2seq_lab.analyze import __main__ as analyze

MODELS = [
    *(("luong", "additive"), ("luong_feeding", "coverage"), ("bahdanau", "additive")),
    *(("conditional", "location_sensitive"), ("transformer", "scaled_dot"), ("luong", "local")),
]


def slow_divergence(p: Tensor, q: Tensor) -> float:
    pairs = [*zip(p.double().tolist(), q.double().tolist(), strict=True)]
    return sum(
        one / 2 * math.log(2 * one / (one + other))
        for p, q in pairs
        for one, other in ((p, q), (q, p))
        if one
    )


def searched(run: Any, count: int, step: int = 0, **options: int) -> tuple[Adversary, Tensor, Any, Any]:
    """Return the search for one step of the first pairs, with the token, the state and the source of this step."""
    forced = run.forced(SOURCES[:count], TARGETS[:count])
    batch = forced.batch(forced.plan[0])
    plain = ChangedModel(run.model, keep)
    with torch.no_grad():
        state, source = plain.start(batch)
        for token_B in batch.inputs_BT.unbind(1)[: step + 1]:
            before = state
            log_probs_BV, state, _ = plain.step(token_B, before, source)
    search = Adversary(
        run.model,
        token_N=token_B,
        state=before,
        source=source,
        log_probs_NV=log_probs_BV,
        seed=1,
        options=options,
    )
    return search, token_B, before, source


@pytest.mark.parametrize(
    ("decoder", "attention", "limit"), [*((*one, 0.01) for one in MODELS), (*MODELS[0], 0.1)]
)
def test_the_weights_that_are_found_keep_the_prediction(decoder: str, attention: str, limit: float) -> None:
    run = demo_with(decoder, attention)
    adversary, token_B, state, source = searched(run, 3, step=1)
    divergence_B, variation_B, other_CBS = adversary.search(limit, 60)
    unchanged: list[Tensor] = []

    def exchange(weights_BS: Tensor, rows: Rows) -> Tensor:
        unchanged.append(weights_BS)
        return other_CBS[rows.call]

    with torch.no_grad():
        before_BV, _, _ = ChangedModel(run.model, keep).step(token_B, state, source)
        after_BV, _, _ = ChangedModel(run.model, exchange).step(token_B, state, source)
    assert len(unchanged) == len(other_CBS) == (2 if decoder == "transformer" else 1)
    unchanged_CBS = torch.stack(unchanged)
    np.testing.assert_allclose(other_CBS.sum(2), unchanged_CBS.sum(2), atol=1e-6)
    np.testing.assert_allclose(adversary.largest_N, unchanged_CBS.amax(2).mean(0), atol=1e-6)
    for row, length in enumerate(source.lengths_B.tolist()):
        assert not other_CBS[:, row, length:].any()
        moved = float((before_BV[row].double().exp() - after_BV[row].double().exp()).abs().sum() / 2)
        assert moved == pytest.approx(float(variation_B[row]), abs=1e-5)
        assert moved <= limit + 1e-5
        shares = ([one[row] / one[row].sum() for one in each] for each in (unchanged, other_CBS))
        apart = [slow_divergence(p, q) for p, q in zip(*shares, strict=True)]
        assert np.mean(apart) == pytest.approx(float(divergence_B[row]), abs=1e-5)
        assert divergence_B[row] > limit / 2


def test_one_head_is_changed() -> None:
    run = demo_with("transformer", "scaled_dot")
    both, one = searched(run, 2)[0], searched(run, 2, head=1)[0]
    assert torch.equal(one.weights_CMS, both.weights_CMS[1:])


def test_where_the_prediction_needs_no_attention_the_largest_divergence_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The divergence of α and α̃ is convex in α̃: it is largest where α̃ has one weight."""
    adversary, _, _, source = searched(demo(), 2)
    monkeypatch.setattr(adversary, "_probs", lambda kind: adversary.probs_MV)
    divergence_B, variation_B, _ = adversary.search(0.01, 300)
    assert not variation_B.any()
    for row, length in enumerate(source.lengths_B.tolist()):
        weights_S = adversary.weights_CMS[0, row]
        largest = max(slow_divergence(weights_S, one) for one in torch.eye(len(weights_S))[:length])
        assert float(divergence_B[row]) == pytest.approx(largest, rel=0.01)


def test_a_pair_alone_has_the_divergences_that_it_has_among_others() -> None:
    run = demo_with("bahdanau", "additive")
    alone, among = (searched(run, count)[0].search(0.01, 20)[0][0] for count in (1, 3))
    assert float(alone) == pytest.approx(float(among), abs=1e-4)


def test_the_classes_are_parts_of_the_whole() -> None:
    run = demo()
    counts = []
    forced = run.forced(SOURCES[:2], TARGETS[:2])
    every, *classes = adversarial_attention(
        run.model, forced, limit=0.01, steps=5, counted=lambda done, total: counts.append((done, total))
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
        assert one["confidence"] is None  # of one sentence
        assert f"{one['divergence']:.3f} │" in printed
    for wrong, message in {
        ("--limit", "1.5"): "--limit=1.5",
        ("--steps", "0"): "--steps=0",
        ("--precision", "bf16"): "--precision=bf16",
        ("--head", "1"): "head=1",
    }.items():
        with pytest.raises(SystemExit):
            analyze.main([*line, *wrong])
        assert message in capsys.readouterr().err


def test_a_run_without_pairs_of_texts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("dataset.train=40", "dataset.validation=8", "dataset.test=8", "model.num_layers=1")
    settings = (
        "task=language_model",
        *sizes,
        "trainer.fast_dev_run=true",
        "trainer.device=cpu",
        "logger=none",
    )
    run = seq2seq_lab.train(settings, tmp_path / "run")
    for question in ("adversary", "intervene"):
        with pytest.raises(SystemExit):
            analyze.main([question, str(run.folder), "--first", "1"])
        assert f"{question} needs pairs of texts" in capsys.readouterr().err
