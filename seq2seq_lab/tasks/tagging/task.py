"""Tagging as a task: a tag for each word, an encoder, accuracy and F1 of entities."""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.batching import plan_evaluation
from seq2seq_lab.data.labelled import LabelledText, TaggedCorpus
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.metrics.base import Metric
from seq2seq_lab.metrics.measurement import measure
from seq2seq_lab.metrics.tagging import TAGGING_METRICS
from seq2seq_lab.models.classifier import Tagger
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.tasks.base import Baseline, Parts, StepInfo
from seq2seq_lab.tasks.evaluation import Evaluation
from seq2seq_lab.tasks.labelled import LabelledSplit, LabelledTask, hash_of
from seq2seq_lab.tasks.report import Report
from seq2seq_lab.tasks.settings import ExampleSettings
from seq2seq_lab.tasks.tagging.data import (
    IGNORED,
    TaggedBatch,
    TaggedBatches,
    TaggedTokens,
    TrainingWords,
    first_tokens,
)
from seq2seq_lab.tasks.tagging.evaluation import (
    METRICS,
    PRIMARY,
    TaggingEvaluator,
    TaggingOutputs,
    TagPrediction,
    tag_texts,
)
from seq2seq_lab.tasks.tagging.loaded import LoadedTagger
from seq2seq_lab.tasks.tagging.report import TaggingReport
from seq2seq_lab.tasks.vectors import VectorWords


class TaggingTask(LabelledTask):
    """Tagging of words, which are separated by white space. A word has the tag that is predicted at its first token.

    Args:
        parts: the parts of the model and the data.
        seed: random seed of the order of the texts.
        settings: see `ExampleSettings`.
        training_examples, vector_words: see `LabelledTask`.
    """

    name = "tagging"
    corpus_type = TaggedCorpus
    uses = frozenset(("dataset", "tokenizer", "encoder", "readout", "initialization"))
    metrics: Sequence[Metric] = METRICS
    primary = PRIMARY
    unit = "words"
    loaded = LoadedTagger
    commands = {  # noqa: RUF012  (a constant)
        "tag lines of text": ("seq2seq_lab.predict", "RUN"),
    }

    def __init__(
        self,
        *,
        parts: Parts,
        seed: int,
        settings: ExampleSettings,
        training_examples: Count | None,
        vector_words: VectorWords,
    ) -> None:
        self.parts, self.seed, self.settings = parts, seed, settings
        self.training_examples, self.vector_words = training_examples, vector_words
        self.eval_batch_size = settings.eval_batch_size

    @cached_property
    def words(self) -> TrainingWords:
        """The words of the training split."""
        return TrainingWords(
            self.corpus.train, {name: index for index, name in enumerate(self.vocabulary.classes)}
        )

    def build(self, vocabulary: int, classes: int) -> Tagger:
        return self.parts.tagger(vocabulary, classes)

    def label(self, text: LabelledText, ids: Ragged, split: str) -> TaggedTokens:
        tokenizer, where = self.vocabulary.tokenizer, f"the split {split}"
        firsts = [first_tokens(line, tokenizer, where) for line in text.texts]
        return TaggedTokens.of(ids, firsts, self.class_indices(text, split))

    def batches(self, examples: TaggedTokens, device: torch.device) -> TaggedBatches:
        return TaggedBatches(examples, device)

    def loss(self, model: Tagger, batch: TaggedBatch, step: StepInfo) -> Tensor:
        return functional.cross_entropy(
            model(batch).flatten(0, 1).float(),
            batch.label_BS.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
            label_smoothing=self.settings.label_smoothing,
        )

    def evaluator(
        self, split: LabelledSplit, model: Tagger, compute: Compute, also: Collection[str] = ()
    ) -> TaggingEvaluator:
        return TaggingEvaluator(
            model,
            split,
            self.words,
            self.vocabulary.classes,
            compute,
            batch_size=self.eval_batch_size,
            metrics=self.metrics,
            also=also,
        )

    def baselines(self, split: LabelledSplit) -> Iterator[Baseline]:
        """Yield the result of the most frequent tag of each word."""
        predicted = [self.words.tags(line) for line in split.text.texts]
        outputs = TaggingOutputs.of(split, self.words, self.vocabulary.classes, predicted)
        measurement = measure(
            TAGGING_METRICS,
            outputs,
            clusters=np.arange(len(predicted)),
            examples=hash_of(split.text),
            final=True,
        )
        yield Baseline("most_frequent", "most frequent tag of each word", measurement)

    def predict(self, model: Tagger, lines: Sequence[str], compute: Compute) -> list[TagPrediction]:
        """Return the tags of each text.

        Raises:
            UserError: a text, or a word of it, has no token.
        """
        classes, tokenizer = self.vocabulary.classes, self.vocabulary.tokenizer
        tokens = self.encode(lines)
        firsts = [first_tokens(line, tokenizer, f"line {i}") for i, line in enumerate(lines, start=1)]
        none = torch.zeros(sum(map(len, firsts)), dtype=torch.int64)
        texts = TaggedTokens.of(tokens, firsts, none)
        batches, predictions = TaggedBatches(texts, compute.device), dict[int, TagPrediction]()
        for index in plan_evaluation(texts, self.eval_batch_size):
            for i, row_WC in zip(
                index.tolist(), tag_texts(model, texts, batches, index, compute), strict=True
            ):
                tags = [classes[k] for k in row_WC.argmax(1)]
                predictions[i] = TagPrediction(
                    source=lines[i],
                    text=" ".join(tags),
                    score=float(np.log(row_WC.max(1)).sum()),
                    words=re.findall(r"\S+", lines[i]),
                    tags=tags,
                    classes=classes,
                    probabilities_WC=row_WC,
                    unknown_words=tokenizer.unknown_words(lines[i]),
                )
        return [predictions[i] for i in range(len(lines))]

    def report(self, split: LabelledSplit, evaluation: Evaluation, step: int | None) -> Report:
        shown = TaggingReport(split, evaluation)
        return shown.end() if step is None else shown.validation(self.settings.samples)
