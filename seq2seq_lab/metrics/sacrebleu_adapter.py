"""All that is used of sacreBLEU's private API."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.base import Metric as Scorer
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

__all__ = ["BLEU", "CHRF", "TER", "Scorer", "score", "signature", "statistics", "tokenize_13a"]


def statistics(
    scorer: Scorer, hypotheses: Sequence[str], streams: Sequence[Sequence[str | None]]
) -> npt.NDArray[np.float64]:
    """Return what a scorer counts, a row [K] for each hypothesis.

    Args:
        streams: the first reference of each hypothesis, the second (None where there is none), and so on.
    """
    return np.array(scorer._extract_corpus_statistics(hypotheses, streams), np.float64)  # type: ignore[arg-type]


def score(scorer: Scorer, totals_K: npt.NDArray[np.floating[Any]]) -> float:
    """Return the score from a sum of `statistics`, with the precision of the sum."""
    return scorer._compute_score_from_stats(totals_K).score  # type: ignore[arg-type]


def signature(scorer: Scorer, streams: Sequence[Sequence[str | None]]) -> str:
    """Return a scorer's signature for these references."""
    counts = {sum(line is not None for line in lines) for lines in zip(*streams, strict=True)}
    scorer.num_refs = counts.pop() if len(counts) == 1 else -1
    return str(scorer.get_signature())


def tokenize_13a(line: str) -> str:
    """Return a line in the tokens that BLEU counts, separated by spaces."""
    return _tokenizer_13a(line)


_tokenizer_13a = Tokenizer13a()  # type: ignore[no-untyped-call]
