"""The search of one input as plain data."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from demo_models import SOURCES, demo, demo_with

import seq2seq_lab
from seq2seq_lab.analysis.changes import KINDS, ChangedModel
from seq2seq_lab.analysis.interventions import intervene
from seq2seq_lab.analysis.plain import plain
from seq2seq_lab.analysis.traced import Change, Traced
from seq2seq_lab.analysis.tracing import _whole_word
from seq2seq_lab.data.tokenizers import EOS, SOS, BpeTokenizer, CharTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.search.trace import count_numbers

SENTENCE = SOURCES[1]
SHORT = ("search.max_length_factor=1", "search.max_length_extra=1")
GREEDY = ("search=greedy", *SHORT)
BEAM = ("search=beam", "search.size=5", "search.nbest=5", *SHORT)
SAMPLES = ("search=sampling", "search.nbest=3", *SHORT)
MODELS = {
    "demo": lambda: demo(),
    "before": lambda: demo_with("bahdanau", "additive"),
    "feeding": lambda: demo_with("luong_feeding", "dot", hidden_size=10),
    "coverage": lambda: demo_with("bahdanau", "coverage"),
    "transformer": lambda: demo_with("transformer", "scaled_dot"),
    "vanilla": lambda: demo_with("plain", "none"),
}
ATTENDING = [name for name in MODELS if name != "vanilla"]
each_model = pytest.mark.parametrize("name", MODELS)
each_attention = pytest.mark.parametrize("name", ATTENDING)
each_search = pytest.mark.parametrize("search", [GREEDY, BEAM, SAMPLES], ids=["greedy", "beam", "sampling"])


def ids(output: Any) -> list[int]:
    return [token.id for token in output.tokens]


@each_search
@each_model
def test_its_numbers_are_those_of_the_search_and_the_score(name: str, search: tuple[str, ...]) -> None:
    run = MODELS[name]()
    traced = run.trace(SENTENCE, search=search)
    predicted = list(search_of(run, search).nbest([SENTENCE], join_subwords=False)[0])
    scored = run.score([SENTENCE] * len(predicted), [one.text for one in traced.outputs])
    assert len(predicted) == len(traced.outputs)
    for output, one, score in zip(traced.outputs, predicted, scored, strict=True):
        assert (output.text, output.log_prob, output.score) == (one.text, one.log_prob, one.score)
        assert math.fsum(output.log_probs) == pytest.approx(output.log_prob, abs=1e-4)
        if one.attention is None:
            assert output.attention is None
        else:
            assert (output.attention == one.attention).all()
        if [
            token.text for token in output.tokens
        ] == score.tokens:  # an output may not be how its text is tokenized
            assert output.log_probs == pytest.approx(score.log_probs, abs=1e-4)
            assert output.entropies == pytest.approx(score.entropies, abs=1e-4)
            assert output.words == score.words
            assert output.word_log_probs == pytest.approx(score.word_log_probs, abs=1e-4)
            assert output.ranks == score.ranks


def search_of(run: Any, search: tuple[str, ...]) -> Any:
    """The run with another search, for `predict`."""
    other = replace(run)
    other.__dict__["search"] = run.opening.search(search)[0]
    return other


@each_search
def test_the_finished_leaves_of_the_tree_are_the_outputs(search: tuple[str, ...]) -> None:
    traced = demo().trace(SENTENCE, search=search)
    parents = {node.parent for node in traced.tree}
    finished = [node for node in traced.tree if node.state == "finished"]
    assert sorted(node.output for node in finished) == [*range(len(traced.outputs))]
    for node in finished:
        output = traced.outputs[node.output]
        assert node.id not in parents
        assert node.id == output.leaf
        assert node.total == pytest.approx(output.log_prob, abs=1e-5)
        assert path_of(traced, node.id) == ids(output)
    for node in traced.tree:
        assert bool(node.reason) == (node.state == "pruned")
        assert (node.state == "kept") == (node.id in parents)
        if node.parent is not None:
            assert node.total == pytest.approx(traced.tree[node.parent].total + node.log_prob, abs=1e-4)


def path_of(traced: Traced, node: int) -> list[int]:
    found = []
    while traced.tree[node].parent is not None:
        found.append(traced.tree[node].token)
        node = traced.tree[node].parent or 0
    return found[::-1]


@each_model
def test_forcing_an_output_gives_this_output(name: str) -> None:
    run = MODELS[name]()
    for output in run.trace(SENTENCE, search=BEAM).outputs[:: 1 if name == "demo" else 4]:
        forced = run.trace(SENTENCE, ids(output), search=BEAM)
        assert forced.outputs[0].text == output.text
        assert forced.outputs[0].log_prob == pytest.approx(output.log_prob, abs=1e-4)
        assert forced.outputs[0].log_probs == pytest.approx(output.log_probs, abs=1e-4)
        assert [token.id for token in forced.prefix] == ids(output)
        assert all(step.forced for step in forced.steps)


def test_another_search_replaces_the_settings_of_an_opened_run() -> None:
    run = seq2seq_lab.load("demo", changes=["search=beam", "search.size=3"])
    assert run.trace(SENTENCE).search.width == 3
    assert run.trace(SENTENCE, search=["search.size=2"]).search.width == 2
    assert run.trace(SENTENCE, search=["search=greedy"]).search.name == "greedy"


class Untraced:
    """A search that has the argument trace, and does not record its outputs."""

    def __init__(self, search: Any, records: int) -> None:
        self.search, self.records = search, records

    def __call__(
        self, model: Any, batch: Any, with_weights: bool, *, prefix: Any = None, trace: Any = None
    ) -> Any:
        found = self.search(model, batch, with_weights, prefix=prefix)
        if self.records:
            trace.start(len(found), 1)
            trace.finish(found)
        return found


class WithoutArguments:
    def __call__(self, model: Any, batch: Any, with_weights: bool) -> Any: ...


@pytest.mark.parametrize("kind", ["nothing", "only its outputs", "no arguments"])
def test_a_search_that_records_no_trace_is_named_with_the_remedy(kind: str) -> None:
    run = demo()
    greedy, settings = run.opening.search(())
    search = WithoutArguments() if kind == "no arguments" else Untraced(greedy, kind != "nothing")
    run = replace(run, opening=replace(run.opening, search=lambda changes: (search, settings)))
    named = rf"search\._target_=test_tracing\.{type(search).__name__} .*search=beam.*PathSearch"
    with pytest.raises(UserError, match=named):
        run.trace(SENTENCE)
    with pytest.raises(UserError, match=named):
        run.neighbors(SENTENCE, step=0)
    with pytest.raises(UserError, match=named):
        seq2seq_lab.difference(run, run, SENTENCE)


def test_an_ensemble_is_traced_with_a_prefix() -> None:
    both = seq2seq_lab.ensemble([demo(), demo_with("bahdanau", "additive")])
    traced = both.trace(SENTENCE, search=GREEDY)
    assert both.trace(SENTENCE, ids(traced.best)).best.log_probs == pytest.approx(
        traced.best.log_probs, abs=1e-4
    )
    with pytest.raises(UserError, match="ensemble"):
        both.trace(SENTENCE, change={"kind": "uniform", "step": 1})


def test_steps_have_the_most_probable_next_tokens() -> None:
    traced = demo().trace(SENTENCE, search=BEAM)
    assert len(traced.steps) == len(traced.best.tokens)
    for step, token, rank, log_prob in zip(
        traced.steps, ids(traced.best), traced.best.ranks, traced.best.log_probs, strict=True
    ):
        assert step.token == token
        assert len(step.top) == 10
        assert [one.log_prob for one in step.top] == sorted((one.log_prob for one in step.top), reverse=True)
        assert step.top[rank - 1].id == token
        assert step.top[rank - 1].log_prob == log_prob


def test_a_word_of_a_prefix_is_cut_by_the_tokenizer() -> None:
    run = demo()
    (king,) = run.tokenizers.target.encode(["le roi"])
    for prefix in ("le roi", ["le", "roi"], [king[0], "roi"], king):
        traced = run.trace(SENTENCE, prefix)
        assert [token.id for token in traced.prefix] == king
        assert traced.best.text.startswith("le roi ")
        assert traced.best.ranks[0] > 1
    assert [token.kind for token in run.trace(SENTENCE, "zzz").prefix] == ["unknown"]


def test_a_word_after_others_begins_with_a_space_of_characters() -> None:
    tokenizer = CharTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=None)
    tokenizer.train(["le chat dort"])
    given = replace(demo().trace(SENTENCE).given, tokenizer=tokenizer)
    assert tokenizer.decode(given.ids(["le", "chat"])) == "le chat"
    assert tokenizer.decode(given.ids([*tokenizer.encode(["le "])[0], "chat"])) == "le chat"


def test_an_empty_output_has_one_step() -> None:
    traced = demo().trace(SENTENCE, [EOS])
    json.dumps(traced.as_json(), allow_nan=False)
    assert (traced.best.text, traced.best.words, ids(traced.best)) == ("", [], [EOS])
    assert traced.best.attention is not None
    assert traced.best.attention.shape[0] == len(traced.steps) == 1
    changed = demo().trace(SENTENCE, change={"kind": "uniform", "step": 0}, before=traced)
    assert changed.best.text == ""


def test_words_join_tokens() -> None:
    traced = demo().trace("the king sees the man.", "le roi voit l'")
    best = traced.best
    assert best.words[3].startswith("l'")
    assert [token.word for token in best.tokens][3:6] == [3, 3, 3]
    assert traced.source.word_column_names == ["<sos>", *traced.source.words, "<eos>"]
    assert best.attention is not None
    assert best.word_attention is not None
    np.testing.assert_allclose(best.word_attention[3], join(best.attention[3:6]), rtol=1e-6)
    for kind, column in (("sos", 0), ("punctuation", -2), ("eos", -1)):
        assert best.margins[kind] == pytest.approx(best.attention[:, column])
    for word, row in enumerate(best.word_attention):
        links = [link for link in best.links if link.word == word]
        assert [link.weight for link in links] == [row[link.column] for link in links]
        assert (
            sum(link.weight for link in links) >= 0.75 * row.sum() > sum(link.weight for link in links[:-1])
        )


def join(rows: Any) -> Any:
    """The mean of rows, with the columns of "man" and "." joined."""
    mean = rows.mean(0)
    return np.concatenate([mean[:5], [mean[5] + mean[6]], mean[7:]])


def test_alternatives_are_whole_words() -> None:
    run = demo()
    traced = run.trace("the king sees the man.", "le roi voit l'")
    found = run.alternatives(traced, 3)
    assert [one.word for one in found] == [one.text for one in found]
    chosen = next(one for one in found if one.id == traced.steps[3].token)
    assert (chosen.word, chosen.pieces) == ("l'", ["l'"])
    assert [(one.id, one.log_prob) for one in found] == [
        (one.id, one.log_prob) for one in traced.steps[3].top
    ]
    with pytest.raises(UserError, match="step=99"):
        run.alternatives(traced, 99)


def test_a_word_of_several_tokens_ends_at_punctuation() -> None:
    line = "voilà l'étrange क्षेत्र."
    tokenizer = BpeTokenizer(False, False, 270, 2, 0.0)
    tokenizer.train([line])
    (tokens,) = tokenizer.encode([line])
    given: Any = SimpleNamespace(
        tokenizer=tokenizer, before=[], names=lambda token: (*tokenizer.tokens([token]), "word")
    )
    found = [_whole_word(given, [*tokens], index) for index in range(len(tokens))]
    words = [one["word"] for one in found if one["word"] != "▁"]
    assert list(dict.fromkeys(words)) == ["voilà", "l", "'", "étrange", "क्षेत्र", "."]
    (pieces,) = {tuple(one["pieces"]) for one in found if one["word"] == "étrange"}
    assert pieces[-4:] == ("a", "n", "g", "e")
    assert [one["ids"] for one in found if one["word"] == "क्षेत्र"][-1] == tokens[-2:-1]
    for index, one in enumerate(found):
        assert one["ids"] == tokens[index : index + len(one["ids"])]


@each_model
def test_it_is_plain_data(name: str) -> None:
    run = MODELS[name]()
    traced = run.trace(SENTENCE, search=BEAM, maps=True)
    text = json.dumps(traced.as_json(), allow_nan=False)
    found = json.loads(text)
    assert found["outputs"][0]["text"] == traced.best.text
    assert (found["no_attention"] is None) == run.model.attends == bool(found["outputs"][0]["links"])
    assert found["search"]["name"] == "beam"
    assert found["search"]["settings"]["size"] == 5
    assert ("cross" in found["maps"]) == (name == "transformer")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sentence": " "}, "sentence=' '"),
        ({"prefix": [1]}, "prefix=1"),
        ({"prefix": [10**6]}, "prefix=1000000"),
        ({"prefix": [-1]}, "prefix=-1"),
        ({"prefix": [3, 5]}, "prefix="),
        ({"search": ["task.samples=3"]}, "search=task.samples=3"),
        ({"search": ["search=beam", "search.size=0"]}, "search.size"),
        ({"top": 0}, "top=0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        demo().trace(**{"sentence": SENTENCE, **arguments})


@each_attention
@pytest.mark.parametrize("kind", ["permute", "previous", "zero_out_max"])
def test_a_changed_step_has_the_effect_of_the_intervention(name: str, kind: str) -> None:
    run = MODELS[name]()
    before = run.trace(SENTENCE, search=BEAM)
    traced = run.trace(SENTENCE, change={"kind": kind, "step": 2}, before=before)
    old, new = traced.changed.old_log_probs, traced.changed.new_log_probs
    assert old[0] == pytest.approx(traced.changed.before.log_prob, abs=1e-4)
    assert new[1] == pytest.approx(traced.best.log_prob, abs=1e-4)
    assert ids(traced.best)[:2] == ids(before.best)[:2]
    assert [step.forced for step in traced.steps[:3]] == [True, True, False]
    assert traced.changed.scope.startswith("The weights are changed at step 3 (")
    # The first two rows of attention are those of the search without the change.
    np.testing.assert_allclose(traced.best.attention[:2], before.best.attention[:2], atol=1e-6)
    forced = run.forced([SENTENCE], [before.best.text])
    (batch,) = map(forced.batch, forced.plan)
    if batch.outputs_BT[0].tolist() == ids(before.best):  # an output may not be how its text is tokenized
        tokens = intervene(run.model, forced, [kind], ["step"])[kind, "step"]
        chosen = {one.id: one.log_prob for one in traced.steps[2].top}
        if before.steps[2].token in chosen:
            found = chosen[before.steps[2].token] - before.best.log_probs[2]
            assert found == pytest.approx(tokens.log_prob_change[2], abs=1e-4)


@pytest.mark.parametrize(
    ("name", "search"),
    [*((name, GREEDY) for name in ATTENDING), ("before", BEAM), ("coverage", SAMPLES)],
)
def test_a_change_continues_where_the_first_search_was(
    name: str, search: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not read the kept words again; with fewer kept states or none it reads some, and finds the same."""
    run, steps = MODELS[name](), [0]
    before = run.trace(SENTENCE, search=search)
    monkeypatch.setattr("seq2seq_lab.search.trace.LARGEST_STATES", 3 * count_numbers(before.record.states[2]))
    fewer = run.trace(SENTENCE, search=search)
    assert 1 < len(fewer.record.states) < len(before.record.states)

    def count() -> None:
        steps[0] += 1

    for change, known in (
        (Change(kind="uniform", step=4), 4),
        (Change(kind="previous", step=3, scope="from"), 2),
    ):
        steps[0] = 0
        traced = run.trace(SENTENCE, change=change, before=before, check=count)
        assert traced.given.model.unchanged is None
        assert search != GREEDY or steps[0] == max(node.step for node in traced.tree) - known
        assert traced.best.log_probs[:known] == before.best.log_probs[:known]
        assert (traced.best.attention[:known] == before.best.attention[:known]).all()
        assert plain(traced.steps[known - 1].top) == plain(before.steps[known - 1].top)
        for other in fewer, replace(before, record=None):
            again = run.trace(SENTENCE, change=change, before=other)
            assert [node.token for node in again.tree] == [node.token for node in traced.tree]
            assert [one.forced for one in again.steps] == [one.forced for one in traced.steps]
            assert again.best.log_prob == pytest.approx(traced.best.log_prob, abs=1e-4)
            assert again.best.log_probs == pytest.approx(traced.best.log_probs, abs=1e-4)
            np.testing.assert_allclose(again.best.attention, traced.best.attention, atol=1e-5)
            for field in "old_log_probs", "new_log_probs":
                ours, theirs = getattr(again.changed, field), getattr(traced.changed, field)
                assert ours == pytest.approx(theirs, abs=1e-4)


