"""The decoder with attention after the recurrent step, or without attention."""

import torch
from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count, Share
from seq2seq_lab.models.attention.base import AttentionFactory, AttentionState
from seq2seq_lab.models.bridge import Bridge, BridgeKind
from seq2seq_lab.models.decoders.base import DecoderState, RecurrentDecoder, check_source_is_read, stack_steps
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.recurrent import RecurrentLayers, RecurrentLoop, RecurrentSpec, apply_mask
from seq2seq_lab.models.source import Source


class AttendAfterDecoder(RecurrentDecoder):
    """s_t = RNN(e(y_{t-1}), s_{t-1}), then s̃_t = tanh(W_c [c_t; s_t]) (Luong 2015, eq. 5).

    The query is the top layer's state s_t. The states do not depend on the context, so a known target is computed
    without a loop over time. Input feeding, s_t = RNN([e(y_{t-1}); s̃_{t-1}], s_{t-1}) (§3.3), needs the loop. Without an
    attentional layer, this is the decoder of Sutskever 2014, which reads the source only through its first state.

    Args:
        input_size: E, the size of the embeddings.
        attentional_size: the size of s̃_t; None: no attentional layer and no attention.
        input_feeding: concatenate s̃_{t-1} to the embedding in the input.
        rectified_input: relu(e(y_{t-1})) in place of the embedding in the input, as the decoder without attention of the
            PyTorch translation tutorial.
        state_dropout: dropout probability of s_t and s̃_t.

    Raises:
        ValueError: settings contradict each other; the message names them.
    """

    def __init__(
        self,
        *,
        input_size: int,
        encoder: EncoderSizes,
        attention: AttentionFactory,
        recurrent: RecurrentSpec,
        attentional_size: Count | None,
        input_feeding: bool,
        rectified_input: bool,
        bridge: BridgeKind,
        state_dropout: Share,
    ) -> None:
        super().__init__()
        if input_feeding and attentional_size is None:
            raise ValueError(
                "decoder.input_feeding=true needs the attentional layer, but decoder.attentional_size is "
                "null. Set decoder.attentional_size=${model.hidden_size}, or decoder=luong_feeding."
            )
        hidden_size = recurrent.hidden_size
        self.fed_size = attentional_size if input_feeding and attentional_size is not None else 0
        self.rectified_input = rectified_input
        self.layers = RecurrentLayers(recurrent, input_size + self.fed_size, bidirectional=False)
        self.bridge = Bridge(bridge, encoder, recurrent)
        self.state_dropout = Dropout(state_dropout, recurrent.locked_dropout)
        # Without the attentional layer, every function but none is refused below; this size fits all of them.
        query_size = encoder.encoder_output_size if attentional_size is None else hidden_size
        self.attention = attention(query_size=query_size, encoder_output_size=encoder.encoder_output_size)
        check_source_is_read(bridge, self.attention, encoder)
        self.combine: nn.Linear | None = None
        if attentional_size is not None:
            self.combine = nn.Linear(self.attention.context_size + hidden_size, attentional_size, bias=False)
        elif self.attends:
            raise ValueError(
                "decoder: model=vanilla and decoder=plain have no attention (decoder.attentional_size=null), but an "
                "attention function is chosen. Omit attention=…, or choose model=attn (decoder=luong) with it."
            )
        self.feature_size = hidden_size if attentional_size is None else attentional_size

    def start(self, source: Source) -> DecoderState:
        outputs_BSM = source.encoder_outputs_BSM
        fed_BF = outputs_BSM.new_zeros(len(outputs_BSM), self.fed_size) if self.fed_size else None
        return super().start(source)._replace(fed_BF=fed_BF)

    def step(
        self, embedded_NE: Tensor, state: DecoderState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        input_NX = self._input(embedded_NE)
        if state.fed_BF is not None:
            input_NX = torch.cat([input_NX, state.fed_BF.to(input_NX.dtype)], dim=-1)
        states_N1H, layers = self.layers(input_NX[:, None], state.layers)
        features_N1F, weights_N1S, attention = self._combine(
            self.state_dropout(states_N1H), embedded_NE[:, None], state.attention, source
        )
        if self.combine is not None:
            features_N1F = self.state_dropout(features_N1F)
        features_NF = features_N1F[:, 0]
        state = DecoderState(layers, attention, features_NF if self.fed_size else None)
        return features_NF, state, None if weights_N1S is None else weights_N1S[:, 0]

    def unroll(
        self, embedded_BTE: Tensor, state: DecoderState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        if self.fed_size:
            return self._unroll_feeding(embedded_BTE, state, source)
        states_BTH, layers = self.layers(self._input(embedded_BTE), state.layers)
        # The layers compute time first; in that layout a matrix product would become one product per sentence.
        states_BTH = states_BTH.flatten(0, 1).unflatten(0, embedded_BTE.shape[:2])
        features_BTF, weights_BTS, attention = self._combine(
            self.state_dropout(states_BTH), embedded_BTE, state.attention, source
        )
        if self.combine is not None:
            features_BTF = self.state_dropout(features_BTF)
        return features_BTF, DecoderState(layers, attention), weights_BTS

    def _unroll_feeding(
        self, embedded_BTE: Tensor, state: DecoderState, source: Source
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        loop = RecurrentLoop(self.layers, self._input(embedded_BTE), state.layers)
        hidden_masks = loop.masks(self.state_dropout, self.layers.output_size)
        fed_masks = loop.masks(self.state_dropout, self.fed_size)
        fed_BF, attention = state.fed_BF, state.attention
        assert fed_BF is not None
        fed_BF = fed_BF.to(loop.dtype)
        features: list[Tensor] = []
        weights: list[Tensor | None] = []
        for t, embedded_BE in enumerate(embedded_BTE.unbind(1)):
            hidden_BH = apply_mask(loop.step(t, fed_BF), hidden_masks, t)
            feature_B1F, weights_B1S, attention = self._combine(
                hidden_BH[:, None], embedded_BE[:, None], attention, source
            )
            fed_BF = apply_mask(feature_B1F[:, 0], fed_masks, t)
            features.append(fed_BF)
            weights.append(None if weights_B1S is None else weights_B1S[:, 0])
        after = DecoderState(loop.state, attention, fed_BF)
        return torch.stack(features, dim=1), after, stack_steps(weights)

    def _input(self, embedded: Tensor) -> Tensor:
        return embedded.relu() if self.rectified_input else embedded

    def _combine(
        self, states_NTH: Tensor, embedded_NTE: Tensor, state: AttentionState, source: Source
    ) -> tuple[Tensor, Tensor | None, AttentionState]:
        """Return (s̃_NTF, or the states without an attentional layer; weights_NTS or None; the attention state)."""
        if self.combine is None:
            return states_NTH, None, state
        context_NTM, weights_NTS, state = self.attend(states_NTH, embedded_NTE, state, source)
        return self.combine(torch.cat([context_NTM, states_NTH], dim=-1)).tanh(), weights_NTS, state
