"""A custom tokenizer."""

import re
from collections.abc import Iterator

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.tokenizers.vocabulary import JOINER, JoinedTokenizer, MaxSize


class ChunkTokenizer(JoinedTokenizer):
    """Cuts words into chunks of characters. A chunk that is not the last of its word ends with "￭".

    Args:
        joint, lowercase, min_frequency, max_size: see `VocabularyTokenizer`.
        length: characters of a chunk.
    """

    def __init__(
        self, joint: bool, lowercase: bool, min_frequency: Count, max_size: MaxSize | None, length: Count
    ) -> None:
        super().__init__(joint, lowercase, min_frequency, max_size)
        self.length = length

    def pieces(self, line: str) -> Iterator[tuple[str, int, int]]:
        for word in re.finditer("[^ ]+", line):
            for start in range(word.start(), word.end(), self.length):
                end = min(start + self.length, word.end())
                chunk = line[start:end].lower() if self.lowercase else line[start:end]
                yield chunk + JOINER if end < word.end() else chunk, start, end
