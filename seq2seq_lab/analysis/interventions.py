"""What changed attention weights change in the predictions of a model.

Scopes: with `step` only one step is changed, its prediction is compared, and the original continues; with `all` every step
is changed, with the given outputs as input; with `free` every step of a search is changed. Moradi et al. 2019
("Interrogating the explanatory power of attention in neural machine translation") use `step`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.analysis.changes import KINDS, ChangedModel, ChangedSource, keep, permuted
from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.data.corpus import CONTENT_CLASSES, Gold, word_spans
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.data.words import words
from seq2seq_lab.errors import UserError, did_you_mean, require
from seq2seq_lab.metrics.alignment import group_tokens
from seq2seq_lab.metrics.attention import Units
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.metrics.measurement import CONFIDENCE_SAMPLES
from seq2seq_lab.metrics.significance import Clusters, confidence_interval, ratio
from seq2seq_lab.metrics.texts import References, TextOutputs
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context

Scope = Literal["step", "all"]
Floats = npt.NDArray[np.float64]

WITH_WORD = ("word", "mask")
UNION = "moradi_union"
# The "function words" of Moradi et al. 2019.
WITHOUT_CONTENT = "function, punctuation, end"
UNITED = ("uniform", "zero_out_max", "permute")
BY_DEFAULT = (
    "uniform",
    "permute",
    "zero_out_max",
    "only_max",
    "keep_max_uniform_others",
    "zero_out",
    "previous",
)
PERMUTATIONS = 100  # as in Jain and Wallace 2019
ROWS = 1_000  # of a batch of permutations
BINS = (0.25, 0.5, 0.75)  # of the largest weight
CLASS_OF_TAG = {"PUNCT": "punctuation"}  # of the tags of Universal Dependencies
CLASSES = ("content", "function", "punctuation", "end", "other")
COLUMNS = ("kept", "log_prob_change", "total_variation", "jensen_shannon")


@dataclass(frozen=True)
class TokenEffects:
    """The predictions of N target tokens under one change.

    Attributes:
        kept: whether the most probable token stays the same.
        log_prob_change: log p of the given token with the change, minus that without.
        total_variation: ½ Σ |p − p′|.
        jensen_shannon: the Jensen–Shannon divergence of p and p′, in nats.
        largest: the largest unchanged weight of the row; of several layers and heads the mean of their largest weights.
        median_variation: of the kind `permute` in scope `step` the median of ½ Σ |p − p′| over many permutations, else
            `total_variation`.
        changed: whether the change applies: a permutation needs two source words, besides punctuation, or two turns,
            `previous` an earlier step.
        classes: the class of the word of each token, of `CLASSES`; "end" is `<eos>`.
        cluster: the id of the cluster of the sentence of each token; see `Forced.clusters_N`.
    """

    kept: npt.NDArray[np.bool_]
    log_prob_change: Floats
    total_variation: Floats
    jensen_shannon: Floats
    largest: Floats
    median_variation: Floats
    changed: npt.NDArray[np.bool_]
    classes: list[str]
    cluster: Clusters


@dataclass(frozen=True)
class Effect:
    """The effect of one kind of change, in one scope, on the tokens of one class.

    Attributes:
        word_class: "all", one of `CLASSES`, or `WITHOUT_CONTENT`.
        tokens: the number of tokens to which the change applies; without any, only "all" has an effect, without means.
        left_out: the number of the others.
        kept: the share of predictions that stay the same.
        log_prob_change, total_variation, jensen_shannon: means; see `TokenEffects`. None for the union.
        confidence: half widths of 95% intervals, by the name of the mean (bootstrap over sentences).
        by_largest: the median of `TokenEffects.median_variation` by the largest weight, as (lower limit, upper limit,
            tokens, median).
    """

    kind: str
    scope: str
    word_class: str
    tokens: int
    left_out: int
    kept: float | None
    log_prob_change: float | None
    total_variation: float | None
    jensen_shannon: float | None
    confidence: Mapping[str, float] = field(default_factory=dict)
    by_largest: Sequence[tuple[float, float, int, float]] = ()


@torch.no_grad()
def intervene(
    model: Seq2Seq,
    forced: Forced,
    kinds: Sequence[str],
    scopes: Sequence[Scope],
    *,
    gold: Sequence[Gold] | None = None,
    weights: Sequence[Tensor] | None = None,
    permutations: int = 1,
    **options: Any,
) -> dict[tuple[str, str], TokenEffects]:
    """Return the predictions of the tokens of given outputs, by (kind, scope).

    Args:
        kinds: names of `KINDS`; `word=J` and `mask=J` with the index of a source word.
        gold: alignments and word classes of the pairs; needed by the kind `gold`.
        weights: for the kind `weights`, a matrix for each pair; see `ChangedModel`.
        permutations: the number of permutations in `TokenEffects.median_variation`; the other columns are of the first one.
        options: `layer`, `head`, `seen` and `seed` of `ChangedModel`.

    Raises:
        UserError: an unknown kind, one without what it needs, or a model without attention.
    """
    plain = ChangedModel(model, keep, **options)
    given = given_weights(model, forced, kinds, gold, weights)
    changed = {kind: changed_model(model, kind, given, **options) for kind in kinds}
    found: dict[tuple[str, str], list[list[Any]]] = {(kind, scope): [] for scope in scopes for kind in kinds}
    classes = [classes_of(forced, i, None if gold is None else gold[i]) for i in range(len(forced.targets))]
    for index in forced.plan:
        batch, counts = forced.batch(index), [len(classes[i]) for i in index.tolist()]
        with evaluation_context(batch, forced.compute.precision, forced.compute.device):
            for (kind, scope), columns in _run_batch(
                plain, changed, scopes, batch=batch, counts=counts, permutations=permutations
            ):
                for row, i in enumerate(index.tolist()):
                    count = counts[row]
                    own = [column[row, :count] for column in columns]
                    matrix_TS = given[kind][i] if kind in given else None
                    applies = _applies(kind, model, forced, i, count=count, given_TS=matrix_TS)
                    found[kind, scope].append(
                        [*own, applies, classes[i], np.full(count, forced.clusters_N[i])]
                    )
    return {key: _tokens(parts) for key, parts in found.items()}


def changed_model(
    model: Seq2Seq, kind: str, given: Mapping[str, Sequence[Tensor]], **options: Any
) -> ChangedModel:
    """Return the model with the attention weights changed; `given` as `given_weights` returns it."""
    return ChangedModel(model, KINDS[kind.partition("=")[0]], given.get(kind), **options)


def given_weights(
    model: Seq2Seq,
    forced: Forced,
    kinds: Sequence[str],
    gold: Sequence[Gold] | None = None,
    weights: Sequence[Tensor] | None = None,
) -> dict[str, Sequence[Tensor]]:
    """Return the weights or positions of each pair for the kinds that need them; see `intervene`.

    Raises:
        UserError: an unknown kind, or one without what it needs: `word=J` and `mask=J` need attention to tokens.
    """
    found: dict[str, Sequence[Tensor]] = {}
    for kind in kinds:
        name, word = parse_kind(kind)
        if name == "gold":
            if gold is None:
                raise UserError(
                    "kind=gold needs gold alignments, which these texts do not have. Leave it out."
                )
            found[kind] = [gold_weights(forced, i, one) for i, one in enumerate(gold)]
        elif name == "weights":
            if weights is None:
                raise UserError(
                    "kind=weights needs weights, which only Python can give: run.intervene(source, target, "
                    'kinds=["weights"], weights=rows), with a list of numbers for each token of the output.'
                )
            found[kind] = weights
        elif word is not None:
            tokenizer = attended_tokenizer(model, forced)
            if tokenizer is None:
                require_word(kind, 0)
            assert tokenizer is not None
            found[kind] = [word_positions(tokenizer, line, word) for line in forced.sources]
    return found


def attended_tokenizer(model: Seq2Seq, forced: Forced) -> Tokenizer | None:
    """Return the tokenizer of the sources; None if the model attends to turns of a dialogue or regions of an image."""
    return forced.source_tokenizer if model.encoder.output_per_token else None


def parse_kind(kind: str) -> tuple[str, int | None]:
    """Return the name of a kind of change, and the index of the source word of `word=J` and `mask=J`.

    Raises:
        UserError: an unknown kind.
    """
    name, _, word = str(kind).partition("=")
    with_word = name in WITH_WORD
    if name not in KINDS or with_word != word.isdecimal() or (word and not with_word):
        known = [f"{one}=J" if one in WITH_WORD else one for one in KINDS]
        near = "" if name in KINDS else did_you_mean(name, KINDS)
        raise UserError(
            f"kind={kind} is not allowed.{near} Kinds: {', '.join(known)}; J is the index of a source word, from 0."
        )
    return name, int(word) if with_word else None


def require_word(kind: str, words: int, key: str = "kind") -> None:
    """Refuse `word=J` and `mask=J` of a word that a source of so many words does not have.

    Raises:
        UserError: names the kind.
    """
    name, word = parse_kind(kind)
    allowed = f"{name}=J with J from 0 to {words - 1}" if words else "a kind without a word of the source"
    require(word is None or word < words, key, kind, allowed)


def _run_batch(
    plain: ChangedModel,
    changed: Mapping[str, ChangedModel],
    scopes: Sequence[Scope],
    *,
    batch: Any,
    counts: Sequence[int],
    permutations: int,
) -> Iterator[tuple[tuple[str, str], list[npt.NDArray[Any]]]]:
    """Yield the columns [B, T] of `TokenEffects` up to `median_variation`, by (kind, scope)."""
    columns: dict[tuple[str, str], list[tuple[Tensor, ...]]] = {
        (kind, scope): [] for scope in scopes for kind in changed
    }
    state, source = plain.start(batch)
    states = dict.fromkeys(changed, state) if "all" in scopes else {}
    sources = {kind: model.source(source.inner, batch) for kind, model in changed.items()}
    count_B = torch.tensor(counts)
    inputs_and_outputs = zip(batch.inputs_BT.unbind(1), batch.outputs_BT.unbind(1), strict=True)
    for t, (token_B, output_B) in enumerate(inputs_and_outputs):
        log_probs_BV, after, _ = plain.step(token_B, state, source, with_weights=False)
        largest_B = torch.stack(after.previous).amax(2).mean(0)
        for kind, model in changed.items():
            if "step" in scopes:
                other_BV, _, _ = model.step(token_B, state, sources[kind])
                found = compared(log_probs_BV, other_BV, output_B)
                median_B = found[2]
                if kind == "permute" and permutations > 1:
                    row_N = (count_B > t).nonzero()[:, 0].to(token_B.device)
                    median_N = median_of_permutations(
                        model,
                        token_N=token_B[row_N],
                        state=state.select(row_N),
                        source=sources[kind].select(row_N),
                        log_probs_NV=log_probs_BV[row_N],
                        permutations=permutations,
                    )
                    median_B = median_B.index_copy(0, row_N, median_N)
                columns[kind, "step"].append((*found, largest_B, median_B))
            if "all" in scopes:
                other_BV, states[kind], _ = model.step(token_B, states[kind], sources[kind])
                found = compared(log_probs_BV, other_BV, output_B)
                columns[kind, "all"].append((*found, largest_B, found[2]))
        state = after
    for key, steps in columns.items():
        yield key, [to_host(torch.stack(column, 1)) for column in zip(*steps, strict=True)]


def median_of_permutations(
    model: ChangedModel,
    *,
    token_N: Tensor,
    state: Any,
    source: ChangedSource,
    log_probs_NV: Tensor,
    permutations: int,
) -> Tensor:
    """Return the median total variation of the predictions of one step over permutations of its weights.

    Args:
        token_N, state, source: the arguments of `ChangedModel.step`.
        log_probs_NV: the prediction without a change.
    """
    probs_NV, found = log_probs_NV.exp(), list[Tensor]()
    every_P = torch.arange(permutations, device=token_N.device)
    for permutation_P in torch.split(every_P, max(1, ROWS // len(token_N))):
        index_M = torch.arange(len(token_N), device=token_N.device).repeat(len(permutation_P))
        permutation_M1 = permutation_P.repeat_interleave(len(token_N))[:, None]
        permuting = replace(model, kind=partial(permuted, permutation=permutation_M1))
        log_probs_MV, _, _ = permuting.step(
            token_N[index_M], state.select(index_M), source.select(index_M), with_weights=False
        )
        found.append(total_variation(probs_NV, log_probs_MV.exp().view(-1, *probs_NV.shape)))
    # Of an even number the mean of the two in the middle, as in NumPy.
    return torch.cat(found).quantile(0.5, dim=0)


def compared(log_p_NV: Tensor, log_q_NV: Tensor, output_N: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return whether the arg max is the same, log q − log p of the output, total variation and Jensen–Shannon divergence."""
    kept_N = log_p_NV.argmax(1) == log_q_NV.argmax(1)
    change_N = (log_q_NV - log_p_NV).gather(1, output_N[:, None])[:, 0]
    p_NV, q_NV = log_p_NV.exp(), log_q_NV.exp()
    return kept_N, change_N, total_variation(p_NV, q_NV), jensen_shannon(p_NV, q_NV)


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """Return ½ Σ |p − q| over the last dimension."""
    return (p - q).abs().sum(-1) / 2


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """Return the Jensen–Shannon divergence over the last dimension in nats, with a finite gradient also where p = q = 0."""

    def entropy(x: Tensor) -> Tensor:
        return -torch.xlogy(x, x.clamp(min=torch.finfo(x.dtype).tiny))

    return (entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2).sum(-1).clamp(min=0)


