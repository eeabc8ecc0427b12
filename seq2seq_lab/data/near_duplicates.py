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
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

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

BATCH = 1000  # pairs that are hashed at once
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that it has an inverse modulo 2^64
INVERSE = np.uint64(pow(int(BASE), -1, 2**64))
PLACEHOLDER = np.uint64(0xD1B54A32D192ED03)  # the hash of a replaced word

_CONTRACTION = re.compile(r"\b(?:won't|can't|shan't|let's)\b|n't\b|'(?:ll|ve|re|m|d|s)\b")
_EXPANDED = {"won't": "will not", "can't": "cannot", "shan't": "shall not", "let's": "let us", "n't": " not"}
_EXPANDED |= {"'ll": " will", "'ve": " have", "'re": " are", "'m": " am", "'d": " would", "'s": " is"}

UInts: TypeAlias = npt.NDArray[np.uint64]
Ints: TypeAlias = npt.NDArray[np.int64]
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
    same, shorter, references = _find(train, held_out.values(), languages)
    found: Found = {}
    for name, text in held_out.items():
        kinds = found[name] = {}
        if train:
            for kind in NEAR_DUPLICATES[:3]:
                kinds[kind] = []
            for i, (source, target) in enumerate(_read_words(text, languages, "Comparing held-out pairs")):
                if source in same:
                    kinds["source_in_train"].append(i)
                if target in references:
                    kinds["reference_in_train"].append(i)
                if source in shorter or not same.isdisjoint(
                    (source, *_replace_one(source), *_delete_one(source))
                ):
                    kinds["source_within_one_word"].append(i)
        copies = Counter(text.source)
        kinds["shared_source"] = [i for i, source in enumerate(text.source) if copies[source] > 1]
    return found


def _find(
    train: ParallelText, held_out: Iterable[ParallelText], languages: tuple[str, str]
) -> tuple[set[Words], set[Words], set[Words]]:
    """Return what training sentences have in common with held-out sentences.

    Of the held-out sentences only hashes are kept. A training sentence whose hash is that of another sentence by chance can
    be in a result, where it has no effect: it equals no held-out sentence.

    Returns:
        same: training sources, as they are and with one word replaced, that equal a held-out source, as it is or with one
            word replaced or deleted.
        shorter: training sources with one word deleted that equal a held-out source.
        references: training targets that equal a held-out target.
    """
    parts, known_references, lengths = [np.array([], np.uint64)], set[int](), set[int]()
    for text in held_out:
        for batch in _batches(_read_words(text, languages, "Reading held-out pairs")):
            hashes = _hash([source for source, _ in batch])
            parts += [hashes.whole_N, hashes.replaced_P, hashes.deleted_P]
            known_references.update(hash(target) for _, target in batch)
            lengths |= {len(source) + change for source, _ in batch for change in (-1, 0, 1)}
    known = np.unique(np.concatenate(parts))
    del parts
    same: set[Words] = set()
    shorter: set[Words] = set()
    references: set[Words] = set()
    for batch in _batches(_read_words(train, languages, "Looking for near-duplicates")):
        # A long sentence has very many variants.
        sources = [source for source, _ in batch if len(source) in lengths]
        hashes = _hash(sources)
        same.update(sources[i] for i in _find_known(hashes.whole_N, known))
        for i in _find_known(hashes.replaced_P, known):
            same.add(_replace(sources[hashes.sentence_P[i]], hashes.word_P[i]))
        for i in _find_known(hashes.deleted_P, known):
            shorter.add(_delete(sources[hashes.sentence_P[i]], hashes.word_P[i]))
        references.update(target for _, target in batch if hash(target) in known_references)
    return same, shorter, references


class Hashes(NamedTuple):
    """Hashes of N sentences and of their P variants, each with one word replaced or deleted.

    Attributes:
        sentence_P: the index of the sentence of a variant.
        word_P: the index of the word that is replaced or deleted.
    """

    whole_N: UInts
    replaced_P: UInts
    deleted_P: UInts
    sentence_P: Ints
    word_P: Ints


def _hash(sentences: Sequence[Words]) -> Hashes:
    """Return the hashes of sentences and of their variants, those of `_replace_one` and `_delete_one`.

    The hash of words w_0, w_1, … is the sum of hash(w_i) * BASE^i, modulo 2^64.
    """
    lengths_N = np.fromiter(map(len, sentences), np.int64, len(sentences))
    ends_N = lengths_N.cumsum()
    starts_N = ends_N - lengths_N
    sentence_W = np.arange(len(sentences)).repeat(lengths_N)
    word_W = np.arange(len(sentence_W)) - starts_N[sentence_W]
    powers = np.full(lengths_N.max(initial=0) + 1, BASE).cumprod()
    words_W = np.fromiter(map(hash, chain.from_iterable(sentences)), np.int64, len(sentence_W))
    terms_W = words_W.view(np.uint64) * powers[word_W]
    sums = np.concatenate([np.zeros(1, np.uint64), terms_W.cumsum()])
    whole_N = sums[ends_N] - sums[starts_N]
    before_W = sums[:-1] - sums[starts_N][sentence_W]
    after_W = whole_N[sentence_W] - before_W - terms_W
    varied_W = ((lengths_N > 1) & (lengths_N <= LONGEST))[sentence_W]  # as in `_positions`
    replaced_W = before_W + PLACEHOLDER * powers[word_W] + after_W
    deleted_W = before_W + after_W * INVERSE
    return Hashes(whole_N, replaced_W[varied_W], deleted_W[varied_W], sentence_W[varied_W], word_W[varied_W])


def _find_known(hashes: UInts, known: UInts) -> list[int]:
    """Return the indices of the hashes that are among the known ones, which are sorted."""
    found = known.searchsorted(hashes, "left") < known.searchsorted(hashes, "right")
    return found.nonzero()[0].tolist()


def _batches(pairs: Iterator[tuple[Words, Words]]) -> Iterator[list[tuple[Words, Words]]]:
    while batch := [*islice(pairs, BATCH)]:
        yield batch


def _read_words(
    text: ParallelText, languages: tuple[str, str], description: str
) -> Iterator[tuple[Words, Words]]:
    for source, target in read_pairs(text, description):
        yield tuple(words(source, languages[0])), tuple(words(target, languages[1]))


def _replace_one(sentence: Words) -> list[Words]:
    """Return the sentence with one word replaced by None, for each of `_positions`."""
    return [_replace(sentence, i) for i in _positions(sentence)]


def _delete_one(sentence: Words) -> list[Words]:
    """Return the sentence without one word, for each of `_positions`."""
    return [_delete(sentence, i) for i in _positions(sentence)]


def _replace(sentence: Words, i: int) -> Words:
    return (*sentence[:i], None, *sentence[i + 1 :])


def _delete(sentence: Words, i: int) -> Words:
    return sentence[:i] + sentence[i + 1 :]


def _positions(sentence: Words) -> Sequence[int]:
    """Return the positions of the words that are changed, one at a time."""
    return range(len(sentence)) if 1 < len(sentence) <= LONGEST else ()


def words(text: str, language: str = "") -> list[str]:
    """Return the words of a sentence after normalization; see `near_duplicates` and `data.words.letter_words`."""
    text = fold_case(unicodedata.normalize("NFC", text), language).replace("’", "'")
    if "'" in text:
        text = _CONTRACTION.sub(lambda match: _EXPANDED[match[0]], text)
    return letter_words(text)