@each_attention
def test_the_original_weights_change_nothing(name: str) -> None:
    run = MODELS[name]()
    before = run.trace(SENTENCE, search=BEAM, maps=name == "transformer")
    row, head = before.best.attention[1], {}
    if before.maps:
        row, head = before.maps["cross"][0, 0, 1], {"layer": 0, "head": 0}
    change = Change(kind="weights", step=1, weights=row.tolist(), **head)
    traced = run.trace(SENTENCE, change=change, before=before)
    assert traced.best.text == traced.changed.before.text
    assert traced.best.log_probs == pytest.approx(traced.changed.before.log_probs, abs=1e-4)
    assert all(pair.same for pair in traced.changed.words)
    again = run.trace(SENTENCE, ids(before.best)[:1], search=BEAM)
    assert traced.changed.before.text == again.best.text


@each_attention
@pytest.mark.parametrize("kind", ["permute", "previous"])
def test_a_changed_model_reads_as_it_steps(name: str, kind: str) -> None:
    """Also the draws and the unchanged weights of the previous step are the same."""
    run = MODELS[name]()
    changed = ChangedModel(run.model, KINDS[kind], first=1, last=3)
    batch = run.search_input(SENTENCE).batch(1)
    inputs_1T = torch.tensor([[SOS, 5, 9, 4, 7, 11]])
    with torch.no_grad():
        state, source = changed.start(batch)
        one, middle, _ = changed.read(inputs_1T[:, :2], state, source)
        other, after, _ = changed.read(inputs_1T[:, 2:4], middle, source)
        rest, _, _ = changed.read(inputs_1T[:, 4:], after, source)
        found = [*one[0], *other[0], *rest[0]]
        for t in range(6):
            log_probs_1V, state, _ = changed.step(inputs_1T[:, t], state, source)
            torch.testing.assert_close(found[t], log_probs_1V[0], atol=1e-4, rtol=1e-4)
            if t == 3:  # later steps are not changed
                for ours, theirs in zip(after.previous, state.previous, strict=True):
                    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "unifrm", "step": 1}, "kind=unifrm"),
        ({"kind": "gold", "step": 1}, "change.kind=gold"),
        ({"kind": "word=99", "step": 1}, "change.kind=word=99"),
        ({"kind": "uniform"}, "change.step=None"),
        ({"kind": "uniform", "step": 99}, "change.step=99"),
        ({"kind": "uniform", "step": -1}, "change.step=-1"),
        ({"kind": "uniform", "step": 1, "scope": "all"}, "change.step=1"),
        ({"kind": "uniform", "step": 1, "scope": "some"}, "change.scope"),
        ({"kind": "uniform", "step": "1"}, "change.step"),
        ({"kind": "uniform", "step": 1, "row": 1}, "change.row"),
        ({"kind": "uniform", "step": 1, "layer": 0}, "layer=0"),
        ({"kind": "weights", "step": 1}, "change.weights=None"),
        ({"kind": "weights", "step": 1, "weights": [1.0]}, "change.weights"),
        ({"kind": "weights", "step": 1, "weights": [math.nan] * 9}, "change.weights"),
        ({"kind": "weights", "step": 1, "weights": [1e308] * 9}, "change.weights"),
        ({"step": 1}, "change="),
    ],
)
def test_wrong_changes_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        demo().trace(SENTENCE, change=change)


def test_a_model_without_attention_cannot_be_changed() -> None:
    with pytest.raises(UserError, match="no attention"):
        MODELS["vanilla"]().trace(SENTENCE, change={"kind": "uniform", "step": 1})
