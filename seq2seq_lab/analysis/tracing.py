"""The search of one input, with everything that a page or a notebook shows of it."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from seq2seq_lab.analysis.search_input import SearchInput
from seq2seq_lab.analysis.traced import (
    Alternative,
    Floats,
    Link,
    Output,
    Source,
    State,
    Step,
    Token,
    Traced,
    TreeNode,
)
from seq2seq_lab.data.tokenizers import EOS
from seq2seq_lab.data.words import words
from seq2seq_lab.errors import UserError, require
from seq2seq_lab.metrics.alignment import group_tokens, join_subwords
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.search.base import Hypothesis
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.search.trace import Node, SearchTrace

TOP = 10  # next tokens of a step
MASS = 0.75  # of the weights of a word, that its links have
PIECES = 8  # tokens after an alternative, until its word ends

REASONS = {
    "outranked": "It is complete, but other outputs have a higher score.",
    "pruned": "The {width} most probable continuations are those of other prefixes.",
    "stopped": "No continuation of it could rank above the outputs.",
}
STATES: dict[str, State] = {"extended": "kept", "returned": "finished"}


def trace(given: SearchInput, prefix: Sequence[int] = (), maps: bool = False, top: int = TOP) -> Traced:
    """Return the outputs of an input, and how the search found them.

    Args:
        prefix: the tokens that every output begins with.
        maps: return the attention weights of all layers and heads.
        top: the number of next tokens of each step.

    Raises:
        UserError: a search that records no trace, or a prefix that it does not allow.
    """
    return trace_copies(given, 1, prefix, maps, top)[0]


def trace_copies(
    given: SearchInput, copies: int, prefix: Sequence[int], maps: bool = False, top: int = TOP
) -> list[Traced]:
    """Return the traces of several copies of an input, which are searched together; see `trace`.

    Args:
        copies: the number of copies; the model of the input may treat them differently.
    """
    if not {"prefix", "trace"} <= inspect.signature(given.search.__call__).parameters.keys():
        raise UserError(
            f"search={given.settings.name} records no trace: its class does not have the arguments prefix and trace. Choose "
            f"another one, for example search=beam."
        )
    record, batch = SearchTrace(top, given.check), given.batch(copies)
    with torch.no_grad(), evaluation_context(batch, given.compute.precision, given.compute.device):
        found = given.search(
            given.encoded,
            batch,
            given.no_attention is None,
            prefix=[[*prefix]] * copies if prefix else None,
            trace=record,
        )
    return [
        _traced(given, one, levels, prefix, maps) for one, levels in zip(found, record.sentences, strict=True)
    ]


def _traced(
    given: SearchInput,
    found: Sequence[Hypothesis],
    levels: Sequence[Sequence[Node]],
    prefix: Sequence[int],
    maps: bool,
) -> Traced:
    tree = _Tree(levels, given, len(prefix))
    outputs = [_output(given, one, tree.path(index)) for index, one in enumerate(found)]
    best = found[0]
    limit = ""
    if not best.ended:
        limit = f"The best output reached the length limit of {len(best.tokens)} tokens before <eos>."
    return Traced(
        task=given.task,
        source=given.source,
        search=given.settings,
        prefix=[_token(given, token, None) for token in prefix],
        outputs=outputs,
        steps=tree.steps(0),
        tree=tree.nodes,
        no_attention=given.no_attention,
        maps=_maps(given, best.tokens) if maps else None,
        limit=limit,
        given=given,
    )


class _Tree:
    """The tree of a search with one list of nodes.

    Attributes:
        nodes: by length, the root first.
    """

    def __init__(self, levels: Sequence[Sequence[Node]], given: SearchInput, forced: int) -> None:
        self._given, self._forced = given, forced
        self._nodes = [node for level in levels for node in level]
        self._leaf = {node.output: index for index, node in enumerate(self._nodes) if node.output is not None}
        self._parents: list[int] = []
        self.nodes: list[TreeNode] = []
        first = before = 0
        for step, level in enumerate(levels):
            best_first = sorted(range(len(level)), key=lambda index: -level[index].log_prob)
            rank_of = {index: rank for rank, index in enumerate(best_first, start=1)}
            for index, node in enumerate(level):
                self._add(node, None if step == 0 else before + node.parent, step, rank_of[index])
            before, first = first, first + len(level)

    def _add(self, node: Node, parent: int | None, step: int, rank: int) -> None:
        text, kind = self._given.names(node.token)
        self.nodes.append(
            TreeNode(
                id=len(self.nodes),
                parent=parent,
                step=step,
                token=node.token,
                text=text,
                kind=kind,
                log_prob=node.token_log_prob,
                total=node.log_prob,
                rank=rank,
                state=STATES.get(node.fate, "pruned"),
                reason=REASONS.get(node.fate, "").format(width=self._given.settings.width),
                output=node.output,
                forced=0 < step <= self._forced,
            )
        )

    def path(self, output: int) -> list[tuple[int, Node, Node]]:
        """Return for each token of an output (the id of its node, the node, the node before it)."""
        found: list[tuple[int, Node, Node]] = []
        index: int | None = self._leaf.get(output)
        while index is not None and (parent := self.nodes[index].parent) is not None:
            found.append((index, self._nodes[index], self._nodes[parent]))
            index = parent
        return found[::-1]

    def steps(self, output: int) -> list[Step]:
        """Return the steps of an output."""
        return [
            Step(
                step=step,
                token=node.token,
                forced=step < self._forced,
                entropy=before.entropy,
                top=[_alternative(self._given, *one) for one in before.top],
            )
            for step, (_, node, before) in enumerate(self.path(output))
        ]


def _alternative(given: SearchInput, token: int, log_prob: float) -> Alternative:
    text, kind = given.names(token)
    return Alternative(id=token, text=text, kind=kind, log_prob=log_prob)


def _token(given: SearchInput, token: int, word: int | None) -> Token:
    text, kind = given.names(token)
    return Token(id=token, text=text, kind=kind, word=word)


def _output(given: SearchInput, found: Hypothesis, path: Sequence[tuple[int, Node, Node]]) -> Output:
    ids = [*found.tokens, *[EOS] * found.ended]
    text, spans = given.tokenizer.decode_spans([*given.before, *found.tokens])
    spans = spans[len(given.before) :]
    units = words(text, spans)
    groups = [one for one in zip(units, group_tokens(spans, units), strict=True) if one[1]]
    word_of = {token: word for word, (_, group) in enumerate(groups) for token in group}
    log_probs = [node.token_log_prob for _, node, _ in path]
    weights = attention_fields(given.source, given.groups, found.weights_TS, [group for _, group in groups])
    return Output(
        text=text.replace("\n", " ").replace("\r", " "),
        tokens=[_token(given, token, word_of.get(i)) for i, token in enumerate(ids)],
        words=[text[start:end] for (start, end), _ in groups],
        word_log_probs=[sum(log_probs[token] for token in group) for _, group in groups],
        log_probs=log_probs,
        ranks=[node.rank for _, node, _ in path],
        entropies=[before.entropy for *_, before in path],
        log_prob=found.log_prob,
        score=found.score,
        ended=found.ended,
        leaf=path[-1][0] if path else None,
        **weights,
    )


def attention_fields(
    source: Source, groups: Sequence[Sequence[int]], weights_TS: Floats | None, rows: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Return the fields of `Output` about attention.

    Args:
        groups: the columns of each word column of the source.
        rows: the tokens of each word of the output.
    """
    if weights_TS is None or source.columns is None:
        return {}
    joined_WC = join_subwords(weights_TS, groups, rows)
    margins: dict[str, list[float]] = {}
    if source.columns == "tokens":
        kinds = np.array([token.kind for token in source.tokens])
        margins = {
            kind: weights_TS[:, kinds == kind].sum(1).tolist() for kind in ("sos", "eos", "punctuation")
        }
    return {
        "attention": weights_TS,
        "word_attention": joined_WC,
        "margins": margins,
        "links": [link for word, row_C in enumerate(joined_WC) for link in _links(word, row_C)],
    }


