"""Translation as a task: losses, scores, alignment error rate."""

import gc
import logging
import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import command_line
import hydra
import pytest
import sacrebleu
import torch
from omegaconf import DictConfig, OmegaConf
from small_models import batch_of, small_config
from torch import nn
from torch.nn import functional

from seq2seq_lab.analysis.extraction import RULES
from seq2seq_lab.config import schema as config
from seq2seq_lab.config.compose import compose_run, composer
from seq2seq_lab.config.schema import Precision
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.corpus import UNKNOWN, Corpus, Gold, ParallelText
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.near_duplicates import SIMILARITIES
from seq2seq_lab.data.tokenized import TokenizedCorpus, tokenize_corpus, tokenize_text
from seq2seq_lab.data.tokenizers import EOS, PAD, UNK, WordTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.alignment import AlignmentErrorRate, best_rows
from seq2seq_lab.metrics.attention import ATTENTION_MEASURES
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.metrics.measurement import measure
from seq2seq_lab.metrics.texts import References, TextOutputs
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.seq2seq import Seq2Seq, build_seq2seq
from seq2seq_lab.reporting.aer import about_aer
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.search.base import Hypothesis
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.tasks.base import StepInfo
from seq2seq_lab.tasks.parts import build_task
from seq2seq_lab.tasks.translation.data import check_lengths
from seq2seq_lab.tasks.translation.evaluation import (
    TranslationEvaluator,
    TranslationSplit,
    choose_samples,
    groupings,
    source_length_in_words,
)
from seq2seq_lab.tasks.translation.loss import TrainingLoss
from seq2seq_lab.tasks.translation.report import gold_links
from seq2seq_lab.tasks.translation.teacher_forcing import Constant

CPU = torch.device("cpu")
OPTIONS: dict[str, Any] = {
    "batch_size": 5,
    "groupings": groupings((6, 12)),
    "compute": Compute(CPU, Precision.fp32),
}
FIRST = StepInfo(epoch=0, step=0)


def word() -> WordTokenizer:
    return WordTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=None)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Grammar(
        train=60, validation=24, test=4, test_compositional=0, held_out_share=0.1, seed=1, max_depth=4
    ).load()


@pytest.fixture(scope="module")
def tokenized(corpus: Corpus) -> TokenizedCorpus:
    return tokenize_corpus(corpus, word, {}, None)


@pytest.fixture(scope="module")
def model(tokenized: TokenizedCorpus) -> Seq2Seq:
    sizes = ("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=4", "logger=none")
    with composer():
        composed = OmegaConf.to_container(hydra.compose("config", list(sizes)), resolve=True)
    typed = OmegaConf.merge(OmegaConf.structured(config.Config), composed)
    assert isinstance(typed, DictConfig)
    torch.manual_seed(0)
    pair = tokenized.tokenizers
    return build_seq2seq(config.typed(typed), pair.source.size, pair.target.size, joint=False)


class Oracle(nn.Module):
    """Attends to the tokens of the source word of each gold link, and to no other."""

    attends = True

    def __init__(self, cells: Sequence[set[tuple[int, int]]], vocabulary: int) -> None:
        super().__init__()
        self.cells = cells
        self.vocabulary = vocabulary
        self.order: list[int] = []

    def unroll(
        self, inputs_BT: torch.Tensor, _: None, source_BS: torch.Tensor, with_weights: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor]:
        weights_BTS = torch.zeros(*inputs_BT.shape, source_BS.shape[1])
        for row in range(len(source_BS)):
            for column, target in self.cells[self.order.pop(0)]:
                weights_BTS[row, target, column] = 1
        return torch.zeros(*inputs_BT.shape, self.vocabulary), weights_BTS

    def start(self, batch: Batch) -> tuple[None, torch.Tensor]:
        return None, batch.source_BS

    def step(self, token_N: torch.Tensor, *_: object) -> tuple[torch.Tensor, None, None]:
        return torch.full((len(token_N), self.vocabulary), -math.log(self.vocabulary)), None, None


