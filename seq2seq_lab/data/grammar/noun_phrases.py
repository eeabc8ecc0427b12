"""Noun phrases, and the phrases of place and time that contain them."""

from random import Random
from typing import NamedTuple

from seq2seq_lab.data.grammar import lexicon, noun_kinds
from seq2seq_lab.data.grammar.lexicon import ANY, FEMININE, PLURAL, SINGULAR, ByNumber, Determiners
from seq2seq_lab.data.grammar.noun_kinds import Kind
from seq2seq_lab.data.grammar.phrase import (
    EMPTY,
    Phenomenon,
    Phrase,
    add_phenomena,
    agreement,
    arrange,
    join,
    unit,
    words,
)

PRESENT, PAST = range(2)


class NounPhrase(NamedTuple):
    """A noun phrase, its agreement features, the link of its head, and its common nouns in English."""

    phrase: Phrase
    person: int
    gender: int
    head: object
    nouns: tuple[lexicon.Forms, ...]

    @property
    def number(self) -> int:
        """Singular or plural."""
        return lexicon.NUMBER[self.person]


def translate(entry: lexicon.Entry) -> Phrase:
    """Return the entry as a phrase in which all words correspond."""
    return unit(entry.english, entry.french, part=entry.part)


def nominal(entry: lexicon.Nominal) -> NounPhrase:
    """Mary / Marie, she / elle."""
    head = object()
    number = lexicon.NUMBER[entry.person]
    agrees = agreement(number, entry.gender) if entry.part == "PROPN" else agreement(number)
    if entry is lexicon.WHO:
        agrees = ""
    phrase = Phrase(words(entry.english, head), words(entry.french, head, entry.part, agrees))
    return NounPhrase(phrase, entry.person, entry.gender, head, ())


