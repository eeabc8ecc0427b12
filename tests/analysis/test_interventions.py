"""Changed attention weights: the kinds against slow references, and their effect on predictions."""

import json
import re
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from demo_models import DATA, SOURCES, TARGETS, demo, demo_with
from torch import Tensor

import seq2seq_lab
from seq2seq_lab.analysis import interventions
from seq2seq_lab.analysis.changes import KINDS, ChangedModel, Rows, keep, permuted
from seq2seq_lab.analysis.interventions import (
    BY_DEFAULT,
    COLUMNS,
    PERMUTATIONS,
    UNION,
    UNITED,
    WITHOUT_CONTENT,
    TokenEffects,
    effects,
    free,
    gold_weights,
    intervene,
    search_effect,
)
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.analyze.intervene import NOT_FREE, require_state
from seq2seq_lab.data.corpus import word_spans
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.evaluation import read_data
from seq2seq_lab.metrics.alignment import WordLinks, link_counts, oracle_links
from seq2seq_lab.metrics.texts import References
from seq2seq_lab.models.attention.base import Attended, BaseAttention
from seq2seq_lab.models.decoders.transformer import CrossAttention

MODELS = [
    *(
        (decoder, "additive")
        for decoder in ("luong", "luong_feeding", "bahdanau", "conditional", "tutorial", "transformer")
    ),
    *(("luong", attention) for attention in ("coverage", "location_sensitive", "local", "location")),
    ("luong_feeding", "coverage"),
    ("transformer", "scaled_dot"),
]
each_model = pytest.mark.parametrize(("decoder", "attention"), MODELS)


def rows_of(weights_NS: Tensor, lengths: list[int], **changes: Any) -> Rows:
    real_NS = torch.arange(weights_NS.shape[1]) < torch.tensor(lengths)[:, None]
    rows = Rows(real_NS, torch.arange(len(lengths)), 3, 0, None, None, 1)
    return replace(rows, **changes)


def some_weights() -> tuple[Tensor, list[int]]:
    generator = np.random.default_rng(0)
    lengths = [3, 7, 5, 4, 7]
    weights_NS = torch.zeros(5, 7, dtype=torch.float64)
    for row, length in enumerate(lengths):
        weights_NS[row, :length] = torch.tensor(generator.dirichlet(np.ones(length)))
    weights_NS[3] = torch.tensor([0, 1.0, 0, 0, 0, 0, 0])  # nothing is left without the largest weight
    return weights_NS, lengths


def reference(kind: str, weights_S: np.ndarray) -> np.ndarray:
    """The kinds of one row of real positions, by their definitions."""
    size, best = len(weights_S), int(weights_S.argmax())
    if kind == "uniform":
        return np.full(size, 1 / size)
    if kind == "only_max":
        return np.eye(size)[best]
    if kind == "zero_out":
        return np.zeros(size)
    others = np.delete(weights_S, best)
    if kind == "keep_max_uniform_others":
        return np.insert(np.full(size - 1, others.sum() / (size - 1)), best, weights_S[best])
    assert kind == "zero_out_max"
    rest = others / others.sum() if others.sum() else np.full(size - 1, 1 / (size - 1))
    return np.insert(rest, best, 0)


@pytest.mark.parametrize(
    "kind", ["uniform", "only_max", "zero_out", "keep_max_uniform_others", "zero_out_max"]
)
def test_kinds_equal_a_slow_reference(kind: str) -> None:
    weights_NS, lengths = some_weights()
    changed_NS = KINDS[kind](weights_NS, rows_of(weights_NS, lengths)).numpy()
    for row, length in enumerate(lengths):
        expected = reference(kind, weights_NS[row, :length].numpy())
        np.testing.assert_allclose(changed_NS[row, :length], expected, rtol=0, atol=1e-12)
        assert not changed_NS[row, length:].any()


