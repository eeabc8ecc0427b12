"""Error rates of words and phones."""

import pytest

from seq2seq_lab.metrics.phones import PhoneErrorRate, WordErrorRate
from seq2seq_lab.metrics.registry import BUILT_IN
from seq2seq_lab.metrics.texts import References, TextOutputs

OUTPUTS = ["a b ə", "tʃ a", "", "d d d"]
REFERENCES = ["a b ə", "tʃ a b", "a", "a d"]


def test_the_error_rates_are_sums_over_words() -> None:
    outputs = TextOutputs(OUTPUTS, References(REFERENCES))
    wrong, phones = WordErrorRate(), PhoneErrorRate()
    assert wrong.value(wrong.rows(outputs).sum(0)) == pytest.approx(3 / 4)
    assert phones.rows(outputs).tolist() == [[0, 3], [1, 3], [1, 1], [2, 2]]
    assert phones.value(phones.rows(outputs).sum(0)) == pytest.approx(4 / 9)
    assert not wrong.higher_is_better
    assert not phones.higher_is_better


def test_the_best_of_several_references_counts() -> None:
    references = References(["a b c d", "a x", "b"], ["1", "1", "2"], multiple=True)
    outputs = TextOutputs(["a b c", "a b c", "b"], references)
    assert WordErrorRate().rows(outputs).tolist() == [[0, 1], [1, 1]]
    assert PhoneErrorRate().rows(outputs).tolist() == [[1, 4], [0, 1]]


def test_the_comparison_knows_the_metrics() -> None:
    assert isinstance(BUILT_IN["wer"], WordErrorRate)
    assert isinstance(BUILT_IN["per"], PhoneErrorRate)
