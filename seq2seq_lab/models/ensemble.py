"""Several models as one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from seq2seq_lab.errors import UserError
from seq2seq_lab.models.seq2seq import Seq2Seq, log_softmax


@dataclass(frozen=True, slots=True)
class MemberStates:
    """The states of the members."""

    members: tuple[Any, ...]

    def select(self, index_N: Tensor) -> Self:
        """Return the states of the given rows."""
        return replace(self, members=tuple(state.select(index_N) for state in self.members))


@dataclass(frozen=True, slots=True)
class MemberSources(MemberStates):
    """The source as encoded by each member.

    Attributes:
        attending: the index of the first member with attention; 0 if there is none.
    """

    attending: int

    @property
    def lengths_B(self) -> Tensor:
        """The number of positions of each source that the members attend to; see `Source`."""
        lengths_B: Tensor = self.members[self.attending].lengths_B
        return lengths_B


class Ensemble(nn.Module):
    """p(y_t | y_<t, x) and the attention weights are means over the members, models with one vocabulary.

    Replaces a `Seq2Seq` in search and in the losses of an evaluation, not in training.
    """

    def __init__(self, members: Sequence[Seq2Seq]) -> None:
        super().__init__()
        self._models = nn.ModuleList(members)

    @property
    def members(self) -> list[Seq2Seq]:
        """The models."""
        return [member for member in self._models if isinstance(member, Seq2Seq)]

    @property
    def attends(self) -> bool:
        """Whether there are members with attention, all of them to the same positions of a source."""
        positions = {member.encoder.output_per_token for member in self.members if member.attends}
        return len(positions) == 1

    @property
    def longest_source(self) -> int | None:
        """See `Seq2Seq.longest_source`."""
        limits = [member.longest_source for member in self.members]
        return min((limit for limit in limits if limit is not None), default=None)

    def check_length(self, length: int, name: str) -> None:
        """See `Seq2Seq.check_length`."""
        for member in self.members:
            member.check_length(length, name)

    def start(self, batch: Any) -> tuple[MemberStates, MemberSources]:
        """See `Seq2Seq.start`."""
        started = [member.start(batch) for member in self.members]
        states, sources = zip(*started, strict=True)
        attending = next((i for i, member in enumerate(self.members) if member.attends), 0)
        return MemberStates(states), MemberSources(sources, attending)

    def step(
        self, token_N: Tensor, state: MemberStates, source: MemberSources, with_weights: bool = True
    ) -> tuple[Tensor, MemberStates, Tensor | None]:
        """See `Seq2Seq.step`."""
        return self._mean_of("step", token_N, state, source, with_weights)

    def _mean_of(
        self, method: str, tokens: Tensor, state: MemberStates, source: MemberSources, with_weights: bool
    ) -> tuple[Tensor, MemberStates, Tensor | None]:
        steps = [
            getattr(member, method)(tokens, of_member, encoded, with_weights)
            for member, of_member, encoded in zip(self.members, state.members, source.members, strict=True)
        ]
        log_probs, states, weights = zip(*steps, strict=True)
        return _log_mean(log_probs), MemberStates(states), self._mean(weights) if with_weights else None

    @property
    def vocabulary_size(self) -> int:
        """See `Seq2Seq.vocabulary_size`."""
        return self.members[0].vocabulary_size

    def read(
        self, inputs_NT: Tensor, state: MemberStates, source: MemberSources, with_weights: bool = True
    ) -> tuple[Tensor, MemberStates, Tensor | None]:
        """See `Seq2Seq.read`."""
        return self._mean_of("read", inputs_NT, state, source, with_weights)

    def unroll(
        self, inputs_BT: Tensor, state: MemberStates, source: MemberSources, with_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """See `Seq2Seq.unroll`; the logits are log-probabilities."""
        results = [
            member.unroll(inputs_BT, of_member, encoded, with_weights)
            for member, of_member, encoded in zip(self.members, state.members, source.members, strict=True)
        ]
        logits, weights = zip(*results, strict=True)
        log_probs_BTV = _log_mean([log_softmax(logits_BTV) for logits_BTV in logits])
        return log_probs_BTV, self._mean(weights) if with_weights else None

    def _mean(self, weights: Sequence[Tensor | None]) -> Tensor | None:
        """Return the mean attention weights of the members that attend; None if `attends` is false.

        Raises:
            UserError: the members attend to different numbers of source positions, such as regions of an image.
        """
        if not self.attends:
            return None
        attending = [member for member in weights if member is not None]
        positions = sorted({member.shape[-1] for member in attending})
        if len(positions) > 1:
            raise UserError(
                f"The models of the ensemble attend to different numbers of source positions, "
                f"{' and '.join(map(str, positions))}: their attention weights have no mean. Combine models with the same "
                f"encoder, or do not request attention weights."
            )
        return torch.stack(attending).mean(0)


def _log_mean(log_probs: Sequence[Tensor]) -> Tensor:
    """Return the logarithm of the mean of probabilities."""
    stacked = torch.stack(tuple(log_probs))
    return stacked.logsumexp(0) - math.log(len(stacked))
