"""The sequence-to-sequence model."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq_lab.errors import UserError
from seq2seq_lab.models.attention.base import Attention
from seq2seq_lab.models.decoders.base import Decoder, DecoderState
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.embedding import Embedding
from seq2seq_lab.models.encoders.base import Encoder
from seq2seq_lab.models.readouts import Readout
from seq2seq_lab.models.source import Source


class Seq2Seq(nn.Module):
    """p(y_t | y_<t, x): encoder, decoder and readout between two embedding tables.

    `longest_source` is the most source positions that its attention can weigh, None for any number.

    Args:
        scale: factor on the embeddings of both sides (√E in Vaswani 2017, §3.4).
        source_dropout: probability on the source's embeddings.
        target_dropout: probability on the target's.
        locked_dropout: one dropout mask a sentence, not one a token.
    """

    def __init__(
        self,
        source_embedding: Embedding,
        target_embedding: Embedding,
        encoder: Encoder,
        decoder: Decoder,
        readout: Readout,
        scale: float,
        source_dropout: float,
        target_dropout: float,
        locked_dropout: bool,
    ) -> None:
        super().__init__()
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.encoder = encoder
        self.decoder = decoder
        self.readout = readout
        self.scale = scale
        self.source_dropout = Dropout(source_dropout, locked_dropout)
        self.target_dropout = Dropout(target_dropout, locked_dropout)
        bounds = (part.longest_source for part in decoder.modules() if isinstance(part, Attention))
        self.longest_source = min((bound for bound in bounds if bound is not None), default=None)

    def check_length(self, length: int, what: str) -> None:
        """Refuse a source of more positions than the attention can weigh.

        Raises:
            UserError: says so of `what`.
        """
        longest = self.longest_source
        if longest is not None and length > longest:
            raise UserError(
                f"{what} has {length - 2} tokens, and this attention function has scores for {longest - 2} at most. Set "
                f"attention.max_length={length - 2} or more, or choose a function without such a bound, such as "
                f"attention=additive."
            )

    def start(self, source_BS: Tensor, lengths: Sequence[int]) -> tuple[DecoderState, Source]:
        """Encode a batch of source tokens, padded where the host-side `lengths` differ.

        Raises:
            UserError: a source has more positions than the attention can weigh.
        """
        self.check_length(max(lengths), "A source sentence")
        encoded = self.encoder(self._read_source(source_BS), lengths)
        mask = None
        if min(lengths) < source_BS.shape[1]:
            position_S = torch.arange(source_BS.shape[1], device=source_BS.device)
            mask = (position_S < torch.tensor(lengths, device=source_BS.device)[:, None])[:, None]
        keys_BSK = self.decoder.project(encoded.outputs_BSM)
        source = Source(encoded.outputs_BSM, keys_BSK, mask, encoded.final)
        return self.decoder.start(source), source

    def read(
        self, token_N: Tensor, state: DecoderState, source: Source
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """Read one target token: return (features_NF for the readout, the next state, weights_NS or None)."""
        return self.decoder.step(self._read_target(token_N), state, source)

    def step(
        self, token_N: Tensor, state: DecoderState, source: Source
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """Read one target token: return (log_probs_NV of the next, the next state, weights_NS or None)."""
        features_NF, state, weights_NS = self.read(token_N, state, source)
        return log_softmax(self.readout(features_NF)), state, weights_NS

    def unroll(self, inputs_BT: Tensor, state: DecoderState, source: Source) -> tuple[Tensor, Tensor | None]:
        """Read a whole target: return (logits_BTV, weights_BTS or None); row t of both belongs to output t."""
        features_BTF, weights_BTS = self.decoder.unroll(self._read_target(inputs_BT), state, source)
        return self.readout(features_BTF), weights_BTS

    def forward(
        self, source_BS: Tensor, lengths: Sequence[int], inputs_BT: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Encode the source and read a whole target; see `start` and `unroll`."""
        return self.unroll(inputs_BT, *self.start(source_BS, lengths))

    def _read_source(self, tokens: Tensor) -> Tensor:
        return self.source_dropout(self._scaled(self.source_embedding(tokens)))

    def _read_target(self, tokens: Tensor) -> Tensor:
        return self.target_dropout(self._scaled(self.target_embedding(tokens)))

    def _scaled(self, embedded: Tensor) -> Tensor:
        return embedded if self.scale == 1 else embedded * self.scale


def log_softmax(logits: Tensor) -> Tensor:
    """Return log-probabilities, in float32 at least."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


class Encoded:
    """A model with the encoded source of one batch, from which several readings of a target start.

    It stands for the model, a `Seq2Seq` or an `Ensemble`, where nothing but that batch is read.
    """

    def __init__(self, model: Any, source_BS: Tensor, lengths: Sequence[int]) -> None:
        self.model = model
        self.started = model.start(source_BS, lengths)

    def start(self, source_BS: Tensor, lengths: Sequence[int]) -> Any:
        """See `Seq2Seq.start`."""
        return self.started

    def step(self, token_N: Tensor, state: Any, source: Any) -> tuple[Tensor, Any, Tensor | None]:
        """See `Seq2Seq.step`."""
        stepped: tuple[Tensor, Any, Tensor | None] = self.model.step(token_N, state, source)
        return stepped

    def __call__(
        self, source_BS: Tensor, lengths: Sequence[int], inputs_BT: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """See `Seq2Seq.forward`."""
        read: tuple[Tensor, Tensor | None] = self.model.unroll(inputs_BT, *self.started)
        return read
