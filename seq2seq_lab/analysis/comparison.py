"""Attribution methods compared on the same sentence pairs."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from seq2seq_lab.analysis import faithfulness as faithful
from seq2seq_lab.analysis.attributions import (
    LARGEST_GAP,
    Attributed,
    Attribution,
    Floats,
    Options,
    attribute,
    attributed_fields,
    contrast,
)
from seq2seq_lab.analysis.counterfactual import rank
from seq2seq_lab.analysis.questions import DecodedQuestion, Question
from seq2seq_lab.data.corpus import Gold, word_spans
from seq2seq_lab.data.counterfactuals import Influence
from seq2seq_lab.metrics.alignment import WordLinks, group_tokens, link_counts
from seq2seq_lab.metrics.measurement import CONFIDENCE_SAMPLES
from seq2seq_lab.metrics.significance import Clusters, clusters_of, confidence_interval, ratio
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.tables import with_interval

Flags = npt.NDArray[np.bool_]

RANDOM, GREEDY = "random order", "greedy search"
# τ of the attributions with random weights above which a method hardly depends on the model.
INSENSITIVE = 0.1
THIRDS = ("first_third", "middle_third", "last_third")  # of an output
ABOUT_INSENSITIVE = (
    f"A method is insensitive to the model if its τ with the model with random weights is above {INSENSITIVE} "
    "(Adebayo et al. 2018)."
)


@dataclass(frozen=True)
class Mean:
    """A mean over the rows of all sentences.

    Attributes:
        confidence: half the width of its 95% interval (bootstrap over sentences); None if the samples have no spread.
        count: the number of rows.
    """

    value: float
    confidence: float | None
    count: int

    @classmethod
    def of(cls, rows_N2: Floats, clusters_N: Clusters) -> "Mean | None":
        """Return the mean of the sum and the number of rows of each sentence; None without a row.

        Args:
            clusters_N: the id of each sentence's cluster; clusters are resampled.
        """
        total, count = rows_N2.sum(0)
        if not count:
            return None
        half = confidence_interval(ratio, rows_N2, clusters_N, CONFIDENCE_SAMPLES)
        return cls(float(total / count), half, int(count))

    def text(self, form: str) -> str:
        """Return the value with its interval."""
        return with_interval(self.value, self.confidence, form)


@dataclass(frozen=True)
class Explained(Attributed):
    """The attributions of one sentence pair and their measures.

    Attributes:
        measures: sums and numbers of rows by method and by the name of the measure.
        agreement: sums and numbers of τ_b of the rows of two methods, by their names.
        gold_cells: (source unit, target token) of the gold links.
        left_out: the number of rows whose token is the contrast itself. All their scores are 0 or say nothing about the
            contrast, so they, and the words of such tokens, are left out of the measures.
        ended: whether `<eos>` belongs to the target; if not, its row is left out of the measures.
        only_copied: see `Question.only_copied`.
    """

    measures: Mapping[str, Mapping[str, tuple[float, float]]]
    agreement: Mapping[tuple[str, str], tuple[float, float]]
    gold_cells: Sequence[tuple[int, int]]
    left_out: int
    ended: bool
    only_copied: int


def explain(
    questions: Iterable[Question],
    methods: Sequence[str],
    *,
    gold: Sequence[Gold] | None = None,
    influences: Sequence[Influence] | None = None,
    against: str | None = None,
    ended: Sequence[bool] | None = None,
    random_questions: Sequence[Question] | None = None,
    how: str = "zero",
    greedy: bool = False,
    seed: int = 1,
) -> Iterator[Explained]:
    """Yield the attributions of each sentence pair with their measures.

    Args:
        gold: alignments of the pairs, for AER.
        influences: what each reference word depends on, for the average precision and the AUC of the magnitudes of the
            scores (of each sentence, over its known source words); needs `gold`, whose words they are of.
        against: "runner-up": log p(y_t) minus that of the most probable other token; a word: minus that of its token; None:
            log p(y_t).
        ended: whether each target is an output that ended with `<eos>`, and not at a length limit; None: all did.
        random_questions: the same questions to the model with random weights, for the sanity check of Adebayo et al. 2018.
        how: how words are deleted; see `attributions.occlusion`.
        greedy: add the ceiling, a greedy search.

    Raises:
        UserError: a method that the model does not have, or a word that the vocabulary lacks.
    """
    for index, question in enumerate(questions):
        against_T = None if against is None else contrast(question, against)
        options = Options(against_T, seed)
        differs_T = np.ones(question.steps, np.bool_)
        if against_T is not None:
            differs_T = to_host(against_T != question.outputs_T)
        has_ended = ended is None or ended[index]
        used_T = differs_T & (has_ended | (np.arange(question.steps) < question.steps - 1))
        found = attribute(question, methods, options)
        deletions = faithful.Deletions(question, options, how)
        measures = {
            name: dict(_faithful(deletions, deletions.order(one.scores_TU), used_T))
            for name, one in found.items()
        }
        measures[RANDOM] = dict(_random(deletions, used_T, seed + index))
        if greedy:
            measures[GREEDY] = {"area": _sum(deletions.area(deletions.greedy())[used_T])}
        other = None if random_questions is None else attribute(random_questions[index], methods, options)
        words_TU = (question.source.is_word & question.read_TU)[used_T]
        words = None if gold is None else gold_words(question, gold[index])
        for name, one in found.items():
            measures[name] |= dict(_compared(words_TU, used_T, name, one, found, other))
            if gold is not None and words is not None:
                influence = None if influences is None else influences[index]
                measures[name] |= dict(_against_gold(words, one.scores_TU, gold[index], influence, used_T))
        yield Explained(
            **{**attributed_fields(question, against_T), "index": index},
            attributions=found,
            measures=measures,
            agreement=dict(_agreement(words_TU, found, used_T)),
            gold_cells=[] if gold is None else gold_cells(question, gold[index]),
            left_out=int((~differs_T).sum()),
            ended=has_ended,
            only_copied=question.only_copied,
        )


def gold_cells(question: Question, gold: Gold) -> list[tuple[int, int]]:
    """Return the cells (source unit, target token) of the sure links of a pair."""
    assert isinstance(question, DecodedQuestion)
    forced, index = question.forced, question.index
    units = group_tokens(question.spans, word_spans(forced.sources[index], gold.source_words))
    spans = forced.tokenizer.spans(forced.targets[index])
    tokens = group_tokens(spans, word_spans(forced.targets[index], gold.target_words))
    return [
        (unit + 1, token)
        for source, target in sorted(gold.links)
        for unit in units[source]
        for token in tokens[target]
    ]


def agreement(explained: Sequence[Explained], names: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the mean τ_b of each pair of methods over all rows; NaN if it is not defined for any row."""
    tau_MM = np.eye(len(names))
    for (first, one), (second, other) in itertools.combinations(enumerate(names), 2):
        total, count = np.sum([explanation.agreement[one, other] for explanation in explained], axis=0)
        tau_MM[first, second] = tau_MM[second, first] = total / count if count else math.nan
    return tau_MM


