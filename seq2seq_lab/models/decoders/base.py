"""What a decoder is."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq_lab.models.attention.base import Attention
from seq2seq_lab.models.bridge import BridgeKind
from seq2seq_lab.models.recurrent import RecurrentState
from seq2seq_lab.models.source import Source


class DecoderState(NamedTuple):
    """What a decoder hands from one step to the next; `fed_BF` is what input feeding hands on besides the layers."""

    layers: RecurrentState
    fed_BF: Tensor | None

    def select(self, index_N: Tensor) -> "DecoderState":
        """Return the states of the given rows of the batch (a beam reorders its hypotheses so)."""
        fed = self.fed_BF
        return DecoderState(
            self.layers.select(index_N), None if fed is None else fed.index_select(0, index_N)
        )


class Decoder(nn.Module, ABC):
    """Reads the embedded target so far. It knows nothing of teacher forcing: the inputs are chosen before.

    `feature_size` is F, the width of what it hands to the readout.
    """

    feature_size: int

    @abstractmethod
    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        """Return the keys_BSK of the memory, once a sentence."""

    @abstractmethod
    def start(self, source: Source) -> DecoderState:
        """Return the state before the first target token."""

    @abstractmethod
    def step(
        self, embedded_NE: Tensor, state: DecoderState, source: Source
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """Read one token: return (features_NF, the next state, weights_NS or None).

        A source of B sentences serves N = B · K rows, the K of a sentence side by side.
        """

    def unroll(
        self, embedded_BTE: Tensor, state: DecoderState, source: Source
    ) -> tuple[Tensor, Tensor | None]:
        """Read a whole target whose tokens are known: return (features_BTF, weights_BTS or None)."""
        features, weights = [], []
        for embedded_BE in embedded_BTE.unbind(1):
            feature_BF, state, weight_BS = self.step(embedded_BE, state, source)
            features.append(feature_BF)
            weights.append(weight_BS)
        return torch.stack(features, dim=1), stack_rows(weights)


def check_source_is_read(bridge: BridgeKind, attention: Attention) -> None:
    """Refuse a decoder that starts from nothing and attends to nothing.

    Raises:
        ValueError: names the settings.
    """
    if bridge == "zero" and not attention.context_size:
        raise ValueError(
            "decoder.bridge=zero with attention=none leaves the source no say. Set model.bridge=tanh, or choose an "
            "attention function."
        )


def attend(
    attention: Attention, states_BTH: Tensor, embedded_BTE: Tensor, source: Source
) -> tuple[Tensor, Tensor | None]:
    """Return (context_BTM, weights_BTS or None) for the queries that decoder states make.

    Several rows of states a sentence (the K hypotheses of a beam, side by side) ask as if they were K times as many steps.
    """
    rows, sentences = len(states_BTH), len(source.encoder_outputs_BSM)
    query_BTQ = attention.query_of(states_BTH, embedded_BTE)
    if rows != sentences:
        query_BTQ = _with_rows(query_BTQ, sentences)
    context_BTM, weights_BTS = attention(query_BTQ, source.keys_BSK, source.encoder_outputs_BSM, source.mask)
    if rows != sentences:
        context_BTM = _with_rows(context_BTM, rows)
        weights_BTS = None if weights_BTS is None else _with_rows(weights_BTS, rows)
    return context_BTM, weights_BTS


def _with_rows(x_BTX: Tensor, rows: int) -> Tensor:
    return x_BTX.reshape(rows, -1, x_BTX.shape[-1])


def attend_once(
    attention: Attention, state_NH: Tensor, embedded_NE: Tensor, source: Source
) -> tuple[Tensor, Tensor | None]:
    """Return (context_NM, weights_NS or None) for the query that one step's state makes."""
    context_N1M, weights_N1S = attend(attention, state_NH[:, None], embedded_NE[:, None], source)
    return context_N1M[:, 0], None if weights_N1S is None else weights_N1S[:, 0]


def stack_rows(rows: list[Tensor | None]) -> Tensor | None:
    """Return weights_BTS from the weights_BS of T steps, or None where nothing was attended to."""
    there = [row for row in rows if row is not None]
    return torch.stack(there, dim=1) if there else None
