"""Analogies of words: files of questions, and a generated text whose word vectors can answer them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from random import Random
from typing import ClassVar, NamedTuple

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.licences import GENERATED
from seq2seq_lab.data.local_files import read_lines
from seq2seq_lab.data.sentences import SentenceCorpus, Sentences
from seq2seq_lab.data.text import SPLITS, new_counts
from seq2seq_lab.errors import UserError

COMMENT = "//"


class Analogy(NamedTuple):
    """A question: `first` is to `second` as `third` is to `answer`."""

    first: str
    second: str
    third: str
    answer: str


# The words for a man and a woman, each in the singular and the plural, and three things of theirs.
_PEOPLE = (
    "king kings queen queens crown throne palace",
    "prince princes princess princesses castle horse sword",
    "duke dukes duchess duchesses estate carriage servant",
    "actor actors actress actresses role film stage",
    "waiter waiters waitress waitresses tray menu apron",
    "host hosts hostess hostesses party guest dinner",
    "hero heroes heroine heroines adventure dragon victory",
    "wizard wizards witch witches spell potion broom",
    "monk monks nun nuns prayer candle chapel",
    "father fathers mother mothers baby pram cradle",
    "son sons daughter daughters school toy homework",
    "uncle uncles aunt aunts nephew gift visit",
    "husband husbands wife wives wedding ring marriage",
    "boy boys girl girls kite bicycle ball",
    "man men woman women hat coat briefcase",
    "grandfather grandfathers grandmother grandmothers grandchild pension armchair",
)
# A verb in its base form, its third person and its past, and three objects of it.
_ACTIONS = (
    "write writes wrote letter poem book",
    "eat eats ate soup apple cake",
    "drink drinks drank coffee tea lemonade",
    "drive drives drove bus truck tractor",
    "sing sings sang song anthem ballad",
    "build builds built wall bridge tower",
    "paint paints painted portrait fence landscape",
    "throw throws threw stone spear snowball",
    "catch catches caught fish thief mouse",
    "grow grows grew tomato rose carrot",
    "play plays played violin piano flute",
    "clean cleans cleaned floor window kitchen",
    "break breaks broke cup plate vase",
    "draw draws drew map circle triangle",
    "teach teaches taught lesson grammar history",
    "buy buys bought ticket newspaper magazine",
)
PEOPLE = tuple(tuple(line.split()) for line in _PEOPLE)
ACTIONS = tuple(tuple(line.split()) for line in _ACTIONS)
OWN_SHARE = 0.5  # of the things and objects that are those of the person or the action, and not any


class Number(NamedTuple):
    """The words that differ between a singular and a plural subject: determiners, "has" and "is"."""

    determiners: tuple[str, ...]
    has: str
    copula: str


SINGULAR = Number(("this", "one", "every", "a"), "has", "is")
PLURAL = Number(("these", "two", "many", "all"), "have", "are")
MEN = ("adam", "ben", "carl", "david", "felix", "george")
WOMEN = ("anna", "bella", "clara", "diana", "emma", "frida")
PRONOUNS = (("he", "his", "him"), ("she", "her", "her"), ("they", "their", "them"))
PRESENT_TIMES = ("today", "this week", "now", "every day")
PAST_TIMES = ("yesterday", "last week", "years ago", "in those days")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalogyText:
    """English sentences in which words that differ by gender, number or tense have different contexts.

    The words of a pair such as king and queen have the same things in their contexts more often than others. Names and
    pronouns in them depend on the gender, determiners and verbs on the number, and adverbs of time on the tense. So the
    difference between the vectors of king and queen is similar to that between actor and actress, and analogies can be
    answered (Mikolov et al. 2013, arXiv:1301.3781; why: Levy and Goldberg 2014, "Linguistic regularities in sparse and
    explicit word representations").

    Args:
        train: the number of sentences; also `validation` and `test`.
        seed: random seed of the sentences.
    """

    licence: ClassVar[str] = GENERATED
    train: Count
    validation: Count
    test: Count
    seed: int

    def load(self) -> SentenceCorpus:
        """Generate the sentences."""
        train, validation, test = (self._split(name) for name in SPLITS)
        return SentenceCorpus("en", train, validation, test)

    def _split(self, name: str) -> Sentences:
        random = Random(f"{self.seed} {name}")  # so that the size of one split does not change the others
        return Sentences([draw_sentence(random) for _ in range(getattr(self, name))])


def draw_sentence(random: Random) -> str:
    """Return a sentence about people and a thing, or about an action and its object."""
    feminine, plural, past = (random.random() < 0.5 for _ in range(3))
    number = PLURAL if plural else SINGULAR
    they, their, them = PRONOUNS[2 if plural else feminine]
    if random.random() < 0.4:
        base, third, past_form, *_ = action = random.choice(ACTIONS)
        verb = past_form if past else base if plural else third
        clause = f"{they} {verb} the {_draw_thing(random, action, ACTIONS)}"
        time = random.choice(PAST_TIMES if past else PRESENT_TIMES)
        return random.choice((f"{time} {clause} .", f"{clause} {time} ."))
    people = random.choice(PEOPLE)
    subject = f"{random.choice(number.determiners)} {people[2 * feminine + plural]}"
    thing, name = _draw_thing(random, people, PEOPLE), random.choice(WOMEN if feminine else MEN)
    return random.choice(
        (
            f"{subject} {number.has} {their} {thing} with {them} .",
            f"{subject} with the {thing} {number.copula} like {name} .",
            f"{name} knows {subject} who {number.copula} proud of the {thing} .",
        )
    )


def _draw_thing(random: Random, own: tuple[str, ...], everyone: tuple[tuple[str, ...], ...]) -> str:
    return random.choice((own if random.random() < OWN_SHARE else random.choice(everyone))[-3:])


def generated_analogies() -> dict[str, list[Analogy]]:
    """Return all questions about the words of `AnalogyText`, by section, with the names of Mikolov's file."""
    pairs = {
        "family": [(one[i], one[i + 2]) for i in (0, 1) for one in PEOPLE],
        "gram7-past-tense": [(base, past) for base, _, past, *_ in ACTIONS],
        "gram8-plural": [(one[i], one[i + 1]) for i in (0, 2) for one in PEOPLE],
        "gram9-plural-verbs": [(base, third) for base, third, *_ in ACTIONS],
    }
    return {
        name: [Analogy(*first, *second) for first, second in permutations(of_section, 2)]
        for name, of_section in pairs.items()
    }


def read_analogies(path: Path, key: str) -> dict[str, list[Analogy]]:
    """Return the questions of a file by section, in the format of questions-words.txt (Mikolov et al. 2013).

    A line ": NAME" begins a section, and every other line is a question of four words. Empty lines and lines that begin with
    "//" are left out.

    Raises:
        UserError: the file cannot be read, has a line of another format, or no question.
    """
    sections: dict[str, list[Analogy]] = {}
    name = ""
    for line_number, (line, problem) in enumerate(read_lines(path, new_counts(), show=False), start=1):
        words = line.split()
        if line.startswith(COMMENT) or not (words or problem):
            continue
        if line.startswith(":"):
            name = line.removeprefix(":").strip()
            sections.setdefault(name, [])
            problem = "" if name else "the section has no name"
        elif len(words) == 4 and sections:
            sections[name].append(Analogy(*words))
        elif not problem:
            before = "the first question is before the first section"
            problem = before if len(words) == 4 else f"{len(words)} words instead of 4"
        if problem:
            raise UserError(
                f"{key}={path} line {line_number}: {problem}. Write a line ': NAME' for each section, and four words a line "
                f"for each question, such as: man woman king queen."
            )
    if not any(sections.values()):
        raise UserError(f"{key}={path} has no question. Give a file in the format of questions-words.txt.")
    return sections


def pairs_of(questions: Iterable[Analogy]) -> list[tuple[str, str]]:
    """Return the different pairs of words of questions, in their order."""
    return [*dict.fromkeys(pair for one in questions for pair in ((one[0], one[1]), (one[2], one[3])))]
