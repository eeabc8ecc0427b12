"""Every derivation of small phrases, checked with rules of French that do not use the grammar."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from seq2seq_lab.data.corpus import Gold
from seq2seq_lab.data.grammar import lexicon
from seq2seq_lab.data.grammar.clauses import Clauses
from seq2seq_lab.data.grammar.lexicon import ANY, BESIDE_NEGATION
from seq2seq_lab.data.grammar.noun_kinds import KINDS, PEOPLE
from seq2seq_lab.data.grammar.noun_phrases import PAST, PRESENT, NounPhrase, nominal
from seq2seq_lab.data.grammar.phrase import Phrase, english_text, french_text, gold, join, unit
from seq2seq_lab.data.grammar.verb_phrases import OBJECTS, Clause, VerbPhrases

STOP = unit((".",), (".",))
VOWELS = "aeiouéèêâîôœ"


class Coin(float):
    """A number in [0, 1) whose range is narrowed by each comparison."""

    def __new__(cls, source: "Backtracking") -> "Coin":
        coin = super().__new__(cls, 0.5)
        coin.source, coin.low, coin.high = source, 0.0, 1.0
        return coin

    def __lt__(self, bound: float) -> bool:
        if not self.low < bound < self.high:
            return self.high <= bound
        if self.source.decide(2) == 0:
            self.high = bound
            return True
        self.low = bound
        return False

    def __gt__(self, bound: float) -> bool:
        return not self < bound


def sound(form: str) -> str:
    return "aspiré" if form[0] == "*" else "vowel" if form[0].lower() in VOWELS + "h" else "consonant"


def representative(item: Any) -> object:
    """Return the properties of an item that matter to French grammar."""
    match item:
        case lexicon.Noun():
            return item.gender, sound(item.french[0][0])
        case lexicon.Adjective():
            return "/" in item.french[0][0][0], sound(item.french[0][0][0])
        case lexicon.Verb():
            return item.auxiliary, sound(item.french_present[1][0]), item.participle[0][0].endswith("s")
        case lexicon.Nominal():
            return item.person, item.gender, sound(item.french[0])
        case lexicon.Determiner():
            return "/" in "".join(map(str, item.french)), sound(item.french[0][0]), item.french[0][0] == "des"
        case lexicon.Entry():
            return item.french[-1], sound(item.french[0])
    return None


class Backtracking(random.Random):
    """A generator that takes each choice of a rule once; of equivalent list entries, it takes one."""

    def __init__(self, key: Callable[[Any], object]) -> None:
        super().__init__()
        self.key = key
        self.script: list[tuple[int, int]] = []
        self.at = 0
        self.shortened: dict[int, tuple[object, list[Any]]] = {}

    def decide(self, options: int) -> int:
        if self.at == len(self.script):
            self.script.append((0, options))
        self.at += 1
        return self.script[self.at - 1][0]

    def random(self) -> Coin:
        return Coin(self)

    def choice(self, items: Sequence[Any]) -> Any:
        if id(items) not in self.shortened:
            classes: dict[object, Any] = {}
            for item in items:
                key = self.key(item)
                classes.setdefault(str(item) if key is None else (type(item), key), item)
            # Keep the list, for no other to get its id.
            self.shortened[id(items)] = items, list(classes.values())
        short = self.shortened[id(items)][1]
        return short[self.decide(len(short))]

    def every(self, rule: Callable[[], Any]) -> Iterator[Any]:
        """Yield the result of the rule for each sequence of choices."""
        self.script.clear()
        while True:
            self.at = 0
            yield rule()
            while self.script and self.script[-1][0] + 1 == self.script[-1][1]:
                self.script.pop()
            if not self.script:
                return
            choice, options = self.script[-1]
            self.script[-1] = choice + 1, options


def test_backtracking_takes_every_choice_once() -> None:
    source = Backtracking(lambda item: None)

    def rule() -> tuple[str, str]:
        coin = source.random()
        size = "small" if coin < 0.2 else "middle" if 0.1 < coin < 0.6 else "large"
        return size, source.choice("ab") if size != "large" else "c"

    made = list(source.every(rule))
    assert made == [("small", "a"), ("small", "b"), ("middle", "a"), ("middle", "b"), ("large", "c")]


# Errors in French text. The words are listed here, not taken from the lexicon.
ASPIRATED = "huit|onze|héros|hibou|hiboux|hérisson|hérissons|harpe|harpes|hache|haches|hameau|hameaux"
MUTE = rf"(?!(?:{ASPIRATED})\b)[{VOWELS}hAEIOUÉH]"
WRONG = re.compile(
    "|".join(
        f"(?:{pattern})"
        for pattern in (
            # not elided, or not in the shape before a vowel
            rf"\b(?:le|la|de|que|je|ne|me|ce|ma|sa|beau|nouveau) {MUTE}",
            r"\b(?:un|ce|mon|son|notre|chaque|le|de) vieux (?:homme|oiseau|œuf|aspirateur|ami|hôtel|hôpital|"
            r"enfant|étudiant|informaticien|avocat|étang)\b",
            r"\bsi ils?\b",
            # elided or in that shape where it must not be
            rf"(?:\b(?:l|d|qu|j|n|m|s)'|\b(?:cet|bel|vieil|nouvel) )(?!{MUTE}|y\b)",
            r"\bs'(?!il\b)",
            rf"\b(?:mon|son) (?:harpe|hache)\b|\b(?:ma|sa) {MUTE}",
            # not contracted, or swallowed
            r"\b(?:à|de) les?\b(?! [a-zé]+[^sx] )",
            r"\bde (?:des|du|de)\b|\bde d'|\bdu l'",
            # negation: one half, or the indefinite article after it
            r"\b(?:ne|n') ?(?!(?:.(?!\b(?:ne|n')\b))*\bpas\b)",
            r"\bpas(?: (?!avec|à|dans|près|derrière|devant|sur|sous|tous|né)\w+)? (?:un|une|des) ",
            r"  | ,| \.|' |\S\?|[*/_]",
        )
    )
)
ENGLISH_WRONG = re.compile(
    r"\ba [aeiou]|\ban [^aeiou]|\b(?:do|does|did) (?:not )?(?:saw|sees|slept|sleeps|went|goes|gave|gives)\b"
    r"|^(?:he|she|Mary|John|who) not\b|^(?:he|she|Mary|John|who) (?:do|were)\b|\b(?:I|we) does\b|\bI were\b"
    r"|\bwe was\b|\bI (?:saw|see|met|gave|did not see|do not see|did not give) (?:me|us)\b"
    r"|\bwe \w+ (?:me|us)\b| \?"
)

BASES = """
vu aimé rencontré suivi entendu acheté trouvé perdu caché dessiné écrit mangé préparé raconté donné montré
envoyé vendu allé venu revenu arrivé resté tombé parti né mort dormi chanté dansé travaillé souri traversé
dit pensé expliqué
"""
MARKS: dict[str, str] = {"compris": "m.", "comprise": "fs", "comprises": "fp"}
for base in BASES.split():
    MARKS |= {base: "ms", base + "e": "fs", base + "s": "mp", base + "es": "fp"}
ETRE = {"suis", "est", "sommes", "sont"}
AVOIR = {"ai", "a", "avons", "ont"}
FINITE = {
    lexicon.FIRST_SINGULAR: r"ai|suis|vais|\w+[es]",
    lexicon.THIRD_SINGULAR: r"a|est|va|(?!\w*(?:[^i]ent|ont|ons)$)\w+[edt]",
    lexicon.FIRST_PLURAL: r"sommes|\w+ons",
    lexicon.THIRD_PLURAL: r"\w+nt",
}


def spelled(phrase: Phrase) -> tuple[Gold, str, str]:
    """Check what is true of every sentence; return it with its two texts."""
    pair = gold(phrase)
    english, french = english_text(pair.source_words), french_text(pair.target_words)
    wrong = WRONG.search(french.replace("est-ce", "est"))
    assert wrong is None, f"{wrong[0]!r} in: {french} ({english})"
    wrong = ENGLISH_WRONG.search(english)
    assert wrong is None, f"{wrong[0]!r} in: {english}"
    assert {source for source, _ in pair.links} == set(range(len(pair.source_words))), english
    assert {target for _, target in pair.links} == set(range(len(pair.target_words))), french
    assert ("not" in pair.source_words) == ("negation" in phrase.phenomena)
    assert pair.source_words.count("not") == pair.target_words.count("pas")
    return pair, english, french


def check_verb(french: Sequence[str], subject: NounPhrase, object_before: str | None) -> str:
    """Check the finite verb and the participle that begin `french`; return how the participle agrees.

    `object_before` are the marks of a direct object before the verb.
    """
    at = 0
    while french[at] in ("ne", "n'", "le", "la", "l'", "les", "me", "m'", "nous", "lui", "leur"):
        at += 1
    assert re.fullmatch(FINITE[subject.person], french[at]), (french[at], *french)
    place = at + 1 + (french[at + 1] in ("pas", "souvent", "parfois", "toujours", "rarement"))
    if french[at] not in ETRE | AVOIR or (french[at] == "suis" and french[place] not in MARKS):
        return "present"  # "je suis" is also "I follow"
    auxiliary = "être" if french[at] in ETRE else "avoir"
    own = "mf"[subject.gender] + ("p" if subject.person >= lexicon.FIRST_PLURAL else "s")
    expected = own if auxiliary == "être" else object_before or "ms"
    assert re.fullmatch(MARKS[french[place]], expected), (expected, *french)
    return f"{auxiliary} {expected}"


def after(french: Sequence[str], phrase: Phrase) -> Sequence[str]:
    """Return the words of the sentence after those of the phrase at its start."""
    return french[len(gold(phrase).target_words) :]


CLITICS = {
    "him": "le l' lui",
    "her": "la l' lui son sa ses",
    "them": "les leur",
    "me": "me m'",
    "us": "nous",
}
GENDER_OF_CLITIC = {"him": "ms", "her": "fs", "them": "mp", "me": "ms", "us": "mp"}


def clitic_before(english: str) -> str | None:
    """Return the marks of the direct object before a verb of meeting."""
    match = re.search(
        r"\b(?:saw|loved|heard|met|followed|see|love|hear|meet|follow) (him|her|them|me|us)\b(?= ?[.?])",
        english,
    )
    return GENDER_OF_CLITIC[match[1]] if match else None


def every(rule: Callable[[Clauses], Any], key: Callable[[Any], object] = representative) -> Iterator[Any]:
    source = Backtracking(key)
    clauses = Clauses(source)
    return source.every(lambda: rule(clauses))


# Gender and number of the words around a noun; a dot matches both values.
DETERMINERS = {
    "ms": "un le ce cet",
    "fs": "une la cette ma sa",
    ".p": "les ces mes nos ses des deux huit onze",
    ".s": "l' chaque notre mon son",
    "..": "de d'",
}
ADJECTIVES = {
    "ms": "petit grand beau bel vieil nouveau nouvel ancien noir blanc intelligent oublié cassé fermé",
    "fs": "petite grande belle vieille nouvelle ancienne noire blanche intelligente oubliée cassée fermée "
    "heureuse",
    "mp": "petits grands beaux nouveaux anciens noirs blancs intelligents oubliés cassés fermés",
    "fp": "petites grandes belles vieilles nouvelles anciennes noires blanches intelligentes oubliées cassées "
    "fermées heureuses",
    ".p": "jeunes tristes célèbres rouges étranges",
    ".s": "jeune triste célèbre rouge étrange",
    "m.": "vieux heureux",
    "..": "en bois",
}
AGREEING = {word: mark for marks in (DETERMINERS, ADJECTIVES) for mark, words in marks.items()
            for word in words.split()}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "_".join(kind.nouns[0].english[0]))
def test_every_noun_phrase_agrees(kind: Any) -> None:
    by_word = {noun.english[number]: (noun, number) for noun in kind.nouns for number in (0, 1)}

    def key(item: Any) -> object:
        return None if isinstance(item, lexicon.Noun) else representative(item)

    made = 0
    for determiners in (ANY, lexicon.OF_NEGATED_OBJECT):
        for phrase in every(
            lambda clauses, determiners=determiners: clauses.nouns.noun_phrase(kind, 1, determiners.all), key
        ):
            pair, english, french = spelled(phrase.phrase)
            made += 1
            noun, number = next(
                by_word[tuple(english.split()[start:])]
                for start in range(len(english.split()))
                if tuple(english.split()[start:]) in by_word
            )
            mark = "mf"[noun.gender] + "sp"[number]
            assert (phrase.person == lexicon.THIRD_PLURAL) == (number == 1)
            form = tuple(word.removeprefix("*") for word in noun.french[number])
            start = next(at for at in range(9) if pair.target_words[at : at + len(form)] == form)
            for word in (*pair.target_words[:start], *pair.target_words[start + len(form) :]):
                if word != "beaucoup":
                    agree = AGREEING[word]
                    assert re.fullmatch(agree, mark), f"{word}: {french} ({english})"
            assert ("adjective inversion" in phrase.phrase.phenomena) == (
                start + len(form) < len(pair.target_words)
            )
            if number == 1 and english.split()[0] == "some":
                assert french.startswith("des ") == (start == 1), french
    assert made > 100


def subjects() -> list[NounPhrase]:
    def subject(clauses: Clauses) -> NounPhrase:
        return clauses.subject(0, BESIDE_NEGATION)[0]

    return list({gold(made.phrase).source_words: made for made in every(subject)}.values())


def test_every_subject_agrees_with_its_verb_and_participle() -> None:
    agreements: set[str] = set()
    every_subject = subjects()
    assert {(one.person, one.gender) for one in every_subject} >= {(1, 0), (1, 1), (3, 0), (3, 1), (0, 0)}
    for subject in every_subject:
        for tense in (PRESENT, PAST):
            for negated in (False, True):
                clause = Clause(subject, tense, negated, question=False)
                for rule in (
                    lambda clauses, clause=clause: clauses.verbs.moving(clause, 0, place=True),
                    lambda clauses, clause=clause: clauses.verbs.verb_phrase(clause, 0, human=True),
                ):
                    for phrase in every(rule):
                        pair, _, _ = spelled(join(subject.phrase, phrase, STOP))
                        agreements.add(check_verb(after(pair.target_words, subject.phrase), subject, None))
                        past = "passé composé with être" in phrase.phenomena
                        assert past == bool(ETRE & set(pair.target_words) and tense == PAST)
    assert {f"être {mark}" for mark in ("ms", "fs", "mp", "fp")} <= agreements


def test_the_participle_agrees_with_both_of_a_pair() -> None:
    women = {
        "Marie",
        "Lucie",
        "Alice",
        "Hélène",
        "femme",
        "femmes",
        "fille",
        "filles",
        "actrice",
        "actrices",
        "reine",
        "reines",
    }
    men = {
        "Jean",
        "Henri",
        "Pierre",
        "homme",
        "hommes",
        "garçon",
        "garçons",
        "héros",
        "roi",
        "rois",
        "enfant",
        "enfants",
    }
    found = set()
    for pair_of_nouns in every(lambda clauses: clauses.nouns.simple_pair(PEOPLE, 0), few_words):
        clause = Clause(pair_of_nouns, PAST, negated=True, question=False)
        left = Clauses(random.Random(1)).verbs.verb(lexicon.LEAVING[0], clause)
        pair, _, french = spelled(join(pair_of_nouns.phrase, left, STOP))
        genders = {word in women for word in pair.target_words if word in women | men}
        assert genders, french
        assert pair.target_words[-2] == ("parties" if genders == {True} else "partis"), french
        found |= {frozenset(genders)}
    assert found == {frozenset({True}), frozenset({False}), frozenset({True, False})}


@pytest.mark.parametrize("tense", [PRESENT, PAST])
@pytest.mark.parametrize("negated", [False, True])
def test_every_verb_phrase_of_small_depth(tense: int, negated: bool) -> None:
    agreements: set[str] = set()
    shown: Counter[str] = Counter()
    words = ("les", "femmes") if negated else ("je",)
    for subject in [one for one in subjects() if gold(one.phrase).target_words == words]:
        clause = Clause(subject, tense, negated, question=False)

        def rule(clauses: Clauses, clause: Clause = clause) -> Phrase:
            return clauses.verbs.verb_phrase(clause, 1, human=True)

        for phrase in every(rule, few_words):
            pair, english, _ = spelled(join(subject.phrase, phrase, STOP))
            before = clitic_before(english)
            for source, target in pair.links:
                if pair.source_words[source] in CLITICS:
                    assert pair.target_words[target] in CLITICS[pair.source_words[source]].split(), english
            agreements.add(check_verb(after(pair.target_words, subject.phrase), subject, before))
            shown.update(phrase.phenomena)
    wanted = {"dative", "clitic object", "idiom"} | ({"negation"} if negated else {"number"})
    assert wanted <= set(shown)
    if tense == PAST:
        assert {f"avoir {mark}" for mark in ("ms", "fs", "mp")} <= agreements


def few_words(item: Any) -> object:
    """Fewer properties than `representative`, for phrases of several noun phrases."""
    match item:
        case lexicon.Noun():
            return item.gender if sound(item.french[0][0]) == "vowel" else 2
        case lexicon.Verb():
            return item.auxiliary, sound(item.french_present[1][0])
        case lexicon.Nominal():
            return sound(item.french[0])
        case lexicon.Determiner():
            return item.phenomena, item.french[0][0].startswith(("l", "d")), item.french[0] == ("de/d'",)
        case lexicon.Entry():
            return sound(item.french[0])
    return None


class BareVerbPhrases(VerbPhrases):
    """Relative clauses with only the words that show the agreement."""

    def verb_phrase(self, clause: Clause, depth: int, human: bool) -> Phrase:
        return self.verb(lexicon.INTRANSITIVE[0], clause)

    def moving(self, clause: Clause, depth: int, place: bool) -> Phrase:
        return self.verb(lexicon.LEAVING[0], clause)

    def simple_subject(self, determiners: lexicon.Determiners) -> NounPhrase:
        return self.nouns.pronoun()


def test_every_relative_clause_agrees_with_its_antecedent() -> None:
    agreements: set[str] = set()
    source = Backtracking(representative)
    rules = BareVerbPhrases(source)
    subject_of = {"je": 0, "j'": 0, "il": 1, "elle": 1, "nous": 2}
    for verbs, kinds in OBJECTS:
        for kind in [kind for at, kind in enumerate(kinds) if kind not in kinds[:at]]:
            for phrase in source.every(
                lambda kind=kind, verbs=verbs: rules.with_relative_clause(kind, verbs, 0, ANY.articles)
            ):
                pair, english, _ = spelled(join(phrase.phrase, STOP))
                at = next(at for at, word in enumerate(pair.target_words) if word in ("qui", "que", "qu'"))
                first, *rest = pair.target_words[at:]
                if first == "qui":
                    agreements.add(check_verb(rest, phrase, None))
                else:
                    assert " that " in english
                    person = subject_of[rest[0]]
                    subject = nominal(next(one for one in lexicon.PRONOUNS if one.person == person))
                    marks = "mf"[phrase.gender] + ("p" if phrase.person == lexicon.THIRD_PLURAL else "s")
                    agreements.add(check_verb(rest[1:], subject, marks))
    assert {f"avoir {mark}" for mark in ("ms", "fs", "mp", "fp")} <= agreements
    assert {f"être {mark}" for mark in ("ms", "fs", "mp", "fp")} <= agreements


def test_every_question_of_small_depth() -> None:
    starts: Counter[str] = Counter()
    who = nominal(lexicon.WHO)
    for tense in (PRESENT, PAST):
        for negated in (False, True):
            for asked in (None, "where", "when", "why"):

                def rule(
                    clauses: Clauses, tense: int = tense, negated: bool = negated, asked: Any = asked
                ) -> Phrase:
                    return clauses.inverted(tense, negated, asked, 0)

                for phrase in every(rule, few_words):
                    pair, english, french = spelled(join(phrase, unit(("?",), ("?",))))
                    first = {None: "", "where": "où ", "when": "quand ", "why": "pourquoi "}[asked]
                    assert re.match(rf"{first}est-ce (que |qu')", french), french
                    assert french.endswith(" ?")
                    assert english.endswith("?")
                    words = pair.source_words[asked is not None :]
                    assert words[0] in ("do", "does", "did", "was", "were"), english
                    starts[words[0]] += 1
                    # "Do" corresponds to "est-ce que" and to nothing else.
                    est = pair.target_words.index("est-ce")
                    do = int(asked is not None)
                    assert {target for source, target in pair.links if source == do} == {est, est + 1}
            clause = Clause(who, tense, negated, question=False)
            for phrase in every(
                lambda clauses, clause=clause: clauses.predicate(clause, 0, human=True, asked=None)
            ):
                _, english, french = spelled(join(who.phrase, phrase, unit(("?",), ("?",))))
                assert french.startswith("qui "), french
                assert negated or not re.match(r"who (do|does|did) ", english), english
    assert set(starts) == {"do", "does", "did", "was", "were"}


def test_every_phrase_of_place_and_time() -> None:
    for tense in (PRESENT, PAST):
        times = {english for _, english, _ in map(spelled, every(lambda clauses: clauses.nouns.time(tense)))}  # noqa: B023
        assert "at eight o'clock" in times
    for made in (
        every(lambda clauses: clauses.nouns.place(0, ANY)),
        every(lambda clauses: clauses.nouns.direction(0, ANY)),
        every(lambda clauses: clauses.nouns.of(PEOPLE, 0, compact=True)),
        every(lambda clauses: clauses.nouns.on(0)),
    ):
        texts = {spelled(phrase)[2] for phrase in made}
        assert len(texts) > 10


def test_every_conjunction_before_every_subject() -> None:
    texts = set()
    for tense in (PRESENT, PAST):
        for subject in subjects():
            clause = Clause(subject, tense, negated=False, question=False)
            for phrase in every(lambda clauses: clauses.conjunction(tense)):  # noqa: B023
                sleeps = Clauses(random.Random(3)).verbs.verb(lexicon.BIRTH, clause)
                texts.add(spelled(join(phrase, subject.phrase, sleeps, STOP))[2].split(".")[0])
    starts = {re.match(r"si |s'|quand |pendant que |pendant qu'|dès que |dès qu'", text) for text in texts}
    assert {match[0] for match in starts if match} >= {"si ", "s'", "quand ", "dès que ", "dès qu'"}
