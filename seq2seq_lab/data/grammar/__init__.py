"""The default data set: English and French sentence pairs with gold word alignments, made by a grammar.

It shows the four kinds of word correspondence: one-to-one (John loves Mary), one-to-many with reordering
(told Mary a story), many-to-one (computer scientist) and many-to-many (swam across the lake); and what
French does otherwise than English: negation, pronouns before the verb, agreement of the participle,
questions. Each pair names the phenomena that it shows.
"""

from collections import Counter
from random import Random
from typing import NamedTuple

from seq2seq_lab.data.corpus import Corpus, Gold, ParallelText
from seq2seq_lab.data.grammar.clauses import Clauses
from seq2seq_lab.data.grammar.phrase import Combination, english_text, french_text, gold
from seq2seq_lab.data.grammar.verb_phrases import combinations
from seq2seq_lab.errors import UserError

MOST_SENTENCES = 1_000_000
"""The grammar surely has so many sentences from `max_depth` 1 on."""
MOST_REPEATS = 1_000
"""After so many sentences in a row that no split can use, the grammar is taken to be used up."""
MOST_HELD_OUT = 0.5
"""With a greater share, too little would be left to learn from."""


class _Pair(NamedTuple):
    gold: Gold
    phenomena: frozenset[str]


class Grammar:
    """Distinct sentence pairs in splits; the English sentence alone determines the French one.

    `seed` belongs to the data: the same arguments give the same corpus, byte for byte. `max_depth` bounds
    the nesting of phrases and clauses: 0 gives bare subjects and verbs, more gives longer sentences.

    A share `held_out_share` of all combinations of an adjective with a noun and of a verb with an object
    noun is held out: no sentence of training, validation and test has one, each sentence of the test set
    `test_compositional` has one or more (after Lake and Baroni 2018, arXiv:1711.00350); each word of a
    held-out combination also stands in others. With `test_compositional` 0 there is no such test set.

    Raises `UserError` for sizes below 1 (`test_compositional`: 0), a negative `max_depth`, and a
    `held_out_share` that is no share or gives no sentences for `test_compositional`.
    """

    def __init__(
        self,
        train: int,
        validation: int,
        test: int,
        test_compositional: int,
        held_out_share: float,
        seed: int,
        max_depth: int,
    ) -> None:
        sizes = (("train", train, 1), ("validation", validation, 1), ("test", test, 1))
        for key, size, least in (*sizes, ("test_compositional", test_compositional, 0)):
            if size < least:
                raise UserError(
                    f"dataset.{key}={size} sentences cannot be made: give {least} or more, "
                    f"for example dataset.{key}=1000."
                )
        if max_depth < 0:
            raise UserError(f"dataset.max_depth={max_depth} is no depth: give 0 or more, for example 4.")
        if not 0 <= held_out_share <= MOST_HELD_OUT:
            raise UserError(
                f"dataset.held_out_share={held_out_share} is not between 0 and {MOST_HELD_OUT}: a greater "
                "share of combinations would leave too little to learn from. Give, for example, 0.1."
            )
        if test_compositional > 0 and (held_out_share == 0 or max_depth == 0):
            raise UserError(
                f"dataset.test_compositional={test_compositional} sentences with held-out combinations of "
                f"words cannot be made with dataset.held_out_share={held_out_share} and "
                f"dataset.max_depth={max_depth}: give both more than 0, for example 0.1 and 4, or "
                "dataset.test_compositional=0."
            )
        if train + validation + test + test_compositional > MOST_SENTENCES:
            raise UserError(
                f"dataset.train={train}, dataset.validation={validation}, dataset.test={test} and "
                f"dataset.test_compositional={test_compositional} are more than {MOST_SENTENCES} sentences in "
                "all, the most that the grammar gives: make them smaller."
            )
        self.train = train
        self.validation = validation
        self.test = test
        self.test_compositional = test_compositional
        self.held_out_share = held_out_share
        self.seed = seed
        self.max_depth = max_depth

    def load(self) -> Corpus:
        """Make the corpus. Raises `UserError` where the grammar has fewer sentences than asked for."""
        random = Random(self.seed)
        pairs, compositional = self._distinct(Clauses(random), held_out(random, self.held_out_share))
        # Short sentences come up first and are repeated soonest: the splits must not differ in that.
        Random(self.seed).shuffle(pairs)
        end = self.train + self.validation
        splits = [
            _parallel(split)
            for split in (pairs[: self.train], pairs[self.train : end], pairs[end:], compositional)
        ]
        sizes = (self.train, self.validation, self.test, self.test_compositional)
        assert tuple(len(set(split.source)) for split in splits) == sizes
        assert len({source for split in splits for source in split.source}) == sum(sizes)
        tests = {"test": splits[2]}
        if self.test_compositional > 0:
            tests["test_compositional"] = splits[3]
        return Corpus("en", "fr", splits[0], splits[1], tests)

    def _distinct(self, clauses: Clauses, held: frozenset[Combination]) -> tuple[list[_Pair], list[_Pair]]:
        """Return the pairs without a held-out combination, and those with one."""
        wanted = (self.train + self.validation + self.test, self.test_compositional)
        made: tuple[list[_Pair], list[_Pair]] = ([], [])
        sources: set[tuple[str, ...]] = set()
        useless = 0
        while len(made[0]) < wanted[0] or len(made[1]) < wanted[1]:
            sentence = clauses.sentence(self.max_depth)
            has_held = not held.isdisjoint(sentence.combinations)
            if len(made[has_held]) < wanted[has_held]:
                pair = gold(sentence)
                if pair.source_words not in sources:
                    sources.add(pair.source_words)
                    made[has_held].append(_Pair(pair, frozenset(sentence.phenomena)))
                    useless = 0
                    continue
            useless += 1
            if useless == MOST_REPEATS:
                raise UserError(
                    f"dataset.train={self.train}, dataset.validation={self.validation} and "
                    f"dataset.test={self.test} ask for {wanted[0]} different sentences and "
                    f"dataset.test_compositional={self.test_compositional} for {wanted[1]} with a held-out "
                    f"combination, but dataset.max_depth={self.max_depth} and dataset.held_out_share="
                    f"{self.held_out_share} gave no more than {len(made[0])} and {len(made[1])}: raise "
                    "dataset.max_depth (or dataset.held_out_share for the latter) or make the splits smaller."
                )
        return made


def held_out(random: Random, share: float) -> frozenset[Combination]:
    """Draw the combinations of words that training never shows; each word keeps one that it does show."""
    held = set()
    for every in combinations():
        left = Counter(words for combination in every for words in combination)
        for combination in every:
            if random.random() < share and all(left[words] > 1 for words in combination):
                held.add(combination)
                left.subtract(combination)
    return frozenset(held)


def _parallel(pairs: list[_Pair]) -> ParallelText:
    golds = [pair.gold for pair in pairs]
    return ParallelText(
        [english_text(pair.source_words) for pair in golds],
        [french_text(pair.target_words) for pair in golds],
        golds,
        [pair.phenomena for pair in pairs],
    )
