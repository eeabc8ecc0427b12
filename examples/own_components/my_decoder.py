"""A custom decoder with its own recurrent cell."""

import torch
from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.models.attention.base import AttentionFactory
from seq2seq_lab.models.bridge import Bridge, BridgeKind
from seq2seq_lab.models.decoders.base import DecoderState, RecurrentDecoder
from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.recurrent import RecurrentSpec, RecurrentState
from seq2seq_lab.models.source import Source


class MinimalDecoder(RecurrentDecoder):
    """f = σ(W_f [x; h']), h = (1 − f) ⊙ h' + f ⊙ tanh(W_h [x; f ⊙ h']) (Zhou 2016, arXiv:1603.09420, eq. 6).

    x is the embedding of the last token with the context vector of the query h'.
    """

    needs_source = True

    def __init__(
        self,
        input_size: int,
        encoder: EncoderSizes,
        attention: AttentionFactory,
        hidden_size: Count,
        bridge: BridgeKind,
    ) -> None:
        super().__init__()
        self.attention = attention(query_size=hidden_size, encoder_output_size=encoder.encoder_output_size)
        spec = RecurrentSpec(
            cell="gru", hidden_size=hidden_size, num_layers=1, dropout=0.0, locked_dropout=False
        )
        self.bridge = Bridge(bridge, encoder, spec)
        size = input_size + self.attention.context_size + hidden_size
        self.gate = nn.Linear(size, hidden_size)
        self.candidate = nn.Linear(size, hidden_size)
        self.feature_size = hidden_size + self.attention.context_size

    def step(
        self, embedded_NE: Tensor, state: DecoderState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        state_NH = state.layers.hidden_LBH[-1]
        context_NM, weights_NS, attention = self.attend_once(state_NH, embedded_NE, state.attention, source)
        gate_NH = self.gate(torch.cat([embedded_NE, context_NM, state_NH], -1)).sigmoid()
        inputs_NX = torch.cat([embedded_NE, context_NM, gate_NH * state_NH], -1)
        state_NH = (1 - gate_NH) * state_NH + gate_NH * self.candidate(inputs_NX).tanh()
        features_NF = torch.cat([state_NH, context_NM], -1)
        return features_NF, DecoderState(RecurrentState(state_NH[None], None), attention), weights_NS
