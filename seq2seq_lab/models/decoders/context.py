"""The decoder that sees the encoder's final state at every step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from seq2seq_lab.models.attention.base import AttentionFactory
from seq2seq_lab.models.bridge import Bridge, BridgeKind
from seq2seq_lab.models.decoders.base import Decoder, DecoderState
from seq2seq_lab.models.decoders.output import Output, OutputPart
from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.recurrent import Cell, RecurrentLayers, RecurrentState
from seq2seq_lab.models.source import Source


class FixedContextDecoder(Decoder):
    """s_t = RNN([e(y_{t-1}); c], s_{t-1}) with c the encoder's final state, its top layer's (Cho 2014, eq. 8).

    c is the same at every step, so a known target needs no loop over time.

    Args:
        input_size: E, the size of an embedding.
        output: what the readout sees, in this order; Cho's sees all three.
        dropout: probability between the layers.
        state_dropout: probability on what the readout sees of state and context.
        locked_dropout: one dropout mask a sentence, not one a token.

    Raises:
        ValueError: an attention function is given.
    """

    def __init__(
        self,
        input_size: int,
        encoder: EncoderSizes,
        attention: AttentionFactory,
        cell: Cell,
        hidden_size: int,
        num_layers: int,
        output: Sequence[OutputPart],
        bridge: BridgeKind,
        dropout: float,
        state_dropout: float,
        locked_dropout: bool,
    ) -> None:
        super().__init__()
        if attention(query_size=hidden_size, encoder_output_size=encoder.encoder_output_size).context_size:
            raise ValueError(
                "decoder: model=cho and decoder=context have no attention (their context is the encoder's final state at "
                "every step), but an attention function is chosen. Leave attention=… out, or choose model=bahdanau with it."
            )
        context_size = encoder.final_size
        self.layers = RecurrentLayers(
            cell, input_size + context_size, hidden_size, num_layers, False, dropout, locked_dropout
        )
        self.bridge = Bridge(bridge, encoder, hidden_size, num_layers, has_cell=cell == "lstm")
        self.output = Output(output, input_size, hidden_size, context_size, state_dropout, locked_dropout)
        self.feature_size = self.output.size

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return encoder_outputs_BSM[..., :0]

    def start(self, source: Source) -> DecoderState:
        return DecoderState(self.bridge(source), None)

    def step(
        self, embedded_NE: Tensor, state: DecoderState, source: Source
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        features_N1F, layers = self._read(embedded_NE[:, None], state.layers, source)
        return features_N1F[:, 0], DecoderState(layers, None), None

    def unroll(
        self, embedded_BTE: Tensor, state: DecoderState, source: Source
    ) -> tuple[Tensor, Tensor | None]:
        return self._read(embedded_BTE, state.layers, source)[0], None

    def _read(
        self, embedded_BTE: Tensor, state: RecurrentState, source: Source
    ) -> tuple[Tensor, RecurrentState]:
        """Return (features_BTF, the layers' state after them)."""
        final_BM = source.final.hidden_LBH[-1]
        final_BM = final_BM.repeat_interleave(
            len(embedded_BTE) // len(final_BM), dim=0
        )  # hypotheses a sentence
        context_BTM = final_BM[:, None].expand(-1, embedded_BTE.shape[1], -1)
        inputs_BTX = torch.cat([embedded_BTE, context_BTM.to(embedded_BTE.dtype)], dim=-1)
        states_BTH, last = self.layers(inputs_BTX, state)
        states_BTH = states_BTH.flatten(0, 1).unflatten(0, embedded_BTE.shape[:2])
        return self.output(embedded_BTE, states_BTH, context_BTM), last
