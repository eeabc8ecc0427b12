"""Tokens that are separated by spaces, for text that is already tokenised."""

import re
from collections.abc import Iterable, Iterator

from seq2seq_lab.data.tokenizers.vocabulary import VocabularyTokenizer

_TOKEN = re.compile("[^ ]+")


class WhitespaceTokenizer(VocabularyTokenizer):
    """Tokens as another program has cut them, separated by spaces (U+0020 and no other white space).

    Decoding joins the tokens with single spaces: exact for such text but for unknown tokens. Runs of spaces
    become one, and none is left at the ends; tabs and no-break spaces are parts of tokens. Marks of another
    program, such as "@@" of subword-nmt, stay as they are.
    """

    def _pieces(self, line: str) -> Iterator[tuple[str, int, int]]:
        for match in _TOKEN.finditer(line):
            yield match[0].lower() if self.lowercase else match[0], *match.span()

    def _apart(self, left: str, right: str) -> bool:
        return True

    def _cut(self, line: str) -> Iterable[str]:
        tokens = _TOKEN.findall(line)
        return map(str.lower, tokens) if self.lowercase else tokens