class Reference:
    """A search that gives the reference back."""

    def __call__(self, _: Any, batch: Batch, __: bool) -> list[list[Hypothesis]]:
        rows = [[token for token in row if token > EOS or token == UNK] for row in batch.target_BU.tolist()]
        return [[Hypothesis(row, 0.0, 0.0, None)] for row in rows]


def evaluator(
    model: Any, text: ParallelText, tokenized: TokenizedCorpus, search: Any, **options: Any
) -> TranslationEvaluator:
    split = TranslationSplit("val", text, tokenized.validation)
    return TranslationEvaluator(model, split, tokenized.tokenizers, search=search, **{**OPTIONS, **options})


def batches_of(evaluate: TranslationEvaluator) -> list[Batch]:
    return [evaluate.batches(index) for index in evaluate.plan]


def greedy() -> GreedySearch:
    return GreedySearch(min_length_factor=0.0, max_length_factor=2.0, max_length_extra=10)


def test_a_suggested_beam_search_has_the_length_limits_of_the_run(tmp_path: Path) -> None:
    sizes = [f"dataset.{name}=9" for name in ("train", "validation", "test", "test_compositional")]
    found = {}
    for name in ("greedy", "beam", "sampling", "greedy_long"):
        task: Any = build_task(compose_run([f"search={name}", *sizes]).config)
        task.load(tmp_path, None, None)
        found[name] = task.commands["with a beam"][2:]
    usual = ("search=beam",)
    longer = (*usual, "search.max_length_factor=6")
    assert found == {"greedy": usual, "beam": usual, "sampling": usual, "greedy_long": longer}


def test_losses_equal_a_naive_loop(corpus: Corpus, tokenized: TokenizedCorpus, model: Seq2Seq) -> None:
    values = evaluator(model, corpus.validation, tokenized, greedy())().values
    pair = tokenized.tokenizers
    forced = free = 0.0
    count = 0
    with torch.no_grad():
        for source, target in zip(corpus.validation.source, corpus.validation.target, strict=True):
            batch = batch_of(pair.source.encode([source]), pair.target.encode([target]))
            target_1U = batch.target_BU
            logits, _ = model(batch, batch.inputs_BT)
            forced += float(functional.cross_entropy(logits[0], target_1U[0, 1:], reduction="sum"))
            state, memory = model.start(batch)
            token = target_1U[:, 0]
            for wanted in target_1U[0, 1:]:
                log_probs, state, _ = model.step(token, state, memory)
                free -= float(log_probs[0, wanted])
                token = log_probs.argmax(-1)
            count += target_1U.shape[1] - 1
    assert values["val/loss_teacher_forced"] == pytest.approx(forced / count, rel=1e-5)
    assert values["val/loss_free_running"] == pytest.approx(free / count, rel=1e-5)
    assert values["val/perplexity_free_running"] == pytest.approx(math.exp(free / count), rel=1e-4)


def test_label_smoothing_is_only_in_the_training_loss(
    tokenized: TokenizedCorpus, corpus: Corpus, model: Seq2Seq
) -> None:
    evaluate = evaluator(model, corpus.validation, tokenized, greedy())
    plain, smooth = (
        TrainingLoss(
            Constant(1.0, "token"),
            label_smoothing=share,
            r_drop=0.0,
            stop_at_eos=False,
            coverage_loss=0.0,
            seed=1,
        )
        for share in (0.0, 0.3)
    )
    model.eval()
    with torch.no_grad():
        losses = [
            sum(float(loss(model, batch, FIRST)) for batch in batches_of(evaluate))
            for loss in (plain, smooth)
        ]
    tokens = sum(batch.target_tokens for batch in batches_of(evaluate))
    assert evaluate().values["val/loss_teacher_forced"] == pytest.approx(losses[0] / tokens, rel=1e-5)
    assert losses[1] != pytest.approx(losses[0], rel=1e-4)