def _links(word: int, row_C: Floats) -> list[Link]:
    """Return the largest weights of a word that together have the share `MASS` of them."""
    order = np.argsort(-row_C, kind="stable")
    sums = np.cumsum(row_C[order])
    if not len(sums) or sums[-1] <= 0:
        return []
    count = int(np.searchsorted(sums, MASS * sums[-1])) + 1
    return [Link(word=word, column=int(one), weight=float(row_C[one])) for one in order[:count]]


def _maps(given: SearchInput, tokens: list[int]) -> dict[str, Floats]:
    with torch.no_grad():
        return {name: to_host(maps_1LATS[0].float()) for name, maps_1LATS in given.maps(tokens).items()}


def alternatives(traced: Traced, step: int) -> list[Alternative]:
    """Return the most probable next tokens of a step of the best output as whole words, which greedy search completes.

    Raises:
        UserError: the output has no such step.
    """
    allowed = f"0 to {len(traced.steps) - 1}, a step of the output"
    require(0 <= step < len(traced.steps), "step", step, allowed)
    given, found = traced.given, traced.steps[step].top
    if given is None:  # classes are whole words
        return found
    before = [one.token for one in traced.steps[:step]]
    open_ones = [one for one in found if one.kind != "eos"]
    search = GreedySearch(0.0, 0.0, step + 1 + PIECES)
    batch = given.batch(len(open_ones))
    with torch.no_grad(), evaluation_context(batch, given.compute.precision, given.compute.device):
        outputs = search(given.model, batch, False, prefix=[[*before, one.id] for one in open_ones])
    whole = {
        one.id: _whole_word(given, output.tokens, step)
        for one, (output,) in zip(open_ones, outputs, strict=True)
    }
    return [replace(one, **whole.get(one.id, {"word": one.text, "pieces": [one.text]})) for one in found]


def _whole_word(given: SearchInput, tokens: Sequence[int], position: int) -> dict[str, Any]:
    """Return the word of a token of an output and its pieces."""
    text, spans = given.tokenizer.decode_spans([*given.before, *tokens])
    position += len(given.before)
    units = words(text, spans)
    for (start, end), group in zip(units, group_tokens(spans, units), strict=True):
        if position in group:
            ids = [[*given.before, *tokens][token] for token in group]
            return {"word": text[start:end], "pieces": given.tokenizer.tokens(ids)}
    name, _ = given.names(tokens[position - len(given.before)])
    return {"word": name, "pieces": [name]}
