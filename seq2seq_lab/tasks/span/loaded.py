"""A trained model of answers in a text in Python."""

from dataclasses import dataclass

from seq2seq_lab.tasks.loaded import Loaded, check_length
from seq2seq_lab.tasks.span.data import context_tokens


@dataclass(frozen=True, repr=False)
class LoadedSpanModel(Loaded):
    """A trained model of answers in a text; its predictions are `SpanPrediction`s."""

    options = frozenset({"scores", "weights", "attention", "light"})

    def check_input(self, line: str, where: str, longest: int) -> None:
        """Refuse a line with more than `longest` tokens, or that is not a question and a text with a tab between them."""
        tokenizer = self.task.vocabulary.tokenizer
        check_length(tokenizer, line, where, longest, empty=False)
        context_tokens(line, tokenizer.spans(line), where)
