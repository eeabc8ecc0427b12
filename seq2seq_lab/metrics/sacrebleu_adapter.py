"""The functions that use sacreBLEU's private API."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.base import Metric as Scorer
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from seq2seq_lab.runtime.heartbeat import heartbeat

_AT_A_TIME = 50
__all__ = ["BLEU", "CHRF", "Scorer", "score", "signature", "statistics", "tokenizer"]


def statistics(
    scorer: Scorer, hypotheses: Sequence[str], streams: Sequence[Sequence[str | None]]
) -> npt.NDArray[np.float64]:
    """Return what a scorer counts, a row [K] for each hypothesis.

    Args:
        streams: the first reference of each hypothesis, the second (None where there is none), and so on.
    """
    rows: list[list[float]] = []
    for start in range(0, len(hypotheses), _AT_A_TIME):
        heartbeat.beat("scoring texts")
        part = slice(start, start + _AT_A_TIME)
        references: list[Any] = [stream[part] for stream in streams]
        rows += scorer._extract_corpus_statistics(hypotheses[part], references)
    return np.array(rows, np.float64)


def score(scorer: Scorer, totals_K: npt.NDArray[np.floating[Any]]) -> float:
    """Return the score from a sum of `statistics`, with the precision of the sum."""
    return scorer._compute_score_from_stats(totals_K).score  # type: ignore[arg-type]


def signature(scorer: Scorer, streams: Sequence[Sequence[str | None]]) -> str:
    """Return a scorer's signature for these references."""
    counts = {sum(line is not None for line in lines) for lines in zip(*streams, strict=True)}
    scorer.num_refs = counts.pop() if len(counts) == 1 else -1
    return str(scorer.get_signature())


@cache
def tokenizer(name: str) -> Callable[[str], str]:
    """Return the function that converts a line to the tokens that BLEU counts, separated by spaces."""
    return BLEU(tokenize=name, force=True).tokenizer
