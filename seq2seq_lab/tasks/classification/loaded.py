"""A trained classifier in Python."""

import itertools
import math
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seq2seq_lab.analysis.questions import Question, ask_class
from seq2seq_lab.analysis.search_input import Prefix, text_source
from seq2seq_lab.analysis.traced import Alternative, Token, Traced, TracedOutput, TracedSource, TracedStep
from seq2seq_lab.analysis.tracing import TOP, attention_fields
from seq2seq_lab.data.local_files import composed
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.errors import UserError, require
from seq2seq_lab.metrics.significance import Clusters
from seq2seq_lab.tasks.classification.data import LabelledTokens, TextBatches
from seq2seq_lab.tasks.classification.evaluation import ClassPrediction
from seq2seq_lab.tasks.loaded import Loaded, check_length

SALIENCY = "The pooling has no weights: the row has the norms of the gradients of the class by token, scaled to the sum 1."


@dataclass(frozen=True, repr=False)
class LoadedClassifier(Loaded):
    """A trained classifier; its predictions are `ClassPrediction`s."""

    options = frozenset({"nbest", "weights", "attention", "light"})

    def check_input(self, line: str, where: str, longest: int) -> None:
        """Refuse a line without tokens, with more than `longest`, or that is not a pair if the model reads pairs."""
        self.task.check_pair(line, where)
        check_length(self.task.vocabulary.tokenizer, line, where, longest, empty=False)

    def predict(self, inputs: Sequence[str], **options: Any) -> list[ClassPrediction]:
        """Return the most probable class of each text; see `nbest`."""
        found: list[ClassPrediction] = super().predict(inputs, n=1, **options)
        return found

    def questions(self, split: Any, model: Any = None) -> Callable[[int], Question]:
        """See `Loaded.questions`; the output is the most probable class."""
        self._refuse_separate()
        batches, vocabulary = TextBatches(split.tokens, self.device), self.task.vocabulary

        def question(index: int) -> Question:
            line = split.text.texts[index]
            return ask_class(
                self.model if model is None else model,
                batches(np.array([index])),
                index,
                line=line,
                spans=vocabulary.tokenizer.spans(line),
                classes=vocabulary.classes,
            )

        return question

    def clusters(self, split: Any) -> Clusters:
        """See `Loaded.clusters`."""
        found: Clusters = self.task.clusters(split)
        return found

    def question(self, source: str, target: str = "") -> Question:
        """See `Loaded.question`; the target is not used."""
        self._refuse_separate()
        self.check_input(source, "source", self.longest_input)
        source = composed(source)
        tokens = Ragged.unframed(self.task.vocabulary.tokenizer.encode, [source], "Tokenizing")
        text = LabelledTokens(tokens, torch.zeros(1, dtype=torch.int64))
        return ask_class(
            self.model,
            TextBatches(text, self.device)(np.array([0])),
            0,
            line=source,
            spans=self.task.vocabulary.tokenizer.spans(source),
            classes=self.task.vocabulary.classes,
        )

    def _refuse_separate(self) -> None:
        if self.task.pairs == "separate":
            raise UserError(
                "Runs with task.pairs=separate have no attributions: the model reads two texts one by one. Use a run with "
                "task.pairs=joined."
            )

    def trace(
        self,
        sentence: str | Path,
        prefix: Prefix = (),
        change: Any = None,
        *,
        top: int = TOP,
        check: Callable[[], None] | None = None,
        **options: Any,
    ) -> Traced:
        """Return the classes of a text as a trace with one step and no search: the most probable ones as its next tokens.

        Raises:
            UserError: an argument that needs a search.
        """
        given = [
            name for name, value in {"prefix": len(prefix), "change": change, **options}.items() if value
        ]
        if given:
            raise UserError(
                f"trace: a classifier has no search, so it takes only a sentence. Omit {', '.join(given)}."
            )
        require(isinstance(sentence, str), "sentence", repr(sentence), "a text")
        (best,) = self.predict([str(sentence)])
        source, groups = text_source(composed(str(sentence)), self.task.vocabulary.tokenizer, "tokens")
        return traced_classes(
            best, self.task_name, source, groups=groups, classes=self.task.vocabulary.classes, top=top
        )

    def nbest_arguments(self, given: Collection[str]) -> dict[str, Any]:
        """See `Loaded.nbest_arguments`."""
        return {} if "nbest" in given else {"n": 1}

    def nbest(
        self, inputs: Sequence[str], first: int = 0, n: int | None = None
    ) -> list[list[ClassPrediction]]:
        """Return the classes of each text, the most probable first; see `Loaded.nbest`.

        Args:
            n: the number of classes to return; None for all.

        Raises:
            UserError: `inputs` is not a list, or a text has no tokens.
        """
        return [
            [
                replace(best, text=label, score=value)
                for label, value in itertools.islice(best.probabilities.items(), n)
            ]
            for (best,) in super().nbest(inputs, first)
        ]


def traced_classes(
    best: ClassPrediction,
    task: str,
    source: TracedSource,
    *,
    groups: Sequence[Sequence[int]],
    classes: Sequence[str],
    top: int,
) -> Traced:
    """Return the classes of a text as a trace; the weights are in the row of the most probable class.

    Args:
        source, groups: see `text_source`, with the frame that a text does not have.
    """
    names = [token.text for token in source.tokens[1:-1]]
    source = replace(
        source,
        tokens=source.tokens[1:-1],
        column_names=names,
        word_column_names=source.word_column_names[1:-1],
    )
    inner = [[token - 1 for token in group] for group in groups[1:-1]]
    index_of = {name: index for index, name in enumerate(classes)}
    log_probs = [math.log(max(value, sys.float_info.min)) for value in best.probabilities.values()]
    entropy = -math.fsum(
        value * one for value, one in zip(best.probabilities.values(), log_probs, strict=True)
    )
    ids = [index_of[name] for name in best.probabilities]
    of_best = attention_fields(source, inner, best.weights[None], [[0]])
    outputs = [
        TracedOutput(
            text=name,
            tokens=[Token(id=index, text=name, kind="word", word=0)],
            words=[name],
            word_log_probs=[log_prob],
            log_probs=[log_prob],
            ranks=[rank],
            entropies=[entropy],
            log_prob=log_prob,
            score=best.probabilities[name],
            ended=True,
            leaf=None,
            **(of_best if rank == 1 else {}),
        )
        for rank, (index, name, log_prob) in enumerate(
            zip(ids, best.probabilities, log_probs, strict=True), start=1
        )
    ]
    likely = [
        Alternative(id=index, text=text, kind="word", log_prob=log_prob, word=text, pieces=[text])
        for index, text, log_prob in zip(ids[:top], best.probabilities, log_probs, strict=False)
    ]
    return Traced(
        task=task,
        source=source,
        search=None,
        prefix=[],
        outputs=outputs,
        steps=[TracedStep(step=0, token=outputs[0].tokens[0].id, forced=False, entropy=entropy, top=likely)],
        tree=[],
        no_attention=None if best.attends else SALIENCY,
    )
