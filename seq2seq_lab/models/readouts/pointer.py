"""The pointer-generator: a readout that generates a token or copies one of the source."""

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Within
from seq2seq_lab.models.attention.base import repeat_rows
from seq2seq_lab.models.readouts.base import Readout, check_source_types, output_layer
from seq2seq_lab.models.source import Source


class PointerReadout(Readout):
    """P(w) = p P_vocab(w) + (1 − p) Σ_{i: w_i = w} α_i, p = σ(w f + b) (See 2017, arXiv:1704.04368, eq. 8–9).

    The output has V types of the vocabulary and `copied_words` types for the words of the source that the vocabulary lacks,
    which can be copied and not generated; see `CopyingTokenizer`. The features f of p are those of the decoder: of
    decoder=bahdanau [s; c; e], as in the paper.

    Args:
        copied_words: the number of different unknown words of a source that can be copied.

    Raises:
        ValueError: a tied output layer does not have the size of the features.
        UserError: the vocabulary has no other types.
    """

    needs_weights = needs_tokens = True

    def __init__(
        self,
        feature_size: int,
        vocabulary_size: int,
        table: nn.Parameter | None,
        copied_words: Annotated[int, Within(0)],
    ) -> None:
        super().__init__(feature_size, vocabulary_size, table)
        check_source_types(vocabulary_size, copied_words)
        self.source_types = copied_words
        remedy = "Set model.attentional_size=${model.embedding_size} (decoder=luong)"
        self.linear = output_layer(feature_size, vocabulary_size - copied_words, table, remedy)
        self.generate = nn.Linear(feature_size, 1)

    @classmethod
    def source_types_of(cls, settings: Mapping[str, Any]) -> int:
        return int(settings["copied_words"])

    def forward(
        self, features_NTF: Tensor, weights_NTS: Tensor | None = None, source: Source | None = None
    ) -> Tensor:
        assert weights_NTS is not None, "needs_weights"
        assert source is not None, "needs_tokens"
        assert source.tokens_BS is not None, "needs_tokens"
        generate_NT1 = self.generate(features_NTF).to(weights_NTS.dtype).sigmoid()
        probs_NTV = generate_NT1 * self.linear(features_NTF).softmax(-1, dtype=weights_NTS.dtype)
        probs_NTV = nn.functional.pad(probs_NTV, (0, self.source_types))
        token_NTS = repeat_rows(source.tokens_BS, len(weights_NTS))[:, None].expand_as(weights_NTS)
        probs_NTV = probs_NTV.scatter_add(-1, token_NTS, (1 - generate_NT1) * weights_NTS)
        return probs_NTV.clamp_min(torch.finfo(probs_NTV.dtype).tiny).log()
