"""The record of a search: its hypotheses as a tree, with the most probable tokens of each step."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.errors import is_whole, require
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.search.base import Hypothesis

LARGEST = 2**22  # predicted log-probabilities that are kept, of steps whose numbers are computed together
LARGEST_STATES = 2**22  # numbers of the states of a model that are kept

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
        slot: the index of the prefix in the beam.
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
    slot: int = 0
    output: int | None = None
    top: list[tuple[int, float]] = field(default_factory=list)
    entropy: float = 0.0


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first P tokens of an output, as an earlier search read them. The model of the next search has their state.

    Attributes:
        nodes: the prefixes of 0 to P tokens.
        weights_PS: the attention weights of each token; None without attention.
    """

    nodes: Sequence[Node]
    weights_PS: Tensor | None

    @property
    def tokens(self) -> list[int]:
        """The tokens."""
        return [node.token for node in self.nodes[1:]]


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
        beginning: the first tokens of all outputs, which the search does not read again; None if it reads all. They are
            also the first tokens of its `prefix`.
        with_states: keep the states of the model, for a batch of one sentence.

    Attributes:
        sentences: the trees of the sentences of the batch after the search: the nodes by level, with the root in level 0.
        states: the states of the model, `Selectable`, before it predicts token t, by t, with a row for each entry of the
            beam, and with one row at the first step of the search. Of long outputs the last ones are missing.

    Raises:
        UserError: `top` is below 1.
    """

    def __init__(
        self,
        top: int,
        check: Callable[[], None] | None = None,
        *,
        beginning: Beginning | None = None,
        with_states: bool = False,
    ) -> None:
        require(is_whole(top) and top >= 1, "top", top, "a whole number, 1 or more")
        self.top, self._check, self.beginning = top, check, beginning
        self.sentences: list[list[list[Node]]] = []
        self.states: dict[int, Any] = {}
        self._free = LARGEST_STATES if with_states else 0
        self._waiting: list[tuple[Tensor, ...]] = []
        self._groups: list[tuple[Tensor, ...]] = []
        self._read: tuple[Tensor, Tensor] | None = None

    def start(self, count: int, width: int) -> None:
        """Start the trees of a batch of `count` sentences with K = `width` hypotheses each."""
        self._count, self._width = count, width
        self.sentences, self._waiting, self._groups = [], [], []

    def begin_known(self, log_prob_AK: Tensor) -> None:
        """Record `beginning`; all sentences have the same number of hypotheses that are not empty."""
        self._rows = int(to_host((log_prob_AK[0] > -math.inf).sum()))

    def keep_state(self, t: int, state: Any) -> None:
        """Keep the state of the model before it predicts token t, if states are kept and there is room for it."""
        if self._free > 0:
            self._free -= count_numbers(state)
            if self._free > 0:
                self.states[t] = state

    def state_before(self, t: int, path: Sequence[Node]) -> tuple[int, Any, int] | None:
        """Return the latest kept state of an output before token t, for a search of one sentence.

        Args:
            path: of the output; see `path_to`.

        Returns:
            The index of the token that it predicts, the state, and its row in the state; None if no state was kept so early.
        """
        kept = max((step for step in self.states if step <= t), default=None)
        if kept is None:
            return None
        return kept, self.states[kept], 0 if kept == min(self.states) else path[kept].slot

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
        trees = [self._first_levels() for _ in range(self._count)]
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

    def _first_levels(self) -> _Open:
        """Return the tree before the first step."""
        if self.beginning is None:
            return _Open([[Node(SOS, 0, 0.0, "stopped")]], [()], dict.fromkeys(range(self._width), 0), [])
        root, *others = self.beginning.nodes
        rows = range(self._rows)
        levels = [[replace(root)]]
        for length, node in enumerate(others):
            levels.append([replace(node, parent=row if length else 0, output=None) for row in rows])
        return _Open(levels, [(*self.beginning.tokens,)] * len(rows), {row: row for row in rows}, [])


def path_to(levels: Sequence[Sequence[Node]], output: int) -> list[Node]:
    """Return the prefixes of an output in a tree, the empty one first; empty if the tree does not have the output."""
    for length, level in enumerate(levels):
        for node in level:
            if node.output == output:
                path = [node]
                for before in reversed(levels[:length]):
                    path.append(before[path[-1].parent])
                return path[::-1]
    return []


def count_numbers(state: Any) -> int:
    """Return the number of numbers of a state: of a tensor, or of a tuple or a dataclass with tensors."""
    if isinstance(state, Tensor):
        return state.numel()
    if isinstance(state, tuple):
        return sum(map(count_numbers, state))
    if is_dataclass(state):
        return sum(count_numbers(getattr(state, one.name)) for one in fields(state))
    return 0


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
        node = Node(token, slots[parent], log_prob, "stopped", gained, rank, slot)
        before[node.parent].fate = "extended"
        tree.prefixes.append((*prefixes[node.parent], token))
        if finished:
            tree.complete.append((tree.prefixes[-1], node))
        else:
            tree.slots[slot] = len(level)
        level.append(node)
    tree.levels.append(level)
