"""Held-out pairs that are similar to training pairs, found in one pass over the training split."""

import hashlib
import json
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

from seq2seq_lab.data.build_lock import build_lock
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.deduplication import read_pairs
from seq2seq_lab.data.languages import CASES, fold_case, language_code
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.words import letter_words
from seq2seq_lab.files import checked_line, parse_checked_line, write_atomically

log = logging.getLogger(__name__)

# Increase it when a change of the code changes what is found.
_FORMAT = 4

LONGEST = (
    100  # words of a sentence that is compared with one word changed: the memory grows with their square
)

_CONTRACTION = re.compile(r"\b(?:won't|can't|shan't|let's)\b|n't\b|'(?:ll|ve|re|m|d|s)\b")
_EXPANDED = {"won't": "will not", "can't": "cannot", "shan't": "shall not", "let's": "let us", "n't": " not"}
_EXPANDED |= {"'ll": " will", "'ve": " have", "'re": " are", "'m": " am", "'d": " would", "'s": " is"}

Words = tuple[str | None, ...]  # None is a placeholder for any word

# The kinds of near-duplicates; see `near_duplicates`.
NEAR_DUPLICATES = ("source_in_train", "reference_in_train", "source_within_one_word", "shared_source")
SIMILARITIES = ("in training", "within one word", "other")  # of a source to those in training

Found = dict[str, dict[str, list[int]]]


def with_near_duplicates(corpus: Corpus, cache: Path) -> Corpus:
    """Return the corpus with the near-duplicates of its held-out splits, which are cached by the text of the corpus.

    Its `counts` have the number of pairs of each kind (`SPLIT/KIND`), and its held-out pairs their `similarity`.
    """
    held_out = {"validation": corpus.validation, **corpus.tests}
    digest = hashlib.sha256(json.dumps([_FORMAT, *held_out]).encode())
    for text in (corpus.train, *held_out.values()):
        digest.update(Lines.of(text.source).digest() + Lines.of(text.target).digest())
    languages = (corpus.source_language, corpus.target_language)
    if any(language_code(label) in CASES for label in languages):
        digest.update(json.dumps([*map(language_code, languages)]).encode())
    entry = cache / "near_duplicates" / f"{digest.hexdigest()}.json"
    if (found := _read(entry)) is None:
        with ExitStack() as lock:
            with suppress(OSError):  # reported below, where the entry cannot be written either
                entry.parent.mkdir(parents=True, exist_ok=True)
                lock.enter_context(build_lock(entry))
            if (found := _read(entry)) is None:
                found = near_duplicates(corpus.train, held_out, languages)
                _write(entry, found)
    counts = {f"{name}/{kind}": len(pairs) for name, kinds in found.items() for kind, pairs in kinds.items()}
    if corpus.train:
        held_out = {
            name: replace(text, similarity=_similarity(len(text), found[name]))
            for name, text in held_out.items()
        }
    validation, *tests = held_out.values()
    return replace(
        corpus,
        counts={**corpus.counts, **counts},
        validation=validation,
        tests=dict(zip(corpus.tests, tests, strict=True)),
    )


def _read(entry: Path) -> Found | None:
    """Return an entry of the cache; None if it does not exist or is damaged."""
    try:
        return parse_checked_line(entry.read_bytes().removesuffix(b"\n"))
    except (OSError, ValueError):
        return None


def _write(entry: Path, found: Found) -> None:
    try:
        write_atomically(entry, checked_line(found))
    except OSError as error:
        log.warning("%s cannot be written (%s): the near-duplicates are not cached.", entry, error.strerror)


