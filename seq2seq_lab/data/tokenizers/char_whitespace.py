"""Characters as tokens of the source, and tokens separated by spaces as those of the target."""

from seq2seq_lab.data.tokenizers.char import CharTokenizer
from seq2seq_lab.data.tokenizers.whitespace import WhitespaceTokenizer


class CharWhitespaceTokenizer(WhitespaceTokenizer):
    """Characters on the source side, tokens separated by spaces on the target side, such as letters and phones.

    The bounds of the vocabulary and `lowercase` apply to both. A task with one text has tokens separated by spaces.
    """

    def of_source(self) -> CharTokenizer:
        """See `Tokenizer.of_source`."""
        return CharTokenizer(False, self.lowercase, self.min_frequency, self.max_size)
