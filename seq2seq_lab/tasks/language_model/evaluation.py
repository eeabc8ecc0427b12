"""Evaluation of a language model on a split, and generation."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seq2seq_lab.data.batching import plan_evaluation
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.sentences import Sentences
from seq2seq_lab.data.text import one_line
from seq2seq_lab.data.tokenizers import PAD, SOS, Tokenizer
from seq2seq_lab.metrics.base import Array, Measurement, Metric, digest, measure
from seq2seq_lab.metrics.language_model import MINIMAL_PAIRS
from seq2seq_lab.models.language_model import LanguageModel
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.search.base import Hypothesis, Search
from seq2seq_lab.tasks import base
from seq2seq_lab.tasks.language_model.data import SentenceBatches, SentenceTokens


@dataclass(frozen=True, slots=True)
class LanguageModelSplit:
    """A split to evaluate.

    Attributes:
        prefix: prefix of its metrics: `val` or `test`.
    """

    prefix: str
    text: Sentences
    tokens: SentenceTokens


@dataclass(frozen=True, slots=True)
class GenerationBatch:
    """B sentences to generate; see `search.base.SearchBatch` and `models.language_model.Beginnings`."""

    index_B: Tensor
    beginning_BP: Tensor
    source_lengths: tuple[int, ...]


@dataclass(frozen=True)
class LanguageModelOutputs:
    """What the metrics are computed from; see `metrics.language_model.SentenceScores`."""

    nats: Array
    tokens: Array
    lines: Sequence[str]
    phenomena: Sequence[str | None]
    wrong_nats: Array


@dataclass(frozen=True)
class Evaluation(base.Evaluation):
    """The result of evaluating a split.

    Attributes:
        outputs: in the order of the split.
        generated: generated sentences with their log-probabilities.
    """

    outputs: LanguageModelOutputs
    generated: Sequence[tuple[str, float]]


@torch.no_grad()
def sentence_nats(
    model: LanguageModel,
    sentences: SentenceTokens,
    batch_size: int,
    compute: Compute,
    counted: base.Counted | None = None,
) -> Array:
    """Return the negative log-probability in nats of each sentence with its end, from the state 0.

    Each rank computes its share of the batches; all ranks return the same array.
    """
    ranks = compute.ranks
    plan = plan_evaluation(sentences, batch_size)[ranks.rank :: ranks.size]
    batches = SentenceBatches(sentences, compute.device)
    share: dict[int, float] = {}
    for number, index in enumerate(plan, start=1):
        batch = batches(index)
        with evaluation_context(batch, compute.precision, compute.device):
            logits_BTV, _ = model(batch.inputs_BT, None)
            loss_N = functional.cross_entropy(
                logits_BTV.float().flatten(0, 1),
                batch.outputs_BT.flatten(),
                ignore_index=PAD,
                reduction="none",
            )
            loss_BT = loss_N.view_as(batch.outputs_BT)
        # Read on the host and summed there in float64, which MPS does not support.
        share |= zip(index.tolist(), to_host(loss_BT).sum(1, dtype=np.float64).tolist(), strict=True)
        if counted is not None:
            counted(number, len(plan))
    nats = np.empty(len(sentences.lengths))
    for one in ranks.gather(share):
        nats[[*one]] = [*one.values()]
    return nats


@torch.no_grad()
def generate(
    model: LanguageModel,
    search: Search,
    beginning: Sequence[int],
    count: int,
    length: int,
    compute: Compute,
    first: int = 0,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of `count` sentences with the same beginning, without the beginning.

    Args:
        beginning: token ids, empty for whole sentences.
        length: the number of tokens that the length limits of the search refer to.
        first: the number of the first sentence; the draws of `search=sampling` depend on it.
    """
    device = compute.device
    beginning_BP = torch.tensor([[SOS, *beginning]], device=device).expand(count, -1)
    index_B = torch.arange(first, first + count, device=device)
    batch = GenerationBatch(index_B, beginning_BP, (length,) * count)
    with evaluation_context(batch, compute.precision, device):
        return search(model, batch, False)


