"""What a run shows: parameters, corpus, translations, heatmaps."""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from seq2seq_lab.data.corpus import Corpus, Gold, ParallelText
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenized import TokenizedText, tokenize_corpus
from seq2seq_lab.data.tokenizers import BpeTokenizer, Tokenizer, TokenizerPair, WordTokenizer
from seq2seq_lab.data.words import words
from seq2seq_lab.metrics.alignment import Link
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.metrics.measurement import Measurement
from seq2seq_lab.reporting.run_report import RunReport, component_parameters
from seq2seq_lab.reporting.score_tables import values_line, without_middle
from seq2seq_lab.reporting.shown import show_validation
from seq2seq_lab.search.base import Hypothesis
from seq2seq_lab.tasks.decoded import DecodedEvaluation
from seq2seq_lab.tasks.evaluation import Evaluation
from seq2seq_lab.tasks.report import Report
from seq2seq_lab.tasks.translation import report
from seq2seq_lab.tasks.translation.evaluation import (
    METRICS,
    PRIMARY,
    TranslationSplit,
    choose_samples,
    source_length_in_words,
)
from seq2seq_lab.tasks.translation.report import TranslationReport, describe, gold_links
from seq2seq_lab.tracking import NoTracker, Trackers

DECLARED = Declarations.of(METRICS, (), PRIMARY)


def test_a_metric_that_is_not_finite_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task: Any = SimpleNamespace(metrics=METRICS, groupings=(), primary=PRIMARY)
    task.report = lambda split, evaluation, step: Report()
    data: Any = SimpleNamespace(validation=SimpleNamespace(prefix="val"), tests=())
    run_report = RunReport(task, data, tmp_path, Trackers(()))
    measurement = Measurement({"bleu": math.nan}, not_finite=["bleu"])
    for step in (1, 2):
        run_report.validation(Evaluation({"val/bleu": math.nan}, measurement, None), step)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "metric bleu" in warnings[0]


class Pictures(NoTracker):
    """A tracker that keeps what it is given."""

    def __init__(self) -> None:
        self.shown: dict[str, list[str]] = {}
        self.tables: dict[str, Sequence[Sequence[object]]] = {}

    def log_images(self, name: str, paths: Sequence[Path], captions: Sequence[str], step: int) -> None:
        self.shown[name] = [*(path.name for path in paths), *captions, str(step)]

    def log_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], step: int
    ) -> None:
        assert len(columns) == len(rows[0])
        assert step
        self.tables[name] = rows


def word() -> Tokenizer:
    return WordTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=None)


def bpe() -> Tokenizer:
    return BpeTokenizer(joint=True, lowercase=False, vocab_size=300, min_frequency=2, dropout=0.0)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Grammar(
        train=60, validation=12, test=4, test_compositional=0, held_out_share=0.1, seed=1, max_depth=4
    ).load()


