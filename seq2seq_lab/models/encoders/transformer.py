"""The Transformer encoder."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq_lab.models.encoders.base import EncoderOutputs, EncoderSizes, TokenEncoder
from seq2seq_lab.models.masking import padding_mask
from seq2seq_lab.models.transformer import (
    Positions,
    Residual,
    SelfAttention,
    TransformerSpec,
    feed_forward,
    final_norm,
)


class TransformerEncoder(TokenEncoder):
    """Stacked layers of self-attention and a feed-forward network (Vaswani 2017, §3.1). It has no final state.

    Args:
        input_size: E, the size of an embedding and of the outputs.

    Raises:
        ValueError: the number of heads does not divide E.
    """

    def __init__(self, *, input_size: int, transformer: TransformerSpec) -> None:
        super().__init__()
        self.sizes = EncoderSizes(input_size, final_size=None, num_layers=transformer.num_layers)
        self.positions = Positions(transformer, input_size)
        self.layers = nn.ModuleList(_Layer(transformer, input_size) for _ in range(transformer.num_layers))
        self.norm = final_norm(transformer, input_size)

    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> EncoderOutputs:
        outputs_BSM, _ = self._run_layers(embedded_BSE, lengths, with_weights=False)
        return EncoderOutputs(outputs_BSM, lengths, None)

    def attention_maps(self, batch: Any, embed: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        _, weights = self._run_layers(embed(batch.source_BS), batch.source_lengths, with_weights=True)
        return {"encoder": torch.stack(weights, dim=1)}

    def _run_layers(
        self, embedded_BSE: Tensor, lengths: Sequence[int], with_weights: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Return outputs_BSM, and weights_BASS of each layer or an empty list."""
        mask_BS = padding_mask(lengths, embedded_BSE.shape[1], embedded_BSE.device)
        mask_B11S = None if mask_BS is None else mask_BS[:, None, None]
        x_BSE = self.positions(embedded_BSE, 0)
        weights = []
        for layer in self.layers:
            x_BSE, weights_BASS = layer(x_BSE, mask_B11S, with_weights)
            weights += [] if weights_BASS is None else [weights_BASS]
        x_BSE = self.norm(x_BSE)
        return x_BSE if mask_BS is None else torch.where(mask_BS[..., None], x_BSE, 0), weights


class _Layer(nn.Module):
    """Self-attention and a feed-forward network."""

    def __init__(self, spec: TransformerSpec, size: int) -> None:
        super().__init__()
        self.attention = SelfAttention(size, spec.num_heads)
        self.attention_residual = Residual(spec, size)
        self.feed_forward = feed_forward(spec, size)
        self.feed_forward_residual = Residual(spec, size)

    def forward(self, x_BSE: Tensor, mask: Tensor | None, with_weights: bool) -> tuple[Tensor, Tensor | None]:
        residual = self.attention_residual
        output_BSE, _, weights_BASS = self.attention(residual.enter(x_BSE), None, mask, with_weights)
        x_BSE = residual.leave(x_BSE, output_BSE)
        residual = self.feed_forward_residual
        return residual.leave(x_BSE, self.feed_forward(residual.enter(x_BSE))), weights_BASS
