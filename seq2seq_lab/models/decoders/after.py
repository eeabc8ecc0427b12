"""The decoder whose attention, if any, comes after the recurrent step."""

import torch
from torch import Tensor, nn

from seq2seq_lab.models.attention.base import AttentionFactory
from seq2seq_lab.models.bridge import Bridge, BridgeKind
from seq2seq_lab.models.decoders.base import Decoder, Source
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.recurrent import Cell, RecurrentLayers, RecurrentState


class AttendAfterDecoder(Decoder):
    """s_t = RNN(e(y_{t-1}), s_{t-1}), then s̃_t = tanh(W_c [c_t; s_t]) (Luong 2015, eq. 5), without input feeding.

    The query is the top layer's state s_t. No state depends on what was attended to, so a known target
    needs no loop over time. Without an attentional layer this is the fixed-context decoder of
    Sutskever 2014: all it knows of the source is its first state.

    Args:
        input_size: E, the size of an embedding.
        attentional_size: the size of s̃_t; None leaves that layer out, and with it the attention.
        dropout: probability between the layers.
        state_dropout: probability on s_t and s̃_t.

    Raises:
        ValueError: an attention function is given and no attentional layer to use it.
    """

    def __init__(
        self,
        input_size: int,
        encoder: EncoderSizes,
        attention: AttentionFactory,
        cell: Cell,
        hidden_size: int,
        num_layers: int,
        attentional_size: int | None,
        bridge: BridgeKind,
        dropout: float,
        state_dropout: float,
    ) -> None:
        super().__init__()
        self.layers = RecurrentLayers(
            cell, input_size, hidden_size, num_layers, bidirectional=False, dropout=dropout
        )
        self.bridge = Bridge(bridge, encoder, hidden_size, num_layers, has_cell=cell == "lstm")
        self.state_dropout = Dropout(state_dropout)
        self.attention = attention(query_size=hidden_size, memory_size=encoder.memory_size)
        self.combine: nn.Linear | None = None
        if attentional_size is not None:
            self.combine = nn.Linear(self.attention.context_size + hidden_size, attentional_size, bias=False)
        elif self.attention.context_size:
            raise ValueError(
                "this decoder has no attention (its attentional_size is null), but an attention function was chosen. "
                "Set attention=none (model=vanilla does), or decoder=luong (model=attn does) to attend."
            )
        self.feature_size = hidden_size if attentional_size is None else attentional_size

    def project(self, memory_BSM: Tensor) -> Tensor:
        return self.attention.project(memory_BSM)

    def start(self, final: RecurrentState) -> RecurrentState:
        return self.bridge(final)

    def read(
        self, embedded_BTE: Tensor, state: RecurrentState, source: Source
    ) -> tuple[Tensor, RecurrentState, Tensor | None]:
        """Read T known tokens at once: return (features_BTF, the state after them, weights_BTS or None)."""
        states_BTH, last = self.layers(embedded_BTE, state)
        # The layers compute time first; a matrix product of that layout becomes one product a sentence.
        states_BTH = states_BTH.flatten(0, 1).unflatten(0, embedded_BTE.shape[:2])
        features_BTF, weights_BTS = self.state_dropout(states_BTH), None
        if self.combine is not None:
            context_BTM, weights_BTS = self.attention(
                features_BTF, source.keys_BSK, source.memory_BSM, source.mask
            )
            combined_BTF = self.combine(torch.cat([context_BTM, features_BTF], dim=-1)).tanh()
            features_BTF = self.state_dropout(combined_BTF)
        return features_BTF, last, weights_BTS

    def step(
        self, embedded_NE: Tensor, state: RecurrentState, source: Source
    ) -> tuple[Tensor, RecurrentState, Tensor | None]:
        features_N1F, state, weights_N1S = self.read(embedded_NE[:, None], state, source)
        return features_N1F[:, 0], state, None if weights_N1S is None else weights_N1S[:, 0]

    def unroll(
        self, embedded_BTE: Tensor, state: RecurrentState, source: Source
    ) -> tuple[Tensor, Tensor | None]:
        features_BTF, _, weights_BTS = self.read(embedded_BTE, state, source)
        return features_BTF, weights_BTS
