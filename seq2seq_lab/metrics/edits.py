"""Edit distances, and the edits of TER.

C texts have the same number H of words; R are the words of a reference.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics import lib_ter
from sacrebleu.metrics.ter import TER

Ids = npt.NDArray[np.integer[Any]]
_FAR = 1 << 30  # more edits than any text has
_NO_WORD = -1
_TERCOM: Any = lib_ter  # annotated for words of text, but it takes their ids too
BEAM, MOST_SHIFTS = lib_ter._BEAM_WIDTH, lib_ter._MAX_SHIFT_CANDIDATES


class FastTER(TER):
    """sacreBLEU's TER with the same counts, which compares all shifts of a text with the reference at once.

    sacreBLEU compares them one after another in Python: seconds for a text of 60 words that repeat.
    """

    def _compute_segment_statistics(
        self, hypothesis: str, ref_kwargs: dict[str, list[list[str]]]
    ) -> list[float]:
        output, references = hypothesis.split(), ref_kwargs["ref_words"]
        edits = min(translation_edits(output, reference) for reference in references)
        return [edits, sum(map(len, references)) / len(references)]


def translation_edits(output: Sequence[str], reference: Sequence[str]) -> int:
    """Return the insertions, deletions, substitutions and shifts of phrases from a text to a reference (Snover et al. 2006).

    As in sacreBLEU, the best shift is made until none lowers the edit distance, and at most `MOST_SHIFTS` are compared.
    """
    if not reference:
        return len(output)
    ids = _ids(output, reference)
    words, target = [ids[word] for word in output], [ids[word] for word in reference]
    distance = _TERCOM.BeamEditDistance(target)
    made = compared = 0
    while True:
        edits, trace = distance(words)
        shifts = [*_shifts(words, target, trace, MOST_SHIFTS - compared)]
        compared += len(shifts)
        if not shifts or compared >= MOST_SHIFTS:
            return made + edits
        shifted_CH = np.array(words)[np.array([order for _, order in shifts])]
        distances = edit_distances(shifted_CH, np.array(target), BEAM).tolist()
        gain, _, best = max((edits - distances[index], rank, index) for index, (rank, _) in enumerate(shifts))
        if gain <= 0:
            return made + edits
        made, words = made + 1, shifted_CH[best].tolist()


def _shifts(
    words: list[int], target: list[int], trace: str, most: int
) -> Iterator[tuple[tuple[int, int, int], list[int]]]:
    """Yield the shifts that are compared: their rank among shifts of equal gain, and the new order of the words.

    A phrase is shifted if the reference contains it elsewhere, and each of the two has an error.
    """
    aligned, wrong_target, wrong = _TERCOM.trace_to_alignment(_TERCOM._flip_trace(trace))
    count, order = 0, [*range(len(words))]
    for start, target_start, length in _TERCOM._find_shifted_pairs(words, target):
        target_end = target_start + length
        if not any(wrong[start : start + length]) or not any(wrong_target[target_start:target_end]):
            continue
        if start <= aligned[target_start] < start + length:
            continue
        before = -1
        for position in range(target_start - 1, target_end):
            if position >= 0 and position not in aligned:
                break
            goal = aligned[position] + 1 if position >= 0 else 0
            if goal != before:
                before, count = goal, count + 1
                yield (length, -start, -goal), _TERCOM._perform_shift(order, start, length, goal)
        if count >= most:
            return


def edit_distance(output: Sequence[str], reference: Sequence[str]) -> int:
    """Return the smallest number of insertions, deletions and substitutions between two texts."""
    ids = _ids(output, reference)
    words = np.array([[ids[word] for word in output]], np.int64)
    return int(edit_distances(words, np.array([ids[word] for word in reference], np.int64))[0])


def edit_distances(words_CH: Ids, reference_R: Ids, beam: float = math.inf) -> Ids:
    """Return the edit distance [C] of each text to a reference.

    Args:
        beam: how far from the diagonal, in words of the reference, edits are searched, as in sacreBLEU's TER.
    """
    count, length = words_CH.shape
    size = len(reference_R) + 1
    places_R = np.arange(size, dtype=np.int32)
    reference_R = np.concatenate(([_NO_WORD], reference_R))
    # The first column is before the first place: no edits lead there.
    edits_CR = np.full((count, size + 1), _FAR, np.int32)
    edits_CR[:, 1:] = places_R
    slope = (size - 1) / max(length, 1)
    if beam < slope / 2:
        beam = math.ceil(slope / 2 + beam)
    for row in range(1, length + 1):
        first, last = 0, size
        if beam < math.inf:
            diagonal = math.floor(row * slope)
            first = max(0, diagonal - int(beam))
            last = size if row == length else min(size, diagonal + int(beam))
        changed_CR = edits_CR[:, first:last] + (reference_R[first:last] != words_CH[:, row - 1, None])
        np.minimum(changed_CR, edits_CR[:, first + 1 : last + 1] + 1, out=changed_CR)
        # An insertion adds 1 for each position: the minimum over earlier positions, each less its index.
        changed_CR -= places_R[first:last]
        np.minimum.accumulate(changed_CR, axis=1, out=changed_CR)
        edits_CR[:] = _FAR
        np.add(changed_CR, places_R[first:last], out=edits_CR[:, first + 1 : last + 1])
    return edits_CR[:, -1]


def _ids(*texts: Sequence[str]) -> dict[str, int]:
    return {word: index for index, word in enumerate(dict.fromkeys(word for text in texts for word in text))}
