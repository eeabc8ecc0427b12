"""Checks what attention functions, decoders and readouts return, in a run with custom components."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq_lab.errors import UserError
from seq2seq_lab.models.attention import BaseAttention
from seq2seq_lab.models.attention.base import Attended, AttentionState
from seq2seq_lab.models.decoders.base import Decoder
from seq2seq_lab.models.readouts import Readout
from seq2seq_lab.models.source import Source

HYPOTHESES = 2  # per sentence, as in beam search
TOLERANCE = 5e-3  # of values that are computed in two ways, also in TF32
HALF_TOLERANCE = 5e-2  # in bfloat16 and float16


@contextlib.contextmanager
def checked_outputs(model: nn.Module) -> Iterator[None]:
    """Check what the attention functions, the readouts and the custom decoders of a model return within the context.

    Raises:
        UserError: names the component and what it returned.
    """
    size = getattr(model, "vocabulary_size", None)  # None: a classifier
    with contextlib.ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, BaseAttention):
                states = _States()
                stack.callback(module.register_forward_pre_hook(states.keep).remove)
                stack.callback(module.register_forward_hook(partial(_check_attention, states)).remove)
            elif isinstance(module, Readout):
                stack.callback(module.register_forward_hook(partial(_check_scores, size)).remove)
            elif isinstance(module, Decoder) and _is_custom(module):
                for method in ("step", "unroll"):
                    setattr(module, method, partial(_checked_call, module, method, getattr(module, method)))
                    stack.callback(delattr, module, method)
        yield


def _is_custom(module: nn.Module) -> bool:
    return not type(module).__module__.startswith("seq2seq_lab.")


class _States:
    """The values of the last state that an attention function has read."""

    def __init__(self) -> None:
        self.before: list[Tensor] = []

    def keep(self, attention: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.before = _copies(inputs[2])


def _check_attention(
    states: _States,
    attention: BaseAttention,
    inputs: tuple[Tensor, Source, AttentionState],
    attended: Attended,
) -> None:
    query_NTQ, source, state = inputs
    name, weights_NTS = f"attention={type(attention).__name__}", attended.weights_NTS
    if weights_NTS is None:
        return
    shape = [*query_NTQ.shape[:2], source.encoder_outputs_BSM.shape[1]]
    if [*weights_NTS.shape] != shape:
        raise UserError(
            f"{name}: the weights have shape {[*weights_NTS.shape]}. Expected: [N, T, S] = {shape}, a number for each "
            f"query and each source position."
        )
    if not weights_NTS.isfinite().all():
        raise UserError(
            f"{name}: the attention weights are not finite. Correct it, or the custom "
            f"component whose values it reads."
        )
    if _is_custom(attention):
        _check_unchanged(name, state, states.before)
        if len(query_NTQ) == len(source.encoder_outputs_BSM):
            _check_hypotheses(name, attention, inputs, weights_NTS)


def _check_hypotheses(
    name: str, attention: BaseAttention, inputs: tuple[Tensor, Source, AttentionState], weights_NTS: Tensor
) -> None:
    """Refuse an attention function whose weights differ if a sentence has several hypotheses."""
    query_NTQ, source, state = inputs
    rows = torch.arange(len(query_NTQ), device=query_NTQ.device).repeat_interleave(HYPOTHESES)
    found = attention.forward(query_NTQ[rows], source, state.select(rows)).weights_NTS
    if found is None or not _is_close(found, weights_NTS[rows]):
        raise UserError(
            f"{name}: a sentence with {HYPOTHESES} equal hypotheses, as in beam search, does not have the same weights for "
            f"both. Queries and states have a row for each hypothesis, keys a row for each sentence: see repeat_rows in "
            f"seq2seq_lab.models.attention.base."
        )


def _check_scores(size: int | None, readout: nn.Module, inputs: tuple[Any, ...], scores_NTV: Tensor) -> None:
    name, (*rows, _) = f"readout={type(readout).__name__}", inputs[0].shape
    shape = list(scores_NTV.shape)
    expected = [*rows, shape[-1] if size is None else size]
    if shape != expected:
        raise UserError(
            f"{name}: forward returned shape {shape}. Expected: {expected}, a score for each of the output types."
        )
    if not scores_NTV.isfinite().all():
        raise UserError(
            f"{name}: the scores are not finite. Correct it, or the custom component whose values it reads; for the "
            f"logarithm of a probability of 0, use clamp_min before log."
        )
    sums_NT = scores_NTV.sum(-1, dtype=torch.float32)
    if (scores_NTV >= 0).all() and torch.allclose(sums_NT, torch.ones_like(sums_NT), atol=1e-3):
        raise UserError(
            f"{name}: forward returned probabilities. Return logits, without softmax, or log-probabilities."
        )


def _checked_call(
    decoder: Decoder,
    method: str,
    call: Callable[..., tuple[Tensor, Any, Tensor | None]],
    embedded: Tensor,
    state: Any,
    source: Source,
    with_weights: bool = True,
) -> tuple[Tensor, Any, Tensor | None]:
    """Call `step` or `unroll` of a custom decoder, and check what it returns."""
    name, before = f"decoder={type(decoder).__name__}", _copies(state)
    returned = call(embedded, state, source, with_weights)
    rows = [*embedded.shape[:-1]]
    letters = "N" if method == "step" else "B, T"
    if not isinstance(returned, tuple) or len(returned) != 3:
        raise UserError(
            f"{name}: {method} returned {_shown(returned)}. Expected: the features [{letters}, F], the next state, and the "
            f"weights [{letters}, S] or None."
        )
    features, after, weights = returned
    expected: Mapping[str, tuple[object, list[int]]] = {
        "features": (features, [*rows, decoder.feature_size]),
        "weights": (weights, [*rows, source.encoder_outputs_BSM.shape[1]]),
    }
    sizes = {"features": "F (feature_size)", "weights": "S"}
    for what, (value, shape) in expected.items():
        if what == "weights" and not (decoder.attends and with_weights):
            continue
        if not isinstance(value, Tensor) or [*value.shape] != shape:
            raise UserError(
                f"{name}: {method} returned {_shown(value)} as {what}. Expected: [{letters}, {sizes[what]}] = {shape}."
            )
    if isinstance(after, Tensor) or not callable(getattr(after, "select", None)):
        raise UserError(
            f"{name}: {method} returned {_shown(after)} as the next state. Return an object with a method select(index_N), "
            f"such as DecoderState of seq2seq_lab.models.decoders.base."
        )
    _check_unchanged(name, state, before)
    if method == "unroll" and type(decoder).unroll is not Decoder.unroll:
        repeated, _, _ = Decoder.unroll(decoder, embedded, state, source, with_weights)
        if not _is_close(features, repeated):
            raise UserError(
                f"{name}: the features of unroll differ from those of repeated steps. Correct unroll or step."
            )
    return features, after, weights


def _check_unchanged(name: str, state: object, before: list[Tensor]) -> None:
    """Refuse a component that has changed the values of a state, which other steps and hypotheses read."""
    after = _copies(state)
    if not all(
        torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in zip(after, before, strict=True)
    ):
        raise UserError(
            f"{name}: it has changed its state in place, for example with add_ or +=. Other hypotheses read the same state: "
            f"return a new one."
        )


def _copies(value: object, depth: int = 4) -> list[Tensor]:
    """Return copies of the tensors in a state, down to so many levels of containers and attributes."""
    if isinstance(value, Tensor):
        return [value.detach().clone()]
    if isinstance(value, nn.Module) or not depth:
        return []
    if isinstance(value, tuple | list):
        parts: list[object] = [*value]
    else:
        parts = [*(value if isinstance(value, dict) else getattr(value, "__dict__", {})).values()]
    return [found for part in parts for found in _copies(part, depth - 1)]


def _is_close(found: Tensor, expected: Tensor) -> bool:
    tolerance = HALF_TOLERANCE if torch.is_autocast_enabled(found.device.type) else TOLERANCE
    return found.shape == expected.shape and torch.allclose(
        found.float(), expected.float(), rtol=tolerance, atol=tolerance
    )


def _shown(value: object) -> str:
    return (
        f"a tensor of shape {[*value.shape]}"
        if isinstance(value, Tensor)
        else f"a value of type {type(value).__name__}"
    )
