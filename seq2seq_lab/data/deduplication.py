"""Pairs that occur more than once in a corpus."""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.languages import fold_case
from seq2seq_lab.data.progress import progress

# Pairs of one split are compared by 128 bits of a hash: the probability that two of 10^9 pairs have the same is below
# 1e-20. NumPy sorts the bytes as strings.
_KEY_BYTES = 16
Mask = npt.NDArray[np.bool_]


class Repeats(NamedTuple):
    """Masks over the pairs that repeat others.

    Attributes:
        duplicates: for train and each held-out split: the pair equals an earlier pair of its split.
        leaks: for train: the source side is in a held-out split, after normalization.
    """

    duplicates: list[Mask]
    leaks: Mask


def count_repeats(
    train: ParallelText,
    held_out: Sequence[ParallelText],
    counts: Counter[str],
    languages: tuple[str, str] = ("", ""),
) -> Repeats:
    """Find and count pairs that repeat an earlier pair of their split, and held-out pairs that are in training.

    - `duplicate_pairs`: pairs that equal an earlier pair of their split exactly
    - `leaked_pairs`: held-out pairs that equal a training pair after normalization (NFC, case folding, white space)
    - `leaked_sources`: held-out pairs whose source side equals that of a training pair after normalization

    Args:
        languages: the labels of source and target, whose rules case folding follows.
    """
    known = [
        _normalized(pair, languages)
        for split in held_out
        for pair in read_pairs(split, "Normalizing held-out pairs")
    ]
    known_pairs, known_sources = set(known), {source for source, _ in known}
    seen_pairs, seen_sources = set(), set()
    leaks = np.zeros(len(train), np.bool_)
    for index, texts in enumerate(read_pairs(train, "Looking for leaks")):
        pair = _normalized(texts, languages)
        if pair[0] in known_sources:
            leaks[index] = True
            seen_sources.add(pair[0])
            if pair in known_pairs:
                seen_pairs.add(pair)
    repeats = Repeats(list(map(_duplicates, (train, *held_out))), leaks)
    counts["duplicate_pairs"] += sum(int(mask.sum()) for mask in repeats.duplicates)
    counts["leaked_pairs"] += sum(pair in seen_pairs for pair in known)
    counts["leaked_sources"] += sum(source in seen_sources for source, _ in known)
    return repeats


def read_pairs(split: ParallelText, description: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a split, with a progress bar."""
    return progress(zip(split.source, split.target, strict=True), description, len(split))


def _duplicates(split: ParallelText) -> Mask:
    """Return for each pair whether it equals an earlier one."""
    keys = bytearray()
    for source, target in read_pairs(split, "Looking for duplicates"):
        # The length shows the end of the source, whatever characters the sentences contain.
        text = f"{len(source)} {source}{target}"
        keys += hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()
    key_N = np.frombuffer(keys, f"S{_KEY_BYTES}")
    order_N = np.argsort(key_N, kind="stable")
    key_N = key_N[order_N]
    repeated = np.zeros(len(key_N), np.bool_)
    repeated[order_N[1:][key_N[1:] == key_N[:-1]]] = True
    return repeated


def _normalized(pair: tuple[str, str], languages: tuple[str, str]) -> tuple[str, str]:
    source, target = (
        " ".join(fold_case(unicodedata.normalize("NFC", text), language).split())
        for text, language in zip(pair, languages, strict=True)
    )
    return source, target
