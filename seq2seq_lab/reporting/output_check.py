"""Checks what attention functions, decoders and readouts return, in a run with custom components."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq_lab.config.extensions import where
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.attention import BaseAttention
from seq2seq_lab.models.attention.base import Attended, AttentionState
from seq2seq_lab.models.decoders.base import Decoder, DecoderState
from seq2seq_lab.models.readouts import Readout
from seq2seq_lab.models.recurrent import RecurrentState
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
        for after in (state, attended.state):
            if after.history is not None:
                _check_selectable(name, after.history, f"its state is {_shown(after.history)}")
        _check_unchanged(name, state, states.before)
        if len(query_NTQ) == len(source.encoder_outputs_BSM):
            rows = _hypotheses(query_NTQ)
            selected = query_NTQ[rows], source, state.select(rows)
            _check_hypotheses(name, lambda: attention.forward(*selected).weights_NTS, weights_NTS)


def _hypotheses(x_B: Tensor) -> Tensor:
    """Return the index of the rows of a batch in which each sentence has `HYPOTHESES` equal hypotheses."""
    return torch.arange(len(x_B), device=x_B.device).repeat_interleave(HYPOTHESES)


def _check_hypotheses(name: str, call: Callable[[], Tensor | None], expected_BX: Tensor) -> None:
    """Refuse a component whose results differ if a sentence has several hypotheses.

    Args:
        call: returns the results for the rows of `_hypotheses`.
        expected_BX: the results for one hypothesis of each sentence.
    """
    remedy = (
        "Queries, features and states have a row for each hypothesis, keys and other values of the source a row for each "
        "sentence: see repeat_rows in seq2seq_lab.models.attention.base."
    )
    try:
        found = call()
    except RuntimeError as error:  # of torch: the sizes do not match
        raise UserError(
            f"{name}: it fails for a sentence with {HYPOTHESES} hypotheses, as in beam search: "
            f"{where(error).rstrip('.')}. {remedy}"
        ) from error
    if found is None or not _is_close(found, expected_BX[_hypotheses(expected_BX)]):
        raise UserError(
            f"{name}: a sentence with {HYPOTHESES} equal hypotheses, as in beam search, does not have the same results for "
            f"both. {remedy}"
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
    features, weights, source = (*inputs, None, None)[:3]
    one_step = features.dim() == 2 or features.shape[1] == 1  # as in a search
    if not (_is_custom(readout) and source is not None and one_step):
        return
    if len(features) == len(source.encoder_outputs_BSM):
        index_N = _hypotheses(features)
        selected = features[index_N], None if weights is None else weights[index_N], source
        _check_hypotheses(name, lambda: readout.forward(*selected), scores_NTV)


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
    _check_returned(name, method, returned, decoder, (embedded, state, source, with_weights))
    features, _, weights = returned
    _check_unchanged(name, state, before)
    if method == "unroll" and type(decoder).unroll is not Decoder.unroll:
        repeated = Decoder.unroll(decoder, embedded, state, source, with_weights)
        for what, found, expected in (("features", features, repeated[0]), ("weights", weights, repeated[2])):
            if found is not None and expected is not None and not _is_close(found, expected):
                raise UserError(
                    f"{name}: the {what} of unroll differ from those of repeated steps. Correct unroll or step."
                )
    if method == "step" and 1 < len(embedded) == len(source.encoder_outputs_BSM):
        again = partial(_checked_call, decoder, method, call)
        rows, first = _hypotheses(embedded), torch.zeros(1, dtype=torch.long, device=embedded.device)
        several = embedded[rows], state.select(rows), source, with_weights
        _check_hypotheses(name, lambda: again(*several)[0], features)
        again(embedded[first], state.select(first), source.select(first), with_weights)
    return returned


def _check_returned(
    name: str, method: str, returned: object, decoder: Decoder, inputs: tuple[Tensor, Any, Source, bool]
) -> None:
    """Refuse a result of `step` or `unroll` of the wrong types or shapes."""
    embedded, state, source, with_weights = inputs
    rows, letters = [*embedded.shape[:-1]], "N" if method == "step" else "B, T"
    if not isinstance(returned, tuple) or len(returned) != 3:
        count = f"{len(returned)} values" if isinstance(returned, tuple) else _shown(returned)
        raise UserError(
            f"{name}: {method} returned {count}. Expected 3: the features [{letters}, F], the next state, and the "
            f"weights [{letters}, S] or None."
        )
    features, after, weights = returned
    _check_selectable(name, after, f"{method} returned {_shown(after)} as the next state")
    expected: list[tuple[str, object, str, list[int]]] = [
        ("features", features, f"[{letters}, F (feature_size)]", [*rows, decoder.feature_size])
    ]
    if decoder.attends and with_weights:
        shape = [*rows, source.encoder_outputs_BSM.shape[1]]
        expected.append(("weights", weights, f"[{letters}, S]", shape))
    layers = [one.layers for one in (after, state) if isinstance(one, DecoderState)]
    if len(layers) == 2 and all(isinstance(one, RecurrentState) for one in layers):
        hidden, shape = layers[0].hidden_LBH, [*layers[1].hidden_LBH.shape]
        expected.append(("hidden_LBH of the next state", hidden, f"[L, {letters[0]}, H]", shape))
    for what, value, axes, shape in expected:
        if not isinstance(value, Tensor) or [*value.shape] != shape:
            raise UserError(
                f"{name}: {method} returned {_shown(value)} as {what}. Expected: {axes} = {shape}."
            )


def _check_selectable(name: str, state: object, said: str) -> None:
    """Refuse a state whose rows a search cannot select.

    Args:
        said: the first part of the message.
    """
    if isinstance(state, Tensor) or not callable(getattr(state, "select", None)):
        raise UserError(
            f"{name}: {said}. Return an object with a method select(index_N), which returns the state of the given rows; "
            f"see docs/extending.md."
        )


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
