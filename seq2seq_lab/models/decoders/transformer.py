"""The Transformer decoder."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq_lab.models.attention import ScaledDotAttention
from seq2seq_lab.models.attention.base import (
    Attended,
    AttentionFactory,
    AttentionState,
    BaseAttention,
    regroup,
)
from seq2seq_lab.models.decoders.base import Decoder
from seq2seq_lab.models.encoders.base import NO_SOURCE, EncoderSizes
from seq2seq_lab.models.source import Source
from seq2seq_lab.models.transformer import (
    Positions,
    Residual,
    SelfAttention,
    TransformerSpec,
    attend,
    check_heads,
    feed_forward,
    final_norm,
    split_heads,
)
from seq2seq_lab.models.weight_change import WeightChange

HeadStates = tuple[AttentionState, ...]


class TransformerLayerState(NamedTuple):
    """The state of a layer after the target tokens so far.

    Attributes:
        cache_NPX: keys and values of the self-attention, X = 2E; None before the first token.
        attention: the state of each head's attention function; of `scaled_dot` one for all heads.
    """

    cache_NPX: Tensor | None
    attention: HeadStates

    def select(self, index_N: Tensor) -> "TransformerLayerState":
        """Return the state of the given rows."""
        cache = self.cache_NPX
        return TransformerLayerState(
            None if cache is None else cache.index_select(0, index_N),
            tuple(one.select(index_N) for one in self.attention),
        )


class TransformerState(NamedTuple):
    """The states of the layers; `position` is the number of target tokens so far."""

    position: int
    layers: tuple[TransformerLayerState, ...]

    def select(self, index_N: Tensor) -> "TransformerState":
        """Return the state of the given rows."""
        return TransformerState(self.position, tuple(layer.select(index_N) for layer in self.layers))


class LayerWeights(NamedTuple):
    """The attention weights of a layer; `cross_NATS` is None without a source."""

    decoder_NATS: Tensor
    cross_NATS: Tensor | None


class TransformerDecoder(Decoder):
    """Stacked layers of self-attention, cross-attention and a feed-forward network (Vaswani 2017, §3.1).

    A step reads one token and the cached keys and values of the earlier ones. The score function of the cross-attention
    is the config group `attention`; see `cross_attention`. `step` and `unroll` return the mean attention weights of the
    heads of the last layer.

    Without a source, the layers have no cross-attention: the decoder of a language model (Radford 2018, "Improving language
    understanding by generative pre-training").

    Args:
        input_size: E, the size of an embedding and of the features.

    Raises:
        ValueError: a source and no attention function, or the number of heads does not divide E.
    """

    def __init__(
        self,
        *,
        input_size: int,
        encoder: EncoderSizes,
        attention: AttentionFactory,
        transformer: TransformerSpec,
    ) -> None:
        super().__init__()
        self.positions = Positions(transformer, input_size)
        self.layers = nn.ModuleList(
            _Layer(transformer, input_size, encoder, attention) for _ in range(transformer.num_layers)
        )
        self.norm = final_norm(transformer, input_size)
        self.feature_size = input_size

    @property
    def attends(self) -> bool:
        return bool(self._cross_attentions)

    @property
    def ignores_final(self) -> str | None:
        return "decoder=transformer"

    @property
    def longest_source(self) -> int | None:
        return self._cross_attentions[0].longest_source if self.attends else None

    @property
    def heads(self) -> tuple[int, int]:
        return len(self.layers), self._layers[0].self_attention.num_heads

    @property
    def _layers(self) -> list["_Layer"]:
        return [layer for layer in self.layers if isinstance(layer, _Layer)]

    @property
    def _cross_attentions(self) -> list["CrossAttention"]:
        return [layer.cross_attention for layer in self._layers if layer.cross_attention is not None]

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return torch.cat([one.project(encoder_outputs_BSM) for one in self._cross_attentions], dim=-1)

    def start(self, source: Source) -> TransformerState:
        layers = zip(self._layers, self._layer_sources(source), strict=True)
        return TransformerState(
            0, tuple(TransformerLayerState(None, one.initial_states(of_layer)) for one, of_layer in layers)
        )

    def step(
        self, embedded_NE: Tensor, state: TransformerState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, TransformerState, Tensor | None]:
        features_N1E, state, weights_N1S = self.unroll(embedded_NE[:, None], state, source, with_weights)
        return features_N1E[:, 0], state, None if weights_N1S is None else weights_N1S[:, 0]

    def unroll(
        self, embedded_BTE: Tensor, state: TransformerState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, TransformerState, Tensor | None]:
        count = int(with_weights and self.attends)
        features_BTE, state, weights = self._run_layers(embedded_BTE, state, source, count)
        cross_BATS = weights[0].cross_NATS if weights else None
        return features_BTE, state, None if cross_BATS is None else cross_BATS.mean(1)

    def attention_maps(self, embedded_BTE: Tensor, source: Source) -> dict[str, Tensor]:
        _, _, weights = self._run_layers(embedded_BTE, self.start(source), source, len(self.layers))
        maps = {"decoder": [layer.decoder_NATS for layer in weights]}
        if cross := [layer.cross_NATS for layer in weights if layer.cross_NATS is not None]:
            maps["cross"] = cross
        return {name: torch.stack(of_layers, dim=1) for name, of_layers in maps.items()}

    def _layer_sources(self, source: Source) -> list[Source]:
        """Return the source with the keys and the change of each layer."""
        keys, change = source.keys_BSK.chunk(len(self.layers), dim=-1), source.change
        if change is None:
            return [source._replace(keys_BSK=keys_BSK) for keys_BSK in keys]
        return [
            source._replace(keys_BSK=keys_BSK, change=change.of_layer(layer))
            for layer, keys_BSK in enumerate(keys)
        ]

    def _run_layers(
        self, embedded_NTE: Tensor, state: TransformerState, source: Source, layers_with_weights: int
    ) -> tuple[Tensor, TransformerState, list[LayerWeights]]:
        """Return features_NTE, the next state and the weights of the last `layers_with_weights` layers."""
        steps = embedded_NTE.shape[1]
        end = state.position + steps
        mask_TS = None
        if steps > 1:
            mask_TS = embedded_NTE.new_ones(steps, end, dtype=torch.bool).tril(state.position)
        x_NTE = self.positions(embedded_NTE, state.position)
        states, weights = [], []
        inputs = zip(self.layers, state.layers, self._layer_sources(source), strict=True)
        for index, (layer, before, of_layer) in enumerate(inputs):
            with_weights = index >= len(self.layers) - layers_with_weights
            x_NTE, after, layer_weights = layer(
                x_NTE, embedded_NTE, before, of_layer, mask_TS=mask_TS, with_weights=with_weights
            )
            states.append(after)
            weights += [] if layer_weights is None else [layer_weights]
        return self.norm(x_NTE), TransformerState(end, tuple(states)), weights


class CrossAttention(nn.Module):
    """Scaled dot-product attention of the target to the source with several heads (Vaswani 2017, §3.2).

    Args:
        size: E.
        encoder_output_size: M.
        key_size: size of the queries, and of the keys, of all heads together.
    """

    longest_source: int | None = None

    def __init__(self, size: int, encoder_output_size: int, num_heads: int, key_size: int) -> None:
        super().__init__()
        self.size, self.num_heads = size, num_heads
        self.query = nn.Linear(size, key_size)
        self.key = nn.Linear(encoder_output_size, key_size)
        self.value = nn.Linear(encoder_output_size, size)
        self.output = nn.Linear(size, size)

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        """Return keys_BSK: the keys of all heads, then the values of all heads."""
        return torch.cat([self.key(encoder_outputs_BSM), self.value(encoder_outputs_BSM)], dim=-1)

    def initial_states(self, source: Source) -> HeadStates:
        """Return the states of the heads before the first target token; of `scaled_dot` one for all."""
        return (AttentionState(0, None),)

    def forward(
        self,
        x_NTE: Tensor,
        embedded_NTE: Tensor,
        states: HeadStates,
        source: Source,
        with_weights: bool,
    ) -> tuple[Tensor, Tensor | None, HeadStates]:
        """Return outputs_NTE, weights_NATS or None, and the next states of the heads.

        Args:
            x_NTE: the queries.
            embedded_NTE: the embedded input tokens.
        """
        query_NTQ, keys_BSK = self.query(x_NTE), source.keys_BSK
        keys_BASD = split_heads(keys_BSK[..., : -self.size], self.num_heads)
        values_BASD = split_heads(keys_BSK[..., -self.size :], self.num_heads)
        # The hypotheses of a sentence share its keys and values.
        query_BAXD = split_heads(regroup(query_NTQ, len(keys_BSK)), self.num_heads)
        mask_B11S = None if source.mask is None else source.mask[:, None]
        step, change = states[0].step, source.change
        context_BXE, weights_BAXS = attend(
            query_BAXD, keys_BASD, values_BASD, mask_B11S, with_weights or change is not None
        )
        if weights_BAXS is not None and change is not None:
            original_BAXS = weights_BAXS
            weights_BAXS = change_heads(change, original_BAXS, len(query_NTQ), step)
            # Rows without a change keep the context of the fused function, which rounds differently.
            changed_BXA1 = (weights_BAXS != original_BAXS).any(-1, keepdim=True).transpose(1, 2)
            context_BXAD = (weights_BAXS.to(values_BASD.dtype) @ values_BASD).transpose(1, 2)
            context_BXE = context_BXAD.where(changed_BXA1, context_BXE.view_as(context_BXAD)).flatten(2)
        outputs_NTE = self.output(regroup(context_BXE, len(query_NTQ)))
        after = (AttentionState(step + query_NTQ.shape[1], None),)
        if weights_BAXS is None:
            return outputs_NTE, None, after
        weights_NTAS = weights_BAXS.transpose(1, 2).reshape(*query_NTQ.shape[:2], self.num_heads, -1)
        return outputs_NTE, weights_NTAS.transpose(1, 2), after


def change_heads(change: WeightChange, weights_BAXS: Tensor, rows: int, step: int) -> Tensor:
    """Return the changed weights of the heads.

    Args:
        weights_BAXS: weights of N = `rows` rows of T steps, X = N · T / B.
        step: the index of the first step.
    """
    heads = [
        weights_BXS
        if (of_head := change.of_head(head)) is None
        else regroup(of_head.function(regroup(weights_BXS, rows), step), len(weights_BXS))
        for head, weights_BXS in enumerate(weights_BAXS.unbind(1))
    ]
    return torch.stack(heads, dim=1)


class ScoredCrossAttention(CrossAttention):
    """Cross-attention with an attention function in each head, which scores the projected query and keys of size D.

    Args:
        functions: an attention function of size D = E / A for each head.
    """

    def __init__(self, size: int, encoder_output_size: int, functions: Sequence[BaseAttention]) -> None:
        super().__init__(size, encoder_output_size, len(functions), size)
        self.longest_source = functions[0].longest_source
        self.heads = nn.ModuleList(functions)

    @property
    def functions(self) -> list[BaseAttention]:
        """The attention functions of the heads."""
        return [head for head in self.heads if isinstance(head, BaseAttention)]

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        parts = zip(self.functions, self.key(encoder_outputs_BSM).chunk(self.num_heads, dim=-1), strict=True)
        keys = [function.project(keys_BSD) for function, keys_BSD in parts]
        return torch.cat([*keys, self.value(encoder_outputs_BSM)], dim=-1)

    def initial_states(self, source: Source) -> HeadStates:
        heads = zip(self.functions, self._sources(source), strict=True)
        return tuple(function.initial_state(of_head) for function, of_head in heads)

    def forward(
        self,
        x_NTE: Tensor,
        embedded_NTE: Tensor,
        states: HeadStates,
        source: Source,
        with_weights: bool,
    ) -> tuple[Tensor, Tensor | None, HeadStates]:
        queries = self.query(x_NTE).chunk(self.num_heads, dim=-1)
        heads = zip(self.functions, queries, self._sources(source), states, strict=True)
        attended: list[Attended] = [
            function(function.build_query(query_NTD, embedded_NTE), of_head, state)
            for function, query_NTD, of_head, state in heads
        ]
        contexts, weights, after = zip(*attended, strict=True)
        return self.output(torch.cat(contexts, dim=-1)), torch.stack(weights, dim=1), after

    def _sources(self, source: Source) -> list[Source]:
        """Return the source of each head, with its keys and its change, and with its values as encoder outputs."""
        keys_BSK = source.keys_BSK
        shape = (*keys_BSK.shape[:2], self.num_heads)
        key_size = (keys_BSK.shape[-1] - self.size) // self.num_heads  # 0 for a function without keys
        keys = keys_BSK[..., : -self.size].reshape(*shape, key_size).unbind(2)
        values = keys_BSK[..., -self.size :].chunk(self.num_heads, dim=-1)
        sources = [
            source._replace(keys_BSK=keys_BSD, encoder_outputs_BSM=values_BSD)
            for keys_BSD, values_BSD in zip(keys, values, strict=True)
        ]
        if (change := source.change) is None:
            return sources
        return [one._replace(change=change.of_head(head)) for head, one in enumerate(sources)]


def cross_attention(
    size: int, encoder_output_size: int, num_heads: int, attention: AttentionFactory
) -> CrossAttention:
    """Return the cross-attention of a layer, whose score function is the config group `attention`.

    `scaled_dot` is computed by torch's fused function; its `size` is that of the queries of all heads together.

    Raises:
        ValueError: no attention function, or the number of heads does not divide a size.
    """
    head_size = size // num_heads
    functions = [attention(query_size=head_size, encoder_output_size=head_size) for _ in range(num_heads)]
    if not functions[0].context_size:
        raise ValueError(
            "decoder: decoder=transformer needs an attention function, but attention=none is chosen. Choose one, "
            "such as attention=scaled_dot, or another decoder."
        )
    if isinstance(functions[0], ScaledDotAttention):
        key_size = functions[0].key.out_features
        check_heads(key_size, num_heads, "attention.size")
        return CrossAttention(size, encoder_output_size, num_heads, key_size)
    return ScoredCrossAttention(size, encoder_output_size, functions)


class _Layer(nn.Module):
    """Self-attention, cross-attention if there is a source, and a feed-forward network."""

    def __init__(
        self, spec: TransformerSpec, size: int, encoder: EncoderSizes, attention: AttentionFactory
    ) -> None:
        super().__init__()
        self.self_attention = SelfAttention(size, spec.num_heads)
        self.self_residual = Residual(spec, size)
        self.cross_attention: CrossAttention | None = None
        if encoder != NO_SOURCE:
            self.cross_attention = cross_attention(
                size, encoder.encoder_output_size, spec.num_heads, attention
            )
            self.cross_residual = Residual(spec, size)
        self.feed_forward = feed_forward(spec, size)
        self.feed_forward_residual = Residual(spec, size)

    def initial_states(self, source: Source) -> HeadStates:
        """Return the states of the heads of the cross-attention before the first target token."""
        return () if self.cross_attention is None else self.cross_attention.initial_states(source)

    def forward(
        self,
        x_NTE: Tensor,
        embedded_NTE: Tensor,
        state: TransformerLayerState,
        source: Source,
        *,
        mask_TS: Tensor | None,
        with_weights: bool,
    ) -> tuple[Tensor, TransformerLayerState, LayerWeights | None]:
        residual = self.self_residual
        output_NTE, cache_NSX, decoder_NATS = self.self_attention(
            residual.enter(x_NTE), state.cache_NPX, mask_TS, with_weights
        )
        x_NTE = residual.leave(x_NTE, output_NTE)
        cross_NATS, attention = None, state.attention
        if self.cross_attention is not None:
            residual = self.cross_residual
            output_NTE, cross_NATS, attention = self.cross_attention(
                residual.enter(x_NTE), embedded_NTE, attention, source, with_weights
            )
            x_NTE = residual.leave(x_NTE, output_NTE)
        residual = self.feed_forward_residual
        x_NTE = residual.leave(x_NTE, self.feed_forward(residual.enter(x_NTE)))
        weights = LayerWeights(decoder_NATS, cross_NATS) if with_weights else None
        return x_NTE, TransformerLayerState(cache_NSX, attention), weights
