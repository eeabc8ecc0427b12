"""Dialogues of several turns as one sequence of tokens."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, islice

import numpy as np
import tokenizers

from seq2seq_lab.data.tokenizers.base import EOS, Tokenizer, name_of, tokenizer_class
from seq2seq_lab.errors import UserError

TURN = "\t"
"""Separates the turns of a dialogue in a line of text."""


class TurnTokenizer(Tokenizer):
    """The tokens of each turn, with `<eos>` between two turns.

    Args:
        tokenizer: module and name of the class that tokenizes a turn.
        settings: the arguments of its constructor.
    """

    def __init__(self, tokenizer: str, settings: dict[str, object]) -> None:
        self.tokenizer, self.settings = tokenizer, settings
        self._of_turns = tokenizer_class(tokenizer)(**settings)
        self.joint = self._of_turns.joint

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "TurnTokenizer":
        """Return the tokenizer that tokenizes each turn as another, untrained tokenizer does.

        Raises:
            UserError: the tokenizer has another one for the source.
        """
        if tokenizer.of_source() is not None:
            raise UserError(
                f"tokenizer._target_={name_of(type(tokenizer))} has different tokens for the source and the target, but the "
                f"turns of a dialogue are both. Choose another, such as tokenizer=word."
            )
        return cls(name_of(type(tokenizer)), tokenizer.options())

    def use_languages(self, *labels: str) -> None:
        super().use_languages(*labels)
        self._of_turns.use_languages(*labels)

    def train(self, lines: Iterable[str]) -> None:
        self._of_turns.train(turn for line in lines for turn in line.split(TURN))
        self._use(self._of_turns._backend)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return self._joined(self._of_turns.encode, lines)

    @property
    def stochastic(self) -> bool:
        return self._of_turns.stochastic

    def sample(self, lines: Sequence[str], rng: np.random.Generator) -> list[list[int]]:
        return self._joined(partial(self._of_turns.sample, rng=rng), lines)

    def spans(self, line: str) -> list[tuple[int, int]]:
        """Return the characters of each id; those of `<eos>` are the separator."""
        spans: list[tuple[int, int]] = []
        for turn, (first, last) in zip(line.split(TURN), self.units(line), strict=True):
            spans += [(first + start, first + end) for start, end in self._of_turns.spans(turn)]
            spans.append((last - len(TURN), last))
        return spans[:-1]

    def units(self, line: str) -> list[tuple[int, int]]:
        """Return the (start, end) of each turn, with the separator at its end."""
        found, start = [], 0
        for turn in line.split(TURN):
            found.append((start, start + len(turn) + len(TURN)))
            start = found[-1][1]
        return found

    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        return self._of_turns.decode_spans(ids)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return self._of_turns.tokens(ids)

    def _joined(
        self, encode: Callable[[Sequence[str]], list[list[int]]], lines: Sequence[str]
    ) -> list[list[int]]:
        turns = [line.split(TURN) for line in lines]
        ids = iter(encode([*chain.from_iterable(turns)]))
        return [[*chain.from_iterable((*one, EOS) for one in islice(ids, len(row)))][:-1] for row in turns]

    def _use(self, backend: tokenizers.Tokenizer) -> None:
        super()._use(backend)
        self._of_turns.rules = self.rules
        self._of_turns._use(backend)
