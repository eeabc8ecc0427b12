"""The influence of source words, compared with counterfactuals that are translated by the rules in `french_rules`."""

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import french_rules as rules
import numpy as np
import pytest

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.counterfactuals import Influence
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.data.grammar.influence import InfluenceFinder, RecordedClauses
from seq2seq_lab.data.grammar.phrase import PHENOMENA
from seq2seq_lab.errors import UserError

ALL = 1_000_000


def grammar(**changed: Any) -> Grammar:
    settings: dict[str, Any] = {"train": 1, "validation": 1, "test": 3000, "test_compositional": 0}
    return Grammar(**{**settings, "held_out_share": 0.0, "seed": 3, "max_depth": 2, **changed})


def select(text: ParallelText, each: int) -> list[int]:
    """Return sentences with `each` of every phenomenon."""
    assert text.phenomena is not None
    counts: Counter[str] = Counter()
    chosen = []
    for i, names in enumerate(text.phenomena):
        if any(counts[name] < each for name in names):
            chosen.append(i)
            counts.update(names)
    assert set(counts) == PHENOMENA
    assert min(counts.values()) >= each, counts
    return chosen


# The rules of the test


class Translation(NamedTuple):
    """An English sentence in units, and its translation before and after its spelling."""

    units: list[str]
    slots: rules.French
    spelled: list[tuple[set[rules.Slot], str]]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple([form for _, form in self.spelled])


def translated(words: Sequence[str]) -> Translation:
    units = rules.units(list(words))
    slots = rules.Translator(units).translate()
    return Translation(units, slots, rules.spell(slots))


def expected_change(first: Translation, second: Translation) -> tuple[tuple[int, ...], set[int]]:
    """Return the positions of the replaced English words and of the changed French ones."""
    replaced: list[int] = []
    start = 0
    for unit, another in zip(first.units, second.units, strict=True):
        forms, others = unit.split(), another.split()
        if forms != others and {unit, another} != {"a", "an"}:
            assert not replaced
            same = len(forms) == len(others)
            replaced = [start + i for i, form in enumerate(forms) if not same or form != others[i]]
        start += len(forms)
    moved = shifts(first.slots, second.slots)
    written = {moved.get(slot, slot): form for slots, form in second.spelled for slot in slots}
    changed = {
        position
        for position, (slots, form) in enumerate(first.spelled)
        if any(written.get(slot) != form for slot in slots)
    }
    return tuple(replaced), changed


def shifts(first: rules.French, second: rules.French) -> dict[rules.Slot, rules.Slot]:
    """Count the words of a unit from its end if it ends with the same word but has another number of words."""
    moved: dict[rules.Slot, rules.Slot] = {}
    for unit in {slot[0] for slot, _ in second}:
        old, new = (
            [(int(slot[1]), form) for slot, form in side if slot[0] == unit and slot[1].isdigit()]
            for side in (first, second)
        )
        if len(old) != len(new) and old and new and old[-1][1] == new[-1][1]:
            for number, _ in new:
                moved[unit, str(number)] = (unit, str(number + len(old) - len(new)))
    return moved


def same_section(word: str) -> list[str]:
    """Return the words that can replace this one in every sentence; empty for a word of another kind."""
    if word in rules.NAMES:
        return list(rules.NAMES)
    if word in rules.NOUNS:
        section, number, *_ = rules.NOUNS[word]
        return [noun for noun, (name, n, *_) in rules.NOUNS.items() if (name, n) == (section, number)]
    for name in ("CHARACTERS", "COLOURS", "ANY_BEFORE", "MEETING", "HANDLING", "GIVING", "SAYING"):
        rows = rules.SECTIONS[name]
        for column in range(1 if len(rows[0]) == 5 else 3):
            if word in [row[column] for row in rows]:
                return [row[column] for row in rows]
    return []


