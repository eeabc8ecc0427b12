"""Minimal pairs: sentences of the grammar, and ungrammatical forms of them that differ in one word or in the order of two.

| phenomenon | English | French |
|---|---|---|
| agreement | the boy *sing | le garçon *chantent |
| negation | the boy does not *sings | le garçon ne *pas chante |
| object pronoun | Mary sees *he | Marie voit *le |

Both forms have the same number of words, because a model gives shorter sentences a higher probability (as BLiMP, Warstadt
2020, arXiv:1912.00582).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from seq2seq_lab.data.corpus import Gold
from seq2seq_lab.data.grammar import lexicon
from seq2seq_lab.data.grammar.lexicon import FIRST_SINGULAR, THIRD_PLURAL, THIRD_SINGULAR
from seq2seq_lab.data.grammar.phrase import english_text, french_text
from seq2seq_lab.data.sentences import Contrast

Words = tuple[str, ...]
Violation = Callable[[Gold], Words | None]
"""Returns the words of the ungrammatical form of a sentence, or None if the phenomenon is not in the sentence."""

VERBS = [
    *(lexicon.INTRANSITIVE + lexicon.ANIMAL_INTRANSITIVE + lexicon.MEETING + lexicon.HANDLING),
    *(lexicon.WRITING + lexicon.EATING + lexicon.TELLING + lexicon.GIVING + lexicon.SAYING),
    *(verb for verb, _ in lexicon.SWIMMING + lexicon.RUNNING),
    *(lexicon.GOING + lexicon.COMING + lexicon.STAYING + lexicon.LEAVING + [lexicon.DEATH]),
]


def _forms(language: str, first: int, second: int) -> dict[str, str]:
    """Map each verb's present form for the person `first` to its form for `second`."""
    tables = [verb.english_present if language == "en" else verb.french_present for verb in VERBS]
    return {table[first][0]: table[second][0] for table in tables}


TO_THIRD = _forms("en", FIRST_SINGULAR, THIRD_SINGULAR)
TO_BASE = _forms("en", THIRD_SINGULAR, FIRST_SINGULAR) | {"does": "do", "was": "were", "were": "was"}
FRENCH_NUMBER = _forms("fr", THIRD_SINGULAR, THIRD_PLURAL) | _forms("fr", THIRD_PLURAL, THIRD_SINGULAR)
DO = ("do", "does", "did")
NOMINATIVE = {"him": "he", "them": "they", "me": "I", "us": "we"}  # "her" is also a possessive
OBJECT_PRONOUNS = {clitic.english[0] for clitic in lexicon.CLITICS}
CLITICS = ("le", "la", "les", "lui", "leur", "me", "nous")  # those that are not elided


def contrasts(golds: Sequence[Gold], language: str) -> list[Contrast | None]:
    """Return an ungrammatical form of each sentence, or None if no phenomenon is in it.

    If several are in it, the phenomenon with the fewest forms so far is chosen.

    Args:
        golds: the words of the sentence pairs.
        language: en or fr.
    """
    violations = VIOLATIONS[language]
    text = english_text if language == "en" else french_text
    counts = Counter(dict.fromkeys(violations, 0))
    found: list[Contrast | None] = []
    for gold in golds:
        wrong = {name: words for name, violate in violations.items() if (words := violate(gold))}
        name = min(wrong, key=counts.__getitem__, default=None)
        if name is None:
            found.append(None)
            continue
        counts[name] += 1
        found.append(Contrast(name, text(wrong[name])))
    return found


def agreement_distances(golds: Sequence[Gold], language: str) -> list[int | None]:
    """Return the distance in words from the head of the subject to the verb that the form of "agreement" changes.

    It is 1 if they are adjacent, None for a sentence without such a form.

    Args:
        golds: the words of the sentence pairs, with their subjects.
        language: en or fr.
    """
    violate = VIOLATIONS[language]["agreement"]
    found: list[int | None] = []
    for gold in golds:
        words, subjects = (
            (gold.source_words, gold.source_subjects)
            if language == "en"
            else (gold.target_words, gold.target_subjects)
        )
        wrong = violate(gold) or words
        verbs = [i for i, (right, other) in enumerate(zip(words, wrong, strict=True)) if right != other]
        heads = [head for verb, head in subjects or () if [verb] == verbs]
        found.append(abs(verbs[0] - heads[0]) if heads else None)
    return found


def _replace(words: Words, position: int, *forms: str) -> Words:
    return (*words[:position], *forms, *words[position + len(forms) :])


def english_agreement(gold: Gold) -> Words | None:
    """The boy sings / the boy *sing; the boys sing / the boys *sings; does he / *do he."""
    words = gold.source_words
    supported = not set(DO).isdisjoint(words)  # the other verb may then be an infinitive
    for position, word in enumerate(words):
        if word in TO_BASE and words[0] != "who":
            return _replace(words, position, TO_BASE[word])
        if word == "do":
            return _replace(words, position, "does")
        if word in TO_THIRD and not supported:
            return _replace(words, position, TO_THIRD[word])
    return None


def english_negation(gold: Gold) -> Words | None:
    """Does not sing / does not *sings."""
    words = gold.source_words
    for position, (word, verb) in enumerate(pairwise(words)):
        if word == "not" and verb in TO_THIRD:
            return _replace(words, position + 1, TO_THIRD[verb])
    return None


def english_pronoun(gold: Gold) -> Words | None:
    """Mary sees him / Mary sees *he."""
    for position, word in enumerate(gold.source_words):
        if word in NOMINATIVE:
            return _replace(gold.source_words, position, NOMINATIVE[word])
    return None


def french_agreement(gold: Gold) -> Words | None:
    """Le garçon chante / le garçon *chantent."""
    words = gold.target_words
    for position, word in enumerate(words):
        if word in FRENCH_NUMBER and words[0] != "qui":
            return _replace(words, position, FRENCH_NUMBER[word])
    return None


def french_negation(gold: Gold) -> Words | None:
    """Ne chante pas / ne *pas chante; n'a pas / ne *pas a."""
    words = gold.target_words
    position = words.index("pas") if "pas" in words else 0
    if not position or (words[position - 2].endswith("'") and words[position - 2] != "n'"):
        return None
    before = "ne" if words[position - 2] == "n'" else words[position - 2]
    return _replace(words, position - 2, before, "pas", words[position - 1])


def french_pronoun(gold: Gold) -> Words | None:
    """Marie le voit / Marie voit *le."""
    words = gold.target_words
    positions = [
        target
        for source, target in gold.links
        if gold.source_words[source] in OBJECT_PRONOUNS and words[target] in CLITICS
    ]
    if not positions:
        return None
    position = min(positions)
    return _replace(words, position, words[position + 1], words[position])


VIOLATIONS: Mapping[str, Mapping[str, Violation]] = {
    "en": {
        "agreement": english_agreement,
        "negation": english_negation,
        "object pronoun": english_pronoun,
    },
    "fr": {
        "agreement": french_agreement,
        "negation": french_negation,
        "object pronoun": french_pronoun,
    },
}
