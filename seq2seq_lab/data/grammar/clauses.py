"""Clauses, questions and sentences.

The French translation is a function of the English sentence, for two reasons. Each choice between rules shows in the
English words. And where an English phrase can modify either of two others (a prepositional phrase a noun or the verb, a
clause one of two others), both readings have the same French translation. Where they would differ, one reading is
excluded: see `compact`, `simple_pair`, `with_relative_clause` and the commas between clauses.

`depth` bounds the nesting: the parts of a phrase get its depth minus one, and a phrase of depth 0 has no optional parts.
"""

from random import Random
from typing import Literal

from seq2seq_lab.data.grammar import lexicon
from seq2seq_lab.data.grammar.lexicon import ANY, BESIDE_NEGATION, Determiners
from seq2seq_lab.data.grammar.noun_kinds import ANIMALS, PEOPLE
from seq2seq_lab.data.grammar.noun_phrases import PAST, PRESENT, NounPhrase, NounPhrases, nominal, translate
from seq2seq_lab.data.grammar.phrase import EMPTY, Phrase, add_phenomena, join, unit, words
from seq2seq_lab.data.grammar.verb_phrases import Clause, VerbPhrases

Asked = Literal["where", "when", "why", None]
_INTERROGATIVES = {"where": "où", "when": "quand", "why": "pourquoi"}


