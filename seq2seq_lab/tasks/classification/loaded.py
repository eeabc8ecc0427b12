"""A trained classifier in Python."""

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seq2seq_lab.analysis.questions import Question, ask_class
from seq2seq_lab.tasks.classification.data import TextBatches
from seq2seq_lab.tasks.classification.evaluation import ClassPrediction
from seq2seq_lab.tasks.loaded import Loaded, check_length


@dataclass(frozen=True, repr=False)
class LoadedClassifier(Loaded):
    """A trained classifier; its predictions are `ClassPrediction`s."""

    options = frozenset({"nbest", "weights", "attention", "light"})

    def check_input(self, line: str, where: str, longest: int) -> None:
        """Refuse a line without tokens, or with more than `longest`."""
        check_length(self.task.vocabulary.tokenizer, line, where, longest, empty=False)

    def predict(self, inputs: Sequence[str], **options: Any) -> list[ClassPrediction]:
        """Return the most probable class of each text; see `nbest`."""
        return [best for (best,) in self.nbest(inputs, n=1, **options)]

    def questions(self, split: Any, model: Any = None) -> Callable[[int], Question]:
        """See `Loaded.questions`; the output is the most probable class."""
        batches, vocabulary = TextBatches(split.tokens, self.device), self.task.vocabulary

        def question(index: int) -> Question:
            line = split.text.texts[index]
            return ask_class(
                self.model if model is None else model,
                batches(np.array([index])),
                index,
                line,
                vocabulary.tokenizer.spans(line),
                vocabulary.classes,
            )

        return question

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
