"""The decoder whose attention comes between two recurrent steps."""

import torch
from torch import Tensor, nn

from seq2seq_lab.models.attention.base import AttentionFactory
from seq2seq_lab.models.bridge import Bridge, BridgeKind
from seq2seq_lab.models.decoders.base import Decoder, DecoderState, attend_once, stack_rows
from seq2seq_lab.models.decoders.output import Output
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.recurrent import Cell, RecurrentLayers, RecurrentLoop
from seq2seq_lab.models.source import Source


class AttendBetweenDecoder(Decoder):
    """s'_t = RNN₁(e(y_{t-1}), s_{t-1}), c_t from the query s'_t, s_t = RNN₂(c_t, s'_t).

    The conditional GRU (Sennrich 2017, arXiv:1703.04357, eq. 3–9), with any cell. The readout sees
    t_t = tanh(W [s_t; c_t; e(y_{t-1})]).

    Args:
        input_size: E, the size of an embedding.
        attentional_size: the size of t_t.
        state_dropout: probability on t_t.
        locked_dropout: one dropout mask a sentence, not one a token.

    Raises:
        ValueError: more than one layer, which this decoder does not have; no attention function; or t_t of no size.
    """

    def __init__(
        self,
        input_size: int,
        encoder: EncoderSizes,
        attention: AttentionFactory,
        cell: Cell,
        hidden_size: int,
        num_layers: int,
        attentional_size: int,
        bridge: BridgeKind,
        state_dropout: float,
        locked_dropout: bool,
    ) -> None:
        super().__init__()
        if num_layers != 1:
            raise ValueError(
                f"decoder.num_layers={num_layers} is not allowed: attention between two recurrent steps is a decoder of one "
                f"layer. Set decoder.num_layers=1 (and model.bridge=mean where the encoder has more), or decoder=luong."
            )
        if attentional_size < 1:
            raise ValueError(f"decoder.attentional_size={attentional_size} must be at least 1.")
        self.attention = attention(query_size=hidden_size, encoder_output_size=encoder.encoder_output_size)
        context_size = self.attention.context_size
        if not context_size:
            raise ValueError(
                "decoder: attention between two recurrent steps needs an attention function, but attention=none. "
                "Choose one, such as attention=additive, or decoder=plain."
            )
        self.first = RecurrentLayers(cell, input_size, hidden_size, 1, False, 0.0, locked_dropout)
        self.second = RecurrentLayers(cell, context_size, hidden_size, 1, False, 0.0, locked_dropout)
        self.bridge = Bridge(bridge, encoder, hidden_size, num_layers, has_cell=cell == "lstm")
        self.output = Output(
            ("state", "context", "embedding"), input_size, hidden_size, context_size, 0.0, locked_dropout
        )
        self.combine = nn.Linear(self.output.size, attentional_size)
        self.state_dropout = Dropout(state_dropout, locked_dropout)
        self.feature_size = attentional_size

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return self.attention.project(encoder_outputs_BSM)

    def start(self, source: Source) -> DecoderState:
        return DecoderState(self.bridge(source), None)

    def step(
        self, embedded_NE: Tensor, state: DecoderState, source: Source
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        query_NH, between = self.first.step(embedded_NE, state.layers)
        context_NM, weights_NS = attend_once(self.attention, query_NH, embedded_NE, source)
        state_NH, layers = self.second.step(context_NM, between)
        features_N1F = self._features(embedded_NE[:, None], state_NH[:, None], context_NM[:, None])
        return features_N1F[:, 0], DecoderState(layers, None), weights_NS

    def unroll(
        self, embedded_BTE: Tensor, state: DecoderState, source: Source
    ) -> tuple[Tensor, Tensor | None]:
        first = RecurrentLoop(self.first, embedded_BTE, state.layers)
        second = RecurrentLoop(self.second, embedded_BTE[..., :0], state.layers)
        second.states = first.states  # one list: a state goes through both
        states, contexts = [], []
        weights: list[Tensor | None] = []
        for t, embedded_BE in enumerate(embedded_BTE.unbind(1)):
            query_BH = first.step(t, None)
            context_BM, weights_BS = attend_once(self.attention, query_BH, embedded_BE, source)
            states.append(second.step(t, context_BM))
            contexts.append(context_BM)
            weights.append(weights_BS)
        features_BTF = self._features(embedded_BTE, torch.stack(states, 1), torch.stack(contexts, 1))
        return features_BTF, stack_rows(weights)

    def _features(self, embedded_BTE: Tensor, states_BTH: Tensor, context_BTM: Tensor) -> Tensor:
        return self.state_dropout(self.combine(self.output(embedded_BTE, states_BTH, context_BTM)).tanh())
