"""The shared part of the evaluations of tasks that decode: losses, outputs, how they end, and the worst outputs."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from seq2seq_lab.data.batching import Index
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.text import one_line
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.metrics.base import Array
from seq2seq_lab.metrics.bleu import sentence_bleu
from seq2seq_lab.metrics.degeneration import DecodedOutputs, Endings, longest_repeat
from seq2seq_lab.metrics.measurement import Measurement
from seq2seq_lab.metrics.texts import References, TextOutputs
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.seq2seq import EncodedModel, Seq2Seq
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.search.base import Hypothesis, Search
from seq2seq_lab.tasks.evaluation import Evaluation, Split, SplitEvaluator
from seq2seq_lab.tasks.losses import free_running, teacher_forced

WORST = 3  # outputs shown after a run
LOSSES = ("teacher_forced", "free_running")
PERFECT = 100 - 1e-6  # sentence BLEU of an output that equals a reference, up to rounding


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result of one example.

    Attributes:
        text: the output, on one line.
        teacher_forced: the loss with the reference as input, in nats, summed over the target tokens.
        free_running: the same with the model's arg-max as input.
        repeats: `longest_repeat` of the tokens of the output.
        ended: whether it ended with `<eos>`.
        hypothesis: the output with its attention; None if it is not kept.
        counts: statistics of the attention, by kind.
        replaced: the output with unknown words replaced, if requested.
    """

    text: str
    teacher_forced: float
    free_running: float
    repeats: int
    ended: bool
    hypothesis: Hypothesis | None
    counts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    replaced: str | None = None