def test_r_drop_is_half_the_papers_loss_over_two_readings(
    tokenized: TokenizedCorpus, corpus: Corpus, model: Seq2Seq
) -> None:
    model = deepcopy(model)
    batch = batches_of(evaluator(model, corpus.validation, tokenized, greedy()))[0]
    plain, r_drop = (
        TrainingLoss(
            Constant(1.0, "token"),
            label_smoothing=0.1,
            r_drop=weight,
            stop_at_eos=False,
            coverage_loss=0.0,
            seed=1,
        )
        for weight in (0.0, 5.0)
    )
    model.eval()  # without dropout both readings agree
    once = plain(model, batch, FIRST)
    twice = r_drop(model, batch, FIRST)
    torch.testing.assert_close(once, twice)
    model.train()
    for dropout in (module for module in model.modules() if isinstance(module, Dropout)):
        dropout.probability = 0.5
    torch.manual_seed(3)
    found = r_drop(model, batch, FIRST)
    torch.manual_seed(3)
    logits, _ = model(batch.twice(), batch.inputs_BT.repeat(2, 1))
    one, other = logits.chunk(2)
    real = (batch.outputs_BT != PAD)[..., None]
    p, q = one.log_softmax(-1), other.log_softmax(-1)
    kl = ((p.exp() - q.exp()) * (p - q) * real).sum()
    likelihood = sum(
        functional.cross_entropy(
            half.flatten(0, 1),
            batch.outputs_BT.flatten(),
            ignore_index=PAD,
            reduction="sum",
            label_smoothing=0.1,
        )
        for half in (one, other)
    )
    torch.testing.assert_close(found, likelihood / 2 + 5 / 4 * kl)
    assert kl > 1


def test_a_free_running_loss_can_stop_at_a_predicted_eos(
    tokenized: TokenizedCorpus, corpus: Corpus, model: Seq2Seq
) -> None:
    model = deepcopy(model).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4)  # an untrained model says the same word again and again
        model.readout.linear.bias[EOS] += 3
    expected, stopped, batches = 0.0, 0, batches_of(evaluator(model, corpus.validation, tokenized, greedy()))
    with torch.no_grad():
        for batch in batches:
            for row, source_S in enumerate(batch.source_BS):
                words = source_S[1 : batch.source_lengths[row] - 1].tolist()
                state, source = model.start(batch_of([words], [[]]))
                target = [token for token in batch.target_BU[row].tolist() if token != PAD]
                token = target[0]
                for position, wanted in enumerate(target[1:], start=1):
                    log_probs, state, _ = model.step(torch.tensor([token]), state, source)
                    expected -= float(log_probs[0, wanted])
                    token = int(log_probs.argmax())
                    if token == EOS:
                        stopped += position < len(target) - 1
                        break
    loss = TrainingLoss(
        Constant(0.0, "token"), label_smoothing=0.0, r_drop=0.0, stop_at_eos=True, coverage_loss=0.0, seed=1
    )
    with torch.no_grad():
        found = [loss(model, batch, FIRST) for batch in batches]
    assert 2 < stopped < len(corpus.validation)
    assert sum(map(float, found)) == pytest.approx(expected, rel=1e-5)


def test_scores_are_sacrebleus_on_the_translations_in_the_order_of_the_split(
    corpus: Corpus, tokenized: TokenizedCorpus, model: Seq2Seq
) -> None:
    text = corpus.validation
    found = evaluator(model, text, tokenized, Reference())()
    expected = tokenized.tokenizers.target
    assert found.texts == [expected.decode(ids) for ids in expected.encode(text.target)]
    assert len(set(found.texts)) > 10
    found = evaluator(model, text, tokenized, greedy())()
    bleu = sacrebleu.corpus_bleu(found.texts, [list(text.target)])
    chrf = sacrebleu.corpus_chrf(found.texts, [list(text.target)])
    assert found.values["val/bleu"] == pytest.approx(bleu.score)
    assert found.values["val/chrf"] == pytest.approx(chrf.score)
    assert "tok:13a" in found.measurement.signatures["bleu"]
    alone = evaluator(model, text, tokenized, greedy(), batch_size=1)()
    assert alone.texts == found.texts