def _applies(
    kind: str, model: Seq2Seq, forced: Forced, i: int, *, count: int, given_TS: Tensor | None
) -> npt.NDArray[np.bool_]:
    """Return which of the `count` target tokens of a pair a kind of change applies to."""
    if given_TS is not None:
        rows: npt.NDArray[np.bool_] = ~given_TS.isnan().any(1).numpy()
        if len(rows) == 1:  # the same for all tokens
            return np.full(count, rows[0])
        return np.pad(rows, (0, max(0, count - len(rows))))[:count]
    if kind == "permute":
        return np.full(count, _permutable(model, forced, i) > 1)
    if kind == "previous":
        return np.arange(count) > 0
    return np.ones(count, np.bool_)


def _applies_to_sources(
    kind: str, model: Seq2Seq, forced: Forced, given: Mapping[str, Sequence[Tensor]]
) -> npt.NDArray[np.bool_]:
    """Return whether a kind of change applies to some step of an output of two tokens or more, for each source."""
    matrices = given.get(kind)
    return np.array(
        [
            _applies(
                kind, model, forced, i, count=2, given_TS=None if matrices is None else matrices[i]
            ).any()
            for i in range(len(forced.sources))
        ]
    )


def _permutable(model: Seq2Seq, forced: Forced, i: int) -> float:
    """Return the number of turns of a source that a model attends to, or of words without punctuation.

    It is infinite if the source is not text.
    """
    if forced.source_tokenizer is None:
        return math.inf
    line = forced.sources[i]
    if attended_tokenizer(model, forced) is None:
        return len(forced.source_tokenizer.units(line))
    return int(Units.of(line, forced.source_tokenizer.spans(line), 1).is_word.sum())


