"""The search of one input, with everything that a page or a notebook shows of it."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from seq2seq_lab.analysis.search_input import SearchInput
from seq2seq_lab.analysis.traced import (
    Alternative,
    Floats,
    Link,
    State,
    Token,
    Traced,
    TracedOutput,
    TracedSource,
    TracedStep,
    TreeNode,
)
from seq2seq_lab.data.tokenizers import EOS
from seq2seq_lab.data.words import words
from seq2seq_lab.errors import UserError, require_index
from seq2seq_lab.metrics.alignment import group_tokens, join_subwords
from seq2seq_lab.metrics.attention import in_word
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.search.base import Hypothesis, Search
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.search.trace import Beginning, Node, SearchTrace, path_to

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
    ((found,), record) = search_copies(given, 1, prefix, top, with_states=True)
    return traced(given, found, record, prefix=prefix, maps=maps)


def search_copies(
    given: SearchInput,
    copies: int,
    prefix: Sequence[int],
    top: int = TOP,
    *,
    beginning: Beginning | None = None,
    with_states: bool = False,
) -> tuple[list[list[Hypothesis]], SearchTrace]:
    """Return the outputs of several copies of an input, which are searched together, and the record of the search.

    Args:
        copies: the number of copies; the model of the input may treat them differently.
        beginning, with_states: see `SearchTrace`.

    Raises:
        UserError: see `trace`.
    """
    if not {"prefix", "trace"} <= inspect.signature(given.search.__call__).parameters.keys():
        raise _no_trace(given.search, "its __call__ does not have the arguments prefix and trace")
    record = SearchTrace(top, given.check, beginning=beginning, with_states=with_states)
    batch = given.batch(copies)
    with torch.no_grad(), evaluation_context(batch, given.compute.precision, given.compute.device):
        found = given.search(
            given.encoded,
            batch,
            given.no_attention is None,
            prefix=[[*prefix]] * copies if prefix else None,
            trace=record,
        )
    complete = len(record.sentences) == len(found) and all(
        path_to(levels, 0) or not (best.tokens or best.ended)
        for levels, (best, *_) in zip(record.sentences, found, strict=True)
    )
    if not complete:
        raise _no_trace(given.search, "it does not record its outputs in the argument trace")
    return found, record


def _no_trace(search: Search, reason: str) -> UserError:
    kind = type(search)
    return UserError(
        f"search._target_={kind.__module__}.{kind.__qualname__} cannot be traced: {reason}. Choose search=beam or "
        f"search=greedy, or derive the class from seq2seq_lab.search.paths.PathSearch, which records the search."
    )


def traced(
    given: SearchInput,
    found: Sequence[Hypothesis],
    record: SearchTrace,
    *,
    prefix: Sequence[int],
    maps: bool,
    known: Sequence[TracedStep] = (),
) -> Traced:
    """Return the trace of the first sentence of a search; see `trace`.

    Args:
        known: see `steps_of`.
    """
    levels, best = record.sentences[0], found[0]
    nodes = _tree(given, levels, len(prefix))
    leaves = {node.output: node.id for node in nodes if node.output is not None}
    paths = [path_to(levels, index) for index in range(len(found))]
    outputs = [
        output_of(given, one, path, leaves.get(index))
        for index, (one, path) in enumerate(zip(found, paths, strict=True))
    ]
    limit = ""
    if not best.ended:
        limit = f"The best output reached the length limit of {len(best.tokens)} tokens before <eos>."
    return Traced(
        task=given.task,
        source=given.source,
        search=given.settings,
        prefix=[_token(given, token, None) for token in prefix],
        outputs=outputs,
        steps=steps_of(given, paths[0], len(prefix), known),
        tree=nodes,
        no_attention=given.no_attention,
        maps=_maps(given, best.tokens) if maps else None,
        limit=limit,
        given=given,
        record=record,
    )


def _tree(given: SearchInput, levels: Sequence[Sequence[Node]], forced: int) -> list[TreeNode]:
    """Return the nodes of a tree in one list, by length, the root first."""
    nodes: list[TreeNode] = []
    before = 0  # the id of the first node of the level before
    for step, level in enumerate(levels):
        first = len(nodes)
        log_probs = [node.log_prob for node in level]
        best_first = sorted(range(len(level)), key=log_probs.__getitem__, reverse=True)
        rank_of = {index: rank for rank, index in enumerate(best_first, start=1)}
        for index, node in enumerate(level):
            text, kind = given.names(node.token)
            nodes.append(
                TreeNode(
                    id=first + index,
                    parent=None if step == 0 else before + node.parent,
                    step=step,
                    token=node.token,
                    text=text,
                    kind=kind,
                    log_prob=node.token_log_prob,
                    total=node.log_prob,
                    rank=rank_of[index],
                    state=STATES.get(node.fate, "pruned"),
                    reason=REASONS.get(node.fate, "").format(width=given.settings.width),
                    output=node.output,
                    forced=0 < step <= forced,
                )
            )
        before = first
    return nodes


def steps_of(
    given: SearchInput, path: Sequence[Node], forced: int, known: Sequence[TracedStep] = ()
) -> list[TracedStep]:
    """Return the steps of an output.

    Args:
        path: its prefixes, the empty one first.
        forced: the number of its tokens that were forced.
        known: the first steps, from another search.
    """
    return [
        replace(known[step], forced=step < forced)
        if step < len(known)
        else TracedStep(
            step=step,
            token=node.token,
            forced=step < forced,
            entropy=before.entropy,
            top=[_alternative(given, *one) for one in before.top],
        )
        for step, (before, node) in enumerate(pairwise(path))
    ]


def _alternative(given: SearchInput, token: int, log_prob: float) -> Alternative:
    text, kind = given.names(token)
    return Alternative(id=token, text=text, kind=kind, log_prob=log_prob)


def _token(given: SearchInput, token: int, word: int | None) -> Token:
    text, kind = given.names(token)
    return Token(id=token, text=text, kind=kind, word=word)


def output_of(given: SearchInput, found: Hypothesis, path: Sequence[Node], leaf: int | None) -> TracedOutput:
    """Return an output of the search.

    Args:
        path: its prefixes, the empty one first; empty if it is not in the tree.
        leaf: the id of its node in the tree.
    """
    ids = [*found.tokens, *[EOS] * found.ended]
    text, spans = given.tokenizer.decode_spans([*given.before, *found.tokens])
    spans = spans[len(given.before) :]
    units = words(text, spans)
    groups = [one for one in zip(units, group_tokens(spans, units), strict=True) if one[1]]
    word_of = {token: word for word, (_, group) in enumerate(groups) for token in group}
    log_probs = [node.token_log_prob for node in path[1:]]
    weights = attention_fields(given.source, given.groups, found.weights_TS, [group for _, group in groups])
    return TracedOutput(
        text=text.replace("\n", " ").replace("\r", " "),
        tokens=[_token(given, token, word_of.get(i)) for i, token in enumerate(ids)],
        words=[text[start:end] for (start, end), _ in groups],
        word_log_probs=[sum(log_probs[token] for token in group) for _, group in groups],
        log_probs=log_probs,
        ranks=[node.rank for node in path[1:]],
        entropies=[node.entropy for node in path[:-1]],
        log_prob=found.log_prob,
        score=found.score,
        ended=found.ended,
        leaf=leaf,
        **weights,
    )


def attention_fields(
    source: TracedSource,
    groups: Sequence[Sequence[int]],
    weights_TS: Floats | None,
    rows: Sequence[Sequence[int]],
) -> dict[str, Any]:
    """Return the fields of `TracedOutput` about attention.

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
            kind: weights_TS[:, kinds == kind].sum(1).tolist()
            for kind in ("sos", "eos", "punctuation")
            if kind in kinds
        }
    return {
        "attention": weights_TS,
        "word_attention": joined_WC,
        "margins": margins,
        "links": _links(joined_WC),
    }


