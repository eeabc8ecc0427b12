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

from seq2seq_lab.data.tokenizers.base import SPECIALS, check_min_frequency
from seq2seq_lab.data.tokenizers.byte_level import ByteLevelTokenizer
from seq2seq_lab.errors import UserError

# White space and what follows it up to the next: the library cuts each such stretch alike wherever it stands.
# U+001C to U+001F are white space to Python and not to the library.
_STRETCH = re.compile(r"[^\S\x1c-\x1f]+[\S\x1c-\x1f]*")
# Stretches whose segmentation `sample` keeps, all of which it drops when there are more.
_CACHED = 1 << 18
# The rank of a pair that is not merged, and the place of a merge where none is kept: above all others.
_NEVER = sys.maxsize


class BpeTokenizer(ByteLevelTokenizer):
    """Frequent byte sequences within words; every text has an encoding and comes back exactly.

    With dropout (Provilkov 2020, arXiv:1910.13267) `sample` draws another segmentation at each call; `encode`
    knows no dropout.
    """

    def __init__(
        self, joint: bool, lowercase: bool, vocab_size: int, min_frequency: int, dropout: float
    ) -> None:
        """Merge pairs seen at least `min_frequency` times until there are `vocab_size` types.

        The specials and the 256 bytes are among them; a small corpus may end with fewer. `dropout` is the
        probability of a possible merge to be left out at a step of `sample`. Raises `UserError` for values out
        of range.
        """
        super().__init__(joint, lowercase, vocab_size)
        check_min_frequency(min_frequency, "2 is usual")
        if not 0 <= dropout <= 1:
            raise UserError(
                f"tokenizer.dropout={dropout} is a probability, from 0 (always the same segmentation) to 1 "
                "(bytes); 0.1 is usual."
            )
        self.min_frequency = min_frequency
        self.dropout = dropout

    def options(self) -> dict[str, object]:
        """The constructor's arguments, as plain values."""
        return super().options() | {"min_frequency": self.min_frequency, "dropout": self.dropout}

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
        self._use(self._around(backend.model))

    @property
    def stochastic(self) -> bool:
        """Whether there is dropout."""
        return self.dropout > 0

    def sample(self, lines: Sequence[str], rng: np.random.Generator) -> list[list[int]]:
        """The ids of each line with dropout: a function of the lines and the generator's state.

        At each step each possible merge is left out with the probability `dropout` and the best of the rest is
        applied, until none is left.
        """
        if not self.stochastic:
            return self.encode(lines)
        rows = [[self._stretch(text) for text in _STRETCH.findall(self._normalized(line))] for line in lines]
        stretches = list(chain.from_iterable(rows))
        # As long as the best merge is kept, the outcome is that of `encode`: draw how many steps that is so.
        steps = np.fromiter((stretch.steps for stretch in stretches), np.int64, len(stretches))
        kept = rng.geometric(self.dropout, len(stretches)) - 1
        deviating = np.flatnonzero(kept < steps)
        left_out = _left_out(self.dropout, rng)
        pieces = [stretch.ids for stretch in stretches]
        for number, same in zip(deviating.tolist(), kept[deviating].tolist(), strict=True):
            pieces[number] = self._deviate(stretches[number], same, left_out)
        made = iter(pieces)
        return [list(chain.from_iterable(islice(made, len(row)))) for row in rows]

    def _deviate(self, stretch: "_Stretch", same: int, left_out: Iterator[int]) -> list[int]:
        """The ids of a stretch of which the first `same` steps are those of `encode`, and the next is not."""
        ids: list[int] = []
        words = iter(stretch.words)
        for word in words:
            if same < word.steps:
                ids += self._merge(word, chain(repeat(0, same), (1 + next(left_out),), left_out))
                break
            same -= word.steps
            ids += word.ids
        for word in words:
            ids += self._merge(word, left_out)
        return ids

    def _merge(self, word: "_Word", left_out: Iterable[int]) -> list[int]:
        """The ids of a word where so many of the best merges are left out at each step."""
        state, ranks = list(word.bytes), list(word.ranks)
        rank_of = self._rank_of.get
        for number in left_out:
            if number:
                possible = sorted((rank, place) for place, rank in enumerate(ranks) if rank < _NEVER)
                if number >= len(possible):
                    break
                rank, place = possible[number]
            else:
                rank = min(ranks, default=_NEVER)
                if rank == _NEVER:
                    break
                place = ranks.index(rank)
            merged = self._merged[rank]
            state[place : place + 2] = [merged]
            del ranks[place]
            if place > 0:
                ranks[place - 1] = rank_of((state[place - 1], merged), _NEVER)
            if place < len(ranks):
                ranks[place] = rank_of((merged, state[place + 1]), _NEVER)
        return state

    def _stretch(self, text: str) -> "_Stretch":
        """How `encode` cuts a stretch of text."""
        stretch = self._stretches.get(text)
        if stretch is None:
            if len(self._stretches) >= _CACHED:
                self._stretches.clear()
            words = [self._word(word) for word, _ in self._backend.pre_tokenizer.pre_tokenize_str(text)]
            ids = [number for word in words for number in word.ids]
            stretch = _Stretch(words, ids, sum(word.steps for word in words))
            self._stretches[text] = stretch
        return stretch

    def _word(self, letters: str) -> "_Word":
        numbers = [self._number_of[letter] for letter in letters]
        ranks = [self._rank_of.get(pair, _NEVER) for pair in pairwise(numbers)]
        ids = [token.id for token in self._backend.model.tokenize(letters)]
        return _Word(numbers, ranks, ids, len(numbers) - len(ids))

    def _use(self, backend: tokenizers.Tokenizer) -> None:
        super()._use(backend)
        self._number_of = backend.get_vocab(with_added_tokens=False)
        merges = json.loads(backend.to_str())["model"]["merges"] if self.stochastic else []
        self._rank_of = {
            (self._number_of[left], self._number_of[right]): rank for rank, (left, right) in enumerate(merges)
        }
        self._merged = [self._number_of[left + right] for left, right in merges]
        self._stretches: dict[str, _Stretch] = {}


class _Word(NamedTuple):
    """What merges stay within: its bytes, the ranks of their pairs, its ids by `encode` and the merges to these."""

    bytes: list[int]
    ranks: list[int]
    ids: list[int]
    steps: int


class _Stretch(NamedTuple):
    """The words of a stretch of text, their ids by `encode`, and all their steps."""

    words: list[_Word]
    ids: list[int]
    steps: int


def _left_out(dropout: float, rng: np.random.Generator) -> Iterator[int]:
    """Without end: how many of the best merges of a step are left out before one is kept."""
    if dropout == 1:
        yield from repeat(_NEVER)
    while True:
        yield from (rng.geometric(1 - dropout, 1024) - 1).tolist()
