"""A trained classifier in Python."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seq2seq_lab.tasks.classification.evaluation import ClassPrediction
from seq2seq_lab.tasks.loaded import Loaded, check_length


@dataclass(frozen=True, repr=False)
class LoadedClassifier(Loaded):
    """A trained classifier; its predictions are `ClassPrediction`s."""

    options = frozenset({"nbest", "weights", "attention", "light"})

    def check_input(self, line: str, where: str, longest: int) -> None:
        """Refuse a line without tokens, or with more than `longest`."""
        check_length(self.task.vocabulary.tokenizer, line, where, longest, empty=False)

    def nbest(self, inputs: Sequence[str], first: int = 0) -> list[list[ClassPrediction]]:
        """Return all classes of each text, the most probable first; see `Loaded.nbest`.

        Raises:
            UserError: `inputs` is not a list, or a text has no tokens.
        """
        return [
            [replace(best, text=label, score=value) for label, value in best.probabilities.items()]
            for (best,) in super().nbest(inputs, first)
        ]
