"""Additive attention functions that read their earlier weights."""

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.models.attention.base import StatefulAttention
from seq2seq_lab.models.source import Source


class WeightHistory(NamedTuple):
    """Weights of earlier steps: those of the last step, or the sum of all."""

    weights_NS: Tensor

    def select(self, index_N: Tensor) -> "WeightHistory":
        """Return the history of the given rows."""
        return WeightHistory(self.weights_NS.index_select(0, index_N))


class StatefulAdditiveAttention(StatefulAttention):
    """score(h_j, s) = vᵀ tanh(W s + U h_j + b + φ_j), φ_j computed from earlier weights by `features`.

    Args:
        size: d_a, the size of W s and U h_j.
        cumulative: read the sum of all earlier weights, not those of the last step.
    """

    def __init__(self, query_size: int, encoder_output_size: int, size: Count, cumulative: bool) -> None:
        super().__init__(query_size, encoder_output_size)
        self.key = nn.Linear(encoder_output_size, size)
        self.query = nn.Linear(query_size, size, bias=False)
        self.energy = nn.Linear(size, 1, bias=False)
        self.cumulative = cumulative

    @abstractmethod
    def features(self, weights_NS: Tensor) -> Tensor:
        """Return φ_NSK of the weights of the last step or of the sum of all."""

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return self.key(encoder_outputs_BSM)

    def start(self, source: Source) -> WeightHistory:
        outputs_BSM = source.encoder_outputs_BSM
        dtype = torch.promote_types(outputs_BSM.dtype, torch.float32)
        return WeightHistory(outputs_BSM.new_zeros(outputs_BSM.shape[:2], dtype=dtype))

    def score_step(self, query_NQ: Tensor, keys_BSK: Tensor, history: WeightHistory) -> Tensor:
        inner_NSK = self.features(history.weights_NS) + self.query(query_NQ)[:, None]
        # B sentences of K rows each share their keys.
        inner_BXSK = inner_NSK.unflatten(0, (len(keys_BSK), -1)) + keys_BSK[:, None]
        scores_BXS1: Tensor = self.energy(inner_BXSK.tanh())
        return scores_BXS1.flatten(0, 1)[..., 0]

    def advance(self, history: WeightHistory, weights_NS: Tensor) -> WeightHistory:
        return WeightHistory(history.weights_NS + weights_NS if self.cumulative else weights_NS)
