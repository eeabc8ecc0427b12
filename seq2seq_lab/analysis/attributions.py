"""Which source words the prediction of a target token depends on.

The explained quantity of row t is log p(y_t | y_<t, x), or with a contrast log p(y_t) − log p(y′_t) (Yin and Neubig 2022,
"Interpreting language models with contrastive explanations"). Scores belong to units of the source, words and punctuation
marks with `<sos>` and `<eos>`: signed scores of the tokens of a unit are summed, and norms are L2.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.analysis.plain import Plain, plain
from seq2seq_lab.analysis.questions import Question
from seq2seq_lab.errors import UserError, did_you_mean, require_index, require_list, require_seed
from seq2seq_lab.runtime.counter_rng import uniform as draw
from seq2seq_lab.runtime.device import to_host

Floats = npt.NDArray[np.floating[Any]]

LARGEST_GAP = 0.01  # of integrated gradients, relative to the difference that they explain
LEAST_DIFFERENCE = 0.1  # nats: smaller differences count as this one
MOST_POINTS = 256
POINTS = 16
SMOOTH_SAMPLES, SMOOTH_SIGMA = 30, 0.15
ROWS = 128  # of a batch of versions of a sentence; larger ones do not fit into the cache and are slower
GRADIENT_ROWS = 64  # versions in a batch of integrated gradients, which is computed up to its last step


@dataclass(frozen=True)
class Attribution:
    """The attribution of one sentence pair by one method.

    Attributes:
        scores_TU: a row per target token, with `<eos>`, and a column per source unit.
        gap_T: of integrated gradients, |Σ scores − difference| / max(|difference|, 0.1 nat).
        points_T: of integrated gradients, the number of points.
        prefix_TT: the scores of the input tokens `<sos>` y_1 … of each row, for methods that have them.
    """

    scores_TU: Floats
    gap_T: Floats | None = None
    points_T: npt.NDArray[np.int64] | None = None
    prefix_TT: Floats | None = None

    @property
    def source_share_T(self) -> Floats | None:
        """The share of each row's scores, by absolute value, that is on the source (after Voita et al. 2021).

        The rest is on the input tokens `<sos>` y_1 … y_{t−1}. None for methods without scores of these; NaN where all are 0.
        """
        if self.prefix_TT is None:
            return None
        source_T, prefix_T = abs(self.scores_TU).sum(1), abs(np.tril(self.prefix_TT)).sum(1)
        total_T = source_T + prefix_T
        return np.divide(source_T, total_T, out=np.full_like(source_T, np.nan), where=total_T > 0)


@dataclass(frozen=True)
class Attributed(Plain):
    """The attributions of one sentence pair.

    Attributes:
        words: the source units.
        tokens: the target tokens.
        against: the tokens of the contrast; None without one.
        attributions: by method.
    """

    index: int
    source: str
    target: str
    words: list[str]
    tokens: list[str]
    against: list[str] | None
    attributions: Mapping[str, Attribution]

    def as_json(self) -> dict[str, Any]:
        """Return the scores of each method as plain data, the gaps of integrated gradients, and the shares of the source."""
        found = self.attributions.items()
        shares = {name: one.source_share_T for name, one in found}
        return {
            "index": self.index,
            "source": self.source,
            "target": self.target,
            "words": self.words,
            "tokens": self.tokens,
            "against": self.against,
            "scores": {name: plain(one.scores_TU) for name, one in found},
            "gaps": {name: plain(one.gap_T) for name, one in found if one.gap_T is not None},
            "source_shares": {
                name: plain(share_T) for name, share_T in shares.items() if share_T is not None
            },
        }


@dataclass(frozen=True)
class Options:
    """How a question is explained.

    Attributes:
        against_T: the token y′_t of each row; None for no contrast.
        seed: of the noise of `smooth_grad`.
    """

    against_T: Tensor | None = None
    seed: int = 1


Method = Callable[[Question, Options], Attribution]


def quantity(log_probs_NTV: Tensor, question: Question, options: Options) -> Tensor:
    """Return the explained quantity f_NT of N versions."""
    steps = log_probs_NTV.shape[1]
    f_NT = _of_tokens(log_probs_NTV, question.outputs_T[:steps])
    if options.against_T is not None:
        f_NT = f_NT - _of_tokens(log_probs_NTV, options.against_T[:steps])
    return f_NT


def _of_tokens(log_probs_NTV: Tensor, token_T: Tensor) -> Tensor:
    return log_probs_NTV.gather(2, token_T[None, :, None].expand(len(log_probs_NTV), -1, 1))[..., 0]


def runner_up(question: Question) -> Tensor:
    """Return for each row the most probable token other than y_t."""
    with torch.no_grad():
        log_probs_TV = question.log_probs(question.vectors_SE[None])[0].clone()
    return log_probs_TV.scatter(1, question.outputs_T[:, None], float("-inf")).argmax(1)


def _attention(question: Question, with_norms: bool) -> Floats:
    with torch.no_grad():
        weights_TS, norms_S = question.attention()
        if with_norms:
            weights_TS = weights_TS * norms_S
    return _summed(to_host(weights_TS), question)


def attention(question: Question, options: Options) -> Attribution:
    """Return the attention weights α_ti."""
    return Attribution(_attention(question, with_norms=False))


def attention_norm(question: Question, options: Options) -> Attribution:
    """Return α_ti ‖h_i‖ (Kobayashi et al. 2020, "Attention is not only a weight")."""
    return Attribution(_attention(question, with_norms=True))


def _summed(scores_TS: Floats, question: Question) -> Floats:
    """Return the sums over the tokens of each source unit."""
    summed_TU = np.zeros((len(scores_TS), len(question.source.is_word)), np.float64)
    np.add.at(summed_TU.T, question.source.of_token, scores_TS.T.astype(np.float64))
    return summed_TU


def gradients(
    question: Question, options: Options, vectors_NSE: Tensor, rows_N: Tensor, with_inputs: bool = False
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return (gradient_NSE, gradient_NTE with respect to the input embeddings or None, f_N) of row `rows_N[n]` at version n.

    One backward pass computes the gradients of all versions.
    """
    steps = int(rows_N.max()) + 1
    vectors_NSE = vectors_NSE.detach().requires_grad_()
    inputs_NTE = None
    if with_inputs and question.inputs_TE is not None:
        inputs_NTE = question.inputs_TE.expand(len(vectors_NSE), -1, -1).detach().clone().requires_grad_()
    wanted = [vectors_NSE, *([] if inputs_NTE is None else [inputs_NTE])]
    # cuDNN has no backward pass of recurrent layers in evaluation mode.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        f_NT = quantity(question.log_probs(vectors_NSE, inputs_NTE, steps), question, options)
        f_N = f_NT.gather(1, rows_N[:, None])[:, 0]
        found = torch.autograd.grad(f_N.sum(), wanted)
    return found[0], None if inputs_NTE is None else found[1], f_N.detach()


