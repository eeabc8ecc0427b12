"""Classes of nouns: which nouns, adjectives and phrases go together."""

from collections.abc import Sequence
from typing import NamedTuple

from seq2seq_lab.data.grammar import lexicon


class Kind(NamedTuple):
    """A class of nouns, the adjectives that suit it, and the phrases that may follow it.

    `owned` nouns may belong to a person (the dog of the king) and `place` nouns to a city (the bridge of London);
    `portable` things may be on a table.
    """

    nouns: Sequence[lexicon.Noun]
    before: Sequence[lexicon.Adjective]
    after: Sequence[lexicon.Adjective]
    owned: bool = False
    place: bool = False
    portable: bool = False


# A repeated section is drawn as many times more often.
_ANY_OR_NEW = "ANY_BEFORE NEW NEW"
_PERSON_BEFORE = "ANY_BEFORE YOUNG"
_THING_AFTER = "COLOURS CONDITIONS CONDITIONS CONDITIONS STRANGE"


def _kind(nouns: str, before: str, after: str, **properties: bool) -> Kind:
    """Return the class of the nouns and adjectives in sections of `lexicon.txt`."""
    return Kind(lexicon.nouns(nouns), lexicon.adjectives(before), lexicon.adjectives(after), **properties)


PEOPLE = _kind("PEOPLE", f"{_PERSON_BEFORE} FORMER", "CHARACTERS")
KIN = _kind("KIN", _PERSON_BEFORE, "CHARACTERS", owned=True)
ANIMALS = _kind("ANIMALS", _PERSON_BEFORE, "COLOURS CHARACTERS", owned=True)
THINGS = _kind("THINGS", _ANY_OR_NEW, _THING_AFTER, owned=True, portable=True)
FURNITURE = _kind("FURNITURE", _ANY_OR_NEW, f"{_THING_AFTER} WOODEN WOODEN", owned=True)
FOOD = _kind("FOOD", "ANY_BEFORE", "COLOURS", owned=True, portable=True)
STORIES = _kind("STORIES", _ANY_OR_NEW, "STRANGE", owned=True)
WRITINGS = _kind("WRITINGS", _ANY_OR_NEW, "STRANGE", owned=True, portable=True)
PLACES = _kind("PLACES", _ANY_OR_NEW, "STRANGE", place=True)
INSTITUTIONS = _kind("INSTITUTIONS", f"{_ANY_OR_NEW} FORMER", "CLOSED", place=True)
WATERS = _kind("WATERS", "ANY_BEFORE", "STRANGE", place=True)
GROUNDS = _kind("GROUNDS", _ANY_OR_NEW, "STRANGE", place=True)
KINDS = (
    PEOPLE,
    KIN,
    ANIMALS,
    THINGS,
    FURNITURE,
    FOOD,
    STORIES,
    WRITINGS,
    PLACES,
    INSTITUTIONS,
    WATERS,
    GROUNDS,
)
