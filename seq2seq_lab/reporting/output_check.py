"""Checks what attention functions, decoders and readouts return, in a run with custom components."""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq_lab.config.extensions import where
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.attention import BaseAttention
from seq2seq_lab.models.attention.base import Attended
from seq2seq_lab.models.decoders.base import Decoder, DecoderState
from seq2seq_lab.models.readouts import Readout
from seq2seq_lab.models.recurrent import RecurrentState
from seq2seq_lab.models.source import Source

Call = Callable[..., Any]  # of a method of a component

HYPOTHESES = 2  # per sentence, as in beam search
STEPS = 3  # at which `unroll` is compared with `step`; the errors of rounding grow with later ones
# Relative to the largest value, of values that are computed in two ways.
TOLERANCE = 5e-3  # also in TF32
HALF_TOLERANCE = 5e-2  # in bfloat16 and float16


@contextlib.contextmanager
def checked_outputs(model: nn.Module) -> Iterator[None]:
    """Check what the attention functions, the readouts and the custom decoders of a model return within the context.

    Raises:
        UserError: names the component and what it returned.
    """
    size = getattr(model, "vocabulary_size", None)  # None: a classifier
    running: set[nn.Module] = set()
    with contextlib.ExitStack() as stack:
        for module in model.modules():
            checks: dict[str, Callable[..., None]] = {}
            if isinstance(module, BaseAttention):
                checks = {"forward": _check_attention}
            elif isinstance(module, Readout):
                checks = {"forward": partial(_check_scores, size)}
            elif isinstance(module, Decoder) and _is_custom(module):
                own_unroll = type(module).unroll is not Decoder.unroll
                checks = {"step": _check_step, **({"unroll": _check_unroll} if own_unroll else {})}
            for method, check in checks.items():
                setattr(
                    module, method, partial(_checked_call, running, module, getattr(module, method), check)
                )
                stack.callback(delattr, module, method)
        yield