def gold_weights(forced: Forced, i: int, gold: Gold) -> Tensor:
    """Return weights [T, S]: for a target token the same weight for each source token of the words that it is linked to.

    The rows of tokens of words without sure links, of punctuation, and of `<eos>` are NaN.
    """
    assert forced.source_tokenizer is not None
    source, target = forced.sources[i], forced.targets[i]
    source_spans, target_spans = forced.source_tokenizer.spans(source), forced.tokenizer.spans(target)
    columns = group_tokens(source_spans, word_spans(source, gold.source_words))
    rows = group_tokens(target_spans, word_spans(target, gold.target_words))
    linked: dict[int, set[int]] = {}
    for source_word, target_word in gold.links:
        linked.setdefault(target_word, set()).update(columns[source_word])
    weights_TS = torch.full((len(target_spans) + 1, len(source_spans) + 2), float("nan"), dtype=torch.float64)
    for target_word, tokens in linked.items():
        for row in rows[target_word] if tokens else []:
            weights_TS[row] = 0
            weights_TS[row, [token + 1 for token in sorted(tokens)]] = 1 / len(tokens)
    return weights_TS


def word_positions(tokenizer: Tokenizer, source: str, word: int) -> Tensor:
    """Return [1, S] with the same share for each token of a source word, for the kinds `word` and `mask`.

    Args:
        word: the index of the word in `data.words.words`. If the source has fewer words, all shares are NaN.
    """
    spans = tokenizer.spans(source)
    groups = group_tokens(spans, words(source, spans))
    positions_1S = torch.full((1, len(spans) + 2), float("nan"), dtype=torch.float64)
    if word >= len(groups):
        return positions_1S
    positions_1S[:] = 0
    positions_1S[0, [token + 1 for token in groups[word]]] = 1 / len(groups[word])
    return positions_1S