@pytest.mark.parametrize(("label", "scored"), [("fr", True), ("target", False), (None, False)])
def test_lowercased_tokenised_bleu_is_there_where_the_language_is_known(
    label: str | None, scored: bool, corpus: Corpus, tokenized: TokenizedCorpus, model: Seq2Seq
) -> None:
    split = TranslationSplit("val", corpus.validation, tokenized.validation, label)
    evaluate = TranslationEvaluator(model, split, tokenized.tokenizers, search=Reference(), **OPTIONS)
    found, name = evaluate(), "val/bleu_lowercased_tokenised"
    assert (name in found.values) == ("bleu_lowercased_tokenised" in found.measurement.signatures) == scored
    if scored:
        metric = Bleu(lowercased_tokenised=True)
        outputs = TextOutputs(found.texts, References(corpus.validation.target), "fr")
        again = measure([metric], outputs, clusters=outputs.references.clusters, examples="")
        assert found.values[name] == again.values[metric.name]
        assert found.measurement.signatures[metric.name] == again.signatures[metric.name]
        assert 0 < found.values[name] != found.values["val/bleu"]


@pytest.mark.parametrize("multiple", [False, True])
def test_pairs_of_one_source_are_scored_once_if_asked_for(
    multiple: bool, corpus: Corpus, tokenized: TokenizedCorpus, model: Seq2Seq
) -> None:
    text = corpus.validation
    half = len(text) // 2
    shared = ParallelText([*text.source[:half], *text.source[:half]], text.target)
    evaluate = TranslationEvaluator(
        model,
        TranslationSplit("val", shared, tokenize_text(shared, tokenized.tokenizers, "shared"), "fr"),
        tokenized.tokenizers,
        search=greedy(),
        multi_reference=multiple,
        **OPTIONS,
    )
    found = evaluate(final=True)
    assert len(found.texts) == 2 * half
    for score in ("bleu", "chrf", "ter", "bleu_lowercased_tokenised", "ter_lowercased_tokenised"):
        assert found.measurement.signatures[score].startswith("nrefs:2|" if multiple else "nrefs:1|")
    for kind in ("", ".lc.tok"):
        sides = found.scored_lines[kind]
        assert [len(lines) for lines in sides] == ([half] * 3 if multiple else [2 * half] * 2)
    assert sum(one.count for one in found.measurement.groups["bleu_by_length"]) == (
        half if multiple else 2 * half
    )


def test_oracle_attention_has_no_alignment_error(corpus: Corpus, tokenized: TokenizedCorpus) -> None:
    # One source word for each target word: otherwise A is smaller than S whatever the attention.
    gold = [
        Gold(g.source_words, g.target_words, frozenset({t: (s, t) for s, t in sorted(g.links)}.values()))
        for g in corpus.validation.gold or ()
    ]
    text = ParallelText(corpus.validation.source, corpus.validation.target, gold)
    pair = tokenized.tokenizers
    cells = [
        gold_links(links, source, target, pair.source.spans(source), pair.target.spans(target))
        for links, source, target in zip(gold, text.source, text.target, strict=True)
    ]
    oracle = Oracle(cells, pair.target.size)
    evaluate = evaluator(oracle, text, tokenized, Reference())
    oracle.order = [i for batch in batches_of(evaluate) for i in batch.index_B.tolist()]
    values = evaluate(final=True).values
    assert values["val/alignment_recall"] == 1
    assert values["val/aer_oracle"] == pytest.approx(values["val/aer"])
    assert values["val/aer_diagonal"] > values["val/aer_oracle"]
    assert values["val/aer"] < 0.2  # words without a gold link get one too
    assert values["val/loss_teacher_forced"] == pytest.approx(math.log(oracle.vocabulary), rel=1e-5)


