"""A vocabulary that is extended by the unknown words of each source, which an output can copy."""

import copy
from collections import ChainMap
from collections.abc import Iterable, Sequence

import tokenizers

from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.data.tokenizers.base import SPECIALS, UNK, Tokenizer, name_of, tokenizer_class
from seq2seq_lab.data.tokenizers.vocabulary import VocabularyTokenizer
from seq2seq_lab.errors import UserError


class CopyingTokenizer(Tokenizer):
    """The tokens of another tokenizer with V types, and types for the unknown words of a source (See 2017, §2.2).

    The k-th different unknown word of a source, from 0, has the id V + k in the source and in its outputs; see `for_source`.
    Further unknown words, and those of other lines, are `<unk>`.

    Args:
        tokenizer: module and name of the class of the other tokenizer, a `VocabularyTokenizer`.
        settings: the arguments of its constructor.
        copied_words: the number of types for unknown words.
    """

    reads_source = True

    def __init__(self, tokenizer: str, settings: dict[str, object], copied_words: int) -> None:
        self.tokenizer, self.settings, self.copied_words = tokenizer, settings, copied_words
        made = tokenizer_class(tokenizer)(**settings)
        if not isinstance(made, VocabularyTokenizer):
            raise UserError(
                f"readout.copied_words={copied_words} needs a VocabularyTokenizer, and tokenizer._target_={tokenizer} is "
                f"none. Choose tokenizer=word, whitespace or char, or set readout.copied_words=0."
            )
        self._base: VocabularyTokenizer = made
        self.joint = made.joint

    @classmethod
    def of(cls, tokenizer: Tokenizer, copied_words: int) -> "CopyingTokenizer":
        """Return the tokenizer for another one, which is untrained.

        Raises:
            UserError: its unknown tokens are not words.
        """
        return cls(name_of(type(tokenizer)), tokenizer.options(), copied_words)

    def use_languages(self, *labels: str) -> None:
        super().use_languages(*labels)
        self._base.use_languages(*labels)

    def train(self, lines: Iterable[str]) -> None:
        self._base.train(lines)
        self.use_backend(self._base._backend)

    @property
    def size(self) -> int:
        return self._base.size + self.copied_words

    def for_source(self, line: str) -> Tokenizer:
        base, ids = copy.copy(self._base), self._copied(line)
        base._ids = ChainMap(ids, base._ids)  # type: ignore[assignment]
        base._tokens = [*base._tokens, *ids, *[UNKNOWN] * (self.copied_words - len(ids))]
        return base

    def _copied(self, source: str) -> dict[str, int]:
        """Return the ids of the unknown words of a source, as many as can be copied."""
        known, unknown = self._base._ids, SPECIALS[UNK]  # `<unk>` in a text is not a word
        words = dict.fromkeys(
            word for word in self._base._cut(source) if word not in known and word != unknown
        )
        return {word: self._base.size + k for k, word in zip(range(self.copied_words), words, strict=False)}

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of sources."""
        return self.encode_outputs(lines, lines)

    def encode_outputs(self, lines: Sequence[str], sources: Sequence[str]) -> list[list[int]]:
        rows = []
        for line, source in zip(lines, sources, strict=True):
            ids = ChainMap(self._copied(source), self._base._ids)
            rows.append([ids.get(word, UNK) for word in self._base._cut(line)])
        return rows

    def spans(self, line: str) -> list[tuple[int, int]]:
        return self._base.spans(line)

    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        return self.for_source("").decode_spans(ids)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return self.for_source("").tokens(ids)

    def use_backend(self, backend: tokenizers.Tokenizer) -> None:
        super().use_backend(backend)
        self._base.rules = self.rules
        self._base.use_backend(backend)
