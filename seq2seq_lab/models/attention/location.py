"""The attention function of the PyTorch translation tutorial."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.models.attention.base import Attention


class LocationAttention(Attention):
    """score_j = (W [e(y_{t-1}); s])_j: the score of a position does not depend on the encoder output there.

    From the PyTorch tutorial "Translation with a sequence to sequence network and attention". W has one row for each
    position that a source may have; the rows beyond the longest source of the batch are not used.

    Args:
        embedding_size: E, the size of the embedded input token.
        max_length: tokens of the longest source, not counting `<sos>` and `<eos>`.
    """

    def __init__(
        self, query_size: int, encoder_output_size: int, embedding_size: Count, max_length: Count
    ) -> None:
        super().__init__(query_size, encoder_output_size)
        self.longest_source = max_length + 2
        self.position = nn.Linear(embedding_size + query_size, self.longest_source, bias=False)

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return encoder_outputs_BSM[..., :0]

    def build_query(self, states_NTH: Tensor, embedded_NTE: Tensor) -> Tensor:
        return torch.cat([embedded_NTE.to(states_NTH.dtype), states_NTH], dim=-1)

    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        positions = keys_BSK.shape[1]
        scores = self.position(query_BTQ)[..., :positions]
        # task.pad_to may add positions beyond the longest source. The mask excludes them.
        missing = positions - scores.shape[-1]
        return functional.pad(scores, (0, missing)) if missing else scores