def _similarity(size: int, kinds: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the similarity of each pair of a split."""
    same, near, other = SIMILARITIES
    labels = [other] * size
    for kind, label in (("source_within_one_word", near), ("source_in_train", same)):
        for pair in kinds[kind]:
            labels[pair] = label
    return labels


def near_duplicates(
    train: ParallelText, held_out: Mapping[str, ParallelText], languages: tuple[str, str] = ("", "")
) -> Found:
    """Return, for each held-out split, the indices of the pairs that are similar to a training pair or to each other.

    The kinds:

    - `source_in_train`, `reference_in_train`: the side equals that of a training pair after normalization (Unicode NFC,
      case, punctuation, white space, English contractions: "I'm" is "I am").
    - `source_within_one_word`: after normalization, the source differs from a training source by at most one replaced,
      inserted or deleted word, and they have another word in common. Sources of more than `LONGEST` words
      count if they are equal.
    - `shared_source`: another pair of the split has exactly the same source.

    Without training pairs, only the last one is present.

    Args:
        languages: the labels of source and target, whose rules case folding follows.
    """
    pairs = {
        name: list(_read_words(text, languages, "Reading held-out pairs")) for name, text in held_out.items()
    }
    same, shorter, references = _find(train, chain.from_iterable(pairs.values()), languages)
    found: Found = {}
    for name, text in held_out.items():
        kinds = found[name] = {}
        if train:
            kinds["source_in_train"] = [i for i, (source, _) in enumerate(pairs[name]) if source in same]
            kinds["reference_in_train"] = [
                i for i, (_, target) in enumerate(pairs[name]) if target in references
            ]
            kinds["source_within_one_word"] = [
                i
                for i, (source, _) in enumerate(pairs[name])
                if source in shorter
                or not same.isdisjoint((source, *_replace_one(source), *_delete_one(source)))
            ]
        copies = Counter(text.source)
        kinds["shared_source"] = [i for i, source in enumerate(text.source) if copies[source] > 1]
    return found


def _find(
    train: ParallelText, held_out: Iterable[tuple[Words, Words]], languages: tuple[str, str]
) -> tuple[set[Words], set[Words], set[Words]]:
    """Return what training sentences have in common with held-out sentences.

    Returns:
        same: training sources, as they are and with one word replaced, that equal a held-out source, as it is or with one
            word replaced or deleted.
        shorter: training sources with one word deleted that equal a held-out source.
        references: training targets that equal a held-out target.
    """
    known: set[Words] = set()
    known_references = set()
    lengths = set()
    for source, target in held_out:
        lengths |= {len(source) - 1, len(source), len(source) + 1}
        known.update([source], _replace_one(source), _delete_one(source))
        known_references.add(target)
    same: set[Words] = set()
    shorter: set[Words] = set()
    references: set[Words] = set()
    for source, target in _read_words(train, languages, "Looking for near-duplicates"):
        if len(source) in lengths:  # a long sentence has very many variants
            same |= known.intersection([source, *_replace_one(source)])
            shorter |= known.intersection(_delete_one(source))
        references |= known_references.intersection([target])
    return same, shorter, references


def _read_words(
    text: ParallelText, languages: tuple[str, str], description: str
) -> Iterator[tuple[Words, Words]]:
    for source, target in read_pairs(text, description):
        yield tuple(words(source, languages[0])), tuple(words(target, languages[1]))


def _replace_one(sentence: Words) -> list[Words]:
    """Return the sentence with one word replaced by None, for each of `_positions`."""
    return [(*sentence[:i], None, *sentence[i + 1 :]) for i in _positions(sentence)]


def _delete_one(sentence: Words) -> list[Words]:
    """Return the sentence without one word, for each of `_positions`."""
    return [sentence[:i] + sentence[i + 1 :] for i in _positions(sentence)]


def _positions(sentence: Words) -> Sequence[int]:
    """Return the positions of the words that are changed, one at a time."""
    return range(len(sentence)) if 1 < len(sentence) <= LONGEST else ()


def words(text: str, language: str = "") -> list[str]:
    """Return the words of a sentence after normalization; see `near_duplicates` and `data.words.letter_words`."""
    text = fold_case(unicodedata.normalize("NFC", text), language).replace("’", "'")
    if "'" in text:
        text = _CONTRACTION.sub(lambda match: _EXPANDED[match[0]], text)
    return letter_words(text)
