"""The features that a decoder passes to its readout."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.recurrent import RecurrentSpec

OutputPart = Literal["state", "context", "embedding"]


class Output(nn.Module):
    """Some of s_t, c_t and e(y_{t-1}), concatenated, with dropout on the first two.

    Dropout on embeddings is applied where they are looked up.

    Args:
        dropout: probability on state and context.

    Raises:
        ValueError: no part, a part listed twice, or only the embedding.
    """

    def __init__(
        self,
        parts: Sequence[OutputPart],
        embedding_size: int,
        recurrent: RecurrentSpec,
        context_size: int,
        dropout: float,
    ) -> None:
        super().__init__()
        sizes = {"state": recurrent.hidden_size, "context": context_size, "embedding": embedding_size}
        if not parts or len(set(parts)) < len(parts):
            raise ValueError(
                f"decoder.output={list(parts)} is not allowed. Allowed: one or more of {', '.join(sizes)}, each once."
            )
        if "state" not in parts and not ("context" in parts and context_size):
            raise ValueError(
                f"decoder.output={list(parts)} gives the readout no access to the source. Add state, or context with an "
                f"attention function."
            )
        self.parts = tuple(parts)
        self.size = sum(sizes[part] for part in parts)
        self.dropout = Dropout(dropout, recurrent.locked_dropout)

    def forward(self, embedded_BTE: Tensor, states_BTH: Tensor, context_BTM: Tensor) -> Tensor:
        """Return features_BTF."""
        features = {
            "state": self.dropout(states_BTH) if "state" in self.parts else states_BTH,
            "context": self.dropout(context_BTM) if "context" in self.parts else context_BTM,
            "embedding": embedded_BTE.to(states_BTH.dtype),
        }
        return torch.cat([features[part] for part in self.parts], dim=-1)
