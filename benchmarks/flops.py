"""Model FLOPs: the operations of the matrix products that the formulas of a model need.

An m×k by k×n product counts as 2·m·n·k. Embeddings, pointwise operations and softmax do not count. A product that does not
change over time counts once per sentence (the keys of attention, Cho's context), and padding does not count, so an
implementation gains nothing by computing more than necessary. A training step counts as three forward passes, because the
backward pass has two products for each product of the forward pass. The extra pass of teacher forcing does not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.reference import Sizes

LSTM, GRU = 4, 3  # gates


@dataclass(frozen=True, slots=True)
class Tokens:
    """Numbers of sentences, of real tokens on each side, and of pairs of a source and a target token of one sentence."""

    sentences: int
    source: int
    target: int
    pairs: int

    @classmethod
    def of(cls, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> "Tokens":
        """Count the tokens of sentences; target lengths include `<eos>` but not `<sos>`."""
        return cls(
            len(source_lengths),
            sum(source_lengths),
            sum(target_lengths),
            sum(s * t for s, t in zip(source_lengths, target_lengths, strict=True)),
        )


def product(rows: int, inner: int, columns: int) -> int:
    """Return the operations of a product of a rows×inner matrix by an inner×columns one."""
    return 2 * rows * inner * columns


def recurrent(tokens: int, gates: int, input_size: int, hidden: int) -> int:
    """Return the operations of a recurrent layer over `tokens` positions."""
    return product(tokens, input_size + hidden, gates * hidden)


def sutskever(sizes: Sizes, text: Tokens) -> int:
    """Return the forward operations of `reference.Sutskever`."""
    embedding, hidden = sizes.embedding, sizes.hidden
    layers = sum(
        recurrent(tokens, LSTM, input_size, hidden)
        for tokens in (text.source, text.target)
        for input_size in (embedding, hidden)
    )
    return layers + product(text.target, hidden, sizes.target_vocabulary)


def cho(sizes: Sizes, text: Tokens) -> int:
    """Return the forward operations of `reference.Cho`."""
    embedding, hidden = sizes.embedding, sizes.hidden
    encoder = recurrent(text.source, GRU, embedding, hidden)
    decoder = recurrent(text.target, GRU, embedding, hidden)
    output = product(text.target, hidden + embedding, sizes.target_vocabulary)
    context = product(text.sentences, hidden, GRU * hidden + sizes.target_vocabulary)
    return encoder + decoder + output + context


def bahdanau(sizes: Sizes, text: Tokens) -> int:
    """Return the forward operations of `reference.Bahdanau`."""
    embedding, hidden = sizes.embedding, sizes.hidden
    encoder = 2 * recurrent(text.source, GRU, embedding, hidden)
    bridge = product(text.sentences, 2 * hidden, hidden)
    keys, queries = product(text.source, 2 * hidden, hidden), product(text.target, hidden, hidden)
    scores, contexts = product(text.pairs, hidden, 1), product(text.pairs, 1, 2 * hidden)
    decoder = recurrent(text.target, GRU, embedding + 2 * hidden, hidden)
    output = product(text.target, 3 * hidden + embedding, sizes.target_vocabulary)
    return encoder + bridge + keys + queries + scores + contexts + decoder + output


def luong(sizes: Sizes, text: Tokens) -> int:
    """Return the forward operations of `reference.Luong`."""
    embedding, hidden = sizes.embedding, sizes.hidden
    encoder = 2 * recurrent(text.source, GRU, embedding, hidden)
    bridge = product(text.sentences, 2 * hidden, hidden)
    decoder = recurrent(text.target, GRU, embedding, hidden)
    keys = product(text.source, 2 * hidden, hidden)
    scores, contexts = product(text.pairs, hidden, 1), product(text.pairs, 1, 2 * hidden)
    combined = product(text.target, 3 * hidden, hidden)
    output = product(text.target, hidden, sizes.target_vocabulary)
    return encoder + bridge + decoder + keys + scores + contexts + combined + output


def training(forward: int) -> int:
    """Return the operations of a training step, given those of its forward pass."""
    return 3 * forward