class Clauses:
    """Draws sentences of the grammar with the given generator."""

    def __init__(self, random: Random) -> None:
        self.chance = random.random
        self.pick = random.choice
        self.nouns = NounPhrases(random)
        self.verbs = VerbPhrases(random)

    # Simple clauses

    def subject(self, depth: int, determiners: Determiners) -> tuple[NounPhrase, bool]:
        """A subject, and whether it is human."""
        point = self.chance()
        if point < 0.33:
            return self.nouns.pronoun(), True
        if point < 0.40 and depth > 0:
            return self.nouns.simple_pair(PEOPLE, depth - 1, determiners), True
        human = point > 0.49
        if depth > 0 and self.chance() < 0.045:
            kind = PEOPLE if human else ANIMALS
            related = self.verbs.with_relative_clause(kind, lexicon.MEETING, depth - 1, determiners.articles)
            return related, human
        if human:
            return self.nouns.person(depth, compact=False, determiners=determiners), True
        return self.nouns.attached(ANIMALS, depth, compact=False, determiners=determiners), False

    def predicate(self, clause: Clause, depth: int, human: bool, asked: Asked) -> Phrase:
        """One or two verb phrases (sang and danced), with place and time except what is `asked`."""
        place, time = asked != "where", asked != "when"
        if self.chance() < 0.13:
            moving = self.verbs.moving(clause, depth, place)
            timed = depth > 0 and time and self.chance() < 0.15
            return join(moving, self.nouns.time(clause.tense) if timed else EMPTY)
        phrase = self.verbs.verb_phrase(clause, depth, human)
        if depth == 0:
            return phrase
        # After "the boys who sing" a second verb or "yesterday" could belong to the boys or to the subject.
        single = clause.negated or clause.question or "relative clause" in phrase.phenomena
        if not single and self.chance() < 0.05:
            second = self.verbs.verb_phrase(clause, depth - 1, human)
            phrase = join(phrase, unit(("and",), ("et",), "coordination"), second)
        if "relative clause" in phrase.phenomena:
            return phrase
        return join(phrase, self.adverbials(clause, depth, place, time))

    def adverbials(self, clause: Clause, depth: int, place: bool, time: bool) -> Phrase:
        """Slowly in the garden yesterday / lentement dans le jardin hier."""
        phrase = EMPTY
        if self.chance() < 0.07:
            phrase = join(phrase, translate(self.pick(lexicon.MANNER)))
        if place and self.chance() < 0.13:
            phrase = join(phrase, self.nouns.place(depth - 1, clause.beside))
        if time and self.chance() < 0.11:
            phrase = join(phrase, self.nouns.time(clause.tense))
        return phrase

    def simple_clause(self, tense: int, depth: int) -> Phrase:
        """A subject and a predicate, which may be negated."""
        negated = depth > 0 and self.chance() < 0.06
        subject, human = self.subject(max(depth - 1, 0), BESIDE_NEGATION if negated else ANY)
        clause = Clause(subject, tense, negated, question=False)
        return join(subject.phrase, self.predicate(clause, depth, human, asked=None))

    # Questions

    def question(self, depth: int) -> Phrase:
        """Who sleeps / qui dort; did Mary sleep / est-ce que Marie a dormi; why did she / pourquoi …"""
        negated = self.chance() < 0.15
        tense = self.verbs.tense()
        if self.chance() < 0.2:
            who = nominal(lexicon.WHO)
            clause = Clause(who, tense, negated, question=False)
            phrase = join(who.phrase, self.predicate(clause, depth, human=True, asked=None))
        else:
            # "Where did he not sleep?" would be odd.
            asked: Asked = self.pick((None, "why") if negated else (None, None, "where", "when", "why"))
            phrase = self.inverted(tense, negated, asked, depth)
        return add_phenomena(join(phrase, unit(("?",), ("?",))), "question")

    def inverted(self, tense: int, negated: bool, asked: Asked, depth: int) -> Phrase:
        """Where did Mary sleep / où est-ce que Marie a dormi: "do" corresponds to "est-ce que"."""
        subject, human = self.subject(max(depth - 1, 0), BESIDE_NEGATION if negated else ANY)
        predicate = self.predicate(Clause(subject, tense, negated, question=True), depth, human, asked)
        link = object()
        do = Phrase((predicate.english[0]._replace(links=(link,)),), words(("est-ce", "que/qu'"), link))
        rest = predicate._replace(english=predicate.english[1:])
        first = unit((asked,), (_INTERROGATIVES[asked],), part="PRON") if asked else EMPTY
        return join(first, do, subject.phrase, rest)

    # Several clauses

    def saying(self, tense: int, depth: int, subordinate: bool) -> Phrase:
        """Mary says that John slept / Marie dit que Jean a dormi.

        After a verb in the past the clause is in the present, because the past would need the French pluperfect. The verb is
        never negated, because "does not think that" would need the subjunctive.
        """
        subject = self.verbs.simple_subject(ANY)
        clause = Clause(subject, tense, negated=False, question=False)
        verb = self.verbs.verb(self.pick(lexicon.SAYING), clause)
        inner = PRESENT if tense == PAST else self.verbs.tense()
        that = unit(("that",), ("que/qu'",), "subordinate clause")
        return join(subject.phrase, verb, that, self.clause(inner, depth - 1, subordinate))

    def coordinated(self, tense: int, depth: int) -> Phrase:
        """Mary sings, but John sleeps. Without the comma "saw Mary and John and Paul slept" is ambiguous."""
        connector = join(unit((",",), (",",), "coordination"), translate(self.pick(lexicon.COORDINATORS)))
        first = self.simple_clause(tense, depth - 1)
        return join(first, connector, self.clause(self.verbs.tense(), depth - 1, False))

    def because(self, tense: int, depth: int) -> Phrase:
        """Mary sings because John slept / Marie chante parce que Jean a dormi."""
        inner = PAST if tense == PAST else self.verbs.tense()
        connector = unit(("because",), ("parce", "que/qu'"), "subordinate clause")
        return join(self.simple_clause(tense, depth - 1), connector, self.clause(inner, depth - 1, True))

    def adverbial_clause(self, tense: int, depth: int) -> Phrase:
        """Mary sang when John danced / Marie a chanté quand Jean a dansé: both of one tense."""
        conjunction = self.conjunction(tense)
        return join(self.simple_clause(tense, depth - 1), conjunction, self.clause(tense, depth - 1, True))

    def adverbial_clause_first(self, tense: int, depth: int) -> Phrase:
        """When John danced, Mary sang; if he sleeps, she works."""
        conjunction, comma = self.conjunction(tense), unit((",",), (",",))
        first = join(conjunction, self.simple_clause(tense, depth - 1), comma)
        return join(first, self.clause(tense, depth - 1, True))

    def conjunction(self, tense: int) -> Phrase:
        """Return "when" or "as soon as", in the present also "while" or "if".

        In the past "pendant que" and "si" would need the imperfect.
        """
        point = self.chance()
        if tense == PRESENT and point < 0.25:
            return unit(("while",), ("pendant", "que/qu'"), "subordinate clause")
        if tense == PRESENT and point < 0.5:
            return unit(("if",), ("si",), "subordinate clause")
        if point < 0.8:
            return unit(("when",), ("quand",), "subordinate clause")
        return unit(("as", "soon", "as"), ("dès", "que/qu'"), "subordinate clause")

    def clause(self, tense: int, depth: int, subordinate: bool) -> Phrase:
        """A simple or complex clause whose first verb has the given tense."""
        if depth < 3 or self.chance() > 0.75:
            return self.simple_clause(tense, depth)
        return self.complex_clause(tense, depth, subordinate)

    def complex_clause(self, tense: int, depth: int, subordinate: bool) -> Phrase:
        """Two or more clauses. A `subordinate` clause contains no clause with "because" or "when"."""
        point = self.chance()
        if point < 0.25:
            return self.saying(tense, depth, subordinate)
        if point < 0.6 or subordinate:
            return self.coordinated(tense, depth)
        if point < 0.8:
            return self.because(tense, depth)
        return self.adverbial_clause(tense, depth)

    def sentence(self, depth: int) -> Phrase:
        """A question, or one or more clauses and a full stop."""
        if depth > 0 and self.chance() < 0.08:
            return self.question(depth)
        tense = self.verbs.tense()
        point = self.chance()
        if depth < 2 or point < 0.64:
            clause = self.simple_clause(tense, depth)
        elif point < 0.7:
            clause = self.adverbial_clause_first(tense, depth)
        else:
            clause = self.complex_clause(tense, depth, subordinate=False)
        return join(clause, unit((".",), (".",)))