def _links(weights_WC: Floats) -> list[Link]:
    """Return the largest weights of each word that together have the share `MASS` of them."""
    if not weights_WC.size:
        return []
    order_WC = np.argsort(-weights_WC, axis=1, kind="stable")
    sorted_WC = np.take_along_axis(weights_WC, order_WC, 1)
    sums_WC = np.cumsum(sorted_WC, axis=1)
    counts_W = (sums_WC < MASS * sums_WC[:, -1:]).sum(1) + 1
    return [
        Link(word=word, column=column, weight=weight)
        for word, (columns, weights, sums, count) in enumerate(
            zip(order_WC.tolist(), sorted_WC.tolist(), sums_WC, counts_W.tolist(), strict=True)
        )
        if sums[-1] > 0
        for column, weight in zip(columns[:count], weights[:count], strict=True)
    ]


def _maps(given: SearchInput, tokens: list[int]) -> dict[str, Floats]:
    with torch.no_grad():
        return {name: to_host(maps_1LATS[0].float()) for name, maps_1LATS in given.maps(tokens).items()}


def alternatives(traced: Traced, step: int) -> list[Alternative]:
    """Return the most probable next tokens of a step of the best output as whole words, which greedy search completes.

    Raises:
        UserError: the output has no such step.
    """
    require_index("step", step, len(traced.steps), "a step of the output")
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
    return [
        replace(one, **whole.get(one.id, {"word": one.text, "pieces": [one.text], "ids": [one.id]}))
        for one in found
    ]


def _whole_word(given: SearchInput, tokens: Sequence[int], position: int) -> dict[str, Any]:
    """Return the word of a token of an output and its pieces: the letters and digits around it, without punctuation."""
    text, spans = given.tokenizer.decode_spans([*given.before, *tokens])
    position += len(given.before)
    units = words(text, spans)
    for (first, last), group in zip(units, group_tokens(spans, units), strict=True):
        if position in group:
            start, end = max(first, spans[position][0]), min(last, spans[position][1])
            while first < start and in_word(text[start - 1]) and in_word(text[start]):
                start -= 1
            while start < end < last and in_word(text[end - 1]) and in_word(text[end]):
                end += 1
            inside = [token for token in group if start <= spans[token][0] and spans[token][1] <= end]
            ids = {token: [*given.before, *tokens][token] for token in inside or [position]}
            return {
                "word": text[start:end],
                "pieces": given.tokenizer.tokens([*ids.values()]),
                "ids": [ids[token] for token in ids if token >= position],
            }
    token = tokens[position - len(given.before)]
    name, _ = given.names(token)
    return {"word": name, "pieces": [name], "ids": [token]}
