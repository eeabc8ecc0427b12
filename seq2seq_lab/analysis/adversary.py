"""Other attention weights with the same prediction: the adversary of Jain and Wallace 2019 (arXiv:1902.10186, §4.2.2).

For the weights α of one step with the prediction p, it looks for weights α̃ that differ as much as possible from α while the
prediction p̃ stays almost the same: it maximizes the Jensen–Shannon divergence of α and α̃, subject to ½ Σ |p − p̃| ≤ `limit`.
Only this step is changed; see scope `step` of `interventions`. What it finds is a lower bound of the largest divergence.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.analysis.changes import ChangedModel, Kind, Rows, keep
from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.analysis.interventions import (
    classes_of,
    jensen_shannon,
    masks_of_classes,
    medians_by_largest,
    total_variation,
)
from seq2seq_lab.config.schema import Precision
from seq2seq_lab.data.corpus import Gold
from seq2seq_lab.metrics.measurement import CONFIDENCE_SAMPLES
from seq2seq_lab.metrics.significance import confidence_interval, ratio
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.runtime.counter_rng import uniform as draw
from seq2seq_lab.runtime.memory import evaluation_context

# The first logits of each start: log α times the first number, plus a number between ± the second one.
STARTS = ((1.0, 4.0), (0.5, 4.0), (0.0, 4.0), (0.0, 0.1))
LOWEST = -10.0  # of log α at a start
LEARNING_RATE = 0.1
PENALTY = 20.0  # per unit of total variation above the limit

Floats = npt.NDArray[np.floating[Any]]
Part = tuple[Floats, Floats, Floats, list[str], int]
"""The divergences, total variations, largest weights and word classes of the tokens of a sentence, and its cluster."""


@dataclass(frozen=True)
class AdversarialAttention:
    """How far the adversary moves the attention of the tokens of one class of words.

    Attributes:
        word_class: "all", or one of `interventions.CLASSES`.
        tokens: their number.
        divergence: the mean Jensen–Shannon divergence of α and α̃ in nats, at most log 2 = 0.693; of several layers and
            heads the mean over them. Rows that do not sum to 1 are divided by their sum, which stays the same.
        confidence: half the width of its 95% interval (bootstrap over sentences); None for one sentence.
        variation: the mean total variation of the predictions.
        by_largest: the median divergence by the largest weight of α, as (lower limit, upper limit, tokens, median); of
            several layers and heads by the mean of their largest weights.
    """

    word_class: str
    tokens: int
    divergence: float
    confidence: float | None
    variation: float
    by_largest: Sequence[tuple[float, float, int, float]]


def adversarial_attention(
    model: Seq2Seq,
    forced: Forced,
    *,
    gold: Sequence[Gold] | None = None,
    limit: float,
    steps: int,
    seed: int = 1,
    counted: Callable[[int, int], None] | None = None,
    **options: Any,
) -> list[AdversarialAttention]:
    """Return how far the adversary moves the attention of the tokens of given outputs, by class of words; in float32.

    Args:
        gold: the word classes of the pairs.
        limit: of the total variation.
        steps: the number of steps of Adam for each token.
        seed: of the first logits.
        counted: called with the numbers of finished and of all steps of the decoder.
        options: `layer` and `head` of `ChangedModel`.

    Raises:
        UserError: a model without attention.
    """
    parts: list[Part] = []
    plain = ChangedModel(model, keep, **options)
    lengths_N = torch.tensor([len(forced.tokenizer.spans(line)) + 1 for line in forced.targets])
    total, done = sum(int(lengths_N[index].max()) for index in forced.plan), 0
    for index in forced.plan:
        batch = forced.batch(index)
        values_3BT = torch.zeros(3, *batch.inputs_BT.shape)
        with torch.no_grad(), evaluation_context(batch, Precision.fp32, forced.compute.device):
            state, source = plain.start(batch)
            for t, token_B in enumerate(batch.inputs_BT.unbind(1)):
                log_probs_BV, after, _ = plain.step(token_B, state, source, with_weights=False)
                row_N = (lengths_N[index] > t).nonzero()[:, 0]
                own_N = row_N.to(token_B.device)
                adversary = Adversary(
                    model,
                    token_N=token_B[own_N],
                    state=state.select(own_N),
                    source=source.select(own_N),
                    log_probs_NV=log_probs_BV[own_N],
                    seed=seed,
                    options=options,
                )
                divergence_N, variation_N, _ = adversary.search(limit, steps)
                values_3BT[:, row_N, t] = torch.stack([divergence_N, variation_N, adversary.largest_N]).cpu()
                state, done = after, done + 1
                if counted is not None:
                    counted(done, total)
        for row, i in enumerate(index.tolist()):
            own = classes_of(forced, i, None if gold is None else gold[i])
            divergence_T, variation_T, largest_T = values_3BT[:, row, : len(own)].numpy()
            parts.append((divergence_T, variation_T, largest_T, own, int(forced.clusters_N[i])))
    return [*_by_class(parts)]


class Adversary:
    """The search for other attention weights of N rows at one step, from all starts at once.

    Args:
        token_N, state, source: the arguments of `ChangedModel.step`.
        log_probs_NV: the prediction without a change.
        seed: of the first logits.
        options: see `adversarial_attention`.
    """

    def __init__(
        self,
        model: Seq2Seq,
        *,
        token_N: Tensor,
        state: Any,
        source: Any,
        log_probs_NV: Tensor,
        seed: int,
        options: dict[str, Any],
    ) -> None:
        self.model, self.options = model, options
        index_M = torch.arange(len(token_N), device=token_N.device).repeat(len(STARTS))
        self.token_M, self.state, self.source = (
            token_N[index_M],
            state.select(index_M),
            source.select(index_M),
        )
        calls: list[Tensor] = []
        rows_of: list[Rows] = []

        def record(weights_MS: Tensor, rows: Rows) -> Tensor:
            calls.append(weights_MS)
            rows_of.append(rows)
            return weights_MS

        with torch.no_grad():
            self._probs(record)
        self.weights_CMS, self.rows = torch.stack(calls), rows_of[0]  # C: layers and heads
        # The rows of some attention functions do not sum to 1: their shares are changed, and their sums kept.
        self.sums_CM1 = self.weights_CMS.sum(2, keepdim=True)
        self.shares_CMS = self.weights_CMS / self.sums_CM1.clamp(min=torch.finfo(self.weights_CMS.dtype).tiny)
        self.largest_N = self.weights_CMS[:, : len(token_N)].amax(2).mean(0)
        self.probs_MV = log_probs_NV[index_M].exp()
        self.first_logits_CMS = torch.stack([self._first_logits(rows, seed) for rows in rows_of])

    def _first_logits(self, rows: Rows, seed: int) -> Tensor:
        weights_MS = self.weights_CMS[rows.call]
        start_M1 = torch.arange(len(STARTS), device=weights_MS.device).repeat_interleave(
            len(weights_MS) // len(STARTS)
        )[:, None]
        position_S = torch.arange(weights_MS.shape[1], device=weights_MS.device)
        draws_MS = draw(seed, rows.example_N[:, None], rows.step, rows.call, start_M1, position_S)
        share_M1, width_M1 = (weights_MS.new_tensor(each)[start_M1] for each in zip(*STARTS, strict=True))
        return share_M1 * weights_MS.log().clamp(min=LOWEST) + width_M1 * (2 * draws_MS - 1)

    def _probs(self, kind: Kind) -> Tensor:
        """Return the prediction with weights that are changed."""
        changed = ChangedModel(self.model, kind, **self.options)
        log_probs_MV, _, _ = changed.step(self.token_M, self.state, self.source)
        return log_probs_MV.exp()

    def search(self, limit: float, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the largest divergence_N within the limit, the total variation_N there, and the weights_CNS α̃."""
        logits_CMS = self.first_logits_CMS.clone().requires_grad_()
        adam = torch.optim.Adam([logits_CMS], lr=LEARNING_RATE)
        weights_CMS = self.weights_CMS.clone()
        divergence_M = weights_CMS.new_zeros(len(self.token_M))
        variation_M = torch.zeros_like(divergence_M)
        for _ in range(steps):
            # cuDNN has no backward pass of recurrent layers in evaluation mode.
            with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
                tried_CMS = logits_CMS.masked_fill(~self.rows.real_NS, -torch.inf).softmax(2)
                probs_MV = self._probs(partial(of_call, tried_CMS * self.sums_CM1))
                moved_M = total_variation(self.probs_MV, probs_MV)
                apart_M = jensen_shannon(self.shares_CMS, tried_CMS).mean(0)
                loss = (PENALTY * (moved_M - limit).clamp(min=0) - apart_M).sum()
                (logits_CMS.grad,) = torch.autograd.grad(loss, [logits_CMS])
            with torch.no_grad():
                better_M = (moved_M <= limit) & (apart_M > divergence_M)
                divergence_M = torch.where(better_M, apart_M, divergence_M)
                variation_M = torch.where(better_M, moved_M, variation_M)
                weights_CMS = torch.where(better_M[:, None], tried_CMS * self.sums_CM1, weights_CMS)
            adam.step()
        divergence_N, start_N = divergence_M.view(len(STARTS), -1).max(0)
        best_N = start_N * len(start_N) + torch.arange(len(start_N), device=start_N.device)
        return divergence_N, variation_M[best_N], weights_CMS[:, best_N]


def of_call(weights_CNS: Tensor, _: Tensor, rows: Rows) -> Tensor:
    """Return the given weights of this layer and head: a `Kind` once the first argument is given."""
    return weights_CNS[rows.call]


def _by_class(parts: Sequence[Part]) -> Iterator[AdversarialAttention]:
    columns = [np.concatenate([part[i] for part in parts]).astype(np.float64) for i in range(3)]
    classes = [one for part in parts for one in part[3]]
    cluster_N = np.repeat([part[4] for part in parts], [len(part[3]) for part in parts])
    for name, used in masks_of_classes(classes):
        divergence_N, variation_N, largest_N = (column[used] for column in columns)
        sums = np.column_stack([divergence_N, np.ones(len(divergence_N))])
        yield AdversarialAttention(
            word_class=name,
            tokens=len(divergence_N),
            divergence=float(divergence_N.mean()),
            confidence=confidence_interval(ratio, sums, cluster_N[used], CONFIDENCE_SAMPLES),
            variation=float(variation_N.mean()),
            by_largest=[*medians_by_largest(largest_N, divergence_N)],
        )
