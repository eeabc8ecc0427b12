"""The effects of changed attention weights on the predictions of one given output."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.analysis.interventions import BY_DEFAULT, Scope, TokenEffects, intervene
from seq2seq_lab.analysis.plain import Plain
from seq2seq_lab.errors import require


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
        UserError: an unknown kind, one without what it needs, or a model without attention.
    """
    given = None
    if weights is not None:
        (batch,) = map(forced.batch, forced.plan)
        columns = max(batch.source_lengths)
        valid = all(len(row) == columns and all(map(math.isfinite, row)) for row in weights)
        require(valid and len(weights) > 0, "weights", weights, f"lists of {columns} numbers")
        given = [torch.tensor(weights, dtype=torch.float64)]
    found = intervene(model, forced, kinds or BY_DEFAULT, scopes, weights=given, **options)
    (target,) = forced.targets
    tokenizer = forced.tokenizer.for_source(forced.sources[0])
    (ids,) = tokenizer.encode([target])
    return Intervened(
        source=forced.sources[0],
        target=target,
        tokens=[*tokenizer.tokens(ids), "<eos>"],
        effects=[
            TokenEffect(kind=kind, scope=scope, tokens=tokens) for (kind, scope), tokens in found.items()
        ],
    )
