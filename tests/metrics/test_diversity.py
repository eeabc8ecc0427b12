"""Distinct n-grams and the entropy of their distribution, against the formulas of the papers."""

import math
from collections.abc import Sequence

import pytest

from seq2seq_lab.metrics.diversity import Distinct, NgramEntropy
from seq2seq_lab.metrics.measurement import measure
from seq2seq_lab.metrics.segmentation import SPACED, Segmentation
from seq2seq_lab.metrics.texts import References, TextOutputs

RESPONSES = ["i do not know .", "i do not know .", "i see .", "", "you know it ."]
OTHERS = ["yes .", "no .", "it is red .", "it is not .", "who ?"]


def outputs(hypotheses: Sequence[str], segmentation: Segmentation = SPACED) -> TextOutputs:
    return TextOutputs(hypotheses, References(OTHERS[: len(hypotheses)], segmentation=segmentation))


def ngrams(lines: Sequence[str], order: int) -> list[str]:
    words = [line.split() for line in lines]
    return [" ".join(line[start : start + order]) for line in words for start in range(len(line) - order + 1)]


@pytest.mark.parametrize("order", [1, 2, 4])
def test_the_formulas_of_the_papers(order: int) -> None:
    found = ngrams(RESPONSES, order)
    shares = [found.count(ngram) / len(found) for ngram in set(found)]
    metrics = (
        Distinct(order),
        NgramEntropy(order),
        Distinct(order, of_references=True),
        NgramEntropy(order, of_references=True),
    )
    of_split = outputs(RESPONSES)
    measured = measure(metrics, of_split, clusters=of_split.references.clusters, examples="", final=True)
    assert measured.values[f"distinct_{order}"] == pytest.approx(len(shares) / len(found))
    assert measured.values[f"entropy_{order}"] == pytest.approx(-sum(p * math.log(p) for p in shares))
    of_references = ngrams(OTHERS, order)
    share = len(set(of_references)) / len(of_references)
    entropy = math.log(len(of_references))  # with the counts of each n-gram
    entropy -= sum(math.log(of_references.count(ngram)) for ngram in of_references) / len(of_references)
    assert measured.values[f"entropy_{order}_references"] == pytest.approx(entropy)
    assert measured.values[f"distinct_{order}_references"] == pytest.approx(share)
    assert measured.values.keys() == {metric.name for metric in metrics}  # no intervals
    assert not measured.statistics


def test_the_tokens_are_those_of_bleu() -> None:
    chinese = outputs(["我很好。", "我不好。"], Segmentation("zh", "asian"))
    assert Distinct(1).value(Distinct(1).rows(chinese).sum(0)) == pytest.approx(5 / 8)
    assert Distinct(1).signature(chinese) == "case:mixed|tok:zh"
    hindi = outputs(["मैं ठीक हूँ ।", "मैं घर पर हूँ ।"])
    assert Distinct(2).value(Distinct(2).rows(hindi).sum(0)) == pytest.approx(6 / 7)


def test_texts_without_an_ngram_have_no_diversity() -> None:
    silent = outputs(["", ""])
    for metric in (Distinct(1), NgramEntropy(4)):
        assert metric.value(metric.rows(silent).sum(0)) == 0
