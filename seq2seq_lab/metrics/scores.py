"""BLEU, chrF and TER by sacreBLEU, over a corpus, a sentence, or sentences grouped by source length.

There are two conditions, and their scores are not comparable: `Bleu`, `chrf` and `ter` score plain text, as sacreBLEU
intends; `LowercasedTokenised` scores lowercased Moses tokens, as papers on Multi30k do.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import estimate_ci
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.errors import UserError

SACREBLEU_SEED = 12345  # that its command line resamples with
SAMPLES_TOGETHER = 256  # of the paired bootstrap: bounds its memory
# Moses' rules treat this as a word and UNKNOWN as punctuation, which would split it off an elided article (l').
_LETTER = "\N{CYRILLIC LETTER MULTIOCULAR O}"


@dataclass(frozen=True, slots=True)
class Score:
    """A score from 0 to 100 (TER has no upper end) and the sacreBLEU signature that says how it was computed.

    `confidence` is half the width of the 95% interval from resampling the source sentences (Koehn 2004), if requested.
    """

    value: float
    signature: str
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class LengthBin:
    """BLEU over the sentences whose source has `low` to `high` words, both included.

    `high` is None in the last bin, which has no upper end. `bleu` is None where BLEU has no meaning:
    in an empty bin, and in one whose references are all under 4 tokens. `confidence` is as in `Score`.
    """

    low: int
    high: int | None
    count: int
    bleu: float | None
    confidence: float | None = None

    @property
    def label(self) -> str:
        """The range as an axis shows it: "≤6", "7–12" or ">12"."""
        if self.high is None:
            return f">{self.low - 1}" if self.low else "all"
        return f"{self.low}–{self.high}" if self.low else f"≤{self.high}"


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How many of the sentences that show something are translated exactly; `accuracy` is from 0 to 1."""

    phenomenon: str
    count: int
    accuracy: float


class References:
    """The references of a test set, and which of its pairs share a source sentence.

    Translations of one source sentence are not independent observations. The pairs of one source therefore form a
    cluster, and confidence intervals and tests resample clusters. If no two pairs share a source, this is the usual
    resampling of pairs.

    Args:
        lines: the reference of each pair.
        sources: the source sentence of each pair; None if all are distinct.
        multiple: score each source sentence once, against the references of all its pairs. The translation is that of the
            first pair.

    Attributes:
        pairs: the indices of the pairs whose translations are scored.
        streams: the references as sacreBLEU takes them: the first of each scored translation, the second (None where
            there is none), and so on.
        clusters: the number of the source sentence of each scored translation.
    """

    def __init__(
        self, lines: Sequence[str], sources: Sequence[str] | None = None, multiple: bool = False
    ) -> None:
        keys = range(len(lines)) if sources is None else sources
        assert len(keys) == len(lines)
        groups: dict[object, list[int]] = {}
        for pair, key in enumerate(keys):
            groups.setdefault(key, []).append(pair)
        self.pairs: Sequence[int] = range(len(lines))
        self.streams: list[list[Any]] = [list(lines)]
        number = {key: cluster for cluster, key in enumerate(groups)}
        self.clusters = np.array([number[key] for key in keys], dtype=np.int64)
        self._total = len(lines)
        if multiple:
            self.pairs = [pairs[0] for pairs in groups.values()]
            rows = [[lines[pair] for pair in pairs] for pairs in groups.values()]
            self.streams = [list(stream) for stream in zip_longest(*rows)]
            self.clusters = np.arange(len(rows))

    def __len__(self) -> int:
        return self._total

    def scored(self, hypotheses: Sequence[str]) -> list[str]:
        """Return the translations that are scored, of one for each pair.

        Raises:
            UserError: their number is not that of the references, or there are none.
        """
        # sacreBLEU cuts the longer list in silence and fails on empty ones with an IndexError.
        if len(hypotheses) != len(self):
            raise UserError(
                f"scores: {len(hypotheses)} hypotheses for {len(self)} references; "
                "give one hypothesis a reference, one a line and in the same order (an empty line counts)."
            )
        if not hypotheses:
            raise UserError("scores: no sentence to score; give at least one hypothesis and its reference.")
        return [hypotheses[pair] for pair in self.pairs]

    def padded(self) -> list[list[str]]:
        """Return the streams with the first reference where there is none, to be written to files.

        Repeated references change neither BLEU nor chrF, but TER, which divides by their mean length.
        """
        first = self.streams[0]
        return [
            [start if line is None else line for start, line in zip(first, stream, strict=True)]
            for stream in self.streams
        ]

    def of(self, index: int) -> list[str]:
        """Return the references of a scored translation."""
        return [line for stream in self.streams if (line := stream[index]) is not None]


