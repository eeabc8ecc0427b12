"""How much an output copies from its source."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.metrics.base import Array, Share
from seq2seq_lab.metrics.sacrebleu_adapter import tokenizer
from seq2seq_lab.metrics.texts import References, ngrams


class TextsWithSources(Protocol):
    """Outputs with their references and sources."""

    @property
    def scored(self) -> Sequence[str]: ...

    @property
    def references(self) -> References: ...

    @property
    def text(self) -> ParallelText: ...


class _Copying(Share):
    """A share of words, which are the tokens of BLEU."""

    @staticmethod
    def words(outputs: TextsWithSources) -> Callable[[str], list[str]]:
        """Return the function that cuts a text into words."""
        tokenize = tokenizer(outputs.references.segmentation.bleu)
        return lambda text: tokenize(text).split()

    def signature(self, outputs: TextsWithSources) -> str:
        """Return what the words depend on, as in sacreBLEU's signatures."""
        return f"case:mixed|tok:{outputs.references.segmentation.bleu}"


class NovelNgrams(_Copying):
    """The share of n-grams of words of the outputs that their sources do not contain (See 2017, fig. 6).

    The share of copied n-grams is 1 minus this share. It is neither good nor bad: compare it with that of the references.

    Args:
        order: n.
        of_references: of the references instead of the outputs.
    """

    higher_is_better = None

    def __init__(self, order: Count, of_references: bool) -> None:
        self.order, self.of_references = order, of_references
        self.name = f"novel_{order}_grams" + ("_of_references" if of_references else "")
        self.label = f"novel {order}-grams" + (" of the references" if of_references else "")

    def rows(self, outputs: TextsWithSources) -> Array:
        """See `Metric.rows`."""
        words, rows = self.words(outputs), []
        for i, (line, pair) in enumerate(zip(outputs.scored, outputs.references.pairs, strict=True)):
            known = {*ngrams(words(outputs.text.source[pair]), self.order)}
            lines = outputs.references.of(i) if self.of_references else [line]
            found = [one for text in lines for one in ngrams(words(text), self.order)]
            rows.append([sum(one not in known for one in found), len(found)])
        return np.array(rows, np.float64)


class CopiedWords(_Copying):
    """The share of the words that a reference has in common with its source which the output has too."""

    name, label = "copied_words", "words to copy that are copied"

    def rows(self, outputs: TextsWithSources) -> Array:
        """See `Metric.rows`."""
        words, lines = self.words(outputs), zip(outputs.scored, self._to_copy(outputs), strict=True)
        return np.array([[len(known & {*words(line)}), len(known)] for line, known in lines], np.float64)

    def unavailable(self, outputs: TextsWithSources) -> str | None:
        """See `Metric.unavailable`."""
        return None if any(self._to_copy(outputs)) else "no reference has a word of its source"

    def _to_copy(self, outputs: TextsWithSources) -> Iterator[set[str]]:
        """Yield the words that each reference has in common with its source."""
        words = self.words(outputs)
        for i, pair in enumerate(outputs.references.pairs):
            reference = {word for text in outputs.references.of(i)[:1] for word in words(text)}
            yield reference & {*words(outputs.text.source[pair])}
