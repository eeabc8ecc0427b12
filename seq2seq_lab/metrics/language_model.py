"""Metrics of language models.

The end of a sentence is predicted as well: it counts as one token, one word and one character.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from seq2seq_lab.data.words import words as spans_of_words
from seq2seq_lab.metrics.base import Array, Grouping, Metric
from seq2seq_lab.metrics.loss import perplexity
from seq2seq_lab.metrics.significance import ratio
from seq2seq_lab.metrics.texts import named_groups

DISTANCES = {1: "1", 2: "2", 4: "3–4", 8: "5–8", math.inf: "9 or more"}
"""The groups of distances from the subject to the verb, by the greatest distance."""


class SentenceScores(Protocol):
    """The negative log-probabilities of N sentences.

    Attributes:
        nats: the negative log-probability of each sentence with its end.
        tokens: the number of its tokens, with its end.
        lines: its plain text.
        phenomena: the phenomenon that the ungrammatical form of each sentence violates; None for a sentence without such a
            form.
        wrong_nats: the negative log-probability of the ungrammatical form; NaN without one.
        distances: see `data.sentences.Sentences`.
        carried_nats: the negative log-probability of each sentence with its end, given all sentences before it in the text;
            None if it is not computed.
        unknown: the share of `<unk>` among the tokens of the sentences and their ends.
    """

    @property
    def nats(self) -> Array: ...

    @property
    def tokens(self) -> Array: ...

    @property
    def lines(self) -> Sequence[str]: ...

    @property
    def phenomena(self) -> Sequence[str | None]: ...

    @property
    def wrong_nats(self) -> Array: ...

    @property
    def distances(self) -> Sequence[int | None]: ...

    @property
    def carried_nats(self) -> Array | None: ...

    @property
    def unknown(self) -> float: ...


def tokens(outputs: SentenceScores) -> Array:
    """Return the number of tokens of each sentence, with its end."""
    return outputs.tokens


def words(outputs: SentenceScores) -> Array:
    """Return the number of words of each sentence, with its end; see `data.words.words`."""
    return np.array([len(spans_of_words(line)) + 1 for line in outputs.lines], np.float64)


def characters(outputs: SentenceScores) -> Array:
    """Return the number of characters (code points) of each sentence, with its end."""
    return np.array([len(line) + 1 for line in outputs.lines], np.float64)


class _PerUnit(Metric):
    """A function of the mean negative log-probability per unit.

    Args:
        unit: returns the number of units of each sentence.
    """

    higher_is_better = False

    def __init__(self, name: str, label: str, unit: Callable[[SentenceScores], Array]) -> None:
        self.name, self.label, self.unit = name, label, unit

    def rows(self, outputs: SentenceScores) -> Array:
        """See `Metric.rows`."""
        return np.column_stack([outputs.nats, self.unit(outputs)])

    def signature(self, outputs: SentenceScores) -> str:
        """See `Metric.signature`: the share of unknown tokens, which are easier to predict than words."""
        return f"unk:{outputs.unknown:.2%}"


class NatsPerUnit(_PerUnit):
    """The mean negative log-probability in nats."""

    format, compared, is_loss = ".3f", False, True

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return float(totals_K[0] / totals_K[1])


class PerplexityPerUnit(_PerUnit):
    """e to the mean negative log-probability in nats."""

    confidence = True

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return perplexity(float(totals_K[0] / totals_K[1]))


class CarriedPerplexity(PerplexityPerUnit):
    """`PerplexityPerUnit` of a text that is read from its beginning to its end, with the state carried (Mikolov 2010)."""

    when = "final"

    def rows(self, outputs: SentenceScores) -> Array:
        """See `Metric.rows`."""
        assert outputs.carried_nats is not None, "see `unavailable`"
        return np.column_stack([outputs.carried_nats, self.unit(outputs)])

    def unavailable(self, outputs: SentenceScores) -> str | None:
        """See `Metric.unavailable`."""
        return "the model has no recurrent state" if outputs.carried_nats is None else None


class BitsPerUnit(_PerUnit):
    """The mean negative log-probability in bits."""

    format = ".3f"

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return float(totals_K[0] / totals_K[1] / math.log(2))


class MinimalPairAccuracy(Metric):
    """The share of sentences that are more probable than their ungrammatical form (Linzen 2016, arXiv:1611.01368).

    Forms of equal probability count as one half: the tokenizer may give both the same tokens.
    """

    name, label, higher_is_better = "minimal_pairs", "minimal pairs", True
    format, when, confidence, limits = ".1%", "final", True, (0.0, 1.0)

    def rows(self, outputs: SentenceScores) -> Array:
        """See `Metric.rows`."""
        has_pair = np.array([name is not None for name in outputs.phenomena])
        correct = np.where(outputs.nats == outputs.wrong_nats, 0.5, outputs.nats < outputs.wrong_nats)
        return np.column_stack([correct * has_pair, has_pair]).astype(np.float64)

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return ratio(totals_K)

    def is_defined(self, totals_K: Array) -> bool:
        """See `Metric.is_defined`."""
        return bool(totals_K[1])

    def unavailable(self, outputs: SentenceScores) -> str | None:
        """See `Metric.unavailable`."""
        return None if any(outputs.phenomena) else "the split has no minimal pairs"


def by_phenomenon(outputs: SentenceScores) -> Mapping[str, Sequence[int]] | None:
    """Return the indices of the sentences with a minimal pair of each phenomenon."""
    return named_groups(() if name is None else (name,) for name in outputs.phenomena) or None


def by_distance(outputs: SentenceScores) -> Mapping[str, Sequence[int]] | None:
    """Return the indices of the sentences with a minimal pair of agreement, by the distance from the subject to the verb."""
    groups: dict[str, list[int]] = {name: [] for name in DISTANCES.values()}
    for index, distance in enumerate(outputs.distances):
        if distance is not None:
            groups[next(name for most, name in DISTANCES.items() if distance <= most)].append(index)
    return {name: group for name, group in groups.items() if group} or None


CARRIED = CarriedPerplexity("perplexity_per_word_carried", "perplexity per word, carried state", words)
LANGUAGE_MODEL_METRICS: tuple[Metric, ...] = (
    PerplexityPerUnit("perplexity_per_word", "perplexity per word", words),
    CARRIED,
    PerplexityPerUnit("perplexity_per_token", "perplexity per token", tokens),
    BitsPerUnit("bits_per_character", "bits per character", characters),
    MinimalPairAccuracy(),
    NatsPerUnit("loss", "loss per token", tokens),
)
MINIMAL_PAIRS = Grouping("phenomenon", "phenomenon", MinimalPairAccuracy(), by_phenomenon, ordered=False)
AGREEMENT = Grouping("distance", "words from the subject to the verb", MinimalPairAccuracy(), by_distance)