def classes_of(forced: Forced, i: int, gold: Gold | None) -> list[str]:
    """Return the class of each target token, with `<eos>`: by the gold part of speech, else "other" for words."""
    target = forced.targets[i]
    spans = forced.tokenizer.spans(target)
    found = ["other" if any(map(str.isalnum, target[start:end])) else "punctuation" for start, end in spans]
    if gold is not None and gold.target_classes is not None:
        groups = group_tokens(spans, word_spans(target, gold.target_words))
        for group, tag in zip(groups, gold.target_classes, strict=True):
            for token in group:
                found[token] = "content" if tag in CONTENT_CLASSES else CLASS_OF_TAG.get(tag, "function")
    return [*found, "end"]


def _tokens(parts: Sequence[Sequence[Any]]) -> TokenEffects:
    kept, change, variation, divergence, largest, median, applies, classes, cluster = zip(*parts, strict=True)
    return TokenEffects(
        kept=np.concatenate(kept).astype(np.bool_),
        log_prob_change=np.concatenate(change).astype(np.float64),
        total_variation=np.concatenate(variation).astype(np.float64),
        jensen_shannon=np.concatenate(divergence).astype(np.float64),
        largest=np.concatenate(largest).astype(np.float64),
        median_variation=np.concatenate(median).astype(np.float64),
        changed=np.concatenate(applies),
        classes=[one for part in classes for one in part],
        cluster=np.concatenate(cluster),
    )


