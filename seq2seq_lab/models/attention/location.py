"""The attention function of the PyTorch translation tutorial."""

import torch
from torch import Tensor, nn

from seq2seq_lab.models.attention.base import Attention


class LocationAttention(Attention):
    """score_j = (W [e(y_{t-1}); s])_j: a score for each position, whatever stands there.

    The attention of "Translation with a sequence to sequence network and attention", the PyTorch tutorial. W has
    as many rows as a source may have positions; those beyond the batch's longest source are cut off.

    Args:
        embedding_size: E, the size of the embedded input token.
        max_length: tokens of the longest source, `<sos>` and `<eos>` not counted.

    Raises:
        ValueError: `max_length` leaves no position.
    """

    def __init__(
        self, query_size: int, encoder_output_size: int, embedding_size: int, max_length: int
    ) -> None:
        super().__init__(query_size, encoder_output_size)
        if max_length < 1:
            raise ValueError(f"attention.max_length={max_length} must be at least 1.")
        self.longest_source = max_length + 2
        self.position = nn.Linear(embedding_size + query_size, self.longest_source, bias=False)

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return encoder_outputs_BSM[..., :0]

    def query_of(self, states_BTH: Tensor, embedded_BTE: Tensor) -> Tensor:
        return torch.cat([embedded_BTE.to(states_BTH.dtype), states_BTH], dim=-1)

    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        return self.position(query_BTQ)[..., : keys_BSK.shape[1]]
