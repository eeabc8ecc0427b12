"""The decoder whose attention comes between two recurrent steps."""

from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count, Share
from seq2seq_lab.models.attention.base import AttentionFactory
from seq2seq_lab.models.bridge import Bridge, BridgeKind
from seq2seq_lab.models.decoders.base import DecoderState, RecurrentDecoder
from seq2seq_lab.models.decoders.output import Output
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.recurrent import RecurrentLayers, RecurrentLoop, RecurrentSpec
from seq2seq_lab.models.source import Source


class AttendBetweenDecoder(RecurrentDecoder):
    """s'_t = RNN₁(e(y_{t-1}), s_{t-1}), c_t from the query s'_t, s_t = RNN₂(c_t, s'_t).

    The conditional GRU (Sennrich 2017, arXiv:1703.04357, eq. 3–9), with any cell. The readout reads
    t_t = tanh(W [s_t; c_t; e(y_{t-1})]).

    Args:
        input_size: E, the size of an embedding.
        attentional_size: the size of t_t.
        state_dropout: probability on t_t.

    Raises:
        ValueError: more than one layer, no attention function, or `attentional_size` below 1.
    """

    needs_source = True

    def __init__(
        self,
        *,
        input_size: int,
        encoder: EncoderSizes,
        attention: AttentionFactory,
        recurrent: RecurrentSpec,
        attentional_size: Count,
        bridge: BridgeKind,
        state_dropout: Share,
    ) -> None:
        super().__init__()
        if recurrent.num_layers != 1:
            raise ValueError(
                f"decoder.num_layers={recurrent.num_layers} is not allowed: attention between two recurrent steps is a "
                f"decoder of one layer. Set decoder.num_layers=1 (and model.bridge=mean if the encoder has more), or "
                f"decoder=luong."
            )
        self.attention = attention(
            query_size=recurrent.hidden_size, encoder_output_size=encoder.encoder_output_size
        )
        context_size = self.attention.context_size
        if not self.attends:
            raise ValueError(
                "decoder: attention between two recurrent steps needs an attention function, but attention=none. "
                "Choose one, such as attention=additive, or decoder=plain."
            )
        self.first = RecurrentLayers(recurrent, input_size, bidirectional=False)
        self.second = RecurrentLayers(recurrent, context_size, bidirectional=False)
        self.bridge = Bridge(bridge, encoder, recurrent)
        self.output = Output(("state", "context", "embedding"), input_size, recurrent, context_size, 0.0)
        self.combine = nn.Linear(self.output.size, attentional_size)
        self.state_dropout = Dropout(state_dropout, recurrent.locked_dropout)
        self.feature_size = attentional_size

    def step(
        self, embedded_NE: Tensor, state: DecoderState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        query_NH, between = self.first.step(embedded_NE, state.layers)
        context_NM, weights_NS, attention = self.attend_once(query_NH, embedded_NE, state.attention, source)
        state_NH, layers = self.second.step(context_NM, between)
        features_N1F = self._features(embedded_NE[:, None], state_NH[:, None], context_NM[:, None])
        return features_N1F[:, 0], DecoderState(layers, attention), weights_NS

    def unroll(
        self, embedded_BTE: Tensor, state: DecoderState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        first = RecurrentLoop(self.first, embedded_BTE, state.layers)
        second = RecurrentLoop(self.second, embedded_BTE[..., :0], state.layers)
        second.states = first.states  # one list: both steps update the same state
        states_BTH, contexts_BTM, weights_BTS, attention = self.attend_each(
            embedded_BTE,
            state.attention,
            source,
            query=lambda t: first.step(t, None),
            update=second.step,
        )
        features_BTF = self._features(embedded_BTE, states_BTH, contexts_BTM)
        return features_BTF, DecoderState(second.state, attention), weights_BTS

    def _features(self, embedded_BTE: Tensor, states_BTH: Tensor, context_BTM: Tensor) -> Tensor:
        return self.state_dropout(self.combine(self.output(embedded_BTE, states_BTH, context_BTM)).tanh())
