"""The words of the grammar: what `lexicon.txt` contains, as typed entries."""

from collections.abc import Sequence
from importlib import resources
from typing import NamedTuple

from seq2seq_lab.data.grammar.phrase import Phenomenon

Forms = tuple[str, ...]
"""The words of one form of an entry: ("pomme", "de", "terre")."""

FIRST_SINGULAR, THIRD_SINGULAR, FIRST_PLURAL, THIRD_PLURAL = range(4)
SINGULAR, PLURAL = range(2)
MASCULINE, FEMININE = range(2)
NUMBER = (SINGULAR, SINGULAR, PLURAL, PLURAL)
"""The number of each person."""

# By person.
AVOIR = ("ai", "a", "avons", "ont")
ETRE = ("suis", "est", "sommes", "sont")
DO = ("do", "does", "do", "do")


class Noun(NamedTuple):
    """A common noun; forms by number."""

    english: tuple[Forms, Forms]
    french: tuple[Forms, Forms]
    gender: int


class Adjective(NamedTuple):
    """An adjective; French forms by number, then gender."""

    english: Forms
    french: tuple[tuple[Forms, Forms], tuple[Forms, Forms]]


class Verb(NamedTuple):
    """A verb; present, past and auxiliary by person, participle by number, then gender.

    An English past of two words ("was born") contains its auxiliary and needs no "did".
    """

    english_present: tuple[Forms, ...]
    english_past: tuple[Forms, ...]
    french_present: tuple[Forms, ...]
    auxiliary: tuple[str, ...]
    participle: tuple[tuple[str, str], tuple[str, str]]


class Entry(NamedTuple):
    """A word or a set phrase that never changes, and the part of speech of its French words."""

    english: Forms
    french: Forms
    part: str


class Nominal(NamedTuple):
    """A name or a pronoun, the person and gender with which its verb agrees, and its part of speech."""

    english: Forms
    french: Forms
    person: int
    gender: int
    part: str


class Clitic(NamedTuple):
    """A pronoun that French puts before the verb, as direct and as indirect object."""

    english: Forms
    direct: Forms
    indirect: Forms
    person: int
    gender: int


class Determiner(NamedTuple):
    """An article, a quantity or a possessive of one number; French forms by gender."""

    english: Forms
    french: tuple[Forms, Forms]
    phenomena: tuple[Phenomenon, ...]
    part: str


ByNumber = tuple[Sequence[Determiner], Sequence[Determiner]]


class Determiners(NamedTuple):
    """The determiners that a noun may have, without and with the possessives."""

    articles: ByNumber
    all: ByNumber


