"""No attention: the null object among the attention functions."""

from torch import Tensor

from seq2seq_lab.models.attention.base import AttentionState, BaseAttention
from seq2seq_lab.models.source import Source


class NoAttention(BaseAttention):
    """No context (its size is 0), no weights and no parameters."""

    @property
    def context_size(self) -> int:
        return 0

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return encoder_outputs_BSM[..., :0]

    def weigh(
        self, query_NTQ: Tensor, source: Source, state: AttentionState
    ) -> tuple[Tensor | None, AttentionState]:
        return None, state
