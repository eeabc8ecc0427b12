"""The sequence-to-sequence model."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seq2seq_lab.models.decoders.base import Decoder, Source
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import Encoder
from seq2seq_lab.models.readout import LinearReadout
from seq2seq_lab.models.recurrent import RecurrentState


class Seq2Seq(nn.Module):
    """p(y_t | y_<t, x): encoder, decoder and readout between two embedding tables.

    Args:
        scale: factor on the embeddings of both sides (√E in Vaswani 2017, §3.4).
        dropout: probability on the embeddings of both sides.
    """

    def __init__(
        self,
        source_embedding: nn.Embedding,
        target_embedding: nn.Embedding,
        encoder: Encoder,
        decoder: Decoder,
        readout: LinearReadout,
        scale: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.encoder = encoder
        self.decoder = decoder
        self.readout = readout
        self.scale = scale
        self.dropout = Dropout(dropout)

    def start(self, source_BS: Tensor, lengths: Sequence[int]) -> tuple[RecurrentState, Source]:
        """Encode a batch of source tokens, padded where the host-side `lengths` differ."""
        encoded = self.encoder(self._embed(self.source_embedding, source_BS), lengths)
        mask = None
        if min(lengths) < source_BS.shape[1]:
            position_S = torch.arange(source_BS.shape[1], device=source_BS.device)
            mask = (position_S < torch.tensor(lengths, device=source_BS.device)[:, None])[:, None]
        keys_BSK = self.decoder.project(encoded.memory_BSM)
        return self.decoder.start(encoded.final), Source(encoded.memory_BSM, keys_BSK, mask, encoded.final)

    def step(
        self, token_N: Tensor, state: RecurrentState, source: Source
    ) -> tuple[Tensor, RecurrentState, Tensor | None]:
        """Read one target token: return (log_probs_NV of the next, the next state, weights_NS or None)."""
        features_NF, state, weights_NS = self.decoder.step(
            self._embed(self.target_embedding, token_N), state, source
        )
        logits_NV = self.readout(features_NF)
        dtype = torch.promote_types(logits_NV.dtype, torch.float32)
        return logits_NV.log_softmax(-1, dtype=dtype), state, weights_NS

    def forward(
        self, source_BS: Tensor, lengths: Sequence[int], inputs_BT: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Read a whole target: return (logits_BTV, weights_BTS or None); row t of both belongs to output t."""
        state, source = self.start(source_BS, lengths)
        features_BTF, weights_BTS = self.decoder.unroll(
            self._embed(self.target_embedding, inputs_BT), state, source
        )
        return self.readout(features_BTF), weights_BTS

    def _embed(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        return self.dropout(table(tokens) * self.scale)
