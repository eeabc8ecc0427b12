"""What the evaluations of all tasks that decode share: how outputs end, and the worst outputs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from seq2seq_lab.data.batching import Index
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.metrics.bleu import sentence_bleu
from seq2seq_lab.metrics.degeneration import DecodedOutputs, Endings, longest_repeat
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.seq2seq import EncodedModel, Seq2Seq
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.search.base import Hypothesis, Search

WORST = 3  # outputs shown after a run
PERFECT = 100 - 1e-6  # sentence BLEU of an output that equals a reference, up to rounding

Ending = tuple[int, bool]
"""`longest_repeat` of the tokens of an output, and whether it ended with `<eos>`."""


class DecodingEvaluator(Protocol):
    """What `attend_again` uses of the evaluator of a task that decodes."""

    model: Seq2Seq | Ensemble
    search: Search
    compute: Compute

    def make_batch(self, index: Index) -> Any:
        """Return a batch of pairs of the split."""
        ...

    def text_of(self, hypothesis: Hypothesis) -> str:
        """Return the text of a hypothesis, on one line."""
        ...


@dataclass(frozen=True, slots=True)
class WorstOutput:
    """An output that is among the worst of a split.

    Attributes:
        pair: its number in the split.
        loop: whether it is a loop; see `metrics.degeneration.Loops`.
        at_limit: whether the length limit ended it.
        sentence_bleu: see `metrics.bleu.sentence_bleu`.
    """

    pair: int
    loop: bool
    at_limit: bool
    sentence_bleu: float

    def record(self, attention: str | None) -> dict[str, Any]:
        """Return the part of an entry of `PREFIX/worst_outputs` that all tasks share.

        Args:
            attention: the file in the run folder that has the attention of the output, if there is one.
        """
        return {
            "number": self.pair,
            "loop": self.loop,
            "at_limit": self.at_limit,
            "sentence_bleu": round(self.sentence_bleu, 2),
            "attention": attention,
        }


def ending(hypothesis: Hypothesis) -> Ending:
    """Return how an output ended."""
    return longest_repeat(hypothesis.tokens), hypothesis.ended


def endings(shares: Iterable[Mapping[int, Ending]], reference_repeats_N: npt.NDArray[np.int64]) -> Endings:
    """Return how the outputs of a split ended.

    Args:
        shares: of each rank, how its outputs ended, by the number of the pair.
        reference_repeats_N: see `repeats_of`.
    """
    of_pairs = {i: one for share in shares for i, one in share.items()}
    repeats, ended = zip(*(of_pairs[i] for i in range(len(of_pairs))), strict=True)
    return Endings(np.array(repeats), reference_repeats_N, np.array(ended))


def repeats_of(targets: Ragged) -> npt.NDArray[np.int64]:
    """Return the `longest_repeat` of N sequences of token ids with `<sos>` and `<eos>`."""
    ids, offsets = targets.tokens.numpy(), targets.offsets.tolist()
    return np.array([longest_repeat(ids[start + 1 : end - 1]) for start, end in pairwise(offsets)])


def worst_outputs(outputs: DecodedOutputs, count: int = WORST) -> list[WorstOutput]:
    """Return the worst outputs of a split, the worst first: those that did not end as they should, then by sentence BLEU.

    Outputs that equal a reference are left out, so there may be fewer than `count`.
    """
    found = sorted(_wrong(outputs), key=lambda one: (not (one.loop or one.at_limit), one.sentence_bleu))
    return found[:count]


def _wrong(outputs: DecodedOutputs) -> Iterator[WorstOutput]:
    references = outputs.references
    states = zip(references.pairs, outputs.scored, outputs.loops_N, outputs.at_limit_N, strict=True)
    for number, (pair, line, loop, at_limit) in enumerate(states):
        score = sentence_bleu(line, *references.of(number), tokenizer=references.segmentation.bleu)
        if loop or at_limit or score < PERFECT:
            yield WorstOutput(pair, bool(loop), bool(at_limit), score)


def attend_again(
    evaluator: DecodingEvaluator, worst: Sequence[WorstOutput], texts: Sequence[str]
) -> dict[int, Hypothesis]:
    """Repeat the search for the worst outputs, and return their hypotheses with attention weights by number.

    In a batch of other examples, rounding can change an output: one that differs from the first is left out.

    Args:
        texts: the outputs of the whole split.
    """
    if not worst:
        return {}
    pairs = [one.pair for one in worst]
    batch = evaluator.make_batch(np.array(pairs))
    with evaluation_context(batch, evaluator.compute.precision, evaluator.compute.device):
        found = evaluator.search(EncodedModel(evaluator.model, batch), batch, True)
    best = {pair: hypothesis for pair, (hypothesis, *_) in zip(pairs, found, strict=True)}
    return {pair: one for pair, one in best.items() if evaluator.text_of(one) == texts[pair]}
