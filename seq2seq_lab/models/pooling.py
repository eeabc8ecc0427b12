"""Poolings: from a text to one vector, with a weight per word where the method has one."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from seq2seq_lab.config.type_checks import NonNegative, Within
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.attention.base import Attention, AttentionFactory
from seq2seq_lab.models.attention.local import LocalAttention
from seq2seq_lab.models.encoders.base import EncoderOutputs, EncoderSizes
from seq2seq_lab.models.masking import masked_mean, padding_mask
from seq2seq_lab.models.recurrent import RecurrentLayers, RecurrentSpec
from seq2seq_lab.models.source import Source
from seq2seq_lab.runtime.device import on_device


class Gates(NamedTuple):
    """The gates of a text's words.

    Attributes:
        gate_BS: the factor of the embedding of each word, float32 or wider, 0 at padding; it is the weight of the word.
        penalty_B: a term of the loss of each text.
    """

    gate_BS: Tensor
    penalty_B: Tensor


class Pooling(nn.Module, ABC):
    """Turns an encoded text into one vector. It may gate the embeddings before the encoder reads them.

    Attributes:
        feature_size: F, the size of the vector.
    """

    feature_size: int

    def gates(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> Gates | None:
        """Return the gates of the words, or None if the encoder reads the embeddings as they are.

        Args:
            lengths: the B real lengths, on the host.
        """
        return None

    def penalizes(self, step: int) -> bool:
        """Return whether the penalty of the gates is part of the loss at an optimizer step, counted from 0."""
        return True

    @abstractmethod
    def forward(self, encoded: EncoderOutputs) -> tuple[Tensor, Tensor | None]:
        """Return vector_BF and weights_BS of the words, float32 or wider, 0 at padding; None without weights."""


class LastState(Pooling):
    """The final state of the top layer; the mean of the outputs of an encoder that has no final state. It has no weights.

    Raises:
        ValueError: an attention function is selected.
    """

    def __init__(self, input_size: int, encoder: EncoderSizes, attention: AttentionFactory) -> None:
        super().__init__()
        self.feature_size = encoder.final_size or encoder.encoder_output_size
        _refuse_attention(attention, encoder, "last")

    def forward(self, encoded: EncoderOutputs) -> tuple[Tensor, Tensor | None]:
        return (_mean_of_outputs(encoded) if encoded.final is None else _final_state(encoded)), None


class OutputPooling(Pooling):
    """A vector that depends on the encoder outputs alone. It has no weights.

    Raises:
        ValueError: an attention function is selected.
    """

    name: ClassVar[str]

    def __init__(self, input_size: int, encoder: EncoderSizes, attention: AttentionFactory) -> None:
        super().__init__()
        self.feature_size = encoder.encoder_output_size
        _refuse_attention(attention, encoder, self.name)


class MeanPooling(OutputPooling):
    """The mean of the encoder outputs."""

    name = "mean"

    def forward(self, encoded: EncoderOutputs) -> tuple[Tensor, Tensor | None]:
        return _mean_of_outputs(encoded), None


class MaxPooling(OutputPooling):
    """The maximum of each feature of the encoder outputs over the words (Collobert 2011, arXiv:1103.0398, §3.3.2)."""

    name = "max"

    def forward(self, encoded: EncoderOutputs) -> tuple[Tensor, Tensor | None]:
        outputs_BSM, mask_BS = encoded.outputs_BSM, _mask(encoded)
        if mask_BS is not None:
            outputs_BSM = outputs_BSM.masked_fill(~mask_BS[..., None], torch.finfo(outputs_BSM.dtype).min)
        return outputs_BSM.amax(1), None


class FirstOutput(OutputPooling):
    """The output at the first position, for example [CLS] of a pretrained encoder (Devlin 2019, arXiv:1810.04805, §3)."""

    name = "first"

    def forward(self, encoded: EncoderOutputs) -> tuple[Tensor, Tensor | None]:
        return encoded.outputs_BSM[:, 0], None


class AttentionPooling(Pooling):
    """The final state and the sum of the encoder outputs, weighted by an attention function whose query is the final state.

    Like the attention over words of Yang 2016 (https://aclanthology.org/N16-1174, §2.2), with the final state instead of a
    learned query.

    Raises:
        ValueError: the encoder has no final state.
        UserError: the scores do not depend on query and encoder outputs alone.
    """

    def __init__(self, input_size: int, encoder: EncoderSizes, attention: AttentionFactory) -> None:
        super().__init__()
        size = _final_size(encoder, "attention")
        self.attention = stateless_attention(attention, size, encoder, "pooling=attention")
        self.feature_size = size + self.attention.context_size

    def forward(self, encoded: EncoderOutputs) -> tuple[Tensor, Tensor | None]:
        source, final_BH = Source.encoded(encoded, self.attention.project), _final_state(encoded)
        context_B1M, weights_B1S, _ = self.attention(
            final_BH[:, None], source, self.attention.initial_state(source)
        )
        return torch.cat([final_BH, context_B1M[:, 0]], dim=-1), weights_B1S[:, 0]


class Attender(Pooling):
    """A gate per word: the encoder reads the embeddings times their gates, and its final state is the vector.

    A bidirectional recurrent network reads the embeddings e_j; gate_j = σ(w h_j + b); the encoder reads gate_j e_j. The loss
    of a text is increased by `sparsity` times the mean gate of its words.

    Args:
        sparsity: weight of the mean gate in the loss.
        free_steps: optimizer steps without this term. Otherwise it can close all gates early in the training.

    Raises:
        ValueError: the encoder has no final state, or an attention function is selected.
    """

    def __init__(
        self,
        input_size: int,
        *,
        encoder: EncoderSizes,
        attention: AttentionFactory,
        recurrent: RecurrentSpec,
        sparsity: NonNegative,
        free_steps: Annotated[int, Within(0)],
    ) -> None:
        super().__init__()
        self.feature_size = _final_size(encoder, "attender")
        _refuse_attention(attention, encoder, "attender")
        self.layers = RecurrentLayers(recurrent, input_size, bidirectional=True)
        self.gate = nn.Linear(self.layers.output_size, 1)
        self.sparsity = sparsity
        self.free_steps = free_steps

    def penalizes(self, step: int) -> bool:
        return step >= self.free_steps

    def gates(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> Gates:
        states_BSH, _ = self.layers.forward_padded(embedded_BSE, lengths)
        length_B = on_device(lengths, embedded_BSE.device)
        real_BS = torch.arange(embedded_BSE.shape[1], device=embedded_BSE.device) < length_B[:, None]
        gate_BS = self.gate(states_BSH)[..., 0].float().sigmoid() * real_BS
        return Gates(gate_BS, self.sparsity * gate_BS.sum(1) / length_B)

    def forward(self, encoded: EncoderOutputs) -> tuple[Tensor, Tensor | None]:
        return _final_state(encoded), None


def stateless_attention(
    attention: AttentionFactory, query_size: int, encoder: EncoderSizes, user: str
) -> Attention:
    """Return an attention function for a part whose queries are not the steps of a decoder.

    Args:
        user: the setting of the part, for the error message.

    Raises:
        UserError: the scores do not depend on query and encoder outputs alone.
    """
    function = attention(query_size=query_size, encoder_output_size=encoder.encoder_output_size)
    if not isinstance(function, Attention) or function.longest_source is not None:
        raise UserError(
            f"{user} cannot use attention._target_={type(function).__name__}: it needs scores that depend on the query and "
            f"the encoder outputs alone. Choose attention=additive, multiplicative, scaled_dot or dot."
        )
    if isinstance(function, LocalAttention) and function.center is None:
        raise UserError(
            f"{user} cannot use attention.alignment=monotonic: its window would always be at the first word. Set "
            f"attention.alignment=predicted, or choose another attention function, such as attention=additive."
        )
    return function


def _mean_of_outputs(encoded: EncoderOutputs) -> Tensor:
    return masked_mean(encoded.outputs_BSM, _mask(encoded))


def _mask(encoded: EncoderOutputs) -> Tensor | None:
    """Return mask_BS; see `padding_mask`."""
    return padding_mask(encoded.lengths, encoded.outputs_BSM.shape[1], encoded.outputs_BSM.device)


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
    if function.context_size:
        raise ValueError(
            f"pooling={pooling} does not use attention._target_={type(function).__name__}. Leave attention out, or choose "
            f"pooling=attention."
        )
