"""Metrics of masked language models."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from seq2seq_lab.metrics.base import Array, Metric, Share
from seq2seq_lab.metrics.loss import MeanLoss, Perplexity

Words = Literal["all", "content", "function"]
LABELS: Mapping[Words, str] = {
    "all": "masked tokens",
    "content": "content words",
    "function": "function words",
}


class MaskedTokenScores(Protocol):
    """The predictions of the masked tokens of N texts.

    Attributes:
        labels: the masked tokens of each text.
        predicted: the most probable token in the place of each.
        content: which of them are content words; None if the parts of speech are not known. Also `function`.
        agreeing: which of them have a gender or a number; None if these are not known.
        agrees: which predicted words have the part of speech, the gender and the number of the masked word.
        follows: of pairs of sentences, 1 if the second is the next one; None of single texts.
        predicted_follows: the prediction of it.
    """

    @property
    def labels(self) -> Sequence[npt.NDArray[np.int64]]: ...

    @property
    def predicted(self) -> Sequence[npt.NDArray[np.int64]]: ...

    @property
    def content(self) -> Sequence[npt.NDArray[np.bool_]] | None: ...

    @property
    def function(self) -> Sequence[npt.NDArray[np.bool_]] | None: ...

    @property
    def agreeing(self) -> Sequence[npt.NDArray[np.bool_]] | None: ...

    @property
    def agrees(self) -> Sequence[npt.NDArray[np.bool_]] | None: ...

    @property
    def follows(self) -> npt.NDArray[np.int64] | None: ...

    @property
    def predicted_follows(self) -> npt.NDArray[np.int64] | None: ...


class MaskedAccuracy(Share):
    """The share of masked tokens that are the most probable ones.

    Args:
        words: which tokens count; the parts of speech of content words are those of `data.corpus.CONTENT_CLASSES`.
    """

    def __init__(self, words: Words = "all") -> None:
        self.words: Words = words
        self.name = "masked_accuracy" if words == "all" else f"{words}_accuracy"
        self.label = f"accuracy of {LABELS[words]}"

    def unavailable(self, outputs: MaskedTokenScores) -> str | None:
        """See `Metric.unavailable`."""
        return None if self._chosen(outputs) is not None else "the parts of speech are not known"

    def rows(self, outputs: MaskedTokenScores) -> Array:
        """See `Metric.rows`."""
        chosen = self._chosen(outputs)
        assert chosen is not None
        rows = zip(outputs.labels, outputs.predicted, chosen, strict=True)
        return np.array([[(true == found)[one].sum(), one.sum()] for true, found, one in rows], np.float64)

    def _chosen(self, outputs: MaskedTokenScores) -> Sequence[npt.NDArray[np.bool_]] | None:
        if self.words == "all":
            return [np.ones(len(row), np.bool_) for row in outputs.labels]
        return outputs.content if self.words == "content" else outputs.function


class Agreement(Share):
    """Of masked words with a gender or a number, the share whose prediction has the same part of speech, gender and number.

    A word has those of all its occurrences in the training split.
    """

    name, label = "agreement", "agreement of the prediction"

    def unavailable(self, outputs: MaskedTokenScores) -> str | None:
        """See `Metric.unavailable`."""
        return None if outputs.agreeing is not None else "the gender and the number of words are not known"

    def rows(self, outputs: MaskedTokenScores) -> Array:
        """See `Metric.rows`."""
        assert outputs.agreeing is not None
        assert outputs.agrees is not None
        rows = zip(outputs.agreeing, outputs.agrees, strict=True)
        return np.array([[(chosen & right).sum(), chosen.sum()] for chosen, right in rows], np.float64)


class NextSentenceAccuracy(Share):
    """The share of pairs of sentences for which the model tells whether the second is the next one; half of them are."""

    name, label = "next_sentence_accuracy", "accuracy of the next sentence"

    def unavailable(self, outputs: MaskedTokenScores) -> str | None:
        """See `Metric.unavailable`."""
        return (
            None if outputs.predicted_follows is not None else "the model does not predict the next sentence"
        )

    def rows(self, outputs: MaskedTokenScores) -> Array:
        """See `Metric.rows`."""
        right = np.asarray(outputs.follows == outputs.predicted_follows)
        return np.column_stack([right, np.ones(len(right))]).astype(np.float64)


class MaskedPerplexity(Perplexity):
    """The perplexity of masked tokens; the comparison has a column of it."""

    compared = True

    def __init__(self) -> None:
        super().__init__("masked", "perplexity of masked tokens", shown=True)


MASKED_METRICS: tuple[Metric, ...] = (
    MaskedAccuracy(),
    MaskedAccuracy("content"),
    MaskedAccuracy("function"),
    Agreement(),
)
LOSSES: tuple[Metric, ...] = (
    MaskedPerplexity(),
    MeanLoss("masked", "cross-entropy of masked tokens"),
)
NEXT_SENTENCE: tuple[Metric, ...] = (
    NextSentenceAccuracy(),
    MeanLoss("next_sentence", "cross-entropy of the next sentence"),
)
