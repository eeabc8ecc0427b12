"""The effects of changed attention weights on the predictions of one given output."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from seq2seq_lab.analysis.changes import require_attention
from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.analysis.interventions import (
    BY_DEFAULT,
    Scope,
    TokenEffects,
    attended_tokenizer,
    intervene,
    require_word,
)
from seq2seq_lab.analysis.plain import Plain
from seq2seq_lab.data.words import words
from seq2seq_lab.errors import is_whole, require, require_list, require_seed


@dataclass(frozen=True, kw_only=True)
class TokenEffect:
    """The effect of one kind of change on each token of an output.

    Attributes:
        kind, scope: see `interventions.intervene`.
        tokens: the effect by token, with `<eos>`.
    """

    kind: str
    scope: str
    tokens: TokenEffects


@dataclass(frozen=True, kw_only=True)
class Intervened(Plain):
    """The effects of several kinds of changes.

    Attributes:
        source, target: the input and the output as text.
        tokens: the names of the tokens of the output, `<eos>` last.
        effects: by kind and scope.
    """

    source: str
    target: str
    tokens: list[str]
    effects: list[TokenEffect]


def intervene_pair(
    model: Any,
    forced: Forced,
    kinds: Sequence[str] = (),
    scopes: Sequence[Scope] = ("step",),
    weights: Sequence[Sequence[float]] | None = None,
    **options: Any,
) -> Intervened:
    """Return the effects of changed attention weights on the one pair of `forced`.

    Args:
        kinds: see `interventions.intervene`; empty for those that are compared by default.
        weights: for the kind `weights`: [T, S], or [1, S] for the same at every step.
        options: `layer`, `head`, `seen` and `seed` of `ChangedModel`, and `permutations` of `interventions.intervene`.

    Raises:
        UserError: an unknown kind, one without what it needs, another option that is not allowed, or a model without
            attention.
    """
    require_list("intervene", "kinds", kinds, "kinds", split=True)
    kinds = [*kinds]
    (source,), (target,) = forced.sources, forced.targets
    require_attention(model)
    own = attended_tokenizer(model, forced)
    count = 0 if own is None else len(words(source, own.spans(source)))
    for kind in kinds:
        require_word(kind, count)
    require_seed(options.get("seed", 1))
    seen = options.get("seen", True)
    require(isinstance(seen, bool | np.bool_), "seen", seen, "True, False")
    permutations = options.get("permutations", 1)
    whole = is_whole(permutations) and permutations >= 1
    require(whole, "permutations", permutations, "a whole number, 1 or more")
    tokenizer = forced.tokenizer.for_source(source)
    (ids,) = tokenizer.encode([target])
    given = None
    if weights is not None:
        require("weights" in kinds, "weights", weights, "left out, except for the kind weights")
        given = [matrix_of(weights, forced.positions(model, 0), len(ids) + 1)]
    found = intervene(model, forced, kinds or BY_DEFAULT, scopes, weights=given, **options)
    return Intervened(
        source=source,
        target=target,
        tokens=[*tokenizer.tokens(ids), "<eos>"],
        effects=[
            TokenEffect(kind=kind, scope=scope, tokens=tokens) for (kind, scope), tokens in found.items()
        ],
    )


def matrix_of(weights: object, columns: int, steps: int) -> torch.Tensor:
    """Return given weights [T, S] or [1, S].

    Raises:
        UserError: names the shape.
    """
    try:
        rows = np.array(weights, np.float64)
    except (TypeError, ValueError):
        rows = np.array(np.nan)
    valid = rows.shape in ((1, columns), (steps, columns)) and bool(((rows >= 0) & (rows <= 1)).all())
    allowed = f"one list of {columns} numbers from 0 to 1, or {steps} of them, one for each token"
    require(valid, "weights", weights, allowed)
    return torch.from_numpy(rows)