def text_of(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Return generated tokens as one line of text."""
    return one_line(tokenizer.decode(tokens))


class ScoredSentences:
    """What the metrics of a split need besides the probabilities of its sentences.

    Attributes:
        wrong: the ungrammatical forms of the sentences that have one.
    """

    def __init__(self, split: LanguageModelSplit, tokenizer: Tokenizer) -> None:
        self.split = split
        contrasts = split.text.contrasts or [None] * len(split.text)
        self._phenomena = [None if one is None else one.phenomenon for one in contrasts]
        self._paired = [number for number, one in enumerate(contrasts) if one is not None]
        wrong = [one.ungrammatical for one in contrasts if one is not None]
        wrong_ids = tokenizer.encode(wrong)
        self.wrong = SentenceTokens(Ragged.of(wrong_ids))
        right = tokenizer.encode([split.text.lines[number] for number in self._paired])
        self._equal = [
            number for number, one, other in zip(self._paired, right, wrong_ids, strict=True) if one == other
        ]

    def outputs(self, nats: Array, nats_of_wrong: Array) -> LanguageModelOutputs:
        """Return what the metrics are computed from.

        Args:
            nats: the negative log-probability of each sentence.
            nats_of_wrong: that of each sentence of `wrong`.
        """
        wrong_nats = np.full(len(nats), np.nan)
        wrong_nats[self._paired] = nats_of_wrong
        wrong_nats[self._equal] = nats[self._equal]  # their batches may differ by rounding
        return LanguageModelOutputs(
            nats=nats,
            tokens=self.split.tokens.units.numpy().astype(np.float64),
            lines=self.split.text.lines,
            phenomena=self._phenomena,
            wrong_nats=wrong_nats,
        )


def measure_sentences(
    metrics: Sequence[Metric], outputs: LanguageModelOutputs, final: bool, also: Collection[str] = ()
) -> Measurement:
    """Compute the metrics of a split; see `measure`."""
    return measure(
        metrics,
        outputs,
        clusters=np.arange(len(outputs.lines)),
        examples=digest(outputs.lines),
        groupings=(MINIMAL_PAIRS,),
        final=final,
        also=also,
    )


class LanguageModelEvaluator:
    """Evaluates a model on a split; all ranks return the same evaluation.

    Args:
        batch_size: sentences of a batch.
        samples: the number of sentences to generate.
        length: see `generate`.
        metrics: the metrics of the task.
        also: names of metrics of the final evaluation to compute at each validation.
    """

    def __init__(
        self,
        model: LanguageModel,
        split: LanguageModelSplit,
        tokenizer: Tokenizer,
        search: Search,
        *,
        batch_size: int,
        samples: int,
        length: int,
        compute: Compute,
        metrics: Sequence[Metric],
        also: Collection[str],
    ) -> None:
        self.model, self.split, self.tokenizer, self.search = model, split, tokenizer, search
        self.batch_size, self.samples, self.length = batch_size, samples, length
        self.compute, self.metrics, self.also = compute, metrics, also
        self.sentences = ScoredSentences(split, tokenizer)

    def __call__(self, final: bool = False, counted: base.Counted | None = None) -> Evaluation:
        """Evaluate the split; see `tasks.base.Evaluator`."""
        self.model.eval()
        nats = sentence_nats(self.model, self.split.tokens, self.batch_size, self.compute, counted)
        wrong = self.sentences.wrong
        nats_of_wrong: Array = np.zeros(0)
        if len(wrong.tokens):
            nats_of_wrong = sentence_nats(self.model, wrong, self.batch_size, self.compute)
        outputs = self.sentences.outputs(nats, nats_of_wrong)
        return self.compute.ranks.broadcast(lambda: self._evaluation(outputs, final))

    def _evaluation(self, outputs: LanguageModelOutputs, final: bool) -> Evaluation:
        measurement = measure_sentences(self.metrics, outputs, final, self.also)
        values = {f"{self.split.prefix}/{name}": value for name, value in measurement.values.items()}
        generated = []
        if self.samples:
            hypotheses = generate(self.model, self.search, (), self.samples, self.length, self.compute)
            generated = [(text_of(self.tokenizer, best.tokens), best.log_prob) for best, *_ in hypotheses]
        return Evaluation(values, measurement, outputs, generated)
