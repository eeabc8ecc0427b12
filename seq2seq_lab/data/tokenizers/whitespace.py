"""Tokens that are separated by spaces, for text that is already tokenized."""

import re
from collections.abc import Iterable, Iterator

from seq2seq_lab.data.languages import lowercase
from seq2seq_lab.data.tokenizers.vocabulary import VocabularyTokenizer

_TOKEN = re.compile("[^ ]+")


class WhitespaceTokenizer(VocabularyTokenizer):
    """Tokens of another program, separated by spaces (only U+0020).

    Decoding joins the tokens with single spaces: exact for such text, except for unknown tokens. Tabs and no-break spaces
    are parts of tokens. Marks of the other program, such as "@@" of subword-nmt, are kept.
    """

    def pieces(self, line: str) -> Iterator[tuple[str, int, int]]:
        for match in _TOKEN.finditer(line):
            yield lowercase(match[0], self.case) if self.lowercase else match[0], *match.span()

    def has_space(self, left: str, right: str) -> bool:
        return True

    def _cut(self, line: str) -> Iterable[str]:
        tokens = _TOKEN.findall(line)
        return [lowercase(token, self.case) for token in tokens] if self.lowercase else tokens
