"""The model of answers in a text: two attention functions point to its first and its last word."""

from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seq2seq_lab.config.schema import Config
from seq2seq_lab.config.slots import part
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.attention.base import Attention, AttentionFactory
from seq2seq_lab.models.attention.local import LocalAttention
from seq2seq_lab.models.attention.uniform import UniformAttention
from seq2seq_lab.models.classifier import TextModel, assemble, build_encoder
from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.masking import masked_mean
from seq2seq_lab.models.parts import KINDS
from seq2seq_lab.models.pooling import stateless_attention


class QuestionsWithTexts(Protocol):
    """A batch of B questions, each in one sequence with its text.

    `null_B` is the position of the separator before the text, which stands for "no answer", `last_B` the last position of
    the text, and `longest_question` the greatest position of a separator, on the host.
    """

    @property
    def source_BS(self) -> Tensor: ...

    @property
    def source_lengths(self) -> tuple[int, ...]: ...

    @property
    def null_B(self) -> Tensor: ...

    @property
    def last_B(self) -> Tensor: ...

    @property
    def longest_question(self) -> int: ...


class Pointed(NamedTuple):
    """The log-probabilities of the first and the last position of the answer, in float32 or wider.

    They are those of the separator and the text, and -inf elsewhere.
    """

    start_BS: Tensor
    end_BS: Tensor


class Pointers(nn.Module):
    """p(start | question, text) and p(end | start, question, text), as attention weights.

    As the boundary model of Wang and Jiang 2017 (arXiv:1608.07905, §2.3) with two attention functions and without a
    recurrent layer: the query of the start is the mean q of the outputs of the question, and that of the end is
    tanh(W [q; c] + b), where c is the sum of the outputs weighted by p(start).

    Raises:
        UserError: the attention function has no scores of all positions, or the same for all.
    """

    def __init__(self, encoder: EncoderSizes, attention: AttentionFactory) -> None:
        super().__init__()
        size = encoder.encoder_output_size
        self.start, self.end = (self._pointer(attention, encoder) for _ in range(2))
        self.end_query = nn.Linear(2 * size, size)

    @staticmethod
    def _pointer(attention: AttentionFactory, encoder: EncoderSizes) -> Attention:
        function = stateless_attention(attention, encoder.encoder_output_size, encoder, "task=span")
        if isinstance(function, LocalAttention):
            raise UserError(
                "task=span cannot use attention=local: an answer can be outside of its window. Choose another attention "
                "function, such as attention=multiplicative."
            )
        if isinstance(function, UniformAttention):
            raise UserError(
                "task=span cannot use attention=uniform: every position would be as probable as the others. Choose another "
                "attention function, such as attention=multiplicative."
            )
        return function

    def forward(self, outputs_BSM: Tensor, batch: QuestionsWithTexts) -> Pointed:
        """Return the log-probabilities of a batch with these encoder outputs."""
        position_S = torch.arange(outputs_BSM.shape[1], device=outputs_BSM.device)
        null_B1, last_B1 = batch.null_B[:, None], batch.last_B[:, None]
        allowed_BS = (position_S >= null_B1) & (position_S <= last_B1)
        query_BM = masked_mean(outputs_BSM, position_S < null_B1)
        start_BS = _point(self.start, query_BM, outputs_BSM, allowed_BS)
        weights_B1S = start_BS.exp()[:, None].to(outputs_BSM.dtype)
        context_BM = torch.bmm(weights_B1S, outputs_BSM)[:, 0]
        query_BM = self.end_query(torch.cat([query_BM, context_BM], dim=-1)).tanh()
        return Pointed(start_BS, _point(self.end, query_BM, outputs_BSM, allowed_BS))


def _point(function: Attention, query_BM: Tensor, outputs_BSM: Tensor, allowed_BS: Tensor) -> Tensor:
    """Return the logarithms of the weights of the allowed positions."""
    scores_BS = function.score(query_BM[:, None], function.project(outputs_BSM))[:, 0]
    dtype = torch.promote_types(scores_BS.dtype, torch.float32)
    return scores_BS.to(dtype).masked_fill(~allowed_BS, float("-inf")).log_softmax(-1)


class SpanModel(TextModel):
    """p(answer | question, text): an embedding, an encoder of the question and the text as one sequence, and two pointers.

    Args:
        matched_size: the size of a learned vector, at first 0, that is added to the embedding of each token of the text that
            the question contains too: the feature f_exact_match of Chen 2017 (arXiv:1704.00051, §3.2). None to leave it out.
        parts: see `TextModel`.
    """

    pointers: Pointers

    def __init__(self, *, matched_size: int | None, **parts: Any) -> None:
        super().__init__(**parts)
        self.matched = None if matched_size is None else nn.Parameter(torch.zeros(matched_size))

    def forward(self, batch: QuestionsWithTexts) -> Pointed:
        """Return the log-probabilities of the positions of the answer."""
        embedded_BSE = self.embed(batch.source_BS)
        if self.matched is not None:
            embedded_BSE = embedded_BSE + matched_tokens(batch)[..., None] * self.matched
        encoded = self.encoder(embedded_BSE, batch.source_lengths)
        pointed: Pointed = self.pointers(encoded.outputs_BSM, batch)
        return pointed


def matched_tokens(batch: QuestionsWithTexts) -> Tensor:
    """Return mask_BS, True at the tokens of the texts that the questions contain too; unknown words are one token."""
    position_S = torch.arange(batch.source_BS.shape[1], device=batch.source_BS.device)
    question_BS = position_S < batch.null_B[:, None]
    tokens_BQ = batch.source_BS.masked_fill(~question_BS, -1)[:, : batch.longest_question]
    text_BS = (position_S > batch.null_B[:, None]) & (position_S <= batch.last_B[:, None])
    return (batch.source_BS[..., None] == tokens_BQ[:, None]).any(-1) & text_BS


def build_span_model(config: Config, vocabulary: int, matched: bool) -> SpanModel:
    """Return the model, with weights drawn from torch's global generator.

    Args:
        matched: whether it has the feature of matched tokens; see `SpanModel`.

    Raises:
        UserError: components that cannot be combined, by name.
    """
    encoder = build_encoder(config)
    pointers = Pointers(encoder.sizes, part("attention", config.attention, KINDS))
    size = encoder.embedding_size or config.model.embedding_size
    kind = partial(SpanModel, matched_size=size if matched else None)
    return assemble(kind, config, vocabulary, encoder, readout_sizes=None, pointers=pointers)