def check(influence: Influence) -> int:
    """Check the influence in one sentence, and return the number of its counterfactuals."""
    words = influence.gold.source_words
    translation = translated(words)
    assert translation.words == influence.gold.target_words
    matrix = np.zeros_like(influence.influence_TS)
    known = np.zeros_like(influence.known_S)
    for counterfactual in influence.counterfactuals:
        other = translated(counterfactual.gold.source_words)
        assert other.words == counterfactual.gold.target_words
        replaced, changed = expected_change(translation, other)
        assert (counterfactual.replaced, counterfactual.changed) == (replaced, changed), counterfactual.source
        known[list(replaced)] = True
        matrix[np.ix_(sorted(changed), replaced)] = True
    assert np.array_equal(matrix, influence.influence_TS)
    assert np.array_equal(known, influence.known_S)
    found = {tuple(rules.units(plain(pair.gold.source_words))) for pair in influence.counterfactuals}
    sentence = rules.units(plain(words))
    for position, unit in enumerate(sentence):
        # A pair is not of two equal names.
        beside = sentence[max(position - 2, 0) : position + 3]
        if unit != "." and "and" not in beside:
            for other_unit in {*same_section(unit)} - {unit}:
                assert (*sentence[:position], other_unit, *sentence[position + 1 :]) in found, other_unit
    return len(influence.counterfactuals)


def plain(words: Sequence[str]) -> list[str]:
    return ["a" if word == "an" else word for word in words]


def check_sentences(dataset: Grammar, split: str, each: int) -> None:
    text = dataset.load().tests[split]
    chosen = select(text, each)
    influences = dataset.influences([text.source[i] for i in chosen], per_word=ALL, seed=0)
    assert text.gold is not None
    assert [influence.gold for influence in influences] == [text.gold[i] for i in chosen]
    assert sum(map(check, influences)) > 10 * len(chosen)


def test_the_influence_is_that_of_independent_rules() -> None:
    check_sentences(grammar(), "test", 10)


@pytest.mark.slow
def test_the_influence_in_60_sentences_of_every_phenomenon_is_that_of_independent_rules() -> None:
    check_sentences(grammar(test=4500), "test", 60)


@pytest.mark.slow
def test_the_influence_in_long_and_in_compositional_sentences_is_that_of_independent_rules() -> None:
    long = {"max_depth": 4, "test": 1500, "test_compositional": 1500, "held_out_share": 0.1}
    check_sentences(grammar(**long), "test", 5)
    check_sentences(grammar(**long), "test_compositional", 5)


# Examples


# Of a search with few draws; every seed finds the sentence.
SEEDS = {"he prepared the apple that she ate.": 58}


class OtherSentence(Exception):
    pass


