"""The search of one input with changed attention weights, beside the search without the change."""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_type_hints

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.analysis.changes import KINDS, ChangedModel
from seq2seq_lab.analysis.interventions import parse_kind, require_word, word_positions
from seq2seq_lab.analysis.search_input import SearchInput
from seq2seq_lab.analysis.traced import Change, ChangedOutput, Traced, TracedOutput, WordPair
from seq2seq_lab.analysis.tracing import TOP, output_of, search_copies, steps_of, traced
from seq2seq_lab.config.type_checks import fits, wrong_type
from seq2seq_lab.data.tokenizers import PAD, SOS
from seq2seq_lab.errors import UserError, did_you_mean, require, require_index, require_seed
from seq2seq_lab.models.seq2seq import EncodedModel
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.search.trace import Beginning, path_to

HINTS = get_type_hints(Change)


def trace_changed(before: Traced, change: Change, maps: bool = False, top: int = TOP) -> Traced:
    """Return the outputs of an input with changed attention weights, and how the search found them.

    Unless the scope is `all`, the words of the best output before the changed step are kept.

    Args:
        before: the trace without the change; its prefix is kept.
        maps, top: see `trace`.

    Raises:
        UserError: the model has no attention weights, or a change that is not allowed.
    """
    given = before.given
    if given is None or before.no_attention is not None:
        raise UserError(f"change: {before.no_attention} Use a run of a model with attention.")
    if before.changed is not None:
        raise UserError("before: this trace has a change of the weights already. Give the trace without it.")
    prefix = [token.id for token in before.prefix]
    if change.scope == "all":
        require(change.step is None, "change.step", change.step, "null with change.scope=all")
    else:
        require_index("change.step", change.step, len(before.steps), "a step of the output")
        kept = [one.token for one in before.steps[: change.step]]
        prefix = max(prefix, kept, key=len)
    reached = _reached(before, change)
    # A beam that begins with these words may end elsewhere without the change too.
    copies = 1 if len(prefix) == len(before.prefix) or isinstance(given.search, GreedySearch) else 2
    changed = with_change(given, change, reached, copies)
    found, record = search_copies(changed, copies, prefix, top, beginning=reached.beginning)
    same_top = before.record is not None and before.record.top == top
    known = before.steps[: len(reached.tokens)] if same_top else []
    # The alternatives of a step are other batches than the two copies.
    alone = replace(changed, model=replace(changed.model, unchanged=None))
    after = traced(alone, found[0], record, prefix=prefix, maps=maps, known=known)
    original, original_steps = before.best, before.steps
    if copies == 2:
        path = path_to(record.sentences[1], 0)
        original = output_of(given, found[1][0], path, None)
        original_steps = steps_of(given, path, len(prefix), known)
    both = changed if copies == 2 else with_change(given, change, reached, copies=2)
    old_changed, new_original = _log_probs(both, reached, original, after.best)
    return replace(
        after,
        prefix=before.prefix,
        record=None,
        changed=ChangedOutput(
            change=change,
            scope=describe_scope(before, change),
            before=original,
            before_steps=original_steps,
            words=aligned_words(original.words, after.best.words),
            old_log_probs=(original.log_prob, old_changed),
            new_log_probs=(new_original, after.best.log_prob),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Reached:
    """Where a search with a change begins.

    Attributes:
        state: of the model, of one row.
        beginning: the tokens of the best output that it has read; None before the first token.
    """

    state: Any
    beginning: Beginning | None

    @property
    def tokens(self) -> list[int]:
        """The tokens."""
        return [] if self.beginning is None else self.beginning.tokens


def _reached(before: Traced, change: Change) -> _Reached:
    """Return where a search with a change begins: at the last state before the change that the first search kept."""
    given, record, weights_TS = before.given, before.record, before.best.attention
    assert given is not None
    # The kind `previous` reads the weights of the step before.
    step = (change.step or 0) - (parse_kind(change.kind)[0] == "previous")
    path = [] if record is None else path_to(record.sentences[0], 0)
    kept = record.state_before(step, path) if record is not None and path else None
    if kept is None or kept[0] == 0:
        return _Reached(given.encoded.started[0], None)
    known, state, row = kept
    device = given.compute.device
    weights_PS = None if weights_TS is None else torch.from_numpy(weights_TS[:known]).to(device)
    beginning = Beginning(path[: known + 1], weights_PS)
    return _Reached(state.select(torch.tensor([row], device=device)), beginning)


def read_change(given: Change | Mapping[str, Any]) -> Change:
    """Return a change from plain data.

    Raises:
        UserError: an unknown key, a value of another type, or a kind without what it needs.
    """
    if isinstance(given, Change):
        given = {name: getattr(given, name) for name in HINTS}
    require(isinstance(given, Mapping), "change", given, "a Change, or a dictionary of its fields")
    given = {key: _as_python(value) for key, value in given.items()}
    for key, value in given.items():
        if key not in HINTS:
            near = did_you_mean(str(key), HINTS)
            raise UserError(f"change.{key} is not allowed.{near} Keys: {', '.join(HINTS)}.")
        if not fits(value, HINTS[key]):
            raise UserError(wrong_type(f"change.{key}={value!r}", value, HINTS[key]))
    require("kind" in given, "change", given, "a kind, such as uniform")
    require_seed(given.get("seed", 1), "change.seed")
    return Change(**given)


def _as_python(value: Any) -> Any:
    """Return arrays and numbers of NumPy, also in a list, as those of Python; other values as they are."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [*map(_as_python, value)] if isinstance(value, list | tuple) else value


def with_change(given: SearchInput, change: Change, reached: _Reached, copies: int) -> SearchInput:
    """Return an input whose search changes the attention weights.

    Args:
        reached: where the search begins.
        copies: the number of copies of the input that are searched together; only the first one is changed.

    Raises:
        UserError: a kind of change without what it needs, or a model whose weights cannot be changed.
    """
    name, word = parse_kind(change.kind)
    require(name != "gold", "change.kind", change.kind, "any kind but gold, which needs a reference")
    columns = len(given.source.column_names)
    rows: Sequence[Tensor] | None = None
    require(
        name == "weights" or not change.weights,
        "change.weights",
        change.weights,
        "null, except for the kind weights",
    )
    if name == "weights":
        weights = change.weights or []
        valid = len(weights) == columns and all(math.isfinite(one) and 0 <= one <= 1 for one in weights)
        require(valid, "change.weights", change.weights, f"a list of {columns} numbers from 0 to 1")
        rows = [torch.tensor([weights], dtype=torch.float64)]
    elif word is not None:
        text = given.source.columns == "tokens" and given.source_tokenizer is not None
        require_word(change.kind, len(given.source.words) if text else 0, "change.kind")
        assert given.source_tokenizer is not None
        rows = [word_positions(given.source_tokenizer, given.source.text, word)]
    model = ChangedModel(
        given.model,
        KINDS[name],
        rows,
        change.layer,
        change.head,
        change.seen,
        change.seed,
        first=change.step or 0,
        last=change.step if change.scope == "step" else None,
        unchanged=1 if copies > 1 else None,
    )
    batch = given.batch(copies)
    index_B = torch.zeros_like(batch.index_B)
    state, source = (one.select(index_B) for one in (reached.state, given.encoded.started[1]))
    started = model.started(state, source, batch, len(reached.tokens))
    return replace(given, model=model, encoded=EncodedModel(model, batch, started))


def _log_probs(
    both: SearchInput, reached: _Reached, old: TracedOutput, new: TracedOutput
) -> tuple[float, float]:
    """Return the log-probability of the old output with the change, and that of the new one without it.

    Args:
        both: two copies of the input; the first is changed.
    """
    ids = [[token.id for token in output.tokens] for output in (old, new)]
    if ids[0] == ids[1]:
        return new.log_prob, old.log_prob
    known = len(reached.tokens)
    width, batch = max(map(len, ids)), both.batch(2)
    ids_2T = torch.tensor([[*row, *[PAD] * (width - len(row))] for row in ids], device=both.compute.device)
    inputs_2T = torch.nn.functional.pad(ids_2T[:, :-1], (1, 0), value=SOS)[:, known:]
    with torch.no_grad(), evaluation_context(batch, both.compute.precision, both.compute.device):
        log_probs_2TV, _, _ = both.encoded.read(inputs_2T, *both.encoded.started, False)
    gained = log_probs_2TV.gather(2, ids_2T[:, known:, None])[..., 0].tolist()
    changed, original = (
        math.fsum([*output.log_probs[:known], *row[: len(own) - known]])
        for output, row, own in zip((old, new), gained, ids, strict=True)
    )
    return changed, original


def describe_scope(before: Traced, change: Change) -> str:
    """Return what is changed, as a sentence."""
    where = "" if change.layer is None else f" of layer {change.layer}"
    where += "" if change.head is None else f" of head {change.head}"
    if change.step is None:
        return f"The weights{where} are changed at every step."
    token = before.best.tokens[change.step].text
    kept = "the words before it are kept" if change.step else "it is the first step"
    if change.scope == "step":
        after = "the search continues with the original weights"
        return (
            f"The weights{where} are changed at step {change.step + 1} ({token}) only: {kept}, and {after}."
        )
    return f"The weights{where} are changed at step {change.step + 1} ({token}) and all later steps: {kept}."


def aligned_words(before: Sequence[str], after: Sequence[str]) -> list[WordPair]:
    """Return the words of two outputs, aligned by their longest equal parts; see `difflib.SequenceMatcher`."""
    pairs: list[WordPair] = []
    for tag, i, i_end, j, j_end in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
        for offset in range(max(i_end - i, j_end - j)):
            one = i + offset if i + offset < i_end else None
            other = j + offset if j + offset < j_end else None
            pairs.append(WordPair(before=one, after=other, same=tag == "equal"))
    return pairs
