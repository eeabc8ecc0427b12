"""Counterfactual sentences of the grammar: the influence of each source word on each word of the reference.

The derivation of a sentence is a list of random draws: entries of the lexicon, and numbers that decide between rules. It is
replayed with one draw changed. The result is a counterfactual if its English sentence differs from the original in one word
only: in another entry ("cow" to "dog") or another form of the entry ("cow" to "cows", "slept" to "sleeps"). Since English
determines French, the reference follows from the English sentence and not from the derivation.

The words of the two references are compared slot by slot. A slot is a word of the derivation before its spelling (`Word`).
It is identified by the English words that it is linked to and by its position among the French words with the same links.

- A reference word changes if the written word at one of its slots is another. "La vache" and "l'hirondelle": the article
  changes. "Du roi" and "de la reine": "du" has the slots of "de" and "le", so it changes, and so do "de" and "la" in the
  other direction.
- Slots that only one reference has are deleted or inserted. A deleted word changes; an inserted word is not a word of the
  original reference and changes nothing. If an entry has different numbers of words in the two references, the words at
  its beginning and at its end that are equal are the same slots.
- A word that only moves does not change: the noun, if "noir" after it becomes "petit" before it.
- "A" and "an" are one word. Their form follows from the next word, as the form of "le" does.

A word that cannot be replaced alone has no counterfactual, and its influence is not known: "not", "of", punctuation; the
number of a noun that is the subject of a verb in the present, because English marks it on the verb too.
"""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from itertools import groupby
from random import Random
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from seq2seq_lab.data.corpus import Gold
from seq2seq_lab.data.counterfactuals import Counterfactual, Influence
from seq2seq_lab.data.grammar.clauses import Clauses
from seq2seq_lab.data.grammar.phrase import (
    Combination,
    Phrase,
    Word,
    english_text,
    french_text,
    gold,
    spell_english,
    spell_french,
)

Key: TypeAlias = tuple[int, ...]

CHANCES = (0.0, 0.3, 0.6, 0.999)
"""Numbers that replace a drawn one: each value of a number or tense, and each conjunction, has one of them."""


class Draw(NamedTuple):
    """A drawn number, or an entry and the list that it is from."""

    value: Any
    options: Sequence[Any] | None = None


class _Recorder(Random):
    """Draws from another generator and records it. The state of this generator is not used."""

    def __init__(self, source: Random) -> None:
        super().__init__(0)
        self._source = source
        self.draws: list[Draw] = []

    def random(self) -> float:
        value = self._source.random()
        self.draws.append(Draw(value))
        return value

    def choice(self, seq: Any) -> Any:
        value = self._source.choice(seq)
        self.draws.append(Draw(value, seq))
        return value


class RecordedClauses(Clauses):
    """Draws sentences and records the draws of the given English ones, by their text."""

    def __init__(self, random: Random, wanted: Set[str]) -> None:
        self._recorder, self._wanted = _Recorder(random), wanted
        self.derivations: dict[str, list[Draw]] = {}
        super().__init__(self._recorder)

    def sentence(self, depth: int) -> Phrase:
        """See `Clauses.sentence`."""
        self._recorder.draws = []
        phrase = super().sentence(depth)
        text = english_text([word.form for word in spell_english(phrase.english)])
        if text in self._wanted:
            self.derivations.setdefault(text, self._recorder.draws)
        return phrase


class _NoDerivation(Exception):
    """The remaining draws do not fit the changed one."""


class _Replay(Random):
    """Returns given draws."""

    draws: Sequence[Draw] = ()
    position = 0

    def random(self) -> float:
        value, options = self._next()
        if options is not None:
            raise _NoDerivation
        return float(value)

    def choice(self, seq: Any) -> Any:
        value, options = self._next()
        if options is None:
            raise _NoDerivation
        if options is seq or value in seq:
            return value
        # The list is another one: the entry with the same English ("the" of the plural), or any.
        english = getattr(value, "english", None)
        same = [entry for entry in seq if english and getattr(entry, "english", None) == english]
        return same[0] if same else seq[self.position % len(seq)]

    def _next(self) -> Draw:
        if self.position == len(self.draws):
            raise _NoDerivation
        self.position += 1
        return self.draws[self.position - 1]


class _Change(NamedTuple):
    """A counterfactual sentence; see `Counterfactual` for `replaced` and `changed`."""

    phrase: Phrase
    replaced: tuple[int, ...]
    changed: frozenset[int]


