"""The rules of the grammar: each makes an English phrase, its French translation and their links at once.

Two things keep the translation a function of the English sentence. A choice between rules shows in the
English words. And where an English phrase could hang on either of two parents (a prepositional phrase on
a noun or on the verb, a clause on either of two others), both readings have the same French; where they
would differ, one of them is left out: see `compact`, `simple_pair` and the commas between clauses.

`depth` bounds the nesting: a rule gives its parts one less than it was given, and at 0 a phrase is bare.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from seq2seq_lab.data.grammar import lexicon
from seq2seq_lab.data.grammar.lexicon import (
    ARTICLES,
    DETERMINERS,
    PLURAL,
    SINGULAR,
    THIRD_PLURAL,
    THIRD_SINGULAR,
    Adjective,
    Determiner,
    Entry,
    Noun,
    Verb,
)
from seq2seq_lab.data.grammar.phrase import EMPTY, Phrase, join, unit, words

PRESENT, PAST = range(2)


class Kind(NamedTuple):
    """A class of nouns, the adjectives that suit it, and the phrases that may follow it.

    `owned` nouns are of a person (the dog of the king), `place` nouns of a city (the bridge of London),
    `portable` ones can lie on a table.
    """

    nouns: Sequence[Noun]
    before: Sequence[Adjective]
    after: Sequence[Adjective]
    owned: bool = False
    place: bool = False
    portable: bool = False


class NounPhrase(NamedTuple):
    """A noun phrase, the person its verb agrees with, and the link of its noun."""

    phrase: Phrase
    person: int
    head: object


_ANY_OR_NEW = lexicon.ANY_BEFORE + 2 * lexicon.NEW
_PERSON_BEFORE = lexicon.ANY_BEFORE + lexicon.YOUNG
_THING_AFTER = lexicon.COLOURS + 3 * lexicon.CONDITIONS + lexicon.STRANGE
PEOPLE = Kind(lexicon.PEOPLE, _PERSON_BEFORE + lexicon.FORMER, lexicon.CHARACTERS)
KIN = Kind(lexicon.KIN, _PERSON_BEFORE, lexicon.CHARACTERS, owned=True)
ANIMALS = Kind(lexicon.ANIMALS, _PERSON_BEFORE, lexicon.COLOURS + lexicon.CHARACTERS, owned=True)
THINGS = Kind(lexicon.THINGS, _ANY_OR_NEW, _THING_AFTER, owned=True, portable=True)
FURNITURE = Kind(lexicon.FURNITURE, _ANY_OR_NEW, _THING_AFTER + lexicon.WOODEN, owned=True)
FOOD = Kind(lexicon.FOOD, lexicon.ANY_BEFORE, lexicon.COLOURS, owned=True, portable=True)
STORIES = Kind(lexicon.STORIES, _ANY_OR_NEW, lexicon.STRANGE, owned=True)
WRITINGS = Kind(lexicon.WRITINGS, _ANY_OR_NEW, lexicon.STRANGE, owned=True, portable=True)
PLACES = Kind(lexicon.PLACES, _ANY_OR_NEW, lexicon.STRANGE, place=True)
INSTITUTIONS = Kind(lexicon.INSTITUTIONS, _ANY_OR_NEW + lexicon.FORMER, lexicon.CLOSED, place=True)
WATERS = Kind(lexicon.WATERS, lexicon.ANY_BEFORE, lexicon.STRANGE, place=True)
GROUNDS = Kind(lexicon.GROUNDS, _ANY_OR_NEW, lexicon.STRANGE, place=True)

# What verb takes what object.
OBJECTS = (
    (lexicon.MEETING, (PEOPLE, PEOPLE, KIN, ANIMALS)),
    (lexicon.HANDLING, (THINGS, THINGS, THINGS, FURNITURE)),
    (lexicon.EATING, (FOOD,)),
    (lexicon.WRITING, (WRITINGS, STORIES)),
)
GIFTS = (THINGS, THINGS, FURNITURE, FOOD, WRITINGS)


def _translate(entry: Entry) -> Phrase:
    return unit(entry.english, entry.french)


class Rules:
    """Makes sentences of the grammar, drawn with the generator given."""

    def __init__(self, random: Random) -> None:
        self.chance = random.random
        self.pick = random.choice

    # Noun phrases

    def name(self) -> NounPhrase:
        """Mary / Marie."""
        phrase = _translate(self.pick(lexicon.NAMES))
        return NounPhrase(phrase, THIRD_SINGULAR, phrase.english[0].links[0])

    def pronoun(self) -> NounPhrase:
        """She / elle."""
        entry, person = self.pick(lexicon.PRONOUNS)
        phrase = _translate(entry)
        return NounPhrase(phrase, person, phrase.english[0].links[0])

    def noun_phrase(
        self, kind: Kind, depth: int, determiners: Sequence[Sequence[Determiner]] = DETERMINERS
    ) -> NounPhrase:
        """The small black dogs / les petits chiens noirs: the French article and adjectives agree."""
        noun = self.pick(kind.nouns)
        number = PLURAL if self.chance() < 0.35 else SINGULAR
        before = after = None
        if depth > 0:
            adjectives = self.chance()
            if adjectives < 0.22:
                before = self.pick(kind.before)
            if 0.19 < adjectives < 0.36:
                after = self.pick(kind.after)

        determiner = self.pick(determiners[number])
        article = determiner.french[noun.gender]
        if before and article == ("des",):
            article = ("de/d'",)
        head = object()
        left, right = unit(determiner.english, article), EMPTY
        if before:
            left = join(left, unit(before.english, before.french[number][noun.gender]))
        if after:
            right = unit(after.english, after.french[number][noun.gender])
        phrase = Phrase(
            left.english + right.english + words(noun.english[number], head),
            left.french + words(noun.french[number], head) + right.french,
        )
        return NounPhrase(phrase, THIRD_PLURAL if number else THIRD_SINGULAR, head)

    def attached(self, kind: Kind, depth: int, compact: bool) -> NounPhrase:
        """The dog of the baker behind the church: a noun phrase that may hold prepositional phrases.

        A `compact` one holds none but "of". It stands where French moves the next phrase past it: "told
        Mary a story in the garden" would have two translations if the garden could be the story's.
        """
        determiners = DETERMINERS
        if depth == 0 or self.chance() > 0.08:
            prepositional = EMPTY
        elif (kind.owned or kind.place) and (compact or self.chance() < 0.5):
            prepositional = self.of(kind, depth - 1, compact)
            determiners = ARTICLES  # "her brother of a lawyer" would have two owners
        elif compact:
            prepositional = EMPTY
        elif kind.portable and self.chance() < 0.5:
            prepositional = self.on(depth - 1)
        else:
            prepositional = self.near(depth - 1)
        noun_phrase = self.noun_phrase(kind, depth, determiners)
        return noun_phrase._replace(phrase=join(noun_phrase.phrase, prepositional))

    def person(self, depth: int, compact: bool) -> NounPhrase:
        """Mary, the old king, my sister."""
        if self.chance() < 0.35:
            return self.name()
        return self.attached(PEOPLE if self.chance() < 0.8 else KIN, depth, compact)

    def simple_pair(self, kind: Kind, depth: int) -> NounPhrase:
        """The boy and the girl. Neither holds a phrase, for "of the boy and the girl" has two readings."""
        first, second = (
            self.name() if kind is PEOPLE and self.chance() < 0.4 else self.noun_phrase(kind, depth)
            for _ in range(2)
        )
        phrase = join(first.phrase, unit(("and",), ("et",)), second.phrase)
        return NounPhrase(phrase, THIRD_PLURAL, second.head)

    # Prepositional phrases

    def of(self, kind: Kind, depth: int, compact: bool) -> Phrase:
        """Of the king / du roi."""
        whole = _translate(self.pick(lexicon.CITIES)) if kind.place else self.person(depth, compact).phrase
        return join(unit(("of",), ("de/d'",)), whole)

    def near(self, depth: int) -> Phrase:
        """In front of the church / devant l'église."""
        place = self.attached(PLACES if self.chance() < 0.5 else INSTITUTIONS, depth, compact=False)
        return join(_translate(self.pick(lexicon.NEARBY)), place.phrase)

    def on(self, depth: int) -> Phrase:
        """Under the table / sous la table."""
        return join(_translate(self.pick(lexicon.SURFACES)), self.noun_phrase(FURNITURE, depth).phrase)

    def place(self, depth: int) -> Phrase:
        """In the garden, at school, in Paris, near the castle: where something happens."""
        point = self.chance()
        if point < 0.35:
            return join(unit(("in",), ("dans",)), self.attached(PLACES, depth, compact=False).phrase)
        if point < 0.6:
            return join(unit(("at",), ("à",)), self.attached(INSTITUTIONS, depth, compact=False).phrase)
        if point < 0.75:
            return join(unit(("in",), ("à",)), _translate(self.pick(lexicon.CITIES)))
        return self.near(depth)

    def time(self, tense: int) -> Phrase:
        """Yesterday / hier; last week / la semaine dernière."""
        if tense == PAST and self.chance() < 0.5:
            noun, last = self.pick(lexicon.LAST)
            period, latest = _translate(noun), _translate(last)
            return Phrase(latest.english + period.english, period.french + latest.french)
        only = lexicon.PAST_TIMES if tense == PAST else lexicon.PRESENT_TIMES
        return _translate(self.pick(only if self.chance() < 0.5 else lexicon.DAYS))

    # Verb phrases

    def verb(self, verb: Verb, person: int, tense: int) -> Phrase:
        """Often told / a souvent raconté: the finite verb agrees, an adverb of frequency follows it."""
        link = object()
        adverb = _translate(self.pick(lexicon.FREQUENCY)) if self.chance() < 0.08 else EMPTY
        if tense == PRESENT:
            finite, rest = words(verb.french_present[person], link), EMPTY.french
            english = words(verb.english_present[person], link)
        else:
            finite, rest = words((lexicon.AVOIR[person],), link), words(verb.participle, link)
            english = words(verb.english_past, link)
        return Phrase(adverb.english + english, finite + adverb.french + rest)

    def verb_phrase(self, person: int, tense: int, depth: int, human: bool) -> Phrase:
        """What a subject does, without the adverbials."""
        if not human and depth > 0 and self.chance() < 0.5:
            return self.transitive(lexicon.MEETING, (PEOPLE, ANIMALS), person, tense, depth)
        if not human or depth == 0:
            verbs = lexicon.INTRANSITIVE if human else lexicon.ANIMAL_INTRANSITIVE
            return self.verb(self.pick(verbs), person, tense)
        point = self.chance()
        if point < 0.19:
            return self.intransitive(person, tense, depth)
        if point < 0.35:
            return self.dative(person, tense, depth)
        if point < 0.45:
            return self.crossing(person, tense, depth)
        return self.acting(person, tense, depth)

    def intransitive(self, person: int, tense: int, depth: int) -> Phrase:
        """Slept / a dormi; danced with Mary / a dansé avec Marie."""
        phrase = self.verb(self.pick(lexicon.INTRANSITIVE), person, tense)
        if self.chance() < 0.25:
            phrase = join(phrase, unit(("with",), ("avec",)), self.person(depth - 1, compact=False).phrase)
        return phrase

    def acting(self, person: int, tense: int, depth: int) -> Phrase:
        """Loves Mary / aime Marie."""
        verbs, kinds = self.pick(OBJECTS[:2]) if self.chance() < 0.7 else self.pick(OBJECTS[2:])
        return self.transitive(verbs, kinds, person, tense, depth)

    def transitive(
        self, verbs: Sequence[Verb], kinds: Sequence[Kind], person: int, tense: int, depth: int
    ) -> Phrase:
        """A verb of `verbs` with an object of `kinds`."""
        kind = self.pick(kinds)
        if depth > 1 and self.chance() < 0.08:
            thing = self.simple_pair(kind, depth - 2)
        elif kind is PEOPLE:
            thing = self.person(depth - 1, compact=False)
        else:
            thing = self.attached(kind, depth - 1, compact=False)
        return join(self.verb(self.pick(verbs), person, tense), thing.phrase)

    def dative(self, person: int, tense: int, depth: int) -> Phrase:
        """Told Mary a story / a raconté une histoire à Marie."""
        telling = self.chance() < 0.4
        verb = self.verb(self.pick(lexicon.TELLING if telling else lexicon.GIVING), person, tense)
        receiver = self.person(depth - 1, compact=True)
        thing = self.attached(STORIES if telling else self.pick(GIFTS), depth - 1, compact=True).phrase
        return Phrase(
            verb.english + receiver.phrase.english + thing.english,
            verb.french + thing.french + words(("à",), receiver.head) + receiver.phrase.french,
        )

    def crossing(self, person: int, tense: int, depth: int) -> Phrase:
        """Swam across the lake / a traversé le lac à la nage."""
        swimming = self.chance() < 0.4
        verb, manner = self.pick(lexicon.SWIMMING if swimming else lexicon.RUNNING)
        moving = self.verb(verb, person, tense)
        link = moving.french[0].links[
            0
        ]  # the finite verb's: the whole set phrase corresponds, not its adverb
        path = self.attached(WATERS if swimming else GROUNDS, depth - 1, compact=True).phrase
        return Phrase(
            moving.english + words(("across",), link) + path.english,
            moving.french + path.french + words(manner, link),
        )

    # Clauses

    def adverbials(self, tense: int, depth: int) -> Phrase:
        """Slowly in the garden yesterday / lentement dans le jardin hier."""
        phrase = EMPTY
        if self.chance() < 0.07:
            phrase = join(phrase, _translate(self.pick(lexicon.MANNER)))
        if self.chance() < 0.13:
            phrase = join(phrase, self.place(depth - 1))
        if self.chance() < 0.11:
            phrase = join(phrase, self.time(tense))
        return phrase

    def subject(self, depth: int) -> tuple[NounPhrase, bool]:
        """A subject, and whether it is human."""
        point = self.chance()
        if point < 0.33:
            return self.pronoun(), True
        if point < 0.40 and depth > 0:
            return self.simple_pair(PEOPLE, depth - 1), True
        if point < 0.49:
            return self.attached(ANIMALS, depth, compact=False), False
        return self.person(depth, compact=False), True

    def simple_clause(self, tense: int, depth: int) -> Phrase:
        """A subject with one verb phrase, or with two: sang and danced / a chanté et a dansé."""
        subject, human = self.subject(depth - 1 if depth else 0)
        phrase = join(subject.phrase, self.verb_phrase(subject.person, tense, depth, human))
        if depth == 0:
            return phrase
        if self.chance() < 0.05:
            second = self.verb_phrase(subject.person, tense, depth - 1, human)
            phrase = join(phrase, unit(("and",), ("et",)), second)
        return join(phrase, self.adverbials(tense, depth))

    def saying(self, tense: int, depth: int, subordinate: bool) -> Phrase:
        """Mary says that John slept / Marie dit que Jean a dormi.

        After a verb in the past the clause begins in the present, where French needs no pluperfect.
        """
        subject = self.person(0, compact=True) if self.chance() < 0.6 else self.pronoun()
        verb = self.verb(self.pick(lexicon.SAYING), subject.person, tense)
        inner = PRESENT if tense == PAST else self.tense()
        that = unit(("that",), ("que/qu'",))
        return join(subject.phrase, verb, that, self.clause(inner, depth - 1, subordinate))

    def coordinated(self, tense: int, depth: int) -> Phrase:
        """Mary sings, but John sleeps. Without the comma "saw Mary and John and Paul slept" is ambiguous."""
        connector = join(unit((",",), (",",)), _translate(self.pick(lexicon.COORDINATORS)))
        return join(
            self.simple_clause(tense, depth - 1), connector, self.clause(self.tense(), depth - 1, False)
        )

    def because(self, tense: int, depth: int) -> Phrase:
        """Mary sings because John slept / Marie chante parce que Jean a dormi."""
        inner = PAST if tense == PAST else self.tense()
        connector = unit(("because",), ("parce", "que/qu'"))
        return join(self.simple_clause(tense, depth - 1), connector, self.clause(inner, depth - 1, True))

    def temporal(self, tense: int, depth: int) -> Phrase:
        """Mary sang when John danced / Marie a chanté quand Jean a dansé: both of one tense."""
        connector = self.temporal_connector(tense)
        return join(self.simple_clause(tense, depth - 1), connector, self.clause(tense, depth - 1, True))

    def temporal_first(self, tense: int, depth: int) -> Phrase:
        """When John danced, Mary sang."""
        connector, comma = self.temporal_connector(tense), unit((",",), (",",))
        first = join(connector, self.simple_clause(tense, depth - 1), comma)
        return join(first, self.clause(tense, depth - 1, True))

    def temporal_connector(self, tense: int) -> Phrase:
        """Return when, as soon as, or while; "pendant que" would ask for the imperfect in the past."""
        point = self.chance()
        if tense == PRESENT and point < 0.3:
            return unit(("while",), ("pendant", "que/qu'"))
        if point < 0.75:
            return unit(("when",), ("quand",))
        return unit(("as", "soon", "as"), ("dès", "que/qu'"))

    def tense(self) -> int:
        """Return present or past."""
        return PAST if self.chance() < 0.5 else PRESENT

    def clause(self, tense: int, depth: int, subordinate: bool) -> Phrase:
        """A clause whose first verb has the tense given, simple or not."""
        if depth < 3 or self.chance() > 0.75:
            return self.simple_clause(tense, depth)
        return self.complex_clause(tense, depth, subordinate)

    def complex_clause(self, tense: int, depth: int, subordinate: bool) -> Phrase:
        """Two clauses or more. In a `subordinate` clause no other hangs by "because" or "when"."""
        point = self.chance()
        if point < 0.25:
            return self.saying(tense, depth, subordinate)
        if point < 0.6 or subordinate:
            return self.coordinated(tense, depth)
        if point < 0.8:
            return self.because(tense, depth)
        return self.temporal(tense, depth)

    def sentence(self, depth: int) -> Phrase:
        """One clause or several, and a full stop."""
        tense = self.tense()
        point = self.chance()
        if depth < 2 or point < 0.72:
            clause = self.simple_clause(tense, depth)
        elif point < 0.76:
            clause = self.temporal_first(tense, depth)
        else:
            clause = self.complex_clause(tense, depth, subordinate=False)
        return join(clause, unit((".",), (".",)))
