"""The record of a search: its hypotheses as a tree, with the most probable tokens of each step."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.errors import require
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.search.base import Hypothesis

LARGEST = 2**22  # predicted log-probabilities that are kept, of steps whose numbers are computed together

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
        token_log_prob: the log-probability of the last token after the others; 0 for the root.
        rank: the rank of the last token in that prediction, 1 for the most probable one; 0 for the root.
        output: the index of the output that it is, if it was returned; else None.
        top: the most probable next tokens and their log-probabilities, the best first; empty if the prefix was not read.
        entropy: the entropy in nats of the prediction of the next token; 0 if the prefix was not read.
    """

    token: int
    parent: int
    log_prob: float
    fate: Fate
    token_log_prob: float = 0.0
    rank: int = 0
    output: int | None = None
    top: list[tuple[int, float]] = field(default_factory=list)
    entropy: float = 0.0


@dataclass(slots=True)
class _Open:
    """The tree of a sentence that is built.

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

    During the search it keeps tensors; it reads their values after the last step. A search must not change a prediction
    after it has passed it to the trace.

    Args:
        top: the number of most probable tokens that are recorded at each step.
        check: called at each step; it may raise an exception, which ends the search.

    Attributes:
        sentences: the trees of the sentences of the batch after the search: the nodes by level, with the root in level 0.

    Raises:
        UserError: `top` is below 1.
    """

    def __init__(self, top: int, check: Callable[[], None] | None = None) -> None:
        require(top >= 1, "top", top, "1 or more")
        self.top, self._check = top, check
        self.sentences: list[list[list[Node]]] = []
        self._waiting: list[tuple[Tensor, ...]] = []
        self._groups: list[tuple[Tensor, ...]] = []
        self._read: tuple[Tensor, Tensor] | None = None

    def start(self, count: int, width: int) -> None:
        """Start the trees of a batch of `count` sentences with K = `width` hypotheses each."""
        self._count, self._width = count, width
        self.sentences, self._waiting, self._groups = [], [], []

    def begin(self, tokens_AP: Tensor, log_probs_APV: Tensor, log_prob_AKP: Tensor) -> None:
        """Record P tokens that all hypotheses begin with.

        Args:
            log_probs_APV: the prediction of each of them.
            log_prob_AKP: the log-probabilities of the prefixes; minus infinity for an empty entry of the beam.
        """
        shape = log_prob_AKP.shape
        parent_AK = torch.arange(shape[1], device=tokens_AP.device).expand(shape[:2])
        sentence_A = torch.arange(shape[0], device=tokens_AP.device)
        active_A = torch.ones_like(sentence_A, dtype=torch.bool)
        finished_AK = torch.zeros_like(parent_AK, dtype=torch.bool)
        for t in range(shape[2]):
            token_AK, log_probs_A1V = tokens_AP[:, t, None].expand(shape[:2]), log_probs_APV[:, t, None]
            gained_AK = log_probs_A1V[:, 0].gather(1, token_AK)
            kept = (token_AK, parent_AK, log_prob_AKP[..., t], finished_AK)
            self._keep((log_probs_A1V, gained_AK, sentence_A, active_A, *kept))

    def _keep(self, step: tuple[Tensor, ...]) -> None:
        """Keep a step: (log_probs_AKV, the log-probability of its tokens, the arguments of `extend`)."""
        if self._waiting and step[0].shape != self._waiting[-1][0].shape:
            self._summarize()
        self._waiting.append(step)
        if len(self._waiting) * step[0].numel() >= LARGEST:
            self._summarize()

    def _summarize(self) -> None:
        """Replace the predictions of the steps of one shape by what the tree shows of them."""
        if not self._waiting:
            return
        log_probs_TAKV, gained_TAK, sentence_TA, active_TA, token_TAK, parent_TAK, *others = map(
            torch.stack, zip(*self._waiting, strict=True)
        )
        read_TAK = parent_TAK.clamp(max=log_probs_TAKV.shape[2] - 1)
        rows_TAKV = log_probs_TAKV.gather(
            2, read_TAK[..., None].expand(*read_TAK.shape, log_probs_TAKV.shape[3])
        )
        ranks_TAK = (rows_TAKV > gained_TAK[..., None]).sum(-1) + 1
        entropy_TAK = torch.special.entr(log_probs_TAKV.exp()).sum(-1)
        log_probs_TAKV[..., [PAD, SOS]] = float("-inf")  # no search chooses them
        top = log_probs_TAKV.topk(min(self.top, log_probs_TAKV.shape[-1]))
        kept = (token_TAK, parent_TAK, *others, gained_TAK, ranks_TAK)
        self._groups.append((sentence_TA, active_TA, *top, entropy_TAK, *kept))
        self._waiting = []

    def read(self, log_probs_AKV: Tensor, allowed_AKV: Tensor) -> None:
        """Record a prediction; at the first step K may be 1.

        Args:
            log_probs_AKV: the log-probabilities of the model.
            allowed_AKV: the same, minus infinity for tokens that the search does not choose or a prefix does not allow.
        """
        if self._check is not None:
            self._check()
        self._read = log_probs_AKV, allowed_AKV

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
        assert self._read is not None
        log_probs_AKV, allowed_AKV = self._read
        self._read = None
        row_A1 = torch.arange(len(parent_AK), device=parent_AK.device)[:, None]
        gained_AK = allowed_AKV[row_A1, parent_AK.clamp(max=allowed_AKV.shape[1] - 1), token_AK]
        kept = (token_AK, parent_AK, log_prob_AK, finished_AK)
        self._keep((log_probs_AKV, gained_AK, sentence_A, active_A, *kept))

    def finish(self, found: Sequence[Sequence[Hypothesis]]) -> None:
        """Build the trees, with the outputs of the search."""
        trees = [
            _Open([[Node(SOS, 0, 0.0, "stopped")]], [()], dict.fromkeys(range(self._width), 0), [])
            for _ in range(self._count)
        ]
        self._summarize()
        steps = (
            step for group in self._groups for step in zip(*(to_host(x).tolist() for x in group), strict=True)
        )
        for step in steps:
            for sentence, active, values, tokens, entropies, *columns in zip(*step, strict=True):
                tree = trees[sentence]
                if tree.slots:
                    tops = [[*zip(*pair, strict=True)] for pair in zip(tokens, values, strict=True)]
                    _extend(tree, tops, entropies, [*zip(*columns, strict=True)])
                    if not active:
                        tree.slots = {}
        for tree, outputs in zip(trees, found, strict=True):
            _name_outputs(tree, outputs)
        self.sentences, self._groups = [tree.levels for tree in trees], []