@pytest.fixture(scope="module")
def pairs(corpus: Corpus) -> dict[str, TokenizerPair]:
    return {make.__name__: tokenize_corpus(corpus, make, {}, None).tokenizers for make in (word, bpe)}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was to be drawn, instead of drawing it."""
    heatmaps: list[dict[str, Any]] = []

    def heatmap(
        weights: Any,
        columns: Sequence[str],
        rows: Sequence[str],
        title: str,
        links: Collection[Link],
        *,
        room: int | None,
        note: str | None,
    ) -> object:
        assert weights.shape == (len(rows), len(columns))
        heatmaps.append(
            {"columns": columns, "rows": rows, "title": title, "links": links, "weights": weights}
            | {"room": room, "note": note}
        )
        return heatmaps[-1]

    monkeypatch.setattr(report.plots, "draw_attention", heatmap)
    return heatmaps


def hypothesis(pair: TokenizerPair, source: str, target: str, ended: bool = True) -> Hypothesis:
    """Return `target` as a hypothesis whose attention is the same on every source token."""
    (tokens,), (columns,) = pair.target.encode([target]), pair.source.encode([source])
    shape = (len(tokens) + ended, len(columns) + 2)
    return Hypothesis(tokens, 0.0, 0.0, np.full(shape, 1 / shape[1], dtype=np.float32))


def heatmap(
    text: ParallelText, i: int, shown: Hypothesis, step: int | None, pair: TokenizerPair, join: bool = False
) -> object:
    """Draw the attention of a hypothesis."""
    tokens = TokenizedText(Ragged.of([]), Ragged.of([]))
    evaluation = DecodedEvaluation({}, Measurement({}), None, [], hypotheses={i: shown})
    return TranslationReport(TranslationSplit("val", text, tokens), evaluation, pair, join).figure(i, step)


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_heatmap_has_the_tokens_on_its_axes(
    kind: str,
    corpus: Corpus,
    pairs: dict[str, TokenizerPair],
    drawn: list[dict[str, Any]],
    tmp_path: Path,
) -> None:
    pair, text = pairs[kind], corpus.train
    assert heatmap(text, 0, hypothesis(pair, text.source[0], text.target[1]), 1200, pair)
    assert drawn[0]["columns"][:1] + drawn[0]["columns"][-1:] == ["<sos>", "<eos>"]
    assert drawn[0]["rows"][-1] == "<eos>"
    inner = drawn[0]["columns"][1:-1]
    assert inner == pair.source.tokens(pair.source.encode([text.source[0]])[0])
    if kind == "word":
        assert set(inner) <= {*text.source[0].replace(".", " . ").replace(",", " , ").split()}
    assert drawn[0]["title"] == text.source[0]
    assert drawn[0]["note"] == "step 1,200"
    assert drawn[0]["links"] == set()


@pytest.mark.parametrize("kind", ["word", "bpe"])
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "cut off"])
def test_subwords_are_joined_to_words(
    kind: str,
    ended: bool,
    corpus: Corpus,
    pairs: dict[str, TokenizerPair],
    drawn: list[dict[str, Any]],
    tmp_path: Path,
) -> None:
    pair, text = pairs[kind], corpus.train
    assert heatmap(text, 0, hypothesis(pair, text.source[0], text.target[0], ended), 1, pair, join=True)
    assert drawn[0]["columns"] == ["<sos>", *text.source[0].split(), "<eos>"]
    assert drawn[0]["rows"] == text.target[0].split()
    # A separate space token is not part of a word.
    assert drawn[0]["weights"].sum(1).max() <= 1 + 1e-5
    if kind == "word":
        assert drawn[0]["weights"].sum(1) == pytest.approx(1, abs=1e-5)


def test_empty_hypothesis(
    corpus: Corpus, pairs: dict[str, TokenizerPair], drawn: list[dict[str, Any]], tmp_path: Path
) -> None:
    empty = hypothesis(pairs["bpe"], corpus.train.source[0], "")
    assert heatmap(corpus.train, 0, empty, 1, pairs["bpe"])
    assert drawn[0]["rows"] == ["<eos>"]
    assert not heatmap(corpus.train, 0, empty, 1, pairs["bpe"], join=True)
    assert not heatmap(corpus.train, 0, Hypothesis([], 0.0, 0.0, None), 1, pairs["bpe"])
    assert len(drawn) == 1


def test_gold_links_are_outlined_where_the_translation_is_the_reference(
    pairs: dict[str, TokenizerPair], drawn: list[dict[str, Any]], tmp_path: Path, corpus: Corpus
) -> None:
    text = corpus.train
    assert text.gold is not None
    for join in (False, True):
        heatmap(text, 0, hypothesis(pairs["word"], text.source[0], text.target[0]), 1, pairs["word"], join)
        columns, rows = drawn[-1]["columns"], drawn[-1]["rows"]
        words = {(text.gold[0].source_words[a], text.gold[0].target_words[b]) for a, b in text.gold[0].links}
        found = {(columns[column], rows[row]) for column, row in drawn[-1]["links"]}
        if join:
            # Of "d'un" and the like only the word with most letters owns the row.
            assert len(found) > len(words) / 2
            assert all(any(a in x and b in y for a, b in words) for x, y in found)
        else:
            assert found == words


@pytest.mark.parametrize("join", [False, True])
def test_the_size_of_a_heatmap_depends_on_the_sentence_alone(
    join: bool, pairs: dict[str, TokenizerPair], drawn: list[dict[str, Any]], tmp_path: Path, corpus: Corpus
) -> None:
    text, pair = corpus.train, pairs["bpe"]
    for step, target in ((1, text.target[0]), (2, text.target[0] * 3), (None, text.target[0])):
        heatmap(text, 0, hypothesis(pair, text.source[0], target), step, pair, join)
    first, second, final = drawn
    assert first["room"] == second["room"]
    assert first["room"] > len(first["rows"])
    assert final["room"] is None
    assert (first["note"], final["note"]) == (
        "step 1, outlined: gold alignment",
        "outlined: gold alignment",
    )
    assert second["note"] == "step 2"


def test_gold_links_count_tokens_after_sos() -> None:
    gold = Gold(("big", "cat"), ("gros", "chat"), frozenset({(0, 1), (1, 0)}))
    columns, rows = [(0, 1), (1, 3), (4, 7), (7, 8)], words("gros chat!")
    assert gold_links(gold, "big cat.", "gros chat!", columns, rows) == {(1, 1), (2, 1), (3, 0)}


def test_validation_shows_logs_and_draws(
    corpus: Corpus, pairs: dict[str, TokenizerPair], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "seq2seq_lab")
    text, pair = corpus.validation, pairs["word"]
    tracker = Pictures()
    first, second = samples = choose_samples(text, 2)
    hypotheses = {i: hypothesis(pair, text.source[i], text.target[1]) for i in (first, second)}
    evaluation = DecodedEvaluation(
        dict(VALUES), Measurement({}), None, list(text.target), samples, hypotheses
    )
    tokens = tokenize_corpus(corpus, word, {}, None).validation
    shown = TranslationReport(TranslationSplit("val", text, tokens), evaluation, pair, join=False)
    show_validation(shown.validation(42), "val", tmp_path, tracker, 42)
    assert tracker.shown == {
        "val/attention/1": ["sample_1_step_00000042.png", text.source[first], "42"],
        "val/attention/2": ["sample_2_step_00000042.png", text.source[second], "42"],
    }
    assert {path.name for path in (tmp_path / "attention").iterdir()} == {
        "sample_1_step_00000042.png",
        "sample_2_step_00000042.png",
    }
    rows = tracker.tables["val/translations"]
    texts = [text.source[first], text.target[first], text.target[first]]
    assert text.phenomena is not None
    about = [source_length_in_words(text, first), ", ".join(sorted(text.phenomena[first]))]
    assert list(rows[0]) == [*texts, 100, *about]
    assert text.source[first][:40] in caplog.text


def test_the_metrics_of_a_validation_are_on_one_line() -> None:
    assert values_line(VALUES, DECLARED).startswith(
        "BLEU 12.35, chrF 30.00, AER 0.250, teacher-forced loss 1.500"
    )


def test_the_line_of_a_validation_omits_defects_that_no_output_has() -> None:
    assert "loops" not in values_line({**VALUES, "val/loops": 0.0}, DECLARED)
    assert "loops 0.40%, at the length limit 1.00%" in values_line(
        {**VALUES, "val/loops": 0.004, "val/at_limit": 0.01}, DECLARED
    )


def test_a_shortened_text_keeps_its_end() -> None:
    assert without_middle("a b c", 5) == "a b c"
    assert without_middle("abcdefghijklmnop", 12) == "abcd … lmnop"
    assert without_middle("这是一本书这是一本书", 12) == "这是 … 本书"
    assert without_middle("e\u0301" * 12, 12) == "e\u0301" * 12
    assert without_middle("e\u0301" * 13, 12) == "e\u0301" * 4 + " … " + "e\u0301" * 5


VALUES: Mapping[str, float] = {
    "val/loss_teacher_forced": 1.5,
    "val/loss_free_running": 20.0,
    "val/perplexity_teacher_forced": 4.4817,
    "val/perplexity_free_running": 485165195.4,
    "val/bleu": 12.345,
    "val/chrf": 30.0,
    "val/aer": 0.25,
}


class Parts(nn.Module):
    """A model in parts, whose output is its embedding."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 2)
        self.decoder = nn.Module()
        self.decoder.cell = nn.GRUCell(2, 2)
        self.decoder.start = nn.Parameter(torch.zeros(2))
        self.dropout = nn.Dropout(0.1)
        self.readout = nn.Linear(2, 5, bias=False)
        if tied:
            self.readout.weight = self.embedding.weight
        self.embedding.weight.requires_grad = False