def _all_rows(question: Question) -> tuple[Tensor, Tensor]:
    """Return the source vectors once for each row, and the rows."""
    rows_T = torch.arange(question.steps, device=question.outputs_T.device)
    return question.vectors_SE.expand(question.steps, -1, -1), rows_T


def grad_x_input(question: Question, options: Options) -> Attribution:
    """Return the inner product of the gradient and the embedding of each token."""
    gradient_TSE, of_inputs_TTE, _ = gradients(question, options, *_all_rows(question), with_inputs=True)
    prefix_TT = None
    if of_inputs_TTE is not None and question.inputs_TE is not None:
        prefix_TT = to_host((of_inputs_TTE * question.inputs_TE).sum(-1))
    scores_TS = (gradient_TSE * question.vectors_SE).sum(-1)
    return Attribution(_summed(to_host(scores_TS), question), prefix_TT=prefix_TT)


def grad_norm(question: Question, options: Options) -> Attribution:
    """Return the L2 norm of the gradient with respect to the embeddings of each unit (Li et al. 2016)."""
    gradient_TSE, of_inputs_TTE, _ = gradients(question, options, *_all_rows(question), with_inputs=True)
    prefix_TT = None if of_inputs_TTE is None else to_host(of_inputs_TTE.norm(dim=-1))
    squares_TU = _summed(to_host(gradient_TSE.square().sum(-1)), question)
    return Attribution(np.sqrt(squares_TU), prefix_TT=prefix_TT)


