"""Trivial baselines: n-gram models against a slow reference, and what runs record and show of the baselines."""

import json
import logging
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
import torch
from finished_runs import result_of

from seq2seq_lab import evaluate
from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.data.dialogue import Dialogue
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.data.ragged import Ragged, spaced
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.metrics.accuracy import ExactMatch
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.metrics.chrf import Chrf
from seq2seq_lab.metrics.texts import References, TextOutputs
from seq2seq_lab.reporting import baselines, comparison
from seq2seq_lab.reporting.runs import find_runs, group_runs
from seq2seq_lab.reporting.score_tables import score_tables
from seq2seq_lab.tasks.classification.baselines import fit_naive_bayes
from seq2seq_lab.tasks.classification.data import LabelledTokens
from seq2seq_lab.tasks.language_model import task as language_model_task
from seq2seq_lab.tasks.language_model.ngrams import FALLBACK, KneserNey, discounts
from seq2seq_lab.tasks.parts import build_dataset

MACHINE = ("logger=none", "trainer.device=cpu", "trainer.precision=fp32", "task.samples=1")
SMALL = (
    *("dataset.train=60", "dataset.validation=12", "dataset.test=20", "trainer.max_epochs=1"),
    *("model.embedding_size=8", "task.batch_size=20"),
)
CHANNELS = ("encoder.channels=[4,6]", "encoder.strides=[2,2]")
GRAMMAR = (
    *("dataset.test_compositional=12", "dataset.max_depth=2", "model.encoder_hidden_size=8"),
    *("model.hidden_size=8", *SMALL, *MACHINE),
)
TYPES = 9


def run(folder: Path, *settings: str) -> dict[str, Any]:
    assert command_line.run(*settings, f"hydra.run.dir={folder}") == 0
    return result_of(folder)


def corpus_of(*settings: str) -> Any:
    """Return the corpus of a run's data set."""
    return build_dataset(compose_run(settings).config).load()


