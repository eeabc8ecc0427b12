"""IBM model 1 (Brown et al. 1993, section 4.1): word translation probabilities from sentence pairs, and alignments."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.alignment import Link

Indices = npt.NDArray[np.int64]
Words = Sequence[Sequence[str]]


class _Cells(NamedTuple):
    """Each target word with each source word of its sentence, and before them with NULL: arrays of C cells.

    Attributes:
        keys_C: source id · (number of target ids) + target id.
        token_C: the index of the target word among all, in ascending order.
        source_C: the position of the source word; −1 for NULL.
    """

    keys_C: Indices
    token_C: Indices
    source_C: Indices


@dataclass(frozen=True)
class Ibm1:
    """A trained model.

    Attributes:
        source_ids, target_ids: the id of each word; NULL is source id 0. Target id 0 stands for unknown words.
        keys_K: the pairs of words that are in one sentence pair of the training text, sorted; see `_Cells`.
        probabilities_K: t(target word | source word) of each.
    """

    source_ids: Mapping[str, int]
    target_ids: Mapping[str, int]
    keys_K: Indices
    probabilities_K: npt.NDArray[np.float64]

    def probability(self, source: str | None, target: str) -> float:
        """Return t(target | source) of two words; None is NULL. 0 for words that no training pair has together."""
        cells = _cells([[] if source is None else [source]], [[target]], self.source_ids, self.target_ids)
        return float(self._look_up(cells.keys_C)[-1])

    def align(self, sources: Words, targets: Words) -> list[set[Link]]:
        """Return the most probable alignment of each sentence pair: (source word, target word) links.

        A target word has no link if NULL is at least as probable as each source word. Of equal source words, the first one
        has the link.
        """
        if not any(map(len, targets)):
            return [set() for _ in targets]
        cells = _cells(sources, targets, self.source_ids, self.target_ids)
        weights_C = self._look_up(cells.keys_C)
        starts = np.flatnonzero(np.diff(cells.token_C, prepend=-1))
        best_C = np.repeat(np.maximum.reduceat(weights_C, starts), np.diff([*starts, len(weights_C)]))
        hits = np.flatnonzero(weights_C == best_C)
        _, first = np.unique(cells.token_C[hits], return_index=True)
        chosen = cells.source_C[hits[first]].tolist()
        links, token = list[set[Link]](), 0
        for target in targets:
            here = enumerate(chosen[token : token + len(target)])
            links.append({(source, position) for position, source in here if source >= 0})
            token += len(target)
        return links

    def _look_up(self, keys_C: Indices) -> npt.NDArray[np.float64]:
        place_C = np.searchsorted(self.keys_K, keys_C).clip(max=len(self.keys_K) - 1)
        return np.where(self.keys_K[place_C] == keys_C, self.probabilities_K[place_C], 0.0)


def train_ibm1(sources: Words, targets: Words, iterations: int = 5) -> Ibm1:
    """Train by expectation maximisation, from equal probabilities.

    Memory and time grow with the sum over the pairs of (source words + 1) · (target words).

    Args:
        sources, targets: the words of N sentence pairs.
        iterations: the number of iterations of EM.

    Raises:
        UserError: the targets have no words, the numbers of sentences differ, or `iterations` is below 1.
    """
    if len(sources) != len(targets) or not any(map(len, targets)) or iterations < 1:
        raise UserError(
            f"IBM model 1: {len(sources):,} sources, {len(targets):,} targets with {sum(map(len, targets)):,} words, "
            f"iterations={iterations}. Give one target for each source, words, and iterations of at least 1."
        )
    source_ids, target_ids = _ids(sources), _ids(targets)
    cells = _cells(sources, targets, source_ids, target_ids)
    keys_K, pair_C = np.unique(cells.keys_C, return_inverse=True)
    source_K = keys_K // (len(target_ids) + 1)
    probabilities_K = np.ones(len(keys_K))
    for _ in range(iterations):
        weights_C = probabilities_K[pair_C]
        weights_C /= np.bincount(cells.token_C, weights_C)[cells.token_C]
        counts_K = np.bincount(pair_C, weights_C)
        probabilities_K = counts_K / np.bincount(source_K, counts_K)[source_K]
    return Ibm1(source_ids, target_ids, keys_K, probabilities_K)


def _ids(sentences: Iterable[Iterable[str]]) -> dict[str, int]:
    words = dict.fromkeys(word for sentence in sentences for word in sentence)
    return {word: number for number, word in enumerate(words, start=1)}


def _cells(
    sources: Words, targets: Words, source_ids: Mapping[str, int], target_ids: Mapping[str, int]
) -> _Cells:
    """Return the cells of sentence pairs. An unknown source word has an id that no key has, an unknown target word id 0."""
    unknown, keys, counts, positions = len(source_ids) + 1, [], [], []
    for source, target in zip(sources, targets, strict=True):
        source_S = np.array([0, *(source_ids.get(word, unknown) for word in source)], np.int64)
        target_T = np.array([target_ids.get(word, 0) for word in target], np.int64)
        keys.append((source_S[None, :] * (len(target_ids) + 1) + target_T[:, None]).ravel())
        counts += [len(source_S)] * len(target)
        positions.append(np.tile(np.arange(-1, len(source)), len(target)))
    return _Cells(np.concatenate(keys), np.repeat(np.arange(len(counts)), counts), np.concatenate(positions))