def _sum(values: Any) -> tuple[float, float]:
    finite = np.asarray(values, np.float64)
    finite = finite[np.isfinite(finite)]
    return float(finite.sum()), float(len(finite))


def _faithful(
    deletions: faithful.Deletions, order_TK: Any, used_T: Flags
) -> Iterator[tuple[str, tuple[float, float]]]:
    if order_TK.shape[1]:
        found = faithful.faithfulness(deletions, order_TK)
        yield "area", _sum(found.area_T[used_T])
        for q, share in enumerate(faithful.SHARES):
            yield f"comprehensiveness_{share * 100:.0f}", _sum(found.comprehensiveness_TQ[used_T, q])
            yield f"sufficiency_{share * 100:.0f}", _sum(found.sufficiency_TQ[used_T, q])
        for p, percent in enumerate(faithful.PERCENTS):
            yield f"drop_{percent}", _sum(found.curve_TP[used_T, p])


def _random(
    deletions: faithful.Deletions, used_T: Flags, seed: int
) -> Iterator[tuple[str, tuple[float, float]]]:
    totals: dict[str, tuple[float, float]] = {}
    for draw in range(faithful.RANDOM_ORDERS):
        order_TK = deletions.random_order(seed * faithful.RANDOM_ORDERS + draw)
        for name, (value, count) in _faithful(deletions, order_TK, used_T):
            before = totals.get(name, (0.0, 0.0))
            totals[name] = before[0] + value, before[1] + count
    yield from totals.items()


