"""Verb phrases: negation, pronouns before the French verb, agreement, and relative clauses.

The English verb is linked to every part of the French verb (saw / a vu). "Do" is linked to the finite French verb
(did not see / n'a pas vu: did / a), but in a question to "est-ce que" (see `Clauses.question`). "Not" is linked to "ne"
and "pas".
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from seq2seq_lab.data.grammar import lexicon, noun_kinds
from seq2seq_lab.data.grammar.lexicon import ANY, FIRST_PLURAL, FIRST_SINGULAR, SINGULAR, Determiners, Verb
from seq2seq_lab.data.grammar.noun_kinds import Kind
from seq2seq_lab.data.grammar.noun_phrases import PAST, PRESENT, NounPhrase, NounPhrases, translate
from seq2seq_lab.data.grammar.phrase import (
    EMPTY,
    Combination,
    Phenomenon,
    Phrase,
    Word,
    add_phenomena,
    agreement,
    arrange,
    join,
    unit,
    words,
)

# Verbs and the nouns that they take as direct objects.
OBJECTS = (
    (lexicon.MEETING, (noun_kinds.PEOPLE, noun_kinds.PEOPLE, noun_kinds.KIN, noun_kinds.ANIMALS)),
    (lexicon.HANDLING, (noun_kinds.THINGS, noun_kinds.THINGS, noun_kinds.THINGS, noun_kinds.FURNITURE)),
    (lexicon.EATING, (noun_kinds.FOOD,)),
    (lexicon.WRITING, (noun_kinds.WRITINGS, noun_kinds.STORIES)),
)
_GIFTS = (noun_kinds.THINGS, noun_kinds.THINGS, noun_kinds.FURNITURE, noun_kinds.FOOD, noun_kinds.WRITINGS)
_DIRECT_OBJECTS: Sequence[tuple[Sequence[Verb], Sequence[Kind]]] = (
    *OBJECTS,
    (lexicon.TELLING, (noun_kinds.STORIES,)),
    (lexicon.GIVING, _GIFTS),
    ([verb for verb, _ in lexicon.SWIMMING], (noun_kinds.WATERS,)),
    ([verb for verb, _ in lexicon.RUNNING], (noun_kinds.GROUNDS,)),
)


class Clause(NamedTuple):
    """The subject of a clause, and the tense and form of its verb. A `question` begins with "do"."""

    subject: NounPhrase
    tense: int
    negated: bool
    question: bool

    @property
    def beside(self) -> Determiners:
        """The determiners of every phrase except the direct object."""
        return lexicon.BESIDE_NEGATION if self.negated else ANY

    @property
    def of_object(self) -> Determiners:
        """The determiners of the direct object: did not see a dog / n'a pas vu de chien."""
        return lexicon.OF_NEGATED_OBJECT if self.negated else ANY


def combinations() -> tuple[list[Combination], list[Combination]]:
    """Return all (adjective, noun) and all (verb, object noun) combinations of the grammar."""
    with_adjective = [
        (adjective.english, noun.english[SINGULAR])
        for kind in noun_kinds.KINDS
        for adjective in (*kind.before, *kind.after)
        for noun in kind.nouns
    ]
    with_verb = [
        (verb.english_present[FIRST_SINGULAR], noun.english[SINGULAR])
        for verbs, kinds in _DIRECT_OBJECTS
        for verb in verbs
        for kind in kinds
        for noun in kind.nouns
    ]
    return list(dict.fromkeys(with_adjective)), list(dict.fromkeys(with_verb))


def _taking(verb: Verb, thing: NounPhrase) -> Phrase:
    """Return a phrase without words that contains the combinations of the verb and its object."""
    return Phrase((), (), (), tuple([(verb.english_present[FIRST_SINGULAR], noun) for noun in thing.nouns]))


def _agreeing(finite: tuple[Word, ...], head: object) -> tuple[Word, ...]:
    """Return the words of a finite verb with the head of the subject that it agrees with."""
    return tuple([word._replace(subject=head) for word in finite])


