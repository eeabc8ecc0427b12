"""Classification as a task: texts with labels, an encoder with a pooling, accuracy."""

import hashlib
import logging
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seq2seq_lab.data.batching import plan_evaluation
from seq2seq_lab.data.corpus import check_corpus, load_corpus
from seq2seq_lab.data.labelled import LabelledCorpus
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.text import describe_counts
from seq2seq_lab.data.token_cache import cached_tokens, text_key
from seq2seq_lab.data.tokenizers import UNK
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.classification import Accuracy, MacroF1
from seq2seq_lab.metrics.measurement import measure
from seq2seq_lab.models.classifier import Classifier
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.tables import sectioned_table
from seq2seq_lab.tasks.base import Baseline, Parts, StepInfo, Task, TaskData, refuse_dropout
from seq2seq_lab.tasks.classification.baselines import class_shares, fit_naive_bayes
from seq2seq_lab.tasks.classification.data import (
    ClassificationSplit,
    LabelledTokens,
    TextBatch,
    TextBatches,
)
from seq2seq_lab.tasks.classification.evaluation import (
    GROUPINGS,
    METRICS,
    PRIMARY,
    ClassificationEvaluator,
    ClassificationOutputs,
    ClassPrediction,
    classify,
    hash_of,
)
from seq2seq_lab.tasks.classification.loaded import LoadedClassifier
from seq2seq_lab.tasks.classification.report import ClassificationReport
from seq2seq_lab.tasks.evaluation import Evaluation
from seq2seq_lab.tasks.examples import TrainingExamples
from seq2seq_lab.tasks.report import Report
from seq2seq_lab.tasks.settings import ExampleSettings
from seq2seq_lab.tasks.splits import evaluation_splits
from seq2seq_lab.tasks.text import Vocabulary, corpus_record
from seq2seq_lab.tasks.vectors import load_vectors

log = logging.getLogger(__name__)

ClassWeights = Literal["none", "balanced"]
NAME = "source"  # of the tokenizer's files
DROPPED = "dropped_duplicates"  # a count of the corpus; see `Names.load`


