"""A trained tagger in Python."""

from dataclasses import dataclass

from seq2seq_lab.tasks.loaded import Loaded, check_length
from seq2seq_lab.tasks.tagging.data import first_tokens


@dataclass(frozen=True, repr=False)
class LoadedTagger(Loaded):
    """A trained tagger; its predictions are `TagPrediction`s."""

    options = frozenset({"scores", "attention", "light"})

    def check_input(self, line: str, where: str, longest: int) -> None:
        """Refuse a line without tokens, with more than `longest`, or with a word without tokens."""
        tokenizer = self.task.vocabulary.tokenizer
        check_length(tokenizer, line, where, longest, empty=False)
        first_tokens(line, tokenizer, where)
