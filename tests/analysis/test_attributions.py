"""Attributions against finite differences, captum and their definitions, and the measures of faithfulness."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from demo_models import DATA, SOURCES, TARGETS, demo, demo_with
from scipy.stats import kendalltau
from torch import nn

from seq2seq_lab import analysis
from seq2seq_lab.analysis.attributions import METHODS, Attribution, Options, attribute, quantity, runner_up
from seq2seq_lab.analysis.comparison import ABOUT_INSENSITIVE, GREEDY, RANDOM, explain, insensitive, means
from seq2seq_lab.analysis.faithfulness import (
    PERCENTS,
    RANDOM_ORDERS,
    Deletions,
    faithfulness,
    rank_correlation,
)
from seq2seq_lab.analysis.questions import Question, ask, ask_class, source_units
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.analyze import page
from seq2seq_lab.analyze.page import Drawing
from seq2seq_lab.config.compose import compose, composer
from seq2seq_lab.config.job_hash import without_hydra
from seq2seq_lab.config.schema import typed
from seq2seq_lab.data.corpus import Gold
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.attention import Units
from seq2seq_lab.models.classifier import build_classifier
from seq2seq_lab.plots.attributions import draw_agreement
from seq2seq_lab.runtime.tables import TextTable

DECODERS = ["luong", "luong_feeding", "bahdanau", "conditional", "transformer"]
each_decoder = pytest.mark.parametrize("decoder", DECODERS)


def double(run: Any) -> Any:
    run.model.double()
    return run


def question(decoder: str = "luong", index: int = 1, attention: str = "additive") -> Question:
    run = double(demo_with(decoder, attention))
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.div_(2)
    return ask(run.model, run.forced(SOURCES, TARGETS), index)


def values(one: Question, vectors_SE: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return quantity(one.log_probs(vectors_SE[None]), one, Options())[0]


@each_decoder
def test_gradients_equal_finite_differences(decoder: str) -> None:
    one = question(decoder)
    found = attribute(one, ["grad_x_input", "grad_norm"])
    step = 1e-6
    rng = np.random.default_rng(0)
    for unit in rng.choice(len(one.source.is_word), 3, replace=False):
        columns = []
        for position in np.flatnonzero(one.source.of_token == unit):
            for dimension in range(one.vectors_SE.shape[1]):
                moved = one.vectors_SE.clone()
                moved[position, dimension] += step
                columns.append(
                    (position, dimension, (values(one, moved) - values(one, one.vectors_SE)) / step)
                )
        product = sum(one.vectors_SE[s, e] * slope for s, e, slope in columns)
        norm = sum(slope**2 for _, _, slope in columns) ** 0.5
        np.testing.assert_allclose(found["grad_x_input"].scores_TU[:, unit], product, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(found["grad_norm"].scores_TU[:, unit], norm, rtol=1e-3, atol=1e-5)


@each_decoder
def test_occlusion_is_the_difference_without_a_unit(decoder: str) -> None:
    one = question(decoder)
    found = attribute(one, ["occlusion", "occlusion_unknown", "occlusion_removed"])
    whole = values(one, one.vectors_SE)
    for unit in range(len(one.source.is_word)):
        at = torch.from_numpy(one.source.of_token == unit)
        for name, filler in (
            ("occlusion", torch.zeros_like(one.unknown_E)),
            ("occlusion_unknown", one.unknown_E),
        ):
            changed = torch.where(at[:, None], filler, one.vectors_SE)
            np.testing.assert_allclose(
                found[name].scores_TU[:, unit], whole - values(one, changed), atol=1e-10
            )
    run = double(demo_with(decoder, "additive"))
    run.model.load_state_dict(one.model.state_dict())
    source = SOURCES[1].replace("white ", "")
    (shorter,) = run.score([source], [TARGETS[1]])
    (plain,) = run.score([SOURCES[1]], [TARGETS[1]])
    words = SOURCES[1].split()
    np.testing.assert_allclose(
        found["occlusion_removed"].scores_TU[:, 1 + words.index("white")],
        plain.log_probs - shorter.log_probs,
        atol=1e-6,
    )


@each_decoder
@pytest.mark.parametrize("baseline", ["integrated_gradients", "integrated_gradients_unknown"])
def test_integrated_gradients_are_complete(decoder: str, baseline: str) -> None:
    one = question(decoder)
    found = attribute(one, [baseline])[baseline]
    other = torch.zeros_like(one.vectors_SE)
    if baseline.endswith("unknown"):
        other = one.vectors_SE.clone()
        other[1:-1] = one.unknown_E
    difference = (values(one, one.vectors_SE) - values(one, other)).numpy()
    gap = abs(found.scores_TU.sum(1) - difference) / np.maximum(abs(difference), 0.1)
    np.testing.assert_allclose(found.gap_T, gap, atol=1e-10)
    assert ((gap <= 0.01) | (found.points_T == 256)).all()
    assert {*found.points_T.tolist()} <= {16, 32, 64, 128, 256}


class OfRow(nn.Module):
    """log p of one row as a function of the vectors, as captum takes it."""

    def __init__(self, one: Question, row: int) -> None:
        super().__init__()
        self.one, self.row = one, row

    def forward(self, vectors_NSE: torch.Tensor) -> torch.Tensor:
        return quantity(self.one.log_probs(vectors_NSE), self.one, Options())[:, self.row]


@pytest.mark.parametrize("decoder", ["luong", "transformer"])
def test_gradients_equal_those_of_captum(decoder: str) -> None:
    captum = pytest.importorskip("captum.attr")
    one = question(decoder, index=0)
    found = attribute(one, ["integrated_gradients", "grad_x_input"])
    integrated = found["integrated_gradients"]
    for row in (0, 2):
        function, given = OfRow(one, row), one.vectors_SE[None].clone().requires_grad_()
        theirs = captum.IntegratedGradients(function).attribute(
            given, n_steps=int(integrated.points_T[row]), method="riemann_middle"
        )
        np.testing.assert_allclose(integrated.scores_TU[row], theirs[0].sum(-1).detach(), atol=1e-6)
        theirs = captum.InputXGradient(function).attribute(given)
        np.testing.assert_allclose(
            found["grad_x_input"].scores_TU[row], theirs[0].sum(-1).detach(), atol=1e-6
        )


class Linear:
    """A question whose predictions are linear in the vectors: f_t = Σ_s w_ts · x_s.

    The model behind it averages encoder outputs with constant attention weights: w_ts · x_s = α_ts (v_ts · x_s). The second
    and the third position are one unit.
    """

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        real = question(index=0)
        names = ("line", "output", "source_names", "target_names", "only_copied")
        for name in ("vectors_SE", "unknown_E", "inputs_TE", "outputs_T", "index", "steps", "has", *names):
            setattr(self, name, getattr(real, name))
        positions, width = self.vectors_SE.shape
        self.source = Units(np.array([0, 1, 1, *range(2, positions - 1)]), real.source.is_word[1:])
        self.inner = [*range(1, positions - 2)]
        self.alpha_TS = torch.rand(self.steps, positions, dtype=torch.float64, generator=generator)
        values_TSE = torch.randn(self.steps, positions, width, dtype=torch.float64, generator=generator)
        self.weight_TSE = self.alpha_TS[..., None] * values_TSE
        self.read_TU = np.ones((self.steps, len(self.source.is_word)), np.bool_)

    def log_probs(
        self, vectors_NSE: Any, inputs_NTE: Any = None, steps: int | None = None, removed_NS: Any = None
    ) -> torch.Tensor:
        f_NT = torch.einsum("nse,tse->nt", vectors_NSE, self.weight_TSE)[:, :steps]
        if inputs_NTE is not None:
            f_NT = f_NT + 0 * inputs_NTE.sum()
        return f_NT[..., None].expand(-1, -1, int(self.outputs_T.max()) + 1)

    def attention(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.alpha_TS, self.vectors_SE.norm(dim=-1)

    def without_tokens(self, removed: list[list[int]], steps: int | None = None) -> torch.Tensor:
        kept_NS1 = torch.ones(len(removed), len(self.vectors_SE), 1, dtype=torch.float64)
        for row, positions in enumerate(removed):
            kept_NS1[row, positions] = 0
        return self.log_probs(kept_NS1 * self.vectors_SE, steps=steps)

    def with_values_zeroed(self, zeroed_NS: torch.Tensor) -> torch.Tensor:
        return self.log_probs(self.vectors_SE.masked_fill(zeroed_NS[..., None], 0))


def analytic(one: Linear, method: str) -> torch.Tensor:
    """The scores_TU of a method, by its definition for a linear model."""
    unit_S, (first, *_, last) = torch.from_numpy(one.source.of_token), range(len(one.source.is_word))

    def of_units(scores_TS: torch.Tensor) -> torch.Tensor:
        return torch.stack([scores_TS[:, unit_S == unit].sum(1) for unit in range(last + 1)], 1)

    if method == "attention":
        return of_units(one.alpha_TS)
    if method == "attention_norm":
        return of_units(one.alpha_TS * one.vectors_SE.square().sum(-1).sqrt())
    if method == "grad_norm":
        return of_units(one.weight_TSE.square().sum(-1)).sqrt()
    baseline_E = one.unknown_E if method.endswith("_unknown") else torch.zeros_like(one.unknown_E)
    expected_TU = of_units((one.weight_TSE * (one.vectors_SE - baseline_E)).sum(-1))
    if method in ("integrated_gradients_unknown", "occlusion_removed"):  # the frame stays as it is
        expected_TU[:, [first, last]] = 0
    return expected_TU


@pytest.mark.parametrize("method", METHODS)
def test_methods_are_exact_for_a_linear_model(method: str) -> None:
    one: Any = Linear()
    found_TU = attribute(one, [method])[method].scores_TU
    np.testing.assert_allclose(found_TU, analytic(one, method), rtol=1e-6, atol=1e-9)


class Causal(Linear):
    """As a language model: row t has read the units up to number t only, the first row none that can be deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.read_TU = np.tri(*self.read_TU.shape, dtype=np.bool_)
        self.weight_TSE[~torch.from_numpy(self.read_TU[:, self.source.of_token])] = 0


