"""What a decoder shows its readout."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from seq2seq_lab.models.dropout import Dropout

OutputPart = Literal["state", "context", "embedding"]


class Output(nn.Module):
    """The features of the readout: some of s_t, c_t and e(y_{t-1}) side by side, dropout on the first two.

    The dropout on embeddings has been done where they were looked up.

    Raises:
        ValueError: no part, one named twice, or none that knows of the source.
    """

    def __init__(
        self,
        parts: Sequence[OutputPart],
        embedding_size: int,
        state_size: int,
        context_size: int,
        dropout: float,
        locked_dropout: bool,
    ) -> None:
        super().__init__()
        sizes = {"state": state_size, "context": context_size, "embedding": embedding_size}
        if not parts or len(set(parts)) < len(parts):
            raise ValueError(
                f"decoder.output={list(parts)} is not allowed. Allowed: one or more of {', '.join(sizes)}, each once."
            )
        if "state" not in parts and not ("context" in parts and context_size):
            raise ValueError(
                f"decoder.output={list(parts)} shows the readout nothing of the source. Add state, or context with an "
                f"attention function."
            )
        self.parts = tuple(parts)
        self.size = sum(sizes[part] for part in parts)
        self.dropout = Dropout(dropout, locked_dropout)

    def forward(self, embedded_BTE: Tensor, states_BTH: Tensor, context_BTM: Tensor) -> Tensor:
        """Return features_BTF."""
        features = {
            "state": self.dropout(states_BTH) if "state" in self.parts else states_BTH,
            "context": self.dropout(context_BTM) if "context" in self.parts else context_BTM,
            "embedding": embedded_BTE.to(states_BTH.dtype),
        }
        return torch.cat([features[part] for part in self.parts], dim=-1)