def record_attention(model: Any) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return a list to which each call of an attention function, or each head, adds (weights_NS, context_NM, values_NSM)."""
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    contexts: list[Tensor] = []

    def of_function(module: BaseAttention, inputs: Any, attended: Attended) -> None:
        assert attended.weights_NTS is not None
        found.append((attended.weights_NTS[:, 0], attended.context_NTM[:, 0], inputs[1].encoder_outputs_BSM))

    def of_heads(module: CrossAttention, inputs: Any, outputs: Any) -> None:
        values_NSE = inputs[3].keys_BSK[..., -module.size :]
        parts = [one.chunk(module.num_heads, -1) for one in (contexts.pop()[:, 0], values_NSE)]
        found.extend(zip(outputs[1][:, :, 0].unbind(1), *parts, strict=True))

    for module in model.decoder.modules():
        if isinstance(module, BaseAttention):
            module.register_forward_hook(of_function)
        elif type(module) is CrossAttention:  # of `scaled_dot`, which computes all heads at once
            module.output.register_forward_pre_hook(lambda _, inputs: contexts.append(*inputs))
            module.register_forward_hook(of_heads)
    return found


@pytest.mark.parametrize(("decoder", "attention"), [*MODELS, ("transformer_post_norm", "scaled_dot")])
@pytest.mark.parametrize("kind", ["uniform", "only_max", "zero_out_max"])
def test_every_decoder_uses_the_weights_of_a_slow_reference(decoder: str, attention: str, kind: str) -> None:
    layers, heads = (2, 2) if "transformer" in decoder else (1, 1)
    run = demo_with(decoder, attention, num_layers=layers)
    model, forced = run.model.double(), run.forced(SOURCES, TARGETS)
    (batch,) = map(forced.batch, forced.plan)
    used, unchanged = record_attention(model), list[Tensor]()

    def change(weights_NS: Tensor, rows: Rows) -> Tensor:
        unchanged.append(weights_NS)
        return KINDS[kind](weights_NS, rows)

    with torch.no_grad():
        steps = stepped(ChangedModel(model, change), batch)
    assert len(used) == len(unchanged) == layers * heads * len(steps)
    for (weights_NS, context_NM, values_NSM), before_NS in zip(used, unchanged, strict=True):
        for row, length in enumerate(batch.source_lengths):
            expected_S = np.zeros(weights_NS.shape[1])
            expected_S[:length] = reference(kind, before_NS[row, :length].numpy())
            np.testing.assert_allclose(weights_NS[row].numpy(), expected_S, rtol=0, atol=1e-12)
            expected_M = expected_S @ values_NSM[row].numpy()
            np.testing.assert_allclose(context_NM[row].numpy(), expected_M, rtol=0, atol=1e-12)


def test_a_permutation_moves_the_arg_max_and_nothing_else() -> None:
    weights_NS, lengths = some_weights()
    moves = set()
    for step in range(40):
        changed_NS = KINDS["permute"](weights_NS, rows_of(weights_NS, lengths, step=step))
        torch.testing.assert_close(changed_NS.sort(1).values, weights_NS.sort(1).values, rtol=0, atol=0)
        assert (changed_NS.argmax(1) != weights_NS.argmax(1)).all()
        for row, length in enumerate(lengths):
            assert not changed_NS[row, length:].any()
        moves.add(tuple(changed_NS[1].tolist()))
    assert len(moves) > 20
    alone = KINDS["permute"](
        weights_NS[2:3, :5], rows_of(weights_NS[2:3, :5], [5], example_N=torch.tensor([2]))
    )
    together = KINDS["permute"](weights_NS, rows_of(weights_NS, lengths))
    assert torch.equal(alone[0], together[2, :5])


def test_given_weights_and_masks() -> None:
    weights_NS, lengths = some_weights()
    given_NS = torch.zeros_like(weights_NS)
    given_NS[:, 1] = 1
    given_NS[1] = float("nan")
    rows = rows_of(weights_NS, lengths, given_NS=given_NS)
    given = KINDS["word"](weights_NS, rows)
    assert torch.equal(given[0], given_NS[0])
    assert torch.equal(given[1], weights_NS[1])
    masked = KINDS["mask"](weights_NS, rows)
    assert torch.equal(masked[1], weights_NS[1])
    torch.testing.assert_close(masked[2, 0], weights_NS[2, 0] / (1 - weights_NS[2, 1]))
    torch.testing.assert_close(masked[3, :4], torch.tensor([1, 0, 1, 1], dtype=torch.float64) / 3)


def stepped_with_weights(model: Any, batch: Any) -> list[tuple[Tensor, Tensor]]:
    state, source = model.start(batch)
    found = []
    for token_B in batch.inputs_BT.unbind(1):
        log_probs_BV, state, weights_BS = model.step(token_B, state, source)
        found.append((log_probs_BV, weights_BS))
    return found


def stepped(model: Any, batch: Any) -> list[Tensor]:
    return [log_probs_BV for log_probs_BV, _ in stepped_with_weights(model, batch)]


@each_model
def test_the_models_own_weights_change_no_bit(decoder: str, attention: str) -> None:
    run = demo_with(decoder, attention)
    forced = run.forced(SOURCES, TARGETS)
    batch = forced.batch(forced.plan[0])
    with torch.no_grad():
        plain, kept = stepped(run.model, batch), stepped(ChangedModel(run.model, keep), batch)
    for one, other in zip(plain, kept, strict=True):
        assert torch.equal(one, other)


@each_model
@pytest.mark.parametrize("kind", BY_DEFAULT)
def test_a_sentence_alone_is_changed_as_in_a_batch(decoder: str, attention: str, kind: str) -> None:
    run = demo_with(decoder, attention)
    together = intervene(run.model, run.forced(SOURCES, TARGETS), [kind], ["step", "all"])
    source, target = SOURCES[1:2], TARGETS[1:2]
    if kind == "permute":  # the draws depend on the index of the example
        source, target = SOURCES[:1], TARGETS[:1]
    alone = intervene(run.model, run.forced(source, target), [kind], ["step", "all"])
    for scope in ("step", "all"):
        ours, theirs = alone[kind, scope], together[kind, scope]
        at = theirs.cluster == (0 if kind == "permute" else 1)
        assert (theirs.changed[at] == ours.changed).all()
        for column in ("log_prob_change", "total_variation", "jensen_shannon", "largest"):
            np.testing.assert_allclose(getattr(theirs, column)[at], getattr(ours, column), atol=1e-4)


def test_only_the_scope_all_carries_a_change_to_the_next_step() -> None:
    run = demo_with("luong_feeding", "additive")
    forced = run.forced(SOURCES, TARGETS)
    (batch,) = map(forced.batch, forced.plan)
    change = ChangedModel(run.model, KINDS["uniform"])
    found = intervene(run.model, forced, ["uniform"], ["step", "all"])
    with torch.no_grad():
        plain, changed = stepped(run.model, batch), stepped(change, batch)
        state, source = change.start(batch)
        _, after, _ = ChangedModel(run.model, keep).step(batch.inputs_BT[:, 0], state, source)
        alone, _, _ = change.step(batch.inputs_BT[:, 1], after, source)
    row = batch.index_B.tolist().index(0)
    (first,) = np.flatnonzero(found["uniform", "step"].cluster == 0)[1:2]
    for scope, log_probs_BV in (("step", alone), ("all", changed[1])):
        difference = (log_probs_BV.exp() - plain[1].exp())[row].abs().sum().item() / 2
        assert found["uniform", scope].total_variation[first] == pytest.approx(difference, abs=1e-6)
    assert not torch.allclose(alone, changed[1])


@each_model
def test_a_change_of_one_step_leaves_the_following_steps_identical_to_the_bit(
    decoder: str, attention: str
) -> None:
    run = demo_with(decoder, attention)
    forced = run.forced(SOURCES, TARGETS)
    (batch,) = map(forced.batch, forced.plan)
    found = intervene(run.model, forced, ["only_max", "zero_out", "previous"], ["step"])
    plain, largest_TB = ChangedModel(run.model, keep), list[Tensor]()
    with torch.no_grad():
        state, source = plain.start(batch)
        for token_B in batch.inputs_BT.unbind(1):
            _, state, _ = plain.step(token_B, state, source)
            largest_TB.append(torch.stack(state.previous).amax(2).mean(0))
    largest_BT = torch.stack(largest_TB, 1)
    for (kind, _), tokens in found.items():
        for i, largest_T in zip(batch.index_B.tolist(), largest_BT.double().numpy(), strict=True):
            of_sentence = tokens.largest[tokens.cluster == i]
            assert np.array_equal(of_sentence, largest_T[: len(of_sentence)])
        alone = intervene(run.model, forced, [kind], ["step"])[kind, "step"]
        for column in COLUMNS:
            assert np.array_equal(getattr(alone, column), getattr(tokens, column))


def test_the_largest_weight_is_of_the_layers_and_heads_that_are_changed() -> None:
    run = demo_with("transformer", "scaled_dot", num_layers=2)
    forced = run.forced(SOURCES[:1], TARGETS[:1])
    (batch,) = map(forced.batch, forced.plan)
    with torch.no_grad():
        largest_LAT = forced.cross_maps(run.model, batch)[0].amax(-1).double().numpy()
    for layer, head in ((0, 0), (0, 1), (1, 0), (1, None), (None, None)):
        found = intervene(run.model, forced, ["uniform"], ["step"], layer=layer, head=head)
        index = tuple(slice(None) if one is None else slice(one, one + 1) for one in (layer, head))
        expected_T = largest_LAT[index].mean((0, 1))
        np.testing.assert_allclose(found["uniform", "step"].largest, expected_T, atol=1e-6)


def test_divergences_equal_their_definitions() -> None:
    run = demo_with("luong", "additive")
    forced = run.forced(SOURCES[:1], TARGETS[:1])
    (batch,) = map(forced.batch, forced.plan)
    found = intervene(run.model, forced, ["only_max"], ["step"])["only_max", "step"]
    with torch.no_grad():
        plain, changed = stepped(run.model, batch), stepped(ChangedModel(run.model, KINDS["only_max"]), batch)
    for t, (one, other) in enumerate(zip(plain, changed, strict=True)):
        p, q = one[0].double().exp().numpy(), other[0].double().exp().numpy()
        middle = (p + q) / 2
        divergence = (p * np.log(p / middle)).sum() / 2 + (q * np.log(q / middle)).sum() / 2
        assert found.jensen_shannon[t] == pytest.approx(divergence, rel=1e-3, abs=1e-6)
        assert found.total_variation[t] == pytest.approx(abs(p - q).sum() / 2, rel=1e-3, abs=1e-6)
        assert found.kept[t] == (p.argmax() == q.argmax())
        output = batch.outputs_BT[0, t]
        assert found.log_prob_change[t] == pytest.approx(float(other[0, output] - one[0, output]), rel=1e-4)


@pytest.mark.parametrize(
    ("decoder", "attention"),
    [("luong", "additive"), ("luong_feeding", "coverage"), ("transformer", "scaled_dot")],
)
def test_the_median_is_of_permutations_one_at_a_time(
    decoder: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interventions, "ROWS", 9)  # several batches of two permutations
    run = demo_with(decoder, attention)
    forced = run.forced(SOURCES, TARGETS)
    found = intervene(run.model, forced, ["permute", "uniform"], ["step", "all"], permutations=6)
    variations = []
    for permutation in range(6):
        monkeypatch.setitem(KINDS, "permute", partial(permuted, permutation=permutation))
        one = intervene(run.model, forced, ["permute"], ["step"])["permute", "step"]
        variations.append(one.total_variation)
    ours = found["permute", "step"]
    np.testing.assert_allclose(ours.median_variation, np.median(variations, axis=0), atol=1e-6)
    np.testing.assert_allclose(ours.total_variation, variations[0], atol=1e-6)
    assert abs(ours.median_variation - ours.total_variation).max() > 0.01
    del found["permute", "step"]
    for other in found.values():
        assert (other.median_variation == other.total_variation).all()


class Pieces:
    """A tokenizer that cuts words into pairs of letters, with the ids of another one."""

    def spans(self, text: str) -> list[tuple[int, int]]:
        return [(start, min(start + 2, len(text))) for start in range(0, len(text), 2)]


def test_sentences_of_one_word_are_not_permuted() -> None:
    run, sources = demo(), ["sleep!", "sleep", "sleep , !", "the king sleeps."]
    forced = run.forced(sources, [TARGETS[0]] * 4)
    found = intervene(run.model, forced, ["permute"], ["step"])["permute", "step"]
    assert found.changed.tolist() == [False] * 15 + [True] * 5
    (whole, *_) = effects({("permute", "step"): found})
    assert (whole.tokens, whole.left_out) == (5, 15)
    pieces = replace(forced, source_tokenizer=Pieces())
    found = intervene(run.model, pieces, ["permute"], ["step"])["permute", "step"]
    assert found.changed.tolist() == [False] * 15 + [True] * 5


@pytest.fixture(scope="module")
def split() -> Any:
    return read_data(seq2seq_lab.load("demo", changes=DATA), False).tests[0]


def test_gold_weights_have_the_error_rate_of_the_oracle(split: Any) -> None:
    run, text = demo(), split.text
    forced = run.forced([*text.source], [*text.target])
    totals = np.zeros((2, 4))
    for i, gold in enumerate(text.gold):
        weights_TS = gold_weights(forced, i, gold).nan_to_num(0).numpy()
        links = WordLinks(
            run.tokenizers.source.spans(text.source[i]),
            run.tokenizers.target.spans(text.target[i]),
            word_spans(text.source[i], gold.source_words),
            word_spans(text.target[i], gold.target_words),
        )
        totals += [link_counts(links.predict(weights_TS), gold), link_counts(oracle_links(gold), gold)]
    ours, oracle = (1 - (one[0] + one[1]) / (one[2] + one[3]) for one in totals)
    assert ours == pytest.approx(oracle)
    measured = intervene(run.model, forced, ["gold"], ["step"], gold=text.gold)
    (whole, *_) = effects(measured)
    assert whole.kept > 0.9
    assert whole.left_out >= len(text)  # `<eos>` has no gold links


def test_the_union_is_what_one_of_three_changes_keeps(split: Any) -> None:
    text = split.text
    forced = demo().forced([*text.source], [*text.target])
    found = intervene(demo().model, forced, [*UNITED, "only_max"], ["step", "all"], gold=text.gold)
    rows = effects(found)
    kept = np.any([found[kind, "step"].kept for kind in UNITED], axis=0)
    classes = np.array(found["uniform", "step"].classes)
    assert {"content", "function", "punctuation", "end"} == {*classes}
    of_classes = {name: classes == name for name in {*classes}}
    of_classes |= {"all": np.ones(len(kept), bool), WITHOUT_CONTENT: classes != "content"}
    assert {*of_classes} == {one.word_class for one in rows if one.kind == UNION}
    for one in rows:
        if one.kind == UNION:
            of_class = of_classes[one.word_class]
            assert one.kept == pytest.approx(kept[of_class].mean())
            assert (one.scope, one.total_variation) == ("step", None)


def test_means_intervals_and_bins() -> None:
    generator = np.random.default_rng(0)
    columns = generator.random((4, 200))
    changed = generator.random(200) < 0.8
    tokens = TokenEffects(
        kept=columns[0] < 0.3,
        log_prob_change=-columns[1],
        total_variation=columns[2],
        jensen_shannon=columns[3],
        largest=columns[1],
        median_variation=columns[2] / 2,
        changed=changed,
        classes=["content", "end"] * 100,
        cluster=np.arange(200) // 10,
    )
    whole, content, _ = effects({("uniform", "all"): tokens})
    assert (whole.tokens, whole.left_out) == (changed.sum(), (~changed).sum())
    assert whole.kept == pytest.approx((columns[0] < 0.3)[changed].mean())
    assert content.total_variation == pytest.approx(columns[2][::2][changed[::2]].mean())
    assert 0.02 < whole.confidence["kept"] < 0.12
    inside = changed & (columns[1] >= 0.25) & (columns[1] < 0.5)
    assert (0.25, 0.5, inside.sum(), np.median(columns[2][inside]) / 2) in whole.by_largest


def test_a_search_with_changed_weights(split: Any) -> None:
    run, text = demo(), split.text
    forced = run.forced([*text.source], [*text.target])
    references = split.references(False)
    too_long, masked = free(run, references, forced, ["word=99", "gold", "mask=0"])
    assert (too_long.sentences, too_long.left_out) == (0, len(text))
    assert (too_long.unchanged, too_long.bleu, too_long.difference) == (None, None, None)
    assert masked.sentences == len(text)
    assert masked.difference < 0
    before = ["le roi dort.", "la reine dort."]
    every = np.ones(2, np.bool_)
    effect = search_effect("x", before, ["le roi dort.", "le roi mange."], References(before), every)
    assert effect.unchanged == 0.5
    assert effect.difference == pytest.approx(effect.bleu - 100)


def test_sentences_to_which_a_change_does_not_apply_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    run, lines = demo(), ["the king sleeps.", "sleep!", "the old king does not sleep."]
    forced = run.forced(lines, [TARGETS[0]] * 3)
    references = References([one.text for one in run.predict(lines)])
    for kind, applies in (("word=4", [2]), ("permute", [0, 2]), ("previous", [0, 1, 2])):
        (found,) = free(run, references, forced, [kind])
        one = run.forced([lines[i] for i in applies], [TARGETS[0]] * len(applies))
        (alone,) = free(run, References([references.streams[0][i] for i in applies]), one, [kind])
        assert (found.sentences, found.left_out) == (len(applies), 3 - len(applies))
        if kind != "permute":  # its draws depend on the index of the sentence
            assert (found.unchanged, found.bleu) == (alone.unchanged, alone.bleu)
    (none,) = effects(intervene(run.model, forced, ["word=9"], ["step"]))
    assert (none.tokens, none.left_out, none.kept) == (0, 15, None)
    arguments = ["intervene", "demo", *DATA, "--first", "2", "--kinds", "word=99", "--scopes", "step,free"]
    analyze.main(arguments)
    text = capsys.readouterr().out
    assert "100.0%" not in text
    assert text.count("word=99") == 3


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (["unifrom"], r"kind=unifrom is not allowed\. Did you mean 'uniform'"),
        (["word"], r"kind=word is not allowed\. Kinds.*word=J"),
        (["uniform=1"], r"kind=uniform=1 is not allowed"),
        (["gold"], r"kind=gold needs gold alignments"),
        (
            ["weights"],
            r'kind=weights .*run\.intervene\(source, target, kinds=\["weights"\], weights=',
        ),
    ],
)
def test_kinds_that_cannot_be_used_are_refused(kinds: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        intervene(demo().model, demo().forced(SOURCES, TARGETS), kinds, ["step"])


def test_models_without_attention_are_refused() -> None:
    run = demo_with("plain", "none")
    with pytest.raises(UserError, match="no attention to change"):
        intervene(run.model, run.forced(SOURCES, TARGETS), ["uniform"], ["step"])


def test_the_scope_free_names_the_kind_that_it_leaves_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = ["intervene", "demo", *DATA, "--first", "2", "--scopes"]
    for kinds in ("gold", "gold,uniform"):
        page = tmp_path / f"{kinds}.html"
        analyze.main([*line, "step,free", "--kinds", kinds, "--html", str(page)])
        assert NOT_FREE in capsys.readouterr().out
        assert NOT_FREE in page.read_text("utf-8")
    analyze.main([*line, "step,free", "--kinds", "uniform"])
    assert NOT_FREE not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        analyze.main([*line, "free", "--kinds", "gold"])
    assert "--kinds=gold --scopes=free" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        analyze.main([*line, "free", "--kinds", "weights"])
    assert "kind=weights" in capsys.readouterr().err


def test_the_program_prints_the_effects(capsys: pytest.CaptureFixture[str], split: Any) -> None:
    line = ["intervene", "demo", *DATA, "--kinds", "uniform,permute,word=1", "--scopes"]
    analyze.main([*line, "step,free", "--format", "jsonl"])
    found = [json.loads(one) for one in capsys.readouterr().out.splitlines()]
    text = split.text
    forced = demo().forced([*text.source], [*text.target])
    kinds = ["uniform", "permute", "word=1"]
    measured = intervene(demo().model, forced, kinds, ["step"], gold=text.gold, permutations=PERMUTATIONS)
    expected = [json.loads(json.dumps(asdict(one))) for one in effects(measured)]
    assert [one for one in found if one.pop("effect") == "Effect"] == expected
    analyze.main([*line, "step"])
    out = capsys.readouterr().out
    uniform = next(one for one in effects(measured) if one.kind == "uniform")
    assert f"{100 * uniform.kept:.1f} ± {100 * uniform.confidence['kept']:.1f}" in out
    with pytest.raises(SystemExit):
        analyze.main([*line, "every"])
    assert "--scopes=every is not allowed" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        analyze.main(["intervene", "demo", *DATA, "--test", "compositionl"])
    assert "Did you mean 'compositional'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "intervene --kinds uniform --scopes all --unseen",
        "intervene --scopes step --unseen",
        "intervene --kinds uniform --seed 2",
        "intervene --scopes free --pictures pictures",
        "intervene --scopes step search=beam",
        "aer search=beam",
        "measures search.size=2",
        "adversary search=beam",
        "attribute --methods attention search=beam",
    ],
)
def test_options_without_effect_are_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    question, *options = line.split()
    with pytest.raises(SystemExit):
        analyze.main([question, "demo", *DATA, *options])
    error = capsys.readouterr().err
    named = next(one for one in ("--unseen", "--seed", "--pictures", "search") if one in line)
    assert re.search(f"error: {named}.*(no effect|only with)", error)


def test_the_original_weights_are_an_option_of_attention_with_a_state() -> None:
    require_state(demo_with("luong", "coverage").model, ["step", "all"])


def test_kinds_scopes_and_methods_may_be_generators() -> None:
    run = demo()
    found = run.intervene(SOURCES[0], TARGETS[0], iter(["uniform"]), iter(["step"]))
    assert [(effect.kind, effect.scope) for effect in found.effects] == [("uniform", "step")]
    assert [*run.attribute(SOURCES[0], TARGETS[0], iter(["attention"])).attributions] == ["attention"]
