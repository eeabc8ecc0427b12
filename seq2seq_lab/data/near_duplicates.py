"""Held-out pairs that are similar to training pairs, counted in one pass over the training split."""

import hashlib
import json
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.deduplication import read_pairs
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.files import checked_line, parse_checked_line, write_atomically

log = logging.getLogger(__name__)

# Increase it when a change of the code changes the counts.
_FORMAT = 1

_WORD = re.compile(r"\w+")
_CONTRACTION = re.compile(r"\b(?:won't|can't|shan't|let's)\b|n't\b|'(?:ll|ve|re|m|d|s)\b")
_EXPANDED = {"won't": "will not", "can't": "cannot", "shan't": "shall not", "let's": "let us", "n't": " not"}
_EXPANDED |= {"'ll": " will", "'ve": " have", "'re": " are", "'m": " am", "'d": " would", "'s": " is"}

Words = tuple[str | None, ...]  # None in the place of any word

# The counts of each held-out split; see `near_duplicates`.
NEAR_DUPLICATES = ("source_in_train", "reference_in_train", "source_within_one_word", "shared_source")


def with_near_duplicates(corpus: Corpus, cache: Path) -> Corpus:
    """Return the corpus with the counts of `near_duplicates`, which are cached by the text of the corpus."""
    held_out = {"validation": corpus.validation, **corpus.tests}
    digest = hashlib.sha256(json.dumps([_FORMAT, *held_out]).encode())
    for text in (corpus.train, *held_out.values()):
        digest.update(Lines.of(text.source).digest() + Lines.of(text.target).digest())
    entry = cache / "near_duplicates" / f"{digest.hexdigest()}.json"
    try:
        counts = parse_checked_line(entry.read_bytes().removesuffix(b"\n"))
    except (OSError, ValueError):  # not in the cache, or damaged
        counts = near_duplicates(corpus.train, held_out)
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(entry, checked_line(counts))
        except OSError as error:
            log.warning(
                "%s cannot be written (%s): the near-duplicates are not cached.", entry, error.strerror
            )
    return replace(corpus, counts={**corpus.counts, **counts})


def near_duplicates(train: ParallelText, held_out: Mapping[str, ParallelText]) -> dict[str, int]:
    """Count the held-out pairs that are similar to a training pair or to each other.

    The keys and the pairs of each split SPLIT that they count:

    - `SPLIT/source_in_train`, `SPLIT/reference_in_train`: the side equals that of a training pair after normalisation
      (Unicode NFC, case, punctuation, white space, English contractions: "I'm" is "I am").
    - `SPLIT/source_within_one_word`: after normalisation, the source differs from a training source by at most one
      replaced, inserted or deleted word, and they have another word in common.
    - `SPLIT/shared_source`: another pair of the split has exactly the same source.

    Without training pairs, only the last one is present.
    """
    pairs = {name: list(_read_words(text, "Reading held-out pairs")) for name, text in held_out.items()}
    same, shorter, references = _find(train, chain.from_iterable(pairs.values()))
    counts = {}
    for name, text in held_out.items():
        if train:
            near = [
                source in shorter
                or not same.isdisjoint((source, *_replace_one(source), *_delete_one(source)))
                for source, _ in pairs[name]
            ]
            counts[f"{name}/source_in_train"] = sum(source in same for source, _ in pairs[name])
            counts[f"{name}/reference_in_train"] = sum(target in references for _, target in pairs[name])
            counts[f"{name}/source_within_one_word"] = sum(near)
        copies = Counter(text.source)
        counts[f"{name}/shared_source"] = sum(count for count in copies.values() if count > 1)
    return counts


def _find(
    train: ParallelText, held_out: Iterable[tuple[Words, Words]]
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
    for source, target in _read_words(train, "Looking for near-duplicates"):
        if len(source) in lengths:  # a long sentence has very many variants
            same |= known.intersection([source, *_replace_one(source)])
            shorter |= known.intersection(_delete_one(source))
        references |= known_references.intersection([target])
    return same, shorter, references


def _read_words(text: ParallelText, description: str) -> Iterator[tuple[Words, Words]]:
    for source, target in read_pairs(text, description):
        yield tuple(words(source)), tuple(words(target))


def _replace_one(sentence: Words) -> list[Words]:
    """Return the sentence with None in the place of each word; nothing for a sentence of one word."""
    return [(*sentence[:i], None, *sentence[i + 1 :]) for i in range(len(sentence)) if len(sentence) > 1]


def _delete_one(sentence: Words) -> list[Words]:
    """Return the sentence without each of its words; nothing for a sentence of one word."""
    return [sentence[:i] + sentence[i + 1 :] for i in range(len(sentence)) if len(sentence) > 1]


def words(text: str) -> list[str]:
    """Return the words of a sentence after normalisation; see `near_duplicates`."""
    text = unicodedata.normalize("NFC", text).casefold().replace("’", "'")
    if "'" in text:
        text = _CONTRACTION.sub(lambda match: _EXPANDED[match[0]], text)
    return _WORD.findall(text)