class NounPhrases:
    """Draws noun phrases, and phrases of place and time, with the given generator."""

    def __init__(self, random: Random) -> None:
        self.chance = random.random
        self.pick = random.choice

    def name(self) -> NounPhrase:
        """Mary / Marie."""
        return nominal(self.pick(lexicon.NAMES))

    def pronoun(self) -> NounPhrase:
        """She / elle."""
        return nominal(self.pick(lexicon.PRONOUNS))

    def noun_phrase(self, kind: Kind, depth: int, determiners: ByNumber) -> NounPhrase:
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
        head, agrees = object(), agreement(number, noun.gender)
        english, french = noun.english[number], noun.french[number]
        phenomena: tuple[Phenomenon, ...] = ("compound",) if len(english) > len(french) == 1 else ()
        of_determiner = agrees if determiner.part == "DET" else ""
        left = unit(
            determiner.english, article, *determiner.phenomena, part=determiner.part, agrees=of_determiner
        )
        right = EMPTY
        if before:
            shape = before.french[number][noun.gender]
            left = join(left, unit(before.english, shape, part="ADJ", agrees=agrees))
        if after:
            shape = after.french[number][noun.gender]
            right = unit(after.english, shape, "adjective inversion", part="ADJ", agrees=agrees)
        shown = tuple(
            [(adjective.english, noun.english[SINGULAR]) for adjective in (before, after) if adjective]
        )
        middle = Phrase(words(english, head), words(french, head, "NOUN", agrees), phenomena, shown)
        phrase = arrange((left, right, middle), (left, middle, right))
        person = lexicon.THIRD_PLURAL if number == PLURAL else lexicon.THIRD_SINGULAR
        return NounPhrase(phrase, person, noun.gender, head, (noun.english[SINGULAR],))

    def attached(self, kind: Kind, depth: int, compact: bool, determiners: Determiners = ANY) -> NounPhrase:
        """The dog of the baker behind the church: a noun phrase that may contain prepositional phrases.

        A `compact` one contains only "of". It is used where French moves the next phrase past it: "told Mary a story
        in the garden" would have two translations if "in the garden" could modify "story".
        """
        allowed = determiners.all
        if depth <= 0 or self.chance() > 0.08:
            prepositional = EMPTY
        elif (kind.owned or kind.place) and (compact or self.chance() < 0.5):
            prepositional = self.of(kind, depth - 1, compact)
            allowed = determiners.articles  # "her brother of a lawyer" would have two owners
        elif compact:
            prepositional = EMPTY
        elif kind.portable and self.chance() < 0.5:
            prepositional = self.on(depth - 1)
        else:
            prepositional = self.near(depth - 1)
        noun_phrase = self.noun_phrase(kind, depth, allowed)
        return noun_phrase._replace(phrase=join(noun_phrase.phrase, prepositional))

    def person(self, depth: int, compact: bool, determiners: Determiners = ANY) -> NounPhrase:
        """Mary, the old king, my sister."""
        if self.chance() < 0.35:
            return self.name()
        return self.attached(
            noun_kinds.PEOPLE if self.chance() < 0.8 else noun_kinds.KIN, depth, compact, determiners
        )

    def simple_pair(self, kind: Kind, depth: int, determiners: Determiners = ANY) -> NounPhrase:
        """The boy and the girl. Neither contains a phrase, because "of the boy and the girl" has two readings."""
        first, second = (
            self.name()
            if kind is noun_kinds.PEOPLE and self.chance() < 0.4
            else self.noun_phrase(kind, depth, determiners.all)
            for _ in range(2)
        )
        if [word.form for word in first.phrase.english] == [word.form for word in second.phrase.english]:
            second = self.noun_phrase(kind, depth, determiners.all)  # no "Helen and Helen"
        phrase = join(first.phrase, unit(("and",), ("et",), "coordination"), second.phrase)
        gender = FEMININE if first.gender == second.gender == FEMININE else lexicon.MASCULINE
        return NounPhrase(phrase, lexicon.THIRD_PLURAL, gender, second.head, first.nouns + second.nouns)

    # Prepositional phrases

    def of(self, kind: Kind, depth: int, compact: bool) -> Phrase:
        """Of the king / du roi."""
        whole = translate(self.pick(lexicon.CITIES)) if kind.place else self.person(depth, compact).phrase
        return join(unit(("of",), ("de/d'",)), whole)

    def near(self, depth: int, determiners: Determiners = ANY) -> Phrase:
        """In front of the church / devant l'église."""
        kind = noun_kinds.PLACES if self.chance() < 0.5 else noun_kinds.INSTITUTIONS
        place = self.attached(kind, depth, compact=False, determiners=determiners)
        return join(translate(self.pick(lexicon.NEARBY)), place.phrase)

    def on(self, depth: int) -> Phrase:
        """Under the table / sous la table."""
        furniture = self.noun_phrase(noun_kinds.FURNITURE, depth, ANY.all)
        return join(translate(self.pick(lexicon.SURFACES)), furniture.phrase)

    def city(self) -> Phrase:
        """In Paris / à Paris."""
        return join(unit(("in",), ("à",)), translate(self.pick(lexicon.CITIES)))

    def place(self, depth: int, determiners: Determiners) -> Phrase:
        """In the garden, at school, in Paris, near the castle: where something happens."""
        point = self.chance()
        if point < 0.35:
            garden = self.attached(noun_kinds.PLACES, depth, compact=False, determiners=determiners)
            return join(unit(("in",), ("dans",)), garden.phrase)
        if point < 0.6:
            school = self.attached(noun_kinds.INSTITUTIONS, depth, compact=False, determiners=determiners)
            return join(unit(("at",), ("à",)), school.phrase)
        if point < 0.75:
            return self.city()
        return self.near(depth, determiners)

    def direction(self, depth: int, determiners: Determiners) -> Phrase:
        """To the market / au marché; to Paris / à Paris."""
        if self.chance() < 0.6:
            whole = self.attached(
                noun_kinds.INSTITUTIONS, depth, compact=False, determiners=determiners
            ).phrase
        else:
            whole = translate(self.pick(lexicon.CITIES))
        return join(unit(("to",), ("à",)), whole)

    def time(self, tense: int) -> Phrase:
        """Yesterday / hier; last week / la semaine dernière; at eight o'clock / à huit heures."""
        if self.chance() < 0.15:
            hour = self.pick(lexicon.HOURS)
            number = unit(hour.english, hour.french[FEMININE], *hour.phenomena, part=hour.part)
            return join(unit(("at",), ("à",)), number, unit(("o'clock",), ("heures",)))
        if tense == PAST and self.chance() < 0.5:
            noun, last = self.pick(lexicon.LAST)
            period, latest = translate(noun), translate(last)
            return add_phenomena(arrange((latest, period), (period, latest)), "adjective inversion")
        only = lexicon.PAST_TIMES if tense == PAST else lexicon.PRESENT_TIMES
        return translate(self.pick(only if self.chance() < 0.5 else lexicon.DAYS))