def sentences(seed: int, count: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    # Frequent and rare tokens; short sentences too.
    shares = np.array([0.05, 0.5, 0.25, 0.15, 0.05])
    return [[*map(int, rng.choice([0, 4, 5, 6, 7], size, p=shares))] for size in rng.integers(0, 7, count)]


def slow_probability(order: int, text: Sequence[Sequence[int]], context: Sequence[int], word: int) -> float:
    """Return p(word|context) of interpolated modified Kneser-Ney smoothing, from its formula."""
    framed = [(SOS, *line, EOS) for line in text]
    grams = {
        n: Counter(
            line[end - n + 1 : end + 1] for line in framed for end in range(1, len(line)) if end - n + 1 >= 0
        )
        for n in range(1, order + 1)
    }

    def adjusted(gram: tuple[int, ...]) -> int:
        if len(gram) == order or gram[0] == SOS:
            return grams[len(gram)][gram]
        return len({longer[0] for longer in grams[len(gram) + 1] if longer[1:] == gram})

    def discount(n: int, count: int) -> float:
        number = Counter(adjusted(gram) for gram in grams[n])
        found = []
        if all(number[k] for k in (1, 2, 3, 4)):
            share = number[1] / (number[1] + 2 * number[2])
            found = [k - (k + 1) * share * number[k + 1] / number[k] for k in (1, 2, 3)]
        if not found or min(found) <= 0:
            found = [0.5, 1.0, 1.5]
        return [0.0, *found][min(count, 3)]

    def probability(context: tuple[int, ...]) -> float:
        n = len(context) + 1
        lower = probability(context[1:]) if context else 1 / (TYPES - 2)
        following = [gram for gram in grams[n] if gram[:-1] == context]
        if not following:
            return lower
        total = sum(adjusted(gram) for gram in following)
        left = sum(discount(n, adjusted(gram)) for gram in following)
        count = adjusted((*context, word)) if (*context, word) in grams[n] else 0
        return (count - discount(n, count) + left * lower) / total

    return probability(tuple(context)[max(0, len(context) - order + 1) :])


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize(("seed", "count"), [(1, 6), (2, 60)])
def test_an_n_gram_model_has_the_probabilities_of_its_formula(order: int, seed: int, count: int) -> None:
    text, held_out = sentences(seed, count), sentences(seed + 10, 6)
    model = KneserNey(order, TYPES, TYPES - 2, Ragged.of(text))
    expected = []
    for line in held_out:
        framed = [SOS, *line, EOS]
        expected.append(
            -sum(
                math.log(slow_probability(order, text, framed[:end], framed[end]))
                for end in range(1, len(framed))
            )
        )
    assert model.nats(Ragged.of(held_out)) == pytest.approx(expected)


def test_lines_are_named_whose_test_sets_have_other_baselines() -> None:
    declared = Declarations.of((Chrf(),), (), "chrf").metrics

    def result(test_set: str, value: float) -> dict[str, object]:
        copy = {"baseline/copy/label": "copy of the source", "baseline/copy/test/chrf": value}
        return {"test/examples": test_set, **copy}

    equal = [("a", [result("1", 20.0)]), ("b", [result("2", 20.0), result("2", 20.0)])]
    assert [*baselines.notes(equal, declared)] == ["Trivial baselines: copy of the source: chrF 20.00."]
    others = [*equal, ("c", [result("3", 1.0)]), ("d", [result("1", 20.0)]), ("e", [{"test/examples": "4"}])]
    assert [*baselines.notes(others, declared)] == [
        "Trivial baselines of [a], [d], [b]: copy of the source: chrF 20.00.",
        "Trivial baselines of [c]: copy of the source: chrF 1.00.",
    ]


def test_a_baseline_of_many_texts_has_a_sample() -> None:
    texts = Ragged.of([[5] * 8] * 10)
    index, name = spaced(texts, most=50)
    assert (index.tolist(), name) == ([0, 2, 4, 6, 8], ", of 5 training texts")
    assert spaced(texts, most=100)[1] == ""
    assert len(spaced(Ragged.of([]))[0]) == 0


def test_a_trigram_model_of_too_many_types_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_model_task, "MOST_NGRAMS", 5000)
    settings = ("task=language_model", "model.hidden_size=8", "dataset.max_depth=2", *SMALL, *MACHINE)
    result = run(tmp_path / "run", *settings)
    found = {name.split("/")[1] for name in result if name.startswith("baseline/")}
    assert found == {"unigram"}


@pytest.mark.parametrize("order", [1, 3])
def test_the_probabilities_of_all_tokens_sum_to_one(order: int) -> None:
    model = KneserNey(order, TYPES, TYPES - 2, Ragged.of(sentences(3, 50)))
    for context in ([], [4], [4, 5], [7, 7, 0], [8]):  # 8 is not in the text
        # The sentence with each next token, without its end: the difference from the sentence without the token.
        probability = 0.0
        for word in set(range(TYPES)) - {PAD, SOS}:
            tokens = torch.tensor([SOS, *context, word], dtype=torch.int32)
            parts = [
                model.nats(Ragged(tokens[:end], torch.tensor([0, end])))[0]
                for end in (len(tokens) - 1, len(tokens))
            ]
            probability += math.exp(parts[0] - parts[1])
        assert probability == pytest.approx(1)


def test_discounts() -> None:
    counts = np.repeat([1, 2, 3, 4], [10, 4, 2, 1])
    share = 10 / (10 + 2 * 4)
    assert discounts(counts).tolist() == pytest.approx(
        [0, 1 - 2 * share * 4 / 10, 2 - 3 * share * 2 / 4, 3 - 4 * share * 1 / 2]
    )
    assert discounts(np.array([1, 1, 2, 5])) is FALLBACK  # no count of 3
    assert discounts(np.repeat([1, 2, 3, 4], [9, 1, 9, 9])) is FALLBACK  # a discount below 0