class ClassificationTask(Task):
    """Classification of texts.

    Args:
        parts: the parts of the model and the data.
        seed: random seed of the order of the texts.
        settings: see `ExampleSettings`.
        class_weights: `balanced`: the loss of a text has the weight of its class; see `balanced_weights`.
    """

    uses = frozenset(("dataset", "tokenizer", "encoder", "attention", "pooling", "readout", "initialization"))
    sources = ("tokens", "subwords")
    metrics: Sequence[Metric] = METRICS
    groupings = GROUPINGS
    primary = PRIMARY
    unit = "texts"
    files = ("tokenizer",)
    loaded = LoadedClassifier
    commands = {  # noqa: RUF012  (a constant)
        "classify lines of text": ("seq2seq_lab.predict", "RUN"),
    }

    tokens: dict[str, Ragged]
    vocabulary: Vocabulary
    labelled: dict[str, LabelledTokens]

    def __init__(
        self, *, parts: Parts, seed: int, settings: ExampleSettings, class_weights: ClassWeights
    ) -> None:
        self.parts, self.seed, self.settings = parts, seed, settings
        self.eval_batch_size = settings.eval_batch_size
        self.class_weights: ClassWeights = class_weights

    @cached_property
    def corpus(self) -> LabelledCorpus:
        """The texts and their labels."""
        return load_corpus(self.parts.dataset(), LabelledCorpus, "classification")

    def check(self) -> None:
        """Build the model without memory, so that parts that cannot be combined are refused before data is read."""
        check_corpus(self.parts.dataset(), LabelledCorpus, "classification")
        refuse_dropout(self.parts.tokenizer(), "classification")
        with torch.device("meta"):
            self.parts.classifier(8, 2)

    def data_record(self) -> dict[str, Any]:
        corpus = self.corpus
        hashes = {
            name: hashlib.sha256(Lines.of(text.texts).digest() + Lines.of(text.labels).digest()).hexdigest()
            for name, text in corpus.splits.items()
        }
        return corpus_record(corpus, hashes, {"test": hashes["test"]})

    def load(self, cache: Path, saved: Path | None, limit: int | None) -> TaskData:
        corpus = self.corpus
        if len(corpus.classes) < 2:
            raise UserError(
                f"The training split has {len(corpus.classes)} class, and classification needs at least 2. Use other data."
            )
        fitted = None if saved is None else load_vocabulary(saved / "tokenizer")
        if (initial := self.initial_tokenizers.get("source")) is not None:
            fitted = Vocabulary(initial, NAME, [*corpus.classes])
        texts = {name: split.texts for name, split in corpus.splits.items()}
        about = [corpus.language, corpus.classes]
        own = self.parts.source_tokenizer(True)
        key = text_key(texts, about, self.parts.tokenizer.settings if own is None else own.options(), fitted)

        def build() -> tuple[Vocabulary, list[Ragged]]:
            vocabulary = fitted or self._fit(corpus)
            encode = vocabulary.tokenizer.encode
            return vocabulary, [Ragged.unframed(encode, texts[name], f"Tokenizing {name}") for name in texts]

        entry = cached_tokens(key, [*texts], cache, build=build, load=load_vocabulary)
        self.vocabulary, self.tokens = entry.tokenizers, entry.ids
        for name, ids in self.tokens.items():
            if int(ids.lengths.min()) == 0:
                line = texts[name][int(ids.lengths.argmin())]
                raise UserError(
                    f"{line!r} of the split {name} has no token. Remove it, or use another tokenizer."
                )
        labelled = self.labelled = {
            name: LabelledTokens(self.tokens[name], self.vocabulary.class_indices(text.labels, name))
            for name, text in corpus.splits.items()
        }
        held_out = {"validation": corpus.validation, "test": corpus.test}
        validation, test = evaluation_splits(ClassificationSplit, held_out, labelled, limit)
        training = labelled["train"]
        if self.class_weights == "balanced":
            weights = balanced_weights(training.labels, len(self.vocabulary.classes))[training.labels]
            training = replace(training, weights=weights)
        train = TrainingExamples(
            lambda epoch: training, TextBatches, self.settings.batch_size, "sentences", self.seed
        )
        return TaskData(
            train=train,
            validation=validation,
            tests=[test],
            record=self.data_record(),
            identity={"the data or the tokenizer": key},
        )

    def _fit(self, corpus: LabelledCorpus) -> Vocabulary:
        """Return the vocabulary of the training split."""
        tokenizer = self.parts.source_tokenizer(True) or self.parts.tokenizer()
        return Vocabulary.fitted(tokenizer, NAME, corpus.language, corpus.train.texts, corpus.classes)

    def open(self, folder: Path) -> None:
        self.vocabulary = load_vocabulary(folder / "tokenizer")
        tokenizer = self.parts.source_tokenizer(True) or self.parts.tokenizer()
        tokenizer.check_saved(self.vocabulary.tokenizer, folder / "tokenizer")

    def save(self, folder: Path) -> None:
        self.vocabulary.save(folder / "tokenizer")

    def model(self) -> Classifier:
        return self.parts.classifier(self.vocabulary.tokenizer.size, len(self.vocabulary.classes))

    def load_pretrained(self, model: Classifier) -> None:
        tokenizer, tokens = self.vocabulary.tokenizer, self.tokens["train"].tokens
        load_vectors(self.parts, "source", model.source_embedding, model.dropout.scale, tokenizer, tokens)

    def describe(self) -> None:
        """Print the number of texts of each class and split, dropped duplicates, and the share of unknown tokens."""
        splits, corpus_counts = self.corpus.splits, self.corpus.counts
        columns = {name: Counter(text.labels) for name, text in splits.items()}
        if corpus_counts.get(DROPPED):
            columns[DROPPED.replace("_", " ")] = Counter(
                {name: corpus_counts.get(f"{DROPPED}/{name}", 0) for name in self.vocabulary.classes}
            )
        counts = [
            [name, *(f"{column[name]:,}" for column in columns.values())] for name in self.vocabulary.classes
        ]
        total = ["all", *(f"{column.total():,}" for column in columns.values())]
        unknown = [f"{float((ids.tokens == UNK).float().mean()):.2%}" for ids in self.tokens.values()]
        unknown += [""] * (len(columns) - len(unknown))
        rows = [counts, [total, ["unknown tokens", *unknown]]]
        console.print_and_log(sectioned_table("texts by class", ["class", *columns], rows))
        if described := describe_counts(corpus_counts):
            log.info("Counted in the corpus: %s.", described)

    def loss(self, model: Classifier, batch: TextBatch, step: StepInfo) -> Tensor:
        """See `Task.loss`. The penalty of the pooling is not weighted."""
        logits_BC, _, penalty_B = model(batch)
        loss = weighted_cross_entropy(logits_BC, batch.label_B, batch.weight_B, self.settings.label_smoothing)
        if penalty_B is None or not model.pooling.penalizes(step.step):
            return loss
        return loss + penalty_B.sum()

    def uniform_loss(self) -> float:
        return math.log(len(self.vocabulary.classes))

    def evaluator(
        self, split: ClassificationSplit, model: Classifier, compute: Compute, also: Collection[str] = ()
    ) -> ClassificationEvaluator:
        return ClassificationEvaluator(
            model,
            split,
            self.vocabulary,
            compute,
            batch_size=self.eval_batch_size,
            metrics=self.metrics,
            also=also,
        )

    def baselines(self, split: ClassificationSplit) -> Iterator[Baseline]:
        """Yield the results of the most frequent class and, with scikit-learn, of naive Bayes."""
        labels, classes = split.tokens.labels.numpy(), self.vocabulary.classes
        metrics = [metric for metric in self.metrics if type(metric) in (Accuracy, MacroF1)]

        def result(name: str, label: str, probabilities_NC: Array) -> Baseline:
            outputs = ClassificationOutputs(classes, labels, probabilities_NC, [], None, {})
            measurement = measure(
                metrics,
                outputs,
                clusters=np.arange(len(labels)),
                examples=hash_of(split.text),
                groupings=GROUPINGS,
                final=True,
            )
            return Baseline(name, label, measurement)

        shares_C = class_shares(self.labelled["train"].labels, len(classes))
        yield result("most_frequent", "most frequent class", np.tile(shares_C, (len(labels), 1)))
        if (bayes := fit_naive_bayes(self.labelled["train"], self.labelled["validation"])) is not None:
            probabilities_NC = bayes.probabilities(split.tokens.tokens, len(classes))
            yield result("naive_bayes", bayes.label, probabilities_NC)

    def predict(self, model: Classifier, lines: Sequence[str], compute: Compute) -> list[ClassPrediction]:
        """Return the class of each text.

        Raises:
            UserError: a text has no tokens.
        """
        classes, tokenizer = self.vocabulary.classes, self.vocabulary.tokenizer
        tokens = Ragged.unframed(tokenizer.encode, lines, "Tokenizing")
        if len(lines) and int(tokens.lengths.min()) == 0:
            empty = int(tokens.lengths.argmin())
            raise UserError(f"line {empty + 1}: {lines[empty]!r} has no token. Remove the line.")
        texts = LabelledTokens(tokens, torch.zeros(len(lines), dtype=torch.int64))
        batches, predictions = TextBatches(texts, compute.device), dict[int, ClassPrediction]()
        for index in plan_evaluation(texts, self.eval_batch_size):
            for i, one in zip(index.tolist(), classify(model, batches(index), compute), strict=True):
                order = np.argsort(-one.probabilities_C, kind="stable")
                ranked = {classes[k]: float(one.probabilities_C[k]) for k in order}
                words = tokenizer.marked_texts(lines[i], tokenizer.spans(lines[i]))
                predictions[i] = ClassPrediction(
                    source=lines[i],
                    text=classes[order[0]],
                    score=ranked[classes[order[0]]],
                    probabilities=ranked,
                    tokens=words,
                    unknown_words=tokenizer.unknown_words(lines[i]),
                    weights=one.weights_S,
                    attends=one.attends,
                )
        return [predictions[i] for i in range(len(lines))]

    def report(self, split: ClassificationSplit, evaluation: Evaluation, step: int | None) -> Report:
        shown = ClassificationReport(split, evaluation, self.vocabulary)
        return shown.end() if step is None else shown.validation(self.settings.samples)


