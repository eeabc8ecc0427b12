"""A translator of the grammar's English by separate rules; it uses only `lexicon.txt`.

It reads a sentence from left to right. Each French word has a slot: the unit of the English sentence that it translates (a
word, or a compound as one unit), and its role there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import seq2seq_lab.data

LEXICON = Path(seq2seq_lab.data.__file__).parent / "grammar" / "lexicon.txt"
VOWELS = "aeiouéèêâîôœh"
CONTRACTED = {"à le": "au", "à les": "aux", "de le": "du", "de les": "des"}
AVOIR, ETRE = ["ai", "a", "avons", "ont"], ["suis", "est", "sommes", "sont"]
PERSONS = ["1s", "3s", "1p", "3p"]
CONNECTORS = {
    "because": "parce que",
    "while": "pendant que",
    "if": "si",
    "when": "quand",
    "as soon as": "dès que",
    ",": ",",
    "but": "mais",
}
NUMBERS = [
    "NUMBERS",
    "ARTICLES_PLURAL",
    "BESIDE_NEGATION_PLURAL",
    "OF_NEGATED_OBJECT_PLURAL",
    "POSSESSIVES_PLURAL",
]


def read() -> dict[str, list[list[str]]]:
    sections: dict[str, list[list[str]]] = {}
    for line in LEXICON.read_text("utf-8").splitlines():
        if line.startswith("["):
            section = sections.setdefault(line[1:-1], [])
        elif line.strip() and not line.startswith("#"):
            section.append([cell.replace("_", " ") for cell in line.split()])
    return sections


SECTIONS = read()
NOUNS: dict[str, tuple[str, int, str, str]] = {}  # section, number, French, gender
for _name in [
    "PEOPLE",
    "KIN",
    "ANIMALS",
    "THINGS",
    "FURNITURE",
    "FOOD",
    "STORIES",
    "WRITINGS",
    "PLACES",
    "INSTITUTIONS",
    "WATERS",
    "GROUNDS",
]:
    for _one, _more, _un, _des, _gender in SECTIONS[_name]:
        NOUNS[_one], NOUNS[_more] = (_name, 0, _un, _gender), (_name, 1, _des, _gender)
BEFORE = {row[0]: row[1:] for name in ("ANY_BEFORE", "NEW", "YOUNG", "FORMER") for row in SECTIONS[name]}
AFTER_SECTIONS = ("CHARACTERS", "COLOURS", "CONDITIONS", "WOODEN", "STRANGE", "CLOSED")
AFTER = {row[0]: row[1:] for name in AFTER_SECTIONS for row in SECTIONS[name]}
DETERMINERS = {
    row[0]: row[1:] for name in ("ARTICLES_SINGULAR", "POSSESSIVES_SINGULAR") for row in SECTIONS[name]
}
DETERMINERS["an"] = DETERMINERS["a"] = DETERMINERS.pop("a/an")
PLURALS = {row[0]: row[1:] for name in NUMBERS for row in SECTIONS[name]}
NAMES = {row[0]: row[1:] for row in SECTIONS["NAMES"]}
SUBJECTS = {row[0]: row[1:] for row in SECTIONS["PRONOUNS"]}
CLITICS = {row[0]: row[1:] for name in ("THIRD", "FIRST") for row in SECTIONS[f"CLITICS_OF_{name}_PERSON"]}
VERBS: dict[str, tuple[str, str, list[str]]] = {}  # section, tense, row
for _name in [
    "INTRANSITIVE",
    "ANIMAL_INTRANSITIVE",
    "MEETING",
    "HANDLING",
    "WRITING",
    "EATING",
    "TELLING",
    "GIVING",
    "SAYING",
    "SWIMMING",
    "RUNNING",
    "GOING",
    "COMING",
    "STAYING",
    "LEAVING",
    "DEATH",
]:
    for _row in SECTIONS[_name]:
        VERBS[_row[0]] = VERBS[_row[1]] = (_name, "present", _row)
        VERBS[_row[2]] = (_name, "past", _row)
_BORN = ["born", "", "", "nais", "naît", "naissons", "naissent", "né"]
FIXED: dict[str, str] = {}
for _name in ["CITIES", "MANNER", "PAST_TIMES", "PRESENT_TIMES", "DAYS", "NEARBY", "SURFACES"]:
    FIXED |= {row[0]: row[1] for row in SECTIONS[_name]}
FREQUENCY = {row[0]: row[1] for row in SECTIONS["FREQUENCY"]}
LAST = {row[0]: row[1:] for row in SECTIONS["LAST"]}
UNITS = {*NOUNS, *FIXED, "as soon as"}
ADJECTIVES = BEFORE | AFTER
BEFORE_NOUNS = {*DETERMINERS, *PLURALS}
AFTER_DETERMINERS = {*NOUNS, *ADJECTIVES}
SUPPORTS = ("do", "does", "did", "was", "were")
HEADS = {*NOUNS, *NAMES}
OF_VERBS = {*VERBS, *FREQUENCY, *SUPPORTS, "not", "born"}

Slot = tuple[int, str]
French = list[tuple[Slot, str]]


class Noun(NamedTuple):
    person: int
    gender: int


def units(words: list[str]) -> list[str]:
    """Join the words of compounds and set phrases."""
    found, start = [], 0
    while start < len(words):
        size = next(n for n in (3, 2, 1) if n == 1 or " ".join(words[start : start + n]) in UNITS)
        found.append(" ".join(words[start : start + size]))
        start += size
    return found


class Translator:
    def __init__(self, english: list[str]) -> None:
        self.units, self.at = english, 0
        self.subject: Noun | None = None
        self.outer: Noun | None = None
        self.object: Noun | None = None  # before the verb, in a relative clause
        self.noun: Noun | None = None
        self.tense: str | None = None  # of a question
        self.saying = self.relative = self.had_verb = False

    def next(self, ahead: int = 0) -> str:
        return self.units[self.at + ahead] if self.at + ahead < len(self.units) else ""

    def take(self, french: str, role: str = "") -> French:
        self.at += 1
        return [((self.at - 1, f"{role}{i}"), form) for i, form in enumerate(french.split())]

    def starts_noun(self, ahead: int = 0) -> bool:
        word, after = self.next(ahead), self.next(ahead + 1)
        return word in NAMES or (word in BEFORE_NOUNS and after in AFTER_DETERMINERS)

    def noun_phrase(self, negated: bool = False) -> French:
        if self.next() in NAMES:
            french, person, gender = NAMES[self.next()]
            self.noun = Noun(PERSONS.index(person), "mf".index(gender))
            return self.take(french, "noun")
        start = self.at
        end = next(i for i in range(start, len(self.units)) if self.units[i] in NOUNS)
        _, number, french, letter = NOUNS[self.units[end]]
        gender = "mf".index(letter)
        determiner = (PLURALS if number else DETERMINERS)[self.next()][gender]
        adjectives = self.units[start + 1 : end]
        if (negated and self.next() in ("a", "an")) or (
            determiner == "des" and adjectives[:1] and adjectives[0] in BEFORE
        ):
            determiner = "de/d'"
        out, late = self.take(determiner), []
        for adjective in adjectives:
            form = ADJECTIVES[adjective][2 * number + gender]
            (out if adjective in BEFORE else late).extend(self.take(form))
        out += self.take(french, "noun")
        self.noun = Noun(3 if number else 1, gender)
        return out + late

    def of_chain(self, negated: bool = False) -> French:
        out = self.noun_phrase(negated)
        first = self.noun
        while self.next() == "of":
            out += self.take("de/d'")
            out += self.noun_phrase() if self.starts_noun() else self.take(FIXED[self.next()])
        self.noun = first
        return out

    def verb(self) -> French:
        if self.relative and self.had_verb:
            self.subject, self.relative = self.outer, False
        support = negation = adverb = None
        if self.next() in SUPPORTS:
            support, self.at = self.at, self.at + 1
        if self.next() == "not":
            negation, self.at = self.at, self.at + 1
        if self.next() in FREQUENCY:
            adverb = self.take(FREQUENCY[self.next()], "adverb")
        at, word = self.at, self.next()
        self.at += 1
        section, tense, row = ("BIRTH", "past", _BORN) if word == "born" else VERBS[word]
        if support is not None:
            tense = "past" if self.units[support] in ("did", "was", "were") else "present"
        question = self.tense is not None and not self.relative
        if question:
            tense, self.tense = str(self.tense), None
        self.had_verb, self.saying = True, section == "SAYING"
        assert self.subject
        etre = section in ("GOING", "COMING", "STAYING", "LEAVING", "DEATH", "BIRTH")
        objects, clitic = [], []
        agreeing = self.object
        self.object = None
        if section in ("MEETING", "TELLING", "GIVING") and self.next() in CLITICS and not self.starts_noun():
            direct, indirect, person, gender = CLITICS[self.next()]
            if section == "MEETING":
                agreeing = Noun(PERSONS.index(person), "mf".index(gender))
            clitic = self.take(direct if section == "MEETING" else indirect)
        if section in ("TELLING", "GIVING"):
            receiver: French = []
            if not clitic:
                head = next(i for i in range(self.at, len(self.units)) if self.units[i] in HEADS)
                receiver = [((head, "to"), "à"), *self.of_chain()]
            objects = self.of_chain(negation is not None) + receiver
        elif self.next() == "across":
            self.at += 1
            objects = self.of_chain(negation is not None)
            objects += [((at, f"manner{i}"), form) for i, form in enumerate(row[8].split())]
        elif self.starts_noun():
            objects = self.noun_phrase(negation is not None)
        finite, part = ("finite", "participle") if support is not None else ("auxiliary", "main")
        participle: French = []
        if tense == "past":
            form = [(at, finite), (ETRE if etre else AVOIR)[self.subject.person]]
            with_ = self.subject if etre else agreeing
            ending = "" if not with_ else "e" * with_.gender + "s" * (with_.person > 1)
            stem = row[7]
            if stem.endswith("s") and ending == "s":
                ending = ""
            participle = [((at, part), stem + ending)]
        else:
            form = [(at, finite if support is not None else part), row[3 + self.subject.person]]
        out: French = [((negation, "ne"), "ne/n'")] if negation is not None else []
        out += [*clitic, (form[0], form[1])]  # type: ignore[list-item]
        out += [((negation, "pas"), "pas")] if negation is not None else []
        return out + (adverb or []) + participle + objects

    def question(self) -> Iterator[French]:
        if self.next() in ("where", "when", "why") and self.next(1) in SUPPORTS:
            yield self.take({"where": "où", "when": "quand", "why": "pourquoi"}[self.next()])
        if self.next() in SUPPORTS:
            self.tense = "present" if self.next() in ("do", "does") else "past"
            yield self.take("est-ce que/qu'")

    def translate(self) -> French:
        out: French = [word for part in self.question() for word in part]
        while self.next():
            out += self.step()
        return out

    def step(self) -> French:
        word = self.next()
        if word == "that" and self.saying:
            self.subject, self.saying, self.relative = None, False, False
            return self.take("que/qu'")
        if word in ("who", "that"):
            if self.at == 0:
                self.subject = Noun(1, 0)
                return self.take("qui")
            self.outer, self.relative, self.had_verb = self.subject, True, False
            if self.starts_noun(1) or self.next(1) in SUBJECTS:
                self.subject, self.object = None, self.noun
                return self.take("que/qu'")
            self.subject = self.noun
            return self.take("qui")
        if word in SUBJECTS:
            french, person, gender = SUBJECTS[word]
            self.subject = Noun(PERSONS.index(person), "mf".index(gender))
            return self.take(french)
        if self.starts_noun():
            return self.subject_phrase() if self.subject is None else self.noun_phrase()
        if word in OF_VERBS:
            return self.verb()
        if word in CONNECTORS or word in (".", "?"):
            self.subject, self.relative = None, False
            return self.take(CONNECTORS.get(word, word).replace("que", "que/qu'"))
        return self.adverbial(word)

    def subject_phrase(self) -> French:
        out = self.noun_phrase()
        self.subject = first = self.noun
        if self.next() == "and" and self.starts_noun(1):
            out += self.take("et") + self.noun_phrase()
            assert first
            assert self.noun
            self.subject = Noun(3, first.gender & self.noun.gender)
        return out

    def adverbial(self, word: str) -> French:
        if word == "last":
            at, (noun, last) = self.at, LAST[self.next(1)]
            self.at += 2
            forms = [((at + 1, str(i)), form) for i, form in enumerate(noun.split())]
            return [*forms, ((at, ""), last)]
        if word == "at" and self.next(2) == "o'clock":
            return self.take("à") + self.take(PLURALS[self.next()][1]) + self.take("heures")
        if word == "in" and self.next(1) in FIXED:
            return self.take("à")
        return self.take(
            {"in": "dans", "at": "à", "to": "à", "with": "avec", "of": "de/d'", "and": "et"}.get(word)
            or FIXED[word]
        )


def spell(french: French) -> list[tuple[set[Slot], str]]:
    """Return the written words and the slots in each."""
    out: list[tuple[set[Slot], str]] = []
    for slot, form in reversed(french):
        following = out[-1][1] if out else "."
        if "/" in form:
            form = form.split("/")[following[0].lower() in VOWELS]
        if form == "si" and following == "il":
            form = "s'"
        slots = {slot}
        if form == "de" and following in ("des", "de", "d'"):
            slots |= out.pop()[0]
            form = "d'" if out[-1][1][0].lower() in VOWELS else "de"
        elif f"{form} {following}" in CONTRACTED:
            slots |= out.pop()[0]
            form = CONTRACTED[f"{form} {following}"]
        out.append((slots, form))
    return [(slots, form.replace("*", "")) for slots, form in reversed(out)]


def translate(words: list[str]) -> list[tuple[set[Slot], str]]:
    return spell(Translator(units(words)).translate())
