"""Phrases in both languages at once, and the spelling of words that depends on their neighbors.

Each word carries links, which are unique objects. An English and a French word correspond if they share a link. To
combine phrases, join their words in the order of each language; the links then give the alignment of the sentence.
Each phrase also carries the names of the phenomena in it.

"a/an" is the form before a consonant and the form before a vowel. An asterisk marks a French h aspiré.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from seq2seq_lab.data.corpus import Gold

Phenomenon = Literal[
    "adjective inversion",
    "clitic object",
    "compound",
    "coordination",
    "dative",
    "idiom",
    "negation",
    "number",
    "passé composé with être",
    "question",
    "relative clause",
    "subordinate clause",
]
PHENOMENA: frozenset[Phenomenon] = frozenset(get_args(Phenomenon))

Combination = tuple[tuple[str, ...], tuple[str, ...]]
"""An English adjective and the singular of its noun, or a verb and the singular of its object."""


class Word(NamedTuple):
    """A form, its links and, if it is French, its part of speech and its agreement; see `Gold.target_classes`.

    `subject` is the link of the head of the subject with which a finite verb agrees.
    """

    form: str
    links: tuple[object, ...]
    part: str = ""
    agreement: str = ""
    subject: object = None


class Phrase(NamedTuple):
    """The words of one phrase in both languages, its phenomena, and the combinations of words in it."""

    english: tuple[Word, ...]
    french: tuple[Word, ...]
    phenomena: tuple[Phenomenon, ...] = ()
    combinations: tuple[Combination, ...] = ()


ENGLISH_VOWELS = frozenset("aeiou")
FRENCH_VOWELS = frozenset("aeiouéèêâîôœh")
CONTRACTIONS = {
    ("à", "le"): "au",
    ("à", "les"): "aux",
    ("de", "le"): "du",
    ("de", "les"): "des",
    # "de" replaces the indefinite article: "près de" + "des hommes" = "près d'hommes"
    ("de", "des"): "de/d'",
    ("de", "de"): "de/d'",
    ("de", "d'"): "de/d'",
}
EMPTY = Phrase((), ())

# The part of speech of French words that are not in the lexicon or are inside its set phrases and compounds.
PARTS = {
    **dict.fromkeys(("de/d'", "de", "à", "dans", "avec", "en"), "ADP"),
    **dict.fromkeys(("le", "la", "les", "le/l'", "la/l'"), "DET"),
    **dict.fromkeys(("que/qu'", "parce", "pendant", "dès", "si", "quand"), "SCONJ"),
    **dict.fromkeys(("ne/n'", "pas", "est-ce"), "PART"),
    **dict.fromkeys((".", ",", "?"), "PUNCT"),
    **{"et": "CCONJ", "qui": "PRON", "heures": "NOUN"},
}
# The gender and number of the words of set phrases.
AGREEMENT = {
    **dict.fromkeys(("le", "le/l'", "mois", "été", "dernier", "matin", "soir", "lundi", "samedi"), "m.sg"),
    **dict.fromkeys(("la", "la/l'", "semaine", "année", "dernière"), "f.sg"),
    **{"heures": "f.pl", "les": "m.pl"},
}


def agreement(number: int, gender: int | None = None) -> str:
    """Return the agreement of a word, for example `f.pl`, or `pl` without a gender; see `Gold.target_agreement`."""
    return ("" if gender is None else ("m.", "f.")[gender]) + ("sg", "pl")[number]


def words(forms: Sequence[str], link: object, part: str = "", agrees: str = "") -> tuple[Word, ...]:
    """Return the forms as words with the given link.

    Args:
        part: the part of speech of words that `PARTS` does not have, and of a single word; empty: the one in `PARTS`.
        agrees: the agreement of the first word, unless `PARTS` has it; the others have that in `AGREEMENT`, if any.
    """
    links = (link,)
    if len(forms) == 1:  # the usual case: takes half the time
        return (
            Word(forms[0], links, part or PARTS.get(forms[0], ""), agrees or AGREEMENT.get(forms[0], "")),
        )
    first, *others = [Word(form, links, PARTS.get(form, part), AGREEMENT.get(form, "")) for form in forms]
    if agrees and forms[0] not in PARTS:
        first = first._replace(agreement=agrees)
    return (first, *others)


def unit(
    english: Sequence[str], french: Sequence[str], *phenomena: Phenomenon, part: str = "", agrees: str = ""
) -> Phrase:
    """Return a phrase in which every English word corresponds to every French one.

    Args:
        part, agrees: the part of speech and the agreement of the French words; see `words`.
    """
    link = object()
    return Phrase(words(english, link), words(french, link, part, agrees), phenomena)


def join(*phrases: Phrase) -> Phrase:
    """Return the phrases one after another, in the same order in both languages."""
    return arrange(phrases, phrases)


def arrange(english: Sequence[Phrase], french: Sequence[Phrase]) -> Phrase:
    """Join phrases in a different order in each language. Phenomena and combinations are those of `english`."""
    source: tuple[Word, ...] = ()
    target: tuple[Word, ...] = ()
    phenomena: tuple[Phenomenon, ...] = ()
    combinations: tuple[Combination, ...] = ()
    for phrase in english:
        source += phrase.english
        phenomena += phrase.phenomena
        combinations += phrase.combinations
    for phrase in french:
        target += phrase.french
    return Phrase(source, target, phenomena, combinations)


def add_phenomena(phrase: Phrase, *phenomena: Phenomenon) -> Phrase:
    """Return the phrase with more phenomena."""
    return phrase._replace(phenomena=phrase.phenomena + phenomena)


def _shape(word: Word, following: list[Word], vowels: frozenset[str]) -> Word:
    before_consonant, before_vowel = word.form.split("/")
    at_vowel = bool(following) and following[-1].form[0].lower() in vowels
    return word._replace(form=before_vowel if at_vowel else before_consonant)


def spell_english(sentence: Sequence[Word]) -> list[Word]:
    """Return the words with "a" before a consonant and "an" before a vowel."""
    spelled: list[Word] = []
    for word in reversed(sentence):
        spelled.append(_shape(word, spelled, ENGLISH_VOWELS) if "/" in word.form else word)
    return spelled[::-1]


def spell_french(sentence: Sequence[Word]) -> list[Word]:
    """Return the words after elision, contraction and the choice of forms such as "bel".

    A contracted word has the links of both its parts, and the part of speech and agreement of the first. The mark of an h
    aspiré is kept.
    """
    spelled: list[Word] = []
    for word in reversed(sentence):
        if "/" in word.form:
            word = _shape(word, spelled, FRENCH_VOWELS)
        elif word.form == "si" and spelled and spelled[-1].form == "il":
            # Not before "elle" or a name.
            word = word._replace(form="s'")
        if spelled and (contracted := CONTRACTIONS.get((word.form, spelled[-1].form))):
            word = word._replace(form=contracted, links=word.links + spelled.pop().links)
            if "/" in contracted:
                word = _shape(word, spelled, FRENCH_VOWELS)
        spelled.append(word)
    return spelled[::-1]


def english_text(sentence: Sequence[str]) -> str:
    """Return the words as plain text, without a space before punctuation."""
    return french_text(sentence).replace(" ?", "?")


def french_text(sentence: Sequence[str]) -> str:
    """Return the words as plain text, without a space after an apostrophe and with one before a question mark."""
    return " ".join(sentence).replace("' ", "'").replace(" .", ".").replace(" ,", ",")


def _subjects(sentence: Sequence[Word]) -> tuple[tuple[int, int], ...]:
    """Return the positions of each finite verb and of the head of its subject, the nearest word of a compound."""
    pairs = []
    for verb, word in enumerate(sentence):
        heads = [i for i, one in enumerate(sentence) if word.subject in one.links] if word.subject else []
        if heads:
            pairs.append((verb, min(heads, key=lambda head: abs(verb - head))))
    return tuple(pairs)


def gold(phrase: Phrase) -> Gold:
    """Return the spelled words of a sentence, their links and the classes of the French ones."""
    english, french = spell_english(phrase.english), spell_french(phrase.french)
    positions: dict[object, list[int]] = {}
    for position, word in enumerate(english):
        for link in word.links:
            positions.setdefault(link, []).append(position)
    links = frozenset(
        [
            (source, target)
            for target, word in enumerate(french)
            for link in word.links
            for source in positions[link]
        ]
    )
    return Gold(
        tuple([word.form for word in english]),
        tuple([word.form.removeprefix("*") for word in french]),
        links,
        target_classes=tuple([word.part for word in french]),
        target_agreement=tuple([word.agreement for word in french]),
        source_subjects=_subjects(english),
        target_subjects=_subjects(french),
    )