def weighted_cross_entropy(
    logits_BC: Tensor, label_B: Tensor, weight_B: Tensor | None, label_smoothing: float
) -> Tensor:
    """Return the sum of the cross-entropies of B texts, each times its weight; None: every weight is 1.

    Without label smoothing this is the sum of `torch.nn.functional.cross_entropy` with class weights. With it,
    the weight of the text applies to the whole loss. In torch, each class in the smoothing term has a weight of its own.
    """
    reduction = "sum" if weight_B is None else "none"
    loss = functional.cross_entropy(
        logits_BC.float(), label_B, reduction=reduction, label_smoothing=label_smoothing
    )
    return loss if weight_B is None else loss @ weight_B


def balanced_weights(labels: Tensor, classes: int) -> Tensor:
    """Return the weight n / (K n_k) of each class, as `class_weight="balanced"` in scikit-learn: float32, `classes`.

    n is the number of texts, n_k that of class k, and K the number of classes that occur. Every class has the same total
    weight, and the mean weight of the n texts is 1: the loss per text keeps its unit.

    Args:
        labels: the index of the class of each training text.
        classes: the number of classes; one without a text has the weight 0.
    """
    count_C = torch.bincount(labels, minlength=classes).float()
    weight_C = len(labels) / (count_C.count_nonzero() * count_C)
    return weight_C.where(count_C > 0, 0.0)


def load_vocabulary(folder: Path) -> Vocabulary:
    """Read the vocabulary of a run; see `Vocabulary.load`."""
    return Vocabulary.load(folder, NAME, with_classes=True)
