"""Counterfactual sentence pairs, and which source words each reference word depends on.

A counterfactual of a sentence is another sentence of the language that differs from it in one word. It has its own
reference, so the words in which the two references differ are known to depend on the replaced word. (The contrast sets of
Gardner 2020, arXiv:2004.02709, but generated, not annotated.) A generated data set has such sentences.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seq2seq_lab.data.corpus import Gold


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A sentence pair whose source differs in one word from that of the original pair.

    Attributes:
        source, target: the changed sentence and its reference as plain text.
        gold: their words and alignment.
        replaced: the positions of the replaced word in the original source: several if the word is written as several
            ("computer scientist").
        changed: the positions of the words of the original reference that are different in the changed one.
        agreement: those of `changed` that are not aligned to the replaced word, such as an article that agrees with it.
        held_out: the changed sentence has a combination of words that the training split does not contain.
    """

    source: str
    target: str
    gold: Gold
    replaced: tuple[int, ...]
    changed: frozenset[int]
    agreement: frozenset[int]
    held_out: bool


@dataclass(frozen=True, slots=True, eq=False)
class Influence:
    """Which source words each word of the reference of one sentence pair depends on.

    Attributes:
        gold: the words and the alignment of the pair.
        influence_TS: True where some replacement of source word s changes target word t, for T target and S source words.
        known_S: True for the source words that have a replacement. The other columns of `influence_TS` are False, but
            their influence is not known.
        counterfactuals: some of the replacements, several for each source word.
    """

    gold: Gold
    influence_TS: npt.NDArray[np.bool_]
    known_S: npt.NDArray[np.bool_]
    counterfactuals: tuple[Counterfactual, ...]