def effects(found: Mapping[tuple[str, str], TokenEffects]) -> list[Effect]:
    """Return the effects by kind, scope and class of words; of `step` also the union of Moradi et al. 2019."""
    rows = [one for (kind, scope), tokens in found.items() for one in _effects(kind, scope, tokens)]
    if all((kind, "step") in found for kind in UNITED):
        rows += [_share_only(one) for one in _effects(UNION, "step", united(found))]
    return rows


def united(found: Mapping[tuple[str, str], TokenEffects]) -> TokenEffects:
    """Return which predictions at least one of `UNITED` keeps, and to which it applies; the other columns are not united."""
    every = [found[kind, "step"] for kind in UNITED]
    kept_N = np.any([one.kept & one.changed for one in every], axis=0)
    return replace(every[0], kept=kept_N, changed=np.any([one.changed for one in every], axis=0))


def _share_only(effect: Effect) -> Effect:
    """Return the effect without the means that a union of changes does not have."""
    confidence = {name: value for name, value in effect.confidence.items() if name == "kept"}
    none: dict[str, Any] = dict.fromkeys(COLUMNS[1:])
    return replace(effect, confidence=confidence, by_largest=(), **none)


def _effects(kind: str, scope: str, tokens: TokenEffects) -> Iterator[Effect]:
    masks = dict(masks_of_classes(tokens.classes))
    if "function" in masks:
        masks[WITHOUT_CONTENT] = np.isin(tokens.classes, ("function", "punctuation", "end"))
    for name, of_class in masks.items():
        used = of_class & tokens.changed
        if not used.any():
            if name == "all":
                none: dict[str, Any] = dict.fromkeys(COLUMNS)
                yield Effect(
                    kind=kind, scope=scope, word_class=name, tokens=0, left_out=len(of_class), **none
                )
            continue
        values = {column: getattr(tokens, column)[used].astype(np.float64) for column in COLUMNS}
        clusters, ones = tokens.cluster[used], np.ones(int(used.sum()))
        confidence = {
            column: confidence_interval(ratio, np.column_stack([value, ones]), clusters, CONFIDENCE_SAMPLES)
            for column, value in values.items()
        }
        yield Effect(
            kind=kind,
            scope=scope,
            word_class=name,
            tokens=int(used.sum()),
            left_out=int(of_class.sum() - used.sum()),
            kept=float(values["kept"].mean()),
            log_prob_change=float(values["log_prob_change"].mean()),
            total_variation=float(values["total_variation"].mean()),
            jensen_shannon=float(values["jensen_shannon"].mean()),
            confidence={column: half for column, half in confidence.items() if half is not None},
            by_largest=[*medians_by_largest(tokens.largest[used], tokens.median_variation[used])],
        )


