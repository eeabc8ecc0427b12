"""Byte-level byte-pair encoding (Sennrich 2016, arXiv:1508.07909; over bytes as in GPT-2), with dropout."""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise, repeat
from typing import NamedTuple

import numpy as np
import tokenizers
from tokenizers import pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from seq2seq_lab.config.type_checks import Count, Probability
from seq2seq_lab.data.tokenizers.base import SPECIALS
from seq2seq_lab.data.tokenizers.byte_level import ByteLevelTokenizer, VocabSize

# White space and the text up to the next: the library always cuts such a segment in the same way.
# U+001C to U+001F are white space for Python but not for the library.
_SEGMENT = re.compile(r"[^\S\x1c-\x1f]+[\S\x1c-\x1f]*")
# The size of the cache of segmentations in `sample`, which is cleared when it is full.
_CACHED = 1 << 18
# The rank of a pair that is not merged: greater than all others.
_NEVER = sys.maxsize


class BpeTokenizer(ByteLevelTokenizer):
    """Frequent byte sequences within words; every text has an encoding, and decoding returns the exact text.

    With dropout (Provilkov 2020, arXiv:1910.13267) `sample` draws a segmentation at each call; `encode` uses no dropout.
    """

    def __init__(
        self, joint: bool, lowercase: bool, vocab_size: VocabSize, min_frequency: Count, dropout: Probability
    ) -> None:
        """Set the bounds of the vocabulary, and the dropout.

        Args:
            vocab_size: the greatest number of types, including the special tokens and the 256 bytes.
            min_frequency: pairs with fewer occurrences are not merged.
            dropout: the probability that `sample` omits a possible merge at a step.
        """
        super().__init__(joint, lowercase, vocab_size)
        self.min_frequency = min_frequency
        self.dropout = dropout

    def train(self, lines: Iterable[str]) -> None:
        """Learn the merges. The same lines give the same vocabulary."""
        backend = self._around(BPE())
        trainer = BpeTrainer(
            vocab_size=self.vocab_size,
            min_frequency=self.min_frequency,
            special_tokens=list(SPECIALS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        backend.train_from_iterator(lines, trainer)
        self._use_trained(self._around(backend.model))

    @property
    def stochastic(self) -> bool:
        """Whether the dropout is above 0."""
        return self.dropout > 0

    def sample(self, lines: Sequence[str], rng: np.random.Generator) -> list[list[int]]:
        """Return the ids of each line with dropout: a function of the lines and the state of the generator.

        Each step omits each possible merge with the probability `dropout` and applies the best of the others, until there
        are none.
        """
        if not self.stochastic:
            return self.encode(lines)
        rows = [[self._segment(text) for text in _SEGMENT.findall(self._normalized(line))] for line in lines]
        segments = list(chain.from_iterable(rows))
        # While no best merge is omitted, the result is that of `encode`: draw the number of such steps.
        steps = np.fromiter((segment.steps for segment in segments), np.int64, len(segments))
        kept = rng.geometric(self.dropout, len(segments)) - 1
        deviating = np.flatnonzero(kept < steps)
        omitted = _draw_omitted(self.dropout, rng)
        pieces = [segment.ids for segment in segments]
        for index, same in zip(deviating.tolist(), kept[deviating].tolist(), strict=True):
            pieces[index] = self._deviate(segments[index], same, omitted)
        remaining = iter(pieces)
        return [list(chain.from_iterable(islice(remaining, len(row)))) for row in rows]

    def _deviate(self, segment: "_Segment", same: int, omitted: Iterator[int]) -> list[int]:
        """Return ids of a segment: the first `same` merges are those of `encode`, the next one is not."""
        ids: list[int] = []
        words = iter(segment.words)
        for word in words:
            if same < word.steps:
                ids += self._merge(word, chain(repeat(0, same), (1 + next(omitted),), omitted))
                break
            same -= word.steps
            ids += word.ids
        for word in words:
            ids += self._merge(word, omitted)
        return ids

    def _merge(self, word: "_Word", omitted: Iterable[int]) -> list[int]:
        """Return the ids of a word; `omitted` is the number of best merges that each step omits."""
        state, ranks = list(word.bytes), list(word.ranks)
        rank_of = self._rank_of.get
        for skipped in omitted:
            if skipped:
                possible = sorted((rank, position) for position, rank in enumerate(ranks) if rank < _NEVER)
                if skipped >= len(possible):
                    break
                rank, position = possible[skipped]
            else:
                rank = min(ranks, default=_NEVER)
                if rank == _NEVER:
                    break
                position = ranks.index(rank)
            merged = self._merged[rank]
            state[position : position + 2] = [merged]
            del ranks[position]
            if position > 0:
                ranks[position - 1] = rank_of((state[position - 1], merged), _NEVER)
            if position < len(ranks):
                ranks[position] = rank_of((merged, state[position + 1]), _NEVER)
        return state

    def _segment(self, text: str) -> "_Segment":
        """Return the segmentation of `encode` of a segment of text."""
        segment = self._segments.get(text)
        if segment is None:
            if len(self._segments) >= _CACHED:
                self._segments.clear()
            words = [self._word(word) for word, _ in self._backend.pre_tokenizer.pre_tokenize_str(text)]
            ids = [token for word in words for token in word.ids]
            segment = _Segment(words, ids, sum(word.steps for word in words))
            self._segments[text] = segment
        return segment

    def _word(self, letters: str) -> "_Word":
        letter_ids = [self._id_of[letter] for letter in letters]
        ranks = [self._rank_of.get(pair, _NEVER) for pair in pairwise(letter_ids)]
        ids = [token.id for token in self._backend.model.tokenize(letters)]
        return _Word(letter_ids, ranks, ids, len(letter_ids) - len(ids))

    def use_backend(self, backend: tokenizers.Tokenizer) -> None:
        super().use_backend(backend)
        self._id_of = backend.get_vocab(with_added_tokens=False)
        merges = json.loads(backend.to_str())["model"]["merges"] if self.stochastic else []
        self._rank_of = {
            (self._id_of[left], self._id_of[right]): rank for rank, (left, right) in enumerate(merges)
        }
        self._merged = [self._id_of[left + right] for left, right in merges]
        self._segments: dict[str, _Segment] = {}


class _Word(NamedTuple):
    """A word: its bytes, the ranks of their pairs, the ids of `encode` and the number of merges to get them."""

    bytes: list[int]
    ranks: list[int]
    ids: list[int]
    steps: int


class _Segment(NamedTuple):
    """The words of a segment of text, their ids, and the number of merges of all."""

    words: list[_Word]
    ids: list[int]
    steps: int


def _draw_omitted(dropout: float, rng: np.random.Generator) -> Iterator[int]:
    """Yield, without end, how many of the best merges a step omits before it applies one."""
    if dropout == 1:
        yield from repeat(_NEVER)
    while True:
        yield from (rng.geometric(1 - dropout, 1024) - 1).tolist()
