"""The decoder whose attention, if any, comes after the recurrent step."""

import torch
from torch import Tensor, nn

from seq2seq_lab.models.attention.base import AttentionFactory
from seq2seq_lab.models.bridge import Bridge, BridgeKind
from seq2seq_lab.models.decoders.base import Decoder, DecoderState, attend, check_source_is_read, stack_rows
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.recurrent import Cell, RecurrentLayers, RecurrentLoop, dropped
from seq2seq_lab.models.source import Source


class AttendAfterDecoder(Decoder):
    """s_t = RNN(e(y_{t-1}), s_{t-1}), then s̃_t = tanh(W_c [c_t; s_t]) (Luong 2015, eq. 5).

    The query is the top layer's state s_t. No state depends on what was attended to, so a known target
    needs no loop over time; with input feeding, s_t = RNN([e(y_{t-1}); s̃_{t-1}], s_{t-1}) (§3.3), it does.
    Without an attentional layer this is the fixed-context decoder of Sutskever 2014: all it knows of the source
    is its first state.

    Args:
        input_size: E, the size of an embedding.
        attentional_size: the size of s̃_t; None leaves that layer out, and with it the attention.
        input_feeding: s̃_{t-1} stands beside the embedding in the input.
        dropout: probability between the layers.
        state_dropout: probability on s_t and s̃_t.
        locked_dropout: one dropout mask a sentence, not one a token.

    Raises:
        ValueError: an attention function or input feeding without an attentional layer to use it, or with one of no size;
            or nothing that knows of the source.
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
        input_feeding: bool,
        bridge: BridgeKind,
        dropout: float,
        state_dropout: float,
        locked_dropout: bool,
    ) -> None:
        super().__init__()
        if input_feeding and attentional_size is None:
            raise ValueError(
                "decoder.input_feeding=true feeds the attentional layer's s̃ back, but attentional_size is null. "
                "Set decoder.attentional_size=${model.hidden_size}, or decoder=luong_feeding."
            )
        if attentional_size is not None and attentional_size < 1:
            raise ValueError(
                f"decoder.attentional_size={attentional_size} must be at least 1, or null for no such layer."
            )
        self.fed_size = attentional_size if input_feeding and attentional_size is not None else 0
        self.layers = RecurrentLayers(
            cell, input_size + self.fed_size, hidden_size, num_layers, False, dropout, locked_dropout
        )
        self.bridge = Bridge(bridge, encoder, hidden_size, num_layers, has_cell=cell == "lstm")
        self.state_dropout = Dropout(state_dropout, locked_dropout)
        self.attention = attention(query_size=hidden_size, encoder_output_size=encoder.encoder_output_size)
        check_source_is_read(bridge, self.attention)
        self.combine: nn.Linear | None = None
        if attentional_size is not None:
            self.combine = nn.Linear(self.attention.context_size + hidden_size, attentional_size, bias=False)
        elif self.attention.context_size:
            raise ValueError(
                "decoder: model=vanilla and decoder=plain have no attention (decoder.attentional_size=null), but an "
                "attention function is chosen. Leave attention=… out, or choose model=attn (decoder=luong) with it."
            )
        self.feature_size = hidden_size if attentional_size is None else attentional_size

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return self.attention.project(encoder_outputs_BSM)

    def start(self, source: Source) -> DecoderState:
        encoder_outputs_BSM = source.encoder_outputs_BSM
        fed_BF = (
            encoder_outputs_BSM.new_zeros(len(encoder_outputs_BSM), self.fed_size) if self.fed_size else None
        )
        return DecoderState(self.bridge(source), fed_BF)

    def step(
        self, embedded_NE: Tensor, state: DecoderState, source: Source
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        input_N1E = embedded_NE[:, None]
        if state.fed_BF is not None:
            input_N1E = torch.cat([embedded_NE, state.fed_BF.to(embedded_NE.dtype)], dim=-1)[:, None]
        states_N1H, layers = self.layers(input_N1E, state.layers)
        features_N1F, weights_N1S = self._attend(self.state_dropout(states_N1H), embedded_NE[:, None], source)
        if self.combine is not None:
            features_N1F = self.state_dropout(features_N1F)
        features_NF = features_N1F[:, 0]
        return (
            features_NF,
            DecoderState(layers, features_NF if self.fed_size else None),
            None if weights_N1S is None else weights_N1S[:, 0],
        )

    def unroll(
        self, embedded_BTE: Tensor, state: DecoderState, source: Source
    ) -> tuple[Tensor, Tensor | None]:
        if self.fed_size:
            return self._unroll_feeding(embedded_BTE, state, source)
        states_BTH, _ = self.layers(embedded_BTE, state.layers)
        # The layers compute time first; a matrix product of that layout becomes one product a sentence.
        states_BTH = states_BTH.flatten(0, 1).unflatten(0, embedded_BTE.shape[:2])
        features_BTF, weights_BTS = self._attend(self.state_dropout(states_BTH), embedded_BTE, source)
        return features_BTF if self.combine is None else self.state_dropout(features_BTF), weights_BTS

    def _unroll_feeding(
        self, embedded_BTE: Tensor, state: DecoderState, source: Source
    ) -> tuple[Tensor, Tensor | None]:
        loop = RecurrentLoop(self.layers, embedded_BTE, state.layers)
        hidden_masks = loop.masks(self.state_dropout, self.layers.output_size)
        fed_masks = loop.masks(self.state_dropout, self.fed_size)
        fed_BF = state.fed_BF
        assert fed_BF is not None
        fed_BF = fed_BF.to(loop.dtype)
        features: list[Tensor] = []
        weights: list[Tensor | None] = []
        for t, embedded_BE in enumerate(embedded_BTE.unbind(1)):
            hidden_BH = dropped(loop.step(t, fed_BF), hidden_masks, t)
            feature_B1F, weights_B1S = self._attend(hidden_BH[:, None], embedded_BE[:, None], source)
            fed_BF = dropped(feature_B1F[:, 0], fed_masks, t)
            features.append(fed_BF)
            weights.append(None if weights_B1S is None else weights_B1S[:, 0])
        return torch.stack(features, dim=1), stack_rows(weights)

    def _attend(
        self, states_BTH: Tensor, embedded_BTE: Tensor, source: Source
    ) -> tuple[Tensor, Tensor | None]:
        """Return (s̃_BTF or the states themselves, weights_BTS or None)."""
        if self.combine is None:
            return states_BTH, None
        context_BTM, weights_BTS = attend(self.attention, states_BTH, embedded_BTE, source)
        return self.combine(torch.cat([context_BTM, states_BTH], dim=-1)).tanh(), weights_BTS
