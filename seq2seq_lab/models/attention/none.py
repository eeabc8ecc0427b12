"""No attention: the null object among the attention functions."""

from torch import Tensor

from seq2seq_lab.models.attention.base import Attention


class NoAttention(Attention):
    """No context (its width is 0) and no weights; it has no parameters."""

    @property
    def context_size(self) -> int:
        return 0

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return encoder_outputs_BSM[..., :0]

    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        raise AssertionError("attention=none scores nothing")

    def forward(
        self, query_BTQ: Tensor, keys_BSK: Tensor, encoder_outputs_BSM: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        return query_BTQ[..., :0], None
