"""The decoder that reads the encoder's final state at every step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from seq2seq_lab.config.type_checks import Share
from seq2seq_lab.models.attention.base import AttentionFactory, repeat_rows
from seq2seq_lab.models.bridge import Bridge, BridgeKind
from seq2seq_lab.models.decoders.base import DecoderState, RecurrentDecoder
from seq2seq_lab.models.decoders.output import Output, OutputPart
from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.recurrent import RecurrentLayers, RecurrentSpec, RecurrentState
from seq2seq_lab.models.source import Source


class FixedContextDecoder(RecurrentDecoder):
    """s_t = RNN([e(y_{t-1}); c], s_{t-1}), c the final state of the encoder's top layer (Cho 2014, eq. 8).

    c is the same at every step, so the layers read a known target at once, without a loop over time.

    Args:
        input_size: E, the size of an embedding.
        output: the features of the readout, in this order; Cho's readout reads all three.
        state_dropout: probability on state and context as features of the readout.

    Raises:
        ValueError: an attention function is chosen, or the encoder has no final state.
    """

    needs_source = True

    def __init__(
        self,
        *,
        input_size: int,
        encoder: EncoderSizes,
        attention: AttentionFactory,
        recurrent: RecurrentSpec,
        output: Sequence[OutputPart],
        bridge: BridgeKind,
        state_dropout: Share,
    ) -> None:
        super().__init__()
        size = encoder.encoder_output_size  # fits every function; all but none are refused
        self.attention = attention(query_size=size, encoder_output_size=size)
        if self.attends:
            raise ValueError(
                "decoder: model=cho and decoder=context have no attention (their context is the encoder's final state at "
                "every step), but an attention function is chosen. Leave attention=… out, or choose model=bahdanau with it."
            )
        context_size = encoder.final_size
        if context_size is None:
            raise ValueError(
                "decoder: model=cho and decoder=context read the encoder's final state at every step, and this encoder has "
                "none. Choose another encoder, or decoder=luong with model.bridge=mean."
            )
        self.layers = RecurrentLayers(recurrent, input_size + context_size, bidirectional=False)
        self.bridge = Bridge(bridge, encoder, recurrent)
        self.output = Output(output, input_size, recurrent, context_size, state_dropout)
        self.feature_size = self.output.size

    @property
    def ignores_final(self) -> str | None:
        return None

    def step(
        self, embedded_NE: Tensor, state: DecoderState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        features_N1F, layers = self._run_layers(embedded_NE[:, None], state.layers, source)
        return features_N1F[:, 0], state._replace(layers=layers), None

    def unroll(
        self, embedded_BTE: Tensor, state: DecoderState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        features_BTF, layers = self._run_layers(embedded_BTE, state.layers, source)
        return features_BTF, state._replace(layers=layers), None

    def _run_layers(
        self, embedded_NTE: Tensor, state: RecurrentState, source: Source
    ) -> tuple[Tensor, RecurrentState]:
        """Return features_NTF and the state of the layers after them."""
        assert source.final is not None
        final_NM = repeat_rows(source.final.hidden_LBH[-1], len(embedded_NTE))
        context_NTM = final_NM[:, None].expand(-1, embedded_NTE.shape[1], -1)
        inputs_NTX = torch.cat([embedded_NTE, context_NTM.to(embedded_NTE.dtype)], dim=-1)
        states_NTH, last = self.layers(inputs_NTX, state)
        states_NTH = states_NTH.flatten(0, 1).unflatten(0, embedded_NTE.shape[:2])
        return self.output(embedded_NTE, states_NTH, context_NTM), last
