"""Questions about one sentence: the same numbers as those of many, as plain data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demo_models import SOURCES, TARGETS, demo, demo_with

from seq2seq_lab.analysis.attributions import attribute
from seq2seq_lab.analysis.interventions import intervene
from seq2seq_lab.analysis.plain import plain
from seq2seq_lab.analysis.questions import ask
from seq2seq_lab.analysis.traced import Change
from seq2seq_lab.errors import UserError

PAIR = SOURCES[1], TARGETS[1]


def as_plain(one: Any) -> Any:
    return json.loads(json.dumps(one.as_json(), allow_nan=False))


def test_a_score_is_plain_data() -> None:
    (scored,) = demo().score([PAIR[0]], [PAIR[1]])
    found = as_plain(scored)
    assert [one["log_prob"] for one in found["tokens"]] == scored.log_probs.tolist()
    assert [one["token"] for one in found["tokens"]] == scored.tokens
    assert found["attention"] == scored.attention.tolist()
    assert found["log_prob"] == scored.log_prob


def test_an_attribution_of_one_pair() -> None:
    run, methods = demo(), ["attention", "grad_x_input", "occlusion"]
    question = ask(run.model, run.forced([PAIR[0]], [PAIR[1]]), 0)
    expected = attribute(question, methods)
    found = run.attribute(*PAIR, methods)
    assert as_plain(found)["scores"] == {name: one.scores_TU.tolist() for name, one in expected.items()}
    assert (found.words, found.tokens) == (question.source_names, question.target_names)
    assert found.against is None


def test_the_contrast_of_two_words() -> None:
    run = demo()
    by_word = run.attribute(*PAIR, ["occlusion"], against="grande")
    token = run.tokenizers.target.encode(["grande"])[0][0]
    by_id = run.attribute(*PAIR, ["occlusion"], against=token)
    assert by_word.against == by_id.against == ["grande"] * len(by_word.tokens)
    assert as_plain(by_word) == as_plain(by_id)
    plain_one = run.attribute(*PAIR, ["occlusion"])
    assert (
        by_word.attributions["occlusion"].scores_TU != plain_one.attributions["occlusion"].scores_TU
    ).any()
    with pytest.raises(UserError, match="against=zzz"):
        run.attribute(*PAIR, ["occlusion"], against="zzz")


def test_an_intervention_on_one_pair() -> None:
    run, kinds = demo(), ["uniform", "word=0"]
    found = run.intervene(*PAIR, kinds, ["step", "all"])
    expected = intervene(run.model, run.forced([PAIR[0]], [PAIR[1]]), kinds, ["step", "all"])
    assert [(one.kind, one.scope) for one in found.effects] == [*expected]
    for one, tokens in zip(as_plain(found)["effects"], expected.values(), strict=True):
        assert one["tokens"] == plain(tokens)
        assert len(one["tokens"]["kept"]) == len(found.tokens)
    rows = [[0.0, 1.0, *[0.0] * 7]]
    given = run.intervene(*PAIR, ["weights"], weights=rows).effects[0].tokens
    assert given.log_prob_change == pytest.approx(expected["word=0", "step"].log_prob_change, abs=1e-5)
    for wrong in ({"weights": [[1.0]], "kinds": ["weights"]}, {"scopes": ["free"]}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            run.intervene(*PAIR, **wrong)


@pytest.mark.parametrize("against", [10**6, -1, 1.5, True, [1]])
def test_the_id_of_a_contrast_is_one_of_the_vocabulary(against: Any) -> None:
    with pytest.raises(UserError, match=r"^against="):
        demo().attribute(SOURCES[0], TARGETS[0], ["grad_norm"], against)


@pytest.mark.parametrize(
    ("kinds", "options", "key"),
    [
        (["word=99"], {}, "kind"),
        (["mask=4"], {}, "kind"),
        ([3], {}, "kind"),
        ("uniform", {}, "intervene"),
        (["uniform"], {"scopes": "step"}, "intervene"),
        (["uniform"], {"layer": 0}, "layer"),
        (["uniform"], {"seed": 1.5}, "seed"),
        (["permute"], {"seed": -1}, "seed"),
        (["uniform"], {"seen": "no"}, "seen"),
        (["weights"], {"weights": [[1.5, -0.5, 0, 0, 0, 0]]}, "weights"),
        (["weights"], {"weights": [[np.nan, 1, 0, 0, 0, 0]]}, "weights"),
        (["permute"], {"permutations": 0}, "permutations"),
        (["weights"], {"weights": 3}, "weights"),
        (["weights"], {"weights": [["a"] * 6]}, "weights"),
        (["weights"], {"weights": [[0.1] * 6] * 3}, "weights"),  # for some of the tokens
        (["uniform"], {"weights": [[0.1] * 6]}, "weights"),
    ],
)
def test_arguments_of_an_intervention_are_checked(kinds: Any, options: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError, match=f"^{key}[ =]"):
        demo().intervene(SOURCES[0], TARGETS[0], kinds, **options)


def test_a_layer_is_a_whole_number() -> None:
    run = demo_with("transformer", "scaled_dot")
    for value in (0.5, 2, -1):
        with pytest.raises(UserError, match=r"^layer="):
            run.intervene(SOURCES[0], TARGETS[0], ["uniform"], layer=value)


@pytest.mark.parametrize(
    ("sources", "targets", "key"),
    [([3], ["x"], "sources"), (["x"], [None], "targets"), (["x"], None, "targets"), (None, [], "sources")],
)
def test_pairs_are_texts(sources: Any, targets: Any, key: str) -> None:
    with pytest.raises(UserError, match=f"^{key}[ =]"):
        demo().score(sources, targets)


def test_positions_of_a_trace_are_whole_numbers() -> None:
    run = demo()
    traced = run.trace(SOURCES[0])
    for step in (-1, 99, 1.5, True, "a"):
        with pytest.raises(UserError, match=r"^step="):
            run.alternatives(traced, step)
        for change in ({"kind": "uniform", "step": step}, Change(kind="uniform", step=step)):
            with pytest.raises(UserError, match=r"^change\.step="):
                run.trace(SOURCES[0], change=change, before=traced)
    assert run.alternatives(traced, np.int64(1)) == run.alternatives(traced, 1)
    for options in ({"prefix": 5}, {"top": 1.5}, {"change": 3}):
        with pytest.raises(UserError, match=f"^{next(iter(options))}="):
            run.trace(SOURCES[0], **options)
    with pytest.raises(UserError, match=r"^change\.weights="):
        run.trace(SOURCES[0], change=Change(kind="uniform", step=0, weights=[1.0]), before=traced)


def test_numbers_of_numpy_are_read_as_those_of_python() -> None:
    run = demo()
    traced = run.trace(SOURCES[0])
    ids = [token.id for token in traced.best.tokens[:2]]
    for prefix in (np.array(ids), [*map(np.int64, ids)]):
        assert [token.id for token in run.trace(SOURCES[0], prefix).prefix] == ids
    row = np.full(len(traced.source.column_names), 0.125)
    rows = (row, [*row], [*map(np.float32, row)], [0.125] * len(row))
    changes = [{"kind": "weights", "step": np.int64(1), "weights": one, "seen": np.True_} for one in rows]
    expected, *found = [as_plain(run.trace(SOURCES[0], change=change)) for change in changes]
    assert found == [expected] * 3
    run.intervene(*PAIR, ["uniform"], seen=np.False_, seed=np.int64(2))
    with pytest.raises(UserError, match=r"^change\.seed=-1"):
        run.trace(SOURCES[0], change={"kind": "permute", "step": 1, "seed": -1})


def test_the_arguments_beside_a_trace_are_those_of_it() -> None:
    run, change, search = demo(), {"kind": "uniform", "step": 1}, ["search=beam", "search.size=2"]
    ids = [token.id for token in run.trace(SOURCES[0]).best.tokens[:1]]
    before = run.trace(SOURCES[0], ids, search=search)
    expected = run.trace(SOURCES[0], ids, change, search=search)
    for options in ({}, {"prefix": ids}, {"search": search}):
        assert as_plain(run.trace(SOURCES[0], change=change, before=before, **options)) == as_plain(expected)
    for name, other in (("prefix", [*ids, *ids]), ("search", ["search=beam", "search.size=3"])):
        with pytest.raises(UserError, match=f"^{name}=.*that of before"):
            run.trace(SOURCES[0], change=change, before=before, **{name: other})
    for name, wrong in (("prefix", None), ("search", "search=greedy")):
        with pytest.raises(UserError, match=r"^(prefix=None|trace takes a list)"):
            run.trace(SOURCES[0], change=change, before=before, **{name: wrong})
    with pytest.raises(UserError, match=r"^sentence=.*that of before"):
        run.trace(SOURCES[1], change=change, before=before)


@pytest.mark.parametrize("sentence", [5, None, [SOURCES[0]], Path("a sentence")])
def test_a_sentence_is_a_text(sentence: Any) -> None:
    with pytest.raises(UserError, match=r"^sentence="):
        demo().trace(sentence)
    with pytest.raises(UserError, match=r"^sentences?="):
        demo().show([sentence])
