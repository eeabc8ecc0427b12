"""What a decoder is."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq_lab.models.recurrent import RecurrentState


class Source(NamedTuple):
    """What the decoder looks up about a batch of source sentences; the same at every step.

    `mask` is true at real tokens, of shape B1S; None where nothing is padding.
    """

    memory_BSM: Tensor
    keys_BSK: Tensor
    mask: Tensor | None
    final: RecurrentState


class Decoder(nn.Module, ABC):
    """Reads the embedded target so far. It knows nothing of teacher forcing: the inputs are chosen before.

    `feature_size` is F, the width of what it hands to the readout.
    """

    feature_size: int

    @abstractmethod
    def project(self, memory_BSM: Tensor) -> Tensor:
        """Return the keys_BSK of the memory, once a sentence."""

    @abstractmethod
    def start(self, final: RecurrentState) -> RecurrentState:
        """Return the state before the first target token."""

    @abstractmethod
    def step(
        self, embedded_NE: Tensor, state: RecurrentState, source: Source
    ) -> tuple[Tensor, RecurrentState, Tensor | None]:
        """Read one token: return (features_NF, the next state, weights_NS or None)."""

    def unroll(
        self, embedded_BTE: Tensor, state: RecurrentState, source: Source
    ) -> tuple[Tensor, Tensor | None]:
        """Read a whole target whose tokens are known: return (features_BTF, weights_BTS or None)."""
        features, weights = [], []
        for embedded_BE in embedded_BTE.unbind(1):
            feature_BF, state, weight_BS = self.step(embedded_BE, state, source)
            features.append(feature_BF)
            weights.append(weight_BS)
        rows = [row for row in weights if row is not None]
        return torch.stack(features, dim=1), torch.stack(rows, dim=1) if rows else None
