"""What uses sacreBLEU's private API."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics import lib_ter
from sacrebleu.metrics.base import Metric as Scorer
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seq2seq_lab.metrics.edits import edit_distances, number
from seq2seq_lab.runtime.heartbeat import heartbeat

_AT_A_TIME = 50
_TERCOM: Any = lib_ter  # annotated for words of text, but it takes their ids too
BEAM, MOST_SHIFTS = lib_ter._BEAM_WIDTH, lib_ter._MAX_SHIFT_CANDIDATES
__all__ = [
    "BLEU",
    "CHRF",
    "FastTER",
    "Scorer",
    "score",
    "signature",
    "statistics",
    "tokenizer",
    "translation_edits",
]


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


class FastTER(TER):
    """sacreBLEU's TER with the same counts, which compares all shifts of a text with the reference at once.

    sacreBLEU compares them one after another in Python: seconds for a text of 60 words that repeat.
    """

    def _compute_segment_statistics(
        self, hypothesis: str, ref_kwargs: dict[str, list[list[str]]]
    ) -> list[float]:
        output, references = hypothesis.split(), ref_kwargs["ref_words"]
        edits = min(translation_edits(output, reference) for reference in references)
        return [edits, sum(map(len, references)) / len(references)]


def translation_edits(output: Sequence[str], reference: Sequence[str]) -> int:
    """Return the insertions, deletions, substitutions and shifts of phrases from a text to a reference (Snover et al. 2006).

    As in sacreBLEU, the best shift is made until none lowers the edit distance, and at most `MOST_SHIFTS` are compared.
    """
    if not reference:
        return len(output)
    ids = number(output, reference)
    words, target = [ids[word] for word in output], [ids[word] for word in reference]
    distance = _TERCOM.BeamEditDistance(target)
    made = compared = 0
    while True:
        edits, trace = distance(words)
        shifts = [*_shifts(words, target, trace, MOST_SHIFTS - compared)]
        compared += len(shifts)
        if not shifts or compared >= MOST_SHIFTS:
            return made + edits
        shifted_CH = np.array(words)[np.array([order for _, order in shifts])]
        distances = edit_distances(shifted_CH, np.array(target), BEAM).tolist()
        gain, _, best = max((edits - distances[index], rank, index) for index, (rank, _) in enumerate(shifts))
        if gain <= 0:
            return made + edits
        made, words = made + 1, shifted_CH[best].tolist()


def _shifts(
    words: list[int], target: list[int], trace: str, most: int
) -> Iterator[tuple[tuple[int, int, int], list[int]]]:
    """Yield the shifts that are compared: their rank among shifts of equal gain, and the new order of the words.

    A phrase is shifted if the reference contains it elsewhere, and each of the two has an error.
    """
    aligned, wrong_target, wrong = _TERCOM.trace_to_alignment(_TERCOM._flip_trace(trace))
    count, order = 0, [*range(len(words))]
    for start, target_start, length in _TERCOM._find_shifted_pairs(words, target):
        target_end = target_start + length
        if not any(wrong[start : start + length]) or not any(wrong_target[target_start:target_end]):
            continue
        if start <= aligned[target_start] < start + length:
            continue
        before = -1
        for position in range(target_start - 1, target_end):
            if position >= 0 and position not in aligned:
                break
            goal = aligned[position] + 1 if position >= 0 else 0
            if goal != before:
                before, count = goal, count + 1
                yield (length, -start, -goal), _TERCOM._perform_shift(order, start, length, goal)
        if count >= most:
            return