def smooth_grad(question: Question, options: Options) -> Attribution:
    """Return the mean gradient at noisy embeddings, times the embedding (Smilkov et al. 2017; Ding et al. 2019).

    The standard deviation of the noise is `SMOOTH_SIGMA` times the range of the embeddings of the sentence.
    """
    vectors_SE = question.vectors_SE
    sigma = SMOOTH_SIGMA * (vectors_SE.max() - vectors_SE.min())
    sample_K = torch.arange(SMOOTH_SAMPLES, device=vectors_SE.device)
    position_S = torch.arange(len(vectors_SE), device=vectors_SE.device)
    dimension_E = torch.arange(vectors_SE.shape[1], device=vectors_SE.device)
    counters = (question.index, sample_K[:, None, None], position_S[:, None], dimension_E)
    one_KSE, other_KSE = (draw(options.seed, *counters, which) for which in range(2))
    normal_KSE = (-2 * (1 - one_KSE).log()).sqrt() * (2 * torch.pi * other_KSE).cos()  # Box and Muller 1958
    noisy_KSE = vectors_SE + sigma * normal_KSE.to(vectors_SE.dtype)
    _, rows_T = _all_rows(question)
    sums_TSE = torch.zeros(
        question.steps, *vectors_SE.shape, dtype=vectors_SE.dtype, device=vectors_SE.device
    )
    for part_CSE in torch.split(noisy_KSE, max(1, ROWS // question.steps)):
        versions_NSE = part_CSE.repeat_interleave(question.steps, 0)
        gradient_NSE, _, _ = gradients(question, options, versions_NSE, rows_T.repeat(len(part_CSE)))
        sums_TSE += gradient_NSE.view(len(part_CSE), *sums_TSE.shape).sum(0)
    scores_TS = (sums_TSE / SMOOTH_SAMPLES * vectors_SE).sum(-1)
    return Attribution(_summed(to_host(scores_TS), question))


def integrated_gradients(question: Question, options: Options, unknown: bool = False) -> Attribution:
    """Return integrated gradients along the line from a baseline to the embeddings (Sundararajan et al. 2017).

    The integral is a sum at the midpoints of equal parts, whose number is doubled until the gap of a row is at most 1%, or
    there are `MOST_POINTS`.

    Args:
        unknown: the baseline is the embedding of `<unk>` at each token but `<sos>` and `<eos>`, instead of 0.
    """
    vectors_SE = question.vectors_SE
    baseline_SE = torch.zeros_like(vectors_SE)
    if unknown:
        inner_S = torch.from_numpy(np.isin(question.source.of_token, question.inner)).to(vectors_SE.device)
        baseline_SE = torch.where(inner_S[:, None], unknown_vector(question), vectors_SE)
    with torch.no_grad():
        ends = torch.stack([vectors_SE, baseline_SE])
        f_2T = quantity(question.log_probs(ends), question, options)
    difference_T = f_2T[0] - f_2T[1]
    scores_TS = torch.zeros(question.steps, len(vectors_SE), dtype=vectors_SE.dtype, device=vectors_SE.device)
    gap_T = torch.full_like(difference_T, float("inf"))
    points_T = torch.zeros(question.steps, dtype=torch.long, device=vectors_SE.device)
    points = POINTS
    while points <= MOST_POINTS:
        open_R = (gap_T > LARGEST_GAP).nonzero()[:, 0]
        if not len(open_R):
            break
        mean_RSE = _mean_gradients(question, options, baseline_SE, open_R, points)
        found_RS = (mean_RSE * (vectors_SE - baseline_SE)).sum(-1)
        scores_TS[open_R], points_T[open_R] = found_RS, points
        of_rows = difference_T[open_R]
        gap_T[open_R] = (found_RS.sum(1) - of_rows).abs() / of_rows.abs().clamp(min=LEAST_DIFFERENCE)
        points *= 2
    return Attribution(_summed(to_host(scores_TS), question), to_host(gap_T), to_host(points_T))


def _mean_gradients(
    question: Question, options: Options, baseline_SE: Tensor, rows_R: Tensor, points: int
) -> Tensor:
    """Return the mean over the midpoints of the gradient of each row."""
    vectors_SE = question.vectors_SE
    share_P = (torch.arange(points, device=vectors_SE.device, dtype=vectors_SE.dtype) + 0.5) / points
    path_PSE = baseline_SE + share_P[:, None, None] * (vectors_SE - baseline_SE)
    means = []
    for rows_C in torch.split(rows_R, max(1, GRADIENT_ROWS // points)):
        versions_NSE = path_PSE.repeat(len(rows_C), 1, 1)
        gradient_NSE, _, _ = gradients(question, options, versions_NSE, rows_C.repeat_interleave(points))
        means.append(gradient_NSE.view(len(rows_C), *path_PSE.shape).mean(1))
    return torch.cat(means)


def unknown_vector(question: Question) -> Tensor:
    """Return the vector of an unknown word.

    Raises:
        UserError: the source has no words.
    """
    if question.unknown_E is None:
        raise UserError(
            "The source has no words, so none can be unknown. Delete by zeros instead: --delete zero."
        )
    return question.unknown_E


def occlusion(question: Question, options: Options, how: str = "zero") -> Attribution:
    """Return f(x) − f(x without the unit): how much worse each prediction is without a source unit.

    Args:
        how: "zero": its embeddings are 0; "unknown": they are those of `<unk>`; "removed": its tokens are removed.
    """
    units = len(question.source.is_word)
    chosen = question.inner if how == "removed" else [*range(units)]  # a source keeps its frame
    scores_TU = np.zeros((question.steps, units))
    if not chosen:  # an empty source
        return Attribution(scores_TU)
    removed_NU = np.eye(units, dtype=np.bool_)[chosen]
    with torch.no_grad():
        f_1T = quantity(question.log_probs(question.vectors_SE[None]), question, options)
        f_NT = without(question, options, removed_NU, how)
    scores_TU[:, chosen] = to_host((f_1T - f_NT).T)
    return Attribution(scores_TU)


def without(
    question: Question,
    options: Options,
    removed_NU: npt.NDArray[np.bool_],
    how: str,
    steps: int | None = None,
) -> Tensor:
    """Return f_NT of versions of the source without some units, for the first steps; see `occlusion`."""
    removed_NS = removed_NU[:, question.source.of_token]
    parts = [
        quantity(_log_probs_without(question, removed_CS, how, steps), question, options)
        for removed_CS in np.split(removed_NS, range(ROWS, len(removed_NS), ROWS))
    ]
    return torch.cat(parts)


def _log_probs_without(
    question: Question, removed_NS: npt.NDArray[np.bool_], how: str, steps: int | None
) -> Tensor:
    if how == "removed":
        removed = [np.flatnonzero(removed_S).tolist() for removed_S in removed_NS]
        return question.without_tokens(removed, steps)
    vectors_SE = question.vectors_SE
    filler_E = unknown_vector(question) if how == "unknown" else torch.zeros_like(vectors_SE[0])
    absent_NS = torch.from_numpy(removed_NS).to(vectors_SE.device)
    versions_NSE = torch.where(absent_NS[..., None], filler_E, vectors_SE)
    return question.log_probs(versions_NSE, steps=steps, removed_NS=absent_NS)


def value_zeroing(question: Question, options: Options) -> Attribution:
    """Return f(x) − f(x with the encoder outputs of a unit set to 0), with all attention weights as they are.

    It separates what is used from what is attended to (after Mohebbi et al. 2023, "Quantifying context mixing in
    Transformers").
    """
    of_token = question.source.of_token
    zeroed_US = torch.from_numpy(np.eye(len(question.source.is_word), dtype=np.bool_)[:, of_token])
    zeroed_US = zeroed_US.to(question.vectors_SE.device)
    with torch.no_grad():
        f_1T = quantity(question.log_probs(question.vectors_SE[None]), question, options)
        f_UT = quantity(question.with_values_zeroed(zeroed_US), question, options)
    return Attribution(to_host((f_1T - f_UT).T).astype(np.float64))


METHODS: dict[str, Method] = {
    "attention": attention,
    "attention_norm": attention_norm,
    "grad_x_input": grad_x_input,
    "grad_norm": grad_norm,
    "integrated_gradients": integrated_gradients,
    "integrated_gradients_unknown": lambda question, options: integrated_gradients(question, options, True),
    "smooth_grad": smooth_grad,
    "occlusion": occlusion,
    "occlusion_unknown": lambda question, options: occlusion(question, options, "unknown"),
    "occlusion_removed": lambda question, options: occlusion(question, options, "removed"),
    "value_zeroing": value_zeroing,
}


# What a question must have (`Question.has`) for a method; the others need nothing.
NEEDS = {
    "attention": "attention",
    "attention_norm": "attention",
    "integrated_gradients_unknown": "unknown",
    "occlusion_unknown": "unknown",
    "occlusion_removed": "removed",
    "value_zeroing": "values",
}
# Why a question does not have it.
MISSING = {
    "attention": "the model has no attention to the source positions",
    "values": "the model has no attention to the source positions",
    "unknown": "the source has no words, so none can be unknown",
    "removed": "nothing can be removed from the source",
}


def methods_of(question: Question) -> list[str]:
    """Return the methods that can explain a question."""
    return [name for name in METHODS if NEEDS.get(name) is None or NEEDS[name] in question.has]


def check_methods(names: Sequence[str]) -> None:
    """Refuse unknown methods.

    Raises:
        UserError: names the method.
    """
    for name in map(str, names):
        if name not in METHODS:
            raise UserError(
                f"method={name} is not allowed.{did_you_mean(name, METHODS)} Methods: {', '.join(METHODS)}."
            )


def attribute(
    question: Question, methods: Sequence[str], options: Options | None = None
) -> dict[str, Attribution]:
    """Return the attributions of one sentence pair by method. Units that are not read before an output have the score 0.

    Raises:
        UserError: an unknown method, or one that the model does not have.
    """
    check_methods(methods)
    allowed = methods_of(question)
    for name in methods:
        if name not in allowed:
            raise UserError(
                f"method={name} is not allowed: {MISSING[NEEDS[name]]}. Methods: {', '.join(allowed)}."
            )
    found = {name: METHODS[name](question, options or Options()) for name in methods}
    read_TU = question.read_TU
    return {
        name: replace(one, scores_TU=np.where(read_TU, one.scores_TU, 0.0)) for name, one in found.items()
    }


def contrast(question: Question, against: str | int) -> Tensor:
    """Return the token y′_t of each row.

    Args:
        against: "runner-up" for the most probable token other than y_t; else a word, or the id of a token or a class.

    Raises:
        UserError: the word is not a token of the vocabulary, or no output has this id.
    """
    if against == "runner-up":
        return runner_up(question)
    if not isinstance(against, str):
        with torch.no_grad():
            outputs = question.log_probs(question.vectors_SE[None], steps=1).shape[2]
        require_index("against", against, outputs, "the id of an output of the model")
        return torch.full_like(question.outputs_T, against)
    found = question.id_of(against)
    if found is None:
        raise UserError(
            f"--against={against} is not an output of the model. Give one token of its vocabulary, one of its classes, or "
            f"--against=runner-up."
        )
    return torch.full_like(question.outputs_T, found)


def attribute_pair(
    question: Question, methods: Sequence[str] = (), against: str | int | None = None, seed: int = 1
) -> Attributed:
    """Return the attributions of one sentence pair.

    Args:
        methods: names of `METHODS`; empty for all that the model has.
        against: explain log p(y_t) − log p(y′_t), see `contrast`; None: log p(y_t).
        seed: of the noise of `smooth_grad`.

    Raises:
        UserError: an unknown method, one that the model does not have, or a word that the vocabulary lacks.
    """
    require_list("attribute", "methods", methods, "methods", split=True)
    require_seed(seed)
    against_T = None if against is None else contrast(question, against)
    found = attribute(question, [*dict.fromkeys(methods)] or methods_of(question), Options(against_T, seed))
    return Attributed(**attributed_fields(question, against_T), attributions=found)


def attributed_fields(question: Question, against_T: Tensor | None) -> dict[str, Any]:
    """Return the fields of `Attributed` but the attributions."""
    return {
        "index": question.index,
        "source": question.line,
        "target": question.output,
        "words": question.source_names,
        "tokens": question.target_names,
        "against": None if against_T is None else question.names_of(against_T.tolist()),
    }
