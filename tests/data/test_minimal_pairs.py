"""Ungrammatical forms of sentences of the grammar."""

from collections import Counter

import pytest

from seq2seq_lab.data.corpus import Gold, ParallelText
from seq2seq_lab.data.grammar import Grammar, lexicon
from seq2seq_lab.data.grammar.minimal_pairs import (
    TO_BASE,
    TO_THIRD,
    VIOLATIONS,
    agreement_distances,
    contrasts,
)
from seq2seq_lab.data.grammar.noun_kinds import KINDS


@pytest.fixture(scope="module")
def texts() -> list[ParallelText]:
    sizes = {"train": 4000, "validation": 1, "test": 1000, "test_compositional": 0}
    corpus = Grammar(**sizes, held_out_share=0.0, seed=1, max_depth=3).load()
    return [corpus.tests["test"], corpus.train]


def pair(source: str, target: str, *links: tuple[int, int]) -> Gold:
    return Gold(tuple(source.split()), tuple(target.split()), frozenset(links))


@pytest.mark.parametrize(
    ("language", "phenomenon", "gold", "expected"),
    [
        ("en", "agreement", pair("the boy sings .", ""), "the boy sing ."),
        ("en", "agreement", pair("we sing .", ""), "we sings ."),
        ("en", "agreement", pair("do we sing ?", ""), "does we sing ?"),
        ("en", "agreement", pair("did the boy sing ?", ""), None),
        ("en", "agreement", pair("who sings ?", ""), None),
        ("en", "negation", pair("he did not sing .", ""), "he did not sings ."),
        ("en", "negation", pair("he sings .", ""), None),
        ("en", "object pronoun", pair("he sees them .", ""), "he sees they ."),
        ("en", "object pronoun", pair("he sees her .", ""), None),
        ("fr", "agreement", pair("", "le garçon chante ."), "le garçon chantent ."),
        ("fr", "agreement", pair("", "ils chantent ."), "ils chante ."),
        ("fr", "negation", pair("", "il ne chante pas ."), "il ne pas chante ."),
        ("fr", "negation", pair("", "il n' a pas chanté ."), "il ne pas a chanté ."),
        ("fr", "negation", pair("", "il ne l' aime pas ."), None),
        ("fr", "object pronoun", pair("he sees him .", "il le voit .", (2, 1)), "il voit le ."),
        ("fr", "object pronoun", pair("he loves him .", "il l' aime .", (2, 1)), None),
        ("fr", "object pronoun", pair("the boy sings .", "le garçon chante .", (0, 0)), None),
    ],
)
def test_forms_of_each_phenomenon(language: str, phenomenon: str, gold: Gold, expected: str | None) -> None:
    found = VIOLATIONS[language][phenomenon](gold)
    assert (None if found is None else " ".join(found)) == expected


def test_the_distance_from_the_subject_to_the_verb(texts: list[ParallelText]) -> None:
    golds = [gold for text in texts for gold in text.gold or ()]
    examples: dict[str, int | None] = {}
    for language in ("en", "fr"):
        lines = [" ".join(one.source_words if language == "en" else one.target_words) for one in golds]
        distances = agreement_distances(golds, language)
        examples |= zip(lines, distances, strict=True)
        for gold, line, distance in zip(golds, lines, distances, strict=True):
            if distance is not None:
                words = line.split()
                wrong = VIOLATIONS[language]["agreement"](gold)
                assert wrong is not None
                (verb,) = [i for i, word in enumerate(words) if word != wrong[i]]
                subjects = gold.source_subjects if language == "en" else gold.target_subjects
                assert abs(verb - dict(subjects or ())[verb]) == distance
                if distance == 1 and words[verb] not in ("do", "does", "est", "a"):
                    assert words[verb - 1] not in ("the", "le", "la", "les")
    simple = {line: one for line, one in examples.items() if one is not None and len(line.split()) == 3}
    assert len(simple) > 10
    assert {*simple.values()} == {1}  # he sleeps .
    relative = [one for line, one in examples.items() if " who " in line and one is not None and one > 3]
    assert relative  # the boy who sings in the garden sleeps .


@pytest.mark.parametrize("language", ["en", "fr"])
def test_no_form_is_a_sentence_of_the_grammar(language: str, texts: list[ParallelText]) -> None:
    test, train = texts
    assert test.gold is not None
    found = contrasts(test.gold, language)
    lines = [text.source if language == "en" else text.target for text in (test, train)]
    grammatical = {*lines[0], *lines[1]}
    counts = Counter(one.phenomenon for one in found if one is not None)
    assert counts.keys() == VIOLATIONS[language].keys()
    assert min(counts.values()) > 30
    for line, one in zip(lines[0], found, strict=True):
        assert one is None or one.ungrammatical not in grammatical, (line, one)


def test_no_verb_form_is_another_word() -> None:
    """Otherwise a changed word could be a noun."""
    forms = {*TO_THIRD, *TO_BASE}
    nouns = {form for kind in KINDS for noun in kind.nouns for words in noun.english for form in words}
    adverbs = {word for entry in lexicon.MANNER + lexicon.FREQUENCY for word in entry.english}
    pasts = {verb.english_past[0][0] for verb in lexicon.MEETING + lexicon.GIVING + lexicon.HANDLING}
    assert forms.isdisjoint(nouns | adverbs | pasts)
