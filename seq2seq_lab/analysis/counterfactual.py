"""Scores of source words against their known influence, and the influence of source words on a model's outputs.

Two questions to one ground truth (`data.counterfactuals.Influence`): are the scores of a method (attention weights, an
attribution) high where a source word influences a target word (`rank`)? And do the outputs of the model change where their
references change (`count_changes`)?
"""

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from seq2seq_lab.data.counterfactuals import Influence

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Flags: TypeAlias = npt.NDArray[np.bool_]

_WORD = re.compile(r"[\w-]+'?|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Return the words of an output as those of `Gold`: an elided word ("l'") is one, a punctuation mark is one."""
    return _WORD.findall(text)


# Scores of a method


def average_precision(scores: Array, positive: Flags) -> float:
    """Return Σ (R_n − R_{n−1}) P_n over the distinct scores as thresholds, from the greatest; NaN without positives.

    P_n and R_n are precision and recall of the cells whose score is at least the threshold. That of random scores is the
    share of positives. As `sklearn.metrics.average_precision_score`.
    """
    hits_N, chosen_N = _thresholds(scores, positive)
    if hits_N[-1] == 0:
        return float("nan")
    return float(np.sum(np.diff(hits_N) * hits_N[1:] / chosen_N[1:]) / hits_N[-1])


def auc(scores: Array, positive: Flags) -> float:
    """Return the probability that a positive cell has a higher score than another cell; a tie counts half.

    NaN if all cells are positive, or none is. The area under the ROC curve (Hanley and McNeil 1982,
    doi:10.1148/radiology.143.1.7063747), as `sklearn.metrics.roc_auc_score`.
    """
    hits_N, chosen_N = _thresholds(scores, positive)
    false_N = chosen_N - hits_N
    if hits_N[-1] == 0 or false_N[-1] == 0:
        return float("nan")
    area = np.sum(np.diff(false_N) * (hits_N[1:] + hits_N[:-1])) / 2
    return float(area / (hits_N[-1] * false_N[-1]))


def _thresholds(scores: Array, positive: Flags) -> tuple[Array, Array]:
    """Return for each distinct score, from the greatest, the positive cells and the cells of at least it; 0 first."""
    assert scores.shape == positive.shape, (scores.shape, positive.shape)
    order = np.argsort(-scores, axis=None, kind="stable")
    ranked = scores.ravel()[order]
    last = np.flatnonzero(np.append(np.diff(ranked) != 0, True)) if len(ranked) else np.array([], np.intp)
    hits = np.cumsum(positive.ravel()[order])[last]
    return np.append(0.0, hits), np.append(0.0, last + 1.0)


class Ranking(NamedTuple):
    """How well scores rank the cells (target word, source word) with influence before the others.

    Attributes:
        average_precision_N, auc_N: of the cells of each sentence; NaN where they are not defined.
        average_precision, auc: of the cells of all sentences together, whose scores are compared as they are.
        share: the share of cells with influence, which is the average precision of random scores.
    """

    average_precision_N: Array
    auc_N: Array
    average_precision: float
    auc: float
    share: float


def rank(scores: Sequence[Array], influences: Sequence[Influence]) -> Ranking:
    """Compare scores with the influence of source words.

    Columns of source words whose influence is not known are left out.

    Args:
        scores: a matrix [target words, source words] for each sentence, without `<sos>` and `<eos>`, as from
            `metrics.alignment.join_subwords`. Scores with a sign are compared as they are: give magnitudes if the sign does
            not matter.
        influences: the influence in each sentence.
    """
    cells = []
    for scores_TS, influence in zip(scores, influences, strict=True):
        assert scores_TS.shape == influence.influence_TS.shape, (
            scores_TS.shape,
            influence.influence_TS.shape,
        )
        known = influence.known_S
        cells.append((scores_TS[:, known].ravel(), influence.influence_TS[:, known].ravel()))
    everything = np.concatenate([score for score, _ in cells]), np.concatenate([flag for _, flag in cells])
    return Ranking(
        np.array([average_precision(*cell) for cell in cells]),
        np.array([auc(*cell) for cell in cells]),
        average_precision(*everything),
        auc(*everything),
        float(everything[1].mean()),
    )


# Outputs of a model


def changed_words(original: Sequence[str], other: Sequence[str]) -> frozenset[int]:
    """Return the positions of the words of `original` that `other` does not have; a word that only moves is not one."""
    blocks = SequenceMatcher(None, original, other, autojunk=False).get_matching_blocks()
    kept = {block.a + k for block in blocks for k in range(block.size)}
    added = Counter(other) - Counter(original[position] for position in kept)
    changed = []
    for position, word in enumerate(original):
        if position in kept:
            continue
        if added[word] > 0:
            added[word] -= 1
        else:
            changed.append(position)
    return frozenset(changed)


class Changes(NamedTuple):
    """Words that change when a source word is replaced, added up over counterfactuals.

    Words are compared by their form, by the same rule in outputs and references (`changed_words`), so the output does not
    have to be aligned to the reference. To sum over sentences:
    `Changes(*map(sum, zip(*counts)))`.

    Attributes:
        counterfactuals: their number.
        correct: the outputs for changed sources that are the changed reference.
        expected: the words of the reference that change.
        found: those of them that change in the output too.
        expected_agreement, found_agreement: the same of words that are not aligned to the replaced word.
        output: the words of the output that change.
    """

    counterfactuals: int
    correct: int
    expected: int
    found: int
    expected_agreement: int
    found_agreement: int
    output: int

    @property
    def recall(self) -> float:
        """Of the words that should change, the share that does: the output depends on what it should depend on."""
        return self.found / self.expected if self.expected else float("nan")

    @property
    def agreement_recall(self) -> float:
        """`recall` of the words that are not aligned to the replaced word."""
        return self.found_agreement / self.expected_agreement if self.expected_agreement else float("nan")

    @property
    def precision(self) -> float:
        """Of the words that change, the share that should: the output depends on nothing else."""
        return self.found / self.output if self.output else float("nan")


def count_changes(influence: Influence, output: str, outputs: Sequence[str]) -> Changes:
    """Compare the changes of a model's outputs with those of the references.

    Args:
        influence: of the original sentence.
        output: the output for the original sentence.
        outputs: the output for each of `influence.counterfactuals`.
    """
    reference, words = influence.gold.target_words, split_words(output)
    counts = []
    for counterfactual, other in zip(influence.counterfactuals, outputs, strict=True):
        other_words = split_words(other)
        changed_reference = changed_words(reference, counterfactual.gold.target_words)
        expected = Counter(reference[position] for position in changed_reference)
        agreement = expected & Counter(reference[position] for position in counterfactual.agreement)
        changed = Counter(words[position] for position in changed_words(words, other_words))
        counts.append(
            (
                1,
                tuple(other_words) == counterfactual.gold.target_words,
                expected.total(),
                (expected & changed).total(),
                agreement.total(),
                (agreement & changed).total(),
                changed.total(),
            )
        )
    return Changes(*np.array(counts, np.int64).reshape(-1, 7).sum(axis=0).tolist())