def _checked_call(
    running: set[nn.Module],
    module: nn.Module,
    call: Call,
    check: Callable[..., None],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Call a method of a component, and check what it returns, unless the component calls itself.

    Args:
        running: the components that are called now.
        check: is called with the component, the method, its arguments and what it returned.
    """
    if module in running:
        return call(*args, **kwargs)
    bound = inspect.signature(call).bind(*args, **kwargs)
    bound.apply_defaults()
    unnamed = (value for name, value in kwargs.items() if name not in bound.signature.parameters)
    inputs = (*bound.args, *unnamed)  # those of the contract, in its order
    states = [one for one in inputs if _is_custom(module) and not isinstance(one, Tensor | Source)]
    kept = [pair for state in states for pair in _kept(state)]
    running.add(module)
    try:
        returned = call(*args, **kwargs)
        if any(map(_has_changed, kept)):
            raise UserError(
                f"{_name(module)}: it has changed its state in place, for example with add_, += or append. Other hypotheses "
                f"read the same state: return a new one."
            )
        check(module, call, inputs, returned)
    finally:
        running.remove(module)
    return returned


def _name(module: nn.Module) -> str:
    slot = (
        "attention"
        if isinstance(module, BaseAttention)
        else "readout"
        if isinstance(module, Readout)
        else "decoder"
    )
    return f"{slot}={type(module).__name__}"


def _is_custom(module: nn.Module) -> bool:
    return not type(module).__module__.startswith("seq2seq_lab.")


def _check_attention(
    attention: BaseAttention, call: Call, inputs: tuple[Any, ...], attended: Attended
) -> None:
    query_NTQ, source, state = inputs
    name, weights_NTS = _name(attention), attended.weights_NTS
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
    if not _is_custom(attention):
        return
    for after in (state, attended.state):
        if after.history is not None:
            _check_selectable(name, after.history, f"its state is {_shown(after.history)}")
    if query_NTQ.shape[1] == 1 and len(query_NTQ) == len(source.encoder_outputs_BSM):
        rows = _hypotheses(query_NTQ)
        selected = query_NTQ[rows], source, state.select(rows)
        _check_hypotheses(name, lambda: call(*selected).weights_NTS, weights_NTS)


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


def _check_scores(
    size: int | None, readout: nn.Module, call: Call, inputs: tuple[Any, ...], scores_NTV: Tensor
) -> None:
    features, weights, source = (*inputs, None, None)[:3]
    name, shape = _name(readout), list(scores_NTV.shape)
    expected = [*features.shape[:-1], shape[-1] if size is None else size]
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
    one_step = features.dim() == 2 or features.shape[1] == 1  # as in a search
    if not (_is_custom(readout) and source is not None and one_step):
        return
    if len(features) == len(source.encoder_outputs_BSM):
        rows = _hypotheses(features)
        selected = features[rows], None if weights is None else weights[rows], source
        _check_hypotheses(name, lambda: call(*selected), scores_NTV)


def _check_step(decoder: Decoder, call: Call, inputs: tuple[Any, ...], returned: Any) -> None:
    embedded_NE, state, source, *more = inputs
    _check_returned("step", decoder, inputs, returned)
    if 1 < len(embedded_NE) == len(source.encoder_outputs_BSM):
        rows = _hypotheses(embedded_NE)
        several = embedded_NE[rows], state.select(rows), source, *more
        _check_hypotheses(_name(decoder), lambda: call(*several)[0], returned[0])
        first = rows[:1]
        alone = embedded_NE[first], state.select(first), source.select(first), *more
        _check_returned("step", decoder, alone, call(*alone))


def _check_unroll(decoder: Decoder, call: Call, inputs: tuple[Any, ...], returned: Any) -> None:
    embedded_BTE, *more = inputs
    _check_returned("unroll", decoder, inputs, returned)
    repeated = Decoder.unroll(decoder, embedded_BTE[:, :STEPS], *more)
    for what, found, expected in (
        ("features", returned[0], repeated[0]),
        ("weights", returned[2], repeated[2]),
    ):
        if found is not None and expected is not None and not _is_close(found[:, :STEPS], expected):
            raise UserError(
                f"{_name(decoder)}: the {what} of unroll differ from those of repeated steps. Correct unroll or step."
            )


def _check_returned(method: str, decoder: Decoder, inputs: tuple[Any, ...], returned: object) -> None:
    """Refuse a result of `step` or `unroll` of the wrong types or shapes."""
    embedded, state, source, with_weights = (*inputs, True)[:4]
    name, rows, letters = _name(decoder), [*embedded.shape[:-1]], "N" if method == "step" else "B, T"
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


def _kept(value: object, depth: int = 4) -> list[tuple[Any, Any]]:
    """Return each tensor and list in a state with a copy, down to so many levels of containers and attributes."""
    if isinstance(value, Tensor):
        return [(value, value.detach().clone())]
    if isinstance(value, nn.Module) or not depth:
        return []
    found: list[tuple[Any, Any]] = [(value, [*value])] if isinstance(value, list) else []
    if isinstance(value, tuple | list):
        parts: list[object] = [*value]
    else:
        parts = [*(value if isinstance(value, dict) else getattr(value, "__dict__", {})).values()]
    return found + [pair for part in parts for pair in _kept(part, depth - 1)]


def _has_changed(pair: tuple[Any, Any]) -> bool:
    value, copy = pair
    if isinstance(value, list):
        return len(value) != len(copy)
    return not torch.equal(value.nan_to_num(), copy.nan_to_num())


def _is_close(found: Tensor, expected: Tensor) -> bool:
    tolerance = HALF_TOLERANCE if torch.is_autocast_enabled(found.device.type) else TOLERANCE
    found, expected = found.float(), expected.float()
    return found.shape == expected.shape and bool(
        (found - expected).abs().max() <= tolerance * expected.abs().max().clamp_min(1)
    )


def _shown(value: object) -> str:
    return (
        f"a tensor of shape {[*value.shape]}"
        if isinstance(value, Tensor)
        else f"a value of type {type(value).__name__}"
    )