def _read_sections() -> dict[str, list[list[Forms]]]:
    """Return the rows of each section of `lexicon.txt`."""
    sections: dict[str, list[list[Forms]]] = {}
    rows: list[list[Forms]] = []
    for line in resources.files(__package__).joinpath("lexicon.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            rows = sections[line.strip("[]")] = []
        elif cells := line.partition("#")[0].split():
            rows.append([tuple(cell.split("_")) for cell in cells])
    return sections


_SECTIONS = _read_sections()
_PERSON: dict[Forms, int] = {
    ("1s",): FIRST_SINGULAR,
    ("3s",): THIRD_SINGULAR,
    ("1p",): FIRST_PLURAL,
    ("3p",): THIRD_PLURAL,
}
_GENDER: dict[Forms, int] = {("m",): MASCULINE, ("f",): FEMININE}


def _nominals(section: str, part: str) -> list[Nominal]:
    return [
        Nominal(en, fr, _PERSON[person], _GENDER[gender], part)
        for en, fr, person, gender in _SECTIONS[section]
    ]


def _clitics(section: str) -> list[Clitic]:
    return [
        Clitic(english, direct, indirect, _PERSON[person], _GENDER[gender])
        for english, direct, indirect, person, gender in _SECTIONS[section]
    ]


def nouns(section: str) -> list[Noun]:
    """Return the nouns of a section of `lexicon.txt`."""
    return [
        Noun((one, more), (un, des), _GENDER[gender]) for one, more, un, des, gender in _SECTIONS[section]
    ]


def adjectives(sections: str) -> list[Adjective]:
    """Return the adjectives of sections of `lexicon.txt`, whose names are separated by spaces."""
    rows = [row for section in sections.split() for row in _SECTIONS[section]]
    return [Adjective(english, ((ms, fs), (mp, fp))) for english, ms, fs, mp, fp in rows]


def _determiners(section: str, *phenomena: Phenomenon, part: str = "DET") -> list[Determiner]:
    return [Determiner(english, (m, f), phenomena, part) for english, m, f in _SECTIONS[section]]


def _inflect(participle: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the participle by number, then gender."""
    plural = participle if participle.endswith("s") else participle + "s"
    return (participle, participle + "e"), (plural, participle + "es")


def _verb(row: Sequence[Forms], auxiliary: tuple[str, ...] = AVOIR) -> Verb:
    base, third, past, je, il, nous, ils, (participle,) = row
    present, inflected = (base, third, base, base), _inflect(participle)
    return Verb(present, (past,) * 4, (je, il, nous, ils), auxiliary, inflected)


def _verbs(section: str, auxiliary: tuple[str, ...] = AVOIR) -> list[Verb]:
    return [_verb(row, auxiliary) for row in _SECTIONS[section]]


def _verbs_with_manner(section: str) -> list[tuple[Verb, Forms]]:
    return [(_verb(row), manner) for *row, manner in _SECTIONS[section]]


def _entries(section: str, part: str) -> list[Entry]:
    return [Entry(english, french, part) for english, french in _SECTIONS[section]]


NAMES = _nominals("NAMES", "PROPN")
PRONOUNS = _nominals("PRONOUNS", "PRON")
(WHO,) = _nominals("WHO", "PRON")
CLITICS_OF_THIRD_PERSON = _clitics("CLITICS_OF_THIRD_PERSON")
CLITICS = CLITICS_OF_THIRD_PERSON + _clitics("CLITICS_OF_FIRST_PERSON")

NUMBERS = _determiners("NUMBERS", "number", part="NUM")
HOURS = NUMBERS[:10]
"""From two to eleven: after one, "heure" is singular, and twelve is "midi" or "minuit"."""


def _with_possessives(articles: ByNumber, plural_weight: int) -> Determiners:
    singular = [*articles[SINGULAR], *_determiners("POSSESSIVES_SINGULAR")]
    plural = [*articles[PLURAL], *plural_weight * _determiners("POSSESSIVES_PLURAL")]
    return Determiners(articles, (singular, plural))


# The factor of 12 balances the 19 numbers, which would otherwise be most of the plural determiners.
ANY = _with_possessives(
    (_determiners("ARTICLES_SINGULAR"), 12 * _determiners("ARTICLES_PLURAL") + NUMBERS), plural_weight=12
)
BESIDE_NEGATION, OF_NEGATED_OBJECT = (
    _with_possessives((_determiners(f"{name}_SINGULAR"), _determiners(f"{name}_PLURAL")), plural_weight=1)
    for name in ("BESIDE_NEGATION", "OF_NEGATED_OBJECT")
)

INTRANSITIVE = _verbs("INTRANSITIVE")
ANIMAL_INTRANSITIVE = _verbs("ANIMAL_INTRANSITIVE")
MEETING = _verbs("MEETING")
HANDLING = _verbs("HANDLING")
WRITING = _verbs("WRITING")
EATING = _verbs("EATING")
TELLING = _verbs("TELLING")
GIVING = _verbs("GIVING")
SAYING = _verbs("SAYING")
SWIMMING = _verbs_with_manner("SWIMMING")
RUNNING = _verbs_with_manner("RUNNING")
GOING = _verbs("GOING", ETRE)
COMING = _verbs("COMING", ETRE)
STAYING = _verbs("STAYING", ETRE)
LEAVING = _verbs("LEAVING", ETRE)
(DEATH,) = _verbs("DEATH", ETRE)
BIRTH = Verb(
    (("born",),) * 4,
    (("was", "born"), ("was", "born"), ("were", "born"), ("were", "born")),
    (("nais",), ("naît",), ("naissons",), ("naissent",)),
    ETRE,
    _inflect("né"),
)

CITIES = _entries("CITIES", "PROPN")
FREQUENCY = _entries("FREQUENCY", "ADV")
MANNER = _entries("MANNER", "ADV")
PAST_TIMES = _entries("PAST_TIMES", "ADV")
LAST = [
    (Entry(english, french, "NOUN"), Entry(("last",), last, "ADJ"))
    for english, french, last in _SECTIONS["LAST"]
]
PRESENT_TIMES = _entries("PRESENT_TIMES", "ADV")
DAYS = _entries("DAYS", "NOUN")
NEARBY = _entries("NEARBY", "ADP")
SURFACES = _entries("SURFACES", "ADP")
COORDINATORS = _entries("COORDINATORS", "CCONJ")
