"""The record of a search: its hypotheses as a tree, with the most probable tokens of each step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from seq2seq_lab.data.tokenizers import EOS, SOS
from seq2seq_lab.errors import require
from seq2seq_lab.search.base import Hypothesis

Fate = Literal["extended", "returned", "outranked", "pruned", "stopped"]


@dataclass(slots=True)
class Node:
    """A prefix of an output.

    Attributes:
        token: its last token; `<sos>` for the root.
        parent: the index of the prefix without this token in the previous level; 0 for the root.
        log_prob: the log-probability of the prefix.
        fate: `extended` by a token; `returned` as an output; `outranked`: a complete output that better ones displaced;
            `pruned`: other prefixes had the K best continuations; `stopped`: no continuation could still displace an output.
        top: the most probable next tokens and their log-probabilities, the best first; empty if the prefix was not read.
    """

    token: int
    parent: int
    log_prob: float
    fate: Fate
    top: list[tuple[int, float]] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    """The tree of a sentence that is searched.

    Attributes:
        levels: the nodes by length in tokens.
        prefixes: the tokens of the nodes of the last level.
        slots: the nodes that the search reads next: index in the last level by index in the beam.
        complete: the outputs so far, with their tokens.
    """

    levels: list[list[Node]]
    prefixes: list[tuple[int, ...]]
    slots: dict[int, int]
    complete: list[tuple[tuple[int, ...], Node]]


class SearchTrace:
    """Records a search that it is passed to.

    Args:
        top: the number of most probable tokens that are recorded at each step.

    Attributes:
        sentences: the trees of the sentences of the batch after the search: the nodes by level, with the root in level 0.

    Raises:
        UserError: `top` is below 1.
    """

    def __init__(self, top: int) -> None:
        require(top >= 1, "top", top, "1 or more")
        self.top = top
        self.sentences: list[list[list[Node]]] = []
        self._open: list[_Open] = []
        self._tops: list[Any] = []

    def start(self, count: int, width: int) -> None:
        """Start the trees of a batch of `count` sentences with K = `width` hypotheses each."""
        roots = [Node(SOS, 0, 0.0, "stopped") for _ in range(count)]
        self._open = [_Open([[root]], [()], dict.fromkeys(range(width), 0), []) for root in roots]

    def read(self, log_probs_AKV: Tensor) -> None:
        """Record the most probable tokens of a step; at the first step K may be 1."""
        values_AKC, tokens_AKC = log_probs_AKV.topk(min(self.top, log_probs_AKV.shape[-1]))
        self._tops = [
            [[*zip(*pair, strict=True)] for pair in zip(*row, strict=True)]
            for row in zip(tokens_AKC.tolist(), values_AKC.tolist(), strict=True)
        ]

    def extend(
        self,
        sentence_A: Tensor,
        active_A: Tensor,
        *,
        token_AK: Tensor,
        parent_AK: Tensor,
        log_prob_AK: Tensor,
        finished_AK: Tensor,
    ) -> None:
        """Record the hypotheses after a step.

        Args:
            active_A: whether the search of a sentence continues.
            parent_AK: the index of the prefix in the beam before the step.
            log_prob_AK: minus infinity for an empty entry of the beam.
            finished_AK: whether the hypothesis is a complete output.
        """
        kept = (token_AK, parent_AK, log_prob_AK, finished_AK)
        rows = zip(
            sentence_A.tolist(), active_A.tolist(), self._tops, *(x.tolist() for x in kept), strict=True
        )
        for sentence, active, tops, *columns in rows:
            tree = self._open[sentence]
            if tree.slots:
                _extend(tree, tops, [*zip(*columns, strict=True)])
                if not active:
                    tree.slots = {}

    def finish(self, found: Sequence[Sequence[Hypothesis]]) -> None:
        """Complete the trees with the outputs of the search."""
        for tree, outputs in zip(self._open, found, strict=True):
            returned = {(*one.tokens, *[EOS] * one.ended) for one in outputs}
            for tokens, node in tree.complete:
                node.fate = "returned" if tokens in returned else "outranked"
        self.sentences, self._open = [tree.levels for tree in self._open], []


def _extend(tree: _Open, tops: Sequence[Any], hypotheses: Sequence[tuple[Any, ...]]) -> None:
    """Add a level to a tree; see `SearchTrace.extend`."""
    before, prefixes, slots = tree.levels[-1], tree.prefixes, tree.slots
    for slot, index in slots.items():
        before[index].top, before[index].fate = tops[slot if slot < len(tops) else 0], "pruned"
    level: list[Node] = []
    tree.prefixes, tree.slots = [], {}
    for slot, (token, parent, log_prob, finished) in enumerate(hypotheses):
        if log_prob == -math.inf:
            continue
        node = Node(token, slots[parent], log_prob, "stopped")
        before[node.parent].fate = "extended"
        tree.prefixes.append((*prefixes[node.parent], token))
        if finished:
            tree.complete.append((tree.prefixes[-1], node))
        else:
            tree.slots[slot] = len(level)
        level.append(node)
    tree.levels.append(level)