@pytest.mark.parametrize("tied", [False, True])
def test_parameters_of_the_components_add_up(tied: bool) -> None:
    model = Parts(tied)
    rows = {name: (parameters, trainable) for name, parameters, trainable in component_parameters(model)}
    assert rows == {
        "embedding": (10, 0),
        "decoder.cell": (36, 36),
        "decoder": (2, 2),
        "readout": (0, 0) if tied else (10, 10),
    }
    assert sum(row[0] for row in rows.values()) == sum(p.numel() for p in model.parameters())


def test_description_omits_counts_of_zero(corpus: Corpus, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "seq2seq_lab")
    text = corpus.validation
    corpus = replace(corpus, tests={**corpus.tests, "test_more": text})
    counts = {
        "pairs_dropped": 0,
        "pairs_over_max_tokens": 1234,
        "test_more/shared_source": len(text),
    }
    tokenized = tokenize_corpus(corpus, word, {}, None)
    describe(replace(corpus, counts=counts), tokenized)
    assert "Counted in the corpus: 1,234 pairs over max tokens." in caplog.text
    (row,) = [line for line in caplog.text.split("\n") if "test/more " in line and "100.0%" in line]
    assert f"{len(text)} (100.0%)" in row
    assert "dropped" not in caplog.text
    assert "near-duplicates" in caplog.text
    caplog.clear()
    describe(replace(corpus, counts={"pairs_dropped": 0}), tokenized)
    assert "Counted" not in caplog.text
    assert "near-duplicates" not in caplog.text