@pytest.mark.parametrize(
    ("decoder", "attention"),
    [("luong", "additive"), ("luong_feeding", "coverage"), ("transformer", "scaled_dot")],
)
def test_value_zeroing_keeps_the_weights(decoder: str, attention: str) -> None:
    one = question(decoder, attention=attention)
    nothing = torch.zeros(2, len(one.vectors_SE), dtype=torch.bool)
    with torch.no_grad():
        same_NTV = one.with_values_zeroed(nothing)
        torch.testing.assert_close(same_NTV[1], one.log_probs(one.vectors_SE[None])[0])
    found = attribute(one, ["value_zeroing"])["value_zeroing"].scores_TU
    assert abs(found).max() > 1e-3


def test_values_of_zero_leave_no_context() -> None:
    """In decoder=luong, zero encoder outputs at all positions are a context of 0."""
    one = question("luong")
    with torch.no_grad():
        zeroed = one.with_values_zeroed(torch.ones(1, len(one.vectors_SE), dtype=torch.bool))
        state, source = one.model.start(one.batch)
        states, _ = one.model.decoder.layers(one.inputs_TE[None], state.layers)
        context = torch.zeros(*states.shape[:2], source.encoder_outputs_BSM.shape[2], dtype=torch.float64)
        features = one.model.decoder.combine(torch.cat([context, states], -1)).tanh()
        torch.testing.assert_close(zeroed, one.model.readout(features).log_softmax(-1))


