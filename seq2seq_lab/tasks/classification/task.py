"""Classification as a task: texts with labels, an encoder with a pooling, accuracy."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.batching import plan_evaluation
from seq2seq_lab.data.corpus import corpus_type
from seq2seq_lab.data.labelled import LabelledCorpus, LabelledText, PairCorpus
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenizers import EOS, Tokenizer
from seq2seq_lab.data.tokenizers.turns import TURN, TurnTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.classification import Accuracy, MacroF1
from seq2seq_lab.metrics.measurement import measure
from seq2seq_lab.metrics.significance import Clusters, clusters_of
from seq2seq_lab.models.classifier import Classifier
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.tasks.base import Baseline, Parts, StepInfo
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
)
from seq2seq_lab.tasks.classification.loaded import LoadedClassifier
from seq2seq_lab.tasks.classification.report import ClassificationReport
from seq2seq_lab.tasks.evaluation import Evaluation
from seq2seq_lab.tasks.labelled import LabelledTask, hash_of, of_pairs
from seq2seq_lab.tasks.report import Report
from seq2seq_lab.tasks.settings import ExampleSettings
from seq2seq_lab.tasks.vectors import VectorWords

# If more than this share of so many labels differ, they are not classes but, for example, the numbers of the texts.
FEWEST_TEXTS, MOST_DIFFERENT = 50, 0.9
ClassWeights = Literal["none", "balanced"]
Pairs = Literal["none", "joined", "separate"]


class ClassificationTask(LabelledTask):
    """Classification of texts.

    Args:
        parts: the parts of the model and the data.
        seed: random seed of the order of the texts.
        settings: see `ExampleSettings`.
        class_weights: `balanced`: the loss of a text has the weight of its class; see `balanced_weights`.
        pairs: of a data set of pairs of texts: `joined` reads the two texts as one sequence with `<eos>` between them,
            `separate` one by one; see `PairClassifier`. `none`: the data set has single texts.
        training_examples, vector_words: see `LabelledTask`.

    Raises:
        UserError: the tokenizer has another one for the source.
    """

    name = "classification"
    corpus_type = LabelledCorpus
    uses = frozenset(("dataset", "tokenizer", "encoder", "attention", "pooling", "readout", "initialization"))
    metrics: Sequence[Metric] = METRICS
    groupings = GROUPINGS
    primary = PRIMARY
    unit = "texts"
    loaded = LoadedClassifier
    commands = {  # noqa: RUF012  (a constant)
        "classify lines of text": ("seq2seq_lab.predict", "RUN"),
    }

    def __init__(
        self,
        *,
        parts: Parts,
        seed: int,
        settings: ExampleSettings,
        class_weights: ClassWeights,
        pairs: Pairs,
        training_examples: Count | None,
        vector_words: VectorWords,
    ) -> None:
        self.parts = parts if pairs == "none" else of_pairs(parts, separated=pairs == "joined")
        self.seed, self.settings = seed, settings
        self.eval_batch_size = settings.eval_batch_size
        self.class_weights: ClassWeights = class_weights
        self.pairs: Pairs = pairs
        if pairs != "none":
            self.commands = {
                "classify lines of two texts with a tab between them": ("seq2seq_lab.predict", "RUN")
            }
        self.training_examples, self.vector_words = training_examples, vector_words

    def check(self) -> None:
        super().check()
        if (found := corpus_type(self.parts.dataset())) is not None:
            self._check_kind(found)

    @cached_property
    def corpus(self) -> LabelledCorpus:
        """The texts, or pairs of texts, and their labels.

        Raises:
            UserError: they are pairs with `pairs` none, or the other way round, or most labels have one text only.
        """
        corpus: LabelledCorpus = self.read_corpus()
        self._check_kind(type(corpus))
        labels = corpus.train.labels
        if len(labels) >= FEWEST_TEXTS and len(set(labels)) > MOST_DIFFERENT * len(labels):
            raise UserError(
                f"The training split has {len(set(labels)):,} different labels in {len(labels):,} texts. Choose another "
                "column for the labels, with dataset.columns for tables of your own, or use other data."
            )
        return corpus

    def _check_kind(self, corpus: type) -> None:
        """Raise `UserError` for a corpus of pairs with `pairs` none, or of single texts with another value."""
        if self.pairs == "none" and issubclass(corpus, PairCorpus):
            raise UserError(
                "task.pairs=none: the data set has pairs of texts. Set task.pairs=joined or task.pairs=separate."
            )
        if self.pairs != "none" and not issubclass(corpus, PairCorpus):
            raise UserError(
                f"task.pairs={self.pairs}: the data set has single texts. Set task.pairs=none, or give pairs: "
                f"dataset=sentence_pairs, or dataset=labelled with dataset.columns=[NAME,NAME,NAME]."
            )

    def build(self, vocabulary: int, classes: int) -> Classifier:
        return self.parts.classifier(vocabulary, classes, self.pairs == "separate")

    def label(self, text: LabelledText, ids: Ragged, split: str) -> LabelledTokens:
        labels = self.class_indices(text, split)
        return LabelledTokens(ids, labels, firsts=self._firsts(text.texts, ids, f"the split {split}"))

    def single_texts(self, text: LabelledText) -> Sequence[str]:
        return (
            text.texts if self.pairs == "none" else [one for line in text.texts for one in line.split(TURN)]
        )

    def adapted(self, tokenizer: Tokenizer) -> Tokenizer:
        return tokenizer if self.pairs == "none" else TurnTokenizer.of(tokenizer, self.pairs == "joined")

    def check_pair(self, line: str, where: str) -> None:
        """Refuse a line that is not a pair of texts, if the model reads pairs.

        Raises:
            UserError: names the place of the line.
        """
        if self.pairs != "none" and line.count(TURN) != 1:
            raise UserError(
                f"{where}: {line!r:.200} is not two texts with one tab between them, as task.pairs={self.pairs} needs. "
                f"Correct or remove it."
            )

    def _firsts(self, lines: Sequence[str], ids: Ragged, where: str) -> Tensor | None:
        """Return the number of tokens of the first texts of pairs that are read one by one, else None.

        Raises:
            UserError: a line is not a pair of texts with tokens.
        """
        for number, line in enumerate(lines, start=1):
            self.check_pair(line, f"{where}, number {number}")
        if self.pairs != "separate":
            return None
        encode = self.vocabulary.tokenizer.encode
        counts = Ragged.unframed(encode, [line.partition(TURN)[0] for line in lines], "Tokenizing").lengths
        for i in torch.nonzero((counts == 0) | (counts == ids.lengths)).flatten().tolist():
            raise UserError(f"{where}: a text of {lines[i]!r:.200} has no token. Correct or remove it.")
        return counts

    def training(self) -> LabelledTokens:
        examples: LabelledTokens = self.labelled["train"]
        if self.class_weights == "none":
            return examples
        weights = balanced_weights(examples.labels, len(self.vocabulary.classes))[examples.labels]
        return replace(examples, weights=weights)

    def batches(self, examples: LabelledTokens, device: torch.device) -> TextBatches:
        return TextBatches(examples, device)

    def loss(self, model: Classifier, batch: TextBatch, step: StepInfo) -> Tensor:
        """See `Task.loss`. The penalty of the pooling is not weighted."""
        logits_BC, _, penalty_B = model(batch)
        loss = weighted_cross_entropy(logits_BC, batch.label_B, batch.weight_B, self.settings.label_smoothing)
        if penalty_B is None or not model.pooling.penalizes(step.step):
            return loss
        return loss + penalty_B.sum()

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
            clusters=self.clusters(split),
            also=also,
        )

    def clusters(self, split: ClassificationSplit) -> Clusters:
        """Return the id of each example's cluster: pairs with one first text, such as the hypotheses of a premise."""
        if self.pairs == "none":
            return np.arange(len(split.text.texts))
        return clusters_of(line.partition(TURN)[0] for line in split.text.texts)

    def baselines(self, split: ClassificationSplit) -> Iterator[Baseline]:
        """Yield the results of the most frequent class and, with scikit-learn, of naive Bayes."""
        labels, classes = split.tokens.labels.numpy(), self.vocabulary.classes
        metrics = [metric for metric in self.metrics if type(metric) in (Accuracy, MacroF1)]

        def result(name: str, label: str, probabilities_NC: Array) -> Baseline:
            outputs = ClassificationOutputs(classes, labels, probabilities_NC, [], None, {})
            measurement = measure(
                metrics,
                outputs,
                clusters=self.clusters(split),
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
        if self.pairs == "none":
            return
        second = {name: self._second(self.labelled[name]) for name in ("train", "validation")}
        if (bayes := fit_naive_bayes(second["train"], second["validation"])) is not None:
            probabilities_NC = bayes.probabilities(self._second(split.tokens).tokens, len(classes))
            yield result("second_text", f"second text alone, {bayes.label}", probabilities_NC)

    def _second(self, pairs: LabelledTokens) -> LabelledTokens:
        """Return the second texts of pairs, with the labels of the pairs."""
        firsts, offsets = pairs.firsts, pairs.tokens.offsets
        if firsts is None:  # the first <eos> of a pair ends its first text
            (ends,) = torch.nonzero(pairs.tokens.tokens == EOS, as_tuple=True)
            firsts = ends[torch.searchsorted(ends, offsets[:-1])] + 1 - offsets[:-1]
        texts = replace(pairs, firsts=firsts).texts
        return LabelledTokens(texts.select(torch.arange(1, len(texts), 2)), pairs.labels)

    def predict(self, model: Classifier, lines: Sequence[str], compute: Compute) -> list[ClassPrediction]:
        """Return the class of each text.

        Raises:
            UserError: a text has no tokens.
        """
        classes, tokenizer = self.vocabulary.classes, self.vocabulary.tokenizer
        tokens = self.encode(lines)
        firsts = self._firsts(lines, tokens, "the input")
        texts = LabelledTokens(tokens, torch.zeros(len(lines), dtype=torch.int64), firsts=firsts)
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
                    gated=one.gated,
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
