"""Evaluation of a language model on a split, and generation."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.data.batching import Index, plan_evaluation
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.sentences import Sentences
from seq2seq_lab.data.text import one_line
from seq2seq_lab.data.tokenizers import SOS, UNK, Tokenizer
from seq2seq_lab.metrics.base import Array, digest
from seq2seq_lab.metrics.language_model import AGREEMENT, CARRIED, MINIMAL_PAIRS
from seq2seq_lab.metrics.measurement import Measurement
from seq2seq_lab.models.language_model import LanguageModel
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.heartbeat import heartbeat
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.search.base import Hypothesis, Search
from seq2seq_lab.tasks import evaluation
from seq2seq_lab.tasks.evaluation import SplitEvaluator
from seq2seq_lab.tasks.language_model.carry import ChunkPlan
from seq2seq_lab.tasks.language_model.data import SentenceBatches, SentenceTokens, TokenBatch
from seq2seq_lab.tasks.losses import token_losses
from seq2seq_lab.tasks.splits import TextSplit

CHUNK = 512
"""Tokens that an evaluation with carried state reads at once."""

LanguageModelSplit = TextSplit[Sentences, SentenceTokens]


@dataclass(frozen=True, slots=True)
class GenerationBatch:
    """B sentences to generate; see `search.base.SearchBatch` and `models.language_model.Beginnings`."""

    index_B: Tensor
    beginning_BP: Tensor
    source_lengths: tuple[int, ...]


@dataclass(frozen=True)
class LanguageModelOutputs:
    """The inputs of the metrics; see `metrics.language_model.SentenceScores`."""

    nats: Array
    tokens: Array
    lines: Sequence[str]
    phenomena: Sequence[str | None]
    wrong_nats: Array
    distances: Sequence[int | None] = ()
    carried_nats: Array | None = None
    unknown: float = 0.0


@dataclass(frozen=True)
class LanguageModelEvaluation(evaluation.Evaluation):
    """The result of evaluating a split.

    Attributes:
        outputs: in the order of the split.
        generated: generated sentences with their log-probabilities.
    """

    outputs: LanguageModelOutputs
    generated: Sequence[tuple[str, float]]


def generation_batch(
    beginnings: Sequence[Sequence[int]], index: Sequence[int], length: int, device: torch.device
) -> GenerationBatch:
    """Return a batch of beginnings with the same number of tokens; see `generate`."""
    beginning_BP = torch.tensor([[SOS, *one] for one in beginnings], device=device)
    return GenerationBatch(torch.tensor(index, device=device), beginning_BP, (length,) * len(index))


@torch.no_grad()
def batch_nats(model: LanguageModel, batch: TokenBatch, compute: Compute) -> Array:
    """Return the negative log-probability in nats of each sentence of a batch with its end, from the state 0."""
    with evaluation_context(batch, compute.precision, compute.device):
        logits_BTV, _ = model(batch.inputs_BT, None)
        loss_BT = token_losses(logits_BTV, batch.outputs_BT)
    # Summed on the host in float64, which MPS does not support.
    return to_host(loss_BT).sum(1, dtype=np.float64)


def sentence_nats(
    model: LanguageModel, sentences: SentenceTokens, batch_size: int, compute: Compute
) -> Array:
    """Return the negative log-probability in nats of each sentence with its end, from the state 0."""
    batches, nats_N = SentenceBatches(sentences, compute.device), np.empty(len(sentences.lengths))
    for index in plan_evaluation(sentences, batch_size):
        nats_N[index] = batch_nats(model, batches(index), compute)
    return nats_N


@torch.no_grad()
def carried_nats(model: LanguageModel, sentences: SentenceTokens, compute: Compute) -> Array:
    """Return the negative log-probability in nats of each sentence with its end, given all sentences before it.

    The text is one stream, see `streams`: each sentence starts from the state after the one before it.
    """
    plan, state, losses = ChunkPlan(sentences, 1, CHUNK, compute.device), None, list[Tensor]()
    for (index,) in plan.plan:
        heartbeat.beat("evaluating with carried state")
        batch = plan.batch(index)
        with evaluation_context(batch, compute.precision, compute.device):
            logits_1TV, state = model(batch.inputs_BT, state)
            losses.append(token_losses(logits_1TV, batch.outputs_BT))
    ends_N = sentences.units.cumsum(0).numpy()
    return np.add.reduceat(to_host(torch.cat(losses, 1))[0], [0, *ends_N[:-1]], dtype=np.float64)


@torch.no_grad()
def generate(
    model: LanguageModel,
    search: Search,
    beginnings: Sequence[Sequence[int]],
    *,
    length: int,
    batch_size: int,
    compute: Compute,
    first: int = 0,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of a sentence for each beginning, without the beginning.

    Args:
        beginnings: token ids, empty for whole sentences.
        length: the number of tokens that the length limits of the search refer to.
        first: the index of the first sentence; the draws of `search=sampling` depend on it.
    """
    device, found = compute.device, dict[int, list[Hypothesis]]()
    sizes = [*map(len, beginnings)]
    # A batch has no padding, which the state after a beginning would include.
    for _, equal in groupby(sorted(range(len(sizes)), key=sizes.__getitem__), key=sizes.__getitem__):
        rows = [*equal]
        for start in range(0, len(rows), batch_size):
            index = rows[start : start + batch_size]
            batch = generation_batch(
                [beginnings[row] for row in index], [first + row for row in index], length, device
            )
            with evaluation_context(batch, compute.precision, device):
                found |= zip(index, search(model, batch, False), strict=True)
    return [found[row] for row in range(len(sizes))]