class _Slots:
    """The words of a sentence before their spelling, with what identifies them in another sentence."""

    def __init__(self, phrase: Phrase) -> None:
        ranks: dict[object, int] = {}
        for word in phrase.english:
            for link in word.links:
                ranks.setdefault(link, len(ranks))

        def key(word: Word) -> Key:
            return tuple([ranks[link] for link in word.links])

        self.english = [
            (found, [word.form for word in group]) for found, group in groupby(phrase.english, key)
        ]
        self.forms = [word.form for word in phrase.french]
        self.by_key: dict[Key, list[int]] = {}
        for slot, word in enumerate(phrase.french):
            self.by_key.setdefault(key(word), []).append(slot)
        # The slots of each written word: contraction joins the links of two words.
        marked = [word._replace(links=(slot,)) for slot, word in enumerate(phrase.french)]
        spelled = spell_french(marked)
        self.of_words: list[tuple[Any, ...]] = [word.links for word in spelled]
        self.written = {slot: word.form for word in spelled for slot in word.links}

    def replaced(self, other: "_Slots") -> tuple[int, ...] | None:
        """Return the positions of the only English word that the other sentence replaces; None if it is not one."""
        if [key for key, _ in self.english] != [key for key, _ in other.english]:
            return None
        start, found = 0, []
        for (_, forms), (_, others) in zip(self.english, other.english, strict=True):
            if forms != others:
                # "ran across" and "walked across" differ in one of two words
                same_length = len(forms) == len(others)
                found.append(
                    [start + i for i, form in enumerate(forms) if not same_length or form != others[i]]
                )
            start += len(forms)
        return tuple(found[0]) if len(found) == 1 else None

    def changed(self, other: "_Slots") -> frozenset[int]:
        """Return the positions of the written French words that are different in the other sentence."""
        changed = set(range(len(self.forms)))
        for key, slots in self.by_key.items():
            for slot, partner in self._partners(slots, other, other.by_key.get(key, [])):
                if self.written[slot] == other.written[partner]:
                    changed.discard(slot)
        return frozenset(
            [position for position, slots in enumerate(self.of_words) if not changed.isdisjoint(slots)]
        )

    def _partners(
        self, slots: Sequence[int], other: "_Slots", others: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """Yield the slots of words with the same links that correspond; see the module."""
        if len(slots) == len(others):
            yield from zip(slots, others, strict=True)
            return
        shorter = min(len(slots), len(others))
        start = 0
        while start < shorter and self.forms[slots[start]] == other.forms[others[start]]:
            yield slots[start], others[start]
            start += 1
        end = 1
        while end <= shorter - start and self.forms[slots[-end]] == other.forms[others[-end]]:
            yield slots[-end], others[-end]
            end += 1


class InfluenceFinder:
    """Finds the counterfactuals of sentences.

    Args:
        depth: `max_depth` of the data set.
        held: the combinations that are held out.
        per_word, seed: see `Grammar.influences`.
    """

    def __init__(self, depth: int, held: frozenset[Combination], per_word: int, seed: int) -> None:
        self._depth, self._held, self._per_word, self._seed = depth, held, per_word, seed
        self._replay = _Replay(0)
        self._clauses = Clauses(self._replay)

    def find(self, draws: Sequence[Draw]) -> Influence:
        """Return the influence in the sentence with this derivation."""
        original = self._derive(draws)
        assert original is not None
        pair = gold(original)
        influence_TS = np.zeros((len(pair.target_words), len(pair.source_words)), np.bool_)
        known_S = np.zeros(len(pair.source_words), np.bool_)
        by_word: dict[tuple[int, ...], list[_Change]] = {}
        for change in self._changes(draws, _Slots(original)):
            known_S[list(change.replaced)] = True
            influence_TS[np.ix_(sorted(change.changed), change.replaced)] = True
            by_word.setdefault(change.replaced, []).append(change)
        random = Random(f"{self._seed} {' '.join(pair.source_words)}")
        chosen = [
            self._counterfactual(change, pair)
            for _, changes in sorted(by_word.items())
            for change in self._choose(changes, random)
        ]
        return Influence(pair, influence_TS, known_S, tuple(chosen))

    def _derive(self, draws: Sequence[Draw]) -> Phrase | None:
        self._replay.draws, self._replay.position = draws, 0
        try:
            return self._clauses.sentence(self._depth)
        except _NoDerivation:
            return None

    def _changes(self, draws: Sequence[Draw], original: _Slots) -> Iterator[_Change]:
        """Yield all sentences that differ in one word and in one draw."""
        seen = set()
        for position, (value, options) in enumerate(draws):
            for other in CHANCES if options is None else {id(entry): entry for entry in options}.values():
                if other == value:
                    continue
                phrase = self._derive([*draws[:position], Draw(other, options), *draws[position + 1 :]])
                if phrase is None:
                    continue
                slots = _Slots(phrase)
                replaced = original.replaced(slots)
                words = tuple([word.form for word in phrase.english])
                if replaced and words not in seen:
                    seen.add(words)
                    yield _Change(phrase, replaced, original.changed(slots))

    def _choose(self, changes: Sequence[_Change], random: Random) -> list[_Change]:
        """Choose replacements of one word at random, so that those with different effects are chosen in turn."""
        shuffled = random.sample(changes, len(changes))
        met: Counter[frozenset[int]] = Counter()
        turns = []
        for change in shuffled:
            turns.append(met[change.changed])
            met[change.changed] += 1
        order = sorted(range(len(shuffled)), key=turns.__getitem__)
        return [shuffled[i] for i in order[: self._per_word]]

    def _counterfactual(self, change: _Change, original: Gold) -> Counterfactual:
        pair = gold(change.phrase)
        linked = {target for source, target in original.links if source in change.replaced}
        return Counterfactual(
            english_text(pair.source_words),
            french_text(pair.target_words),
            pair,
            change.replaced,
            change.changed,
            change.changed - linked,
            not self._held.isdisjoint(change.phrase.combinations),
        )
