"""The contract of decoders, and the base class of recurrent decoders."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from seq2seq_lab.errors import UserError
from seq2seq_lab.models.attention.base import Attended, AttentionState, BaseAttention
from seq2seq_lab.models.bridge import Bridge, BridgeKind
from seq2seq_lab.models.encoders.base import NO_SOURCE, Encoder, EncoderSizes
from seq2seq_lab.models.recurrent import RecurrentState
from seq2seq_lab.models.selectable import Selectable
from seq2seq_lab.models.source import Source


class Decoder(nn.Module, ABC):
    """Reads the embedded target so far. The inputs are arguments: a decoder does not depend on teacher forcing.

    `feature_size` is F, the size of the features that it passes to the readout. `needs_source` is whether it cannot be the
    decoder of a language model, which has no source.
    """

    feature_size: int
    needs_source: ClassVar[bool] = False

    @property
    def attends(self) -> bool:
        """Whether the decoder returns attention weights."""
        return False

    @property
    def ignores_final(self) -> str | None:
        """The setting with which the decoder does not use the final state of the encoder; None if it uses it."""
        return None

    def check(self, encoder: Encoder) -> None:
        """Refuse an encoder that the decoder cannot be combined with.

        Raises:
            UserError: names the keys and the remedy.
        """
        if encoder.needs_final is not None and self.ignores_final is not None:
            raise UserError(
                f"{self.ignores_final} does not use the final state of the encoder. {encoder.needs_final}"
            )

    @property
    def longest_source(self) -> int | None:
        """The largest number of source positions that the decoder can attend to; None for any number."""
        return None

    @property
    def heads(self) -> tuple[int, int]:
        """The number of layers and the number of heads per layer in `attention_maps`; (0, 0) for a decoder without heads."""
        return 0, 0

    @abstractmethod
    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        """Return the keys_BSK of the encoder outputs, once per sentence."""

    @abstractmethod
    def start(self, source: Source) -> Selectable:
        """Return the state before the first target token."""

    @abstractmethod
    def step(
        self, embedded_NE: Tensor, state: Any, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, Selectable, Tensor | None]:
        """Read one token: return (features_NF, the next state, weights_NS or None).

        The N = B · K rows of a state belong to the B sentences of a source, K adjacent rows to each.

        Args:
            with_weights: False if the caller does not read the weights; a decoder that computes them only for the caller
                then returns None.
        """

    def unroll(
        self, embedded_BTE: Tensor, state: Any, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, Selectable, Tensor | None]:
        """Read a target whose tokens are all known: return (features_BTF, the state after it, weights_BTS or None).

        Equal to repeated `step`; a decoder overrides this loop to be faster.
        """
        features, weights = [], []
        for embedded_BE in embedded_BTE.unbind(1):
            feature_BF, state, weight_BS = self.step(embedded_BE, state, source, with_weights)
            features.append(feature_BF)
            weights.append(weight_BS)
        return torch.stack(features, dim=1), state, stack_steps(weights)

    def attention_maps(self, embedded_BTE: Tensor, source: Source) -> dict[str, Tensor]:
        """Return the attention weights of all layers and heads by name; empty for a decoder without heads.

        Returns:
            "decoder": maps_BLATT of self-attention; "cross": maps_BLATS of attention to the source, if there is one.
        """
        return {}


class DecoderState(NamedTuple):
    """The state of a recurrent decoder between two steps; `fed_BF` is what input feeding adds to the next input."""

    layers: RecurrentState
    attention: AttentionState
    fed_BF: Tensor | None = None

    def select(self, index_N: Tensor) -> "DecoderState":
        """Return the states of the given rows of the batch."""
        fed = self.fed_BF
        return DecoderState(
            self.layers.select(index_N),
            self.attention.select(index_N),
            None if fed is None else fed.index_select(0, index_N),
        )


class RecurrentDecoder(Decoder):
    """A decoder with recurrent layers, a bridge and an attention function, which may be `NoAttention`.

    A new recurrent decoder sets `attention`, `bridge` and `feature_size`, and implements `step`.
    """

    attention: BaseAttention
    bridge: Bridge

    @property
    def ignores_final(self) -> str | None:
        return None if self.bridge.uses_final else f"model.bridge={self.bridge.kind}"

    @property
    def attends(self) -> bool:
        return self.attention.context_size > 0

    @property
    def longest_source(self) -> int | None:
        return self.attention.longest_source

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return self.attention.project(encoder_outputs_BSM)

    def start(self, source: Source) -> DecoderState:
        return DecoderState(self.bridge(source), self.attention.initial_state(source))

    def attend(
        self, states_NTH: Tensor, embedded_NTE: Tensor, state: AttentionState, source: Source
    ) -> Attended:
        """Return the output of the attention function for T decoder states and inputs."""
        attended: Attended = self.attention(
            self.attention.build_query(states_NTH, embedded_NTE), source, state
        )
        return attended

    def attend_once(
        self, state_NH: Tensor, embedded_NE: Tensor, state: AttentionState, source: Source
    ) -> tuple[Tensor, Tensor | None, AttentionState]:
        """Return (context_NM, weights_NS or None, the next state) for one decoder state and input."""
        context_N1M, weights_N1S, state = self.attend(state_NH[:, None], embedded_NE[:, None], state, source)
        return context_N1M[:, 0], None if weights_N1S is None else weights_N1S[:, 0], state

    def attend_each(
        self,
        embedded_BTE: Tensor,
        state: AttentionState,
        source: Source,
        query: Callable[[int], Tensor],
        update: Callable[[int, Tensor], Tensor],
    ) -> tuple[Tensor, Tensor, Tensor | None, AttentionState]:
        """Attend and add the context at each of T steps.

        Returns:
            states_BTH, contexts_BTM, weights_BTS or None, and the attention state after the last step.

        Args:
            query: returns the query_BH of step t.
            update: updates the recurrent layers with the context_BM of step t and returns their state_BH.
        """
        states, contexts = [], []
        weights: list[Tensor | None] = []
        for t, embedded_BE in enumerate(embedded_BTE.unbind(1)):
            context_BM, weights_BS, state = self.attend_once(query(t), embedded_BE, state, source)
            states.append(update(t, context_BM))
            contexts.append(context_BM)
            weights.append(weights_BS)
        return torch.stack(states, 1), torch.stack(contexts, 1), stack_steps(weights), state


def check_source_is_read(bridge: BridgeKind, attention: BaseAttention, encoder: EncoderSizes) -> None:
    """Refuse a decoder that neither starts from the source nor attends to it, if there is a source.

    Raises:
        ValueError: names the settings.
    """
    if bridge == "zero" and not attention.context_size and encoder != NO_SOURCE:
        raise ValueError(
            "decoder.bridge=zero with attention=none gives the decoder no access to the source. Set model.bridge=tanh, or "
            "choose an attention function."
        )


def stack_steps(weights: list[Tensor | None]) -> Tensor | None:
    """Return weights_BTS from the weights_BS of T steps; None without attention."""
    steps = [weights_BS for weights_BS in weights if weights_BS is not None]
    return torch.stack(steps, dim=1) if steps else None