def _name_outputs(tree: _Open, outputs: Sequence[Hypothesis]) -> None:
    """Mark the complete outputs of a tree that the search returned; equal ones (of sampling) in the order of the tree."""
    waiting: dict[tuple[int, ...], list[int]] = {}
    for index, one in enumerate(outputs):
        waiting.setdefault((*one.tokens, *[EOS] * one.ended), []).append(index)
    for tokens, node in tree.complete:
        node.fate = "outranked"
        if indices := waiting.get(tokens):
            node.fate, node.output = "returned", indices.pop(0)


def _extend(
    tree: _Open,
    tops: Sequence[list[tuple[int, float]]],
    entropies: Sequence[float],
    hypotheses: Sequence[tuple[Any, ...]],
) -> None:
    """Add a level to a tree; see `SearchTrace.extend`."""
    before, prefixes, slots = tree.levels[-1], tree.prefixes, tree.slots
    for slot, index in slots.items():
        read = min(slot, len(tops) - 1)
        before[index].top = [one for one in tops[read] if one[1] > -math.inf]
        before[index].entropy, before[index].fate = entropies[read], "pruned"
    level: list[Node] = []
    tree.prefixes, tree.slots = [], {}
    for slot, (token, parent, log_prob, finished, gained, rank) in enumerate(hypotheses):
        if log_prob == -math.inf:
            continue
        node = Node(token, slots[parent], log_prob, "stopped", gained, rank)
        before[node.parent].fate = "extended"
        tree.prefixes.append((*prefixes[node.parent], token))
        if finished:
            tree.complete.append((tree.prefixes[-1], node))
        else:
            tree.slots[slot] = len(level)
        level.append(node)
    tree.levels.append(level)
