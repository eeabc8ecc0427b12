"""Whether the outputs of a model depend on the source words that the references depend on, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seq2seq_lab.analysis.comparison import Mean
from seq2seq_lab.analysis.counterfactual import Changes
from seq2seq_lab.metrics.texts import named_groups

# The two sums of `Changes` whose ratio is a measure; see its properties. "correct": the outputs that equal the reference.
MEASURES = {
    "recall": ("found", "expected"),
    "agreement_recall": ("found_agreement", "expected_agreement"),
    "precision": ("found", "output"),
    "correct": ("correct", "counterfactuals"),
}
ALL = "all"  # the group of all sentences


@dataclass(frozen=True)
class Dependence:
    """The measures of a group of sentences.

    Attributes:
        group: its name, for example a phenomenon.
        sentences: their number.
        counterfactuals: the number of their changed versions.
        means: of each measure that is defined, with 95% intervals (bootstrap over sentences).
    """

    group: str
    sentences: int
    counterfactuals: int
    means: Mapping[str, Mean]


def dependences(
    changes: Sequence[Changes], phenomena: Sequence[Sequence[str]] | None = None
) -> list[Dependence]:
    """Return the measures over all sentences, then for each phenomenon.

    Args:
        changes: of each sentence.
        phenomena: of each sentence.
    """
    groups = {ALL: [*range(len(changes))], **named_groups(phenomena or ())}
    return [_dependence(name, [changes[index] for index in members]) for name, members in groups.items()]


def _dependence(group: str, changes: Sequence[Changes]) -> Dependence:
    every = np.arange(len(changes))  # the sentences of a generated test set are different
    means = {
        name: Mean.of(
            np.array([(getattr(one, found), getattr(one, of)) for one in changes], np.float64), every
        )
        for name, (found, of) in MEASURES.items()
    }
    known = {name: mean for name, mean in means.items() if mean is not None}
    return Dependence(group, len(changes), sum(one.counterfactuals for one in changes), known)
