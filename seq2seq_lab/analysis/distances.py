"""How far apart the attention and the predictions of trained models are when they read the same outputs.

Between runs that differ only in the seed it is the noise that a difference of settings is compared with.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from seq2seq_lab.analysis.comparison import Mean
from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.analysis.interventions import jensen_shannon, total_variation
from seq2seq_lab.metrics.attention import Units, joined, row_shares
from seq2seq_lab.metrics.significance import clusters_of

CHUNK = 16  # pairs that all models read at once

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Distances:
    """Means over pairs of models; None where no pair has one.

    Attributes:
        attention: the Jensen–Shannon divergence of the weights of a word in nats, at most log 2 = 0.693.
        predictions: the total variation ½ Σ |p − q| of the predictions of a token, of models with the same vocabulary.
    """

    attention: Mean | None
    predictions: Mean | None


@dataclass(frozen=True)
class Reading:
    """What a model computes for one pair of an input and an output.

    Attributes:
        weights_TS: the attention weights of words and punctuation marks; see `metrics.attention`. None without attention to
            the tokens of a text.
        probs_TV: the predictions of the tokens.
        ids_T: the tokens.
        vocabulary: the number of the model's vocabulary.
    """

    weights_TS: torch.Tensor | None
    probs_TV: torch.Tensor
    ids_T: list[int]
    vocabulary: int


def measure_distances(
    runs: Sequence[Any],
    pairs: Mapping[Key, Sequence[tuple[int, int]]],
    sources: Sequence[str],
    targets: Sequence[str],
    counted: Callable[[int, int], None] | None = None,
) -> dict[Key, Distances]:
    """Return the mean distances of pairs of runs that read given outputs, by the key of the pairs.

    Args:
        runs: as returned by `seq2seq_lab.load`.
        pairs: the indices of two runs each.
        sources, targets: see `Loaded.forced`.
        counted: called with the numbers of finished and of all sentences.

    Raises:
        UserError: a task whose models read no given outputs.
    """
    rows = {key: np.zeros((len(sources), 2, 2)) for key in pairs}  # (attention, predictions), (sum, count)
    numbers: dict[tuple[str, ...], int] = {}
    vocabularies = [numbers.setdefault(vocabulary_of(run), len(numbers)) for run in runs]
    for first in range(0, len(sources), CHUNK):
        chunk = slice(first, first + CHUNK)
        found = [
            [*readings(run.forced(sources[chunk], targets[chunk]), vocabulary)]
            for run, vocabulary in zip(runs, vocabularies, strict=True)
        ]
        for key, own in pairs.items():
            for one, other in own:
                for i, both in enumerate(zip(found[one], found[other], strict=True), start=first):
                    rows[key][i] += apart(*both)
        if counted is not None:
            counted(min(first + CHUNK, len(sources)), len(sources))
    clusters_N = clusters_of(sources)
    return {key: Distances(*(Mean.of(own[:, i], clusters_N) for i in range(2))) for key, own in rows.items()}


def vocabulary_of(run: Any) -> tuple[str, ...]:
    """Return all tokens that a run can predict."""
    tokenizer = run.output_tokenizer
    return tuple(tokenizer.tokens(range(tokenizer.size)))


def readings(forced: Forced, vocabulary: int) -> Iterator[Reading]:
    """Yield what a model computes for each pair, in their order."""
    found: dict[int, Reading] = {}
    for index, batch, logits_BTV, weights_BTS in forced.readings():
        probs_BTV = logits_BTV.float().softmax(2).cpu()
        for row, i in enumerate(index):
            tokens = len(forced.tokenizer.spans(forced.targets[i])) + 1
            length = int(batch.source_lengths[row])
            weights_TS = None
            if weights_BTS is not None and forced.source_tokenizer is not None:
                weights_TS = unit_weights(weights_BTS[row, :tokens, :length], *forced.units(i))
            ids_T = batch.outputs_BT[row, :tokens].tolist()
            found[i] = Reading(weights_TS, probs_BTV[row, :tokens], ids_T, vocabulary)
    yield from (found[i] for i in range(len(forced.targets)))


def unit_weights(weights_TS: torch.Tensor, source: Units, target: Units) -> torch.Tensor:
    """Return the weights of units, rows that do not sum to 1 divided by their sum."""
    units_1TS, _, _ = joined(weights_TS[None].float().cpu().numpy(), [source], [target])
    return torch.from_numpy(row_shares(units_1TS)[0])


def apart(one: Reading, other: Reading) -> list[tuple[float, int]]:
    """Return the sum and the number of distances of weights and of predictions."""
    sums = [(0.0, 0), (0.0, 0)]
    p_TS, q_TS = one.weights_TS, other.weights_TS
    if p_TS is not None and q_TS is not None and p_TS.shape == q_TS.shape:
        sums[0] = (float(jensen_shannon(p_TS, q_TS).sum()), len(p_TS))
    if one.ids_T == other.ids_T and one.vocabulary == other.vocabulary:
        variation_T = total_variation(one.probs_TV, other.probs_TV)
        sums[1] = (float(variation_T.sum(dtype=torch.float64)), len(one.ids_T))
    return sums
