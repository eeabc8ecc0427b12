"""Answers in a text as a task: questions with texts, an encoder with two pointers, exact match and F1."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.batching import plan_evaluation
from seq2seq_lab.data.labelled import LabelledText
from seq2seq_lab.data.questions import QuestionCorpus, answers_of, context_of, label_of
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.text import describe_counts
from seq2seq_lab.data.tokenizers import UNK, Tokenizer
from seq2seq_lab.data.tokenizers.turns import TurnTokenizer
from seq2seq_lab.metrics.answers import ANSWER_METRICS
from seq2seq_lab.metrics.base import Metric
from seq2seq_lab.metrics.measurement import measure
from seq2seq_lab.models.span import SpanModel
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.tables import sectioned_table
from seq2seq_lab.tasks.base import Baseline, Parts, StepInfo
from seq2seq_lab.tasks.evaluation import Evaluation
from seq2seq_lab.tasks.labelled import LabelledSplit, LabelledTask, hash_of, of_pairs, warn_of_leaks
from seq2seq_lab.tasks.report import Report
from seq2seq_lab.tasks.settings import ExampleSettings
from seq2seq_lab.tasks.span.data import (
    QuestionBatch,
    QuestionBatches,
    QuestionTokens,
    TrainingAnswers,
    clusters,
    question_tokens,
)
from seq2seq_lab.tasks.span.evaluation import (
    GROUPINGS,
    METRICS,
    PRIMARY,
    SpanEvaluator,
    SpanOutputs,
    SpanPrediction,
    answer_questions,
    text_of,
)
from seq2seq_lab.tasks.span.loaded import LoadedSpanModel
from seq2seq_lab.tasks.span.report import SpanReport, shown_tokens
from seq2seq_lab.tasks.text import warn_if_mostly_unknown
from seq2seq_lab.tasks.vectors import VectorWords


class SpanTask(LabelledTask):
    """Answers to questions as spans of a text, which is read after the question, or "no answer".

    Args:
        parts: the parts of the model and the data.
        seed: random seed of the order of the questions.
        settings: see `ExampleSettings`.
        matched_tokens: mark the tokens of the text that the question contains too; see `SpanModel`.
        training_examples, vector_words: see `LabelledTask`.
        longest_answer: the greatest number of tokens of a predicted answer.
        no_answer_threshold: "no answer" is predicted if its log-probability exceeds that of the best answer by more.

    Raises:
        UserError: the tokenizer has another one for the source.
    """

    name = "span"
    corpus_type = QuestionCorpus
    has_classes = False
    uses = frozenset(("dataset", "tokenizer", "encoder", "attention", "initialization"))
    metrics: Sequence[Metric] = METRICS
    groupings = GROUPINGS
    primary = PRIMARY
    unit = "questions"
    loaded = LoadedSpanModel
    commands = {  # noqa: RUF012  (a constant)
        "answer lines of a question, a tab and a text": ("seq2seq_lab.predict", "RUN"),
    }

    def __init__(
        self,
        *,
        parts: Parts,
        seed: int,
        settings: ExampleSettings,
        matched_tokens: bool,
        training_examples: Count | None,
        vector_words: VectorWords,
        longest_answer: Count,
        no_answer_threshold: float,
    ) -> None:
        self.parts, self.seed, self.settings = of_pairs(parts, separated=True), seed, settings
        self.eval_batch_size = settings.eval_batch_size
        self.matched_tokens, self.vector_words = matched_tokens, vector_words
        self.training_examples = training_examples
        self.longest_answer, self.no_answer_threshold = longest_answer, no_answer_threshold

    @cached_property
    def training_answers(self) -> TrainingAnswers:
        """The answers of the training split."""
        return TrainingAnswers(self.corpus.train)

    def adapted(self, tokenizer: Tokenizer) -> Tokenizer:
        return TurnTokenizer.of(tokenizer, True)

    def build(self, vocabulary: int, classes: int) -> SpanModel:
        return self.parts.span_model(vocabulary, self.matched_tokens)

    def label(self, text: LabelledText, ids: Ragged, split: str) -> QuestionTokens:
        return question_tokens(text.texts, text.labels, ids, self.vocabulary.tokenizer, f"the split {split}")

    def batches(self, examples: QuestionTokens, device: torch.device) -> QuestionBatches:
        return QuestionBatches(examples, device)

    def single_texts(self, text: LabelledText) -> Sequence[str]:
        return [context_of(line) for line in text.texts]

    def describe(self) -> None:
        """Print the number of questions with and without an answer of each split, and the share of unknown tokens."""
        splits = self.corpus.splits
        rows = [Counter(bool(answers_of(label)) for label in text.labels) for text in splits.values()]
        unknown = {name: float((ids.tokens == UNK).float().mean()) for name, ids in self.tokens.items()}
        cells = [
            [["with an answer", *(f"{row[True]:,}" for row in rows)]],
            [["no answer", *(f"{row[False]:,}" for row in rows)]],
            [["unknown tokens", *(f"{share:.2%}" for share in unknown.values())], *self.known_rows()],
        ]
        console.print_and_log(sectioned_table("questions", ["", *splits], cells))
        if described := describe_counts(self.corpus.counts):
            console.print_and_log(f"Counted in the corpus: {described}.")
        warn_if_mostly_unknown(unknown["train"], "training texts")
        warn_of_leaks(self.corpus.counts)

    def uniform_loss(self) -> float:
        """See `Task.uniform_loss`; both positions are uniform in each training text."""
        train = self.labelled["train"]
        return float(2 * (train.last - train.null + 1).double().log().mean())

    def loss(self, model: SpanModel, batch: QuestionBatch, step: StepInfo) -> Tensor:
        pointed = model(batch)
        losses = [
            smoothed_loss(log_probs_BS, gold_B, self.settings.label_smoothing)
            for log_probs_BS, gold_B in zip(pointed, batch.answer_B2.unbind(1), strict=True)
        ]
        return torch.stack(losses).sum()

    def evaluator(
        self, split: LabelledSplit, model: SpanModel, compute: Compute, also: Collection[str] = ()
    ) -> SpanEvaluator:
        return SpanEvaluator(
            model,
            split,
            self.vocabulary.tokenizer,
            compute,
            batch_size=self.eval_batch_size,
            longest=self.longest_answer,
            threshold=self.no_answer_threshold,
            metrics=self.metrics,
            also=also,
        )

    def baselines(self, split: LabelledSplit) -> Iterator[Baseline]:
        """Yield the results of three answers that depend on the training answers, and not on the whole question."""
        lines, training = split.text.texts, self.training_answers

        def result(name: str, label: str, answers: list[str]) -> Baseline:
            measurement = measure(
                ANSWER_METRICS,
                SpanOutputs.of(split.text, answers),
                clusters=np.array(clusters(split.text)),
                examples=hash_of(split.text),
                final=True,
            )
            return Baseline(name, label, measurement)

        frequent = [training.most_frequent(line) for line in lines]
        yield result("most_frequent", "most frequent answer to the first word of the question", frequent)
        place = [training.at_most_frequent_place(line) for line in lines]
        yield result("place", "words at the most frequent place of an answer", place)
        if not all(answers_of(label) for label in split.text.labels):
            yield result("no_answer", "no answer", [""] * len(lines))

    def predict(self, model: SpanModel, lines: Sequence[str], compute: Compute) -> list[SpanPrediction]:
        """Return the answer to each question.

        Raises:
            UserError: a line is not a question and a text with a tab between them, or one of them has no token.
        """
        tokenizer = self.vocabulary.tokenizer
        none = [label_of([])] * len(lines)
        questions = question_tokens(lines, none, self.encode(lines), tokenizer, "the input")
        batches, predictions = QuestionBatches(questions, compute.device), dict[int, SpanPrediction]()
        limits: Any = self.longest_answer, self.no_answer_threshold
        for index in plan_evaluation(questions, self.eval_batch_size):
            answered = answer_questions(model, batches(index), compute, *limits)
            for i, one in zip(index.tolist(), answered, strict=True):
                null, last = int(questions.null[i]), int(questions.last[i])
                predictions[i] = SpanPrediction(
                    source=lines[i],
                    text=text_of(lines[i], tokenizer.spans(lines[i]), null, one),
                    score=float(np.exp(one.log_prob)),
                    tokens=shown_tokens(tokenizer, lines[i], null, last),
                    weights_2S=one.weights_2S,
                    found=(one.first, one.last),
                    unknown_words=tokenizer.unknown_words(lines[i]),
                )
        return [predictions[i] for i in range(len(lines))]

    def report(self, split: LabelledSplit, evaluation: Evaluation, step: int | None) -> Report:
        shown = SpanReport(split, evaluation, self.vocabulary.tokenizer)
        return shown.end() if step is None else shown.validation(self.settings.samples)


def smoothed_loss(log_probs_BS: Tensor, gold_B: Tensor, label_smoothing: float) -> Tensor:
    """Return the sum of the cross-entropies of B positions; label smoothing is over the positions that are not -inf."""
    loss_B = -log_probs_BS.gather(1, gold_B[:, None])[:, 0]
    if label_smoothing:
        possible_BS = log_probs_BS > float("-inf")
        mean_B = log_probs_BS.masked_fill(~possible_BS, 0).sum(1) / possible_BS.sum(1)
        loss_B = (1 - label_smoothing) * loss_B - label_smoothing * mean_B
    return loss_B.sum()