def text_of(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Return generated tokens as one line of text."""
    return one_line(tokenizer.decode(tokens))


class ScoredSentences:
    """Inputs of the metrics of a split, in addition to the probabilities of its sentences.

    Attributes:
        wrong: the ungrammatical forms of the sentences that have one.
        paired: the index in `wrong` by the index of the sentence.
    """

    def __init__(self, split: LanguageModelSplit, tokenizer: Tokenizer) -> None:
        self.split = split
        contrasts = split.text.contrasts or [None] * len(split.text)
        self._phenomena = [None if one is None else one.phenomenon for one in contrasts]
        with_form = [i for i, one in enumerate(contrasts) if one is not None]
        self.paired = {i: row for row, i in enumerate(with_form)}
        wrong_ids = tokenizer.encode([one.ungrammatical for one in contrasts if one is not None])
        self.wrong = SentenceTokens(Ragged.of(wrong_ids))
        right = tokenizer.encode([split.text.lines[i] for i in with_form])
        self._equal = [i for i, ids, other in zip(with_form, right, wrong_ids, strict=True) if ids == other]

    def outputs(
        self, nats: Array, wrong_nats: Array, carried_nats: Array | None = None
    ) -> LanguageModelOutputs:
        """Return the inputs of the metrics.

        Args:
            nats: the negative log-probability of each sentence.
            wrong_nats: that of its ungrammatical form; NaN without one.
            carried_nats: see `carried_nats`; None if it is not computed.
        """
        wrong_nats = wrong_nats.copy()
        wrong_nats[self._equal] = nats[self._equal]  # their batches may differ by rounding
        tokens = self.split.tokens
        return LanguageModelOutputs(
            nats=nats,
            tokens=tokens.units.numpy().astype(np.float64),
            lines=self.split.text.lines,
            phenomena=self._phenomena,
            wrong_nats=wrong_nats,
            distances=self.split.text.distances or (),
            carried_nats=carried_nats,
            unknown=float((tokens.tokens.tokens == UNK).sum() / tokens.units.sum()),
        )


class LanguageModelEvaluator(SplitEvaluator[tuple[float, ...]]):
    """Evaluates a model on a split. The result of a sentence has its `batch_nats`, and those of its ungrammatical form.

    With carried state, one batch more has all N sentences as the examples N to 2N − 1. Their results have the
    `carried_nats`, or are empty in a validation that does not monitor them.

    Args:
        carried: whether to evaluate with carried state too, which needs a recurrent decoder.
        batch_size: sentences of a batch.
        samples: the number of sentences to generate.
        length: see `generate`.
        measured: see `SplitEvaluator`.
    """

    split: LanguageModelSplit

    def __init__(
        self,
        model: LanguageModel,
        split: LanguageModelSplit,
        tokenizer: Tokenizer,
        search: Search,
        compute: Compute,
        *,
        carried: bool,
        batch_size: int,
        samples: int,
        length: int,
        **measured: Any,
    ) -> None:
        count = len(split.text)
        super().__init__(
            model,
            split,
            compute,
            plan=[
                *([np.arange(count, 2 * count)] if carried else []),
                *plan_evaluation(split.tokens, batch_size),
            ],
            examples=digest(split.text.lines),
            groupings=(MINIMAL_PAIRS, AGREEMENT),
            clusters=np.arange(count),
            **measured,
        )
        self.tokenizer, self.search = tokenizer, search
        self.samples, self.length, self.batch_size = samples, length, batch_size
        self.sentences = ScoredSentences(split, tokenizer)
        self._batches = SentenceBatches(split.tokens, compute.device)
        self._wrong_batches = SentenceBatches(self.sentences.wrong, compute.device)

    def score(self, index: Index, final: bool) -> Sequence[tuple[float, ...]]:
        """See `SplitEvaluator.score`."""
        if index[0] >= len(self.split.text):
            if not final and CARRIED.name not in self.also:
                return [()] * len(index)
            nats_N = carried_nats(self.model, self.split.tokens, self.compute)
            return [*zip(nats_N.tolist(), strict=True)]
        nats_B, wrong_nats_B = (
            batch_nats(self.model, self._batches(index), self.compute),
            np.full(len(index), np.nan),
        )
        rows = [row for row, i in enumerate(index.tolist()) if i in self.sentences.paired]
        if rows:
            wrong = np.array([self.sentences.paired[i] for i in index[rows].tolist()])
            wrong_nats_B[rows] = batch_nats(self.model, self._wrong_batches(wrong), self.compute)
        return [*zip(nats_B.tolist(), wrong_nats_B.tolist(), strict=True)]

    def outputs(self, results: Sequence[tuple[float, ...]]) -> LanguageModelOutputs:
        """See `SplitEvaluator.outputs`."""
        count = len(self.split.text)
        nats_N, wrong_nats_N = np.array(results[:count]).T
        carried_N = np.array([value for result in results[count:] for value in result])
        return self.sentences.outputs(nats_N, wrong_nats_N, carried_N if len(carried_N) else None)

    def evaluation(
        self, results: object, outputs: LanguageModelOutputs, measurement: Measurement, final: bool
    ) -> LanguageModelEvaluation:
        """See `SplitEvaluator.evaluation`."""
        generated = []
        if self.samples:
            hypotheses = generate(
                self.model,
                self.search,
                [()] * self.samples,
                length=self.length,
                batch_size=self.batch_size,
                compute=self.compute,
            )
            generated = [(text_of(self.tokenizer, best.tokens), best.log_prob) for best, *_ in hypotheses]
        return LanguageModelEvaluation(self.values(measurement), measurement, outputs, generated)
