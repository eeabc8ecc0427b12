"""N-gram language models with interpolated modified Kneser-Ney smoothing."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.metrics.base import Array

Keys = npt.NDArray[np.int64]
MOST_NGRAMS = 2**63 - 1  # the key of an n-gram is an int64
FALLBACK = np.array([0.0, 0.5, 1.0, 1.5])  # discounts of KenLM's `--discount_fallback`


@dataclass(frozen=True, slots=True)
class _Order:
    """The n-grams of one order, sorted, and their contexts, sorted.

    Attributes:
        grams_G: the key of each n-gram; see `_keys`.
        discounted_G: its adjusted count minus its discount.
        contexts_C: the key of each context.
        total_C: the sum of the adjusted counts of the n-grams with this context.
        left_C: the sum of the discounts of these n-grams.
    """

    grams_G: Keys
    discounted_G: Array
    contexts_C: Keys
    total_C: Array
    left_C: Array

    def interpolated(self, keys_N: Keys, types: int, lower_N: Array) -> Array:
        """Return the probabilities of n-grams, given those of the next lower order."""
        index_N = np.searchsorted(self.grams_G, keys_N).clip(max=len(self.grams_G) - 1)
        discounted_N = np.where(self.grams_G[index_N] == keys_N, self.discounted_G[index_N], 0.0)
        context_N = keys_N // types
        index_N = np.searchsorted(self.contexts_C, context_N).clip(max=len(self.contexts_C) - 1)
        higher_N = (discounted_N + self.left_C[index_N] * lower_N) / self.total_C[index_N]
        return np.where(self.contexts_C[index_N] == context_N, higher_N, lower_N)


class KneserNey:
    """An n-gram model of sentences with interpolated modified Kneser-Ney smoothing (Chen & Goodman 1999, §3).

    With u the last n − 1 tokens and u' the last n − 2:

        p_n(w|u) = (a(uw) − D(a(uw)) + p_{n−1}(w|u') Σ_x D(a(ux))) / Σ_x a(ux)

    p_0 = 1 / `predicted`. The adjusted count a (Heafield 2013, P13-2121, §3) of an n-gram of the highest order, or of one
    that starts with `<sos>`, is its count; of other n-grams, the number of different tokens before it. A context that does
    not occur leaves the probability of the lower order. At the start of a sentence, u is the tokens from `<sos>` on.

    Args:
        order: the greatest n, 1 or more.
        types: the size of the vocabulary, the special tokens included.
        predicted: the number of types that can be predicted.
        sentences: the training sentences, each from `<sos>` to `<eos>`.
    """

    def __init__(self, order: int, types: int, predicted: int, sentences: Ragged) -> None:
        assert types**order <= MOST_NGRAMS
        self.types, self.predicted = types, predicted
        self._orders: list[_Order] = []
        grams_G = np.zeros(0, np.int64)
        for n in range(order, 0, -1):
            keys_N, starts_N = _keys(sentences, n, types)
            if n == order:
                grams_G, adjusted_G = np.unique(keys_N, return_counts=True)
            else:
                # The n-grams at the end of different (n+1)-grams; those after <sos> are at the end of none.
                inner_G, inner_counts_G = np.unique(grams_G % types**n, return_counts=True)
                first_G, first_counts_G = np.unique(keys_N[starts_N], return_counts=True)
                grams_G = np.concatenate([inner_G, first_G])
                adjusted_G = np.concatenate([inner_counts_G, first_counts_G])
                sort_G = np.argsort(grams_G)
                grams_G, adjusted_G = grams_G[sort_G], adjusted_G[sort_G]
            self._orders.insert(0, _order(grams_G, adjusted_G, types))

    def nats(self, sentences: Ragged) -> Array:
        """Return the negative log-probability in nats of each sentence with its end."""
        position_N = _positions(sentences)
        probability_N = np.full(len(position_N), 1 / self.predicted)
        for n, order in enumerate(self._orders, start=1):
            keys_M, _ = _keys(sentences, n, self.types)
            long_N = position_N >= n - 1
            inside_N = long_N & (position_N > 0)
            probability_N[inside_N] = order.interpolated(keys_M, self.types, probability_N[inside_N])
        nats_N = np.where(position_N > 0, -np.log(probability_N), 0.0)
        return np.add.reduceat(nats_N, sentences.offsets[:-1].numpy())


def _order(grams_G: Keys, adjusted_G: Keys, types: int) -> _Order:
    discount_G = discounts(adjusted_G)[adjusted_G.clip(max=3)]
    contexts_C, context_G = np.unique(grams_G // types, return_inverse=True)
    return _Order(
        grams_G,
        adjusted_G - discount_G,
        contexts_C,
        np.bincount(context_G, adjusted_G).astype(np.float64),
        np.bincount(context_G, discount_G).astype(np.float64),
    )


def discounts(adjusted_G: Keys) -> Array:
    """Return the discounts of the adjusted counts 0, 1, 2, and 3 or more (Chen & Goodman 1999, §3).

    With n_k the number of n-grams of adjusted count k and Y = n_1 / (n_1 + 2 n_2): D(k) = k − (k + 1) Y n_{k+1} / n_k. Where
    they are not defined, or not above 0, as for little or artificial text, they are 0, 0.5, 1 and 1.5.
    """
    with_count = np.bincount(adjusted_G.clip(max=5), minlength=6)[:5].astype(np.float64)
    if not with_count[1:].all():
        return FALLBACK
    share = with_count[1] / (with_count[1] + 2 * with_count[2])
    found = np.array([0.0, *(k - (k + 1) * share * with_count[k + 1] / with_count[k] for k in (1, 2, 3))])
    return found if (found[1:] > 0).all() else FALLBACK


def _positions(sentences: Ragged) -> Keys:
    """Return the position of each token in its sentence, counted from 0 for `<sos>`."""
    offsets = sentences.offsets.numpy()
    return np.arange(len(sentences.tokens)) - np.repeat(offsets[:-1], np.diff(offsets))


def _keys(sentences: Ragged, n: int, types: int) -> tuple[Keys, npt.NDArray[np.bool_]]:
    """Return the key of the n-gram that ends at each token, and whether it starts with `<sos>`.

    The key is a number with the tokens as digits in base `types`. Tokens without n − 1 tokens before them in their sentence
    are left out, and `<sos>`, which is not predicted.
    """
    position_N = _positions(sentences)
    at_M = np.flatnonzero(position_N >= max(1, n - 1))
    tokens_N = sentences.tokens.numpy().astype(np.int64)
    keys_M = np.zeros(len(at_M), np.int64)
    for back in range(n - 1, -1, -1):
        keys_M = keys_M * types + tokens_N[at_M - back]
    return keys_M, position_N[at_M] == n - 1