@pytest.mark.parametrize("heads", [1, 2])
def test_every_head_of_a_transformer_has_an_alignment_error(
    corpus: Corpus, tokenized: TokenizedCorpus, heads: int
) -> None:
    torch.manual_seed(0)
    pair = tokenized.tokenizers
    model = build_seq2seq(
        small_config("transformer", "transformer", "scaled_dot", num_heads=heads, num_layers=2),
        pair.source.size,
        pair.target.size,
        joint=False,
    )
    evaluate = evaluator(model, corpus.validation, tokenized, Reference())
    values = evaluate(final=True).values
    of_heads = {f"val/aer_layer_{layer}_head_{head}" for layer in (1, 2) for head in range(1, heads + 1)}
    names = of_heads | {f"{name}_read" for name in of_heads}
    assert {name for name in values if "_head_" in name} == names
    if heads == 1:  # `aer` is that of the mean over the heads of the last layer
        assert values["val/aer_layer_2_head_1"] == values["val/aer"]
        assert values["val/aer_layer_2_head_1_read"] == values["val/aer_read"]
        assert values["val/aer_layer_1_head_1"] != values["val/aer"]
    assert names <= {f"val/{metric.name}" for metric in evaluate.metrics}
    assert values["val/aer_layer_2"] == values["val/aer"]
    assert values["val/aer_layer_2_read"] == values["val/aer_read"]
    layers = [f"layer_{layer}{reading}" for layer in (1, 2) for reading in ("", "_read")]
    assert best_rows(values) == min(layers, key=lambda name: values[f"val/aer_{name}"])
    assert not any("_layer_" in name for name in evaluate().values)
    assert "val/aer_soft" not in evaluate().values
    evaluate.also = ["aer_soft"]  # as with trainer.monitor=val/aer_soft
    assert evaluate().values["val/aer_soft"] == values["val/aer_soft"]


def test_the_rows_of_the_lowest_error_on_validation_are_named() -> None:
    assert best_rows({}) is None
    assert best_rows({"val/bleu": 3.0, "test/aer": 0.5}) is None
    assert best_rows({"val/aer": 0.2, "val/aer_read": 0.1, "val/aer_soft": 0.0}) == "read"
    heads = {"val/aer_layer_1_head_1": 0.0, "val/aer_layer_1": 0.4, "val/aer_layer_2_read": 0.3}
    assert best_rows({"val/aer": 0.1, "val/aer_read": math.nan, **heads}) == "layer_2_read"
    assert best_rows({"val/aer": 0.1, "val/aer_read": math.nan}) == "attention"
    scored = {"test/examples": "0449a15", "test/aer": 0.4}
    result = {
        **scored,
        "test/aer_read": 0.6,
        "test/aer_layer_2_read": 0.25,
        "aer_rows": "layer_2_read",
    }
    declared = Declarations.of(
        [Bleu(), AlignmentErrorRate("oracle"), AlignmentErrorRate("diagonal"), AlignmentErrorRate()],
        (),
        "bleu",
    )
    assert about_aer(result, declared).endswith(
        "(read), is 0.600. The validation split selects the step that reads the word, layer 2 (mean over its heads): AER "
        f"0.250 on the test set. {RULES['drop']}"
    )
    assert about_aer({**result, "aer_rows": "read"}, declared).endswith(
        f"the step that reads the word: AER 0.600 on the test set. {RULES['drop']}"
    )
    assert "selects" not in about_aer({**scored, "aer_rows": "layer_9"}, declared)
    validated = {
        "val/aer": 0.4,
        "val/aer_read": 0.6,
        "aer_rows": "read",
    }  # of an evaluation of the validation split
    assert "AER 0.600 on the validation split." in about_aer(validated, declared)
    assert about_aer({"test/bleu": 0.4}, declared) == ""