class Seeking(random.Random):
    """Draws entries whose words are in a sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(1)
        self.wanted = set(sentence.rstrip(".?").split()) | {"a/an"}
        self.plain = random.Random(SEEDS.get(sentence, 1))

    def random(self) -> float:
        return self.plain.random()

    def choice(self, seq: Any) -> Any:
        def forms(entry: Any) -> list[str]:
            columns = [getattr(entry, name, ()) for name in ("english", "english_present", "english_past")]
            return " ".join(
                " ".join([cell] if isinstance(cell, str) else cell) for column in columns for cell in column
            ).split()

        if not any(forms(entry) for entry in seq):
            return self.plain.choice(seq)
        if wanted := [entry for entry in seq if self.wanted.intersection(forms(entry))]:
            return self.plain.choice(wanted)
        raise OtherSentence


def influence_of(sentence: str) -> Influence:
    clauses = RecordedClauses(Seeking(sentence), {sentence})
    for _ in range(1_000_000):
        with suppress(OtherSentence):
            clauses.sentence(2)
        if clauses.derivations:
            return InfluenceFinder(2, frozenset(), ALL, 0).find(clauses.derivations[sentence])
    raise AssertionError(sentence)


EXAMPLES = {
    "the white cow slept.": (
        "la vache blanche a dormi .",
        {"the": "la", "white": "blanche", "cow": "la vache blanche a", "slept": "a dormi"},
    ),
    "some big dogs slept.": (
        "de grands chiens ont dormi .",
        {"some": "de", "big": "de grands", "dogs": "grands chiens", "slept": "ont dormi"},
    ),
    "the girl went to Paris.": (
        "la fille est allée à Paris .",
        {"the": "la", "girl": "la fille est allée", "went": "est allée", "Paris": "Paris"},
    ),
    "he prepared the apple that she ate.": (
        "il a préparé la pomme qu' elle a mangée .",
        {
            "he": "il a",
            "prepared": "a préparé",
            "the": "la",
            "apple": "la pomme mangée",
            "she": "qu' elle a",
            "ate": "a mangée",
        },
    ),
    "John saw her.": ("Jean l' a vue .", {"John": "Jean", "saw": "l' a vue", "her": "l' vue"}),
    "Mary told the boy a story.": (
        "Marie a raconté une histoire au garçon .",
        {
            "Mary": "Marie",
            "told": "a raconté",
            "the": "au",
            "boy": "au garçon",
            "a": "une",
            "story": "histoire",
        },
    ),
    "the computer scientist slept.": (
        "l' informaticien a dormi .",
        {"the": "l'", "computer": "l' informaticien", "scientist": "l' informaticien a", "slept": "a dormi"},
    ),
    "Mary did not see a dog.": (
        "Marie n' a pas vu de chien .",
        {"Mary": "Marie", "did": "n' a vu", "see": "vu", "a": "de", "dog": "de chien"},
    ),
    "does the boy sleep?": (
        "est-ce que le garçon dort ?",
        {"does": "dort", "the": "que le", "boy": "le garçon", "sleep": "dort"},
    ),
}


@pytest.mark.parametrize("sentence", EXAMPLES)
def test_chains_of_agreement(sentence: str) -> None:
    reference, expected = EXAMPLES[sentence]
    influence = influence_of(sentence)
    gold = influence.gold
    assert gold.target_words == tuple(reference.split())
    found = {
        word: " ".join(np.array(gold.target_words)[influence.influence_TS[:, position]])
        for position, word in enumerate(gold.source_words)
        if influence.known_S[position]
    }
    assert found == expected


def test_agreement_is_what_is_not_aligned() -> None:
    influence = influence_of("the white cow slept.")
    dogs = next(pair for pair in influence.counterfactuals if pair.source == "the white dog slept.")
    assert dogs.target == "le chien blanc a dormi."
    assert (dogs.replaced, dogs.changed, dogs.agreement, dogs.held_out) == ((2,), {0, 1, 2}, {0, 2}, False)


# The choice of counterfactuals


def test_counterfactuals_are_chosen_by_seed_and_have_different_effects() -> None:
    dataset = grammar(test=50)
    sources = dataset.load().tests["test"].source
    some, again, other = (dataset.influences(sources, per_word=2, seed=seed) for seed in (0, 0, 1))
    everything = dataset.influences(sources, per_word=ALL, seed=0)
    for first, second, full in zip(some, again, everything, strict=True):
        assert first.counterfactuals == second.counterfactuals
        assert np.array_equal(first.influence_TS, full.influence_TS)
        effects = Counter(pair.replaced for pair in first.counterfactuals)
        assert max(effects.values()) <= 2
        for replaced in effects:
            changes = {pair.changed for pair in full.counterfactuals if pair.replaced == replaced}
            chosen = {pair.changed for pair in first.counterfactuals if pair.replaced == replaced}
            assert len(chosen) == min(len(changes), effects[replaced])
    assert [pair.counterfactuals for pair in some] != [pair.counterfactuals for pair in other]
    # A sentence has the same ones whatever it is asked with.
    assert dataset.influences(sources[7:8], per_word=2, seed=0)[0].counterfactuals == some[7].counterfactuals


def test_held_out_combinations_are_marked() -> None:
    dataset = grammar(test=60, test_compositional=60, held_out_share=0.1, max_depth=3)
    for split, least, most in (("test", 0.0, 0.5), ("test_compositional", 0.5, 1.0)):
        influences = dataset.influences(dataset.load().tests[split].source, per_word=3, seed=0)
        shares = [pair.held_out for influence in influences for pair in influence.counterfactuals]
        assert least < np.mean(shares) < most, split


def test_errors_name_the_sentence_and_the_number() -> None:
    with pytest.raises(UserError, match="a stranger sleeps"):
        grammar(test=10).influences(["a stranger sleeps."], per_word=1, seed=0)
    with pytest.raises(UserError, match="per_word=0"):
        grammar(test=10).influences([], per_word=0, seed=0)
