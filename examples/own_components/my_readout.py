"""A custom readout that copies tokens of the source."""

import torch
from torch import Tensor, nn

from seq2seq_lab.models.attention.base import repeat_rows
from seq2seq_lab.models.readouts import LinearReadout
from seq2seq_lab.models.source import Source


class PointerReadout(LinearReadout):
    """P(w) = p P_vocab(w) + (1 - p) times the sum of the weights at the positions of w.

    See 2017, arXiv:1704.04368, eq. 8-9.
    """

    needs_weights = needs_tokens = True

    def __init__(self, feature_size: int, vocabulary_size: int, table: nn.Parameter | None) -> None:
        super().__init__(feature_size, vocabulary_size, table)
        self.generate = nn.Linear(feature_size, 1)

    def forward(self, features_NTF: Tensor, weights_NTS: Tensor, source: Source) -> Tensor:
        vocabulary_NTV = super().forward(features_NTF).softmax(-1, dtype=weights_NTS.dtype)
        generate_NT1 = self.generate(features_NTF).to(weights_NTS.dtype).sigmoid()
        token_NTS = repeat_rows(source.tokens_BS, len(weights_NTS))[:, None].expand_as(weights_NTS)
        copied_NTS = (1 - generate_NT1) * weights_NTS
        probs_NTV = (generate_NT1 * vocabulary_NTV).scatter_add(-1, token_NTS, copied_NTS)
        return probs_NTV.clamp_min(torch.finfo(probs_NTV.dtype).tiny).log()