class VerbPhrases:
    """Draws verb phrases and relative clauses with the given generator."""

    def __init__(self, random: Random) -> None:
        self.chance = random.random
        self.pick = random.choice
        self.nouns = NounPhrases(random)

    def verb(
        self,
        verb: Verb,
        clause: Clause,
        clitic: tuple[Word, ...] = (),
        gender: int = lexicon.MASCULINE,
        number: int = SINGULAR,
    ) -> Phrase:
        """Often saw / a souvent vu, did not see / n'a pas vu: the conjugated verb and the words between its parts.

        Args:
            clitic: a pronoun that French puts before the finite verb.
            gender, number: the gender and number of a direct object before the verb, with which the participle agrees.
                With "être" it agrees with the subject.
        """
        link, support_link = object(), object()
        subject, tense = clause.subject, clause.tense
        inflected = (verb.english_present if tense == PRESENT else verb.english_past)[subject.person]
        has_auxiliary = len(inflected) > 1
        if has_auxiliary:
            support, base = inflected
        else:
            support = lexicon.DO[subject.person] if tense == PRESENT else "did"
            (base,) = verb.english_present[FIRST_SINGULAR]

        phenomena: tuple[Phenomenon, ...] = ()
        agrees = agreement(subject.number)
        if tense == PRESENT:
            participle = EMPTY.french
            finite = words(verb.french_present[subject.person], link, "VERB", agrees)
        else:
            if verb.auxiliary is lexicon.ETRE:
                gender, number = subject.gender, subject.number
                phenomena += ("passé composé with être",)
            finite = words((verb.auxiliary[subject.person],), link, "AUX", agrees)
            participle = words((verb.participle[number][gender],), link, "VERB", agreement(number, gender))

        ne = pas = adverb = EMPTY
        if clause.negated:
            not_link = object()
            ne = Phrase(words(("not",), not_link), words(("ne/n'",), not_link), ("negation",))
            pas = Phrase((), words(("pas",), not_link))
        elif verb not in (lexicon.BIRTH, lexicon.DEATH) and self.chance() < 0.08:
            adverb = translate(self.pick(lexicon.FREQUENCY))
        if has_auxiliary or clause.negated or clause.question:
            if not clause.question:
                finite = tuple([word._replace(links=(*word.links, support_link)) for word in finite])
            conjugated = _agreeing(words((support,), support_link), subject.head)
            english = conjugated + ne.english + adverb.english + words((base,), link)
        else:
            english = adverb.english + _agreeing(words(inflected, link), subject.head)
        finite = _agreeing(finite, subject.head)
        french = ne.french + clitic + finite + pas.french + adverb.french + participle
        return Phrase(english, french, phenomena + ne.phenomena)

    def verb_phrase(self, clause: Clause, depth: int, human: bool) -> Phrase:
        """A verb with its objects, without adverbials."""
        if not human and depth > 0 and self.chance() < 0.5:
            return self.meeting(clause, (noun_kinds.PEOPLE, noun_kinds.ANIMALS), depth)
        if not human or depth <= 0:
            verbs = lexicon.INTRANSITIVE if human else lexicon.ANIMAL_INTRANSITIVE
            return self.verb(self.pick(verbs), clause)
        point = self.chance()
        if point < 0.19:
            return self.intransitive(clause, depth)
        if point < 0.35:
            return self.dative(clause, depth)
        if point < 0.45:
            return self.crossing(clause, depth)
        return self.acting(clause, depth)

    def intransitive(self, clause: Clause, depth: int) -> Phrase:
        """Slept / a dormi; danced with Mary / a dansé avec Marie."""
        phrase = self.verb(self.pick(lexicon.INTRANSITIVE), clause)
        if self.chance() < 0.25:
            partner = self.nouns.person(depth - 1, compact=False, determiners=clause.beside)
            phrase = join(phrase, unit(("with",), ("avec",)), partner.phrase)
        return phrase

    def moving(self, clause: Clause, depth: int, place: bool) -> Phrase:
        """Went to Paris / est allé à Paris; fell / est tombé: verbs of the passé composé with "être".

        Without `place` (for "where did …") the phrase names no place.
        """
        point = self.chance()
        if clause.tense == PAST and point < 0.2:
            first_person = clause.subject.person in (FIRST_SINGULAR, FIRST_PLURAL)
            verb = lexicon.BIRTH if first_person else self.pick((lexicon.BIRTH, lexicon.DEATH, lexicon.DEATH))
            return join(self.verb(verb, clause), self.nouns.city() if place else EMPTY)
        if point < 0.4 and (depth > 0 or not place):
            going = self.verb(self.pick(lexicon.GOING), clause)
            return join(going, self.nouns.direction(depth - 1, clause.beside) if place else EMPTY)
        if point < 0.6 and place:
            coming = self.verb(self.pick(lexicon.COMING), clause)
            whole = depth > 0 and self.chance() < 0.5
            return join(coming, self.nouns.direction(depth - 1, clause.beside) if whole else EMPTY)
        if point < 0.7 and place:
            return self.verb(self.pick(lexicon.LEAVING), clause)
        staying = self.verb(self.pick(lexicon.STAYING), clause)
        whole = place and depth > 0 and self.chance() < 0.5
        return join(staying, self.nouns.place(depth - 1, clause.beside) if whole else EMPTY)

    def clitic(self, subject: NounPhrase) -> lexicon.Clitic:
        """Return a pronoun that does not refer to the subject: not "I see me" or "we see me"."""
        first_person = subject.person in (FIRST_SINGULAR, FIRST_PLURAL)
        return self.pick(lexicon.CLITICS_OF_THIRD_PERSON if first_person else lexicon.CLITICS)

    def acting(self, clause: Clause, depth: int) -> Phrase:
        """Loves Mary / aime Marie."""
        verbs, kinds = self.pick(OBJECTS[:2]) if self.chance() < 0.7 else self.pick(OBJECTS[2:])
        if verbs is lexicon.MEETING:
            return self.meeting(clause, kinds, depth)
        return self.transitive(verbs, kinds, clause, depth)

    def meeting(self, clause: Clause, kinds: Sequence[Kind], depth: int) -> Phrase:
        """Saw her / l'a vue; saw Mary / a vu Marie."""
        if self.chance() > 0.16:
            return self.transitive(lexicon.MEETING, kinds, clause, depth)
        clitic, link = self.clitic(clause.subject), object()
        gender, number = clitic.gender, lexicon.NUMBER[clitic.person]
        pronoun = words(clitic.direct, link, "PRON", agreement(number))
        verb = self.verb(self.pick(lexicon.MEETING), clause, pronoun, gender, number)
        return add_phenomena(join(verb, Phrase(words(clitic.english, link), ())), "clitic object")

    def transitive(self, verbs: Sequence[Verb], kinds: Sequence[Kind], clause: Clause, depth: int) -> Phrase:
        """A verb of `verbs` with an object of `kinds`."""
        kind = self.pick(kinds)
        # A negated pair would need "neither … nor".
        if depth > 1 and not clause.negated and self.chance() < 0.08:
            thing = self.nouns.simple_pair(kind, depth - 2)
        elif depth > 1 and not clause.negated and self.chance() < 0.1:
            thing = self.with_relative_clause(kind, verbs, depth - 1, ANY.articles)
        elif kind is noun_kinds.PEOPLE:
            thing = self.nouns.person(depth - 1, compact=False, determiners=clause.of_object)
        else:
            thing = self.nouns.attached(kind, depth - 1, compact=False, determiners=clause.of_object)
        verb = self.pick(verbs)
        return join(self.verb(verb, clause), thing.phrase, _taking(verb, thing))

    def dative(self, clause: Clause, depth: int) -> Phrase:
        """Told Mary a story / a raconté une histoire à Marie; told her a story / lui a raconté une histoire."""
        story = self.chance() < 0.4
        verb = self.pick(lexicon.TELLING if story else lexicon.GIVING)
        kind = noun_kinds.STORIES if story else self.pick(_GIFTS)
        thing = self.nouns.attached(kind, depth - 1, compact=True, determiners=clause.of_object)
        given = join(thing.phrase, _taking(verb, thing))
        if self.chance() < 0.15:
            clitic, link = self.clitic(clause.subject), object()
            agrees = agreement(lexicon.NUMBER[clitic.person])
            telling_her = self.verb(verb, clause, words(clitic.indirect, link, "PRON", agrees))
            her = Phrase(words(clitic.english, link), ())
            return add_phenomena(join(telling_her, her, given), "dative", "clitic object")
        receiver = self.nouns.person(depth - 1, compact=True, determiners=clause.beside)
        telling, to = self.verb(verb, clause), Phrase((), words(("à",), receiver.head))
        phrase = arrange((telling, receiver.phrase, given), (telling, given, to, receiver.phrase))
        return add_phenomena(phrase, "dative")

    def crossing(self, clause: Clause, depth: int) -> Phrase:
        """Swam across the lake / a traversé le lac à la nage."""
        swimming = self.chance() < 0.4
        verb, manner = self.pick(lexicon.SWIMMING if swimming else lexicon.RUNNING)
        moving = self.verb(verb, clause)
        # The whole set phrase is linked to the participle or, in the present, to the finite verb.
        link = moving.english[-1].links[0]
        kind = noun_kinds.WATERS if swimming else noun_kinds.GROUNDS
        path = self.nouns.attached(kind, depth - 1, compact=True, determiners=clause.of_object)
        across, on_foot = Phrase(words(("across",), link), ()), Phrase((), words(manner, link, "ADV"))
        phrase = arrange((moving, across, path.phrase), (moving, path.phrase, on_foot))
        return add_phenomena(join(phrase, _taking(verb, path)), "idiom")

    # Relative clauses

    def with_relative_clause(
        self, kind: Kind, verbs: Sequence[Verb], depth: int, articles: lexicon.ByNumber
    ) -> NounPhrase:
        """The boy who sings / le garçon qui chante; the apple that Mary ate / la pomme que Marie a mangée.

        `verbs` take the noun as their object. The noun has no other phrase and the clause contains no other relative
        clause: "the sister of the boy that I saw" has two translations.
        """
        antecedent = self.nouns.noun_phrase(kind, depth, articles)
        human = kind is noun_kinds.PEOPLE or kind is noun_kinds.KIN
        negated = self.chance() < 0.1
        # Mostly past, for all forms of the participle to occur.
        tense = PAST if self.chance() < 0.7 else PRESENT
        if (human or kind is noun_kinds.ANIMALS) and self.chance() < 0.5:
            pronoun = unit(("who",) if human else ("that",), ("qui",))
            clause = Clause(antecedent, tense, negated, question=False)
            moving = self.chance() < 0.2
            predicate = self.moving(clause, 1, place=True) if moving else self.verb_phrase(clause, 1, human)
        else:
            pronoun = unit(("that",), ("que/qu'",), part="PRON")
            subject = self.simple_subject(lexicon.BESIDE_NEGATION if negated else ANY)
            verb = self.pick(verbs)
            clause = Clause(subject, tense, negated, question=False)
            done = self.verb(verb, clause, (), antecedent.gender, antecedent.number)
            predicate = join(subject.phrase, done, _taking(verb, antecedent))
        phrase = join(antecedent.phrase, pronoun, predicate)
        return antecedent._replace(phrase=add_phenomena(phrase, "relative clause"))

    def simple_subject(self, determiners: Determiners) -> NounPhrase:
        """Mary, the girl, she: a person without further phrases."""
        if self.chance() < 0.6:
            return self.nouns.person(0, compact=True, determiners=determiners)
        return self.nouns.pronoun()

    def tense(self) -> int:
        """Return present or past."""
        return PAST if self.chance() < 0.5 else PRESENT