def test_attention_is_kept_where_it_is_asked_for(
    corpus: Corpus, tokenized: TokenizedCorpus, model: Seq2Seq
) -> None:
    assert evaluator(model, corpus.validation, tokenized, greedy())().hypotheses == {}
    evaluate = evaluator(model, corpus.validation, tokenized, greedy(), samples=[3, 7], kept_at_end=[4])
    calls: list[tuple[int, int]] = []
    kept = evaluate(counted=lambda done, total: calls.append((done, total))).hypotheses
    assert (
        calls[-3:] == [(len(evaluate.plan), len(evaluate.plan))] * 3
    )  # also after each metric: a signal stops there
    assert set(kept) == {3, 7}
    final = evaluate(final=True)
    assert set(final.hypotheses) == {3, 4, 7, *(one.pair for one in final.worst)}
    for i, hypothesis in kept.items():
        assert hypothesis.weights_TS is not None
        assert hypothesis.weights_TS.shape[1] == int(tokenized.validation.source.lengths[i])
        assert hypothesis.weights_TS.sum(1) == pytest.approx(1, abs=1e-5)


def test_without_gold_there_is_no_alignment_error(
    corpus: Corpus, tokenized: TokenizedCorpus, model: Seq2Seq
) -> None:
    text = ParallelText(corpus.validation.source, corpus.validation.target)
    values = evaluator(model, text, tokenized, greedy())().values
    assert set(values) == {
        *("val/bleu", "val/chrf", "val/loss_teacher_forced", "val/loss_free_running"),
        *("val/perplexity_teacher_forced", "val/perplexity_free_running", "val/loops", "val/at_limit"),
        *(f"val/{metric.name}" for metric in ATTENTION_MEASURES),
    }


def source_lengths_in_words(text: ParallelText) -> list[int]:
    return [source_length_in_words(text, i) for i in range(len(text))]


def test_lengths_are_words(corpus: Corpus, tokenized: TokenizedCorpus, model: Seq2Seq) -> None:
    gold = Gold(("Hello", ",", "you"), ("a",), frozenset())
    assert source_length_in_words(ParallelText(["Hello, you"], ["a"], [gold]), 0) == 2
    text = ParallelText(["a  b, c", ""], ["", ""])
    assert [source_length_in_words(text, i) for i in (0, 1)] == [3, 0]
    lengths = [source_length_in_words(corpus.validation, i) for i in range(len(corpus.validation))]
    bins = evaluator(model, corpus.validation, tokenized, greedy())(final=True).measurement.groups[
        "bleu_by_length"
    ]
    assert [b.count for b in bins] == [
        sum(length <= 6 for length in lengths),
        sum(6 < length <= 12 for length in lengths),
        sum(length > 12 for length in lengths),
    ]


def test_samples_are_the_same_every_time_and_of_readable_length(corpus: Corpus) -> None:
    chosen = choose_samples(corpus.validation, 4)
    assert chosen == choose_samples(corpus.validation, 4)
    lengths = [source_length_in_words(corpus.validation, i) for i in range(len(corpus.validation))]
    assert len(set(chosen)) == 4
    assert all(6 <= lengths[i] <= 14 for i in chosen)
    assert choose_samples(corpus.validation, 0) == []
    assert len(choose_samples(corpus.validation, 1000)) <= len(lengths)
    plain = ParallelText(["a b c d e f g"] * 20, ["a"] * 20)
    assert choose_samples(plain, 4) == [0, 5, 10, 15]
    assert choose_samples(ParallelText(["a", "b"], ["a", "b"]), 1) == [0]


