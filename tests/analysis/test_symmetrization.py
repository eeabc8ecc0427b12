"""Symmetrization: a slow reference that is written from the pseudo code in the manual of Moses."""

from random import Random

import numpy as np
import pytest

from seq2seq_lab.analysis.symmetrization import SYMMETRIZATIONS, grow_diag, grow_diag_final, intersect, union

NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def slow(forward, backward, rows, columns, final):
    """The pseudo code over all cells; e are target words, f source words."""
    e2f, f2e = np.zeros((rows, columns), bool), np.zeros((rows, columns), bool)
    for f, e in forward:
        e2f[e, f] = True
    for f, e in backward:
        f2e[e, f] = True
    alignment = e2f & f2e

    def add(e, f, allowed):
        free = not alignment[e].any() or not alignment[:, f].any()
        if not (free and allowed[e, f]):
            return False
        alignment[e, f] = True
        return True

    added = True
    while added:
        added = False
        for e in range(rows):
            for f in range(columns):
                if alignment[e, f]:
                    for down, right in NEIGHBORS:
                        if 0 <= e + down < rows and 0 <= f + right < columns:
                            added |= add(e + down, f + right, e2f | f2e)
    for allowed in (e2f, f2e) if final else ():
        for e in range(rows):
            for f in range(columns):
                add(e, f, allowed)
    return {(int(f), int(e)) for e, f in np.argwhere(alignment)}


def test_the_heuristics_equal_their_definition_on_random_alignments() -> None:
    random = Random(1)
    grown = 0
    for _ in range(2000):
        rows, columns = random.randint(1, 7), random.randint(1, 7)
        density = random.random()
        forward, backward = (
            {(f, e) for f in range(columns) for e in range(rows) if random.random() < density}
            for _ in range(2)
        )
        before = set(forward), set(backward)
        diag, final = grow_diag(forward, backward), grow_diag_final(forward, backward)
        assert diag == slow(forward, backward, rows, columns, final=False)
        assert final == slow(forward, backward, rows, columns, final=True)
        assert intersect(forward, backward) <= diag <= final <= union(forward, backward)
        grown += len(intersect(forward, backward)) < len(diag) < len(final)
        assert (forward, backward) == before
    assert grown > 100


def test_a_point_is_added_if_one_of_its_words_is_free() -> None:
    # (1, 0) is next to (0, 0), and its source word is free although its target word is not.
    assert grow_diag({(0, 0), (1, 0)}, {(0, 0)}) == {(0, 0), (1, 0)}
    # (3, 3) is next to nothing: only the last step adds it.
    assert grow_diag({(0, 0), (3, 3)}, {(0, 0)}) == {(0, 0)}
    assert grow_diag_final({(0, 0), (3, 3)}, {(0, 0)}) == {(0, 0), (3, 3)}
    # Both words of (0, 1) have links.
    assert grow_diag_final({(0, 0), (0, 1), (1, 1)}, {(0, 0), (1, 1)}) == {(0, 0), (1, 1)}


@pytest.mark.parametrize("name", SYMMETRIZATIONS)
def test_an_empty_direction_is_not_an_error(name) -> None:
    expected = {(1, 2)} if name in ("union", "grow-diag-final") else set()
    assert SYMMETRIZATIONS[name]({(1, 2)}, set()) == expected
