"""What all attention functions share: masking, normalising and the weighted sum."""

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor, nn


class Attention(nn.Module, ABC):
    """Weigh the memory by how well each position fits the query (Bahdanau 2014, eq. 5–6).

    A new attention function writes `score`, and `project` where it transforms the memory.

    `longest_source` is the most memory positions it can weigh, None for any number.

    Args:
        query_size: width Q of the query, a decoder state.
        encoder_output_size: width M of the memory, the encoder's outputs.
    """

    longest_source: int | None = None

    def __init__(self, query_size: int, encoder_output_size: int) -> None:
        super().__init__()
        self.query_size = query_size
        self.encoder_output_size = encoder_output_size

    @property
    def context_size(self) -> int:
        """Width of the context vector."""
        return self.encoder_output_size

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        """Return the keys_BSK that `score` compares with the query; done once a sentence."""
        return encoder_outputs_BSM

    def query_of(self, states_BTH: Tensor, embedded_BTE: Tensor) -> Tensor:
        """Return the query_BTQ that `score` is given: the decoder's states, unless the input is asked for too."""
        return states_BTH

    @abstractmethod
    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        """Return scores_BTS, the fit of each memory position to each query."""

    def forward(
        self, query_BTQ: Tensor, keys_BSK: Tensor, encoder_outputs_BSM: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return (context_BTM, weights_BTS).

        Args:
            mask: true where a position may be attended to, broadcastable to BTS; None where all may.

        Each row of the weights, which are float32 at least, sums to 1; a masked position gets exactly 0.
        """
        scores_BTS = self.score(query_BTQ, keys_BSK)
        scores_BTS = scores_BTS.to(torch.promote_types(scores_BTS.dtype, torch.float32))
        if mask is not None:
            scores_BTS = scores_BTS.masked_fill(~mask, float("-inf"))
        weights_BTS = scores_BTS.softmax(dim=-1)
        return torch.bmm(weights_BTS.to(encoder_outputs_BSM.dtype), encoder_outputs_BSM), weights_BTS


def checked_size(size: int) -> int:
    """Return d_a, the size that keys and query are projected to, if it is one.

    Raises:
        ValueError: it is not.
    """
    if size < 1:
        raise ValueError(f"attention.size={size} must be at least 1.")
    return size


class AttentionFactory(Protocol):
    """Makes an attention function for a decoder, which knows the size of its query."""

    def __call__(self, *, query_size: int, encoder_output_size: int) -> Attention: ...
