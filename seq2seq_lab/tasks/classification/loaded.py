"""A trained classifier in Python."""

from collections.abc import Sequence
from dataclasses import dataclass

from seq2seq_lab.errors import UserError
from seq2seq_lab.tasks.classification.evaluation import Prediction
from seq2seq_lab.tasks.loaded import Loaded


@dataclass(frozen=True)
class LoadedClassifier(Loaded):
    """A trained classifier."""

    def predict(self, lines: Sequence[str]) -> list[Prediction]:
        """Return the class of each text.

        Args:
            lines: classified in batches of `trainer.eval_batch_size`.

        Raises:
            UserError: `lines` is not a list, or a text has no tokens.
        """
        if isinstance(lines, str):
            raise UserError(f"predict takes a list of texts, not a text. Write [{lines!r}].")
        return self.task.predict(self.model, lines, self.compute)