@pytest.mark.parametrize("pooling", ["attention", "attender"])
def test_the_norms_of_a_classifier_are_of_what_its_weights_multiply(pooling: str) -> None:
    with composer():
        config = typed(without_hydra(compose(["task=classification", f"pooling={pooling}"])))
    torch.manual_seed(1)
    model = build_classifier(config, vocabulary=20, classes=3).eval()
    text = SimpleNamespace(source_BS=torch.tensor([[4, 5, 6, 7]]), source_lengths=(4,))
    one = ask_class(
        model, text, 0, line="abcd", spans=[(i, i + 1) for i in range(4)], classes=["a", "b", "c"]
    )
    with torch.no_grad():
        embedded = model.embed(text.source_BS)
        weighted = embedded if pooling == "attender" else model.encoder(embedded, (4,)).outputs_BSM
        _, norms = one.attention()
    torch.testing.assert_close(norms, weighted[0].norm(dim=-1))


def test_attention_and_its_norms() -> None:
    one = question()
    found = attribute(one, ["attention", "attention_norm"])
    with torch.no_grad():
        state, source = one.model.start(one.batch)
        _, weights = one.model.unroll(one.batch.inputs_BT, state, source)
    np.testing.assert_allclose(found["attention"].scores_TU, weights[0], atol=1e-6)
    norms = source.encoder_outputs_BSM[0].norm(dim=-1)
    np.testing.assert_allclose(found["attention_norm"].scores_TU, weights[0] * norms, atol=1e-6)
    for method in ("attention", "attention_norm", "value_zeroing"):
        with pytest.raises(UserError, match=f"^method={method} .*no attention to the source"):
            attribute(question("plain", attention="none"), ["occlusion", method])
    with pytest.raises(UserError, match=r"method=oclusion is not allowed\. Did you mean 'occlusion'"):
        attribute(one, ["oclusion"])


