"""The layers that Transformer encoders and decoders share (Vaswani 2017, arXiv:1706.03762)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq_lab.config.type_checks import Count, Share
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.masking import masked_softmax

Norm = Literal["pre", "post"]
PositionKind = Literal["sinusoidal", "learned"]


@dataclass(frozen=True)
class TransformerSpec:
    """Sizes and switches of stacked Transformer layers. The layers have the size E of the embeddings.

    A component whose constructor takes a `TransformerSpec` has its fields as settings in the configuration.

    Args:
        feedforward_size: size of the hidden layer between the two linear layers of a feed-forward network.
        norm: `post`: x ← norm(x + f(x)) for each sub-layer f (Vaswani 2017, §3.1); `pre`: x ← x + f(norm(x)), and another
            norm after the last layer (Xiong 2020, arXiv:2002.04745).
        positions: `sinusoidal` (Vaswani 2017, §3.5) or `learned` vectors, added to the embeddings.
        max_length: number of learned positions; all later positions use the last vector.
        dropout: probability on the output of each sub-layer.
        locked_dropout: one dropout mask per sentence instead of one per token.
    """

    num_layers: Count
    num_heads: Count
    feedforward_size: Count
    norm: Norm
    positions: PositionKind
    max_length: Count
    dropout: Share
    locked_dropout: bool


class Positions(nn.Module):
    """Add a vector for its position to each embedding.

    Args:
        size: E.
    """

    def __init__(self, spec: TransformerSpec, size: int) -> None:
        super().__init__()
        self.table: nn.Embedding | None = None
        if spec.positions == "learned":
            self.table = nn.Embedding(spec.max_length, size)
            nn.init.normal_(self.table.weight, std=size**-0.5)

    def forward(self, embedded_NTE: Tensor, first: int) -> Tensor:
        """Return embedded_NTE with the vectors of the positions from `first`, counted from 0."""
        _, steps, size = embedded_NTE.shape
        position_T = torch.arange(first, first + steps, device=embedded_NTE.device)
        if self.table is None:
            return embedded_NTE + sinusoids(position_T, size).to(embedded_NTE.dtype)
        return embedded_NTE + self.table(position_T.clamp(max=self.table.num_embeddings - 1))


def sinusoids(position_T: Tensor, size: int) -> Tensor:
    """Return vectors_TE of sin(p / 10000^(2i/E)) at 2i and cos(p / 10000^(2i/E)) at 2i + 1 (Vaswani 2017, §3.5)."""
    # MPS does not support float64.
    dtype = torch.float32 if position_T.device.type == "mps" else torch.float64
    exponents = torch.arange(0, size, 2, device=position_T.device, dtype=dtype) / size
    angles = position_T[:, None] / 10_000**exponents
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :size]


class Residual(nn.Module):
    """The residual connection around a sub-layer, with layer norm and dropout."""

    def __init__(self, spec: TransformerSpec, size: int) -> None:
        super().__init__()
        self.pre = spec.norm == "pre"
        self.norm = nn.LayerNorm(size)
        self.dropout = Dropout(spec.dropout, spec.locked_dropout)

    def enter(self, x_NTE: Tensor) -> Tensor:
        """Return the input of the sub-layer."""
        return self.norm(x_NTE) if self.pre else x_NTE

    def leave(self, x_NTE: Tensor, output_NTE: Tensor) -> Tensor:
        """Return the input x plus the output of the sub-layer."""
        x_NTE = x_NTE + self.dropout(output_NTE)
        return x_NTE if self.pre else self.norm(x_NTE)


class SelfAttention(nn.Module):
    """Scaled dot-product attention of a sequence to itself with several heads (Vaswani 2017, §3.2)."""

    def __init__(self, size: int, num_heads: int) -> None:
        super().__init__()
        check_heads(size, num_heads, "model.embedding_size")
        self.num_heads = num_heads
        self.query, self.key, self.value, self.output = (nn.Linear(size, size) for _ in range(4))

    def forward(
        self, x_NTE: Tensor, cache_NPX: Tensor | None, mask: Tensor | None, with_weights: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Attend to P earlier positions and the T positions of x.

        Args:
            cache_NPX: keys and values of the earlier positions, X = 2E; None: P = 0.
            mask: True where a position may be attended to; broadcast to NATS, S = P + T.

        Returns:
            outputs_NTE, the cache_NSX that includes x, and weights_NATS if `with_weights`, else None.
        """
        cache_NSX = torch.cat([self.key(x_NTE), self.value(x_NTE)], dim=-1)
        if cache_NPX is not None:
            cache_NSX = torch.cat([cache_NPX, cache_NSX], dim=1)
        keys_NASD, values_NASD = (split_heads(x_NSE, self.num_heads) for x_NSE in cache_NSX.chunk(2, dim=-1))
        query_NATD = split_heads(self.query(x_NTE), self.num_heads)
        context_NTE, weights_NATS = attend(query_NATD, keys_NASD, values_NASD, mask, with_weights)
        return self.output(context_NTE), cache_NSX, weights_NATS


def attend(
    query_NATD: Tensor, keys_NASD: Tensor, values_NASD: Tensor, mask: Tensor | None, with_weights: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the contexts of all heads, concatenated, and weights_NATS or None (Vaswani 2017, eq. 1).

    The contexts do not depend on `with_weights`: the fused function returns no weights, and they are computed in addition.
    """
    if query_NATD.is_cpu and query_NATD.dtype == torch.bfloat16:
        # There torch's fused function takes up to six times as long as two products.
        weights_NATS = attention_weights(query_NATD, keys_NASD, mask)
        context_NATD = weights_NATS.to(values_NASD.dtype) @ values_NASD
        return context_NATD.transpose(1, 2).flatten(2), weights_NATS if with_weights else None
    context_NATD = functional.scaled_dot_product_attention(query_NATD, keys_NASD, values_NASD, attn_mask=mask)
    weights = attention_weights(query_NATD, keys_NASD, mask) if with_weights else None
    return context_NATD.transpose(1, 2).flatten(2), weights


def attention_weights(query_NATD: Tensor, keys_NASD: Tensor, mask: Tensor | None) -> Tensor:
    """Return weights_NATS: the softmax of the scaled dot products of queries and keys."""
    scores_NATS = query_NATD @ keys_NASD.transpose(-1, -2) / math.sqrt(query_NATD.shape[-1])
    return masked_softmax(scores_NATS, mask)


def split_heads(x_NTX: Tensor, num_heads: int) -> Tensor:
    """Return x_NATD: the part of each head, X = A · D."""
    return x_NTX.reshape(*x_NTX.shape[:2], num_heads, -1).transpose(1, 2)


def feed_forward(spec: TransformerSpec, size: int) -> nn.Module:
    """Return the feed-forward network of a layer (Vaswani 2017, eq. 2)."""
    return nn.Sequential(
        nn.Linear(size, spec.feedforward_size), nn.ReLU(), nn.Linear(spec.feedforward_size, size)
    )


def final_norm(spec: TransformerSpec, size: int) -> nn.Module:
    """Return the module after the last layer: a layer norm with `pre`, the identity with `post`."""
    return nn.LayerNorm(size) if spec.norm == "pre" else nn.Identity()


def check_heads(size: int, num_heads: int, key: str) -> None:
    """Check that a size can be divided among heads.

    Args:
        key: the setting of the size, for the message.

    Raises:
        ValueError: the number of heads does not divide the size.
    """
    if size % num_heads:
        raise ValueError(
            f"num_heads={num_heads} does not divide {key}={size} into heads of equal size. Set model.num_heads to a divisor "
            f"of {size}."
        )
