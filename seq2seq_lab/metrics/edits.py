"""Edit distances: C texts have the same number H of words; R are the words of a reference."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.integer[Any]]
_FAR = 1 << 30  # more edits than any text has
_NO_WORD = -1


def edit_distance(output: Sequence[str], reference: Sequence[str]) -> int:
    """Return the smallest number of insertions, deletions and substitutions between two texts."""
    ids = number(output, reference)
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


def number(*texts: Sequence[str]) -> dict[str, int]:
    """Return an id for each different word of some texts."""
    return {word: index for index, word in enumerate(dict.fromkeys(word for text in texts for word in text))}
