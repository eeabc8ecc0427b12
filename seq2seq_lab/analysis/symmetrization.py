"""One word alignment from two directions: intersection, union, grow-diag, grow-diag-final.

Och and Ney 2003, section 4.6; Koehn et al. 2005 ("Edinburgh system description for the 2005 IWSLT speech translation
evaluation"). The order of the points is that of the pseudo code in the manual of Moses, in which a point is added if its
source word *or* its target word has no link yet. The script of Zenkel et al. asks for both, which adds fewer points.

Links are pairs (source word, target word) in both arguments: those of a model from target to source are turned first.
"""

from collections.abc import Callable, Mapping, Set
from typing import TypeAlias

from seq2seq_lab.metrics.alignment import Link

Links: TypeAlias = Set[Link]

_NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))  # (target, source)


def intersect(forward: Links, backward: Links) -> set[Link]:
    """Return the links of both directions."""
    return {*forward} & {*backward}


def union(forward: Links, backward: Links) -> set[Link]:
    """Return the links of either direction."""
    return {*forward} | {*backward}


def grow_diag(forward: Links, backward: Links) -> set[Link]:
    """Return the intersection, grown by links of the union.

    A link of the union is added if it is next to one of the alignment, also diagonally, and one of its words has no link.
    """
    candidates = union(forward, backward)
    found = _Alignment(intersect(forward, backward))
    cells = sorted((target, source) for source, target in candidates)
    added = True
    while added:
        added = False
        for target, source in cells:
            if (source, target) not in found.links:
                continue
            for down, right in _NEIGHBORS:
                new = (source + right, target + down)
                added |= new in candidates and found.add(new)
    return found.links


def grow_diag_final(forward: Links, backward: Links) -> set[Link]:
    """Return the links of `grow_diag`, then links of `forward` and of `backward` with a word without a link."""
    found = _Alignment(grow_diag(forward, backward))
    for links in (forward, backward):
        for target, source in sorted((target, source) for source, target in links):
            found.add((source, target))
    return found.links


class _Alignment:
    """Links with the words that have one."""

    def __init__(self, links: set[Link]) -> None:
        self.links = links
        self._words = tuple({link[side] for link in links} for side in (0, 1))

    def add(self, link: Link) -> bool:
        """Add a link if one of its words has none, and return whether it was added."""
        if all(word in words for word, words in zip(link, self._words, strict=True)):
            return False
        self.links.add(link)
        for word, words in zip(link, self._words, strict=True):
            words.add(word)
        return True


SYMMETRIZATIONS: Mapping[str, Callable[[Links, Links], set[Link]]] = {
    "intersect": intersect,
    "union": union,
    "grow-diag": grow_diag,
    "grow-diag-final": grow_diag_final,
}
"""The functions (forward, backward) by name."""