def labelled(seed: int, count: int) -> LabelledTokens:
    """Texts of two classes, which differ in the order of their tokens."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    texts = [([4, 5] if label else [5, 4]) * 2 + [int(rng.integers(6, 9))] for label in labels]
    return LabelledTokens(Ragged.unframed(lambda one: one, texts, ""), torch.from_numpy(labels))  # type: ignore[arg-type, return-value]


def test_naive_bayes_chooses_its_order_by_validation() -> None:
    pytest.importorskip("sklearn")
    bayes = fit_naive_bayes(labelled(1, 80), labelled(2, 40))
    assert bayes is not None
    assert (
        bayes.order == 2
    )  # single tokens do not distinguish the classes; a higher order does not increase the accuracy
    held_out = labelled(3, 20)
    probabilities_NC = bayes.probabilities(held_out.tokens, 3)
    assert (probabilities_NC.argmax(1) == held_out.labels.numpy()).all()
    assert probabilities_NC.sum(1) == pytest.approx(np.ones(20))
    assert (probabilities_NC[:, 2] == 0).all()  # a class without training texts


def test_without_scikit_learn_naive_bayes_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("sklearn", "sklearn.feature_extraction.text", "sklearn.naive_bayes"):
        monkeypatch.setitem(sys.modules, name, None)
    with caplog.at_level(logging.INFO):
        assert fit_naive_bayes(labelled(1, 80), labelled(2, 40)) is None
    (message,) = caplog.messages
    assert "pip install 'seq2seq_lab[baselines]'" in message


def test_classification_records_and_shows_the_most_frequent_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = (
        *("experiment=names", "dataset.names=240", "model.encoder_hidden_size=8", "trainer.max_epochs=1"),
        *("model.embedding_size=8", *MACHINE),
    )
    result = run(tmp_path / "run", *settings)
    printed = capsys.readouterr().out
    corpus = corpus_of(*settings)
    ((most_frequent, _),) = Counter(sorted(corpus.train.labels)).most_common(1)
    accuracy = result["baseline/most_frequent/test/accuracy"]
    assert accuracy == pytest.approx(np.mean([label == most_frequent for label in corpus.test.labels]))
    assert result["baseline/most_frequent/test/examples"] == result["test/examples"]
    assert result["baseline/most_frequent/test/accuracy_confidence"] >= 0
    assert "baseline/most_frequent/test/loss_classification" not in result
    label = result["baseline/most_frequent/label"]
    names = ("most_frequent", "naive_bayes")
    best = max(names, key=lambda name: float(result[f"baseline/{name}/test/accuracy"]))
    assert f"accuracy, {result[f'baseline/{best}/label']}" in printed
    assert label in (tmp_path / "run/report.html").read_text("utf-8")
    table = comparison.compare(group_runs(find_runs([tmp_path])[0]), None)
    macro_f1 = result["baseline/most_frequent/test/macro_f1"]
    assert f"{label}: accuracy {accuracy:.1%}, macro F1 {macro_f1:.3f}" in comparison.note(table)


def test_a_language_model_records_n_gram_models_in_the_same_unit(tmp_path: Path) -> None:
    settings = ("task=language_model", "model.hidden_size=8", "dataset.max_depth=2", *SMALL, *MACHINE)
    result = run(tmp_path / "run", *settings, "dataset.train=300")
    unigram, trigram = (
        {
            key.rpartition("/")[2]: value
            for key, value in result.items()
            if key.startswith(f"baseline/{name}/test/")
        }
        for name in ("unigram", "trigram")
    )
    assert trigram["perplexity_per_word"] < unigram["perplexity_per_word"]
    assert trigram["minimal_pairs"] >= 0
    for metrics in (unigram, trigram):
        # The number of tokens and words is that of the model: its loss and perplexities have the same ratio of logarithms.
        ratio = math.log(metrics["perplexity_per_word"]) / metrics["loss"]
        assert ratio == pytest.approx(math.log(result["test/perplexity_per_word"]) / result["test/loss"])
    assert "baseline/trigram/test/minimal_pairs_by_phenomenon" in result


def test_translation_records_the_copy_of_the_source_on_every_test_set(tmp_path: Path) -> None:
    result = run(tmp_path / "run", *GRAMMAR)
    text = Grammar(
        train=60, validation=12, test=20, test_compositional=12, held_out_share=0.1, seed=1, max_depth=2
    ).load()  # fmt: skip
    for prefix, name in (("test", "test"), ("test/compositional", "test_compositional")):
        pairs = text.tests[name]
        metric, outputs = Bleu(), TextOutputs(pairs.source, References(pairs.target, pairs.source))
        expected = metric.value(metric.rows(outputs).sum(0))
        assert result[f"baseline/copy/{prefix}/bleu"] == pytest.approx(expected)
        signature = f"{prefix}/bleu_signature"
        assert result[f"baseline/copy/{signature}"] == result[signature]
    numbers = [key for key, value in result.items() if isinstance(value, float)]
    names = {key.rpartition("/")[2] for key in numbers if key.startswith("baseline/copy/test/")}
    assert names == {"bleu", "bleu_confidence", "chrf", "chrf_confidence"}
    table = next(one for one in score_tables(result) if "baselines" in one.title)
    assert [row[0] for row in table.rows] == [
        *("this model, test", "copy of the source, test"),
        *("this model, test/compositional", "copy of the source, test/compositional"),
    ]
    evaluate.main([str(tmp_path / "run"), "dataset.seed=3", "--device", "cpu"])
    other = result_of(tmp_path / "run/evaluations/1")
    assert 0 <= other["baseline/copy/test/bleu"] != result["baseline/copy/test/bleu"]


def test_a_development_run_with_several_references_has_baselines(tmp_path: Path) -> None:
    settings = [word for word in GRAMMAR if not word.startswith("dataset.test_comp")]
    several = ("dataset.test_compositional=0", "task.multi_reference=true", "trainer.fast_dev_run=true")
    result = run(tmp_path / "run", *settings, *several)
    assert result["baseline/copy/test/examples"] == result["test/examples"]
    assert result["test/examples"].endswith("(multi-reference)")


def test_dialogue_records_the_last_turn_without_its_speaker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    dialogue = [
        {"speaker": "ann", "text": "hello"},
        {"speaker": "ben", "text": "hello"},
        "how are you?",
        "fine",
    ]
    for split in ("train", "validation", "test"):
        (data / f"{split}.jsonl").write_text(f"{json.dumps(dialogue)}\n" * 3, "utf-8")
    corpus = Dialogue(
        path=str(data),
        encoding=None,
        on_bad_pair="error",
        turns=None,
        language="en",
        train=1,
        validation=1,
        test=1,
        max_distance=1,
        overwritten=0,
        seed=1,
    ).load()
    assert corpus.tests["test"].last_turns == ["hello", "hello", "how are you?"] * 3  # type: ignore[attr-defined]
    settings = (
        *("task=dialogue", f"dataset.path={data}", "model.encoder_hidden_size=8", "trainer.max_epochs=1"),
        *("model.hidden_size=8", "model.embedding_size=8", *MACHINE),
    )
    result = run(tmp_path / "run", *settings)
    assert result["baseline/last_turn/test/accuracy"] == pytest.approx(1 / 3)


def test_captioning_records_the_most_frequent_caption(tmp_path: Path) -> None:
    settings = ("task=captions", *SMALL, "model.hidden_size=8", *CHANNELS, *MACHINE)
    result = run(tmp_path / "run", *settings)
    corpus = corpus_of(*settings)
    ((caption, _),) = Counter(corpus.train.captions).most_common(1)
    test = next(iter(corpus.tests.values()))
    references = References(test.captions, test.names, compose_run(settings).config.task["multi_reference"])
    outputs = TextOutputs([caption] * len(test), references)
    for metric in (Bleu(), ExactMatch()):
        expected = metric.value(metric.rows(outputs).sum(0))
        assert result[f"baseline/most_frequent/test/{metric.name}"] == pytest.approx(expected)
    assert result["baseline/most_frequent/label"] == "most frequent caption"
