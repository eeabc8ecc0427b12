"""Poolings: from a text to one vector, with a weight per word where the method has one."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq_lab.models.attention.base import Attention, AttentionFactory
from seq2seq_lab.models.attention.local import LocalAttention
from seq2seq_lab.models.attention.none import NoAttention
from seq2seq_lab.models.encoders.base import Encoder, EncoderOutputs, EncoderSizes
from seq2seq_lab.models.recurrent import RecurrentLayers, RecurrentSpec
from seq2seq_lab.models.source import Source
from seq2seq_lab.runtime.device import on_device


class Pooled(NamedTuple):
    """B pooled texts.

    Attributes:
        vector_BF: one vector per text.
        weights_BS: the weight of each word, float32 or wider, 0 at padding; None if the pooling has no weights.
        penalty_B: a term of the loss of each text; None for no term.
    """

    vector_BF: Tensor
    weights_BS: Tensor | None
    penalty_B: Tensor | None


class Pooling(nn.Module, ABC):
    """Reads an embedded text through an encoder and returns one vector.

    Attributes:
        feature_size: F, the size of the vector.
    """

    feature_size: int

    def penalizes(self, step: int) -> bool:
        """Return whether the penalty is part of the loss at an optimizer step, counted from 0."""
        return True

    @abstractmethod
    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int], encoder: Encoder) -> Pooled:
        """Encode and pool a batch; `lengths` are the B real lengths, on the host."""


class LastState(Pooling):
    """The final state of the top layer. It has no weights.

    Raises:
        ValueError: the encoder has no final state, or an attention function is selected.
    """

    def __init__(self, input_size: int, encoder: EncoderSizes, attention: AttentionFactory) -> None:
        super().__init__()
        self.feature_size = _final_size(encoder, "last")
        _refuse_attention(attention, encoder, "last")

    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int], encoder: Encoder) -> Pooled:
        return Pooled(_final_state(encoder(embedded_BSE, lengths)), None, None)


class AttentionPooling(Pooling):
    """The final state and the sum of the encoder outputs, weighted by an attention function whose query is the final state.

    As the attention over words of Yang 2016 (https://aclanthology.org/N16-1174, §2.2), with the final state instead of a
    learned query.

    Raises:
        ValueError: the encoder has no final state, or the scores do not depend on query and encoder outputs alone.
    """

    def __init__(self, input_size: int, encoder: EncoderSizes, attention: AttentionFactory) -> None:
        super().__init__()
        size = _final_size(encoder, "attention")
        function = attention(query_size=size, encoder_output_size=encoder.encoder_output_size)
        if not isinstance(function, Attention) or function.longest_source is not None:
            raise ValueError(
                f"pooling=attention cannot use attention._target_={type(function).__name__}: it needs scores that depend on "
                f"the query and the encoder outputs alone. Choose attention=additive, multiplicative, scaled_dot or dot."
            )
        if isinstance(function, LocalAttention) and function.center is None:
            raise ValueError(
                "pooling=attention cannot use attention.alignment=monotonic: its window would always be at the first word. "
                "Set attention.alignment=predicted, or choose another attention function, such as attention=additive."
            )
        self.attention = function
        self.feature_size = size + function.context_size

    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int], encoder: Encoder) -> Pooled:
        encoded = encoder(embedded_BSE, lengths)
        source, final_BH = Source.encoded(encoded, self.attention.project), _final_state(encoded)
        context_B1M, weights_B1S, _ = self.attention(
            final_BH[:, None], source, self.attention.initial_state(source)
        )
        return Pooled(torch.cat([final_BH, context_B1M[:, 0]], dim=-1), weights_B1S[:, 0], None)


class Attender(Pooling):
    """A gate per word: the encoder reads the embeddings times their gates, and its final state is the vector.

    A bidirectional recurrent network reads the embeddings e_j; gate_j = σ(w h_j + b); the encoder reads gate_j e_j. The loss
    of a text is increased by `sparsity` times the mean gate of its words.

    Args:
        sparsity: weight of the mean gate in the loss.
        free_steps: optimizer steps without this term. Otherwise it can close all gates before the words have a meaning.

    Raises:
        ValueError: the encoder has no final state, an attention function is selected, or `sparsity` is negative.
    """

    def __init__(
        self,
        input_size: int,
        encoder: EncoderSizes,
        attention: AttentionFactory,
        recurrent: RecurrentSpec,
        sparsity: float,
        free_steps: int,
    ) -> None:
        super().__init__()
        if not sparsity >= 0:
            raise ValueError(f"pooling.sparsity={sparsity} is not allowed. Allowed: 0 or more.")
        self.feature_size = _final_size(encoder, "attender")
        _refuse_attention(attention, encoder, "attender")
        self.layers = RecurrentLayers(recurrent, input_size, bidirectional=True)
        self.gate = nn.Linear(self.layers.output_size, 1)
        self.sparsity = sparsity
        self.free_steps = free_steps

    def penalizes(self, step: int) -> bool:
        return step >= self.free_steps

    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int], encoder: Encoder) -> Pooled:
        states_BSH, _ = self.layers.read(embedded_BSE, lengths)
        length_B = on_device(lengths, embedded_BSE.device)
        real_BS = torch.arange(embedded_BSE.shape[1], device=embedded_BSE.device) < length_B[:, None]
        gate_BS = self.gate(states_BSH)[..., 0].float().sigmoid() * real_BS
        encoded = encoder(embedded_BSE * gate_BS[..., None].to(embedded_BSE.dtype), lengths)
        return Pooled(_final_state(encoded), gate_BS, self.sparsity * gate_BS.sum(1) / length_B)


def _final_size(encoder: EncoderSizes, pooling: str) -> int:
    if encoder.final_size is None:
        raise ValueError(
            f"pooling={pooling} needs an encoder with a final state. Choose a recurrent encoder, such as encoder=gru."
        )
    return encoder.final_size


def _final_state(encoded: EncoderOutputs) -> Tensor:
    """Return the final state of the top layer, BH."""
    assert encoded.final is not None, "the constructor has checked the encoder"
    return encoded.final.hidden_LBH[-1]


def _refuse_attention(attention: AttentionFactory, encoder: EncoderSizes, pooling: str) -> None:
    function = attention(
        query_size=encoder.encoder_output_size, encoder_output_size=encoder.encoder_output_size
    )
    if not isinstance(function, NoAttention):
        raise ValueError(
            f"pooling={pooling} does not use attention._target_={type(function).__name__}. Leave attention out, or choose "
            f"pooling=attention."
        )
