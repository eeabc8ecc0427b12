"""Controls of the alignment error rate: random parameters of attention and uniform weights."""

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from demo_models import DATA, SOURCES, TARGETS, demo_with

from seq2seq_lab.analysis.controls import alignment_errors, training_words, with_random_attention
from seq2seq_lab.analysis.extraction import RULES, Null
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.data.corpus import Gold, ParallelText

GOLD = [
    Gold(("the", "king", "sleeps"), ("le", "roi", "dort"), frozenset({(0, 0), (1, 1), (2, 2)})),
    Gold(("white", "cow"), ("vache", "blanche"), frozenset({(1, 0), (0, 1)})),
]


@pytest.mark.parametrize(
    ("decoder", "attention", "random"),
    [
        ("luong", "additive", ("decoder.attention.",)),
        ("luong", "location_sensitive", ("decoder.attention.",)),
        ("transformer", "scaled_dot", ("cross_attention.query.", "cross_attention.key.")),
        ("luong", "dot", ()),
        ("bahdanau", "uniform", ()),
    ],
)
def test_only_the_parameters_that_compute_attention_weights_are_random(
    decoder: str, attention: str, random: tuple[str, ...]
) -> None:
    trained = demo_with(decoder, attention, seed=1).model
    made = with_random_attention(trained, demo_with(decoder, attention, seed=2).model)
    if not random:
        assert made is None
        return
    own, weights = trained.state_dict(), made.state_dict()
    changed = {name for name, value in weights.items() if not torch.equal(value, own[name])}
    assert changed
    assert changed == {name for name in own if any(part in name for part in random)}


def errors(run: Any, random_models: list[Any]) -> dict[tuple[str, str], Any]:
    found = alignment_errors(run.model, random_models, run.forced(SOURCES[:2], TARGETS[:2]), gold=GOLD)
    return {(one.weights, one.rows): one for one in found}


def test_each_layer_and_row_is_beside_the_controls() -> None:
    run = demo_with("transformer", "scaled_dot", num_layers=2)
    found = errors(run, [run.model, run.model])
    rows = ["layer_1", "layer_1_read", "layer_2", "layer_2_read"]
    assert [*found] == [
        *(("model", name) for name in rows),
        *(("random parameters", name) for name in rows),
        *(("uniform", ""), ("diagonal", ""), ("oracle", "")),
    ]
    for name in rows:  # the mean of equal draws
        assert found["random parameters", name].aer == pytest.approx(found["model", name].aer)
    assert found["model", "layer_1"] != found["model", "layer_2"]
    # 3 sure links of 3 × 3 cells and 2 of 2 × 2: a random link is right with probability 1/3, and with 1/2.
    assert found["uniform", ""].aer == found["uniform", ""].soft == pytest.approx(1 - 2 * 2 / (5 + 5))
    assert (found["diagonal", ""].aer, found["oracle", ""].aer) == (pytest.approx(1 - 3 / 5), 0)


def test_ibm_model_1_is_trained_on_the_training_text() -> None:
    run = demo_with("luong", "dot")
    sources = ["the king", "the cow", "white cow", "king sleeps", "sleeps", "white"]
    targets = ["le roi", "le vache", "vache blanche", "roi dort", "dort", "blanche"]
    train = training_words(ParallelText(sources, targets))
    assert train[0][0] == ("the", "king")
    forced = run.forced(SOURCES[:2], TARGETS[:2])
    found = {one.weights: one for one in alignment_errors(run.model, [], forced, gold=GOLD, train=train)}
    assert found["IBM model 1"].aer == 0
    assert found["IBM model 1"].soft is None
    gold = replace(ParallelText(SOURCES[:2], TARGETS[:2]), gold=GOLD)
    assert training_words(gold)[1] == [("le", "roi", "dort"), ("vache", "blanche")]


def test_the_rule_for_words_without_links_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    line, found = ["aer", "demo", *DATA, "--first", "2"], dict[Null, Any]()
    for null in get_args(Null):
        analyze.main([*line, "--null", null])
        assert RULES[null] in capsys.readouterr().out
        analyze.main([*line, "--null", null, "--format", "jsonl"])
        rows = map(json.loads, capsys.readouterr().out.splitlines())
        found[null] = {(one["weights"], one["rows"]): one["aer"] for one in rows}
    analyze.main([*line, "--ibm1"])
    out = capsys.readouterr().out
    assert RULES["drop"] in out
    assert "IBM model 1: a word has no link if" in out
    random = "random parameters", "attention"
    assert found["drop"][random] != found["allow"][random]
