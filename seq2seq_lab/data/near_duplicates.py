"""Held-out pairs that are similar to training pairs, counted in one pass over the training split."""

import hashlib
import json
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.deduplication import Known, Mask, pair_chunks
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.files import write_atomically

log = logging.getLogger(__name__)

# Increase it when a change of the code changes the counts.
_FORMAT = 1
_CACHED = 1 << 18  # words whose hash is cached

# A sentence's hash is Σ word(i) · BASE^i modulo 2^64, with words hashed to 64 random bits. Replacing or deleting a word
# then costs a few operations, whatever the length of the sentence. Two different sentences have the same hash with a
# probability of about 2^-64 (2^-54 if one is a permutation of the other).
_BASE = 0x9E3779B97F4A7C13
_INVERSE = np.uint64(pow(_BASE, -1, 1 << 64))
_ANY_WORD = np.uint64(0xD1B54A32D192ED03)

_WORD = re.compile(r"\w+")
_CONTRACTION = re.compile(r"\b(?:won't|can't|shan't|let's)\b|n't\b|'(?:ll|ve|re|m|d|s)\b")
_EXPANDED = {"won't": "will not", "can't": "cannot", "shan't": "shall not", "let's": "let us", "n't": " not"}
_EXPANDED |= {"'ll": " will", "'ve": " have", "'re": " are", "'m": " am", "'d": " would", "'s": " is"}

Hashes = npt.NDArray[np.uint64]

# The counts of each held-out split; see `near_duplicates`.
NEAR_DUPLICATES = ("source_in_train", "reference_in_train", "source_within_one_word", "shared_source")


def with_near_duplicates(corpus: Corpus, cache: Path) -> Corpus:
    """Return the corpus with the counts of `near_duplicates`, which are cached by the text of the corpus."""
    held_out = {"validation": corpus.validation, **corpus.tests}
    digest = hashlib.sha256(json.dumps([_FORMAT, *held_out]).encode())
    for text in (corpus.train, *held_out.values()):
        digest.update(Lines.of(text.source).digest() + Lines.of(text.target).digest())
    entry = cache / "near_duplicates" / f"{digest.hexdigest()}.json"
    if entry.exists():
        counts = json.loads(entry.read_text("utf-8"))
    else:
        counts = near_duplicates(corpus.train, held_out)
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(entry, json.dumps(counts))
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
    masks = _find(train, list(held_out.values())) if train else {}
    start, counts = 0, {}
    for name, text in held_out.items():
        part = slice(start, start + len(text))
        start += len(text)
        for key, mask in masks.items():
            counts[f"{name}/{key}"] = int(mask[part].sum())
        copies = Counter(text.source)
        counts[f"{name}/shared_source"] = sum(count for count in copies.values() if count > 1)
    return counts


def _find(train: ParallelText, held_out: Sequence[ParallelText]) -> dict[str, Mask]:
    """Return, for each kind of near-duplicate, a mask over the pairs of all held-out splits."""
    whole, replaced, deleted, references, longer = Known(), Known(), Known(), Known(), Known()
    word_hashes = _WordHashes()
    word_pair = [np.zeros(0, np.int64)]  # the pair of each word
    pairs = 0
    for text in held_out:
        for source, target in _chunks(text, word_hashes, "Hashing held-out pairs"):
            for known in (whole, longer):
                known.add(source.whole_N)
            replaced.add(source.replaced_W)
            deleted.add(source.deleted_W)
            references.add(target.whole_N)
            word_pair.append(source.sentence_W + pairs)
            pairs += len(source.whole_N)
    for known in (whole, replaced, deleted, references, longer):
        known.sort()
    for source, target in _chunks(train, word_hashes, "Looking for near-duplicates"):
        whole.mark(source.whole_N)
        replaced.mark(source.replaced_W)
        deleted.mark(source.whole_N)
        longer.mark(source.deleted_W)  # training sentences with one more word
        references.mark(target.whole_N)
    near = whole.seen() | longer.seen()
    near[np.concatenate(word_pair)[replaced.seen() | deleted.seen()]] = True
    return {
        "source_in_train": whole.seen(),
        "reference_in_train": references.seen(),
        "source_within_one_word": near,
    }


class _Sentences(NamedTuple):
    """Hashes of N sentences; W is the number of words in the sentences with more than one word.

    Attributes:
        whole_N: the hash of each sentence.
        replaced_W: the hash of the sentence with this word replaced with a placeholder.
        deleted_W: the hash of the sentence without this word.
        sentence_W: the number of the word's sentence.
    """

    whole_N: Hashes
    replaced_W: Hashes
    deleted_W: Hashes
    sentence_W: npt.NDArray[np.int64]


def _chunks(
    text: ParallelText, known: "_WordHashes", description: str
) -> Iterator[tuple[_Sentences, _Sentences]]:
    """Yield the hashes of both sides, in chunks of pairs."""
    for chunk in pair_chunks(text, description):
        sources, targets = zip(*chunk, strict=True)
        yield _hashes(sources, known), _hashes(targets, known)


class _WordHashes(dict[str, int]):
    """The hash of each word, computed on the first access."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _CACHED:
            self.clear()
        self[word] = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
        return self[word]


def _hashes(lines: Sequence[str], known: _WordHashes) -> _Sentences:
    rows = [words(line) for line in lines]
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    starts = np.cumsum(lengths) - lengths
    sentence_W = np.repeat(np.arange(len(rows)), lengths)
    word_W = np.fromiter(map(known.__getitem__, chain.from_iterable(rows)), np.uint64, len(sentence_W))
    # All sums and products are modulo 2^64.
    powers = np.full(max(1, int(lengths.max())), _BASE, np.uint64)
    powers[0] = 1
    power_W = np.multiply.accumulate(powers)[np.arange(len(word_W)) - starts[sentence_W]]
    term_W = word_W * power_W
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(term_W)])
    whole_N = sums[starts + lengths] - sums[starts]
    before_W = sums[:-1] - sums[starts[sentence_W]]
    after_W = whole_N[sentence_W] - before_W - term_W
    others_W = lengths[sentence_W] > 1
    return _Sentences(
        whole_N=whole_N,
        replaced_W=(before_W + after_W + _ANY_WORD * power_W)[others_W],
        deleted_W=(before_W + after_W * _INVERSE)[others_W],
        sentence_W=sentence_W[others_W],
    )


def words(text: str) -> list[str]:
    """Return the words of a sentence after normalisation; see `near_duplicates`."""
    text = unicodedata.normalize("NFC", text).casefold().replace("’", "'")
    if "'" in text:
        text = _CONTRACTION.sub(lambda match: _EXPANDED[match[0]], text)
    return _WORD.findall(text)