class Bleu:
    """sacreBLEU of detokenised text, mixed case (Post 2018), of all sentences and of groups.

    The n-grams of each sentence are counted once.

    BLEU counts up to 4-grams, so where every reference is under 4 tokens even a perfect corpus would
    score 0. Such a corpus is scored with effective order (only the n-grams that exist), and the signature
    then says `eff:yes`: it is not to be compared with the usual `eff:no`. The choice hangs on the
    references alone, so all systems on one test set get the same measure.

    Raises `UserError` where the two lists differ in length or are empty.
    """

    def __init__(self, hypotheses: Sequence[str], references: Sequence[str] | References) -> None:
        self._references = _references(references)
        scored = self._references.scored(hypotheses)
        everything = range(len(self._references.pairs))
        self._metric = BLEU(effective_order=not _has_4_gram(self._references, everything))
        self._counts = self._metric._extract_corpus_statistics(scored, self._references.streams)

    def score(self, samples: int = 0) -> Score:
        """Return the score of all; `samples` is how often they are resampled for its confidence, 0 leaves it out."""
        return _score(self._metric, self._counts, samples, self._references.clusters)

    def counts_by_source(self) -> npt.NDArray[np.float32]:
        """Return what BLEU counts, a row per source sentence: both lengths, matched and all n-grams of 1 to 4."""
        return _by_source(self._counts, self._references.clusters)

    def of_counts(self, counts: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Return the score of each row of summed counts: sacreBLEU's formula with its default smoothing."""
        hypothesis, reference = counts[:, 0].astype(np.float64), counts[:, 1].astype(np.float64)
        matched, total = counts[:, 2:6].astype(np.float64), counts[:, 6:10].astype(np.float64)
        exists = total > 0
        halvings = np.cumsum((matched == 0) & exists, axis=1)
        kept = np.where(matched == 0, 0.5**halvings, matched)
        orders = exists.sum(1) if self._metric.effective_order else np.full(len(counts), 4)
        with np.errstate(divide="ignore"):
            logs = np.log(np.where(exists, kept, 0)) - np.log(np.where(exists, total, 1))
            brevity = np.minimum(0, 1 - reference / np.where(hypothesis > 0, hypothesis, np.nan))
        counted = np.where(np.arange(4) < orders[:, None], logs, 0)
        scores = 100 * np.exp(brevity + counted.sum(1) / np.maximum(orders, 1))
        return np.where(matched.any(1), scores, 0.0)

    def by_length(self, lengths: Sequence[int], bounds: Sequence[int], samples: int = 0) -> list[LengthBin]:
        """Return the score in bins of source length; n bounds make n + 1 bins.

        `lengths` are the source lengths of the pairs in words. A bound is the greatest length of its bin: (6, 18) makes
        ≤6, 7–18 and >18. A bin has `bleu=None` where it is empty, or where every one of its references is
        under 4 tokens: there BLEU would be 0 for a perfect translation, and BLEU with effective order cannot
        be compared with the other bins. The bins are scored with `eff:no`. `samples` is as in `score`.

        Raises `UserError` where there are not as many lengths, or the bounds do not rise or are not positive.
        """
        count = len(self._references)
        if len(lengths) != count:
            raise UserError(
                f"bleu_by_length: {len(lengths)} source lengths for {count} hypotheses; "
                "give one length a sentence, in the same order."
            )
        if any(bound < 1 for bound in bounds) or any(low >= high for low, high in pairwise(bounds)):
            raise UserError(
                f"bleu_by_length: bounds={list(bounds)} must be positive whole numbers that rise, "
                "for example [6, 12, 18]."
            )
        lows = [0, *(bound + 1 for bound in bounds)]
        highs = [*bounds, None]
        bins = []
        for low, high in zip(lows, highs, strict=True):
            members = [
                i
                for i, pair in enumerate(self._references.pairs)
                if low <= lengths[pair] and (high is None or lengths[pair] <= high)
            ]
            value = confidence = None
            if _has_4_gram(self._references, members):
                _, clusters = np.unique(self._references.clusters[members], return_inverse=True)
                score = _score(self._metric, [self._counts[i] for i in members], samples, clusters)
                value, confidence = score.value, score.confidence
            bins.append(LengthBin(low, high, len(members), value, confidence))
        return bins


def paired_bootstrap(
    baseline: Sequence[str],
    systems: Sequence[Sequence[str]],
    references: Sequence[str] | References,
    samples: int,
) -> list[float]:
    """Return the p-value of each system's difference in BLEU from a baseline, two-sided.

    Paired bootstrap (Koehn 2004) over source sentences, see `References`: the share of samples whose difference is as far
    from the mean of all samples as the observed difference is from 0. sacreBLEU's `PairedTest` takes absolute values
    before it subtracts the mean; its test is in effect one-sided, and rejects about twice as often as its level says.
    Raises `UserError` as `Bleu` does.
    """
    every = [Bleu(hypotheses, references) for hypotheses in (baseline, *systems)]
    observed = np.array([one.score().value for one in every])
    resampled = _resampled_together(every, samples)
    return two_sided_p(resampled[:, 1:] - resampled[:, :1], observed[1:] - observed[0])


def two_sided_p(resampled: npt.NDArray[np.float64], observed: npt.NDArray[np.float64]) -> list[float]:
    """Return the p-value of each observed difference; `resampled` has a row per sample and a column per difference."""
    centred = np.abs(resampled - resampled.mean(0))
    greater = (centred >= np.abs(observed)).sum(0)
    return [float(p) for p in (greater + 1) / (len(resampled) + 1)]


def _resampled_together(systems: Sequence[Bleu], samples: int) -> npt.NDArray[np.float64]:
    """Return the score of each system (columns) in each sample of the source sentences (rows)."""
    generator = np.random.default_rng(SACREBLEU_SEED)
    counts = np.concatenate([system.counts_by_source() for system in systems], axis=1)
    sources, parts = len(counts), []
    for start in range(0, samples, SAMPLES_TOGETHER):
        together = min(SAMPLES_TOGETHER, samples - start)
        drawn = generator.integers(sources, size=(together, sources))
        drawn += sources * np.arange(together)[:, None]
        often = np.bincount(drawn.ravel(), minlength=together * sources).reshape(together, sources)
        sums = np.split(often.astype(np.float32) @ counts, len(systems), axis=1)
        parts.append(np.stack([one.of_counts(sum_) for one, sum_ in zip(systems, sums, strict=True)], axis=1))
    return np.concatenate(parts)


class LowercasedTokenised:
    """BLEU, chrF and TER of lowercased text in Moses tokens: the condition of papers on Multi30k.

    The papers' systems put out such tokens (Caglayan et al. 2017, arXiv:1707.04481); here both sides are
    plain text and go through `lowercased_tokens`. The signature is sacreBLEU's and what made the tokens. chrF ignores
    white space, as sacreBLEU's default does: only the escapes and the normalised punctuation of the tokens matter to it.
    """

    def __init__(
        self,
        references: Sequence[str],
        language: str,
        sources: Sequence[str] | None = None,
        multiple: bool = False,
    ) -> None:
        """Tokenise the references by the rules of `language`, one of `moses_languages()`; see `References`."""
        import sacremoses  # type: ignore[import-untyped]

        self._language = language
        self.references = References(lowercased_tokens(references, language), sources, multiple)
        self._tokenizer = f"moses:sacremoses-{sacremoses.__version__}-{language}"

    def tokens(self, hypotheses: Sequence[str]) -> list[str]:
        """Return what is scored of hypotheses: lines of lowercased tokens."""
        return lowercased_tokens(hypotheses, self._language)

    def bleu(self, tokens: Sequence[str], samples: int = 0) -> Score:
        """Return BLEU of `tokens`; `samples`, effective order and `UserError` are as in `Bleu`."""
        streams = self.references.streams
        short = all(len(line.split()) < 4 for stream in streams for line in stream if line is not None)
        # `force` only silences the warning about tokenised input, which is meant here.
        return self._score(
            BLEU(lowercase=True, tokenize="none", force=True, effective_order=short), tokens, samples
        )

    def chrf(self, tokens: Sequence[str], samples: int = 0) -> Score:
        """Return chrF2 of `tokens`."""
        return self._score(CHRF(lowercase=True), tokens, samples)

    def ter(self, tokens: Sequence[str], samples: int = 0) -> Score:
        """Return TER of `tokens`."""
        return self._score(TER(), tokens, samples)

    def _score(self, metric: Metric, tokens: Sequence[str], samples: int) -> Score:
        score = _corpus_score(metric, tokens, self.references, samples)
        return replace(score, signature=f"{score.signature}|{self._tokenizer}")


def lowercased_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Return lines of Moses tokens, separated by spaces, special characters escaped (`&apos;`).

    In the order of the data set's own `lc.norm.tok` files: lowercased, punctuation normalised, tokenised. `UNKNOWN` is
    tokenised as a word.
    `language` is one of `moses_languages()`.
    """
    # Another language would be taken for English, without a word.
    assert language in moses_languages(), language
    import sacremoses

    normalize = sacremoses.MosesPunctNormalizer(language).normalize
    tokenize = sacremoses.MosesTokenizer(language).tokenize
    return [
        tokenize(normalize(line.lower().replace(UNKNOWN, _LETTER)), return_str=True).replace(_LETTER, UNKNOWN)
        for line in lines
    ]


def moses_languages() -> frozenset[str]:
    """Return the codes of the languages that Moses has rules for."""
    from sacremoses.corpus import NonbreakingPrefixes  # type: ignore[import-untyped]

    return frozenset(NonbreakingPrefixes().available_langs.values())


def chrf(hypotheses: Sequence[str], references: Sequence[str] | References, samples: int = 0) -> Score:
    """Return chrF2 by sacreBLEU (Popović 2015); `samples` and `UserError` are as in `Bleu`."""
    return _corpus_score(CHRF(), hypotheses, references, samples)


def ter(hypotheses: Sequence[str], references: Sequence[str] | References, samples: int = 0) -> Score:
    """Return TER by sacreBLEU (Snover 2006), the fewer the better; `samples` and `UserError` are as in `Bleu`."""
    return _corpus_score(TER(), hypotheses, references, samples)


def _references(references: Sequence[str] | References) -> References:
    return references if isinstance(references, References) else References(references)


def _corpus_score(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[str] | References, samples: int
) -> Score:
    known = _references(references)
    statistics = metric._extract_corpus_statistics(known.scored(hypotheses), known.streams)
    return _score(metric, statistics, samples, known.clusters)


def _score(
    metric: Metric, statistics: list[list[Any]], samples: int, clusters: npt.NDArray[np.int64]
) -> Score:
    value = metric._aggregate_and_compute(statistics).score
    signature = str(metric.get_signature())
    if not samples:
        return Score(value, signature)
    _, confidence = estimate_ci(_resampled(metric, statistics, samples, clusters))
    return Score(value, signature, float(confidence))


def _resampled(
    metric: Metric, statistics: list[list[Any]], samples: int, clusters: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    # What `corpus_score(n_bootstrap=…)` does, but for two faults of sacreBLEU 2.6 (its mean fails where some scores are 0,
    # and it holds the statistics of all samples at once, gigabytes for a large test set), and of clusters.
    generator = np.random.default_rng(SACREBLEU_SEED)
    rows = _by_source(statistics, clusters)
    return np.array(
        [
            metric._compute_score_from_stats(rows[generator.choice(len(rows), size=len(rows))].sum(0)).score
            for _ in range(samples)
        ]
    )


def _by_source(statistics: list[list[Any]], clusters: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    rows = np.zeros((clusters.max() + 1, len(statistics[0])), dtype=np.float32)
    np.add.at(rows, clusters, np.array(statistics, dtype=np.float32))
    return rows


def sentence_bleu(hypothesis: str, reference: str) -> float:
    """Return BLEU of one sentence from 0 to 100, smoothed, with effective order.

    For tables and for sorting; a mean of it is not the BLEU of the corpus.
    """
    return BLEU(effective_order=True).sentence_score(hypothesis, [reference]).score


def accuracy_by_phenomenon(
    hypotheses: Sequence[str], references: Sequence[str], phenomena: Sequence[frozenset[str]]
) -> list[Accuracy]:
    """Return the share of translations that equal their reference for each phenomenon, in alphabetical order.

    A sentence counts for every phenomenon it shows. Raises `UserError` as `Bleu` does.
    """
    References(references).scored(hypotheses)
    assert len(phenomena) == len(references)
    exact: dict[str, list[bool]] = {}
    for hypothesis, reference, names in zip(hypotheses, references, phenomena, strict=True):
        for name in names:
            exact.setdefault(name, []).append(hypothesis == reference)
    return [Accuracy(name, len(hits), sum(hits) / len(hits)) for name, hits in sorted(exact.items())]


def _has_4_gram(references: References, indices: Iterable[int]) -> bool:
    tokenize = Tokenizer13a()  # type: ignore[no-untyped-call]
    return any(len(tokenize(line).split()) >= 4 for index in indices for line in references.of(index))
