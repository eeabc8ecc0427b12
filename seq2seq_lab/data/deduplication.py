"""Pairs that occur more than once in a corpus, found by their hashes."""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.progress import progress

_CHUNK = 10_000  # pairs hashed at a time

# Sentences are compared by 128 bits of a hash: the probability that two of 10^9 sentences have the same is below 1e-20.
# NumPy sorts and searches the bytes as strings.
_KEY_BYTES = 16
Keys = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


class Repeats(NamedTuple):
    """Masks over the pairs that repeat others.

    Attributes:
        duplicates: for train and each held-out split: the pair equals an earlier pair of its split.
        leaks: for train: the source side is in a held-out split, after normalisation.
    """

    duplicates: list[Mask]
    leaks: Mask


def count_repeats(train: ParallelText, held_out: Sequence[ParallelText], counts: Counter[str]) -> Repeats:
    """Find and count pairs that repeat an earlier pair of their split, and held-out pairs that are in training.

    - `duplicate_pairs`: pairs that equal an earlier pair of their split exactly
    - `leaked_pairs`: held-out pairs that equal a training pair after normalisation (NFC, case folding, white space)
    - `leaked_sources`: held-out pairs whose source side equals that of a training pair after normalisation
    """
    known_pairs, known_sources = Known(), Known()
    for split in held_out:
        for sources, pairs in _normalised_keys(split, "Normalising held-out pairs"):
            known_sources.add(sources)
            known_pairs.add(pairs)
    known_sources.sort()
    known_pairs.sort()
    leaks = [np.zeros(0, np.bool_)]
    for sources, pairs in _normalised_keys(train, "Looking for leaks"):
        leaks.append(known_sources.mark(sources))
        known_pairs.mark(pairs)
    repeats = Repeats(list(map(_duplicates, (train, *held_out))), np.concatenate(leaks))
    counts["duplicate_pairs"] += sum(int(mask.sum()) for mask in repeats.duplicates)
    counts["leaked_pairs"] += int(known_pairs.seen().sum())
    counts["leaked_sources"] += int(known_sources.seen().sum())
    return repeats


def pair_chunks(split: ParallelText, description: str) -> Iterator[list[tuple[str, str]]]:
    """Yield the pairs of a split in lists, with a progress bar."""
    pairs = progress(zip(split.source, split.target, strict=True), description, len(split))
    while chunk := list(islice(pairs, _CHUNK)):
        yield chunk


class Known:
    """A sorted set of keys that records which of them were seen elsewhere."""

    def __init__(self) -> None:
        self._added: list[Keys] = []

    def add(self, keys: Keys) -> None:
        """Add keys of the same type."""
        self._added.append(keys)

    def sort(self) -> None:
        """Prepare the keys for `mark`; no keys can be added after this."""
        added = np.concatenate(self._added) if self._added else np.zeros(0, np.uint64)
        self._keys, self._places = np.unique(added, return_inverse=True)
        self._added.clear()
        self._seen = np.zeros(len(self._keys), np.bool_)

    def mark(self, keys: Keys) -> Mask:
        """Return which of the given keys are in the set, and record them as seen."""
        if not len(self._keys):
            return np.zeros(len(keys), np.bool_)
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known: Mask = self._keys[place] == keys
        self._seen[place[known]] = True
        return known

    def seen(self) -> Mask:
        """Return for each added key, in the order of addition and with repeats, whether it was seen."""
        seen: Mask = self._seen[self._places]
        return seen


def _duplicates(split: ParallelText) -> Mask:
    """Return for each pair whether it equals an earlier one."""
    pairs = progress(zip(split.source, split.target, strict=True), "Looking for duplicates", len(split))
    # The length shows the end of the source, whatever characters the sentences contain.
    keys = _keys(f"{len(source)} {source}{target}" for source, target in pairs)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    repeated = np.zeros(len(keys), np.bool_)
    repeated[order[1:][keys[1:] == keys[:-1]]] = True
    return repeated


def _normalised_keys(split: ParallelText, description: str) -> Iterator[tuple[Keys, Keys]]:
    """Yield the keys of the normalised source sides and pairs, in chunks."""
    for chunk in pair_chunks(split, description):
        sources = [_normalised(source) for source, _ in chunk]
        # A normalised sentence contains no line break: it shows the end of the source.
        both = (f"{left}\n{_normalised(target)}" for left, (_, target) in zip(sources, chunk, strict=True))
        yield _keys(sources), _keys(both)


def _normalised(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def _keys(texts: Iterable[str]) -> Keys:
    keys = bytearray()
    for text in texts:
        keys += hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()
    return np.frombuffer(keys, f"S{_KEY_BYTES}")