@dataclass(frozen=True)
class DecodedEvaluation(Evaluation):
    """The result of scoring a split.

    Attributes:
        texts: the outputs in the order of the split.
        samples: the indices of the examples that the report of a validation shows.
        hypotheses: the hypotheses of the examples whose attention is kept, by index; among them the samples.
        worst: in the final evaluation the worst outputs, the worst first; their hypotheses are kept.
        scored_lines: in the final evaluation the outputs and references of each kind of score; see `scored_lines`.
    """

    texts: Sequence[str]
    samples: Sequence[int] = ()
    hypotheses: Mapping[int, Hypothesis] = field(default_factory=dict)
    worst: Sequence["WorstOutput"] = ()
    scored_lines: Mapping[str, list[list[str]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorstOutput:
    """An output that is among the worst of a split.

    Attributes:
        pair: its index in the split.
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


class DecodingEvaluator(SplitEvaluator[Decoded]):
    """Scores the outputs of a model that decodes, and its losses. A subclass defines `count` and `outputs`.

    Args:
        tokenizer: that of the outputs.
        batches: returns a batch of examples.
        targets: token ids of the references, with `<sos>` and `<eos>`.
        references: the references as text.
        samples: the indices of the examples to show, whose hypotheses are kept with their attention weights.
        kept_at_end: the indices of further examples whose hypotheses are kept in the final evaluation.
        reads_weights: whether `count` reads attention weights.
        searches_with_weights: whether the search returns the attention of every example.
        measured: see `SplitEvaluator`.
    """

    def __init__(
        self,
        model: Seq2Seq | Ensemble,
        split: Split,
        compute: Compute,
        *,
        tokenizer: Tokenizer,
        search: Search,
        batches: Callable[[Index], Any],
        targets: Ragged,
        references: References,
        samples: Sequence[int] = (),
        kept_at_end: Collection[int] = (),
        reads_weights: bool = False,
        searches_with_weights: bool = False,
        **measured: Any,
    ) -> None:
        super().__init__(
            model,
            split,
            compute,
            clusters=references.clusters,
            examples=references.examples,
            **measured,
        )
        self.tokenizer, self.search, self.batches = tokenizer, search, batches
        self.references, self.samples, self.kept_at_end = references, samples, {*samples, *kept_at_end}
        self.reads_weights, self.searches_with_weights = reads_weights, searches_with_weights
        self.targets, self.target_tokens_N = targets, targets.lengths.numpy() - 1

    @cached_property
    def reference_repeats_N(self) -> npt.NDArray[np.int64]:
        """See `Endings`."""
        return repeats_of(self.targets)

    @abstractmethod
    def count(
        self, index: Sequence[int], batch: Any, weights_BTS: Tensor | None, final: bool
    ) -> Mapping[str, Sequence[tuple[float, ...]]]:
        """Return statistics of the attention of each example of a batch, by kind.

        Args:
            weights_BTS: attention weights under teacher forcing; None without attention.
        """

    def replaced(self, i: int, hypothesis: Hypothesis) -> str | None:
        """Return an output with its unknown words replaced, if requested."""
        return None

    def score(self, index: Index, final: bool) -> list[Decoded]:
        """See `SplitEvaluator.score`."""
        batch, indices = self.batches(index), index.tolist()
        kept = self.kept_at_end if final else self.samples
        with evaluation_context(batch, self.compute.precision, self.compute.device):
            model = EncodedModel(self.model, batch)
            teacher_forced_BT, weights_BTS = teacher_forced(model, batch, self.reads_weights)
            free_running_BT = free_running(model, batch)
            attention = self.searches_with_weights or not set(kept).isdisjoint(indices)
            hypotheses = self.search(model, batch, attention)
        counts = self.count(indices, batch, weights_BTS, final)
        # Read after the search, which waits for the device anyway.
        teacher_forced_B, free_running_B = map(_sums, (teacher_forced_BT, free_running_BT))
        return [
            Decoded(
                text=self.text_of(i, best),
                teacher_forced=teacher_forced_B[row],
                free_running=free_running_B[row],
                repeats=longest_repeat(best.tokens),
                ended=best.ended,
                hypothesis=best if i in kept else None,
                counts={kind: values[row] for kind, values in counts.items()},
                replaced=self.replaced(i, best),
            )
            for row, (i, (best, *_)) in enumerate(zip(indices, hypotheses, strict=True))
        ]

    def text_of(self, i: int, hypothesis: Hypothesis) -> str:
        """Return the text of a hypothesis of an example, on one line."""
        return one_line(self.tokenizer.decode(hypothesis.tokens))

    def decoded(self, results: Sequence[Decoded]) -> dict[str, Any]:
        """Return the attributes of `DecodedOutputs` and `Losses`."""
        losses_N2 = np.array([[one.teacher_forced, one.free_running] for one in results])
        return {
            "hypotheses": [one.text for one in results],
            "references": self.references,
            "endings": Endings(
                np.array([one.repeats for one in results]),
                self.reference_repeats_N,
                np.array([one.ended for one in results]),
            ),
            "losses": {
                kind: self.references.sum_of_scored(np.column_stack([loss_N, self.target_tokens_N]))
                for kind, loss_N in zip(LOSSES, losses_N2.T, strict=True)
            },
        }

    def counts(self, results: Sequence[Decoded]) -> dict[str, Array]:
        """Return the statistics of the attention of the scored outputs, by kind; empty without attention."""
        return {
            kind: self.references.sum_of_scored(np.array([one.counts[kind] for one in results], np.float64))
            for kind in results[0].counts
        }

    def evaluation(
        self, results: Sequence[Decoded], outputs: DecodedOutputs, measurement: Measurement, final: bool
    ) -> DecodedEvaluation:
        """See `SplitEvaluator.evaluation`."""
        worst = worst_outputs(outputs) if final else []
        kept = {i: one.hypothesis for i, one in enumerate(results) if one.hypothesis is not None}
        return DecodedEvaluation(
            values=self.values(measurement),
            measurement=measurement,
            outputs=outputs,
            texts=outputs.hypotheses,
            samples=self.samples,
            hypotheses=kept | self._attend_again(worst, outputs.hypotheses),
            worst=worst,
            scored_lines=scored_lines(outputs) if final else {},
        )

    def _attend_again(self, worst: Sequence["WorstOutput"], texts: Sequence[str]) -> dict[int, Hypothesis]:
        """Repeat the search for the worst outputs, and return their hypotheses with attention weights by index.

        Rounding can change an output in a batch of other examples; an output that differs from the first search is left out.

        Args:
            texts: the outputs of the whole split.
        """
        if not worst:
            return {}
        pairs = [one.pair for one in worst]
        batch = self.batches(np.array(pairs))
        with evaluation_context(batch, self.compute.precision, self.compute.device):
            found = self.search(EncodedModel(self.model, batch), batch, True)
        best = {pair: hypothesis for pair, (hypothesis, *_) in zip(pairs, found, strict=True)}
        return {pair: one for pair, one in best.items() if self.text_of(pair, one) == texts[pair]}


def _sums(loss_BT: Tensor) -> list[float]:
    """Return the sum of each row, computed on the host in float64, which MPS does not support."""
    sums: list[float] = to_host(loss_BT).sum(1, dtype=np.float64).tolist()
    return sums


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
    for index, (pair, line, loop, at_limit) in enumerate(states):
        score = sentence_bleu(line, *references.of(index), tokenizer=references.segmentation.bleu)
        if loop or at_limit or score < PERFECT:
            yield WorstOutput(pair, bool(loop), bool(at_limit), score)


def scored_lines(outputs: DecodedOutputs) -> dict[str, list[list[str]]]:
    """Return the lines of each kind of score, by the kind as in the names of files; see `TextOutputs.lines`."""
    kinds: dict[str, TextOutputs] = {"": outputs}
    if outputs.unknown_replaced is not None:
        kinds[".unknown_replaced"] = outputs.unknown_replaced
    lines = {kind: texts.lines for kind, texts in kinds.items()}
    if outputs.moses:
        lines |= {f"{kind}.lc.tok": texts.lowercased_tokenised.lines for kind, texts in kinds.items()}
    return lines
