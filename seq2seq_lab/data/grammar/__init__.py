"""The default data set: English and French sentence pairs with gold word alignments, made by a grammar.

It shows the four kinds of word correspondence: one-to-one (John loves Mary), one-to-many with reordering
(told Mary a story), many-to-one (computer scientist) and many-to-many (swam across the lake).
"""

from random import Random

from seq2seq_lab.data.corpus import Corpus, Gold, ParallelText
from seq2seq_lab.data.grammar.phrase import gold, text
from seq2seq_lab.data.grammar.rules import Rules
from seq2seq_lab.errors import UserError

MOST_SENTENCES = 1_000_000
"""The grammar surely has so many sentences from `max_depth` 1 on."""
MOST_REPEATS = 1_000
"""After so many sentences in a row that were there before, the grammar is taken to be used up."""


class Grammar:
    """Distinct sentence pairs in three splits; the English sentence alone determines the French one.

    `seed` belongs to the data: the same arguments give the same corpus, byte for byte. `max_depth` bounds
    the nesting of phrases and clauses: 0 gives bare subjects and verbs, more gives longer sentences.

    Raises `UserError` for sizes below 1 or a negative `max_depth`.
    """

    def __init__(self, train: int, validation: int, test: int, seed: int, max_depth: int) -> None:
        for key, size in (("train", train), ("validation", validation), ("test", test)):
            if size < 1:
                raise UserError(
                    f"dataset.{key}={size} sentences cannot be made: give 1 or more, "
                    f"for example dataset.{key}=1000."
                )
        if max_depth < 0:
            raise UserError(f"dataset.max_depth={max_depth} is no depth: give 0 or more, for example 4.")
        if train + validation + test > MOST_SENTENCES:
            raise UserError(
                f"dataset.train={train}, dataset.validation={validation} and dataset.test={test} are more "
                f"than {MOST_SENTENCES} sentences in all, the most that the grammar gives: make them smaller."
            )
        self.train = train
        self.validation = validation
        self.test = test
        self.seed = seed
        self.max_depth = max_depth

    def load(self) -> Corpus:
        """Make the corpus. Raises `UserError` where the grammar has fewer sentences than asked for."""
        random = Random(self.seed)
        pairs = self._distinct(Rules(random))
        # Short sentences come up first and are repeated soonest: the splits must not differ in that.
        random.shuffle(pairs)
        end = self.train + self.validation
        train, validation, test = pairs[: self.train], pairs[self.train : end], pairs[end:]
        splits = [_parallel(split) for split in (train, validation, test)]
        sources = [set(split.source) for split in splits]
        assert [len(source) for source in sources] == [self.train, self.validation, self.test]
        assert sources[0].isdisjoint(sources[1] | sources[2])
        return Corpus("en", "fr", splits[0], splits[1], {"test": splits[2]})

    def _distinct(self, rules: Rules) -> list[Gold]:
        wanted = self.train + self.validation + self.test
        pairs: dict[tuple[str, ...], Gold] = {}
        repeats = 0
        while len(pairs) < wanted:
            pair = gold(rules.sentence(self.max_depth))
            if pair.source_words not in pairs:
                pairs[pair.source_words] = pair
                repeats = 0
                continue
            repeats += 1
            if repeats == MOST_REPEATS:
                raise UserError(
                    f"dataset.train={self.train}, dataset.validation={self.validation} and "
                    f"dataset.test={self.test} ask for {wanted} different sentences, but dataset.max_depth="
                    f"{self.max_depth} gave no more than {len(pairs)}: raise dataset.max_depth or make the "
                    "splits smaller."
                )
        return list(pairs.values())


def _parallel(pairs: list[Gold]) -> ParallelText:
    return ParallelText(
        [text(pair.source_words) for pair in pairs], [text(pair.target_words) for pair in pairs], pairs
    )
