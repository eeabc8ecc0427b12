"""Reports of several facts with a headline of one of them, about people whose names no training report has."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.corpus import Corpus, Gold, ParallelText
from seq2seq_lab.data.grammar.facts import CITIES, OWNED, PEOPLE
from seq2seq_lab.data.licences import GENERATED
from seq2seq_lab.data.text import split_by_hash

CONSONANTS, VOWELS, SYLLABLES = "bdfgklmnprstvz", "aeiou", 3
HELD_OUT = 0.2  # the share of all names that only validation and test have
NAME = "NAME"  # stands for a second name
# The words of a fact, those of its headline, and what VALUE stands for.
FACTS = (
    ("met the VALUE", "meets VALUE", (*PEOPLE, NAME)),
    ("bought the VALUE", "buys VALUE", OWNED),
    ("left VALUE", "leaves VALUE", (*CITIES, NAME)),
    ("thanked VALUE", "thanks VALUE", (NAME,)),
)
REPORTED, OTHERS = "today", ("yesterday", "last week", "in the morning")
COUNT = (2, 4)  # the least and the greatest number of facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Headlines:
    """Pairs of a report of 2 to 4 facts and the headline of the fact of today.

    A name is three random syllables. Validation and test have names that no training pair has, so that a model has to copy
    them from the report. The gold alignment links each word of the headline to the word that it copies or renders.

    Args:
        train, validation, test: the numbers of pairs.
        seed: random seed of the pairs.
    """

    licence: ClassVar[str] = GENERATED
    train: Count
    validation: Count
    test: Count
    seed: int

    def load(self) -> Corpus:
        """Generate the corpus."""
        random = Random(self.seed)
        train, validation, test = (
            _text(draw_report(random, held_out) for _ in range(count))
            for count, held_out in ((self.train, False), (self.validation, True), (self.test, True))
        )
        return Corpus("report", "headline", train, validation, {"test": test})


def draw_report(random: Random, held_out: bool) -> Gold:
    """Return a report and its headline with their alignment.

    Args:
        held_out: whether the names are those of validation and test.
    """
    count = random.randint(*COUNT)
    reported, source, target, links = (
        random.randrange(count),
        list[str](),
        list[str](),
        set[tuple[int, int]](),
    )
    for i in range(count):
        fact, headline, values = random.choice(FACTS)
        person, value = draw_name(random, held_out), random.choice(values)
        value = draw_name(random, held_out) if value == NAME else value
        begin, words = len(source), [person, *_filled(fact, value)]
        if i == reported:
            target = [person, *_filled(headline, value)]
            length = len(value.split())
            links = {(begin, 0), (begin + 1, 1)}
            links |= {(begin + len(words) - length + k, len(target) - length + k) for k in range(length)}
        source += [*words, *(REPORTED if i == reported else random.choice(OTHERS)).split(), "."]
    return Gold(tuple(source), tuple(target), frozenset(links))


def draw_name(random: Random, held_out: bool) -> str:
    """Return a name: one that only validation and test have, or one of the others."""
    while True:
        letters = (random.choice(CONSONANTS) + random.choice(VOWELS) for _ in range(SYLLABLES))
        name = "".join(letters).capitalize()
        if (split_by_hash(name, HELD_OUT, 0.0) == "validation") == held_out:
            return name


def _filled(words: str, value: str) -> list[str]:
    filled = words.replace("VALUE", value)
    return (filled.replace("the ", "") if value[:1].isupper() else filled).split()


def _text(drawn: Iterator[Gold]) -> ParallelText:
    golds = [*drawn]
    source = [" ".join(one.source_words) for one in golds]
    return ParallelText(source, [" ".join(one.target_words) for one in golds], gold=golds)
