"""The contract of attention functions, with masking, normalization and the weighted sum.

The T queries of N rows are scored against B sentences, N = B · K: in a search, the K hypotheses of a sentence are
adjacent rows and share its keys and encoder outputs.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seq2seq_lab.errors import UserError
from seq2seq_lab.models.masking import masked_softmax
from seq2seq_lab.models.selectable import Selectable
from seq2seq_lab.models.source import Source
from seq2seq_lab.models.weight_change import WeightChange


class AttentionState(NamedTuple):
    """State of an attention function between two target steps.

    Attributes:
        step: number of target steps so far.
        history: the history of a `StepAttention` over these steps, by row; None for other functions.
    """

    step: int
    history: Any

    def select(self, index_N: Tensor) -> "AttentionState":
        """Return the state of the given rows."""
        return self if self.history is None else AttentionState(self.step, self.history.select(index_N))


class Attended(NamedTuple):
    """The output of an attention function for T queries of N rows."""

    context_NTM: Tensor
    weights_NTS: Tensor | None
    state: AttentionState


class BaseAttention(nn.Module, ABC):
    """Average the encoder outputs, weighted by how well each position matches the query (Bahdanau 2014, eq. 5–6).

    A new attention function derives from `Attention`; from `StatefulAttention` or `StepAttention` if it depends on earlier
    steps.

    `longest_source` is the largest number of source positions that the function can score; None for any number.

    Args:
        query_size: Q, the size of a decoder state.
        encoder_output_size: M.
    """

    longest_source: int | None = None

    def __init__(self, query_size: int, encoder_output_size: int) -> None:
        super().__init__()
        self.query_size = query_size
        self.encoder_output_size = encoder_output_size

    @property
    def context_size(self) -> int:
        """Size of the context vector; 0 for a function that does not attend."""
        return self.encoder_output_size

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        """Return the keys_BSK that are scored; called once per sentence."""
        return encoder_outputs_BSM

    def build_query(self, states_NTH: Tensor, embedded_NTE: Tensor) -> Tensor:
        """Return the query_NTQ, by default the decoder states; overridden to read the embedded input too."""
        return states_NTH

    def initial_state(self, source: Source) -> AttentionState:
        """Return the state before the first target step."""
        return AttentionState(0, None)

    @abstractmethod
    def weigh(
        self, query_NTQ: Tensor, source: Source, state: AttentionState
    ) -> tuple[Tensor | None, AttentionState]:
        """Return weights_NTS, or None without attention, and the state after the last query.

        The weights of a row need not sum to 1.
        """

    def weigh_changed(
        self, query_NTQ: Tensor, source: Source, state: AttentionState, change: WeightChange
    ) -> tuple[Tensor | None, AttentionState]:
        """Return changed weights_NTS and the state after the last query; see `weigh` and `WeightChange`."""
        weights_NTS, after = self.weigh(query_NTQ, source, state)
        return None if weights_NTS is None else change.function(weights_NTS, state.step), after

    def require_shape(self, method: str, returned: Any, letters: str, shape: tuple[int, ...]) -> None:
        """Refuse a returned value of another shape, which the mask could broadcast.

        Raises:
            UserError: names the method, and both shapes.
        """
        if getattr(returned, "shape", None) == shape:
            return
        given = f"shape {list(returned.shape)}" if isinstance(returned, Tensor) else type(returned).__name__
        raise UserError(
            f"attention={type(self).__name__}: {method} returned {given}. Expected: {letters} = {list(shape)}, a number for "
            f"each query and each source position. Correct {method}, or project, which returns the keys."
        )

    def forward(self, query_NTQ: Tensor, source: Source, state: AttentionState) -> Attended:
        """Return context vectors, weights and the next state for T consecutive steps.

        The weights are float32 or wider, and exactly 0 at padding.
        """
        if source.change is None:
            weights_NTS, state = self.weigh(query_NTQ, source, state)
        else:
            weights_NTS, state = self.weigh_changed(query_NTQ, source, state, source.change)
        if weights_NTS is None:
            return Attended(query_NTQ[..., :0], None, state)
        outputs_BSM = source.encoder_outputs_BSM
        weights_BXS = regroup(weights_NTS, len(outputs_BSM)).to(outputs_BSM.dtype)
        return Attended(regroup(torch.bmm(weights_BXS, outputs_BSM), len(query_NTQ)), weights_NTS, state)


class Attention(BaseAttention):
    """An attention function whose scores depend on the query and the keys alone.

    It weighs a whole target at once where the queries are known. A new function implements `score`, and `project` if it
    transforms the encoder outputs.
    """

    @abstractmethod
    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        """Return scores_BTS. In a search, the T queries of a sentence are its hypotheses, all at one step."""

    def weigh(
        self, query_NTQ: Tensor, source: Source, state: AttentionState
    ) -> tuple[Tensor, AttentionState]:
        rows, positions = source.encoder_outputs_BSM.shape[:2]
        query_BXQ = regroup(query_NTQ, rows)
        scores_BXS = self.score(query_BXQ, source.keys_BSK)
        self.require_shape("score", scores_BXS, "[B, T, S]", (rows, query_BXQ.shape[1], positions))
        weights_NTS = regroup(masked_softmax(scores_BXS, source.mask), len(query_NTQ))
        return weights_NTS, AttentionState(state.step + query_NTQ.shape[1], None)


class StepAttention(BaseAttention):
    """An attention function that is computed step by step, because its weights depend on earlier steps.

    A new function implements `start` and `attend_step`; if it normalizes scores with a softmax, and its history depends on
    the weights alone, it derives from `StatefulAttention` instead. Its history is part of the decoder's state: search
    reorders it with the hypotheses, and the methods must not change it in place.
    """

    @abstractmethod
    def start(self, source: Source) -> Selectable:
        """Return the history before the first step, of B rows."""

    @abstractmethod
    def attend_step(self, query_NQ: Tensor, source: Source, history: Any) -> tuple[Tensor, Selectable]:
        """Return weights_NS of one step, in float32 or wider, and the history after it.

        The weights of a row need not sum to 1; those at padding are set to 0. See `repeat_rows` for a source of N rows.
        """

    def initial_state(self, source: Source) -> AttentionState:
        return AttentionState(0, self.start(source))

    def weigh(
        self, query_NTQ: Tensor, source: Source, state: AttentionState
    ) -> tuple[Tensor, AttentionState]:
        history, steps = state.history, []
        shape = (len(query_NTQ), source.encoder_outputs_BSM.shape[1])
        for query_NQ in query_NTQ.unbind(1):
            weights_NS, history = self.attend_step(query_NQ, source, history)
            self.require_shape("attend_step", weights_NS, "[N, S]", shape)
            steps.append(weights_NS)
        weights_NTS = torch.stack(steps, dim=1)
        if source.mask is not None:
            weights_NTS = weights_NTS.masked_fill(~repeat_rows(source.mask, len(query_NTQ)), 0.0)
        return weights_NTS, AttentionState(state.step + len(steps), history)


class StatefulAttention(StepAttention):
    """An attention function whose scores depend on its weights at earlier steps.

    A new function implements `start`, `score_step` and `advance`.
    """

    @abstractmethod
    def score_step(self, query_NQ: Tensor, keys_BSK: Tensor, history: Any) -> Tensor:
        """Return scores_NS of one step; see `repeat_rows` for keys of N rows."""

    @abstractmethod
    def advance(self, history: Any, weights_NS: Tensor) -> Selectable:
        """Return the history after a step with these weights."""

    def attend_step(self, query_NQ: Tensor, source: Source, history: Any) -> tuple[Tensor, Selectable]:
        scores_NS = self.score_step(query_NQ, source.keys_BSK, history)
        shape = (len(query_NQ), source.encoder_outputs_BSM.shape[1])
        self.require_shape("score_step", scores_NS, "[N, S]", shape)
        mask = None if source.mask is None else repeat_rows(source.mask, len(query_NQ))[:, 0]
        weights_NS = masked_softmax(scores_NS, mask)
        return weights_NS, self.advance(history, weights_NS)

    def weigh_changed(
        self, query_NTQ: Tensor, source: Source, state: AttentionState, change: WeightChange
    ) -> tuple[Tensor | None, AttentionState]:
        if not change.seen:
            return super().weigh_changed(query_NTQ, source, state, change)
        history, steps = state.history, []
        for t, query_NQ in enumerate(query_NTQ.unbind(1)):
            weights_NS, _ = self.attend_step(query_NQ, source, history)
            steps.append(change.function(weights_NS[:, None], state.step + t)[:, 0])
            history = self.advance(history, steps[-1])
        return torch.stack(steps, dim=1), AttentionState(state.step + len(steps), history)


def regroup(x_NTX: Tensor, rows: int) -> Tensor:
    """Return x with this many rows: K rows of T queries as one of K · T, or the reverse."""
    return x_NTX if len(x_NTX) == rows else x_NTX.reshape(rows, -1, x_NTX.shape[-1])


def repeat_rows(x_B: Tensor, rows: int) -> Tensor:
    """Return x_N: each row of a sentence once for each of its K = rows / B hypotheses."""
    return x_B if len(x_B) == rows else x_B.repeat_interleave(rows // len(x_B), dim=0)


class AttentionFactory(Protocol):
    """Builds the attention function of a decoder, which determines the size of the query."""

    def __call__(self, *, query_size: int, encoder_output_size: int) -> BaseAttention: ...