def test_a_contrast_explains_a_difference() -> None:
    one = question()
    against_T = runner_up(one)
    with torch.no_grad():
        log_probs_TV = one.log_probs(one.vectors_SE[None])[0]
    for t, other in enumerate(against_T.tolist()):
        better = [
            token for token in log_probs_TV[t].argsort(descending=True).tolist() if token != one.outputs_T[t]
        ]
        assert other == better[0]
    options = Options(against_T)
    ours = attribute(one, ["grad_x_input"], options)["grad_x_input"].scores_TU
    plain = attribute(one, ["grad_x_input"])["grad_x_input"].scores_TU
    assert not np.allclose(ours, plain)
    found = attribute(one, ["integrated_gradients"], options)["integrated_gradients"]
    at_zero = torch.zeros_like(one.vectors_SE)[None]
    with torch.no_grad():
        ends = quantity(one.log_probs(torch.cat([one.vectors_SE[None], at_zero])), one, options)
    difference = (ends[0] - ends[1]).numpy()
    assert (abs(found.scores_TU.sum(1) - difference) <= 0.011 * np.maximum(abs(difference), 0.1)).all()


@pytest.mark.parametrize("made", [question, Causal])
def test_deletions_equal_a_slow_loop(made: Any) -> None:
    """Of a language model, only the units that a row has read are ranked and deleted."""
    one = made()
    deletions = Deletions(one, Options(), "zero")
    scores = attribute(one, ["occlusion"])["occlusion"].scores_TU
    order = deletions.order(scores)
    found = faithfulness(deletions, order)
    whole = values(one, one.vectors_SE)
    greedy = deletions.greedy()
    for t in range(one.steps):
        read = [unit for unit in deletions.units if one.read_TU[t, unit]]
        ranked = sorted(read, key=lambda unit: -scores[t, unit])
        assert order[t].tolist()[: len(read)] == ranked
        assert {*deletions.random_order(7)[t, : len(read)].tolist()} == {*read}
        if not read:
            assert np.isnan([found.area_T[t], deletions.area(greedy)[t], *found.curve_TP[t]]).all()
            assert np.isnan([*found.comprehensiveness_TQ[t], *found.sufficiency_TQ[t]]).all()
            continue
        drops, vectors = [], one.vectors_SE.clone()
        for unit in ranked:
            vectors[one.source.of_token == unit] = 0
            drops.append((whole - values(one, vectors))[t].item())
        assert found.area_T[t] == pytest.approx(np.mean(drops))
        assert found.curve_TP[t] == pytest.approx(
            [drops[math.ceil(percent / 100 * len(read)) - 1] for percent in PERCENTS]
        )
        for q, share in enumerate((0.1, 0.2, 0.5)):
            count = math.ceil(share * len(ranked))
            assert found.comprehensiveness_TQ[t, q] == pytest.approx(drops[count - 1])
            kept = one.vectors_SE.clone()
            kept[np.isin(one.source.of_token, ranked[count:])] = 0
            assert found.sufficiency_TQ[t, q] == pytest.approx((whole - values(one, kept))[t].item())
        assert greedy[t, 0] >= drops[0] - 1e-9
        assert greedy[t, len(read) - 1] == pytest.approx(drops[-1])
        assert deletions.area(greedy)[t] == pytest.approx(greedy[t, : len(read)].mean())


