"""Dialogues of several turns, and pairs of texts, as one sequence of tokens."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, islice
from typing import TypeVar

import numpy as np
import tokenizers

from seq2seq_lab.data.tokenizers.base import EOS, Tokenizer, name_of, tokenizer_class
from seq2seq_lab.errors import UserError

TURN = "\t"
"""Separates the turns of a dialogue, or the texts of a pair, in a line of text."""

Item = TypeVar("Item")


class TurnTokenizer(Tokenizer):
    """The tokens of each turn, with `<eos>` between two turns.

    The tokens of a framed `PretrainedTokenizer` are `<sos>` turn `<eos>` turn `<eos>` (Devlin 2019, arXiv:1810.04805, §3).

    Args:
        tokenizer: module and name of the class that tokenizes a turn.
        settings: the arguments of its constructor.
        separated: false for the tokens of all turns as they are, without anything between them.
        window: the number of turns of a line that are read, the last ones; None: all.
    """

    def __init__(
        self,
        tokenizer: str,
        settings: dict[str, object],
        separated: bool = True,
        window: int | None = None,
    ) -> None:
        self.tokenizer, self.settings, self.separated, self.window = tokenizer, settings, separated, window
        self._of_turns = tokenizer_class(tokenizer)(**settings)
        self.joint = self._of_turns.joint

    @classmethod
    def of(cls, tokenizer: Tokenizer, separated: bool = True, window: int | None = None) -> "TurnTokenizer":
        """Return the tokenizer that tokenizes each turn as another tokenizer does, with its vocabulary if it has one.

        Raises:
            UserError: the tokenizer has another one for the source.
        """
        if tokenizer.of_source() is not None:
            raise UserError(
                f"tokenizer._target_={name_of(type(tokenizer))} has different tokens for the source and the target, but the "
                f"turns of a dialogue are both. Choose another, such as tokenizer=word."
            )
        made = cls(name_of(type(tokenizer)), tokenizer.options(), separated, window)
        made.rules = tokenizer.rules
        if tokenizer._labels:
            made.use_languages(*tokenizer._labels)
        if hasattr(tokenizer, "_backend"):
            made.use_backend(tokenizer._backend)
        return made

    def options(self) -> dict[str, object]:
        return (
            {"tokenizer": self.tokenizer, "settings": self.settings}
            | ({} if self.separated else {"separated": False})
            | ({} if self.window is None else {"window": self.window})
        )

    @property
    def of_one_text(self) -> Tokenizer:
        return self._of_turns

    def use_languages(self, *labels: str) -> None:
        super().use_languages(*labels)
        self._of_turns.use_languages(*labels)

    def train(self, lines: Iterable[str]) -> None:
        self._of_turns.train(turn for line in lines for turn in line.split(TURN))
        self.use_backend(self._of_turns._backend)

    def add_words(self, words: Iterable[str]) -> None:
        self._of_turns.add_words(words := [*words])
        if words:
            self.use_backend(self._of_turns._backend)

    @property
    def size(self) -> int:
        return self._of_turns.size

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return self._joined(self._of_turns.encode, lines)

    @property
    def stochastic(self) -> bool:
        return self._of_turns.stochastic

    def sample(self, lines: Sequence[str], rng: np.random.Generator) -> list[list[int]]:
        return self._joined(partial(self._of_turns.sample, rng=rng), lines)

    def spans(self, line: str) -> list[tuple[int, int]]:
        """Return the characters of each id; those of an `<eos>` between turns are the separator."""
        units = self.units(line)
        turns = [
            [
                (first + start, first + end)
                for start, end in self._of_turns.spans(line[first : last - len(TURN)])
            ]
            for first, last in units
        ]
        return self._glued(turns, [(last - len(TURN), last) for _, last in units[:-1]])

    def units(self, line: str) -> list[tuple[int, int]]:
        """Return the (start, end) of each turn that is read, with the separator at its end."""
        found, start = [], 0
        for turn in line.split(TURN):
            found.append((start, start + len(turn) + len(TURN)))
            start = found[-1][1]
        return self._read(found)

    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        return self._of_turns.decode_spans(ids)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return self._of_turns.tokens(ids)

    def _read(self, turns: list[Item]) -> list[Item]:
        """Return those of the turns of a line that are in the window."""
        return turns[-(self.window or 0) :]

    def _joined(
        self, encode: Callable[[Sequence[str]], list[list[int]]], lines: Sequence[str]
    ) -> list[list[int]]:
        turns = [self._read(line.split(TURN)) for line in lines]
        ids = iter(encode([*chain.from_iterable(turns)]))
        return [self._glued([*islice(ids, len(row))], [EOS] * (len(row) - 1)) for row in turns]

    def _glued(self, turns: Sequence[Sequence[Item]], separators: Sequence[Item]) -> list[Item]:
        """Return the items of the tokens of a line, from those of each turn and those of the tokens between two turns."""
        first, *others = turns
        if not self.separated:
            return [*first, *chain.from_iterable(others)]
        if getattr(
            self._of_turns, "framed", False
        ):  # each turn ends in <eos>; only the first begins with <sos>
            return [*first, *chain.from_iterable(one[1:] for one in others)]
        rows = zip(separators, others, strict=True)
        return [*first, *chain.from_iterable((separator, *one) for separator, one in rows)]

    def use_backend(self, backend: tokenizers.Tokenizer) -> None:
        super().use_backend(backend)
        self._of_turns.rules = self.rules
        self._of_turns.use_backend(backend)