def _compared(
    words_TU: Flags,
    used_T: Flags,
    name: str,
    one: Attribution,
    found: Mapping[str, Attribution],
    other: Mapping[str, Attribution] | None,
) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the measures of a method; `words_TU` says which units the used rows have read and are words."""
    own_TU = one.scores_TU[used_T]
    if "attention" in found and name != "attention":
        scores_TU = found["attention"].scores_TU[used_T]
        yield "tau_attention", _sum(faithful.rank_correlation(own_TU, scores_TU, words_TU))
    if other is not None:
        yield (
            "tau_random_weights",
            _sum(faithful.rank_correlation(own_TU, other[name].scores_TU[used_T], words_TU)),
        )
    if (share_T := one.source_share_T) is not None:
        share_T = np.where(used_T, share_T, np.nan)
        yield "source_share", _sum(share_T)
        for part, of_part in zip(THIRDS, np.array_split(share_T, len(THIRDS)), strict=True):
            yield f"source_share_{part}", _sum(of_part)
    if one.gap_T is not None:
        yield "incomplete", _sum(one.gap_T[used_T] > LARGEST_GAP)


def _agreement(
    words_TU: Flags, found: Mapping[str, Attribution], used_T: Flags
) -> Iterator[tuple[tuple[str, str], tuple[float, float]]]:
    for (name, one), (other_name, other) in itertools.combinations(found.items(), 2):
        tau = faithful.rank_correlation(one.scores_TU[used_T], other.scores_TU[used_T], words_TU)
        yield (name, other_name), _sum(tau)


def _against_gold(
    words: WordLinks, scores_TU: Floats, gold: Gold, influence: Influence | None, used_T: Flags
) -> Iterator[tuple[str, tuple[float, float]]]:
    used_W = _used_words(words, used_T)
    yield from _alignment(words, scores_TU, gold, used_W).items()
    if influence is not None:
        yield from _influence(words, scores_TU, influence, used_W)


def gold_words(question: Question, gold: Gold) -> WordLinks:
    """Return the gold words of a pair, whose source tokens are the units."""
    assert isinstance(question, DecodedQuestion)
    return question.forced.word_links(question.index, question.spans, gold)


def _used_words(words: WordLinks, used_T: Flags) -> Flags:
    """Return whether all tokens of each target word are used."""
    left_out_TS = np.broadcast_to(~used_T[:, None], words.shape).astype(np.float64)
    used_W: Flags = (words.join(left_out_TS) == 0).all(axis=1)
    return used_W


def _influence(
    words: WordLinks, scores_TU: Floats, influence: Influence, used_W: Flags
) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield how well the scores rank the source words that the reference words depend on."""
    if not used_W.any():
        return
    used = replace(influence, influence_TS=influence.influence_TS[used_W])
    found = rank([words.join(abs(scores_TU))[used_W, 1:-1]], [used])
    yield "average_precision", _sum(found.average_precision_N)
    yield "auc", _sum(found.auc_N)


def _alignment(
    words: WordLinks, scores_TU: Floats, gold: Gold, used_W: Flags
) -> dict[str, tuple[float, float]]:
    """Return the parts of the alignment error rate of the source word of the highest score."""
    links, *own = (
        frozenset(link for link in every if used_W[link[1]])
        for every in (words.predict(scores_TU), gold.links, gold.possible)
    )
    sure, possible, predicted, linked = link_counts(links, replace(gold, links=own[0], possible=own[1]))
    return {"aer": (predicted + linked - sure - possible, predicted + linked)}


def means(
    explained: Sequence[Explained], clusters: Sequence[int] | None = None
) -> dict[str, dict[str, Mean]]:
    """Return the mean of each measure by method.

    Args:
        clusters: the id of the cluster of each example of the test set, by `Explained.index`; None: the examples of one
            source are a cluster.
    """
    found: dict[str, dict[str, Mean]] = {}
    for name in dict.fromkeys(name for one in explained for name in one.measures):
        known = [one for one in explained if name in one.measures]
        own = [one.measures[name] for one in known]
        clusters_N = (
            clusters_of(one.source for one in known)
            if clusters is None
            else np.array([clusters[one.index] for one in known])
        )
        found[name] = {}
        for measure in dict.fromkeys(key for one in own for key in one):
            mean = Mean.of(np.array([one.get(measure, (0.0, 0.0)) for one in own]), clusters_N)
            if mean is not None:
                found[name][measure] = mean
    return found


def insensitive(found: Mapping[str, Mapping[str, Mean]]) -> dict[str, bool]:
    """Return whether each method that was compared with random weights is insensitive to the model (Adebayo et al. 2018).

    Args:
        found: as `means` returns it.
    """
    key = "tau_random_weights"
    return {name: own[key].value > INSENSITIVE for name, own in found.items() if key in own}