def test_deletions_of_all_units_that_are_read_are_those_of_one_random_order() -> None:
    deletions = Deletions(question(), Options(), "zero")
    order_TK = deletions.random_order(3)
    assert (order_TK == order_TK[0]).all()
    assert order_TK[0].tolist() == np.random.default_rng(3).permutation(deletions.units).tolist()


def test_an_empty_source_has_no_unit_to_delete() -> None:
    (explained,) = explain([demo().question("", "hello")], ["occlusion"], greedy=True)
    assert explained.attributions["occlusion"].scores_TU.shape == (2, 2)  # of `<sos>` and `<eos>`
    assert "area" not in explained.measures[RANDOM]
    assert explained.measures[GREEDY]["area"] == (0, 0)


def test_the_units_of_a_text_of_one_word_are_its_tokens() -> None:
    letters = [(i, i + 1) for i in range(4)]
    for before in (0, 1):
        units = source_units("Cruz", letters, before)
        assert units.of_token.tolist() == [*range(before + 5)]
        assert units.is_word.tolist() == [*[False] * before, *[True] * 4, False]
        two = source_units("a bc", [(0, 1), (2, 3), (3, 4)], before)
        assert two.of_token[before:].tolist() == [before, before + 1, before + 1, before + 2]
    bytes_of_a_letter = [(0, 1), (0, 1), (1, 2)]
    assert source_units("üb", bytes_of_a_letter, 0).of_token.tolist() == [0, 0, 1, 2]
    assert source_units("", [], 1).of_token.tolist() == [0, 1]


def test_units_that_are_not_read_have_no_score_and_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis.faithfulness, "LEAST_WORDS", 3)
    one: Any = Causal()
    (explained,) = explain([one], ["smooth_grad", "grad_norm"])
    for found in explained.attributions.values():
        assert (found.scores_TU[~one.read_TU] == 0).all()
        assert abs(found.scores_TU[one.read_TU]).min() > 0
    both = [explained.attributions[name].scores_TU for name in ("smooth_grad", "grad_norm")]
    words = [np.flatnonzero(row) for row in one.read_TU & one.source.is_word]
    expected = [
        kendalltau(*(scores[t, own] for scores in both)).statistic
        for t, own in enumerate(words)
        if len(own) >= 3
    ]
    assert 0 < len(expected) < one.steps
    assert explained.agreement["smooth_grad", "grad_norm"] == pytest.approx((sum(expected), len(expected)))


def test_the_share_of_the_source_is_of_the_tokens_read_so_far() -> None:
    scores, prefix = np.array([[1.0, -1.0], [3.0, 0.0]]), np.array([[2.0, 9.0], [-1.0, 2.0]])
    share_T = Attribution(scores, prefix_TT=prefix).source_share_T
    assert share_T is not None
    assert share_T.tolist() == [0.5, 0.5]
    assert Attribution(scores).source_share_T is None


def test_faithfulness_is_reported_for_each_share_of_the_words() -> None:
    one = question()
    (explained,) = explain([one], ["occlusion"])
    measures = explained.measures["occlusion"]
    deletions = Deletions(one, Options(), "zero")
    found = faithfulness(deletions, deletions.order(explained.attributions["occlusion"].scores_TU))
    for q, percent in enumerate((10, 20, 50)):
        for name, values_TQ in (
            ("comprehensiveness", found.comprehensiveness_TQ),
            ("sufficiency", found.sufficiency_TQ),
        ):
            total, count = measures[f"{name}_{percent}"]
            assert total / count == pytest.approx(values_TQ[:, q].mean())


