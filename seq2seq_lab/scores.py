"""BLEU and chrF by sacreBLEU, over a corpus, a sentence, or sentences grouped by source length.

There are two BLEUs, and their figures are not to be compared: `Bleu` is of plain text, as sacreBLEU means it;
`LowercasedTokenisedBleu` is of lowercased Moses tokens, as papers on Multi30k report it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import estimate_ci
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.errors import UserError

SACREBLEU_SEED = 12345  # that its command line resamples with
# Moses' rules treat this as a word and UNKNOWN as punctuation, which would split it off an elided article (l').
_LETTER = "\N{CYRILLIC LETTER MULTIOCULAR O}"


@dataclass(frozen=True, slots=True)
class Score:
    """A score from 0 to 100 (TER has no upper end) and the sacreBLEU signature that says how it was computed.

    `confidence` is half the width of the 95% interval that resampling the sentences gives (Koehn 2004), if it was asked
    for.
    """

    value: float
    signature: str
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class LengthBin:
    """BLEU over the sentences whose source has `low` to `high` words, both included.

    `high` is None in the last bin, which has no upper end. `bleu` is None where BLEU has no meaning:
    in an empty bin, and in one whose references are all under 4 tokens.
    """

    low: int
    high: int | None
    count: int
    bleu: float | None

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


class Bleu:
    """sacreBLEU of detokenised text, mixed case, one reference a sentence (Post 2018), of all sentences and of groups.

    The n-grams of each sentence are counted once.

    BLEU counts up to 4-grams, so where every reference is under 4 tokens even a perfect corpus would
    score 0. Such a corpus is scored with effective order (only the n-grams that exist), and the signature
    then says `eff:yes`: it is not to be compared with the usual `eff:no`. The choice hangs on the
    references alone, so all systems on one test set get the same measure.

    Raises `UserError` where the two lists differ in length or are empty.
    """

    def __init__(self, hypotheses: Sequence[str], references: Sequence[str]) -> None:
        _check(hypotheses, references)
        self._references = references
        self._metric = BLEU(effective_order=not _has_4_gram(references))
        self._counts = self._metric._extract_corpus_statistics(hypotheses, [references])

    def score(self, samples: int = 0) -> Score:
        """Return the score of all; `samples` is how often they are resampled for its confidence, 0 leaves it out."""
        return _score(self._metric, self._counts, samples)

    def by_length(self, lengths: Sequence[int], bounds: Sequence[int]) -> list[LengthBin]:
        """Return the score in bins of source length; n bounds make n + 1 bins.

        `lengths` are the source lengths in words. A bound is the greatest length of its bin: (6, 18) makes
        ≤6, 7–18 and >18. A bin has `bleu=None` where it is empty, or where every one of its references is
        under 4 tokens: there BLEU would be 0 for a perfect translation, and BLEU with effective order cannot
        stand beside the other bins. The bins are scored with `eff:no`.

        Raises `UserError` where there are not as many lengths, or the bounds do not rise or are not positive.
        """
        if len(lengths) != len(self._counts):
            raise UserError(
                f"bleu_by_length: {len(lengths)} source lengths for {len(self._counts)} hypotheses; "
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
            members = [i for i, n in enumerate(lengths) if low <= n and (high is None or n <= high)]
            value = None
            if _has_4_gram([self._references[i] for i in members]):
                value = BLEU()._aggregate_and_compute([self._counts[i] for i in members]).score
            bins.append(LengthBin(low, high, len(members), value))
        return bins


class LowercasedTokenisedBleu:
    """BLEU of lowercased text in Moses tokens, one reference a sentence: the condition of papers on Multi30k.

    The papers' systems put out such tokens (Caglayan et al. 2017, arXiv:1707.04481); here both sides are
    plain text and go through `lowercased_tokens`. The signature is sacreBLEU's and what made the tokens.
    """

    def __init__(self, references: Sequence[str], language: str) -> None:
        """Tokenise the references by the rules of `language`, one of `moses_languages()`."""
        import sacremoses  # type: ignore[import-untyped]

        self._language = language
        self.references = lowercased_tokens(references, language)
        self._tokenizer = f"moses:sacremoses-{sacremoses.__version__}-{language}"

    def __call__(self, hypotheses: Sequence[str]) -> Score:
        """Return the score; effective order and `UserError` are as in `Bleu`."""
        return self.of_tokens(self.tokens(hypotheses))

    def of_tokens(self, tokens: Sequence[str], samples: int = 0) -> Score:
        """Return the score of hypotheses as `tokens` gives them; `samples` is as in `Bleu.score`."""
        _check(tokens, self.references)
        short = all(len(reference.split()) < 4 for reference in self.references)
        # `force` only silences the warning about tokenised input, which is meant here.
        metric = BLEU(lowercase=True, tokenize="none", force=True, effective_order=short)
        score = _score(metric, metric._extract_corpus_statistics(tokens, [self.references]), samples)
        return replace(score, signature=f"{score.signature}|{self._tokenizer}")

    def tokens(self, hypotheses: Sequence[str]) -> list[str]:
        """Return what is scored of hypotheses: lines of lowercased tokens."""
        return lowercased_tokens(hypotheses, self._language)


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


def chrf(hypotheses: Sequence[str], references: Sequence[str], samples: int = 0) -> Score:
    """Return chrF2 by sacreBLEU (Popović 2015); `samples` and `UserError` are as in `Bleu`."""
    _check(hypotheses, references)
    metric = CHRF()
    return _score(metric, metric._extract_corpus_statistics(hypotheses, [references]), samples)


def ter(hypotheses: Sequence[str], references: Sequence[str], samples: int = 0) -> Score:
    """Return TER by sacreBLEU (Snover 2006), the fewer the better; `samples` and `UserError` are as in `Bleu`."""
    _check(hypotheses, references)
    metric = TER()
    return _score(metric, metric._extract_corpus_statistics(hypotheses, [references]), samples)


def _score(metric: Metric, statistics: list[list[Any]], samples: int) -> Score:
    # What `corpus_score(n_bootstrap=…)` does, but for two faults of sacreBLEU 2.6: its mean fails where some scores are 0,
    # and it holds the statistics of all samples at once, gigabytes for a large test set.
    value = metric._aggregate_and_compute(statistics).score
    signature = str(metric.get_signature())
    if not samples:
        return Score(value, signature)
    generator = np.random.default_rng(SACREBLEU_SEED)
    rows = np.array(statistics, dtype=np.float32)
    resampled = [
        metric._compute_score_from_stats(rows[generator.choice(len(rows), size=len(rows))].sum(0)).score
        for _ in range(samples)
    ]
    _, confidence = estimate_ci(np.array(resampled))
    return Score(value, signature, float(confidence))


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
    _check(hypotheses, references)
    assert len(phenomena) == len(references)
    exact: dict[str, list[bool]] = {}
    for hypothesis, reference, names in zip(hypotheses, references, phenomena, strict=True):
        for name in names:
            exact.setdefault(name, []).append(hypothesis == reference)
    return [Accuracy(name, len(hits), sum(hits) / len(hits)) for name, hits in sorted(exact.items())]


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    # sacreBLEU cuts the longer list in silence and fails on empty ones with an IndexError.
    if len(hypotheses) != len(references):
        raise UserError(
            f"scores: {len(hypotheses)} hypotheses for {len(references)} references; "
            "give one hypothesis a reference, one a line and in the same order (an empty line counts)."
        )
    if not hypotheses:
        raise UserError("scores: no sentence to score; give at least one hypothesis and its reference.")


def _has_4_gram(references: Sequence[str]) -> bool:
    tokenize = Tokenizer13a()  # type: ignore[no-untyped-call]
    return any(len(tokenize(reference).split()) >= 4 for reference in references)