def masks_of_classes(classes: Sequence[str]) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Yield "all" and each class of `CLASSES` that occurs, with whether each token belongs to it."""
    names = np.array(classes)
    yield "all", np.ones(len(names), np.bool_)
    yield from ((name, names == name) for name in CLASSES if (names == name).any())


def medians_by_largest(largest_N: Floats, value_N: Floats) -> Iterator[tuple[float, float, int, float]]:
    """Yield (lower limit, upper limit, tokens, median value) of the tokens in each bin of the largest weight."""
    edges = (0.0, *BINS, 1.0)
    bin_N = np.digitize(largest_N, BINS)
    for index in range(len(BINS) + 1):
        inside = value_N[bin_N == index]
        if len(inside):
            yield edges[index], edges[index + 1], len(inside), float(np.median(inside))


@dataclass(frozen=True)
class SearchEffect:
    """The effect of a kind of change at every step of a search, on the outputs for the sentences to which it applies.

    Attributes:
        sentences: their number; without any, the measures are None.
        left_out: the number of the others.
        unchanged: the share of outputs that stay the same.
        bleu: BLEU with the change.
        difference: BLEU with the change, minus that without.
        confidence: half width of the 95% interval of the difference (paired bootstrap); None without one.
    """

    kind: str
    sentences: int
    left_out: int
    unchanged: float | None
    bleu: float | None
    difference: float | None
    confidence: float | None


def search_effect(
    kind: str,
    before: Sequence[str],
    after: Sequence[str],
    references: References,
    applies: npt.NDArray[np.bool_],
) -> SearchEffect:
    """Return the effect on the outputs of a search.

    Args:
        before, after: the outputs without and with the change.
        applies: whether the change applies to each sentence.
    """
    count, left_out = int(applies.sum()), int((~applies).sum())
    if not count:
        return SearchEffect(kind, count, left_out, None, None, None, None)
    metric = Bleu()
    both = [metric.rows(TextOutputs(lines, references))[applies] for lines in (before, after)]
    width = both[0].shape[1]

    def difference(totals_K: npt.NDArray[Any]) -> float:
        return metric.value(totals_K[width:]) - metric.value(totals_K[:width])

    rows = np.hstack(both)
    same_N = np.array([one == other for one, other in zip(before, after, strict=True)])[applies]
    confidence = confidence_interval(difference, rows, references.clusters[applies], CONFIDENCE_SAMPLES)
    totals = rows.sum(0)
    bleu = metric.value(totals[width:])
    return SearchEffect(kind, count, left_out, float(same_N.mean()), bleu, difference(totals), confidence)


def free(
    run: Any, references: References, forced: Forced, kinds: Sequence[str], **options: Any
) -> list[SearchEffect]:
    """Return the effects on the outputs of the search of a run.

    The kind `gold` is left out: its weights are those of the tokens of a given output.

    Args:
        run: a `LoadedTranslation`.
        options: see `intervene`.

    Raises:
        UserError: an unknown kind, or `weights`.
    """
    kinds = [kind for kind in kinds if kind != "gold"]
    if not kinds:
        return []
    given, before = given_weights(run.model, forced, kinds), _texts(run, forced)
    return [
        search_effect(
            kind,
            before,
            _texts(replace(run, model=changed_model(run.model, kind, given, **options)), forced),
            references,
            _applies_to_sources(kind, run.model, forced, given),
        )
        for kind in kinds
    ]


def _texts(run: Any, forced: Forced) -> list[str]:
    return [one.text for one in run.predict([*forced.sources], with_attention=False)]
