"""The decoder whose attention comes before the recurrent step."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq_lab.config.type_checks import Share
from seq2seq_lab.models.attention.base import AttentionFactory
from seq2seq_lab.models.bridge import Bridge, BridgeKind
from seq2seq_lab.models.decoders.base import DecoderState, RecurrentDecoder, check_source_is_read
from seq2seq_lab.models.decoders.output import Output, OutputPart
from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.recurrent import RecurrentLayers, RecurrentLoop, RecurrentSpec
from seq2seq_lab.models.source import Source


class AttendBeforeDecoder(RecurrentDecoder):
    """c_t from the query s_{t-1}, then s_t = RNN([e(y_{t-1}); c_t], s_{t-1}) (Bahdanau 2014, eq. 4–6).

    The query is the top layer's state before the step, and the context is an input of the bottom layer.

    Args:
        input_size: E, the size of an embedding.
        rectified_input: the input of the layers is relu(W [e(y_{t-1}); c_t] + b), of size E: the decoder of the PyTorch
            tutorial "Translation with a sequence to sequence network and attention".
        output: the features of the readout, in this order.
        state_dropout: probability on state and context as features of the readout.

    Raises:
        ValueError: the decoder has no access to the source.
    """

    def __init__(
        self,
        *,
        input_size: int,
        encoder: EncoderSizes,
        attention: AttentionFactory,
        recurrent: RecurrentSpec,
        rectified_input: bool,
        output: Sequence[OutputPart],
        bridge: BridgeKind,
        state_dropout: Share,
    ) -> None:
        super().__init__()
        self.attention = attention(
            query_size=recurrent.hidden_size, encoder_output_size=encoder.encoder_output_size
        )
        check_source_is_read(bridge, self.attention, encoder)
        joined_size = input_size + self.attention.context_size
        self.rectified = nn.Linear(joined_size, input_size) if rectified_input else None
        self.layers = RecurrentLayers(
            recurrent, input_size if rectified_input else joined_size, bidirectional=False
        )
        self.bridge = Bridge(bridge, encoder, recurrent)
        self.output = Output(output, input_size, recurrent, self.attention.context_size, state_dropout)
        self.feature_size = self.output.size

    def step(
        self, embedded_NE: Tensor, state: DecoderState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        context_NM, weights_NS, attention = self.attend_once(
            state.layers.hidden_LBH[-1], embedded_NE, state.attention, source
        )
        input_NX = torch.cat([embedded_NE, context_NM.to(embedded_NE.dtype)], dim=-1)
        if self.rectified is not None:
            input_NX = self.rectified(input_NX).relu()
        state_NH, layers = self.layers.step(input_NX, state.layers)
        features_N1F = self.output(embedded_NE[:, None], state_NH[:, None], context_NM[:, None])
        return features_N1F[:, 0], DecoderState(layers, attention), weights_NS

    def unroll(
        self, embedded_BTE: Tensor, state: DecoderState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        known_BTE = embedded_BTE if self.rectified is None else embedded_BTE[..., :0]
        loop = RecurrentLoop(self.layers, known_BTE, state.layers)
        rectify = None if self.rectified is None else _Rectified(self.rectified, embedded_BTE, loop.dtype)
        states_BTH, contexts_BTM, weights_BTS, attention = self.attend_each(
            embedded_BTE,
            state.attention,
            source,
            query=lambda t: loop.top_BH,
            update=lambda t, context_BM: loop.step(t, rectify(t, context_BM) if rectify else context_BM),
        )
        features_BTF = self.output(embedded_BTE, states_BTH, contexts_BTM)
        return features_BTF, DecoderState(loop.state, attention), weights_BTS


class _Rectified:
    """relu(W [e_t; c_t] + b), with the products of all e_t computed at once."""

    def __init__(self, linear: nn.Linear, embedded_BTE: Tensor, dtype: torch.dtype) -> None:
        weight_EX = linear.weight.to(dtype)
        size = embedded_BTE.shape[-1]
        known_TBE = functional.linear(embedded_BTE.transpose(0, 1), weight_EX[:, :size], linear.bias)
        self.known_BE = known_TBE.unbind(0)
        self.late_EM = weight_EX[:, size:]

    def __call__(self, t: int, context_BM: Tensor) -> Tensor:
        return torch.addmm(self.known_BE[t], context_BM, self.late_EM.t()).relu()
