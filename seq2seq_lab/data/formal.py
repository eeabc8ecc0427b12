"""Formal languages: copy, reversal and counting, with test sets of greater lengths than in training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar, Literal

from seq2seq_lab.config.type_checks import Count, Within
from seq2seq_lab.data.corpus import Corpus, exact_pairs
from seq2seq_lab.data.licences import GENERATED
from seq2seq_lab.errors import UserError

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TARGETS: dict[str, Callable[[Sequence[str]], Sequence[str]]] = {
    "copy": lambda source: source,
    "reversal": lambda source: source[::-1],
    "counting": lambda source: ["b"] * len(source),
}
MOST_DRAWN = 0.5
"""The greatest share of all sequences of a language that is drawn: drawing different ones would take long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formal:
    """Pairs of a sequence of letters and its image in a formal language.

    `copy`: the same sequence. `reversal`: from its end to its start. `counting`: aⁿ gives bⁿ (aⁿbⁿ in Weiss 2018,
    arXiv:1805.04908).

    Train, validation and test have 1 to `longest` letters, each length with the same probability. `test_longer` has
    more, at most `longest_test`. The sources of copy and reversal are different in all splits. Counting has one source
    per length, and all splits contain it several times.

    Raises `UserError` for settings that do not belong to the language, and for more pairs than it has.
    """

    licence: ClassVar[str] = GENERATED
    language: Literal["copy", "reversal", "counting"]
    symbols: Annotated[int, Within(1, len(LETTERS) + 1)]
    longest: Count
    longest_test: Count
    train: Count
    validation: Count
    test: Count
    test_longer: Count
    seed: int

    def __post_init__(self) -> None:
        if self.longest_test <= self.longest:
            raise UserError(
                f"dataset.longest_test={self.longest_test} must be above dataset.longest={self.longest}: the test set "
                "test_longer has greater lengths than the training split."
            )
        if self.language == "counting":
            return
        for key, size, lengths in (
            ("train", self.train + self.validation + self.test, range(1, self.longest + 1)),
            ("test_longer", self.test_longer, range(self.longest + 1, self.longest_test + 1)),
        ):
            most = int(MOST_DRAWN * sum(self.symbols**length for length in lengths))
            if size > most:
                raise UserError(
                    f"dataset.{key}={getattr(self, key)}: dataset.language={self.language} with dataset.symbols="
                    f"{self.symbols} has at most {most:,} pairs of {lengths[0]} to {lengths[-1]} letters, and {size:,} are "
                    "needed. Make the splits smaller, or dataset.symbols or the lengths greater."
                )

    def load(self) -> Corpus:
        """Generate the corpus."""
        random = Random(self.seed)
        size = self.train + self.validation + self.test
        pairs = self._draw(random, range(1, self.longest + 1), size)
        longer = self._draw(random, range(self.longest + 1, self.longest_test + 1), self.test_longer)
        end = self.train + self.validation
        parts = (pairs[: self.train], pairs[self.train : end], pairs[end:], longer)
        train, validation, test, test_longer = map(exact_pairs, parts)
        return Corpus("letters", self.language, train, validation, {"test": test, "test_longer": test_longer})

    def _draw(self, random: Random, lengths: range, size: int) -> list[tuple[str, str]]:
        """Return pairs with sources of these lengths, in random order."""
        counting = self.language == "counting"
        letters = "a" if counting else LETTERS[: self.symbols]
        sources: list[tuple[str, ...]] = []
        seen: set[tuple[str, ...]] = set()
        while len(sources) < size:
            source = tuple(random.choices(letters, k=random.choice(lengths)))
            if counting or source not in seen:
                seen.add(source)
                sources.append(source)
        random.shuffle(sources)  # short sources are drawn first: later draws of them are repeats
        return [(" ".join(source), " ".join(TARGETS[self.language](source))) for source in sources]