def questions_of(run: Any, count: int) -> list[Question]:
    forced = run.forced(SOURCES[:count], TARGETS[:count])
    return [ask(run.model, forced, index) for index in range(count)]


@pytest.mark.parametrize("how", ["zero", "unknown", "removed"])
def test_a_pair_alone_has_the_attributions_that_it_has_among_others(how: str) -> None:
    run = demo()
    methods = ["attention", "grad_x_input", "occlusion"]
    together = [*explain(questions_of(run, 4), methods, how=how)]
    (alone,) = explain(questions_of(run, 1), methods, how=how)
    for name in methods:
        np.testing.assert_allclose(
            together[0].attributions[name].scores_TU, alone.attributions[name].scores_TU, atol=1e-5
        )
        for measure, (total, count) in alone.measures[name].items():
            assert together[0].measures[name][measure] == pytest.approx((total, count), abs=1e-3)
    found = means(together)
    assert found["occlusion"]["area"].value > found[RANDOM]["area"].value
    assert alone.words == ["<sos>", "the", "king", "sleeps", ".", "<eos>"]


@pytest.mark.parametrize("index", [0, 2])
def test_every_method_is_the_same_for_a_pair_alone(index: int) -> None:
    one = question(index=index)
    forced = double(demo_with("luong", "additive")).forced([SOURCES[index]], [TARGETS[index]])
    alone = ask(one.model, forced, 0)
    methods = [
        name for name in METHODS if index == 0 or name != "smooth_grad"
    ]  # its noise depends on the index
    found = attribute(alone, methods)
    for name, expected in attribute(one, methods).items():
        np.testing.assert_allclose(found[name].scores_TU, expected.scores_TU, rtol=0, atol=1e-9, err_msg=name)


def test_the_program_prints_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["attribute", "demo", *DATA, "--first", "2", "--methods", "attention,occlusion"]
    analyze.main([*line, "--greedy", "--format", "jsonl"])
    *pairs, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert [one["index"] for one in pairs] == [0, 1]
    assert len(pairs[0]["scores"]["attention"]) == len(pairs[0]["tokens"])
    assert len(pairs[0]["scores"]["attention"][0]) == len(pairs[0]["words"])
    found = last["means"]
    assert {*found} == {"attention", "occlusion", RANDOM, GREEDY}
    assert found[GREEDY]["area"]["value"] >= found["occlusion"]["area"]["value"]
    assert 0 <= found["attention"]["aer"]["value"] < 0.3
    analyze.main(line)
    assert f"{found['attention']['aer']['value']:.3f}" in capsys.readouterr().out
    line[line.index("2")] = "1"
    analyze.main([*line, "--against", "runner-up", "--format", "jsonl"])
    assert json.loads(capsys.readouterr().out.splitlines()[0])["against"]
    with pytest.raises(SystemExit):
        analyze.main([*line, "--against", "zèbre"])
    assert "--against=zèbre is not an output of the model" in capsys.readouterr().err


def test_tokens_that_are_the_contrast_are_left_out_of_the_measures() -> None:
    asked = questions_of(demo(), 2)[1:]
    words = [tuple(one[1].removesuffix(".").split()) for one in (SOURCES, TARGETS)]
    gold = [Gold(words[0], words[1], frozenset((i, i) for i in range(6)))]
    options: dict[str, Any] = {"gold": gold, "greedy": True, "random_questions": asked}
    (found,), (every,) = (
        [*explain(asked, ["attention", "occlusion"], against=against, **options)] for against in ("la", None)
    )
    assert found.tokens.count("la") == found.left_out == 1
    assert every.left_out == 0
    used = len(found.tokens) - 1
    for name, own in found.measures.items():
        counts = {count for key, (_, count) in own.items() if key != "aer"}
        assert counts == {used * RANDOM_ORDERS if name == RANDOM else used}
    links, all_links = (one.measures["attention"]["aer"][1] for one in (found, every))
    assert links == all_links - 2  # a gold link and a predicted one
    assert {count for _, count in found.agreement.values()} == {used}


