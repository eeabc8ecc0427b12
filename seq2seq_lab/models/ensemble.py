"""Several models as one."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq_lab.models.decoders import DecoderState, Source
from seq2seq_lab.models.seq2seq import Seq2Seq, log_softmax


class EnsembleState(NamedTuple):
    """The states of the members."""

    members: tuple[DecoderState, ...]

    def select(self, index_N: Tensor) -> "EnsembleState":
        """Return the states of the given rows."""
        return EnsembleState(tuple(state.select(index_N) for state in self.members))


class EnsembleSource(NamedTuple):
    """The source as each member has encoded it."""

    members: tuple[Source, ...]

    def select(self, index_N: Tensor) -> "EnsembleSource":
        """Return the sources of the given rows."""
        return EnsembleSource(tuple(source.select(index_N) for source in self.members))


class Ensemble(nn.Module):
    """p(y_t | y_<t, x) is the mean of what its members, models of one vocabulary, say; so are its attention weights.

    It stands for a model where that is not trained: in a search, and for the losses of a batch.
    """

    def __init__(self, members: Sequence[Seq2Seq]) -> None:
        super().__init__()
        self._models = nn.ModuleList(members)
        bounds = [member.longest_source for member in members if member.longest_source is not None]
        self.longest_source = min(bounds, default=None)

    def check_length(self, length: int, what: str) -> None:
        """See `Seq2Seq.check_length`."""
        for member in self.members:
            member.check_length(length, what)

    def start(self, source_BS: Tensor, lengths: Sequence[int]) -> tuple[EnsembleState, EnsembleSource]:
        """See `Seq2Seq.start`."""
        started = [member.start(source_BS, lengths) for member in self.members]
        states, sources = zip(*started, strict=True)
        return EnsembleState(states), EnsembleSource(sources)

    def step(
        self, token_N: Tensor, state: EnsembleState, source: EnsembleSource
    ) -> tuple[Tensor, EnsembleState, Tensor | None]:
        """See `Seq2Seq.step`."""
        steps = [
            member.step(token_N, of_state, of_source)
            for member, of_state, of_source in zip(self.members, state.members, source.members, strict=True)
        ]
        log_probs, states, weights = zip(*steps, strict=True)
        return _mean_log(log_probs), EnsembleState(states), _mean(weights)

    def unroll(
        self, inputs_BT: Tensor, state: EnsembleState, source: EnsembleSource
    ) -> tuple[Tensor, Tensor | None]:
        """See `Seq2Seq.unroll`; the logits are log-probabilities."""
        read = [
            member.unroll(inputs_BT, of_state, of_source)
            for member, of_state, of_source in zip(self.members, state.members, source.members, strict=True)
        ]
        logits, weights = zip(*read, strict=True)
        return _mean_log([log_softmax(one) for one in logits]), _mean(weights)

    @property
    def members(self) -> list[Seq2Seq]:
        """The models."""
        return [member for member in self._models if isinstance(member, Seq2Seq)]


def _mean_log(log_probs: Sequence[Tensor]) -> Tensor:
    """Return the logarithm of the mean of probabilities."""
    stacked = torch.stack(tuple(log_probs))
    return stacked.logsumexp(0) - math.log(len(stacked))


def _mean(weights: Sequence[Tensor | None]) -> Tensor | None:
    """Return the mean attention weights of the members that attend; None where none does."""
    there = [one for one in weights if one is not None]
    return torch.stack(there).mean(0) if there else None