def test_sentences_whose_links_cross_most_come_first() -> None:
    words = tuple("abcdefg")
    straight = Gold(words, words, frozenset((i, i) for i in range(7)))
    reverse = Gold(words, words, frozenset((i, 6 - i) for i in range(7)))
    text = ParallelText([" ".join(words)] * 3, [" ".join(words)] * 3, [straight, reverse, straight])
    assert choose_samples(text, 2) == [1, 0]
    marks = ParallelText(
        ["?", "!"], ["?", "!"], [Gold((mark,), (mark,), frozenset({(0, 0)})) for mark in "?!"]
    )
    assert choose_samples(marks, 1) == [0]


@pytest.mark.parametrize("unknown", [True, False])
def test_references_that_contain_the_mark_of_unknown_words_are_reported(
    unknown: bool,
    corpus: Corpus,
    tokenized: TokenizedCorpus,
    model: Seq2Seq,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mark = UNKNOWN if unknown else "<unk>"
    targets = [f"{mark} {line}" for line in corpus.validation.target[:2]]
    text = ParallelText(corpus.validation.source, [*targets, *corpus.validation.target[2:]])
    evaluator(model, text, tokenized, greedy())
    assert ("2 references of val contain ⁇" in caplog.text) == unknown


def test_a_metric_of_the_final_evaluation_is_computed_at_validation_if_it_is_monitored(
    corpus: Corpus, tokenized: TokenizedCorpus, model: Seq2Seq
) -> None:
    split = TranslationSplit("val", corpus.validation, tokenized.validation)
    evaluate = TranslationEvaluator(
        model, split, tokenized.tokenizers, search=greedy(), **OPTIONS, also=["ter"]
    )
    assert evaluate().values["val/ter"] == evaluate(final=True).values["val/ter"]


def test_exact_matches_are_counted_for_every_phenomenon_of_a_sentence(
    corpus: Corpus, tokenized: TokenizedCorpus, model: Seq2Seq
) -> None:
    text = corpus.validation
    assert text.phenomena is not None
    found = evaluator(model, text, tokenized, Reference())(final=True)
    exact = [one == other for one, other in zip(found.texts, text.target, strict=True)]
    rows = found.measurement.groups["accuracy_by_phenomenon"]
    assert [row.group for row in rows] == sorted(set().union(*text.phenomena))
    for row in rows:
        hits = [hit for hit, names in zip(exact, text.phenomena, strict=True) if row.group in names]
        assert (row.count, row.value) == (len(hits), pytest.approx(sum(hits) / len(hits)))


def test_bleu_is_reported_by_similarity_to_training(
    corpus: Corpus, tokenized: TokenizedCorpus, model: Seq2Seq
) -> None:
    """The pairs of a group are scored alone; a split whose pairs are all alike has no groups."""
    labels = [SIMILARITIES[number % 2] for number in range(len(corpus.validation))]
    targets = [
        " ".join(target.split()[:: -1 if number % 2 else 1])
        for number, target in enumerate(corpus.validation.target)
    ]
    text = replace(corpus.validation, similarity=labels, target=targets, gold=None)
    found = evaluator(model, text, tokenized, Reference())(final=True)
    rows = found.measurement.groups["bleu_by_similarity"]
    assert [row.group for row in rows] == ["in training", "within one word"]
    assert rows[0].value > 2 * rows[1].value  # the references of the second group are reversed
    for row, label in zip(rows, SIMILARITIES, strict=False):
        pairs = [number for number, one in enumerate(labels) if one == label]
        outputs, references = ([side[i] for i in pairs] for side in (found.texts, text.target))
        assert row.count == len(pairs)
        assert row.value == pytest.approx(sacrebleu.corpus_bleu(outputs, [references]).score, abs=1e-6)
    for alike in (None, ["other"] * len(labels)):
        split = replace(text, similarity=alike)
        groups = evaluator(model, split, tokenized, Reference())(final=True).measurement.groups
        assert "bleu_by_similarity" not in groups


def test_empty_splits_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test.tsv").write_text("a\tb\n")
    settings = [
        "dataset=parallel",
        f"dataset.test={tmp_path}/test.tsv",
        "logger=none",
        f"cache_dir={tmp_path}",
    ]
    assert command_line.run(*settings, f"hydra.run.dir={tmp_path}/run") == 2
    assert "'train': 0, 'validation': 0, 'test': 1" in capsys.readouterr().err


def test_accuracy_is_reported_by_length_for_data_sets_with_lengths(
    corpus: Corpus, tokenized: TokenizedCorpus, model: Seq2Seq
) -> None:
    """Every length is a group, in numerical order."""
    lengths = [(1 + number % 11, 3 * (number % 2)) for number in range(len(corpus.validation))]
    text = replace(corpus.validation, lengths=lengths)
    found = evaluator(model, text, tokenized, Reference())(final=True)
    exact = [one == other for one, other in zip(found.texts, text.target, strict=True)]
    for side, name in enumerate(("source", "target")):
        rows = found.measurement.groups[f"accuracy_by_{name}_length"]
        assert [int(row.group) for row in rows] == sorted({pair[side] for pair in lengths})
        for row in rows:
            hits = [hit for hit, pair in zip(exact, lengths, strict=True) if pair[side] == int(row.group)]
            assert (row.count, row.value) == (len(hits), pytest.approx(sum(hits) / len(hits)))
    groups = evaluator(model, corpus.validation, tokenized, Reference())(final=True).measurement.groups
    assert "accuracy_by_source_length" not in groups


def test_long_held_out_pairs_are_counted_and_the_remedies_are_those_of_the_data_set() -> None:
    train = ParallelText(["a b c"], ["a b c"])
    corpus = Corpus("en", "fr", train, ParallelText(["a", "b b b", "c"], ["a", "b", "c c c c"]), {})
    tokens = tokenize_corpus(corpus, lambda: WordTokenizer(False, False, 1, None), {}, None).validation
    dataset: Any = SimpleNamespace()
    limited: Any = SimpleNamespace(max_tokens=None)
    check_lengths("validation", corpus.validation, tokens, 4, dataset)
    with pytest.raises(UserError, match=r"the target of pair 3 has 4 tokens.*too long: 1"):
        check_lengths("validation", corpus.validation, tokens, 3, dataset)
    message = r"the source of pair 2 has 3 tokens: 'b b b'.*max_eval_length=2.*too long: 2"
    gold = replace(corpus.validation, gold=[Gold((), (), frozenset())] * 3)
    for one, text, excluded in (
        (dataset, corpus.validation, False),
        (limited, corpus.validation, True),
        (limited, gold, False),
    ):
        with pytest.raises(UserError, match=message) as error:
            check_lengths("validation", text, tokens, 2, one)
        assert ("dataset.max_tokens" in str(error.value)) == excluded


@pytest.mark.parametrize(
    ("tokenizer", "kept"),
    [(("tokenizer=word",), 0), (("tokenizer=bpe_dropout", "tokenizer.vocab_size=270"), 2)],
)
def test_the_training_text_is_kept_only_if_it_is_tokenized_again(
    tokenizer: Sequence[str], kept: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = 1234
    for split, size in {"train": pairs, "validation": 5, "test": 5}.items():
        lines = (f"{split} {number} sleeps\t{split} {number} dort" for number in range(size))
        (tmp_path / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    files = [f"dataset.{split}={tmp_path / split}.tsv" for split in ("train", "validation", "test")]
    task: Any = build_task(compose_run(["dataset=parallel", *files, *tokenizer]).config)
    data = task.load(tmp_path / "cache", None, None)
    assert data.record["sizes"]["train"] == pairs
    gc.collect()
    assert len([one for one in gc.get_objects() if type(one) is Lines and len(one) == pairs]) == kept
    with caplog.at_level(logging.INFO, "seq2seq_lab"):
        task.describe()
    assert f"{pairs:,}" in caplog.text
    assert caplog.text.count("│ source │") == 3
