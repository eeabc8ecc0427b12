"""Kinds of changes of attention weights, and a model whose weights are changed at every step.

A kind replaces the weights of a row over the real source positions, with `<sos>` and `<eos>`. Draws depend on the seed, the
example and the step only, so an example alone is changed as it is in a batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from seq2seq_lab.errors import UserError
from seq2seq_lab.models.attention.base import repeat_rows
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.models.weight_change import WeightChange
from seq2seq_lab.runtime.counter_rng import uniform as draw

TRIES = 10  # permutations until the arg max moves


@dataclass(frozen=True, slots=True)
class Rows:
    """What a kind sees of N rows at one step, besides their weights.

    Attributes:
        real_NS: whether each position is real.
        example_N: the index of the example of each row.
        step: the index of the step.
        call: how often the weights of this step were changed before, in earlier layers and heads.
        previous_NS: the unchanged weights of the previous step, of the same layer and head; None at the first step.
        given_NS: the weights or the positions (`word=`, `mask=`) of the caller, NaN in rows without any; None if not given.
        seed: of the draws.
    """

    real_NS: Tensor
    example_N: Tensor
    step: int
    call: int
    previous_NS: Tensor | None
    given_NS: Tensor | None
    seed: int

    @property
    def lengths_N1(self) -> Tensor:
        """The number of real positions of each row."""
        return self.real_NS.sum(1, keepdim=True)


Kind = Callable[[Tensor, Rows], Tensor]


def keep(weights_NS: Tensor, rows: Rows) -> Tensor:
    """Change nothing."""
    return weights_NS


def uniform(weights_NS: Tensor, rows: Rows) -> Tensor:
    """Give every position the same weight."""
    return rows.real_NS / rows.lengths_N1.to(weights_NS.dtype)


def permute(weights_NS: Tensor, rows: Rows) -> Tensor:
    """Permute the weights so that the arg max moves; after `TRIES` permutations, exchange it with another position."""
    return permuted(weights_NS, rows, 0)


def permuted(weights_NS: Tensor, rows: Rows, permutation: Tensor | int) -> Tensor:
    """Return the weights in one of many orders; see `permute`.

    Args:
        permutation: its number, or those of the rows [N, 1].
    """
    best_N1 = weights_NS.argmax(1, keepdim=True)
    position_S = torch.arange(weights_NS.shape[1], device=weights_NS.device)
    result_NS, moved_N1 = weights_NS, torch.zeros_like(best_N1, dtype=torch.bool)
    example_N1 = rows.example_N[:, None]
    for attempt in range(TRIES):
        counters = (rows.step, rows.call, permutation, attempt)
        keys_NS = draw(rows.seed, example_N1, *counters, position_S).masked_fill(~rows.real_NS, 2.0)
        tried_NS = weights_NS.gather(1, keys_NS.argsort(stable=True, dim=1))
        result_NS = torch.where(moved_N1, result_NS, tried_NS)
        moved_N1 = result_NS.argmax(1, keepdim=True) != best_N1
    # Exchanged with the next real position.
    other_N1 = (best_N1 + 1) % rows.lengths_N1
    values = weights_NS.gather(1, best_N1), weights_NS.gather(1, other_N1)
    exchanged_NS = weights_NS.scatter(1, other_N1, values[0]).scatter(1, best_N1, values[1])
    return torch.where(moved_N1, result_NS, exchanged_NS)


def zero_out_max(weights_NS: Tensor, rows: Rows) -> Tensor:
    """Remove the largest weight, and divide the rest by its sum; without a rest, give the others the same weight."""
    return _without(weights_NS, _is_best(weights_NS), rows)


def only_max(weights_NS: Tensor, rows: Rows) -> Tensor:
    """Give the position of the largest weight all weight."""
    return _is_best(weights_NS).to(weights_NS.dtype)


def keep_max_uniform_others(weights_NS: Tensor, rows: Rows) -> Tensor:
    """Keep the largest weight, and give the other positions the same weight."""
    is_best_NS = _is_best(weights_NS)
    rest_N1 = weights_NS.masked_fill(is_best_NS, 0).sum(1, keepdim=True)
    others_NS = (rest_N1 / (rows.lengths_N1 - 1).clamp(min=1)) * (rows.real_NS & ~is_best_NS)
    return torch.where(is_best_NS, weights_NS, others_NS)


def zero_out(weights_NS: Tensor, rows: Rows) -> Tensor:
    """Set all weights to 0, so that the context is 0."""
    return torch.zeros_like(weights_NS)


def previous(weights_NS: Tensor, rows: Rows) -> Tensor:
    """Use the weights of the previous step; those of the first step stay."""
    return weights_NS if rows.previous_NS is None else rows.previous_NS


def given(weights_NS: Tensor, rows: Rows) -> Tensor:
    """Use the given weights, where there are any."""
    assert rows.given_NS is not None
    given_NS = rows.given_NS.to(weights_NS.dtype)
    return torch.where(given_NS.isnan(), weights_NS, given_NS)


def mask(weights_NS: Tensor, rows: Rows) -> Tensor:
    """Remove the weight of the given positions (not 0), and divide the rest by its sum; see `zero_out_max`."""
    assert rows.given_NS is not None
    removed_NS = rows.given_NS.nan_to_num(0) > 0
    return torch.where(removed_NS.any(1, keepdim=True), _without(weights_NS, removed_NS, rows), weights_NS)


def _is_best(weights_NS: Tensor) -> Tensor:
    best_N1 = weights_NS.argmax(1, keepdim=True)
    return torch.zeros_like(weights_NS, dtype=torch.bool).scatter_(1, best_N1, True)


def _without(weights_NS: Tensor, removed_NS: Tensor, rows: Rows) -> Tensor:
    rest_NS = weights_NS.masked_fill(removed_NS, 0)
    sum_N1 = rest_NS.sum(1, keepdim=True)
    others_NS = (rows.real_NS & ~removed_NS).to(weights_NS.dtype)
    equal_NS = others_NS / others_NS.sum(1, keepdim=True).clamp(min=1)
    return torch.where(sum_N1 > 0, rest_NS / sum_N1.clamp(min=torch.finfo(sum_N1.dtype).tiny), equal_NS)


KINDS: dict[str, Kind] = {
    "uniform": uniform,
    "permute": permute,
    "zero_out_max": zero_out_max,
    "only_max": only_max,
    "keep_max_uniform_others": keep_max_uniform_others,
    "zero_out": zero_out,
    "previous": previous,
    "gold": given,
    "weights": given,
    "word": given,
    "mask": mask,
}


def require_attention(model: Any) -> None:
    """Refuse a model without attention weights that can be changed.

    Raises:
        UserError: an ensemble, a language model, or a model without attention.
    """
    if not isinstance(model, Seq2Seq):
        raise UserError(
            "The attention weights of an ensemble or a language model cannot be changed. Give another run."
        )
    if not model.attends:
        raise UserError("The model has no attention to change. Give a run of a model with attention.")


@dataclass(frozen=True, slots=True)
class ChangedState:
    """The state of a `ChangedModel`.

    Attributes:
        inner: that of the model.
        row_N: the index in its batch of the sentence of each row.
        previous: the unchanged weights_NS of the last step, of each layer and head that is changed.
        step: the number of steps so far.
    """

    inner: Any
    row_N: Tensor
    previous: tuple[Tensor, ...] = ()
    step: int = 0

    def select(self, index_N: Tensor) -> "ChangedState":
        """Return the states of the given rows."""
        previous = tuple(one.index_select(0, index_N) for one in self.previous)
        return ChangedState(
            self.inner.select(index_N), self.row_N.index_select(0, index_N), previous, self.step
        )


@dataclass(frozen=True)
class ChangedModel:
    """A model whose attention weights are changed at each step; a `search.base.StepModel`.

    Args:
        model: a `Seq2Seq`.
        kind: the change.
        given: weights or positions [T, S] of each example, by `batch.index_B`, over its tokens with `<sos>` and
            `<eos>`; with T = 1, the same at every step. NaN, and steps beyond T: not changed.
        layer, head, seen: see `WeightChange`.
        seed: of the draws.
        first, last: the steps that are changed, from 0; None for all from the first one.
        unchanged: the index in a batch of a sentence whose weights are not changed; None for none.

    Raises:
        UserError: the model has no attention weights that can be changed.
    """

    model: Seq2Seq
    kind: Kind
    given: Sequence[Tensor] | None = None
    layer: int | None = None
    head: int | None = None
    seen: bool = True
    seed: int = 1
    first: int = 0
    last: int | None = None
    unchanged: int | None = None

    def __post_init__(self) -> None:
        require_attention(self.model)

    @property
    def vocabulary_size(self) -> int:
        """See `Seq2Seq.vocabulary_size`."""
        return self.model.vocabulary_size

    def start(self, batch: Any) -> tuple[ChangedState, "ChangedSource"]:
        """See `Seq2Seq.start`; the draws depend on `batch.index_B`."""
        return self.started(*self.model.start(batch), batch)

    def started(
        self, inner: Any, source: Any, batch: Any, step: int = 0
    ) -> tuple[ChangedState, "ChangedSource"]:
        """Return what `start` returns, or the same before a later step, from what the model returns there."""
        row_N = torch.arange(len(batch.index_B), device=batch.index_B.device)
        return ChangedState(inner, row_N, step=step), self.source(source, batch)

    def source(self, inner: Any, batch: Any) -> "ChangedSource":
        """Return the encoded source of a batch for this change."""
        given_BTS = None if self.given is None else padded(self.given, batch)
        return ChangedSource(inner, batch.index_B, given_BTS)

    def step(
        self, token_N: Tensor, state: ChangedState, source: "ChangedSource", with_weights: bool = True
    ) -> tuple[Tensor, ChangedState, Tensor | None]:
        """See `Seq2Seq.step`."""
        change, latest = self._change(state, source)
        if self.last is not None and state.step > self.last:
            change = None
        log_probs_NV, inner, weights_NS = self.model.step(
            token_N, state.inner, source.inner, with_weights, change=change
        )
        return log_probs_NV, ChangedState(inner, state.row_N, (*latest,), state.step + 1), weights_NS

    def read(
        self, inputs_NT: Tensor, state: ChangedState, source: "ChangedSource", with_weights: bool = True
    ) -> tuple[Tensor, ChangedState, Tensor | None]:
        """See `Seq2Seq.read`."""
        change, latest = self._change(state, source)
        log_probs_NTV, inner, weights_NTS = self.model.read(
            inputs_NT, state.inner, source.inner, with_weights, change=change
        )
        after = ChangedState(inner, state.row_N, (*latest,), state.step + inputs_NT.shape[1])
        return log_probs_NTV, after, weights_NTS

    def _change(
        self, state: ChangedState, source: "ChangedSource"
    ) -> tuple[WeightChange | None, list[Tensor]]:
        """Return the change of the next steps, and a list that then has the unchanged weights_NS of the last one."""
        latest, calls = [*state.previous], dict[int, int]()

        def function(weights_NTS: Tensor, step: int) -> Tensor:
            call = calls[step] = calls.get(step, -1) + 1
            if step + weights_NTS.shape[1] <= self.first or (self.last is not None and step > self.last):
                latest[call : call + 1] = [weights_NTS[:, -1]]
                return weights_NTS
            changed: list[Tensor] = []
            for t, weights_NS in enumerate(weights_NTS.unbind(1), start=step):
                result_NS = weights_NS
                if self.first <= t and (self.last is None or t <= self.last):
                    previous_NS = latest[call] if call < len(latest) else None
                    rows = self._rows(weights_NS, state, source, call=call, step=t, previous_NS=previous_NS)
                    result_NS = self.kind(weights_NS, rows)
                    if self.unchanged is not None:
                        result_NS = result_NS.where(state.row_N[:, None] != self.unchanged, weights_NS)
                latest[call : call + 1] = [weights_NS]
                changed.append(result_NS)
            return torch.stack(changed, 1)

        return WeightChange(function, self.layer, self.head, self.seen), latest

    def _rows(
        self,
        weights_NS: Tensor,
        state: ChangedState,
        source: "ChangedSource",
        *,
        call: int,
        step: int,
        previous_NS: Tensor | None,
    ) -> Rows:
        position_S = torch.arange(weights_NS.shape[1], device=weights_NS.device)
        lengths_N = repeat_rows(source.lengths_B, len(weights_NS))
        given_NS = None
        if source.given_BTS is not None:
            t = 0 if source.given_BTS.shape[1] == 1 else step
            given_NS = torch.full_like(weights_NS, float("nan"))
            if t < source.given_BTS.shape[1]:
                given_NS = source.given_BTS[state.row_N, t]
        return Rows(
            real_NS=position_S < lengths_N[:, None],
            example_N=source.index_B[state.row_N],
            step=step,
            call=call,
            previous_NS=previous_NS,
            given_NS=given_NS,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True)
class ChangedSource:
    """The encoded source, and the indices and the given weights of all examples of the batch, finished ones included."""

    inner: Any
    index_B: Tensor
    given_BTS: Tensor | None

    @property
    def lengths_B(self) -> Tensor:
        """See `Source`."""
        lengths_B: Tensor = self.inner.lengths_B
        return lengths_B

    def select(self, index_N: Tensor) -> "ChangedSource":
        """Return the sources of the given rows."""
        return ChangedSource(self.inner.select(index_N), self.index_B, self.given_BTS)


def padded(given: Sequence[Tensor], batch: Any) -> Tensor:
    """Return the matrices of the examples of a batch as one tensor, NaN beyond their rows and 0 beyond their columns."""
    matrices = [given[i] for i in batch.index_B.tolist()]
    rows, columns = max(map(len, matrices)), max(one.shape[1] for one in matrices)
    padded_BTS = torch.full((len(matrices), rows, columns), float("nan"), dtype=torch.float64)
    for row, matrix_TS in enumerate(matrices):
        unchanged_T1 = matrix_TS.isnan().any(1, keepdim=True)
        filled_TS = functional.pad(matrix_TS, (0, columns - matrix_TS.shape[1]))
        padded_BTS[row, : len(matrix_TS)] = filled_TS.masked_fill(unchanged_T1, float("nan"))
    return padded_BTS.to(batch.index_B.device)
