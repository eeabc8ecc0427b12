"""Short texts of facts about people, with a question about one of them, in English words of the lexicon."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from seq2seq_lab.data.grammar import lexicon
from seq2seq_lab.data.grammar.lexicon import SINGULAR

FACTS = (3, 5)  # the least and the greatest number of facts in a text
ASIDE_SHARE = 0.5  # of the facts that have a clause between the person and the rest


def _words(forms: Sequence[str]) -> str:
    return " ".join(forms)


NAMES = [_words(one.english) for one in lexicon.NAMES]
CITIES = [_words(one.english) for one in lexicon.CITIES]
PLACES, THINGS, PEOPLE = (
    [_words(noun.english[SINGULAR]) for noun in lexicon.nouns(section)]
    for section in ("PLACES", "THINGS", "PEOPLE")
)
COLOURS = [_words(one.english) for one in lexicon.adjectives("COLOURS")]
OWNED = [f"{colour} {thing}" for thing in THINGS for colour in COLOURS]


class Relation(NamedTuple):
    """A relation between a person and a value, in the words that come before and after the value.

    Attributes:
        fact: the words after the person; VALUE stands for the value.
        of_person: the question for the value; PERSON stands for the person.
        of_value: the question for the person.
    """

    fact: str
    of_person: str
    of_value: str


LIVES = Relation("lives in VALUE .", "where does PERSON live ?", "who lives in VALUE ?")
WORKS = Relation("works in VALUE .", "where does PERSON work ?", "who works in VALUE ?")
OWNS = Relation("owns VALUE .", "what does PERSON own ?", "who owns VALUE ?")
MET = Relation("met VALUE yesterday .", "who did PERSON meet ?", "who met VALUE ?")
RELATIONS = (LIVES, WORKS, OWNS, MET)
VALUES = {
    LIVES: CITIES,
    **{
        relation: [f"the {one}" for one in nouns]
        for relation, nouns in ((WORKS, PLACES), (OWNS, OWNED), (MET, PEOPLE))
    },
}
ASIDES = ("who often sees NAME in CITY", "who sold VALUE to NAME", "the friend of NAME")


class Question(NamedTuple):
    """A question about a text; all words are separated by spaces.

    Attributes:
        answer: the indices of the first and the last word of the answer in the text; None if it is not in the text.
        given: the index of the first word of the text that tells which fact is asked for; None without an answer.
    """

    text: str
    question: str
    answer: tuple[int, int] | None
    given: int | None


def draw_question(random: Random, no_answer_share: float) -> Question:
    """Return a text of facts and a question.

    Each fact is about a different person. Values of the same kind, and other people in clauses between a person and the
    value, are distractors. A question without an answer asks about a person that has no fact, or none with this relation,
    or it asks for the person with a value that no fact has.

    Args:
        no_answer_share: the probability of a question without an answer.
    """
    asked, *others = (random.choice(RELATIONS) for _ in range(random.randint(*FACTS)))
    others[0] = asked  # a distractor
    people = random.sample(NAMES, len(others) + 2)
    values = _values(random, [asked, *others, asked])
    facts = [_fact(random, *one, people) for one in zip((asked, *others), people, values[:-1], strict=False)]
    order = random.sample(range(len(facts)), len(facts))
    words = [word for i in order for word in facts[i]]
    missing = random.random() < no_answer_share
    if missing:
        elsewhere = [name for name, one in zip(people[1:], others, strict=False) if one is not asked]
        person, value = random.choice([*elsewhere, people[-1]]), values[-1]
    else:
        person, value = people[0], values[0]
    by_value = random.random() < 0.5
    form = asked.of_value if by_value else asked.of_person
    question = form.replace("PERSON", person).replace("VALUE", value)
    if missing:
        return Question(" ".join(words), question, None, None)
    start = sum(len(facts[i]) for i in order[: order.index(0)])
    length = len(value.split())
    first = start + len(facts[0]) - length - len(asked.fact.split()) + asked.fact.split().index("VALUE") + 1
    last = first + length - 1
    answer, given = ((start, start), first) if by_value else ((first, last), start)
    return Question(" ".join(words), question, answer, given)


def _values(random: Random, relations: Sequence[Relation]) -> list[str]:
    """Return a value for each relation; those of one relation differ."""
    drawn = {one: random.sample(VALUES[one], len(relations)) for one in dict.fromkeys(relations)}
    return [drawn[relation].pop() for relation in relations]


def _fact(random: Random, relation: Relation, person: str, value: str, people: Sequence[str]) -> list[str]:
    words = [person]
    if random.random() < ASIDE_SHARE:
        aside = random.choice(ASIDES).replace("NAME", random.choice([one for one in people if one != person]))
        thing = f"the {random.choice(OWNED)}"
        words += [",", *aside.replace("CITY", random.choice(CITIES)).replace("VALUE", thing).split(), ","]
    return [*words, *relation.fact.replace("VALUE", value).split()]
