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


_ANY_OR_NEW = lexicon.ANY_BEFORE + 2 * lexicon.NEW
_PERSON_BEFORE = lexicon.ANY_BEFORE + lexicon.YOUNG
_THING_AFTER = lexicon.COLOURS + 3 * lexicon.CONDITIONS + lexicon.STRANGE
PEOPLE = Kind(lexicon.PEOPLE, _PERSON_BEFORE + lexicon.FORMER, lexicon.CHARACTERS)
KIN = Kind(lexicon.KIN, _PERSON_BEFORE, lexicon.CHARACTERS, owned=True)
ANIMALS = Kind(lexicon.ANIMALS, _PERSON_BEFORE, lexicon.COLOURS + lexicon.CHARACTERS, owned=True)
THINGS = Kind(lexicon.THINGS, _ANY_OR_NEW, _THING_AFTER, owned=True, portable=True)
FURNITURE = Kind(lexicon.FURNITURE, _ANY_OR_NEW, _THING_AFTER + 2 * lexicon.WOODEN, owned=True)
FOOD = Kind(lexicon.FOOD, lexicon.ANY_BEFORE, lexicon.COLOURS, owned=True, portable=True)
STORIES = Kind(lexicon.STORIES, _ANY_OR_NEW, lexicon.STRANGE, owned=True)
WRITINGS = Kind(lexicon.WRITINGS, _ANY_OR_NEW, lexicon.STRANGE, owned=True, portable=True)
PLACES = Kind(lexicon.PLACES, _ANY_OR_NEW, lexicon.STRANGE, place=True)
INSTITUTIONS = Kind(lexicon.INSTITUTIONS, _ANY_OR_NEW + lexicon.FORMER, lexicon.CLOSED, place=True)
WATERS = Kind(lexicon.WATERS, lexicon.ANY_BEFORE, lexicon.STRANGE, place=True)
GROUNDS = Kind(lexicon.GROUNDS, _ANY_OR_NEW, lexicon.STRANGE, place=True)
KINDS = (
    *(PEOPLE, KIN, ANIMALS, THINGS, FURNITURE, FOOD),
    *(STORIES, WRITINGS, PLACES, INSTITUTIONS, WATERS, GROUNDS),
)
