"""The sentences of one student: a part of the lexicon of the grammar, and a construction that is held out."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain
from random import Random
from typing import NamedTuple

from seq2seq_lab.data.corpus import Gold
from seq2seq_lab.data.grammar import lexicon, noun_kinds
from seq2seq_lab.data.grammar.clauses import Clauses
from seq2seq_lab.data.grammar.phrase import PHENOMENA, Phrase, gold

SHOWN, HELD_OUT = 24, 8  # sentences
MAX_DEPTH = 3
LONGEST = 14  # English words
VERBS = (
    *(
        lexicon.INTRANSITIVE,
        lexicon.MEETING,
        lexicon.HANDLING,
        lexicon.WRITING,
        lexicon.EATING,
        lexicon.TELLING,
    ),
    *(lexicon.GIVING, lexicon.SAYING, lexicon.COMING, lexicon.STAYING),
    [verb for verb, _ in lexicon.RUNNING],
)


class Student(NamedTuple):
    """What depends on the ID of a student.

    Attributes:
        seed: of the random inputs of the checks.
        phenomenon: the held-out construction.
        missing: the English words of the grammar that this lexicon does not have.
        shown: sentence pairs without the held-out construction.
        held_out: sentence pairs with it.
    """

    seed: int
    phenomenon: str
    missing: frozenset[str]
    shown: list[Gold]
    held_out: list[Gold]


@cache
def student_of(student_id: str) -> Student:
    """Return the examples of a student; the same ID gives the same examples."""
    seed = int.from_bytes(hashlib.sha256(student_id.encode()).digest()[:6], "big")
    random = Random(seed)
    phenomenon = random.choice(sorted(PHENOMENA))
    missing = _missing(random)
    clauses = Clauses(random)
    seen: set[tuple[str, ...]] = set()

    def draw(count: int, wanted: Callable[[Phrase], bool]) -> list[Gold]:
        drawn: list[Gold] = []
        while len(drawn) < count:
            sentence = clauses.sentence(MAX_DEPTH)
            if not wanted(sentence) or len(sentence.english) > LONGEST:
                continue
            pair = gold(sentence)
            if missing.isdisjoint(pair.source_words) and pair.source_words not in seen:
                seen.add(pair.source_words)
                drawn.append(pair)
        return drawn

    shown = draw(SHOWN, lambda sentence: phenomenon not in sentence.phenomena)
    held_out = draw(HELD_OUT, lambda sentence: phenomenon in sentence.phenomena)
    return Student(seed, phenomenon, missing, shown, held_out)


def _missing(random: Random) -> frozenset[str]:
    """Draw half of each class of nouns, adjectives, verbs and names; return the words of the other halves.

    Nouns of several words stay, so that every construction has a sentence.
    """
    classes: list[Sequence[Iterable[lexicon.Forms]]] = [[(name.english,) for name in lexicon.NAMES]]
    for kind in noun_kinds.KINDS:
        classes.append([noun.english for noun in kind.nouns if len(noun.english[0]) == 1])
        classes.append([(adjective.english,) for adjective in dict.fromkeys((*kind.before, *kind.after))])
    classes += [[(*verb.english_present, *verb.english_past) for verb in verbs] for verbs in VERBS]
    kept: set[str] = set()
    words: set[str] = set()
    for entries in classes:
        kept |= _words(random.sample(entries, (len(entries) + 1) // 2))
        words |= _words(entries)
    return frozenset(words - kept)


def _words(entries: Iterable[Iterable[lexicon.Forms]]) -> set[str]:
    return {word for forms in chain.from_iterable(entries) for word in forms}
