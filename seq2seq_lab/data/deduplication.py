"""Pairs that stand more than once in a corpus: counted in bounded memory, at any number of pairs."""

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

_CHUNK = 10_000  # pairs looked up at a time

# Sentences are compared by 128 bits of their hash: among a thousand million, two different ones have the same
# with a probability below 1e-20. Bytes, which numpy sorts and searches as strings.
_KEY_BYTES = 16
Keys = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


class Repeats(NamedTuple):
    """Which pairs repeat others; one truth value a pair.

    `duplicates`, of train and then each held-out split: the pair equals an earlier one of its split.
    `leaks`, of train: the source side stands in a held-out split, after normalisation.
    """

    duplicates: list[Mask]
    leaks: Mask


def count_repeats(train: ParallelText, held_out: Sequence[ParallelText], counts: Counter[str]) -> Repeats:
    """Find, and keep, pairs that repeat an earlier pair of their split and held-out pairs seen in training.

    Duplicates are exact. A leaked pair is a held-out pair that equals a training pair after NFC, case folding
    and the collapsing of white space, so exact ones are among them; a leaked source is a held-out pair whose
    source side stands in training, with whatever target, so leaked pairs are among those.
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
    counts["leaked_pairs"] += known_pairs.marked()
    counts["leaked_sources"] += known_sources.marked()
    return repeats


class Known:
    """Keys in sorted order, and which of them have been seen elsewhere."""

    def __init__(self) -> None:
        self._added: list[Keys] = []

    def add(self, keys: Keys) -> None:
        """Add keys, all of one type."""
        self._added.append(keys)

    def sort(self) -> None:
        """Prepare the keys for `mark`; none can be added from now on."""
        added = np.concatenate(self._added) if self._added else np.zeros(0, np.uint64)
        self._keys, self._places = np.unique(added, return_inverse=True)
        self._added.clear()
        self._seen = np.zeros(len(self._keys), np.bool_)

    def mark(self, keys: Keys) -> Mask:
        """Say which of the keys are known, and remember those as seen."""
        if not len(self._keys):
            return np.zeros(len(keys), np.bool_)
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found: Mask = self._keys[place] == keys
        self._seen[place[found]] = True
        return found

    def seen(self) -> Mask:
        """Return of each key, in the order in which they were added, whether it was seen."""
        seen: Mask = self._seen[self._places]
        return seen

    def marked(self) -> int:
        """The number of keys added that were seen; one added twice counts twice."""
        return int(self.seen().sum())


def _duplicates(split: ParallelText) -> Mask:
    """Say of each pair whether it equals an earlier one."""
    pairs = progress(zip(split.source, split.target, strict=True), "Looking for duplicates", len(split))
    # The length says where the source ends, whatever the sentences hold.
    keys = _keys(f"{len(source)} {source}{target}" for source, target in pairs)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    repeated = np.zeros(len(keys), np.bool_)
    repeated[order[1:][keys[1:] == keys[:-1]]] = True
    return repeated


def _normalised_keys(split: ParallelText, description: str) -> Iterator[tuple[Keys, Keys]]:
    """Yield the keys of the source sides and of the pairs, normalised, some at a time."""
    pairs = progress(zip(split.source, split.target, strict=True), description, len(split))
    while chunk := list(islice(pairs, _CHUNK)):
        sources = [_normalised(source) for source, _ in chunk]
        # No normalised sentence holds a line break: it says where the source ends.
        both = (f"{left}\n{_normalised(target)}" for left, (_, target) in zip(sources, chunk, strict=True))
        yield _keys(sources), _keys(both)


def _normalised(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def _keys(texts: Iterable[str]) -> Keys:
    keys = bytearray()
    for text in texts:
        keys += hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()
    return np.frombuffer(keys, f"S{_KEY_BYTES}")