def test_random_weights_mark_the_methods_that_are_insensitive(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = ["attribute", "demo", *DATA, "--first", "3", "--random-weights"]
    line += ["--methods", "attention,grad_norm"]
    analyze.main([*line, "--format", "jsonl"])
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    tau = {name: last["means"][name]["tau_random_weights"]["value"] for name in ("attention", "grad_norm")}
    assert last["insensitive"] == {name: value > 0.1 for name, value in tau.items()}
    file = tmp_path / "page.html"
    analyze.main([*line, "--html", str(file)])
    for text in (capsys.readouterr().out, file.read_text("utf-8")):
        assert ABOUT_INSENSITIVE in text
        for name, value in last["insensitive"].items():
            found = re.search(rf"{tau[name]:.3f} ±.*?\b(yes|no)\b", text)
            assert found
            assert found[1] == ("yes" if value else "no")


def test_a_method_is_insensitive_if_the_control_is_the_same_model() -> None:
    questions, methods = questions_of(demo(), 4), ["attention", "occlusion"]
    found = means([*explain(questions, methods, random_questions=questions)])
    for name in methods:
        assert found[name]["tau_random_weights"].value == pytest.approx(1)
    assert insensitive(found) == dict.fromkeys(methods, True)
    assert insensitive(means([*explain(questions, methods)])) == {}


def test_an_empty_source_has_no_unit_to_remove() -> None:
    run = demo()
    one = ask(run.model, run.forced([""], TARGETS[:1]), 0)
    assert not np.any(attribute(one, ["occlusion_removed"])["occlusion_removed"].scores_TU)


def test_every_method_runs_on_the_demo() -> None:
    run = demo()
    one = ask(run.model, run.forced(SOURCES[:1], TARGETS[:1]), 0)
    for name, found in attribute(one, [*METHODS]).items():
        assert found.scores_TU.shape == (5, 6), name
        assert np.isfinite(found.scores_TU).all(), name


def test_counterfactuals_rank_the_words_that_references_depend_on(capsys: pytest.CaptureFixture[str]) -> None:
    methods = ["--methods", "attention,grad_x_input", "--counterfactuals"]
    line = ["attribute", "demo", *DATA, "--first", "2", *methods]
    analyze.main([*line, "--format", "jsonl"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["means"]
    assert 0.5 < found["attention"]["average_precision"]["value"] <= 1
    assert 0.5 < found["attention"]["auc"]["value"] <= 1
    assert "average_precision" not in found[RANDOM]


def test_pictures_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--first", "2", "--format", "jsonl", "--pictures", str(tmp_path / "pictures")]
    analyze.main(["attribute", "demo", *DATA, "--methods", "attention,occlusion", *line])
    file = tmp_path / "pages" / "page.html"
    analyze.main(
        ["intervene", "demo", *DATA, "--kinds", "uniform", "--scopes", "step", *line, "--html", str(file)]
    )
    assert "Scope step: predictions kept, %" in file.read_text("utf-8")
    drawn = {path.name for path in (tmp_path / "pictures").iterdir()}
    names = ("pair_0", "pair_1", "deletion", "agreement", "variation_step")
    assert drawn == {f"{name}.{suffix}" for name in names for suffix in ("png", "pdf")}


def test_a_page_has_the_pictures_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = [draw_agreement(["a", "b"], np.eye(2), "τ") for _ in range(3)]
    drawings = [Drawing(f"picture_{index}", f"Picture {index}", one) for index, one in enumerate(figures)]
    table = TextTable("Means", ["method", "AER"], [["<b>", "0.1"]])
    whole = page.page("Title", "the <command>", "A note.", [table], drawings)
    assert all(f"<bdi>Picture {index}</bdi>" in whole for index in range(3))
    assert "do not fit" not in whole
    assert "the &lt;command&gt;" in whole
    assert "&lt;b&gt;" in whole
    assert not re.search(r"(src|href)=.?https?:", whole)  # it needs no network
    monkeypatch.setattr(page, "MAX_SIZE", len(whole.encode()) - 1)
    shortened = page.page("Title", "the <command>", "A note.", [table], drawings)
    assert "<bdi>Picture 1</bdi>" in shortened
    assert "<bdi>Picture 2</bdi>" not in shortened
    assert "do not fit" in shortened
    assert len(shortened.encode()) <= page.MAX_SIZE


@pytest.mark.parametrize(
    "line", [["attribute", "demo"], ["align", "demo", "a", "b", "--method", "occlusion"]]
)
def test_attributions_are_computed_in_float32(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        analyze.main([*line, "--precision", "bf16"])
    assert "--precision=bf16 is not allowed. Allowed: auto, fp32 for" in capsys.readouterr().err


def test_rank_correlation_equals_scipy_with_ties_and_without_rows_of_equal_scores() -> None:
    generator = np.random.default_rng(0)
    one_TU, other_TU = generator.integers(0, 5, (2, 50, 9)).astype(float)
    one_TU[3] = 1.0
    words = np.broadcast_to(np.arange(9) > 1, one_TU.shape)
    pairs = zip(one_TU[:, 2:], other_TU[:, 2:], strict=True)
    expected = [tau for pair in pairs if np.isfinite(tau := kendalltau(*pair).statistic)]
    assert len(expected) < 50
    np.testing.assert_allclose(rank_correlation(one_TU, other_TU, words), expected, atol=1e-12)


def test_the_outputs_of_the_run_are_explained_by_kind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["le roi dort dort dort dort.", "le roi dort."]
    monkeypatch.setattr(
        type(demo()),
        "predict",
        lambda self, lines: [SimpleNamespace(text=text, ended=text != texts[0]) for text in texts],
    )
    words = ["attribute", "demo", *DATA, "--first", "2", "--methods", "grad_x_input,attention", "--outputs"]
    analyze.main([*words, "--format", "jsonl"])
    *pairs, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert [one["target"] for one in pairs] == texts
    shares = [one["source_shares"]["grad_x_input"] for one in pairs]
    assert [*map(len, shares)] == [len(one["tokens"]) for one in pairs]
    assert all("attention" not in one["source_shares"] for one in pairs)
    of_kinds = last["groups"]["kind of output"]
    assert of_kinds.keys() == {"loops", "other outputs"}
    for kind, share_T in zip(("loops", "other outputs"), shares, strict=True):
        own = of_kinds[kind]["grad_x_input"]
        share_T = np.array(share_T)
        if kind == "loops":
            share_T[-1] = np.nan  # the length limit ended this output
        assert own["source_share"]["value"] == pytest.approx(np.nanmean(share_T))
        first, *_ = np.array_split(share_T, 3)
        assert own["source_share_first_third"]["value"] == pytest.approx(np.mean(first))
    analyze.main(words)
    printed = capsys.readouterr().out
    assert "<eos> of 1 outputs that the length limit ended" in printed
    assert "Share of source along the output" in printed
    assert "share of source by kind of output" in printed
    with pytest.raises(SystemExit):
        analyze.main([*words, "--counterfactuals"])
    assert "--counterfactuals" in capsys.readouterr().err


def test_measures_are_reported_by_phenomenon(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["attribute", "demo", *DATA, "--first", "6", "--methods", "attention,grad_x_input"]
    analyze.main([*words, "--counterfactuals", "--format", "jsonl"])
    *pairs, last = map(json.loads, capsys.readouterr().out.splitlines())
    phenomena = last["groups"]["phenomenon"]
    assert len(phenomena) > 1
    counts = [own["attention"]["average_precision"]["count"] for own in phenomena.values()]
    assert max(counts) < last["means"]["attention"]["average_precision"]["count"] == len(pairs)
    analyze.main([*words, "--counterfactuals"])
    assert "AP of influence by phenomenon" in capsys.readouterr().out
