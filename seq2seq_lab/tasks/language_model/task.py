"""Language modeling as a task: the next token of sentences of one language."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.config.schema import Slot
from seq2seq_lab.config.slots import locate
from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.corpus import check_corpus, load_corpus
from seq2seq_lab.data.ragged import spaced
from seq2seq_lab.data.sentences import SentenceCorpus
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Metric, digest, is_built_in
from seq2seq_lab.metrics.language_model import AGREEMENT, CARRIED, LANGUAGE_MODEL_METRICS, MINIMAL_PAIRS
from seq2seq_lab.metrics.measurement import measure
from seq2seq_lab.models.decoders.base import Decoder, RecurrentDecoder
from seq2seq_lab.models.language_model import LanguageModel
from seq2seq_lab.models.parts import KINDS
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.tasks.base import Baseline, Parts, StepInfo, TaskData, TrainingSplit
from seq2seq_lab.tasks.examples import TrainingExamples
from seq2seq_lab.tasks.language_model.carry import CarriedState, TrainingStreams
from seq2seq_lab.tasks.language_model.data import (
    SentenceBatches,
    SentenceTokens,
    TokenBatch,
    training_sentences,
)
from seq2seq_lab.tasks.language_model.evaluation import (
    LanguageModelEvaluation,
    LanguageModelEvaluator,
    LanguageModelSplit,
    ScoredSentences,
)
from seq2seq_lab.tasks.language_model.loaded import LoadedLanguageModel
from seq2seq_lab.tasks.language_model.ngrams import MOST_NGRAMS, KneserNey
from seq2seq_lab.tasks.language_model.report import end_report, validation_report
from seq2seq_lab.tasks.losses import cross_entropy
from seq2seq_lab.tasks.report import Report
from seq2seq_lab.tasks.sentences import SentenceTask
from seq2seq_lab.tasks.settings import SequenceSettings
from seq2seq_lab.tasks.splits import evaluation_splits

log = logging.getLogger(__name__)

NGRAMS = {"unigram": 1, "trigram": 3}  # the order of each baseline


class LanguageModelTask(SentenceTask):
    """Prediction of the next token of sentences of one language.

    Args:
        parts: the parts of the model, the data and the search.
        seed: seed of the order of the sentences and of the segmentation of a stochastic tokenizer.
        settings: see `SequenceSettings`; with `carry_state`, `batch_size` is the number of streams.
        carry_state: start each sentence from the state after the previous sentence of the text; see `carry`.
        chunk_length: tokens of a chunk with `carry_state`.
        generated_length: the length limits of the search refer to this number of tokens instead of a source length.
    """

    uses = frozenset(("dataset", "tokenizer", "decoder", "attention", "readout", "initialization", "search"))
    metrics: Sequence[Metric] = LANGUAGE_MODEL_METRICS
    groupings = (MINIMAL_PAIRS, AGREEMENT)
    primary = "perplexity_per_word"
    side, tokenizer_name, framed = "target", "sentences", True
    loaded = LoadedLanguageModel
    commands = {  # noqa: RUF012  (a constant)
        "generate sentences": ("seq2seq_lab.predict", "RUN", "--count", "10"),
        "score sentences that you type": ("seq2seq_lab.predict", "RUN", "--log-probs"),
    }

    def __init__(
        self,
        *,
        parts: Parts,
        seed: int,
        settings: SequenceSettings,
        carry_state: bool,
        chunk_length: Count,
        generated_length: Count,
    ) -> None:
        if carry_state and settings.batch_unit == "tokens":
            raise UserError(
                "task.batch_unit=tokens cannot be combined with task.carry_state=true, where task.batch_size is the "
                "number of streams. Set task.batch_unit=sentences."
            )
        self.parts, self.seed, self.settings = parts, seed, settings
        self.eval_batch_size = settings.eval_batch_size
        self.chunk_length = chunk_length
        self.generated_length = generated_length
        self.carried = CarriedState(settings.batch_size) if carry_state else None

    @classmethod
    def replacement(cls, group: str, slot: Slot) -> str:
        if group != "encoder":
            return super().replacement(group, slot)
        return (
            f"A language model is a decoder without a source: instead, write model.cell={slot.get('cell', 'lstm')} (rnn, "
            f"lstm or gru), or decoder=transformer."
        )

    @cached_property
    def corpus(self) -> SentenceCorpus:
        """The sentences."""
        return load_corpus(self.parts.dataset(), SentenceCorpus, "language_model")

    @cached_property
    def decoder_kind(self) -> type[Decoder]:
        """The class of the decoder."""
        kind: type[Decoder] = locate("decoder", dict(self.parts.decoder.settings), KINDS)
        return kind

    def check(self) -> None:
        check_corpus(self.parts.dataset(), SentenceCorpus, "language_model")
        kind, monitor = self.decoder_kind, f"val/{CARRIED.name}"
        for chosen, setting, remedy in (
            (self.carried is not None, "task.carry_state=true", "task.carry_state=false"),
            (self.monitor == monitor, f"trainer.monitor={monitor}", "trainer.monitor=null"),
        ):
            if chosen and not issubclass(kind, RecurrentDecoder):
                raise UserError(
                    f"{setting} needs a recurrent decoder: the state of {kind.__name__} grows with the text. Choose "
                    f"decoder=plain, or set {remedy}."
                )
        with torch.device("meta"):  # without memory: refuses parts that cannot be combined
            self.parts.language_model(8)
        if getattr(self.parts.search(), "needs_attention", False):
            raise UserError(
                "search.coverage_penalty needs a model with attention. Set it to 0 for task=language_model."
            )

    def load(self, cache: Path, saved: Path | None, limit: int | None) -> TaskData:
        key, corpus, tokens = self.tokenize_sentences(cache, saved), self.corpus, self.tokens
        train = training_sentences(
            corpus.train, tokens["train"], self.vocabulary.tokenizer, self.settings.max_length, self.seed
        )
        texts = {"validation": corpus.validation, "test": corpus.test}
        ids = {name: SentenceTokens(tokens[name]) for name in texts}
        splits = evaluation_splits(LanguageModelSplit, texts, ids, limit)
        training: TrainingSplit = TrainingExamples(
            train,
            SentenceBatches,
            batch_size=self.settings.batch_size,
            unit=self.settings.batch_unit,
            seed=self.seed,
        )
        if self.carried is not None:
            training = TrainingStreams(train, self.settings.batch_size, self.chunk_length)
        identity = {"the data or the tokenizer": key}
        return TaskData(
            train=training,
            validation=splits[0],
            tests=splits[1:],
            record=self.data_record(),
            identity=identity,
        )

    def model(self) -> LanguageModel:
        return self.parts.language_model(self.vocabulary.tokenizer.size)

    def loss(self, model: LanguageModel, batch: TokenBatch, step: StepInfo) -> Tensor:
        before = None if self.carried is None else self.carried.get(batch)
        logits_BTV, after = model(batch.inputs_BT, before)
        if self.carried is not None:
            self.carried.put(batch, after)
        return cross_entropy(logits_BTV, batch.outputs_BT, self.settings.label_smoothing)

    def evaluator(
        self, split: LanguageModelSplit, model: LanguageModel, compute: Compute, also: Collection[str] = ()
    ) -> LanguageModelEvaluator:
        return LanguageModelEvaluator(
            model,
            split,
            self.vocabulary.tokenizer,
            self.parts.search(),
            compute,
            carried=isinstance(model.decoder, RecurrentDecoder),
            batch_size=self.eval_batch_size,
            samples=self.settings.samples if split.prefix == "val" else 0,
            length=self.generated_length,
            metrics=self.metrics,
            also=also,
        )

    def describe(self) -> None:
        super().describe()
        if not issubclass(self.decoder_kind, RecurrentDecoder):
            log.info("%s has no recurrent state: %s is left out.", self.decoder_kind.__name__, CARRIED.name)
        count, streams = int((self.tokens["train"].lengths - 1).sum()), self.settings.batch_size
        if self.carried is not None and count <= streams * self.chunk_length:
            log.warning(
                "The training split has %s tokens, not more than task.batch_size=%s streams of one chunk of "
                "task.chunk_length=%s: no state is carried. Decrease one of them.",
                f"{count:,}",
                streams,
                self.chunk_length,
            )

    def baselines(self, split: LanguageModelSplit) -> Iterator[Baseline]:
        """Yield the results of n-gram models of the tokens that the model reads; see `KneserNey`."""
        tokenizer, sentences = self.vocabulary.tokenizer, ScoredSentences(split, self.vocabulary.tokenizer)
        index, of_some = spaced(self.tokens["train"])
        train = self.tokens["train"].select(index) if of_some else self.tokens["train"]
        for name, order in NGRAMS.items():
            if tokenizer.size**order > MOST_NGRAMS:
                log.info(
                    "No %s baseline: the vocabulary of %s types is too large.", name, f"{tokenizer.size:,}"
                )
                continue
            # <pad> and <sos> are never predicted.
            model = KneserNey(order, tokenizer.size, tokenizer.size - 2, train)
            wrong_nats_N = np.full(len(split.text), np.nan)
            if sentences.paired:
                wrong_nats_N[[*sentences.paired]] = model.nats(sentences.wrong.tokens)
            outputs = sentences.outputs(model.nats(split.tokens.tokens), wrong_nats_N)
            measurement = measure(
                [metric for metric in self.metrics if is_built_in(metric)],
                outputs,
                clusters=np.arange(len(split.text)),
                examples=digest(split.text.lines),
                groupings=self.groupings,
                final=True,
            )
            yield Baseline(name, f"{name} model of tokens{of_some}", measurement)

    def report(
        self, split: LanguageModelSplit, evaluation: LanguageModelEvaluation, step: int | None
    ) -> Report:
        return end_report(split, evaluation) if step is None else validation_report(evaluation)

    def state_dict(self, ranks: Ranks) -> dict[str, Any]:
        return {} if self.carried is None else self.carried.state_dict(ranks)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.carried is not None:
            self.carried.load_state_dict(state)
